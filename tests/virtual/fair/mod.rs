//! Tests of the fair lock: dropped futures, lost replies and messages, silent processes, and a server that loses its data.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stanchion::embedded::{Data, Reply, Switch};
use stanchion::{AcquireError, Client, FairLock, FairLockGuard, ReleaseError};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::fair::{QUEUE, TIMEOUTS, WAITERS, queued, waiting};
use stanchion_tests::{World, ms, secs};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

mod called;
mod direct;
mod direct_of_ends;
mod direct_of_queue;
mod idle;
mod lost;
mod silence;
mod together;

const BEAT: Duration = ms(500);
/// The interval at which a queue polls as a whole.
const POLL: Duration = secs(5);
/// The time for which a grant by message lasts.
const GRANTED: Duration = ms(1500);
fn fair(client: &Client) -> FairLock {
    FairLock::new(client, "job").unwrap()
}

async fn client(world: &World, name: &str) -> Client {
    world.named(name).await
}

/// Returns the guard of a waiter. Fails if the waiter does not get it within 60 s.
async fn granted(waiter: JoinHandle<FairLockGuard>) -> FairLockGuard {
    tokio::time::timeout(secs(60), waiter)
        .await
        .unwrap()
        .unwrap()
}

/// Waits until all waiters have had the lock, in any order.
async fn all_served(waiters: Vec<JoinHandle<FairLockGuard>>) {
    let serving = waiters
        .into_iter()
        .map(async |waiter| granted(waiter).await.release().await.unwrap());
    // In virtual time only a waiter that gets no grant reaches this limit.
    tokio::time::timeout(secs(120), futures_util::future::join_all(serving))
        .await
        .unwrap();
}

/// A world in which both clients have subscribed and the server knows all scripts.
async fn warm() -> (World, Client, Client) {
    let world = World::engine();
    let (ours, theirs) = (client(&world, "ours").await, client(&world, "theirs").await);
    let held = fair(&ours).acquire().await.unwrap();
    held.reenter().await.unwrap().release().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&ours)).await;
    let leaving = waiting(&world, &fair(&ours)).await;
    sleep(BEAT * 2).await;
    leaving.abort();
    eventually("it has left", || queued(&world) == 2).await;
    held.release().await.unwrap();
    granted(first).await.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.at_rest().await;
    (world, ours, theirs)
}

/// As [`warm`], but replies take 5 ms, so that requests are in flight when their futures are dropped.
async fn slow() -> (World, Client, Client) {
    let (world, ours, theirs) = warm().await;
    world.faults().delay(None, ms(5));
    (world, ours, theirs)
}

/// A new client, and `count` waiters of it.
async fn queued_client(
    world: &World,
    name: &str,
    count: usize,
) -> (Client, Vec<JoinHandle<FairLockGuard>>) {
    let client = client(world, name).await;
    let mut waiters = Vec::new();
    for _ in 0..count {
        waiters.push(waiting(world, &fair(&client)).await);
    }
    (client, waiters)
}

/// The entries of the queue, in order.
fn entries(world: &World) -> Vec<String> {
    let Reply::Array(items) = world.as_engine().execute(&["LRANGE", QUEUE, "0", "-1"]) else {
        panic!("an array");
    };
    items
        .into_iter()
        .map(|item| match item {
            Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
}
