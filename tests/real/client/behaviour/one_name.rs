//! Tests two primitives with one name: the second gets a clear error or shares the first one's lock, and overwrites nothing.

use std::time::Duration;

use stanchion::{
    AcquireError, Client, CountDownLatch, FairLock, LeasedSemaphore, Lock, QueryError, Rejection,
    RwLock, Semaphore,
};
use stanchion_tests::World;

suite! {
    a_second_primitive_refuses_the_name_and_changes_nothing,
    a_lock_and_a_fair_lock_exclude_each_other,
    a_number_in_use_is_not_overwritten,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Lock,
    FairLock,
    Read,
    Write,
    Semaphore,
    Leased,
    Latch,
}

const KINDS: [Kind; 7] = [
    Kind::Lock,
    Kind::FairLock,
    Kind::Read,
    Kind::Write,
    Kind::Semaphore,
    Kind::Leased,
    Kind::Latch,
];

/// Uses the name, and returns the value that keeps it in use.
async fn occupy(client: &Client, kind: Kind) -> Box<dyn std::any::Any + Send> {
    match kind {
        Kind::Lock => Box::new(Lock::new(client, "job").unwrap().acquire().await.unwrap()),
        Kind::FairLock => Box::new(
            FairLock::new(client, "job")
                .unwrap()
                .acquire()
                .await
                .unwrap(),
        ),
        Kind::Read => Box::new(RwLock::new(client, "job").unwrap().read().await.unwrap()),
        Kind::Write => Box::new(RwLock::new(client, "job").unwrap().write().await.unwrap()),
        Kind::Semaphore => {
            let semaphore = Semaphore::new(client, "job").unwrap();
            assert!(semaphore.init(3).await.unwrap());
            Box::new(semaphore.acquire().await.unwrap())
        }
        Kind::Leased => {
            let semaphore = LeasedSemaphore::new(client, "job").unwrap();
            assert!(semaphore.init(3).await.unwrap());
            Box::new(semaphore.acquire().await.unwrap())
        }
        Kind::Latch => {
            let latch = CountDownLatch::new(client, "job").unwrap();
            assert!(latch.arm(3).await.unwrap());
            Box::new(latch)
        }
    }
}

/// Calls every verb of `kind` that could write to the name, and returns the results.
async fn use_every_verb(client: &Client, kind: Kind) -> Vec<Result<(), Rejection>> {
    let name = "job";
    match kind {
        Kind::Lock => vec![tried(Lock::new(client, name).unwrap().try_acquire().await)],
        Kind::FairLock => vec![
            tried(FairLock::new(client, name).unwrap().try_acquire().await),
            tried(waited(
                FairLock::new(client, name)
                    .unwrap()
                    .acquire_timeout(TIMEOUT)
                    .await,
            )),
        ],
        Kind::Read => vec![tried(RwLock::new(client, name).unwrap().try_read().await)],
        Kind::Write => vec![tried(RwLock::new(client, name).unwrap().try_write().await)],
        Kind::Semaphore => {
            let semaphore = Semaphore::new(client, name).unwrap();
            vec![
                queried(semaphore.init(7).await),
                tried(semaphore.try_acquire().await),
                queried(semaphore.add(1).await),
                queried(semaphore.drain().await),
            ]
        }
        Kind::Leased => {
            let semaphore = LeasedSemaphore::new(client, name).unwrap();
            vec![
                queried(semaphore.init(7).await),
                tried(semaphore.try_acquire().await),
                queried(semaphore.add(1).await),
                queried(semaphore.drain().await),
            ]
        }
        Kind::Latch => {
            let latch = CountDownLatch::new(client, name).unwrap();
            vec![
                queried(latch.arm(7).await),
                queried(latch.count_down().await),
                tried(latch.wait_timeout(TIMEOUT).await.map(Some)),
                queried(latch.danger().delete().await),
            ]
        }
    }
}

const TIMEOUT: Duration = Duration::from_millis(30);

fn tried<T>(result: Result<Option<T>, AcquireError>) -> Result<(), Rejection> {
    match result {
        Ok(_) | Err(AcquireError::TimedOut { .. }) => Ok(()),
        Err(AcquireError::Rejected { rejection, .. }) => Err(rejection),
        Err(error) => panic!("{error}"),
    }
}

fn waited<T>(result: Result<T, AcquireError>) -> Result<Option<T>, AcquireError> {
    result.map(Some)
}

fn queried<T>(result: Result<T, QueryError>) -> Result<(), Rejection> {
    match result {
        Ok(_) => Ok(()),
        Err(QueryError::Rejected { rejection }) => Err(rejection),
        Err(error) => panic!("{error}"),
    }
}

/// Returns whether the server cannot distinguish the kinds: in Redisson's layout semaphores and latches are one number without a type.
/// See docs/protocol.md, "One name, two primitives".
fn share(a: Kind, b: Kind) -> bool {
    let family = |kind| match kind {
        Kind::Lock | Kind::FairLock => 0,
        Kind::Read | Kind::Write => 1,
        Kind::Semaphore | Kind::Leased | Kind::Latch => 2,
    };
    family(a) == family(b)
}

async fn a_second_primitive_refuses_the_name_and_changes_nothing(world: &World) {
    for first in KINDS {
        for second in KINDS {
            if share(first, second) {
                continue;
            }
            let _ = world.admin(&["FLUSHALL"]);
            let (one, other) = (world.client().await, world.client().await);
            let occupied = occupy(&one, first).await;
            let before = world.dump();
            for (verb, outcome) in use_every_verb(&other, second).await.into_iter().enumerate() {
                let case = format!("{second:?} (verb {verb}) on the name of a {first:?}");
                match outcome {
                    Err(Rejection::WrongType { .. }) => {}
                    other => panic!("{case}: {other:?}"),
                }
            }
            assert_eq!(
                world.dump(),
                before,
                "{second:?} on the name of a {first:?}"
            );
            drop(occupied);
        }
    }
}

async fn a_lock_and_a_fair_lock_exclude_each_other(world: &World) {
    let (one, other) = (world.client().await, world.client().await);
    let (plain, fair) = (
        Lock::new(&one, "job").unwrap(),
        FairLock::new(&other, "job").unwrap(),
    );
    let held = plain.acquire().await.unwrap();
    assert!(fair.try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    let held = fair.acquire().await.unwrap();
    assert!(plain.try_acquire().await.unwrap().is_none());
    // Tokens come from one counter, so they grow across both.
    let token = held.fencing_token();
    held.release().await.unwrap();
    let held = plain.acquire().await.unwrap();
    assert!(held.fencing_token() > token);
    held.release().await.unwrap();
    world.at_rest().await;
}

async fn a_number_in_use_is_not_overwritten(world: &World) {
    let numbers = [Kind::Semaphore, Kind::Leased, Kind::Latch];
    for first in numbers {
        let _ = world.admin(&["FLUSHALL"]);
        let (one, other) = (world.client().await, world.client().await);
        let occupied = occupy(&one, first).await;
        let before = world.dump();
        for second in numbers {
            let set = match second {
                Kind::Semaphore => Semaphore::new(&other, "job").unwrap().init(7).await,
                Kind::Leased => LeasedSemaphore::new(&other, "job").unwrap().init(7).await,
                _ => CountDownLatch::new(&other, "job").unwrap().arm(7).await,
            };
            assert!(!set.unwrap(), "{second:?} on the name of a {first:?}");
        }
        // A refused init may leave its once key for a few seconds. The number and the holds must not change.
        let after = world.dump();
        for (key, held) in before {
            assert!(
                after.contains(&(key.clone(), held)),
                "{key} after a {first:?}"
            );
        }
        drop(occupied);
    }
}
