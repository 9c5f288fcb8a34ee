//! Leases and watchdogs: each library waits for the end of the other's lease, and respects its renewals.

use serde_json::json;
use stanchion_testkit::{eventually, machine_clock};
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind};

/// The test lasts longer than the TTL, so only renewals keep the locks.
#[tokio::test]
async fn each_side_waits_for_as_long_as_the_others_watchdog_renews() {
    let Some(jvm) = Jvm::shared() else { return };
    let Some(fleet) = Fleet::start_in(jvm.clone()).await else {
        return;
    };
    let watched = connect(&jvm, &fleet.server, json!({"watchdog": 1800})).await;
    let java = watched.object("holder", Kind::Lock, "theirs");
    java.done("lock").await;
    let client = fleet.rust().await;
    let guard = lock(&client, "ours")
        .lease(lease(ms(1800)))
        .acquire()
        .await
        .unwrap();
    let held = (fleet.holder("theirs"), fleet.holder("ours"));

    let ours = acquiring(&lock(&client, "theirs"));
    let waiter = fleet.java("waiter", Kind::Lock, "ours");
    let mut theirs = waiter.start("lock", json!({}));
    let start = machine_clock();
    let mut renewals = [0, 0];
    let mut last = [i64::MAX; 2];
    eventually("twice the lease has passed", || {
        for (i, name) in ["theirs", "ours"].into_iter().enumerate() {
            let ttl = fleet.int(&["PTTL", name]);
            renewals[i] += u32::from(ttl > last[i]);
            last[i] = ttl;
        }
        machine_clock() - start > ms(3600)
    })
    .await;
    assert!(renewals.iter().all(|&seen| seen >= 3), "{renewals:?}");
    assert!(!ours.is_finished());
    assert!(theirs.is_waiting());
    assert_eq!((fleet.holder("theirs"), fleet.holder("ours")), held);

    java.done("unlock").await;
    guard.release().await.unwrap();
    granted(ours, SOON).await.release().await.unwrap();
    java_granted(theirs, SOON).await;
    waiter.done("unlock").await;
    fleet.at_rest().await;
}

/// A renewal must not touch a lock that was forced open and then acquired by Java.
#[tokio::test]
async fn a_watchdog_renews_only_what_is_still_held() {
    const LOCKS: usize = 60;
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let java = fleet.java.actor("java");
    let mut guards = Vec::new();
    for i in 0..LOCKS {
        let lock = lock(&client, &format!("lock-{i}")).lease(lease(ms(900)));
        guards.push(lock.acquire().await.unwrap());
    }
    for i in (0..LOCKS).step_by(3) {
        let theirs = java.object(Kind::Lock, &format!("lock-{i}"));
        assert!(theirs.done("forceUnlock").await.bool());
        theirs.with("lock", json!({"lease": 60_000})).await.value();
    }
    let before = guards.iter().map(stanchion::LockGuard::valid_until);
    let before: Vec<_> = before.collect();
    let monitor = fleet.server.monitor();
    eventually("the watchdog renews all locks", || {
        let renewed = |i: usize| guards[i].valid_until() > before[i] + ms(500);
        (0..LOCKS).all(|i| {
            if i % 3 == 0 {
                !guards[i].is_held()
            } else {
                renewed(i)
            }
        })
    })
    .await;
    let lines = monitor.lines();
    let renewals = |i: usize| {
        let command = format!("\"PEXPIRE\" \"lock-{i}\" ");
        lines.iter().filter(|line| line.contains(&command)).count()
    };
    for i in 0..LOCKS {
        assert_eq!(renewals(i) > 0, i % 3 != 0, "lock-{i}");
        if i % 3 == 0 {
            let ttl = fleet.int(&["PTTL", &format!("lock-{i}")]);
            assert!(ttl > 30_000, "Java's lease stays: {ttl}");
        }
    }
    fleet.server.flush();
}
