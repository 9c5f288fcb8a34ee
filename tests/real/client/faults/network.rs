//! Tests connections that break or freeze. Only the clients under test connect through the proxy. `virtual/client/connections` has the rest.

use stanchion_testkit::Proxy;
use stanchion_tests::faults::*;

#[tokio::test]
async fn holders_and_waiters_outlive_the_reset_of_their_connections() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let held = acquired(proxy.url(), "held", ms(3000)).await;
    let owner = holder(&server, "held");
    let elsewhere = lock_of(server.url(), "orders", LONG).await;
    let waits = lock_of(proxy.url(), "orders", LONG).await;
    for _ in 0..3 {
        let guard = elsewhere.acquire().await.unwrap();
        let waiter = waiting(&waits);
        subscribed(&server, "orders").await;
        proxy.reset_all();
        // The message of this release has no subscriber.
        guard.release().await.unwrap();
        served(waiter, LONG / 3).await;
        renewed(&held).await;
    }
    assert_eq!(holder(&server, "held"), owner);
    proxy.reset_all();
    held.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn black_holed_connections_are_replaced_by_new_ones() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let client = connect(proxy.url()).await;
    let guard = lock(&client, "orders", ms(3000)).acquire().await.unwrap();
    let owner = holder(&server, "orders");
    let elsewhere = acquired(server.url(), "taken", LONG).await;
    let waiter = waiting(&lock(&client, "taken", LONG));
    subscribed(&server, "taken").await;
    let before = proxy.accepted();
    proxy.freeze_existing();
    elsewhere.release().await.unwrap();
    let other = lock(&client, "other", LONG).acquire();
    let other = soon(LONG / 3, other).await.unwrap();
    renewed(&guard).await;
    served(waiter, LONG / 3).await;
    assert_eq!(holder(&server, "orders"), owner);
    assert!(proxy.accepted() > before, "on a new connection");
    // Requests that arrive over the old connections now are late.
    proxy.thaw();
    renewed(&guard).await;
    other.release().await.unwrap();
    guard.release().await.unwrap();
    nothing_left(&server).await;
}
