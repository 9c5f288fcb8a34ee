//! Tests connections that break, freeze or are refused. Only the clients under test connect through the proxy.

use stanchion::LostReason;
use stanchion_testkit::{Matcher, Proxy, Switch, Then};
use stanchion_tests::faults::*;

#[tokio::test]
async fn a_waiter_outlives_the_reset_of_its_connections() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let lock_a = lock_of(server.url(), "orders", LONG).await;
    let lock_b = lock_of(proxy.url(), "orders", LONG).await;
    for _ in 0..5 {
        let guard = lock_a.acquire().await.unwrap();
        let waiter = waiting(&lock_b);
        subscribed(&server, "orders").await;
        proxy.reset_all();
        // The message of this release has no subscriber.
        guard.release().await.unwrap();
        served(waiter, LONG / 3).await;
    }
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_holder_outlives_the_reset_of_its_connections() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let guard = acquired(proxy.url(), "orders", ms(1500)).await;
    let owner = holder(&server, "orders");
    for _ in 0..3 {
        proxy.reset_all();
        renewed(&guard).await;
    }
    assert_eq!(holder(&server, "orders"), owner);
    proxy.reset_all();
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn an_acquire_whose_request_was_lost_with_its_connection_retries() {
    let Some(server) = server() else { return };
    let scripts = Scripts::load(&server);
    let proxy = Proxy::start(server.addr());
    let lock = lock_of(proxy.url(), "orders", LONG).await;
    let held = proxy.hold_requests(run_of(&scripts.acquire, "orders").nth(1));
    let waiter = waiting(&lock);
    held.wait(1).await;
    held.discard();
    let guard = granted(waiter, LONG / 3).await;
    assert_eq!(hold_count(&server, "orders"), 1);
    quiet(&server).await;
    assert!(
        guard.is_held(),
        "the clean-up after the lost request spares the hold"
    );
    assert_eq!(hold_count(&server, "orders"), 1);
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn black_holed_connections_are_replaced_by_new_ones() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let client = connect(proxy.url()).await;
    let guard = lock(&client, "orders", ms(3000)).acquire().await.unwrap();
    let owner = holder(&server, "orders");
    let before = proxy.accepted();
    proxy.freeze_existing();
    let other = soon(LONG / 3, lock(&client, "other", LONG).acquire())
        .await
        .unwrap();
    renewed(&guard).await;
    assert_eq!(holder(&server, "orders"), owner);
    assert!(proxy.accepted() > before, "on a new connection");
    // Requests that arrive over the old connections now are late.
    proxy.thaw();
    renewed(&guard).await;
    other.release().await.unwrap();
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_waiter_behind_a_black_hole_still_gets_the_lock() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let guard = acquired(server.url(), "orders", LONG).await;
    let waiter = waiting(&lock_of(proxy.url(), "orders", LONG).await);
    subscribed(&server, "orders").await;
    proxy.freeze_existing();
    guard.release().await.unwrap();
    served(waiter, LONG / 3).await;
    proxy.thaw();
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_disconnected_holder_detects_the_loss_before_the_next_grant() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let guard = acquired(proxy.url(), "orders", ms(600)).await;
    let client = connect(server.url()).await;
    let waiter = waiting(&lock(&client, "orders", LONG));
    subscribed(&server, "orders").await;
    renewed(&guard).await;
    proxy.freeze_all();
    let work = guard.run(std::future::pending::<()>());
    let lost = soon(LONG / 3, work).await.unwrap_err();
    assert_eq!(lost.reason, LostReason::Expired);
    let next = granted(waiter, LONG / 3).await;
    assert!(guard.valid_until() < client.now(), "P5");
    assert!(token(&next) > token(&guard), "P2");
    // Requests that the old holder sent during the freeze arrive now, and change nothing.
    let owner = holder(&server, "orders");
    drop(guard);
    proxy.thaw();
    quiet(&server).await;
    assert_eq!(holder(&server, "orders"), owner, "P1");
}

#[tokio::test]
async fn a_frozen_subscription_delays_a_waiter_until_its_poll_at_most() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let lock_a = lock_of(server.url(), "orders", LONG).await;
    // A long response timeout, so that the client does not replace the frozen connection during this test.
    let config = config(proxy.url())
        .response_timeout(LONG)
        .poll_interval(ms(700));
    let client = stanchion::Client::connect_with(config).await.unwrap();
    let guard = lock_a.acquire().await.unwrap();
    let waiter = waiting(&lock(&client, "orders", LONG));
    subscribed(&server, "orders").await;
    // The proxy swallows the next confirmation on that connection, and everything after it.
    proxy.swallow_next_reply(Matcher::command("SUBSCRIBE"), Then::Freeze);
    let _other = acquired(server.url(), "other", LONG).await;
    let _other_waiter = waiting(&lock(&client, "other", LONG));
    proxy
        .wait_for("the subscription is frozen", |p| p.swallowed() == 1)
        .await;
    let connections = proxy.accepted();
    guard.release().await.unwrap();
    served(waiter, ms(700) + SLACK).await;
    assert_eq!(
        proxy.accepted(),
        connections,
        "by the poll, not by a new connection"
    );
}

#[tokio::test]
async fn a_client_reconnects_after_many_refusals() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let client = connect(proxy.url()).await;
    let before = proxy.accepted();
    proxy.refuse_new(Switch::On);
    proxy.reset_all();
    let waiter = waiting(&lock(&client, "orders", LONG));
    // More than six attempts for each of the three connections.
    proxy
        .wait_for("many tries", |p| p.accepted() > before + 20)
        .await;
    assert!(!client.is_connected());
    assert!(!waiter.is_finished());
    proxy.refuse_new(Switch::Off);
    let guard = granted(waiter, LONG / 3).await;
    // The subscription connection returns, too.
    let waiter = waiting(&lock(&client, "taken", LONG));
    served(waiter, LONG / 3).await;
    let taken = acquired(server.url(), "taken", LONG).await;
    let waiter = waiting(&lock(&client, "taken", LONG));
    subscribed(&server, "taken").await;
    taken.release().await.unwrap();
    served(waiter, LONG / 3).await;
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_slow_link_shortens_the_validity_of_a_hold() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let lock = lock_of(proxy.url(), "orders", ms(2000)).await;
    proxy.delay(ms(80));
    let guard = lock.acquire().await.unwrap();
    // The validity counts from before the request was sent: two delays of 80 ms are subtracted.
    assert!(guard.remaining() < ms(2000 - 160), "P1");
    renewed(&guard).await;
    guard.release().await.unwrap();
    nothing_left(&server).await;
}
