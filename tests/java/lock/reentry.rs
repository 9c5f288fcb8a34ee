//! Both libraries see the same hold counts.

use serde_json::json;
use stanchion_tests::interop::*;
use stanchion_tests::java::Kind;

#[tokio::test]
async fn we_read_the_hold_count_of_java() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let java = fleet.java("holder", Kind::Lock, "orders");
    let lock = lock(&fleet.rust().await, "orders");
    let mut owner = String::new();
    for _ in 0..3 {
        owner = fleet.java.owner(&java.done("lock").await);
    }
    let holder = lock.status().await.unwrap().holder.unwrap();
    assert_eq!((holder.owner, holder.hold_count), (owner, 3));
    assert!(holder.remaining.unwrap() > LONG / 2);
    let waiter = acquiring(&lock);
    fleet.waiting(&channel("orders"), 1).await;
    for left in [2, 1] {
        java.done("unlock").await;
        let holder = lock.status().await.unwrap().holder.unwrap();
        assert_eq!(holder.hold_count, left);
    }
    assert!(!waiter.is_finished());
    java.done("unlock").await;
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn java_waits_for_the_last_of_our_holds() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let first = lock(&fleet.rust().await, "orders").acquire().await.unwrap();
    let second = first.reenter().await.unwrap();
    let third = second.reenter().await.unwrap();
    let owner = first.owner().to_string();
    assert_eq!(fleet.holder("orders"), Some((owner.clone(), 3)));
    let java = fleet.java("waiter", Kind::Lock, "orders");
    let mut waiter = java.start("lock", json!({}));
    fleet.waiting(&channel("orders"), 1).await;
    for (guard, left) in [(first, 2), (second, 1)] {
        guard.release().await.unwrap();
        assert_eq!(fleet.holder("orders"), Some((owner.clone(), left)));
    }
    let other = fleet.java("onlooker", Kind::Lock, "orders");
    assert!(other.done("isLocked").await.bool());
    assert!(!other.done("isHeld").await.bool());
    assert_eq!(other.done("holdCount").await.int(), 0, "it holds nothing");
    assert!(other.done("ttl").await.int() > 20_000);
    assert!(waiter.is_waiting());
    third.release().await.unwrap();
    java_granted(waiter, SOON).await;
    java.done("unlock").await;
    fleet.at_rest().await;
}
