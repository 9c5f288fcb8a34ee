//! The clock of the server differs from Java's. The clock of this library's process does not matter, because it uses the server's time.

use serde_json::json;
use stanchion::{FairLock, LeasedSemaphore, LostReason};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind};

/// A server whose clock is `millis` ms ahead of Java's.
async fn skewed(millis: i64) -> Option<Fleet> {
    let jvm = Jvm::shared()?;
    if !RedisServer::available() {
        return Fleet::start_in(jvm).await;
    }
    let server = RedisServer::builder().steppable_clock().start();
    server.step_clock(millis);
    let java = connect(&jvm, &server, json!({})).await;
    Some(Fleet { java, server })
}

/// Redisson writes and checks the deadlines of the queue by its own clock. Neither library evicts a waiter of the other.
#[tokio::test]
async fn the_fair_queue_keeps_its_order_with_a_skewed_clock() {
    for ahead in [-2500, 2500] {
        let Some(fleet) = skewed(ahead).await else {
            return;
        };
        let ours = FairLock::new(&fleet.rust().await, "orders").unwrap();
        let (java, other) = (
            fleet.java("java", Kind::Fair, "orders"),
            fleet.java("other", Kind::Fair, "orders"),
        );
        let queued = async |count| {
            let queue = "redisson_lock_queue:{orders}";
            eventually("the waiters are queued", || {
                fleet.int(&["LLEN", queue]) == count
            })
            .await;
        };
        for _ in 0..5 {
            java.done("lock").await;
            let first = tokio::spawn({
                let ours = ours.clone();
                async move { ours.acquire().await }
            });
            queued(1).await;
            let second = other.start("lock", json!({}));
            queued(2).await;
            let third = tokio::spawn({
                let ours = ours.clone();
                async move { ours.acquire().await }
            });
            queued(3).await;
            fleet.settled().await;
            java.done("unlock").await;
            granted(first, SOON).await.release().await.unwrap();
            java_granted(second, SOON).await;
            assert!(!third.is_finished());
            other.done("unlock").await;
            granted(third, SOON).await.release().await.unwrap();
        }
        fleet.at_rest().await;
    }
}

/// Redisson ends the leases of permits by its own clock. If that clock is ahead of the server's, Redisson reclaims a permit that we hold.
/// Our next renewal detects the loss, and must not affect the permit that Java then holds.
#[tokio::test]
async fn a_java_clock_that_is_ahead_reclaims_our_permit_and_the_loss_is_detected() {
    let Some(fleet) = skewed(-2500).await else {
        return;
    };
    let ours = LeasedSemaphore::new(&fleet.rust().await, "seats").unwrap();
    let ours = ours.lease(lease(ms(1500)));
    assert!(ours.init(1).await.unwrap());
    let permit = ours.acquire().await.unwrap();
    let java = fleet.java("java", Kind::Leased, "seats");
    let theirs = java.with("try", json!({"wait": 0, "lease": 30_000})).await;
    assert!(!theirs.value().is_null(), "taken while we held it");
    assert_eq!(within(SOON, permit.lost()).await, LostReason::Gone);
    drop(permit);
    fleet.quiet().await;
    assert_eq!(ours.available().await.unwrap(), 0, "Java's permit stays");
    java.with("release", json!({"permit": theirs.text()}))
        .await
        .value();
    fleet.at_rest_with(&["seats"]).await;
}
