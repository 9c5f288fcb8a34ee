//! `RFencedLock` and `Fencing::PerName` use the same counter.

use serde_json::json;
use stanchion::{Fencing, Lock, LockGuard};
use stanchion_tests::interop::*;
use stanchion_tests::java::{Kind, Object};

fn token(guard: &LockGuard) -> i64 {
    guard.fencing_token().unwrap().get().try_into().unwrap()
}

async fn fenced(fleet: &Fleet) -> (Lock, Object) {
    let lock = lock(&fleet.rust().await, "orders").fencing(Fencing::PerName);
    (lock, fleet.java("java", Kind::Fenced, "orders"))
}

#[tokio::test]
async fn tokens_grow_across_both_libraries() {
    let Some(fleet) = fleet().await else { return };
    let (lock, java) = fenced(&fleet).await;
    let mut last = 0;
    for round in 0..60 {
        // Each library follows itself in some rounds, and the other one in others.
        let next = if round % 5 < 2 {
            let next = java.done("lock").await.int();
            java.done("unlock").await;
            next
        } else {
            let guard = lock.acquire().await.unwrap();
            assert_eq!(java.done("token").await.int(), token(&guard));
            let next = token(&guard);
            guard.release().await.unwrap();
            next
        };
        assert!(next > last, "P2: {next} after {last} in round {round}");
        last = next;
    }
    let seen = lock.status().await.unwrap().last_token.unwrap();
    assert_eq!(seen.get(), u64::try_from(last).unwrap());
    fleet.at_rest().await;
}

/// The counter is ahead of the clock, as after a step of the server's clock.
#[tokio::test]
async fn tokens_grow_though_the_counter_is_ahead_of_the_clock() {
    let Some(fleet) = fleet().await else { return };
    let (lock, java) = fenced(&fleet).await;
    let ahead = 8_000_000_000_000_000;
    let set = ["SET", "redisson_lock_token:{orders}", &ahead.to_string()];
    assert!(!fleet.server.cli(&set).is_error());
    for round in 0..3 {
        let guard = lock.acquire().await.unwrap();
        assert_eq!(token(&guard), ahead + 2 * round + 1, "P2");
        guard.release().await.unwrap();
        assert_eq!(java.done("lock").await.int(), ahead + 2 * round + 2);
        java.done("unlock").await;
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn a_release_wakes_the_other_library_with_a_larger_token() {
    let Some(fleet) = fleet().await else { return };
    let (lock, java) = fenced(&fleet).await;
    let first = lock.acquire().await.unwrap();
    let waiter = java.start("lock", json!({}));
    fleet.waiting(&channel("orders"), 1).await;
    let mut last = token(&first);
    first.release().await.unwrap();
    let second = java_granted(waiter, SOON).await.int();
    assert!(second > last, "P2");
    // Redisson gives a new token to a re-entry.
    last = java.done("lock").await.int();
    assert!(last > second);
    java.done("unlock").await;
    let waiter = acquiring(&lock);
    fleet.waiting(&channel("orders"), 1).await;
    java.done("unlock").await;
    let third = granted(waiter, SOON).await;
    assert!(token(&third) > last, "P2");
    third.release().await.unwrap();
    fleet.at_rest().await;
}

/// Deleting an `RFencedLock` restarts Redisson's tokens at 1. Tokens of this library still grow, because they are never behind the clock.
#[tokio::test]
async fn our_tokens_grow_even_if_java_deletes_the_counter() {
    let Some(fleet) = fleet().await else { return };
    let (lock, java) = fenced(&fleet).await;
    let guard = lock.acquire().await.unwrap();
    let before = token(&guard);
    guard.release().await.unwrap();
    java.done("delete").await;
    assert_eq!(java.done("lock").await.int(), 1, "Redisson's token fell");
    java.done("unlock").await;
    let guard = lock.acquire().await.unwrap();
    assert!(token(&guard) > before, "P2");
    let after = token(&guard);
    guard.release().await.unwrap();
    assert!(
        java.done("lock").await.int() > after,
        "Redisson continues from our token"
    );
    java.done("unlock").await;
    fleet.at_rest().await;
}

#[tokio::test]
async fn a_fenced_lock_and_a_plain_one_are_the_same_lock() {
    let Some(fleet) = fleet().await else { return };
    let (lock, java) = fenced(&fleet).await;
    let plain = fleet.java("plain", Kind::Lock, "orders");
    let guard = lock.acquire().await.unwrap();
    for other in [&java, &plain] {
        assert!(other.done("isLocked").await.bool());
    }
    assert!(!plain.done("try").await.bool());
    let refused = java.with("try", json!({"wait": 0})).await;
    assert!(refused.value().is_null());
    // `tryLockAndGetToken()` without a time waits for the lock, in Redisson 4.7.0.
    let mut waiter = java.start("try", json!({}));
    fleet.waiting(&channel("orders"), 1).await;
    assert!(waiter.is_waiting());
    guard.release().await.unwrap();
    assert!(java_granted(waiter, SOON).await.int() > 0);
    java.done("unlock").await;
    plain.done("lock").await;
    assert!(lock.try_acquire().await.unwrap().is_none());
    plain.done("unlock").await;
    fleet.at_rest().await;
}
