//! `RedissonMultiLock` over names that we lock too. It has no keys of its own: its members are locks.

use serde_json::json;

use crate::java::Kind;
use crate::support::*;

#[tokio::test]
async fn the_members_of_a_java_multi_lock_are_our_locks() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
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

    // It takes `a`, waits for `b`, and is woken there by our release.
    let waiter = java.start("try", json!({"wait": 30_000}));
    fleet.waiting(&channel("b"), 2).await;
    assert!(a.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    assert!(waiter.within(SOON).await.bool());
    java.done("unlock").await;

    // All or nothing.
    let guard = b.acquire().await.unwrap();
    assert!(!java.done("try").await.bool());
    let free = fleet.java("other", Kind::Lock, "a").done("isLocked").await;
    assert!(!free.bool());
    guard.release().await.unwrap();
    fleet.at_rest().await;
}
