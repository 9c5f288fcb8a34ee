//! The fair lock when callers go, replies and messages are lost, processes fall silent and the server forgets.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stanchion::embedded::{Data, Reply, Switch};
use stanchion::{
    AcquireError, AcquireOptions, Client, FairLock, FairLockGuard, Lease, Rejection, ReleaseError,
    Renewal, Wake,
};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::World;
use stanchion_tests::fair::{QUEUE, TIMEOUTS, WAITERS, queued, waiting};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

mod dropped;
mod lost;
mod model;
mod silence;
mod state;
mod storm;
mod together;

const BEAT: Duration = Duration::from_millis(500);
const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn fair(client: &Client) -> FairLock {
    FairLock::new(client, "job").unwrap()
}

async fn client(world: &World, name: &str) -> Client {
    world.named(name).await
}

/// The guard of a waiter, which must get it.
async fn granted(waiter: JoinHandle<FairLockGuard>) -> FairLockGuard {
    tokio::time::timeout(Duration::from_secs(60), waiter)
        .await
        .unwrap()
        .unwrap()
}

/// Waits until all have had the lock, in whatever order.
async fn all_served(waiters: Vec<JoinHandle<FairLockGuard>>) {
    let serving = waiters
        .into_iter()
        .map(async |waiter| granted(waiter).await.release().await.unwrap());
    // Virtual time: not reached but by a waiter that nobody grants to.
    tokio::time::timeout(
        Duration::from_secs(120),
        futures_util::future::join_all(serving),
    )
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
    let gone = waiting(&world, &fair(&ours)).await;
    sleep(BEAT * 2).await;
    gone.abort();
    eventually("it has left", || queued(&world) == 2).await;
    held.release().await.unwrap();
    granted(first).await.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.at_rest().await;
    (world, ours, theirs)
}

/// With a slow server, requests are under way when their callers go.
async fn slow() -> (World, Client, Client) {
    let (world, ours, theirs) = warm().await;
    world.as_engine().faults().delay(None, ms(5));
    (world, ours, theirs)
}

/// `count` waiters of a client of its own.
async fn crowd(
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

/// Those in the queue, in order.
fn places(world: &World) -> Vec<String> {
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
