//! Tests of a cluster's slot that is moving, in the form of the engine's fault: a script starts only if all its keys exist, and is refused in
//! the middle if it has removed one of them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{Client, FairLock, LeasedSemaphore, Lock, Lockable, MultiLock, RwLock, Semaphore};
use stanchion_tests::World;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// The number of migrations, the length of each, and the time after each.
const MIGRATIONS: u64 = 12;
const MOVING: u64 = 60;
const AFTER: u64 = 700;

/// The longest time without a grant, without the migration itself. A grant by message that is not used costs 1.5 s.
const BOUND: Duration = ms(600);

/// Two processes with three tasks each acquire one name, and release it after a few ms, while slots move now and then. No release fails, at most
/// one task holds, and a free name does not stay idle after a migration.
macro_rules! contend {
    ($what:expr, $world:expr, $make:expr, $acquire:ident) => {{
        let (inside, ends) = (
            Arc::new(AtomicU32::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let last = Arc::new(std::sync::Mutex::new((Instant::now(), Duration::ZERO)));
        let mut tasks = JoinSet::new();
        for client in ["a", "b"] {
            let client = $world.named(client).await;
            for task in 0..3_u64 {
                let name = $make(&client);
                let (inside, ends, last) =
                    (Arc::clone(&inside), Arc::clone(&ends), Arc::clone(&last));
                tasks.spawn(async move {
                    while !ends.load(Ordering::SeqCst) {
                        let held = name.$acquire().await.unwrap();
                        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "P1: {}", $what);
                        {
                            let mut last = last.lock().unwrap();
                            let idle = last.0.elapsed();
                            last.1 = last.1.max(idle);
                        }
                        sleep(ms(2 + task)).await;
                        last.lock().unwrap().0 = Instant::now();
                        assert_eq!(inside.fetch_sub(1, Ordering::SeqCst), 1);
                        let released = held.release().await;
                        assert!(released.is_ok(), "{}: {released:?}", $what);
                    }
                });
            }
        }
        for _ in 0..MIGRATIONS {
            sleep(ms(AFTER)).await;
            $world.as_engine().faults().migrating(Switch::On);
            sleep(ms(MOVING)).await;
            $world.as_engine().faults().migrating(Switch::Off);
        }
        sleep(ms(AFTER)).await;
        ends.store(true, Ordering::SeqCst);
        while let Some(task) = tasks.join_next().await {
            task.unwrap();
        }
        let idle = last.lock().unwrap().1;
        assert!(idle < ms(MOVING) + BOUND, "{}: idle for {idle:?}", $what);
    }};
}

fn multi(client: &Client) -> MultiLock {
    let members = ["m1", "m2"].map(|name| Lock::new(client, name).unwrap());
    MultiLock::new(members.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

fn world() -> World {
    World::slow_engine().ends_after(ms(600_000))
}

#[tokio::test(start_paused = true)]
async fn locks_survive_moving_slots() {
    let world = world();
    contend!("lock", world, |it| Lock::new(it, "lock").unwrap(), acquire);
    contend!(
        "fair lock",
        world,
        |it| FairLock::new(it, "fair").unwrap(),
        acquire
    );
    contend!(
        "writers",
        world,
        |it| RwLock::new(it, "rwlock").unwrap(),
        write
    );
    contend!("multi-lock", world, multi, acquire);
}

#[tokio::test(start_paused = true)]
async fn permits_survive_moving_slots() {
    let world = world();
    let client = world.named("c").await;
    let plain = Semaphore::new(&client, "plain").unwrap();
    assert!(plain.init(1).await.unwrap());
    let leased = LeasedSemaphore::new(&client, "leased").unwrap();
    assert!(leased.init(1).await.unwrap());
    contend!(
        "permits",
        world,
        |it| Semaphore::new(it, "plain").unwrap(),
        acquire
    );
    contend!(
        "leased permits",
        world,
        |it| LeasedSemaphore::new(it, "leased").unwrap(),
        acquire
    );
    for (what, free) in [
        ("permits", plain.available().await.unwrap()),
        ("leased permits", leased.available().await.unwrap()),
    ] {
        assert_eq!(free, 1, "{what}");
    }
}
