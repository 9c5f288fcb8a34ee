//! `RFairLock` and `FairLock`: one queue, in order of arrival.

use std::collections::VecDeque;

use fastrand::Rng;
use serde_json::json;
use stanchion::{Client, FairLock, FairLockGuard};
use stanchion_testkit::{Signal, eventually};
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind, Object};
use tokio::sync::mpsc;
use tokio::task::JoinHandle;

const QUEUE: &str = "redisson_lock_queue:{orders}";
const DEADLINES: &str = "redisson_lock_timeout:{orders}";

fn fair(client: &Client) -> FairLock {
    FairLock::new(client, "orders").unwrap().lease(lease(LONG))
}

fn acquiring(lock: &FairLock) -> JoinHandle<Result<FairLockGuard, stanchion::AcquireError>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.acquire().await })
}

/// What these tests do with a [`Fleet`].
trait OneQueue {
    async fn queued(&self, count: i64);
    fn fair(&self, actor: &str) -> Object;
}

impl OneQueue for Fleet {
    /// Waits until `count` waiters are queued.
    async fn queued(&self, count: i64) {
        eventually("the waiters are queued", || {
            self.int(&["LLEN", QUEUE]) == count
        })
        .await;
    }

    fn fair(&self, actor: &str) -> Object {
        self.java(actor, Kind::Fair, "orders")
    }
}

enum Side {
    Java(Object),
    Rust(FairLock),
}

enum Held {
    Java(Object),
    Rust(FairLockGuard),
}

impl Side {
    /// Waits in its own task, and sends the hold to `grants`.
    fn queue_up(&self, number: usize, grants: &mpsc::UnboundedSender<(usize, Held)>) {
        let grants = grants.clone();
        match self {
            Self::Java(java) => {
                let (java, waiter) = (java.clone(), java.start("lock", json!({})));
                tokio::spawn(async move {
                    java_granted(waiter, LONG).await;
                    let _ = grants.send((number, Held::Java(java)));
                });
            }
            Self::Rust(lock) => {
                let lock = lock.clone();
                tokio::spawn(async move {
                    let guard = lock.acquire().await.unwrap();
                    let _ = grants.send((number, Held::Rust(guard)));
                });
            }
        }
    }
}

impl Held {
    async fn release(self) {
        match self {
            Self::Java(java) => drop(java.done("unlock").await),
            Self::Rust(guard) => guard.release().await.unwrap(),
        }
    }
}

/// P7, over five hundred grants.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn grants_follow_arrival_across_the_languages() {
    const ROUNDS: u32 = 500;
    let Some(jvm) = Jvm::shared() else { return };
    let Some(fleet) = Fleet::start_in(jvm.clone()).await else {
        return;
    };
    // Two instances of each library.
    let second = connect(&jvm, &fleet.server, json!({})).await;
    let mut sides = Vec::new();
    for (instance, client) in [&fleet.java, &second]
        .into_iter()
        .zip([fleet.rust().await, fleet.rust().await])
    {
        for actor in ["one", "two"] {
            sides.push(Side::Java(instance.object(actor, Kind::Fair, "orders")));
            sides.push(Side::Rust(fair(&client)));
        }
    }
    let (sender, mut grants) = mpsc::unbounded_channel();
    let mut rng = Rng::with_seed(11);
    let mut idle: Vec<usize> = (0..sides.len()).collect();
    let mut queue = VecDeque::new();
    let mut served = vec![0; sides.len()];
    let mut holder: Option<(usize, Held)> = None;
    for _ in 0..ROUNDS {
        // One side holds, one is idle, and all others wait. Each is queued before the next one starts.
        while idle.len() > 1 {
            let number = idle.swap_remove(rng.usize(0..idle.len()));
            sides[number].queue_up(number, &sender);
            if holder.is_none() {
                holder = within(SOON, grants.recv()).await;
            } else {
                queue.push_back(number);
                fleet.queued(queue.len().try_into().unwrap()).await;
            }
        }
        let (number, held) = holder.take().unwrap();
        held.release().await;
        idle.push(number);
        let next = within(SOON, grants.recv()).await.unwrap();
        assert_eq!(Some(next.0), queue.pop_front(), "P7: out of order");
        served[next.0] += 1;
        holder = Some(next);
    }
    assert!(served.iter().all(|&times| times > 20), "{served:?}");
    while let Some((_, held)) = holder.take() {
        held.release().await;
        if let Some(number) = queue.pop_front() {
            holder = within(SOON, grants.recv()).await;
            assert_eq!(holder.as_ref().unwrap().0, number);
        }
    }
    fleet.at_rest().await;
}

/// All sides acquire again at once, in no fixed order.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_waiter_starves_in_the_fair_queue() {
    const ROUNDS: u32 = 40;
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let mut tasks = Vec::new();
    for i in 0..3 {
        let java = fleet.fair(&format!("java-{i}"));
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                java_granted(java.start("lock", json!({})), LONG).await;
                java.done("unlock").await;
            }
        }));
        let ours = fair(&client);
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = within(LONG, ours.acquire()).await.unwrap();
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    fleet.at_rest().await;
}

/// A Redisson waiter acquires the lock itself. While it is paused, the lock is free and no waiter behind it is granted.
#[tokio::test]
async fn a_paused_java_waiter_at_the_head_blocks_the_queue() {
    let Some(fleet) = own_jvm().await else { return };
    let ours = fair(&fleet.rust().await);
    let java = fleet.fair("java");
    let guard = ours.acquire().await.unwrap();
    let mut waiter = java.start("lock", json!({}));
    fleet.queued(1).await;
    let behind = acquiring(&ours);
    fleet.queued(2).await;
    fleet.settled().await;
    fleet.jvm().pause();
    guard.release().await.unwrap();
    for _ in 0..40 {
        assert_eq!(fleet.int(&["EXISTS", "orders"]), 0);
        tokio::time::sleep(ms(20)).await;
    }
    assert!(!behind.is_finished());
    assert!(waiter.is_waiting());
    fleet.jvm().resume();
    java_granted(waiter, SOON).await;
    java.done("unlock").await;
    granted(behind, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn waiters_that_give_up_do_not_change_the_order() {
    let Some(fleet) = fleet().await else { return };
    let ours = fair(&fleet.rust().await);
    let guard = ours.acquire().await.unwrap();
    let (first, third) = (fleet.fair("first"), fleet.fair("third"));
    let one = first.start("lock", json!({}));
    fleet.queued(1).await;
    let two = acquiring(&ours);
    fleet.queued(2).await;
    let three = third.start("try", json!({"wait": 30_000}));
    fleet.queued(3).await;
    let four = acquiring(&ours);
    fleet.queued(4).await;
    // One waiter of each library gives up in the middle of the queue.
    two.abort();
    fleet.queued(3).await;
    third.interrupt();
    assert_eq!(three.within(SOON).await.error(), "InterruptedException");
    let impatient = fleet
        .fair("impatient")
        .with("try", json!({"wait": 200}))
        .await;
    assert!(!impatient.bool());
    assert!(ours.acquire_timeout(ms(200)).await.is_err());
    // Redisson leaves an interrupted waiter in the queue, but removes one that times out.
    fleet.queued(3).await;
    assert_eq!(fleet.int(&["ZCARD", DEADLINES]), 3);
    guard.release().await.unwrap();
    java_granted(one, SOON).await;
    assert!(!four.is_finished());
    // The interrupted waiter stays ahead of ours until its deadline. The test moves the deadline to the past instead of waiting for it.
    let interrupted = fleet
        .server
        .cli(&["LINDEX", QUEUE, "0"])
        .as_text()
        .to_owned();
    assert!(
        !fleet
            .server
            .cli(&["ZADD", DEADLINES, "1", &interrupted])
            .is_error()
    );
    first.done("unlock").await;
    granted(four, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn a_new_waiter_does_not_overtake_the_queue() {
    let Some(fleet) = fleet().await else { return };
    let ours = fair(&fleet.rust().await);
    let java = fleet.fair("java");
    let guard = ours.acquire().await.unwrap();
    let waiter = acquiring(&ours);
    fleet.queued(1).await;
    assert!(!java.done("try").await.bool());
    assert!(ours.try_acquire().await.unwrap().is_none());
    assert_eq!(
        fleet.int(&["LLEN", QUEUE]),
        1,
        "a try does not enter the queue"
    );
    guard.release().await.unwrap();
    granted(waiter, SOON).await.release().await.unwrap();
    assert!(java.done("try").await.bool());
    assert!(ours.try_acquire().await.unwrap().is_none());
    java.done("unlock").await;
    fleet.at_rest().await;
}

/// P7: a killed waiter of this library delays a Java waiter behind it by the grace.
#[tokio::test]
async fn a_killed_waiter_delays_java_by_the_grace() {
    let Some(fleet) = fleet().await else { return };
    let ours = fair(&fleet.rust().await);
    let java = fleet.fair("java");
    let guard = ours.acquire().await.unwrap();
    let dead = start_holder(&fleet, "fair", "orders", LONG);
    fleet.queued(1).await;
    let waiter = java.start("lock", json!({}));
    fleet.queued(2).await;
    // The grace needs a live waiter of this library.
    let behind = acquiring(&ours);
    fleet.queued(3).await;
    dead.signal(Signal::Kill);
    guard.release().await.unwrap();
    java_granted(waiter, FairLock::GRACE + SLACK).await;
    java.done("unlock").await;
    granted(behind, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

/// The delay is the same as in Redisson: the wait time of the killed waiter and the rest of the lease.
#[tokio::test]
async fn a_killed_java_waiter_at_the_head_delays_others_until_its_deadline() {
    let Some(fleet) = own_jvm().await else { return };
    let ours = fair(&fleet.rust().await);
    let guard = ours.clone().lease(lease(ms(1000))).acquire().await.unwrap();
    drop(fleet.fair("java").start("try", json!({"wait": 1500})));
    fleet.queued(1).await;
    let waiter = acquiring(&ours);
    fleet.queued(2).await;
    fleet.jvm().kill();
    guard.release().await.unwrap();
    // One more second is the allowed error of Java's clock.
    let cost = ms(1000 + 1500 + 1000);
    granted(waiter, cost + SLACK).await.release().await.unwrap();
    fleet.at_rest().await;
}

/// Two kinds of lock with one name are not recommended, but they exclude each other.
#[tokio::test]
async fn a_plain_java_lock_excludes_a_fair_lock_and_a_poll_finds_its_release() {
    let Some(fleet) = fleet().await else { return };
    let ours = fair(&fleet.rust().await);
    let plain = fleet.java("plain", Kind::Lock, "orders");
    plain.done("lock").await;
    assert!(ours.try_acquire().await.unwrap().is_none());
    let waiter = acquiring(&ours);
    fleet.queued(1).await;
    fleet.settled().await;
    plain.done("unlock").await;
    let guard = granted(waiter, SOON).await;
    assert!(!plain.done("try").await.bool());
    guard.release().await.unwrap();
    fleet.at_rest().await;
}
