//! Barriers: rounds and who is in them, what is left of a wait that was dropped, lost or killed, broken rounds, and double barriers.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]
#![expect(
    clippy::print_stdout,
    reason = "a copy of this program tells its parent what it does"
)]

mod breaks;
mod double;
mod dropped;
mod history;
mod lost;
mod rounds;
mod servers;

use std::time::Duration;

use stanchion::{
    AcquireError, BarrierError, BrokenBy, Client, CyclicBarrier, OnLeave, Passed, WaitOptions,
};
use stanchion_testkit::eventually_async;
use stanchion_tests::World;
use tokio::task::JoinHandle;

/// The default lease of a place.
const LEASE: Duration = Duration::from_secs(15);

/// The poll behind the messages.
const POLL: Duration = Duration::from_secs(5);

const PLACES: &str = "stanchion_barrier_in:{b}";

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Longer than any test but those that say so.
const END: Duration = Duration::from_secs(1_800);

const HOURS: Duration = Duration::from_secs(3 * 3_600);

fn engine() -> World {
    World::engine().ends_after(END)
}

fn slow_engine() -> World {
    World::slow_engine().ends_after(END)
}

type Waiting = JoinHandle<Result<Passed, BarrierError>>;

/// The barrier `b`, of a client as another process has one.
async fn barrier(world: &World, parties: u32) -> CyclicBarrier {
    of(&world.client().await, parties)
}

fn of(client: &Client, parties: u32) -> CyclicBarrier {
    CyclicBarrier::new(client, "b", parties).unwrap()
}

fn wait(barrier: &CyclicBarrier) -> Waiting {
    wait_with(barrier, WaitOptions::new())
}

fn wait_with(barrier: &CyclicBarrier, options: WaitOptions) -> Waiting {
    let barrier = barrier.clone();
    tokio::spawn(async move { barrier.wait_with(options).await })
}

fn breaking() -> WaitOptions {
    WaitOptions::new().on_leave(OnLeave::Break)
}

/// Waits until `count` places are taken.
async fn taken(world: &World, count: usize) {
    let count = count.to_string();
    eventually_async("places are taken", async || {
        world.admin(&["ZCOUNT", PLACES, "0", "+inf"]) == count
    })
    .await;
}

/// The same for a wait that asks no more, and hears the end of its round.
async fn settled(world: &World, count: usize) {
    taken(world, count).await;
    world.subscribed("stanchion_barrier:{b}").await;
    world.quiet().await;
}

async fn passed(waiting: Waiting) -> Passed {
    waiting.await.unwrap().unwrap()
}

#[track_caller]
fn assert_broken<T: std::fmt::Debug>(result: &Result<T, BarrierError>, why: BrokenBy) {
    let broken = matches!(result, Err(BarrierError::Broken { by, .. }) if *by == why);
    assert!(broken, "{result:?}");
}

/// Asserts that a wait has timed out, and that nobody counts it.
#[track_caller]
fn assert_uncounted<T: std::fmt::Debug>(result: &Result<T, BarrierError>) {
    let uncounted = matches!(
        result,
        Err(BarrierError::Acquire(AcquireError::TimedOut {
            free_by: None,
            ..
        }))
    );
    assert!(uncounted, "{result:?}");
}

/// The next round of `n` works at once, and nobody else is counted in it.
async fn the_next_round_works(world: &World, parties: u32) -> u64 {
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
