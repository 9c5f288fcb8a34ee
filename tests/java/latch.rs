//! `RCountDownLatch` and `CountDownLatch` share a count and wake each other's waiters.

use serde_json::json;
use stanchion::{AcquireError, Client, CountDownLatch, IdleExpiry, Rejection};
use stanchion_tests::assert_is;
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;
use tokio::task::JoinHandle;

const CHANNEL: &str = "redisson_countdownlatch__channel__{start}";

fn start(client: &Client) -> CountDownLatch {
    CountDownLatch::new(client, "start").unwrap()
}

fn waiting(latch: &CountDownLatch) -> JoinHandle<Result<(), AcquireError>> {
    let latch = latch.clone();
    tokio::spawn(async move { latch.wait().await })
}

#[tokio::test]
async fn count_downs_of_both_libraries_open_the_latch_for_all() {
    let Some(fleet) = fleet().await else { return };
    let (ours, second) = (start(&fleet.rust().await), start(&fleet.rust().await));
    let (java, other) = (
        fleet.java("java", Kind::Latch, "start"),
        fleet.java("other", Kind::Latch, "start"),
    );
    // The last count-down is Java's, then ours.
    for last_is_java in [true, false] {
        if last_is_java {
            assert!(java.with("init", json!({"n": 3})).await.bool());
            assert!(!ours.arm(5).await.unwrap());
        } else {
            assert!(ours.arm(3).await.unwrap());
            assert!(!java.with("init", json!({"n": 5})).await.bool());
        }
        assert_eq!(java.done("count").await.int(), 3);
        assert_eq!(ours.count().await.unwrap(), 3);
        let mut theirs = [
            java.start("await", json!({})),
            other.start("await", json!({})),
        ];
        let us = [waiting(&ours), waiting(&second)];
        fleet.waiting(CHANNEL, 3).await;
        assert_eq!(ours.count_down().await.unwrap(), 2);
        let third = fleet.java("third", Kind::Latch, "start");
        if last_is_java {
            assert_eq!(ours.count_down().await.unwrap(), 1);
            assert!(
                theirs
                    .iter_mut()
                    .all(stanchion_tests::java::Pending::is_waiting)
            );
            assert!(us.iter().all(|waiter| !waiter.is_finished()));
            third.done("countDown").await;
        } else {
            third.done("countDown").await;
            assert_eq!(ours.count().await.unwrap(), 1);
            assert!(
                theirs
                    .iter_mut()
                    .all(stanchion_tests::java::Pending::is_waiting)
            );
            assert!(us.iter().all(|waiter| !waiter.is_finished()));
            assert_eq!(ours.count_down().await.unwrap(), 0);
        }
        for waiter in us {
            granted(waiter, SOON).await;
        }
        for waiter in theirs {
            java_granted(waiter, SOON).await;
        }
        assert_eq!(java.done("count").await.int(), 0);
        fleet.at_rest().await;
        // Our subscriptions remain for a while, and are counted again in the next round.
        fleet.left(CHANNEL, 2).await;
    }
}

#[tokio::test]
async fn count_downs_of_an_open_latch_change_nothing() {
    let Some(fleet) = fleet().await else { return };
    let ours = start(&fleet.rust().await);
    let java = fleet.java("java", Kind::Latch, "start");
    java.done("countDown").await;
    assert_eq!(ours.count_down().await.unwrap(), 0);
    within(SOON, ours.wait()).await.unwrap();
    java.done("await").await;
    assert!(ours.arm(1).await.unwrap());
    assert!(!java.with("await", json!({"wait": 100})).await.bool());
    assert!(ours.wait_timeout(ms(100)).await.is_err());
    java.done("countDown").await;
    fleet.at_rest().await;
}

/// Deleting a latch strands Redisson's waiters. A delete by Java opens the latch for our waiters; our own delete fails their waits.
#[tokio::test]
async fn a_delete_strands_none_of_our_waiters() {
    let Some(fleet) = fleet().await else { return };
    let ours = start(&fleet.rust().await);
    let java = fleet.java("java", Kind::Latch, "start");
    assert!(ours.arm(2).await.unwrap());
    let mut stranded = java.start("await", json!({}));
    let us = waiting(&ours);
    fleet.waiting(CHANNEL, 2).await;
    assert!(
        fleet
            .java("other", Kind::Latch, "start")
            .done("delete")
            .await
            .bool()
    );
    granted(us, SOON).await;
    fleet.quiet().await;
    assert!(stranded.is_waiting(), "Redisson publishes no message");
    java.interrupt();
    let reply = stranded.within(SOON).await;
    assert_eq!(reply.error(), "InterruptedException");

    assert!(java.with("init", json!({"n": 2})).await.bool());
    let us = waiting(&ours);
    fleet.waiting(CHANNEL, 1).await;
    assert!(ours.danger().delete().await.unwrap());
    let error = within(SOON, us).await.unwrap().unwrap_err();
    assert_is!(
        error,
        AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        }
    );
    assert_eq!(java.done("count").await.int(), 0);
    // Java arms the latch again and does not know our mark of the deletion. Our new waiter must wait.
    assert!(java.with("init", json!({"n": 1})).await.bool());
    let us = waiting(&ours);
    fleet.quiet().await;
    assert!(!us.is_finished());
    java.done("countDown").await;
    granted(us, SOON).await;
    fleet.at_rest().await;
}

/// Redisson's count-downs do not change the TTL of an ephemeral latch, and a latch that Redisson arms has no TTL.
#[tokio::test]
async fn both_libraries_count_down_an_ephemeral_latch() {
    let Some(fleet) = fleet().await else { return };
    let ours = start(&fleet.rust().await);
    let java = fleet.java("java", Kind::Latch, "start");
    let idle = "stanchion_latch_idle:{start}";
    let left = |key: &str| fleet.int(&["PTTL", key]);
    let hour = IdleExpiry::after(secs(3600)).unwrap();
    assert!(ours.clone().ephemeral(hour).arm(4).await.unwrap());
    assert!(!java.with("init", json!({"n": 7})).await.bool());
    assert!(left("start") > 3_590_000);
    assert_eq!(fleet.int(&["PEXPIRE", "start", "100000"]), 1);
    java.done("countDown").await;
    let ttl = left("start");
    assert!(
        ttl > 60_000 && ttl <= 100_000,
        "kept, and not restarted: {ttl}"
    );
    assert_eq!(ours.count_down().await.unwrap(), 2);
    assert!(left("start") > 3_590_000);
    let waiter = waiting(&ours);
    let theirs = fleet.java("other", Kind::Latch, "start");
    let theirs = theirs.start("await", json!({}));
    fleet.waiting(CHANNEL, 2).await;
    java.done("countDown").await;
    java.done("countDown").await;
    granted(waiter, SOON).await;
    java_granted(theirs, SOON).await;
    assert!(left(idle) > 0, "Redisson does not remove the idle key");
    assert!(java.with("init", json!({"n": 2})).await.bool());
    assert_eq!(left("start"), -1);
    assert_eq!(ours.count_down().await.unwrap(), 1);
    assert_eq!((left("start"), left(idle)), (-1, -2));
    java.done("countDown").await;
    assert_eq!(ours.count().await.unwrap(), 0);
}
