//! Tests two primitives with one name, and a primitive with the name of a foreign value: the second gets a clear error or shares the first
//! one's lock, and overwrites nothing.

use std::time::Duration;

use stanchion::{AcquireError, CountDownLatch, LeasedSemaphore, QueryError, Rejection, RwLock};
use stanchion_tests::{World, ms};

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
    /// A foreign string that is no number, or a foreign list.
    Text,
    List,
}
use Kind::*;

const KINDS: [Kind; 7] = [Lock, FairLock, Read, Write, Semaphore, Leased, Latch];

/// One object of each primitive, with the same name.
struct All {
    lock: stanchion::Lock,
    fair: stanchion::FairLock,
    rwlock: RwLock,
    plain: stanchion::Semaphore,
    leased: LeasedSemaphore,
    latch: CountDownLatch,
}

impl All {
    async fn new(world: &World) -> Self {
        let client = &world.client().await;
        Self {
            lock: stanchion::Lock::new(client, "job").unwrap(),
            fair: stanchion::FairLock::new(client, "job").unwrap(),
            rwlock: RwLock::new(client, "job").unwrap(),
            plain: stanchion::Semaphore::new(client, "job").unwrap(),
            leased: LeasedSemaphore::new(client, "job").unwrap(),
            latch: CountDownLatch::new(client, "job").unwrap(),
        }
    }

    /// Uses the name, and returns the value that keeps it in use.
    async fn occupy(&self, kind: Kind) -> Box<dyn std::any::Any + Send> {
        if [Semaphore, Leased, Latch].contains(&kind) {
            assert!(self.set(kind, 3).await.unwrap());
        }
        match kind {
            Lock => Box::new(self.lock.acquire().await.unwrap()),
            FairLock => Box::new(self.fair.acquire().await.unwrap()),
            Read => Box::new(self.rwlock.read().await.unwrap()),
            Write => Box::new(self.rwlock.write().await.unwrap()),
            Semaphore => Box::new(self.plain.acquire().await.unwrap()),
            Leased => Box::new(self.leased.acquire().await.unwrap()),
            Latch => Box::new(()),
            Text | List => panic!("{kind:?} is no primitive"),
        }
    }

    /// Sets the number of permits, or of a latch.
    async fn set(&self, kind: Kind, number: u32) -> Result<bool, QueryError> {
        match kind {
            Semaphore => self.plain.init(number).await,
            Leased => self.leased.init(number).await,
            _ => self.latch.arm(number.into()).await,
        }
    }

    /// Calls every verb of `kind` that could write to the name, and returns the results.
    async fn use_every_verb(&self, kind: Kind) -> Vec<Result<(), Rejection>> {
        let waited = self.fair.acquire_timeout(TIMEOUT);
        let of_rwlock = async || {
            let forced = self.rwlock.danger().force_release().await;
            [queried(forced), queried(self.rwlock.status().await)]
        };
        match kind {
            Lock => vec![
                tried(self.lock.try_acquire().await),
                queried(self.lock.danger().force_release().await),
                queried(self.lock.status().await),
                queried(self.lock.request_release("x").await),
            ],
            FairLock => vec![
                tried(self.fair.try_acquire().await),
                tried(waited.await),
                queried(self.fair.danger().force_release().await),
                queried(self.fair.status().await),
            ],
            Read => [
                vec![tried(self.rwlock.try_read().await)],
                of_rwlock().await.into(),
            ]
            .concat(),
            Write => [
                vec![tried(self.rwlock.try_write().await)],
                of_rwlock().await.into(),
            ]
            .concat(),
            Semaphore => vec![
                queried(self.set(kind, 7).await),
                tried(self.plain.try_acquire().await),
                tried(self.plain.acquire_timeout(TIMEOUT).await),
                queried(self.plain.add(1).await),
                queried(self.plain.reduce(1).await),
                queried(self.plain.drain().await),
                queried(self.plain.available().await),
                queried(self.plain.danger().reclaim("x").await),
                queried(self.plain.danger().delete().await),
            ],
            Leased => vec![
                queried(self.set(kind, 7).await),
                tried(self.leased.try_acquire().await),
                tried(self.leased.acquire_timeout(TIMEOUT).await),
                queried(self.leased.add(1).await),
                queried(self.leased.reduce(1).await),
                queried(self.leased.drain().await),
                queried(self.leased.available().await),
                queried(self.leased.status().await),
                queried(self.leased.set_total(3).await),
                queried(
                    self.leased
                        .danger()
                        .reclaim(&"0011".repeat(8).parse().unwrap())
                        .await,
                ),
                queried(self.leased.danger().delete().await),
            ],
            Latch => vec![
                queried(self.set(kind, 7).await),
                queried(self.latch.count_down().await),
                queried(self.latch.count().await),
                tried(self.latch.wait_timeout(TIMEOUT).await),
                queried(self.latch.danger().delete().await),
            ],
            Text | List => panic!("{kind:?} is no primitive"),
        }
    }
}

const TIMEOUT: Duration = ms(30);

fn tried<T>(result: Result<T, AcquireError>) -> Result<(), Rejection> {
    match result {
        Ok(_) | Err(AcquireError::TimedOut { .. }) => Ok(()),
        Err(AcquireError::Rejected { rejection, .. }) => Err(rejection),
        Err(error) => panic!("{error}"),
    }
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
        Lock | FairLock => 0,
        Read | Write => 1,
        Semaphore | Leased | Latch => 2,
        Text | List => 3,
    };
    family(a) == family(b)
}

/// P8, R7.
async fn a_second_primitive_refuses_the_name_and_changes_nothing(world: &World) {
    for first in KINDS.into_iter().chain([Text, List]) {
        for second in KINDS.into_iter().filter(|it| !share(first, *it)) {
            let _ = world.admin(&["FLUSHALL"]);
            let mut _occupied = None;
            match first {
                Text => drop(world.admin(&["SET", "job", "precious"])),
                List => drop(world.admin(&["RPUSH", "job", "precious"])),
                _ => _occupied = Some(All::new(world).await.occupy(first).await),
            }
            let before = world.dump();
            let other = All::new(world).await;
            for outcome in other.use_every_verb(second).await {
                let is_refused = matches!(outcome, Err(Rejection::WrongType { .. }));
                assert!(
                    is_refused,
                    "{second:?} on the name of a {first:?}: {outcome:?}"
                );
            }
            assert_eq!(
                world.dump(),
                before,
                "{second:?} on the name of a {first:?}"
            );
        }
    }
}

/// P2: tokens come from one counter, so they grow across both.
async fn a_lock_and_a_fair_lock_exclude_each_other(world: &World) {
    let (one, other) = (All::new(world).await, All::new(world).await);
    let held = one.lock.acquire().await.unwrap();
    assert!(other.fair.try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    let held = other.fair.acquire().await.unwrap();
    assert!(one.lock.try_acquire().await.unwrap().is_none());
    let token = held.fencing_token();
    held.release().await.unwrap();
    let held = one.lock.acquire().await.unwrap();
    assert!(held.fencing_token() > token);
    held.release().await.unwrap();
    world.at_rest().await;
}

async fn a_number_in_use_is_not_overwritten(world: &World) {
    let numbers = [Semaphore, Leased, Latch];
    for first in numbers {
        let _ = world.admin(&["FLUSHALL"]);
        let occupied = All::new(world).await.occupy(first).await;
        let before = world.dump();
        let other = All::new(world).await;
        for second in numbers {
            let set = other.set(second, 7).await.unwrap();
            assert!(!set, "{second:?} on the name of a {first:?}");
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
