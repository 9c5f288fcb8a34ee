//! Event streams on real servers: missing rights, restarts, failovers, slots that move.

use stanchion::{Client, ClientConfig, Event, Events, Lock};
use stanchion_tests::{JAVA, cluster, ms, sentinels, server};
use tokio::time::{Instant, timeout};

use stanchion_tests::events::*;

/// The poll interval is [`LONG`], so an event within half of [`LONG`] was not found by a poll.
fn config(url: &str) -> ClientConfig {
    ClientConfig::new(url)
        .response_timeout(ms(500))
        .poll_interval(LONG)
}

async fn connect(url: &str) -> Client {
    Client::connect_with(config(url)).await.unwrap()
}

/// Waits for the event that the lock is held or free. After a gap this is a state event.
async fn until(events: &mut Events, held: bool) {
    loop {
        match next(events).await {
            Event::Taken(_) if held => return,
            Event::Free if !held => return,
            Event::Now(state) if state.holders.is_empty() != held => return,
            _ => {}
        }
    }
}

/// Acquires and releases the lock. The listener must report both changes within half of [`LONG`].
async fn assert_reported(events: &mut Events, lock: &Lock) {
    let started = Instant::now();
    let guard = lock.acquire().await.unwrap();
    until(events, true).await;
    guard.release().await.unwrap();
    until(events, false).await;
    assert!(started.elapsed() < LONG / 2, "{:?}", started.elapsed());
}

#[tokio::test]
async fn a_listener_without_the_right_to_track_polls() {
    let Some(server) = server() else { return };
    let rules = "on >pw ~* &* +@all -client|tracking";
    let rules: Vec<&str> = ["ACL", "SETUSER", "app"]
        .into_iter()
        .chain(rules.split(' '))
        .collect();
    drop(server.cli(&rules));
    let url = server.url().replace("redis://", "redis://app:pw@");
    let polls = config(&url).poll_interval(ms(200));
    let ours = Client::connect_with(polls).await.unwrap();
    let mut events = lock(&ours).events();
    now(&mut events).await;
    assert_reported(&mut events, &lock(&ours)).await;
}

#[tokio::test]
async fn an_expiry_is_reported_on_a_real_server() {
    let Some(server) = server() else { return };
    let ours = connect(&server.url()).await;
    let mut events = lock(&ours).events();
    now(&mut events).await;
    for _ in 0..5 {
        drop(server.cli(&["HSET", "orders", JAVA, "1"]));
        drop(server.cli(&["PEXPIRE", "orders", "300"]));
        let words = timeout(LONG / 2, words(&mut events, "free")).await.unwrap();
        assert_eq!(words, ["taken", "expired", "free"]);
    }
    // A listener does not count as a waiter.
    assert_eq!(server.subscribers("redisson_lock__channel:{orders}"), 0);
    assert_eq!(
        lock(&ours).status().await.unwrap().waiting_processes,
        Some(0)
    );
}

#[tokio::test]
async fn a_restart_is_reported() {
    let Some(mut server) = server() else { return };
    let ours = Client::connect_with(config(&server.url()).poll_interval(POLL))
        .await
        .unwrap();
    let mut events = lock(&ours).events();
    now(&mut events).await;
    let guard = lock(&ours).acquire().await.unwrap();
    assert_eq!(word(&next(&mut events).await), "taken");
    server.kill();
    assert_eq!(word(&next(&mut events).await), "unknown");
    server.restart();
    assert!(
        now(&mut events).await.holders.is_empty(),
        "the restarted server has no data"
    );
    drop(guard);
    assert_reported(&mut events, &lock(&ours)).await;
}

#[tokio::test]
async fn a_killed_connection_is_reported_as_a_gap() {
    let Some(server) = server() else { return };
    let (ours, theirs) = (connect(&server.url()).await, connect(&server.url()).await);
    let mut events = lock(&ours).events();
    now(&mut events).await;
    for _ in 0..3 {
        drop(server.cli(&["CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes"]));
        drop(server.cli(&["CLIENT", "KILL", "TYPE", "pubsub"]));
        let state = timeout(LONG / 2, now(&mut events)).await.unwrap();
        assert!(state.holders.is_empty());
        assert_reported(&mut events, &lock(&theirs)).await;
    }
}

#[tokio::test]
async fn a_listener_in_a_cluster_follows_the_slot() {
    let Some(cluster) = cluster() else { return };
    let (ours, theirs) = (connect(&cluster.url()).await, connect(&cluster.url()).await);
    let mut events = lock(&ours).events();
    now(&mut events).await;
    assert_reported(&mut events, &lock(&theirs)).await;
    let slot = cluster.slot("orders");
    let before = cluster.master_of(slot);
    cluster.move_slot(slot, (before + 1) % 3);
    // The client still has the old slot map, which its own requests correct.
    assert_reported(&mut events, &lock(&ours)).await;
    assert_reported(&mut events, &lock(&theirs)).await;
    let after = cluster.master_of(slot);
    assert_ne!(before, after);
    let _ = cluster.fail_over(after);
    assert_reported(&mut events, &lock(&ours)).await;
    assert_reported(&mut events, &lock(&theirs)).await;
}

#[tokio::test]
async fn a_listener_behind_sentinel_follows_the_master() {
    let Some(set) = sentinels() else { return };
    let (ours, theirs) = (connect(&set.url()).await, connect(&set.url()).await);
    let mut events = lock(&ours).events();
    now(&mut events).await;
    assert_reported(&mut events, &lock(&theirs)).await;
    let _ = set.fail_over();
    let gap = async {
        loop {
            match next(&mut events).await {
                Event::Now(state) => return state,
                Event::Unknown(_) => {}
                other => panic!("{other:?}"),
            }
        }
    };
    timeout(LONG, gap).await.unwrap();
    assert_reported(&mut events, &lock(&theirs)).await;
}
