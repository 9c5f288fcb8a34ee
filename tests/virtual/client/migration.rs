//! Tests of a cluster's slot that is moving, in the form of the engine's fault: a script starts only if all its keys exist, and is refused in
//! the middle if it has removed one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion_tests::kinds::{Case, kinds};
use stanchion_tests::{World, ms};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The number of migrations, the length of each, and the time after each.
const MIGRATIONS: u64 = 12;
const MOVING: u64 = 60;
const AFTER: u64 = 700;

/// The longest time without a grant, without the migration itself. A grant by message that is not used costs 1.5 s.
const BOUND: Duration = ms(600);

/// P1, P4. Two processes with three tasks each acquire one name, and release it after a few ms, while slots move now and then. No release
/// fails, and a free name does not stay idle after a migration.
#[tokio::test(start_paused = true)]
async fn holds_survive_moving_slots() {
    for kind in kinds() {
        let world = World::slow_engine().ends_after(ms(600_000));
        let case = Case::new(kind, world).await;
        let faults = case.world.faults();
        let (inside, ends): (Arc<AtomicU32>, Arc<AtomicBool>) = Default::default();
        let last = Arc::new(std::sync::Mutex::new((Instant::now(), Duration::ZERO)));
        let mut tasks = JoinSet::new();
        for task in 0..6_u64 {
            let name = if task < 3 {
                case.rival_of_ours()
            } else {
                case.theirs()
            };
            let (inside, ends, last) = (Arc::clone(&inside), Arc::clone(&ends), Arc::clone(&last));
            tasks.spawn(async move {
                while !ends.load(Ordering::SeqCst) {
                    let held = name.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "P1");
                    {
                        let mut last = last.lock().unwrap();
                        last.1 = last.1.max(last.0.elapsed());
                    }
                    sleep(ms(2 + task % 3)).await;
                    last.lock().unwrap().0 = Instant::now();
                    inside.fetch_sub(1, Ordering::SeqCst);
                    held.release().await.unwrap();
                }
            });
        }
        for _ in 0..MIGRATIONS {
            sleep(ms(AFTER)).await;
            faults.migrating(Switch::On);
            sleep(ms(MOVING)).await;
            faults.migrating(Switch::Off);
        }
        sleep(ms(AFTER)).await;
        ends.store(true, Ordering::SeqCst);
        while let Some(task) = tasks.join_next().await {
            task.unwrap_or_else(|error| panic!("{}: {error}", case.label));
        }
        let idle = last.lock().unwrap().1;
        assert!(
            idle < ms(MOVING) + BOUND,
            "{}: idle for {idle:?}",
            case.label
        );
        case.soon_at_rest().await;
    }
}
