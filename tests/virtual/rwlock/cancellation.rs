//! Tests P3 at every await point: an operation that is dropped there leaves nothing on the server, and the other waiters are still served.

use std::time::Duration;

use stanchion::rwlock::Preference;
use stanchion::{AcquireOptions, Client};
use stanchion_testkit::{cancel_after, eventually, eventually_async, for_each_await_point};
use stanchion_tests::{World, assert_within, ms, secs};
use tokio::time::Instant;

use super::{preferring, rwlock};

const SOON: Duration = secs(1);

#[derive(Clone, Copy, Debug, PartialEq)]
enum Side {
    Read,
    Write,
}

async fn acquire(client: &Client, side: Side, preference: Preference) {
    let lock = rwlock(client).preference(preference);
    match side {
        Side::Read => drop(lock.read().await.unwrap()),
        Side::Write => drop(lock.write().await.unwrap()),
    }
}

async fn assert_clean(world: &World, client: &Client, polls: usize) {
    world.at_rest().await;
    eventually(&format!("no waiter is left after {polls} polls"), || {
        client.waiters() == 0
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_passes_its_wake_up_on() {
    // The dropped waiter, the holder, and the waiter that must still be served. `virtual/dropped` has the other combinations.
    for (doomed, held, survivor) in [
        (Side::Write, Side::Write, Side::Read),
        (Side::Write, Side::Read, Side::Write),
    ] {
        for preference in [Preference::Redisson, Preference::Writer] {
            passes_its_wake_up_on(doomed, held, survivor, preference).await;
        }
    }
}

async fn passes_its_wake_up_on(doomed: Side, held: Side, survivor: Side, preference: Preference) {
    let (world, [client, other]) = World::slow_engine().with_clients().await;
    let polls = for_each_await_point(async |polls| {
        let case =
            format!("{doomed:?} of {held:?} for {survivor:?}, {preference:?}, {polls} polls");
        let lock = rwlock(&other).preference(preference);
        let (reading, writing) = match held {
            Side::Read => (Some(lock.read().await.unwrap()), None),
            Side::Write => (None, Some(lock.write().await.unwrap())),
        };
        // The release falls into any stage of the doomed waiter's wait.
        let releasing = tokio::spawn(async move {
            tokio::time::sleep(ms(40)).await;
            drop((reading, writing));
        });
        let going = tokio::spawn({
            let client = client.clone();
            async move {
                cancel_after(acquire(&client, doomed, preference), polls)
                    .await
                    .is_some()
            }
        });
        tokio::task::yield_now().await;
        let started = Instant::now();
        acquire(&client, survivor, preference).await;
        assert!(started.elapsed() < SOON, "missed its wake-up: {case}");
        releasing.await.unwrap();
        let covered = going.await.unwrap();
        world.at_rest().await;
        assert_eq!(client.waiters(), 0, "{case}");
        covered
    })
    .await;
    assert!(polls > 2);
}

#[tokio::test(start_paused = true)]
async fn a_writer_dropped_anywhere_blocks_no_reader() {
    let (world, [client, other]) = World::slow_engine().with_clients().await;
    for polls in 0..12 {
        let reading = preferring(&other).read().await.unwrap();
        // Later polls need a wake, which a writer that waits gets rarely.
        let going = cancel_after(preferring(&client).write(), polls);
        let done = tokio::time::timeout(secs(8), going).await;
        assert!(!matches!(done, Ok(Some(_))), "the lock is held by a reader");
        let started = Instant::now();
        let joined = preferring(&other).read().await.unwrap();
        // Sooner than a stopped writer is passed.
        assert_within(started, SOON, polls);
        drop((reading, joined));
        assert_clean(&world, &client, polls).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_nested_read_dropped_anywhere_leaves_the_writer_unchanged() {
    let (world, client) = World::slow_engine().with_client().await;
    let lock = rwlock(&client);
    let writing = lock.write().await.unwrap();
    let options = || AcquireOptions::new().owner(writing.owner());
    for_each_await_point(async |polls| {
        let done = cancel_after(lock.read_with(options()), polls).await;
        let finished = done.is_some();
        drop(done);
        eventually_async("the nested reader is gone", async || {
            lock.status().await.unwrap().reader_count == 0
        })
        .await;
        tokio::time::sleep(ms(50)).await;
        let status = lock.status().await.unwrap();
        assert_eq!((status.reader_count, world.keys().len()), (0, 1), "{polls}");
        assert!(writing.is_held() && status.writer.is_some());
        finished
    })
    .await;
    writing.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_dropped_anywhere_leaves_nothing() {
    let (world, [client, other]) = World::slow_engine().with_clients().await;
    for_each_await_point(async |polls| {
        let writing = rwlock(&client).write().await.unwrap();
        let acquire = rwlock(&other).write();
        let waiting = tokio::spawn(async move { acquire.await.unwrap().release().await.unwrap() });
        eventually("the writer waits", || other.waiters() == 1).await;
        tokio::time::sleep(ms(100)).await;
        let finished = cancel_after(writing.downgrade(), polls).await.is_some();
        let started = Instant::now();
        waiting.await.unwrap();
        assert!(started.elapsed() < SOON, "after {polls} polls");
        assert_clean(&world, &client, polls).await;
        finished
    })
    .await;
}
