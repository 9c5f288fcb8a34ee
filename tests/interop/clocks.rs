//! Clocks that differ: the server's against Java's. Ours do not matter, all times of ours are the server's.

use serde_json::json;
use stanchion::{FairLock, LeasedSemaphore, LostReason};
use stanchion_testkit::{RedisServer, eventually};

use crate::java::{Jvm, Kind};
use crate::support::*;

/// A server whose clock is so many ms ahead of Java's.
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

/// Redisson writes and judges deadlines of the queue by its own clock. Neither side evicts a waiter of the other.
#[tokio::test]
async fn the_fair_queue_keeps_its_order() {
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
            eventually("they queue up", || fleet.int(&["LLEN", queue]) == count).await;
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

/// Redisson ends the leases of permits by its own clock. Where that is ahead of the server's, it takes permits from
/// under us; we hear of it at the next renewal, and what Java gets then is ours no longer.
#[tokio::test]
async fn a_java_clock_that_is_ahead_takes_permits_and_we_notice() {
    let Some(fleet) = skewed(-2500).await else {
        return;
    };
    let ours = LeasedSemaphore::new(&fleet.rust().await, "seats").unwrap();
    let ours = ours.with_lease(lease(ms(1500)));
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
