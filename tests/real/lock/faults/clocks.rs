//! Tests steps of the server's clock: tokens still grow (P2), a holder detects the loss of its lock, and late requests are sent again.

use stanchion::{Client, LostReason, ReleaseError, RenewError};
use stanchion_testkit::{Proxy, RedisServer};
use stanchion_tests::faults::*;

fn steppable() -> Option<RedisServer> {
    start(RedisServer::builder().steppable_clock())
}

#[tokio::test]
async fn a_step_forward_over_the_lease_frees_the_lock_and_the_holder_detects_the_loss() {
    let Some(server) = steppable() else { return };
    let guard = acquired(server.url(), "orders", LONG).await;
    server.step_clock(31_000);
    let next = soon(
        LONG / 3,
        lock_of(server.url(), "orders", LONG).await.acquire(),
    )
    .await
    .unwrap();
    assert!(token(&next) > token(&guard), "P2");
    // By the client's clock the lease is still valid. The next renewal detects the loss.
    let error = guard.renew().await.unwrap_err();
    assert!(
        matches!(&error, RenewError::Lost(lost) if lost.reason == LostReason::Gone),
        "{error:?}"
    );
    assert_eq!(loss(&guard).await, LostReason::Gone);
    assert!(matches!(guard.release().await, Err(ReleaseError::Lost(_))));
    assert_eq!(
        hold_count(&server, "orders"),
        1,
        "the next holder is not affected"
    );
    next.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn the_watchdog_detects_a_step_forward() {
    let Some(server) = steppable() else { return };
    let guard = acquired(server.url(), "orders", ms(1500)).await;
    server.step_clock(31_000);
    assert_eq!(loss(&guard).await, LostReason::Gone);
}

#[tokio::test]
async fn the_next_renewal_restores_the_lease_after_a_step_forward_below_it() {
    let Some(server) = steppable() else { return };
    let guard = acquired(server.url(), "orders", LONG).await;
    server.step_clock(10_000);
    // By the server's new clock the first request is late. The client sends it again.
    guard.renew().await.unwrap();
    assert!(server.cli(&["PTTL", "orders"]).as_int() > 25_000);
    let again = guard.reenter().await.unwrap();
    again.release().await.unwrap();
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn after_a_step_forward_a_refused_request_is_sent_again() {
    let Some(server) = steppable() else { return };
    let scripts = Scripts::load(&server);
    let proxy = Proxy::start(server.addr());
    // A long response timeout, so that no probe of an idle connection shows the client the new time.
    let client = Client::connect_with(config(proxy.url()).response_timeout(ms(5000)))
        .await
        .unwrap();
    server.step_clock(60_000);
    let guard = soon(LONG / 3, lock(&client, "orders", LONG).acquire())
        .await
        .unwrap();
    assert_eq!(
        proxy.count(&run_of(&scripts.acquire, "orders")),
        2,
        "refused once, then granted"
    );
    server.step_clock(60_000);
    let other = soon(LONG / 3, lock(&client, "other", LONG).try_acquire())
        .await
        .unwrap();
    assert!(other.is_some(), "a late request does not count as busy");
    assert_eq!(
        proxy.count(&run_of(&scripts.acquire, "other")),
        2,
        "refused once, then granted"
    );
    drop(guard);
    drop(other);
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_hand_off_that_a_step_forward_makes_late_wakes_its_waiter() {
    let Some(server) = steppable() else { return };
    let client = connect(server.url()).await;
    let lock = lock(&client, "orders", LONG);
    let guard = lock.acquire().await.unwrap();
    let waiter = waiting(&lock);
    stanchion_testkit::eventually("the call waits", || client.waiters() == 1).await;
    server.step_clock(10_000);
    guard.release().await.unwrap();
    served(waiter, LONG / 3).await;
    nothing_left(&server).await;
}

#[tokio::test]
async fn after_a_step_back_tokens_still_grow_and_holds_survive() {
    let Some(server) = steppable() else { return };
    let lock_a = lock_of(server.url(), "orders", ms(1500)).await;
    let lock_b = lock_of(server.url(), "orders", LONG).await;
    let first = lock_a.acquire().await.unwrap();
    let before = token(&first);
    server.step_clock(-60_000);
    renewed(&first).await;
    first.release().await.unwrap();
    let second = soon(LONG / 3, lock_b.acquire()).await.unwrap();
    assert!(token(&second) > before, "P2");
    let before = token(&second);
    second.release().await.unwrap();
    let third = lock_a.acquire().await.unwrap();
    assert!(token(&third) > before, "P2");
    // The reply to the renewal has shown the client the new time.
    renewed(&third).await;
    third.release().await.unwrap();
    nothing_left(&server).await;
}
