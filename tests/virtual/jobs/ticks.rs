//! Tests that each tick runs once, whatever the clocks of the machines show.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use stanchion::Tick;
use stanchion::jobs::{Begun, Outcome};
use stanchion_tests::{World, together};

use super::*;

/// The clocks of sixteen machines are wrong by up to 30 s. On each machine a timer fires up to 750 ms after every full minute of
/// its clock. The tick of each minute runs exactly once.
#[tokio::test(start_paused = true)]
async fn a_fleet_with_wrong_clocks_runs_each_tick_once() {
    const MACHINES: u64 = 16;
    const MINUTES: u64 = 60;
    let world = World::engine();
    let period = secs(60);
    let runs: Arc<Vec<AtomicU32>> = Arc::new((0..MINUTES).map(|_| AtomicU32::new(0)).collect());
    let first = after(this_minute(&world), period);
    let started = server_time(&world);
    let began = tokio::time::Instant::now();
    let mut fleet = Vec::new();
    for (n, client) in world.fleet(16).await.into_iter().enumerate() {
        let n = n as u64;
        // -30 s to +30 s, and 0 to 750 ms late.
        let (ahead, late) = (secs(60) * u32::try_from(n).unwrap() / 15, ms(n * 50));
        let runs = Arc::clone(&runs);
        fleet.push(tokio::spawn(async move {
            let clock = || started + began.elapsed() + ahead - secs(30);
            for minute in 0..MINUTES {
                let due: SystemTime = first.time() + period * u32::try_from(minute).unwrap() + late;
                let pause = due.duration_since(clock()).unwrap_or_default();
                tokio::time::sleep(pause).await;
                let tick = Tick::rounded_down(clock(), period).unwrap();
                let work = async |minute: usize| {
                    runs[minute].fetch_add(1, Ordering::Relaxed);
                    // Between 0 s and 44 s: some runs are longer than the difference between two clocks.
                    tokio::time::sleep(ms((n * 7_000) % 45_000)).await;
                };
                let number = (tick.unix_millis() - first.unix_millis()) / 60_000;
                let number = usize::try_from(number).unwrap();
                let _ = nightly(&client)
                    .run_tick(tick, |_| work(number))
                    .await
                    .unwrap();
            }
        }));
    }
    together(fleet).await;
    let runs: Vec<u32> = runs.iter().map(|n| n.load(Ordering::Relaxed)).collect();
    assert_eq!(
        runs,
        vec![1; usize::try_from(MINUTES).unwrap()],
        "{MACHINES} machines"
    );
}

/// Virtual time differs from the machine's clock by years. `Job::tick` must follow virtual time.
#[tokio::test(start_paused = true)]
async fn a_job_computes_ticks_in_virtual_time() {
    let (world, [one, other]) = World::engine().with_clients().await;
    let quarter = secs(15 * 60);
    let mut last = None;
    for _ in 0..3 {
        let tick = nightly(&one).tick(quarter).unwrap();
        assert_eq!(
            tick,
            Tick::rounded_down(server_time(&world), quarter).unwrap()
        );
        assert!(last.replace(tick) < Some(tick));
        let ran = nightly(&one).run_tick(tick, |_| async {}).await.unwrap();
        assert_eq!(ran, Outcome::Done(()));
        let same = nightly(&other).tick(quarter).unwrap();
        let again = nightly(&other).begin_tick(same).await.unwrap();
        assert!(matches!(again, Begun::Already { .. }), "{again:?}");
        tokio::time::sleep(quarter).await;
    }
    assert!(nightly(&one).tick(Duration::ZERO).is_err());
}
