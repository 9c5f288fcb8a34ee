//! Tests that are the same for plain and leased semaphores: the limit, wake-ups, and fairness between big and small requests.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stanchion::{AcquireError, Client};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{CHANNEL, Kind, Seats};
use stanchion_tests::{World, together};
use tokio::task::JoinHandle;

/// Makes a suite of the tests for each kind.
macro_rules! both_kinds {
    ($($name:ident),+ $(,)?) => {
        both_kinds! { of plain, Plain: $($name),+ }
        both_kinds! { of leased, Leased: $($name),+ }
    };
    (of $module:ident, $kind:ident: $($name:ident),+) => {
        mod $module {
            use super::{Kind, World};

            suite! { $($name),+ }

            $(async fn $name(world: &World) {
                super::$name(world, Kind::$kind).await;
            })+
        }
    };
}

both_kinds! {
    the_number_of_permits_is_set_once,
    a_timeout_says_that_the_semaphore_has_no_permits,
    a_release_of_three_wakes_three_waiters,
    a_big_request_is_served_among_small_ones,
    a_small_request_is_served_among_big_ones,
}

async fn semaphore(kind: Kind, client: &Client, permits: u32) -> Seats {
    let semaphore = kind.on(client);
    assert!(semaphore.init(permits).await.unwrap());
    semaphore
}

async fn the_number_of_permits_is_set_once(world: &World, kind: Kind) {
    let semaphore = semaphore(kind, &world.client().await, 2).await;
    assert!(!semaphore.init(7).await.unwrap());
    assert_eq!(semaphore.available().await.unwrap(), 2);
    if let Seats::Leased(leased) = &semaphore {
        assert_eq!(leased.total().await.unwrap(), 2);
    }
    kind.at_rest(world, 2).await;
}

async fn a_timeout_says_that_the_semaphore_has_no_permits(world: &World, kind: Kind) {
    let (ours, other) = (
        kind.on(&world.client().await),
        kind.on(&world.client().await),
    );
    let wait = Duration::from_millis(50);
    let text = |error: AcquireError| error.to_string();
    let hint = "the semaphore has no permits: call `init`";
    for _ in 0..2 {
        let missing = text(ours.acquire_timeout(1, wait).await.unwrap_err());
        assert!(missing.contains(hint), "{missing}");
    }
    assert!(other.init(1).await.unwrap());
    let held = other.acquire(1).await.unwrap();
    let taken = text(ours.acquire_timeout(1, wait).await.unwrap_err());
    assert!(!taken.contains("init"), "{taken}");
    drop(held);
    kind.at_rest(world, 1).await;
}

async fn a_release_of_three_wakes_three_waiters(world: &World, kind: Kind) {
    let ours = world.client().await;
    // No polls: they would count as requests.
    let config = world
        .config("theirs")
        .poll_interval(Duration::from_secs(300));
    let theirs = Client::connect_with(config).await.unwrap();
    let semaphore = semaphore(kind, &ours, 3).await;
    // Loads the scripts, so that each request is one command.
    let known = semaphore.acquire(1).await.unwrap();
    known.release().await.unwrap();
    let held = semaphore.acquire(3).await.unwrap();
    let waiting: Vec<_> = (0..3)
        .map(|_| {
            let semaphore = kind.on(&theirs);
            tokio::spawn(async move { semaphore.acquire(1).await.unwrap() })
        })
        .collect();
    world.waiting(&theirs, 3, CHANNEL).await;
    let before = world.scripts_run();
    held.release().await.unwrap();
    let permits = together(waiting).await;
    // The release grants the first. A plain grant is confirmed, and the others of the process ask.
    let scripts = if kind == Kind::Plain { 4 } else { 3 };
    assert_eq!(world.scripts_run() - before, scripts);
    drop(permits);
    kind.at_rest(world, 3).await;
}

/// Starts tasks that acquire and release `wanted` permits until `done` is set.
fn contenders(
    semaphore: &Seats,
    wanted: u32,
    count: u32,
    done: &Arc<AtomicU32>,
) -> Vec<JoinHandle<()>> {
    (0..count)
        .map(|i| {
            let (semaphore, done) = (semaphore.clone(), Arc::clone(done));
            tokio::spawn(async move {
                while done.load(Ordering::Relaxed) == 0 {
                    let permit = semaphore.acquire(wanted).await.unwrap();
                    tokio::time::sleep(Duration::from_millis(1 + u64::from(i % 3))).await;
                    permit.release().await.unwrap();
                }
            })
        })
        .collect()
}

async fn end(contenders: Vec<JoinHandle<()>>, done: &AtomicU32) {
    done.store(1, Ordering::Relaxed);
    for contender in contenders {
        contender.await.unwrap();
    }
}

async fn a_big_request_is_served_among_small_ones(world: &World, kind: Kind) {
    let (busy, other) = (world.client().await, world.client().await);
    let seats = semaphore(kind, &busy, 4).await;
    let done = Arc::new(AtomicU32::new(0));
    let contenders = contenders(&seats, 1, 12, &done);
    eventually("tasks of the process wait", || busy.waiters() > 4).await;
    let other = kind.on(&other);
    for _ in 0..5 {
        let wait = Duration::from_secs(2);
        let all = other.acquire_timeout(4, wait).await.unwrap();
        assert_eq!(other.available().await.unwrap(), 0);
        all.release().await.unwrap();
    }
    end(contenders, &done).await;
    kind.at_rest(world, 4).await;
}

async fn a_small_request_is_served_among_big_ones(world: &World, kind: Kind) {
    let (first, second, other) = (
        world.client().await,
        world.client().await,
        world.client().await,
    );
    let seats = semaphore(kind, &first, 4).await;
    let done = Arc::new(AtomicU32::new(0));
    let mut all = contenders(&seats, 4, 3, &done);
    all.extend(contenders(&kind.on(&second), 3, 3, &done));
    eventually("both processes have waiters", || {
        first.waiters() > 0 && second.waiters() > 0
    })
    .await;
    let other = kind.on(&other);
    for _ in 0..5 {
        let wait = Duration::from_secs(2);
        let one = other.acquire_timeout(1, wait).await.unwrap();
        one.release().await.unwrap();
    }
    end(all, &done).await;
    kind.at_rest(world, 4).await;
}
