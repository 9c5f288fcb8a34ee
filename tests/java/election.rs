//! A Java process takes part in an election with `RLock`, without a value.

use serde_json::json;
use stanchion::election::Observed;
use stanchion::{Election, LostReason};
use stanchion_testkit::eventually_async;
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;
use tokio::time::{Instant, timeout};

#[tokio::test]
async fn java_leads_and_waits_and_observers_report_it() {
    let Some(fleet) = fleet().await else { return };
    let (client, java) = (
        fleet.rust().await,
        fleet.java("java", Kind::Lock, "indexer"),
    );
    let indexer = Election::new(&client, "indexer").unwrap();
    let mut leaders = indexer.observe();
    assert_eq!(leaders.next().await, Some(Observed::Vacant));

    let locked = java.done("lock").await;
    let leader = indexer.leader().await.unwrap().unwrap();
    assert_eq!(leader.id, fleet.java.owner(&locked));
    assert_eq!((leader.value, leader.token), (None, None));
    // Redisson publishes no message about a grant. The observer's own read finds it.
    let seen = timeout(LONG, leaders.next()).await.unwrap();
    assert!(matches!(seen, Some(Observed::Leader(seen)) if seen.id == leader.id));

    let waiting = tokio::spawn(indexer.campaign("rust"));
    fleet.waiting(&channel("indexer"), 1).await;
    assert!(!waiting.is_finished(), "P1");
    let started = Instant::now();
    java.done("unlock").await;
    let term = timeout(SOON, waiting).await.unwrap().unwrap().unwrap();
    assert!(started.elapsed() < SLACK, "P4: by message, not by a poll");

    // The reverse: Java waits for the end of our term.
    let waiter = java.start("lock", json!({}));
    fleet.waiting(&channel("indexer"), 1).await;
    let started = Instant::now();
    term.step_down().await.unwrap();
    java_granted(waiter, SOON).await.value();
    assert!(started.elapsed() < SLACK, "P4: woken");
    java.done("unlock").await;
}

#[tokio::test]
async fn a_forced_unlock_by_java_ends_our_term() {
    let Some(fleet) = fleet().await else { return };
    let (client, java) = (
        fleet.rust().await,
        fleet.java("java", Kind::Lock, "indexer"),
    );
    let lease = stanchion::Lease::new(ms(3000)).unwrap();
    let indexer = Election::new(&client, "indexer").unwrap().lease(lease);
    let term = indexer.campaign("rust").await.unwrap();
    let before = term.fencing_token();
    java.done("forceUnlock").await;
    let started = Instant::now();
    assert_eq!(timeout(LONG, term.lost()).await.unwrap(), LostReason::Gone);
    assert!(
        started.elapsed() < ms(1000) + SLACK,
        "P5: at the next renewal"
    );
    drop(term);
    // The value of the former term is not attributed to Java.
    java.done("lock").await;
    let leader = indexer.leader().await.unwrap().unwrap();
    assert_eq!(leader.value, None);
    java.done("unlock").await;
    eventually_async("there is no leader", async || {
        indexer.leader().await.unwrap().is_none()
    })
    .await;
    let term = indexer.campaign("rust").await.unwrap();
    assert!(term.fencing_token() > before, "P2");
    term.step_down().await.unwrap();
}
