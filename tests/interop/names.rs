//! The same name gives the same keys and channels, whatever is in it.

use serde_json::json;
use stanchion::{Client, ClientConfig};

use crate::java::Kind;
use crate::support::*;

/// Names as they come, and some as they should not.
const NAMES: [&str; 14] = [
    "orders",
    "{tenant}:orders",
    "orders:{tenant}",
    "a{b",
    "a}b",
    "{}x",
    "}a{b}c",
    "{{deep}}",
    "größe/ünïcode/注文/🦀",
    "two words\tand a tab",
    "quote\"back\\slash'apostrophe",
    "line\nbreak\r\nand\0nul",
    "*[a-z]?",
    "%s ${x} #{y} \u{feff}",
];

/// What a waiting and a releasing client touch, read off MONITOR: quoted as there, without owners.
async fn touched(
    fleet: &Fleet,
    name: &str,
    work: impl AsyncFnOnce(),
) -> (Vec<String>, Vec<String>) {
    let monitor = fleet.server.monitor();
    work().await;
    fleet.quiet().await;
    let of = |command: &str| {
        let word = format!("\"{command}\" ");
        let mut found: Vec<String> = monitor
            .lines()
            .iter()
            .filter_map(|line| {
                let (_, rest) = line.split_once("] ")?;
                let rest = rest
                    .get(..word.len())?
                    .eq_ignore_ascii_case(&word)
                    .then(|| &rest[word.len()..])?;
                Some(rest.to_owned())
            })
            .collect();
        found.sort();
        found.dedup();
        found
    };
    assert!(!of("PUBLISH").is_empty(), "{name:?}: nobody published");
    (of("SUBSCRIBE"), of("PUBLISH"))
}

#[tokio::test]
async fn locks_have_the_same_keys_and_channels() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    for name in NAMES {
        let lock = lock(&fleet.rust().await, name);
        let java = fleet.java("java", Kind::Lock, name);
        let other = fleet.java("other", Kind::Lock, name);

        let mut keys = Vec::new();
        let by_java = touched(&fleet, name, async || {
            java.done("lock").await;
            keys = fleet.leftovers();
            let waiter = other.start("lock", json!({}));
            fleet.quiet().await;
            java.done("unlock").await;
            java_granted(waiter, SOON).await;
            other.done("unlock").await;
        })
        .await;
        assert_eq!(keys, [name], "Redisson's own key");

        // Ours, with a waiter of another process: it is woken by message.
        let rival = self::lock(&fleet.rust().await, name);
        let by_us = touched(&fleet, name, async || {
            let guard = lock.acquire().await.unwrap();
            keys = fleet.leftovers();
            assert!(!java.done("try").await.bool(), "{name:?}: not excluded");
            let waiter = acquiring(&rival);
            fleet.quiet().await;
            guard.release().await.unwrap();
            granted(waiter, SOON).await.release().await.unwrap();
        })
        .await;
        assert_eq!(keys, [name]);
        assert_eq!(by_us, by_java, "{name:?}");
        fleet.at_rest().await;
    }
}

#[tokio::test]
async fn fenced_locks_have_the_same_counter() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let client = fleet.rust().await;
    for name in NAMES {
        fleet.server.flush();
        let java = fleet.java("java", Kind::Fenced, name);
        java.done("lock").await;
        let mut theirs = fleet.server.keys();
        theirs.retain(|key| key != name);
        java.done("unlock").await;
        fleet.server.flush();
        let lock = lock(&client, name).with_fencing(stanchion::Fencing::PerName);
        let guard = lock.acquire().await.unwrap();
        let mut ours = fleet.server.keys();
        ours.retain(|key| key != name);
        assert_eq!(ours, theirs, "{name:?}");
        guard.release().await.unwrap();
        fleet.at_rest().await;
    }
}

/// Our `key_prefix` is what a `NameMapper` of Redisson's does: it becomes part of the name before anything is derived.
#[tokio::test]
async fn a_key_prefix_is_a_name_mapper() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let config = ClientConfig::new(fleet.server.url()).key_prefix("app:");
    let client = Client::connect_with(config).await.unwrap();
    let guard = lock(&client, "orders").acquire().await.unwrap();
    let java = fleet.java("waiter", Kind::Lock, "app:orders");
    let waiter = java.start("lock", json!({}));
    fleet.waiting(&channel("app:orders"), 1).await;
    guard.release().await.unwrap();
    java_granted(waiter, SOON).await;
    java.done("unlock").await;
    fleet.at_rest().await;
}
