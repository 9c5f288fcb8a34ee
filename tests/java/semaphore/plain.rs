//! `RSemaphore` and `Semaphore` count the same permits.

use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};

use serde_json::json;
use stanchion::{Client, IdleExpiry, Permit, Semaphore};
use stanchion_testkit::{Signal, eventually};
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;
use tokio::task::JoinHandle;

const CHANNEL: &str = "redisson_sc:{seats}";

fn seats(client: &Client) -> Semaphore {
    Semaphore::new(client, "seats").unwrap()
}

fn acquiring(seats: &Semaphore, n: u32) -> JoinHandle<Result<Permit, stanchion::AcquireError>> {
    let seats = seats.clone();
    tokio::spawn(async move { seats.acquire_many(n).await })
}

#[tokio::test]
async fn both_count_the_same_permits() {
    let Some(fleet) = fleet().await else { return };
    let (ours, java) = (
        seats(&fleet.rust().await),
        fleet.java("java", Kind::Semaphore, "seats"),
    );
    let both_see = async |n: i64| {
        assert_eq!(ours.available().await.unwrap(), n);
        assert_eq!(java.done("available").await.int(), n);
    };
    both_see(0).await;
    assert!(java.with("init", json!({"n": 5})).await.bool());
    assert!(!ours.init(9).await.unwrap());
    both_see(5).await;
    let two = ours.acquire_many(2).await.unwrap();
    java.with("acquire", json!({"n": 3})).await.value();
    both_see(0).await;
    assert!(!java.done("try").await.bool());
    assert!(ours.try_acquire().await.unwrap().is_none());
    two.release().await.unwrap();
    java.with("release", json!({"n": 3})).await.value();
    both_see(5).await;
    java.with("add", json!({"n": 2})).await.value();
    assert_eq!(ours.add(1).await.unwrap(), 8);
    assert_eq!(ours.reduce(3).await.unwrap(), 5);
    java.with("add", json!({"n": -1})).await.value();
    both_see(4).await;
    assert_eq!(java.done("drain").await.int(), 4);
    assert_eq!(ours.add(3).await.unwrap(), 3);
    assert_eq!(ours.drain().await.unwrap(), 3);
    both_see(0).await;
    fleet.server.flush();
    assert!(ours.init(2).await.unwrap());
    assert!(!java.with("init", json!({"n": 7})).await.bool());
    both_see(2).await;
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test]
async fn a_java_release_wakes_as_many_of_our_waiters_as_it_frees_permits() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("java", Kind::Semaphore, "seats");
    java.with("init", json!({"n": 3})).await.value();
    let (here, there) = (seats(&fleet.rust().await), seats(&fleet.rust().await));
    // The order of requests varies, and so does the number of permits that is announced to each process.
    for _ in 0..10 {
        java.with("acquire", json!({"n": 3})).await.value();
        let waiters = [
            acquiring(&here, 1),
            acquiring(&here, 1),
            acquiring(&there, 1),
        ];
        fleet.quiet().await;
        java.with("release", json!({"n": 3})).await.value();
        let mut permits = Vec::new();
        for waiter in waiters {
            permits.push(granted(waiter, SOON).await);
        }
        assert_eq!(java.done("available").await.int(), 0);
        for permit in permits {
            permit.release().await.unwrap();
        }
        assert_eq!(java.done("available").await.int(), 3);
    }
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test]
async fn our_release_wakes_as_many_java_threads_as_it_frees_permits() {
    let Some(fleet) = fleet().await else { return };
    let ours = seats(&fleet.rust().await);
    assert!(ours.init(3).await.unwrap());
    let permits = ours.acquire_many(3).await.unwrap();
    let threads = ["one", "two", "three"].map(|actor| fleet.java(actor, Kind::Semaphore, "seats"));
    let waiters = threads
        .each_ref()
        .map(|java| java.start("acquire", json!({})));
    fleet.waiting(CHANNEL, 1).await;
    permits.release().await.unwrap();
    for waiter in waiters {
        java_granted(waiter, SOON).await;
    }
    assert_eq!(ours.available().await.unwrap(), 0);
    // Single releases by Java serve a request for three permits.
    let big = acquiring(&ours, 3);
    fleet.waiting(CHANNEL, 1).await;
    for java in &threads {
        java.done("release").await;
    }
    granted(big, SOON).await.release().await.unwrap();
    // Added permits wake waiters, too.
    assert_eq!(ours.drain().await.unwrap(), 3);
    let waiter = threads[0].start("acquire", json!({"n": 2}));
    fleet.waiting(CHANNEL, 2).await;
    assert_eq!(ours.add(2).await.unwrap(), 2);
    java_granted(waiter, SOON).await;
    let waiter = acquiring(&ours, 1);
    fleet.quiet().await;
    threads[0].done("release").await;
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn there_are_never_more_holders_than_permits() {
    const PERMITS: i32 = 3;
    const ROUNDS: u32 = 40;
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let ours = seats(&client);
    assert!(ours.init(3).await.unwrap());
    let inside = Arc::new(AtomicI32::new(0));
    let enter = |inside: &AtomicI32| {
        let now = inside.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= PERMITS, "{now} hold {PERMITS} permits");
    };
    let mut tasks = Vec::new();
    for i in 0..4 {
        let java = fleet.java(&format!("java-{i}"), Kind::Semaphore, "seats");
        let at = Arc::clone(&inside);
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                java_granted(java.start("acquire", json!({})), LONG).await;
                enter(&at);
                tokio::task::yield_now().await;
                at.fetch_sub(1, Ordering::SeqCst);
                java.done("release").await;
            }
        }));
        let (ours, at) = (ours.clone(), Arc::clone(&inside));
        tasks.push(tokio::spawn(async move {
            for _ in 0..ROUNDS {
                let permit = within(LONG, ours.acquire()).await.unwrap();
                enter(&at);
                tokio::task::yield_now().await;
                at.fetch_sub(1, Ordering::SeqCst);
                permit.release().await.unwrap();
            }
        }));
    }
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(ours.available().await.unwrap(), 3);
    fleet.at_rest_with(&["seats"]).await;
}

#[tokio::test]
async fn calls_that_time_out_take_no_permits() {
    let Some(fleet) = fleet().await else { return };
    let ours = seats(&fleet.rust().await);
    let java = fleet.java("java", Kind::Semaphore, "seats");
    assert!(ours.init(1).await.unwrap());
    let permit = ours.acquire().await.unwrap();
    assert!(!java.with("try", json!({"wait": 100})).await.bool());
    permit.release().await.unwrap();
    java.done("acquire").await;
    assert!(ours.acquire_timeout(ms(100)).await.is_err());
    java.done("release").await;
    assert_eq!(ours.available().await.unwrap(), 1);
    fleet.at_rest_with(&["seats"]).await;
}

/// Plain permits have no lease in either library. This library records its holders, so that an operator can reclaim their permits.
#[tokio::test]
async fn an_operator_reclaims_the_permits_of_dead_holders() {
    let Some(fleet) = own_jvm().await else { return };
    let ours = seats(&fleet.rust().await);
    assert!(ours.init(1).await.unwrap());
    let java = fleet.java("java", Kind::Semaphore, "seats");
    let mut holder = holding(&fleet, "semaphore", "seats", LONG);
    let waiter = java.start("acquire", json!({}));
    fleet.waiting(CHANNEL, 1).await;
    holder.signal(Signal::Kill);
    holder.wait(SOON);
    let dead = ours.status().await.unwrap().holders;
    assert_eq!(dead.len(), 1);
    assert_eq!(ours.danger().reclaim(&dead[0].owner).await.unwrap(), 1);
    java_granted(waiter, SOON).await;
    // Redisson records no holders: its permits are missing, and the operator must know how many to add.
    fleet.jvm().kill();
    let status = ours.status().await.unwrap();
    assert_eq!((status.available, status.holders.len()), (0, 0));
    let waiter = acquiring(&ours, 1);
    fleet.quiet().await;
    assert_eq!(ours.add(1).await.unwrap(), 1);
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest_with(&["seats"]).await;
}

/// Ephemeral semaphores depend on this behaviour of Redisson.
#[tokio::test]
async fn redisson_keeps_the_ttl_except_in_add_and_drain() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("java", Kind::Semaphore, "seats");
    let left = || fleet.int(&["PTTL", "seats"]);
    assert!(java.with("init", json!({"n": 5})).await.bool());
    assert_eq!(left(), -1);
    for (operation, fields, keeps) in [
        ("acquire", json!({"n": 2}), true),
        ("release", json!({"n": 1}), true),
        ("try", json!({"n": 9}), true),
        ("available", json!({}), true),
        ("add", json!({"n": 1}), false),
        ("drain", json!({}), false),
        ("init", json!({"n": 3}), true),
    ] {
        assert_eq!(fleet.int(&["PEXPIRE", "seats", "100000"]), 1);
        java.with(operation, fields).await.value();
        let ttl = left();
        assert_eq!(ttl > 0 && ttl <= 100_000, keeps, "{operation}: {ttl}");
    }
}

/// Permits that Redisson holds keep an ephemeral semaphore once this library has seen them. If Redisson adds permits, the semaphore no
/// longer expires.
#[tokio::test]
async fn both_libraries_use_an_ephemeral_semaphore() {
    let Some(fleet) = fleet().await else { return };
    let hour = IdleExpiry::after(secs(3600)).unwrap();
    let ours = seats(&fleet.rust().await).ephemeral(3, hour);
    let java = fleet.java("java", Kind::Semaphore, "seats");
    let idle = "stanchion_semaphore_idle:{seats}";
    let left = || fleet.int(&["PTTL", "seats"]);
    let one_hour = |ttl: i64| ttl > 3_590_000 && ttl <= 3_600_000;
    let two = ours.acquire_many(2).await.unwrap();
    assert!(!java.with("init", json!({"n": 7})).await.bool());
    assert_eq!(java.done("available").await.int(), 1);
    let waiter = java.start("acquire", json!({"n": 2}));
    fleet.waiting(CHANNEL, 1).await;
    two.release().await.unwrap();
    java_granted(waiter, SOON).await;
    // Redisson acquired the permits after our last use, so the semaphore does not count as used.
    assert!(one_hour(left()), "{}", left());
    assert!(ours.try_acquire_many(2).await.unwrap().is_none());
    assert!(left() > 3_600_000 * 24 * 365, "{}", left());
    java.with("release", json!({"n": 2})).await.value();
    ours.acquire().await.unwrap().release().await.unwrap();
    assert_eq!(ours.available().await.unwrap(), 3);
    assert!(one_hour(left()), "{}", left());
    // A permit that Java holds for longer than the idle time outlives the semaphore. Its release creates a semaphore with one permit.
    java.with("acquire", json!({"n": 1})).await.value();
    for key in ["seats", idle] {
        assert_eq!(fleet.int(&["PEXPIRE", key, "1"]), 1);
    }
    eventually("the semaphore expires", || {
        fleet.int(&["EXISTS", "seats", idle]) == 0
    })
    .await;
    java.with("release", json!({"n": 1})).await.value();
    assert_eq!((ours.available().await.unwrap(), left()), (1, -1));
    assert_eq!(fleet.int(&["DEL", "seats"]), 1);
    assert!(ours.init(3).await.unwrap());
    java.with("add", json!({"n": 1})).await.value();
    assert_eq!((left(), fleet.int(&["EXISTS", idle])), (-1, 1));
    let all = ours.acquire_many(4).await.unwrap();
    all.release().await.unwrap();
    assert_eq!((left(), fleet.int(&["EXISTS", idle])), (-1, 0));
    fleet.at_rest_with(&["seats"]).await;
}
