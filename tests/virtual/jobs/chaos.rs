//! Random tests of jobs on several machines, with lost replies, closed and frozen connections, dropped calls and late clocks.
//! No tick may run twice, runs must not overlap, and tokens must grow.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use stanchion::Lease;
use stanchion::jobs::{JobRun, Outcome};
use stanchion_tests::World;

use super::*;

const MACHINES: usize = 5;
const TICKS: u32 = 60;

/// The runs so far.
struct Log {
    of_tick: Vec<AtomicU32>,
    running: AtomicU32,
    token: AtomicU64,
}

/// A run in progress. Its drop is the end of the run.
struct Running(Arc<Log>);

impl Running {
    fn begin(log: &Arc<Log>, tick: usize, run: &JobRun) -> Self {
        assert_eq!(
            log.of_tick[tick].fetch_add(1, Ordering::Relaxed),
            0,
            "tick {tick} runs twice"
        );
        assert_eq!(log.running.fetch_add(1, Ordering::Relaxed), 0, "P1");
        let token = run.fencing_token().unwrap().get();
        assert!(log.token.swap(token, Ordering::Relaxed) < token, "P2");
        Self(Arc::clone(log))
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn machine(job: Job, first: Tick, log: Arc<Log>, mut rng: fastrand::Rng) {
    let began = tokio::time::Instant::now();
    let skew = ms(rng.u64(0..800));
    for tick in 0..TICKS {
        let due = seconds(u64::from(tick)) + skew + ms(rng.u64(0..30));
        tokio::time::sleep(due.saturating_sub(began.elapsed())).await;
        let at = after(first, seconds(u64::from(tick)));
        let (length, number) = (ms(rng.u64(0..1_500)), tick as usize);
        let (log, patience) = (Arc::clone(&log), ms(rng.u64(0..60)));
        let run = job.run_tick(at, |run| async move {
            let _running = Running::begin(&log, number, &run);
            tokio::time::sleep(length).await;
        });
        // Some callers drop the call at a random time.
        let outcome = match rng.u8(0..6) {
            0 => tokio::time::timeout(patience, run).await.ok(),
            _ => Some(run.await),
        };
        drop(outcome);
    }
}

async fn chaos(seed: u64) -> u32 {
    let world = World::engine();
    let faults = world.as_engine().faults();
    faults.delay(None, ms(3));
    let first = after(this_minute(&world), seconds(60));
    let log = Arc::new(Log {
        of_tick: (0..TICKS).map(|_| AtomicU32::new(0)).collect(),
        running: AtomicU32::new(0),
        token: AtomicU64::new(0),
    });
    let mut rng = fastrand::Rng::with_seed(seed);
    let least = [ms(0), ms(400)][rng.usize(0..2)];
    let mut fleet = Vec::new();
    for client in &world.fleet(MACHINES).await {
        let job = nightly(client)
            .lease(Lease::new(seconds(2)).unwrap())
            .at_least(least);
        let rng = fastrand::Rng::with_seed(rng.u64(..));
        fleet.push(tokio::spawn(machine(job, first, Arc::clone(&log), rng)));
    }
    while fleet.iter().any(|machine| !machine.is_finished()) {
        tokio::time::sleep(ms(rng.u64(0..1_200))).await;
        let label = format!("p{}", rng.usize(0..MACHINES));
        match rng.u8(0..5) {
            0 => faults.lose_replies("EVALSHA", 1),
            1 => faults.lose_replies_silently("EVALSHA", 1),
            2 => faults.kill_label(&label),
            3 => faults.hold_requests("EVALSHA", 1),
            _ => {
                faults.freeze(Some(&label));
                tokio::time::sleep(ms(rng.u64(0..4_000))).await;
                faults.thaw(Some(&label));
                faults.deliver();
            }
        }
    }
    for machine in fleet {
        machine
            .await
            .unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
    faults.clear();
    faults.deliver();
    world.quiet().await;
    // Without faults the next tick runs.
    let client = world.client().await;
    let next = after(first, seconds(u64::from(TICKS)));
    let job = nightly(&client);
    eventually_async(&format!("seed {seed}: the next tick runs"), async || {
        job.run_tick(next, |_| async {}).await == Ok(Outcome::Done(()))
    })
    .await;
    log.of_tick.iter().map(|n| n.load(Ordering::Relaxed)).sum()
}

#[tokio::test(start_paused = true)]
async fn no_fault_makes_a_tick_run_twice() {
    let mut runs = 0;
    for seed in 0..40 {
        runs += chaos(seed).await;
    }
    // At least a third of the ticks run. The others overlap with the run before.
    assert!(runs > 40 * TICKS / 3, "{runs} of {}", 40 * TICKS);
}
