//! [`Proxy`]: replies that are swallowed.

use std::io::ErrorKind;

use stanchion_testkit::{Matcher, Then};

use crate::client::Client;
use crate::pair;

#[test]
fn a_swallowed_reply_is_lost_and_its_request_was_done() {
    let Some((redis, proxy)) = pair() else { return };
    proxy.swallow_next_reply(Matcher::command("INCR").containing("k"), Then::Reset);
    let mut client = Client::connect(proxy.addr());
    client.send("PING\nINCR other\nINCR k\nINCR k");
    let (lines, end) = client.drain();
    assert_eq!(lines, ["+PONG", ":1"], "what was before it passes");
    assert_eq!(end, ErrorKind::ConnectionReset);
    proxy.wait_for_blocking("one reply is swallowed", |p| p.swallowed() == 1);
    assert!(redis.cli(&["GET", "k"]).as_int() >= 1);

    let before = redis.cli(&["GET", "k"]).as_int();
    let reply = Client::connect(proxy.addr()).call("INCR k");
    assert_eq!(reply, format!(":{}", before + 1), "once only");
}

#[test]
fn the_nth_run_of_a_script_can_be_chosen() {
    let Some((redis, proxy)) = pair() else { return };
    let script = "return redis.call('INCR', KEYS[1])";
    let sha = redis.cli(&["SCRIPT", "LOAD", script]);
    let matcher = Matcher::script(sha.as_text()).containing("owner");
    proxy.swallow_next_reply(matcher.clone().nth(2), Then::Reset);
    let run = |client: &mut Client, owner: &str| {
        client.send_array(&["EVALSHA", sha.as_text(), "1", "k", owner]);
        client.line()
    };
    let mut client = Client::connect(proxy.addr());
    assert_eq!(run(&mut client, "owner").unwrap(), ":1");
    assert_eq!(run(&mut client, "somebody").unwrap(), ":2");
    let mut other = Client::connect(proxy.addr());
    let error = run(&mut other, "owner").unwrap_err();
    assert_eq!(error.kind(), ErrorKind::ConnectionReset);
    assert_eq!(run(&mut client, "owner").unwrap(), ":4");
    assert_eq!(proxy.count(&matcher), 3);
    assert_eq!(proxy.count(&Matcher::any_script()), 4);
}

#[test]
fn a_frozen_reply_comes_late() {
    let Some((redis, proxy)) = pair() else { return };
    proxy.swallow_next_reply(Matcher::command("INCR"), Then::Freeze);
    let mut client = Client::connect(proxy.addr());
    client.send("INCR k");
    proxy.wait_for_blocking("the reply is swallowed", |p| p.swallowed() == 1);
    client.send("INCR k");
    let mut other = Client::connect(proxy.addr());
    assert_eq!(other.call("PING"), "+PONG", "only that connection hangs");
    assert!(client.is_silent());
    assert_eq!(redis.cli(&["GET", "k"]).as_int(), 1, "both ways");
    proxy.thaw();
    assert_eq!(client.line().unwrap(), ":1");
    assert_eq!(client.line().unwrap(), ":2");
}

#[test]
fn messages_are_not_taken_for_replies() {
    for version in ["2", "3"] {
        let Some((redis, proxy)) = pair() else { return };
        let mut client = Client::connect(proxy.addr());
        client.send(&format!("HELLO {version}\nSUBSCRIBE a b\nPING"));
        while !client.line().unwrap().to_lowercase().contains("pong") {}
        if version == "2" {
            // In RESP2 a subscribed connection answers `pong` and an empty text.
            assert_eq!([client.line().unwrap(), client.line().unwrap()], ["$0", ""]);
        }
        proxy.swallow_next_reply(Matcher::command("PING").containing("x"), Then::Reset);
        assert_eq!(redis.cli(&["PUBLISH", "a", "hello"]).as_int(), 1);
        while client.line().unwrap() != "hello" {}
        client.send("PING\nPING x");
        let (lines, end) = client.drain();
        let text = lines.concat().to_lowercase();
        assert_eq!(text.matches("pong").count(), 1, "RESP{version}: {lines:?}");
        assert_eq!(end, ErrorKind::ConnectionReset, "RESP{version}");
    }
}

#[test]
fn a_message_before_a_reply_does_not_shift_the_count() {
    let Some((_r, proxy)) = pair() else { return };
    let mut client = Client::connect(proxy.addr());
    client.send("HELLO 3\nSUBSCRIBE a\nPING");
    while client.line().unwrap() != "+PONG" {}
    proxy.swallow_next_reply(Matcher::command("PING"), Then::Reset);
    client.send("PUBLISH a hello\nPING");
    let (lines, _) = client.drain();
    assert!(lines.contains(&"hello".into()), "the message: {lines:?}");
    assert!(lines.contains(&":1".into()), "PUBLISH's reply: {lines:?}");
    assert!(!lines.contains(&"+PONG".into()), "{lines:?}");
}

#[test]
fn a_subscription_can_be_swallowed() {
    let Some((redis, proxy)) = pair() else { return };
    proxy.swallow_next_reply(Matcher::command("SUBSCRIBE"), Then::Freeze);
    let mut client = Client::connect(proxy.addr());
    client.send("SUBSCRIBE a b");
    proxy.wait_for_blocking("the confirmations are swallowed", |p| p.swallowed() == 1);
    assert_eq!(redis.subscribers("b"), 1, "the server did it");
    assert!(client.is_silent());
    proxy.thaw();
    let lines: Vec<_> = (0..12).map(|_| client.line().unwrap()).collect();
    assert_eq!(lines[11], ":2", "both come late: {lines:?}");
}
