//! Tests the log of outages at level info: every outage is logged, with a bounded number of lines.

use stanchion::embedded::Switch;
use stanchion::{Client, Lock};
use stanchion_tests::{World, secs};
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Log;

/// Collects the log of this thread at level info and above. In virtual time everything runs on this thread.
pub(crate) fn listen() -> (Log, impl Drop) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing_subscriber::filter::LevelFilter::INFO)
        .with_ansi(false)
        .without_time()
        .with_writer(log.writer())
        .finish();
    (log, subscriber.set_default())
}

pub(crate) fn count(log: &Log, level: &str, words: &str) -> usize {
    let fits = |line: &&str| line.trim_start().starts_with(level) && line.contains(words);
    log.text().lines().filter(fits).count()
}

async fn connected(world: &World) -> Client {
    let client = Client::connect_with(world.config("client")).await.unwrap();
    // The hold opens the connection for messages, too.
    let lock = Lock::new(&client, "job").unwrap();
    lock.acquire().await.unwrap().release().await.unwrap();
    tokio::time::sleep(secs(60)).await;
    client
}

#[tokio::test(start_paused = true)]
async fn an_outage_is_logged_when_it_begins_while_it_lasts_and_when_it_ends() {
    let (log, _listening) = listen();
    let world = World::engine();
    let client = connected(&world).await;
    assert_eq!(log.text(), "", "nothing has happened");
    let faults = world.faults();
    faults.refuse_connections(Switch::On);
    faults.kill_connections();
    tokio::time::sleep(secs(1)).await;
    assert_eq!(count(&log, "WARN", "connection lost"), 1, "{}", log.text());
    tokio::time::sleep(secs(119)).await;
    // The warning has the reason. It comes after some seconds, and then once a minute.
    assert_eq!(count(&log, "WARN", "not connected"), 2, "{}", log.text());
    assert!(log.text().contains("refused"), "{}", log.text());
    assert_eq!(count(&log, "INFO", "connected again"), 0, "{}", log.text());
    faults.refuse_connections(Switch::Off);
    tokio::time::sleep(secs(10)).await;
    assert!(client.is_connected());
    assert_eq!(count(&log, "INFO", "connected again"), 1, "{}", log.text());
    assert_eq!(count(&log, "WARN", "connection lost"), 1, "{}", log.text());
    assert_eq!(log.text().lines().count(), 4, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_short_outage_logs_two_lines_for_all_connections() {
    let (log, _listening) = listen();
    let world = World::engine();
    let _client = connected(&world).await;
    world.faults().kill_connections();
    tokio::time::sleep(secs(10)).await;
    assert_eq!(count(&log, "WARN", "connection lost"), 1, "{}", log.text());
    assert_eq!(count(&log, "INFO", "connected again"), 1, "{}", log.text());
    assert_eq!(log.text().lines().count(), 2, "{}", log.text());
}

#[tokio::test(start_paused = true)]
async fn a_flapping_server_does_not_fill_the_log() {
    let (log, _listening) = listen();
    let world = World::engine();
    let _client = connected(&world).await;
    let minutes = 10;
    for _ in 0..minutes * 60 {
        world.faults().kill_connections();
        tokio::time::sleep(secs(1)).await;
    }
    let lines = log.text().lines().count();
    assert!(
        (2..=13 * minutes).contains(&lines),
        "{lines} lines in {minutes} minutes"
    );
}

#[tokio::test(start_paused = true)]
async fn an_outage_soon_after_another_is_logged_too() {
    let (log, _listening) = listen();
    let world = World::engine();
    let _client = connected(&world).await;
    let faults = world.faults();
    faults.kill_connections();
    tokio::time::sleep(secs(2)).await;
    faults.refuse_connections(Switch::On);
    faults.kill_connections();
    tokio::time::sleep(secs(20)).await;
    assert_eq!(count(&log, "WARN", "not connected"), 1, "{}", log.text());
    faults.refuse_connections(Switch::Off);
    tokio::time::sleep(secs(10)).await;
    assert_eq!(count(&log, "INFO", "connected again"), 2, "{}", log.text());
}
