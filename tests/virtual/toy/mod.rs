//! Tests the primitive that "Add a primitive" in CONTRIBUTING.md builds: it works, and the page shows the code of this folder.

#[allow(unreachable_pub, reason = "a primitive is a crate of its own")]
mod baton;

use std::time::Duration;

use baton::Baton;
use stanchion::embedded::Engine;
use stanchion::{Client, ClientConfig, LostReason};

async fn process(engine: &Engine, name: &str) -> Client {
    let config = ClientConfig::embedded(engine).virtual_time().name(name);
    Client::connect_with(config).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_process_at_a_time_carries_the_baton() {
    let engine = Engine::in_virtual_time();
    let (a, b) = (process(&engine, "a").await, process(&engine, "b").await);
    let guard = Baton::new(&a, "relay").unwrap().acquire().await.unwrap();
    let second = Baton::new(&b, "relay").unwrap();
    let waiting = tokio::spawn(async move { second.acquire().await });
    // The core's watchdog renews the hold, far beyond its lease of 30 s.
    tokio::time::sleep(Duration::from_secs(100)).await;
    assert!(guard.is_held() && !waiting.is_finished());
    guard.release().await.unwrap();
    let guard = waiting.await.unwrap().unwrap();
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guard_and_a_dropped_future_leave_nothing() {
    let engine = Engine::in_virtual_time();
    let (a, b) = (process(&engine, "a").await, process(&engine, "b").await);
    let held = Baton::new(&a, "relay").unwrap().acquire().await.unwrap();
    let other = Baton::new(&b, "relay").unwrap();
    let waited = tokio::time::timeout(Duration::from_secs(1), other.acquire()).await;
    assert!(waited.is_err());
    drop(held);
    assert!(a.shutdown(Duration::from_secs(1)).await.is_clean());
    assert!(b.shutdown(Duration::from_secs(1)).await.is_clean());
    assert_eq!(engine.keys(), Vec::<Vec<u8>>::new());
}

#[tokio::test(start_paused = true)]
async fn a_deleted_baton_is_reported_as_lost() {
    let engine = Engine::in_virtual_time();
    let client = process(&engine, "a").await;
    let guard = Baton::new(&client, "relay")
        .unwrap()
        .acquire()
        .await
        .unwrap();
    engine.execute(&["DEL", "relay"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
}

/// Each Rust and Lua block of CONTRIBUTING.md is in a file of this folder, word for word.
#[test]
fn contributing_shows_the_code_of_this_folder() {
    let page = include_str!("../../../CONTRIBUTING.md");
    let built = [
        include_str!("baton.rs"),
        include_str!("lua/acquire.lua"),
        include_str!("lua/release.lua"),
    ];
    let mut shown = 0;
    for block in page.split("```").skip(1).step_by(2) {
        let Some(code) = block
            .strip_prefix("rust\n")
            .or_else(|| block.strip_prefix("lua\n"))
        else {
            continue;
        };
        shown += 1;
        assert!(
            built.iter().any(|file| file.contains(code.trim_end())),
            "not in tests/virtual/toy:\n{code}"
        );
    }
    assert!(shown >= 4, "{shown} programs shown");
}
