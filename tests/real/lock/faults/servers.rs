//! Tests servers that are restarted and paused.

use stanchion::{LostReason, ReleaseError};
use stanchion_testkit::eventually;
use stanchion_tests::assert_is;
use stanchion_tests::faults::*;

#[tokio::test]
async fn the_holder_detects_a_restart_without_data_and_tokens_still_grow() {
    let Some(mut server) = server() else { return };
    let lock_a = lock_of(server.url(), "orders", ms(900)).await;
    let lock_b = lock_of(server.url(), "orders", LONG).await;
    let guard = lock_a.acquire().await.unwrap();
    let waiter = waiting(&lock_b);
    subscribed(&server, "orders").await;
    server.restart();
    let reason = loss(&guard).await;
    assert_is!(reason, LostReason::Gone | LostReason::Expired);
    let next = granted(waiter, LONG / 3).await;
    assert!(token(&next) > token(&guard), "P2");
    let owner = holder(&server, "orders");
    // P8: the old holder's release reports the loss and changes nothing.
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
    quiet(&server).await;
    assert_eq!(holder(&server, "orders"), owner);
    next.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn the_hold_and_the_waiter_survive_a_restart_that_keeps_the_data() {
    let Some(mut server) = durable() else { return };
    // The lease outlasts the restart, also on a busy machine.
    let lock_a = lock_of(server.url(), "orders", ms(15_000)).await;
    let lock_b = lock_of(server.url(), "orders", LONG).await;
    let guard = lock_a.acquire().await.unwrap();
    let waiter = waiting(&lock_b);
    subscribed(&server, "orders").await;
    let owner = holder(&server, "orders").unwrap();
    server.restart();
    assert_eq!(
        holder(&server, "orders"),
        Some(owner.clone()),
        "the server kept its data"
    );
    renewed(&guard).await;
    subscribed(&server, "orders").await;
    assert!(!waiter.is_finished(), "P1");
    assert_eq!(holder(&server, "orders"), Some(owner));
    let first = token(&guard);
    guard.release().await.unwrap();
    let next = granted(waiter, LONG / 3).await;
    assert!(token(&next) > first, "P2");
}

#[tokio::test]
async fn a_hold_is_lost_in_time_if_its_server_is_paused_beyond_the_lease() {
    let Some(server) = server() else { return };
    let lock_a = lock_of(server.url(), "orders", ms(600)).await;
    let client_b = connect(server.url()).await;
    let lock_b = lock(&client_b, "orders", LONG);
    let guard = lock_a.acquire().await.unwrap();
    let waiter = waiting(&lock_b);
    subscribed(&server, "orders").await;
    server.stop_signal();
    // P5: without a reply from the server.
    assert_eq!(loss(&guard).await, LostReason::Expired);
    assert!(
        !waiter.is_finished(),
        "the paused server cannot have granted yet"
    );
    server.cont();
    let next = granted(waiter, LONG / 3).await;
    assert!(client_b.now() > guard.valid_until(), "P1");
    assert!(token(&next) > token(&guard), "P2");
}

#[tokio::test]
async fn a_hold_survives_a_server_pause_shorter_than_its_lease() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let guard = lock(&client, "orders", ms(3000)).acquire().await.unwrap();
    server.stop_signal();
    eventually("the client has closed its connections", || {
        !client.is_connected()
    })
    .await;
    server.cont();
    renewed(&guard).await;
    assert_eq!(hold_count(&server, "orders"), 1);
    guard.release().await.unwrap();
    nothing_left(&server).await;
}
