//! A release in one library wakes a waiter in the other by message. Leases are 30 s and polls 60 s, so they cannot wake it in time.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use serde_json::json;
use stanchion_testkit::Proxy;
use stanchion_tests::assert_is;
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn all_waiters_of_both_libraries_are_granted() {
    const ROUNDS: u32 = 40;
    let Some(fleet) = fleet().await else { return };
    let fleet = Arc::new(fleet);
    let inside = Arc::new(AtomicU32::new(0));
    let client = fleet.rust().await;
    let mut tasks = Vec::new();
    for i in 0..3 {
        let java = fleet.java(&format!("java-{i}"), Kind::Lock, "orders");
        let inside_java = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                java_granted(java.start("lock", json!({})), LONG).await;
                alone(&inside_java).await;
                java.done("unlock").await;
            }
        }));
        let (lock, inside) = (lock(&client, "orders"), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = within(LONG, lock.acquire()).await.unwrap();
                alone(&inside).await;
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    fleet.at_rest().await;
}

/// Asserts P1: no other task is inside.
async fn alone(inside: &AtomicU32) {
    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "P1");
    tokio::task::yield_now().await;
    inside.fetch_sub(1, Ordering::SeqCst);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn hand_offs_between_our_tasks_do_not_starve_a_java_waiter() {
    let Some(fleet) = fleet().await else { return };
    let lock = lock(&fleet.rust().await, "orders");
    let busy: Vec<_> = (0..8)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                loop {
                    lock.acquire().await.unwrap().release().await.unwrap();
                }
            })
        })
        .collect();
    let java = fleet.java("waiter", Kind::Lock, "orders");
    for _ in 0..20 {
        java_granted(java.start("lock", json!({})), SOON).await;
        java.done("unlock").await;
    }
    for task in &busy {
        task.abort();
    }
    for task in busy {
        assert!(task.await.unwrap_err().is_cancelled());
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_waiter_that_gives_up_takes_no_wake_up_from_java() {
    let Some(fleet) = fleet().await else { return };
    let holder = fleet.java("holder", Kind::Lock, "orders");
    holder.done("lock").await;
    let ours = acquiring(&lock(&fleet.rust().await, "orders"));
    fleet.waiting(&channel("orders"), 1).await;
    let java = fleet.java("waiter", Kind::Lock, "orders");
    let waiter = java.start("lock", json!({}));
    fleet.waiting(&channel("orders"), 2).await;
    ours.abort();
    holder.done("unlock").await;
    java_granted(waiter, SOON).await;
    java.done("unlock").await;
    fleet.at_rest().await;
}

#[tokio::test]
async fn an_interrupted_java_waiter_takes_no_wake_up_from_our_waiter() {
    let Some(fleet) = fleet().await else { return };
    let guard = lock(&fleet.rust().await, "orders").acquire().await.unwrap();
    let java = fleet.java("waiter", Kind::Lock, "orders");
    let interrupted = java.start("lock", json!({}));
    fleet.waiting(&channel("orders"), 1).await;
    let ours = acquiring(&lock(&fleet.rust().await, "orders"));
    fleet.waiting(&channel("orders"), 2).await;
    java.interrupt();
    let reply = interrupted.within(SOON).await;
    assert_eq!(reply.error(), "InterruptedException");
    guard.release().await.unwrap();
    granted(ours, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn killed_java_waiters_delay_no_other_waiter() {
    let Some(fleet) = own_jvm().await else { return };
    let guard = lock(&fleet.rust().await, "orders").acquire().await.unwrap();
    for actor in ["one", "two"] {
        let java = fleet.java(actor, Kind::Lock, "orders");
        drop(java.start("lock", json!({})));
    }
    fleet.waiting(&channel("orders"), 1).await;
    let waiter = acquiring(&lock(&fleet.rust().await, "orders"));
    fleet.waiting(&channel("orders"), 2).await;
    fleet.jvm().kill();
    guard.release().await.unwrap();
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn calls_that_time_out_leave_nothing() {
    let Some(fleet) = fleet().await else { return };
    let lock = lock(&fleet.rust().await, "orders");
    let java = fleet.java("java", Kind::Lock, "orders");

    let guard = lock.acquire().await.unwrap();
    let owner = guard.owner().to_string();
    assert!(!java.done("try").await.bool());
    assert!(!java.with("try", json!({"wait": 100})).await.bool());
    assert_eq!(fleet.holder("orders"), Some((owner, 1)));
    guard.release().await.unwrap();

    java.done("lock").await;
    let before = fleet.holder("orders");
    assert!(lock.try_acquire().await.unwrap().is_none());
    let refused = lock.acquire_timeout(ms(100)).await.unwrap_err();
    assert_is!(refused, stanchion::AcquireError::TimedOut { .. });
    assert_eq!(fleet.holder("orders"), before);
    java.done("unlock").await;
    fleet.at_rest().await;
}

/// Redisson's spin lock publishes nothing: only a poll can notice its release.
#[tokio::test]
async fn a_poll_finds_the_release_of_a_spin_lock() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("spinner", Kind::Spin, "orders");
    java.done("lock").await;
    let lock = lock(&fleet.rust_polling(ms(200)).await, "orders");
    let waiter = acquiring(&lock);
    fleet.quiet().await;
    java.done("unlock").await;
    let guard = granted(waiter, SOON).await;
    let waiter = java.start("lock", json!({}));
    guard.release().await.unwrap();
    java_granted(waiter, SOON).await;
    java.done("unlock").await;
    fleet.at_rest().await;
}

/// Four processes of each library acquire one lock in a loop, until `total` grants. Redisson's are `away` from the server. Returns the grants of
/// Redisson's and of ours, without the first fifth.
async fn shares(away: Duration, total: u32) -> Option<(u32, u32)> {
    let jvm = Jvm::shared()?;
    let fleet = Fleet::start_in(jvm.clone()).await?;
    let proxy = Proxy::start(fleet.server.addr());
    let grants: [Arc<AtomicU32>; 3] = Default::default();
    let mut tasks = Vec::new();
    for i in 0..4 {
        let instance = connect(&jvm, &fleet.server, json!({"addresses": [proxy.url()]})).await;
        let counts = grants.clone();
        tasks.push(tokio::spawn(async move {
            let java = instance.object(&format!("java-{i}"), Kind::Lock, "orders");
            while let Some(is_counted) = next(&counts[0], total) {
                java_granted(java.start("lock", json!({})), LONG).await;
                counts[1].fetch_add(is_counted, Ordering::Relaxed);
                tokio::time::sleep(ms(1)).await;
                java.done("unlock").await;
            }
        }));
        let ours = lock(&fleet.rust().await, "orders");
        let counts = grants.clone();
        tasks.push(tokio::spawn(async move {
            while let Some(is_counted) = next(&counts[0], total) {
                let guard = within(LONG, ours.acquire()).await.unwrap();
                counts[2].fetch_add(is_counted, Ordering::Relaxed);
                tokio::time::sleep(ms(1)).await;
                guard.release().await.unwrap();
            }
        }));
    }
    proxy.delay(away);
    for task in tasks {
        task.await.unwrap();
    }
    proxy.delay(Duration::ZERO);
    fleet.at_rest().await;
    let [_, java, ours] = grants.map(|count| count.load(Ordering::Relaxed));
    Some((java, ours))
}

/// Counts the next call of a process. Returns 1 if its grant is counted, 0 during the first fifth, and `None` after `total` calls.
fn next(calls: &AtomicU32, total: u32) -> Option<u32> {
    let call = calls.fetch_add(1, Ordering::Relaxed);
    (call < total).then_some(u32::from(call >= total / 5))
}

/// Four processes of each library acquire one lock in a loop. Each library must get at least half of its share, which is a half.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neither_library_starves_the_other() {
    let Some((java, ours)) = shares(Duration::ZERO, 1000).await else {
        return;
    };
    assert!(java * 3 >= ours, "{java} grants to Redisson, {ours} to us");
    assert!(ours * 3 >= java, "{java} grants to Redisson, {ours} to us");
}

/// A process of Redisson's that is 4 ms or 20 ms away, so that a request follows a message after 8 ms or 40 ms, gets at least half of its share.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_far_process_of_redisson_gets_its_share() {
    for (away, total) in [(4, 200), (20, 100)] {
        let Some((java, ours)) = shares(ms(away), total).await else {
            return;
        };
        assert!(
            java * 3 >= ours,
            "{away} ms: {java} grants to Redisson, {ours} to us"
        );
    }
}
