//! [`Proxy`]: faults of whole connections.

use std::io::ErrorKind;
use std::time::Duration;

use stanchion_testkit::{Matcher, RedisServer, Switch, eventually_blocking, machine_clock};

use crate::client::Client;
use crate::pair;

/// The number of the server's connections, the asking one included.
fn connections(redis: &RedisServer) -> usize {
    redis.cli(&["CLIENT", "LIST"]).as_text().lines().count()
}

#[test]
fn a_healthy_proxy_changes_nothing() {
    let Some((_r, proxy)) = pair() else { return };
    assert_eq!(proxy.url(), format!("redis://{}/", proxy.addr()));
    let mut client = Client::connect(proxy.addr());
    let big = "x".repeat(1 << 20);
    client.send_array(&["SET", "k", &big]);
    client.send("STRLEN k\nPING");
    let replies: Vec<_> = (0..3).map(|_| client.line().unwrap()).collect();
    assert_eq!(replies, ["+OK", ":1048576", "+PONG"]);
    client.send("GET k");
    assert_eq!(client.line().unwrap(), "$1048576");
    assert_eq!(client.line().unwrap(), big);

    let seen = proxy.commands_seen();
    let names: Vec<_> = seen.iter().map(|args| args[0].as_slice()).collect();
    assert_eq!(names, [&b"SET"[..], b"STRLEN", b"PING", b"GET"]);
    assert_eq!(proxy.count(&Matcher::any().containing("k")), 3);
    assert_eq!((proxy.connections(), proxy.accepted()), (1, 1));
    drop(client);
    proxy.wait_for_blocking("the connection is over", |p| p.connections() == 0);
    proxy.clear_seen();
    assert!(proxy.commands_seen().is_empty());
}

#[test]
fn a_delay_holds_both_directions_and_keeps_the_order() {
    let Some((_r, proxy)) = pair() else { return };
    let mut client = Client::connect(proxy.addr());
    client.call("PING");
    let delay = Duration::from_millis(40);
    proxy.delay(delay);
    let began = machine_clock();
    client.send("ECHO 1");
    client.send("ECHO 2");
    let lines: Vec<_> = (0..4).map(|_| client.line().unwrap()).collect();
    assert!(machine_clock() - began >= 2 * delay);
    assert_eq!(lines, ["$1", "1", "$1", "2"]);

    let began = machine_clock();
    proxy.delay(Duration::from_secs(60));
    proxy.delay(Duration::ZERO);
    client.call("PING");
    assert!(machine_clock() - began < Duration::from_secs(60));
}

#[test]
fn frozen_connections_hang_and_new_ones_work() {
    let Some((redis, proxy)) = pair() else { return };
    let mut frozen = Client::connect(proxy.addr());
    frozen.call("PING");
    proxy.freeze_existing();
    frozen.send("SET k v");
    let mut fresh = Client::connect(proxy.addr());
    assert_eq!(fresh.call("PING"), "+PONG");
    assert!(frozen.is_silent());
    assert!(redis.keys().is_empty());
    assert_eq!(proxy.count(&Matcher::command("SET")), 0);
    proxy.thaw();
    assert_eq!(frozen.line().unwrap(), "+OK");
    assert_eq!(redis.keys(), ["k"]);
}

#[test]
fn a_frozen_request_arrives_late_though_its_client_has_gone() {
    let Some((redis, proxy)) = pair() else { return };
    let mut client = Client::connect(proxy.addr());
    client.call("PING");
    proxy.freeze_existing();
    client.send("SET k v");
    drop(client);
    assert_eq!(proxy.connections(), 1, "nobody was told");
    proxy.thaw();
    eventually_blocking("the late request arrives", || redis.keys() == ["k"]);
    proxy.wait_for_blocking("the connection is over", |p| p.connections() == 0);
}

#[test]
fn when_all_is_frozen_new_connections_are_accepted_and_hang() {
    let Some((redis, proxy)) = pair() else { return };
    proxy.freeze_all();
    let mut client = Client::connect(proxy.addr());
    client.send("PING");
    proxy.wait_for_blocking("the connection is accepted", |p| p.connections() == 1);
    assert!(client.is_silent());
    // Up to now the tools themselves may have connections that are just being closed.
    eventually_blocking("the server sees no one", || connections(&redis) == 1);
    proxy.thaw();
    assert_eq!(client.line().unwrap(), "+PONG");
    assert_eq!(Client::connect(proxy.addr()).call("PING"), "+PONG");
}

#[test]
fn frozen_replies_let_requests_through() {
    let Some((redis, proxy)) = pair() else { return };
    let mut client = Client::connect(proxy.addr());
    client.call("PING");
    proxy.freeze_replies();
    client.send("SET k v");
    eventually_blocking("the request arrives", || redis.keys() == ["k"]);
    assert!(client.is_silent());
    proxy.thaw();
    assert_eq!(client.line().unwrap(), "+OK");
}

#[test]
fn a_reset_is_a_reset_on_both_sides() {
    let Some((redis, proxy)) = pair() else { return };
    let mut client = Client::connect(proxy.addr());
    client.call("PING");
    proxy.reset_all();
    assert_eq!(client.drain(), (vec![], ErrorKind::ConnectionReset));
    eventually_blocking("the server noticed", || connections(&redis) == 1);
    assert_eq!(Client::connect(proxy.addr()).call("PING"), "+PONG");
    // A frozen connection can be reset, too.
    let mut frozen = Client::connect(proxy.addr());
    frozen.call("PING");
    proxy.freeze_all();
    frozen.send("PING");
    proxy.reset_all();
    assert_eq!(frozen.drain(), (vec![], ErrorKind::ConnectionReset));
}

#[test]
fn new_connections_can_be_refused() {
    let Some((_r, proxy)) = pair() else { return };
    let mut old = Client::connect(proxy.addr());
    old.call("PING");
    proxy.refuse_new(Switch::On);
    let refused = Client::connect(proxy.addr()).drain();
    assert_eq!(refused, (vec![], ErrorKind::ConnectionReset));
    assert_eq!((proxy.connections(), proxy.accepted()), (1, 2));
    assert_eq!(old.call("PING"), "+PONG");
    proxy.refuse_new(Switch::Off);
    assert_eq!(Client::connect(proxy.addr()).call("PING"), "+PONG");
}

#[test]
fn a_dead_server_is_seen_through_the_proxy() {
    let Some((mut redis, proxy)) = pair() else {
        return;
    };
    let mut client = Client::connect(proxy.addr());
    client.call("PING");
    redis.kill();
    assert!(client.line().is_err(), "closed with the server");
    let (_, end) = Client::connect(proxy.addr()).drain();
    assert_eq!(end, ErrorKind::ConnectionReset, "nobody behind the proxy");
    redis.restart();
    assert_eq!(Client::connect(proxy.addr()).call("PING"), "+PONG");
}

#[test]
fn a_dropped_proxy_closes_everything() {
    let Some((redis, proxy)) = pair() else { return };
    let mut client = Client::connect(proxy.addr());
    client.call("PING");
    drop(proxy);
    assert!(client.line().is_err());
    eventually_blocking("the server noticed", || connections(&redis) == 1);
}
