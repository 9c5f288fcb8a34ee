//! Helpers of the tests of barriers.

pub use crate::{ms, secs};
use std::time::Duration;

use stanchion::barrier::{BrokenBy, OnLeave, Passed, WaitOptions};
use stanchion::{BarrierError, Client, CyclicBarrier};
use stanchion_testkit::eventually_async;
use tokio::task::JoinHandle;

use crate::World;

/// The default lease of a place.
pub const LEASE: Duration = secs(15);

/// The poll interval, which limits the delay after a lost message.
pub const POLL: Duration = secs(5);

pub const PLACES: &str = "stanchion_barrier_in:{b}";

/// The virtual time after which the network of a test ends, unless the test sets another limit.
pub const END: Duration = secs(1_800);

pub const HOURS: Duration = secs(3 * 3_600);

pub fn engine() -> World {
    World::engine().ends_after(END)
}

pub fn slow_engine() -> World {
    World::slow_engine().ends_after(END)
}

pub type Waiting = JoinHandle<Result<Passed, BarrierError>>;

/// The barrier `b` of a new client, as in another process.
pub async fn barrier(world: &World, parties: u32) -> CyclicBarrier {
    of(&world.client().await, parties)
}

pub fn of(client: &Client, parties: u32) -> CyclicBarrier {
    CyclicBarrier::new(client, "b", parties).unwrap()
}

pub fn wait(barrier: &CyclicBarrier) -> Waiting {
    wait_with(barrier, WaitOptions::new())
}

pub fn wait_with(barrier: &CyclicBarrier, options: WaitOptions) -> Waiting {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait_with(options).await })
}

pub fn breaking() -> WaitOptions {
    WaitOptions::new().on_leave(OnLeave::Break)
}

/// Waits until `count` places are taken.
pub async fn taken(world: &World, count: usize) {
    let count = count.to_string();
    eventually_async("places are taken", async || {
        world.admin(&["ZCOUNT", PLACES, "0", "+inf"]) == count
    })
    .await;
}

/// Waits until `count` places are taken, the waiters are subscribed, and no request is in flight.
pub async fn settled(world: &World, count: usize) {
    taken(world, count).await;
    world.subscribed("stanchion_barrier:{b}").await;
    world.quiet().await;
}

pub async fn passed(waiting: Waiting) -> Passed {
    waiting.await.unwrap().unwrap()
}

#[track_caller]
pub fn assert_broken<T: std::fmt::Debug>(result: &Result<T, BarrierError>, why: BrokenBy) {
    let broken = matches!(result, Err(BarrierError::Broken { by, .. }) if *by == why);
    assert!(broken, "{result:?}");
}

/// Asserts that a wait has timed out and is certainly not counted.
#[track_caller]
pub fn assert_uncounted<T: std::fmt::Debug>(result: &Result<T, BarrierError>) {
    let uncounted = matches!(result, Err(BarrierError::TimedOut { free_by: None, .. }));
    assert!(uncounted, "{result:?}");
}

/// Asserts that the next round is complete with exactly `parties` new parties. Returns its number.
pub async fn the_next_round_works(world: &World, parties: u32) -> u64 {
    taken(world, 0).await;
    let mut waits = Vec::new();
    for n in 1..parties {
        waits.push(wait(&barrier(world, parties).await));
        taken(world, n as usize).await;
    }
    let last = barrier(world, parties).await.wait().await.unwrap();
    assert!(last.is_last() && last.arrival() == parties);
    for waiting in waits {
        assert_eq!(passed(waiting).await.generation(), last.generation());
    }
    last.generation()
}
