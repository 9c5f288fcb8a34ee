//! Releases by a thread that does not hold, and forced releases.

use serde_json::json;
use stanchion::LostReason;
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;

#[tokio::test]
async fn java_cannot_unlock_our_lock() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let guard = lock(&fleet.rust().await, "orders").acquire().await.unwrap();
    let held = fleet.holder("orders");
    let stranger = fleet.java("stranger", Kind::Lock, "orders");
    let refused = stranger.call("unlock").await;
    assert_eq!(refused.error(), "IllegalMonitorStateException");
    assert_eq!(fleet.holder("orders"), held);
    assert!(guard.is_held());
    guard.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_guard_is_lost_when_java_forces_the_lock() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let lock = lock(&fleet.rust().await, "orders");
    let holder = lock.clone().lease(lease(ms(900)));
    let guard = holder.acquire().await.unwrap();
    // The message must wake a waiter in another process of this library.
    let waiter = acquiring(&self::lock(&fleet.rust().await, "orders"));
    fleet.waiting(&channel("orders"), 1).await;
    let java = fleet.java("admin", Kind::Lock, "orders");
    assert!(java.done("forceUnlock").await.bool());
    let next = granted(waiter, SOON).await;
    let owner = next.owner().to_string();
    // The next renewal, at most a third of the lease later, detects the loss.
    assert_eq!(within(SOON, guard.lost()).await, LostReason::Gone);
    assert!(!guard.is_held());
    drop(guard);
    fleet.quiet().await;
    assert_eq!(fleet.holder("orders"), Some((owner, 1)));
    next.release().await.unwrap();
    assert!(!java.done("forceUnlock").await.bool(), "the lock was free");
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_forced_release_of_a_java_lock_wakes_java_waiters() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let holder = fleet.java("holder", Kind::Lock, "orders");
    holder.done("lock").await;
    let java = fleet.java("waiter", Kind::Lock, "orders");
    let waiter = java.start("lock", json!({}));
    fleet.waiting(&channel("orders"), 1).await;
    let lock = lock(&fleet.rust().await, "orders");
    assert!(lock.danger().force_release().await.unwrap());
    let next = java_granted(waiter, SOON).await;
    let late = holder.call("unlock").await;
    assert_eq!(late.error(), "IllegalMonitorStateException");
    assert_eq!(
        fleet.holder("orders"),
        Some((fleet.java.owner(&next), 1)),
        "the late unlock changed nothing"
    );
    java.done("unlock").await;
    assert!(!lock.danger().force_release().await.unwrap());
    fleet.at_rest().await;
}
