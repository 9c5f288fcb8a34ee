//! [`Proxy`]: requests that are held back.

use std::io::ErrorKind;

use stanchion_testkit::{Matcher, eventually, eventually_blocking};

use crate::client::Client;
use crate::pair;

#[tokio::test]
async fn a_held_request_arrives_when_released() {
    let Some((redis, proxy)) = pair() else { return };
    let held = proxy.hold_requests(Matcher::command("SET").containing("owner-1"));
    let mut client = Client::connect(proxy.addr());
    client.send("PING\nSET k owner-1\nGET k");
    held.wait(1).await;
    assert_eq!(client.line().unwrap(), "+PONG", "what was before it passes");
    assert!(redis.keys().is_empty());
    let mut other = Client::connect(proxy.addr());
    assert_eq!(other.call("SET k owner-2"), "+OK");
    held.release();
    assert_eq!(client.line().unwrap(), "+OK");
    assert_eq!(client.line().unwrap(), "$7", "in order");
    assert_eq!(redis.cli(&["GET", "k"]).as_text(), "owner-1");
    assert_eq!(client.line().unwrap(), "owner-1");
    assert_eq!(client.call("SET k owner-1"), "+OK", "no longer held");
    proxy
        .wait_for("both were seen", |p| p.count(&Matcher::command("SET")) == 3)
        .await;
}

#[tokio::test]
async fn a_held_request_arrives_though_its_client_has_gone() {
    let Some((redis, proxy)) = pair() else { return };
    let held = proxy.hold_requests(Matcher::command("SET"));
    let mut client = Client::connect(proxy.addr());
    client.send("SET k v");
    held.wait(1).await;
    drop(client);
    assert_eq!(proxy.connections(), 1);
    drop(held);
    eventually("the late request arrives", || redis.keys() == ["k"]).await;
}

#[tokio::test]
async fn a_discarded_request_never_arrives() {
    let Some((redis, proxy)) = pair() else { return };
    let held = proxy.hold_requests(Matcher::command("SET"));
    let mut client = Client::connect(proxy.addr());
    client.send("SET k v");
    held.wait(1).await;
    held.discard();
    assert_eq!(client.drain(), (vec![], ErrorKind::ConnectionReset));
    proxy
        .wait_for("the connection is over", |p| p.connections() == 0)
        .await;
    assert_eq!(proxy.count(&Matcher::command("SET")), 0);
    assert!(!redis.commands_processed().contains_key("set"));
}

#[test]
fn only_the_nth_request_is_held() {
    let Some((redis, proxy)) = pair() else { return };
    let held = proxy.hold_requests(Matcher::command("SET").nth(2));
    let mut one = Client::connect(proxy.addr());
    let mut two = Client::connect(proxy.addr());
    let mut three = Client::connect(proxy.addr());
    assert_eq!(one.call("SET a 1"), "+OK");
    two.send("SET b 1");
    eventually_blocking("the second is held", || held.count() == 1);
    assert_eq!(three.call("SET c 1"), "+OK");
    assert_eq!(redis.keys(), ["a", "c"]);
    held.release();
    assert_eq!(two.line().unwrap(), "+OK");
}
