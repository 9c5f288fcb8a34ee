//! Tests semaphores with random operations under random faults: no more permits are held than exist, and at the end every permit is free.
//!
//! `STANCHION_SEEDS=500` runs more seeds, `STANCHION_SEED=17` only that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use stanchion::{AcquireError, Client, Lease, LeasedPermit};
use stanchion_testkit::{Event, History, Kind as EventKind, Mode, Rules, check, eventually};
use stanchion_tests::World;
use stanchion_tests::permits::{KINDS, Kind, NAME, Seat, Seats, at_rest};
use tokio::time::Instant;

/// The duration of a run.
const DURATION: Duration = Duration::from_secs(60);

/// The default number of seeds.
const SEEDS: u64 = 12;

struct Run {
    kind: Kind,
    limit: u32,
    history: History,
    started: Instant,
    over: AtomicBool,
    grants: AtomicUsize,
}

/// One task of one client.
struct Worker {
    run: Arc<Run>,
    seats: Seats,
    id: (u32, u32),
    rng: fastrand::Rng,
}

impl Worker {
    fn record(&self, kind: EventKind, permits: u32, valid_for: Option<Duration>) {
        let at = self.run.started.elapsed();
        self.run.history.record(Event {
            at,
            process: self.id.0,
            task: self.id.1,
            name: NAME.to_owned(),
            kind,
            mode: Mode::Permits(permits),
            token: None,
            safe_until: valid_for.map(|left| at + left),
        });
    }

    /// Acquires in a random way. `None` means that no permit was granted.
    async fn acquire(&mut self, permits: u32) -> Option<Seat> {
        let patience = Duration::from_millis(self.rng.u64(0..4_000));
        let result = match self.rng.u8(0..10) {
            0 | 1 => self.seats.try_acquire(permits).await,
            2..=4 => match self.seats.acquire_timeout(permits, patience).await {
                Ok(seat) => Ok(Some(seat)),
                Err(AcquireError::TimedOut { .. }) => Ok(None),
                Err(error) => Err(error),
            },
            // The caller drops the future at a random time.
            5 => tokio::time::timeout(patience, self.seats.acquire(permits))
                .await
                .map_or(Ok(None), |granted| granted.map(Some)),
            _ => self.seats.acquire(permits).await.map(Some),
        };
        match result {
            Ok(seat) => seat,
            Err(AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. }) => None,
            Err(error) => panic!("{error}"),
        }
    }

    /// Holds the permit for `hold`, and records renewals before the lease ends, because a grant by message has a short lease.
    /// Returns true if the permit was lost.
    async fn hold(&self, permit: &LeasedPermit, permits: u32, hold: Duration) -> bool {
        let end = Instant::now() + hold;
        while Instant::now() < end {
            let part = (permit.remaining() / 2).max(Duration::from_millis(1));
            let part = tokio::time::sleep_until(end.min(Instant::now() + part));
            if permit.run(part).await.is_err() {
                return true;
            }
            self.record(EventKind::Renewed, permits, Some(permit.remaining()));
        }
        false
    }

    async fn work(mut self) {
        while !self.run.over.load(Ordering::Relaxed) {
            let think = Duration::from_millis(self.rng.u64(0..300));
            tokio::time::sleep(think).await;
            let permits = match self.rng.u8(0..4) {
                0 => self.rng.u32(1..=self.run.limit),
                _ => 1,
            };
            self.record(EventKind::Invoke, permits, None);
            let Some(seat) = self.acquire(permits).await else {
                self.record(EventKind::TimedOut, permits, None);
                continue;
            };
            self.run.grants.fetch_add(1, Ordering::Relaxed);
            let valid_for = match &seat {
                Seat::Plain(_) => None,
                Seat::Leased(permit) => Some(permit.remaining()),
            };
            self.record(EventKind::Granted, permits, valid_for);
            let hold = Duration::from_millis(self.rng.u64(0..500));
            let lost = match &seat {
                Seat::Plain(_) => {
                    tokio::time::sleep(hold).await;
                    false
                }
                Seat::Leased(permit) => self.hold(permit, permits, hold).await,
            };
            if lost {
                self.record(EventKind::Lost, permits, None);
            } else {
                self.record(EventKind::ReleaseInvoke, permits, None);
            }
            match self.rng.u8(0..3) {
                0 => drop(seat),
                _ => drop(seat.release().await),
            }
        }
    }
}

/// Injects random faults until the run ends.
async fn inject_faults(world: &World, run: &Run, mut rng: fastrand::Rng) {
    let faults = world.as_engine().faults();
    while run.started.elapsed() < DURATION {
        tokio::time::sleep(Duration::from_millis(rng.u64(0..1_500))).await;
        let label = format!("client-{}", rng.u32(0..3));
        match rng.u8(0..10) {
            0 => faults.lose_replies("EVALSHA", rng.usize(1..4)),
            1 => faults.lose_replies_silently("EVALSHA", rng.usize(1..3)),
            2 => faults.lose_messages(rng.usize(1..5)),
            3 => faults.kill_label(&label),
            4 => faults.kill_subscribers(),
            5 => faults.flush_scripts(),
            6 => faults.restart(stanchion::embedded::Data::Kept),
            7 => faults.delay(Some(&label), Duration::from_millis(rng.u64(0..50))),
            _ => {
                faults.freeze(Some(&label));
                tokio::time::sleep(Duration::from_millis(rng.u64(0..6_000))).await;
                faults.thaw(Some(&label));
            }
        }
    }
    faults.clear();
}

async fn run_seed(kind: Kind, seed: u64) {
    let mut rng = fastrand::Rng::with_seed(seed);
    let world = World::engine();
    let limit = rng.u32(1..=6);
    let run = Arc::new(Run {
        kind,
        limit,
        history: History::new(),
        started: Instant::now(),
        over: AtomicBool::new(false),
        grants: AtomicUsize::new(0),
    });
    let mut clients = Vec::new();
    let mut workers = Vec::new();
    for process in 0..3 {
        let config = world
            .config(&format!("client-{process}"))
            .seed(seed * 10 + u64::from(process))
            .response_timeout(Duration::from_millis(1_000));
        let client = Client::connect_with(config).await.unwrap();
        let lease = Lease::new(Duration::from_millis(2_500)).unwrap();
        let seats = run.kind.on(&client).lease(lease);
        if process == 0 {
            seats.init(limit).await.unwrap();
        }
        for task in 0..4 {
            let worker = Worker {
                run: Arc::clone(&run),
                seats: seats.clone(),
                id: (process, task),
                rng: rng.fork(),
            };
            workers.push(tokio::spawn(worker.work()));
        }
        clients.push(client);
    }
    inject_faults(&world, &run, rng.fork()).await;
    run.over.store(true, Ordering::Relaxed);
    for worker in workers {
        worker
            .await
            .unwrap_or_else(|e| panic!("{kind:?}, seed {seed}: {e}"));
    }
    // Every permit is returned exactly once, also one that was granted without the client's knowledge.
    eventually("no client has a waiter", || {
        clients.iter().map(Client::waiters).sum::<usize>() == 0
    })
    .await;
    // P3: a grant with a lost message ends with its lease. The next request that needs the permit reclaims it.
    let seats = run.kind.on(&clients[0]);
    let all = seats.acquire_timeout(limit, Duration::from_secs(10)).await;
    let all = all.unwrap_or_else(|e| panic!("{kind:?}, seed {seed}: {e}"));
    all.release().await.unwrap();
    at_rest(&world, i64::from(limit)).await;
    let rules = Rules::new()
        .permits(NAME, limit)
        .lost_slack(Duration::from_millis(2))
        .liveness(Duration::from_secs(20));
    check(&run.history, &rules).unwrap_or_else(|found| {
        let found: Vec<String> = found.iter().take(5).map(ToString::to_string).collect();
        panic!("{kind:?}, seed {seed}, {limit} permits: {found:#?}")
    });
    let grants = run.grants.load(Ordering::Relaxed);
    assert!(
        grants > 50,
        "{kind:?}, seed {seed}: {grants} grants prove little"
    );
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

#[test]
fn random_faults_neither_lose_nor_create_permits() {
    let seeds = match number("STANCHION_SEED") {
        Some(seed) => seed..=seed,
        None => 1..=number("STANCHION_SEEDS").unwrap_or(SEEDS),
    };
    for seed in seeds {
        for kind in KINDS {
            tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .start_paused(true)
                .build()
                .unwrap()
                .block_on(run_seed(kind, seed));
        }
    }
}
