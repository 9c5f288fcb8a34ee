//! Releases by those who do not hold, and releases by force.

use serde_json::json;
use stanchion::LostReason;

use crate::java::Kind;
use crate::support::*;

#[tokio::test]
async fn java_cannot_unlock_what_we_hold() {
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
async fn java_forces_our_lock_and_we_learn_of_it() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let lock = lock(&fleet.rust().await, "orders");
    let holder = lock.clone().with_lease(lease(ms(900)));
    let guard = holder.acquire().await.unwrap();
    // A waiter in another process of ours: the message must wake it.
    let waiter = acquiring(&self::lock(&fleet.rust().await, "orders"));
    fleet.waiting(&channel("orders"), 1).await;
    let java = fleet.java("admin", Kind::Lock, "orders");
    assert!(java.done("forceUnlock").await.bool());
    let next = granted(waiter, SOON).await;
    let owner = next.owner().to_string();
    // At the next renewal, a third of the lease later.
    assert_eq!(within(SOON, guard.lost()).await, LostReason::Gone);
    assert!(!guard.is_held());
    drop(guard);
    fleet.quiet().await;
    assert_eq!(fleet.holder("orders"), Some((owner, 1)));
    next.release().await.unwrap();
    assert!(!java.done("forceUnlock").await.bool(), "nobody held it");
    fleet.at_rest().await;
}

#[tokio::test]
async fn we_force_a_java_lock_and_its_waiters_are_woken() {
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
        "the late unlock touched nobody"
    );
    java.done("unlock").await;
    assert!(!lock.danger().force_release().await.unwrap());
    fleet.at_rest().await;
}
