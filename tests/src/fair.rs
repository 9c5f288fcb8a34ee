//! Helpers for tests of a fair lock's queue, on the engine and on a real server.

use stanchion::{FairLock, FairLockGuard};
use stanchion_testkit::eventually;
use tokio::task::JoinHandle;

use crate::World;

/// The queue of the lock `job`.
pub const QUEUE: &str = "redisson_lock_queue:{job}";
/// The times at which Redisson removes waiters from the queue.
pub const TIMEOUTS: &str = "redisson_lock_timeout:{job}";
/// The processes with waiters.
pub const WAITERS: &str = "stanchion_fair_waiters:{job}";

/// The length of the queue.
#[must_use]
pub fn queued(world: &World) -> usize {
    world.admin(&["LLEN", QUEUE]).parse().unwrap()
}

/// Spawns an acquire and waits until it is queued, so that the next one is queued behind it.
pub async fn waiting(world: &World, lock: &FairLock) -> JoinHandle<FairLockGuard> {
    let before = queued(world);
    let lock = lock.clone();
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    eventually("it is in the queue", || queued(world) == before + 1).await;
    waiter
}
