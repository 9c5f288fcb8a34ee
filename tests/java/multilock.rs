//! `RedissonMultiLock`, whose members are plain locks without further keys, and `MultiLock` over the same names.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use serde_json::json;
use stanchion::{Client, Lockable, MultiLock};
use stanchion_testkit::Signal;
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind};

#[tokio::test]
async fn the_members_of_a_java_multi_lock_are_our_locks() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let (a, b) = (lock(&client, "a"), lock(&client, "b"));
    let java = fleet.java.actor("java").multi(&["a", "b"]);
    java.done("lock").await;
    for member in [&a, &b] {
        assert!(member.try_acquire().await.unwrap().is_none());
    }
    let waiter = acquiring(&b);
    fleet.waiting(&channel("b"), 1).await;
    java.done("unlock").await;
    let guard = granted(waiter, SOON).await;

    // Redisson acquires `a`, waits for `b`, and is woken there by our release.
    let waiter = java.start("try", json!({"wait": 30_000}));
    fleet.waiting(&channel("b"), 2).await;
    assert!(a.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(waiter.within(SOON).await.bool());
    java.done("unlock").await;

    // A failed try leaves no member locked.
    let guard = b.acquire().await.unwrap();
    assert!(!java.done("try").await.bool());
    let free = fleet.java("other", Kind::Lock, "a").done("isLocked").await;
    assert!(!free.bool());
    guard.release().await.unwrap();
    fleet.at_rest().await;
}

fn both(client: &Client) -> MultiLock {
    let members = ["b", "a"].map(|name| lock(client, name));
    MultiLock::new(members.iter().map(|member| member as &dyn Lockable)).unwrap()
}

#[tokio::test]
async fn our_multi_lock_waits_for_java_and_java_for_it() {
    let Some(fleet) = fleet().await else { return };
    let ours = both(&fleet.rust().await);
    let (multi, b) = (
        fleet.java.actor("multi").multi(&["a", "b"]),
        fleet.java("single", Kind::Lock, "b"),
    );
    b.done("lock").await;
    assert!(ours.try_acquire().await.unwrap().is_none());
    let waiter = tokio::spawn({
        let ours = ours.clone();
        async move { ours.acquire().await }
    });
    fleet.waiting(&channel("b"), 1).await;
    assert_eq!(fleet.int(&["EXISTS", "a"]), 0, "one script, all or nothing");
    b.done("unlock").await;
    let guard = granted(waiter, SOON).await;
    for name in ["a", "b"] {
        let single = fleet.java("single", Kind::Lock, name);
        assert!(!single.done("try").await.bool());
    }
    // Redisson waits for the first member, then takes both.
    let waiter = multi.start("try", json!({"wait": 30_000}));
    fleet.waiting(&channel("a"), 1).await;
    guard.release().await.unwrap();
    assert!(waiter.within(SOON).await.bool());
    assert!(ours.try_acquire().await.unwrap().is_none());
    multi.done("unlock").await;
    fleet.at_rest().await;
}

/// `MultiLock` locks its members in the order of their names, Redisson in the given order, which is the same here.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn multi_locks_of_both_take_turns() {
    const ROUNDS: u32 = 30;
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let inside = Arc::new(AtomicU32::new(0));
    let alone = |inside: &AtomicU32| {
        assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "P1");
        inside.fetch_sub(1, Ordering::SeqCst);
    };
    let mut tasks = Vec::new();
    for i in 0..2 {
        let java = fleet.java.actor(&format!("java-{i}")).multi(&["a", "b"]);
        let at = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                java_granted(java.start("lock", json!({})), LONG).await;
                alone(&at);
                java.done("unlock").await;
            }
        }));
        let (ours, at) = (both(&client), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let guard = within(LONG, ours.acquire()).await.unwrap();
                alone(&at);
                guard.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn the_multi_lock_of_a_killed_holder_is_free_at_its_ttl() {
    const TTL: u64 = 1500;
    let Some(jvm) = Jvm::start() else { return };
    let Some(server) = server() else { return };
    let java = connect(&jvm, &server, json!({"watchdog": TTL})).await;
    let fleet = Fleet { java, server };
    let holder = holding(&fleet, "multi", "a,b", ms(TTL));
    let multi = fleet.java.actor("multi").multi(&["a", "b"]);
    let waiter = multi.start("try", json!({"wait": 30_000}));
    fleet.waiting(&channel("a"), 1).await;
    holder.signal(Signal::Kill);
    assert!(waiter.within(ms(TTL) + SLACK).await.bool());
    jvm.kill();
    let guard = within(ms(TTL) + SLACK, both(&fleet.rust().await).acquire()).await;
    guard.unwrap().release().await.unwrap();
    fleet.at_rest().await;
}
