//! The tests that the chapter on testing shows.

use std::time::Duration;

use stanchion::embedded::{Data, Engine};
use stanchion::{AcquireError, Client, ClientConfig, Lock, LostReason};

/// The program that the chapter tests: one report at a time, given up when the lock is lost.
async fn report(lock: &Lock) -> Result<&'static str, stanchion::Error> {
    let Some(guard) = lock.try_acquire().await? else {
        return Ok("somebody else is at it");
    };
    guard
        .run(tokio::time::sleep(Duration::from_secs(60)))
        .await?;
    guard.release().await?;
    Ok("written")
}

#[tokio::test]
async fn only_one_instance_writes_the_report() {
    let client = Client::connect("memory://only-one").await.unwrap();
    let lock = Lock::new(&client, "report").unwrap();
    let _other = lock.acquire().await.unwrap();
    assert_eq!(report(&lock).await.unwrap(), "somebody else is at it");
}

async fn process(engine: &Engine, name: &str) -> Client {
    let config = ClientConfig::embedded(engine).virtual_time().name(name);
    Client::connect_with(config).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_minute_passes_at_once() {
    let engine = Engine::in_virtual_time();
    let lock = Lock::new(&process(&engine, "a").await, "report").unwrap();
    assert_eq!(report(&lock).await.unwrap(), "written");
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_stops_the_report() {
    let engine = Engine::in_virtual_time();
    let lock = Lock::new(&process(&engine, "a").await, "report").unwrap();
    let working = tokio::spawn(async move { report(&lock).await });
    tokio::time::sleep(Duration::from_secs(1)).await;
    engine.execute(&["DEL", "report"]); // an operator, an eviction, a failover
    let stopped = working.await.unwrap().unwrap_err();
    assert!(matches!(stopped, stanchion::Error::Lost(_)), "{stopped}");
}

#[tokio::test(start_paused = true)]
async fn a_process_cut_off_stops_before_the_next_one_starts() {
    let engine = Engine::in_virtual_time();
    let (a, b) = (process(&engine, "a").await, process(&engine, "b").await);
    let held_by_a = Lock::new(&a, "report").unwrap().acquire().await.unwrap();
    engine.faults().freeze(Some("a")); // nothing from or to `a` arrives any more
    let lock_of_b = Lock::new(&b, "report").unwrap();
    let waiting = tokio::spawn(async move { lock_of_b.acquire().await });
    assert_eq!(held_by_a.lost().await, LostReason::Expired);
    assert!(!waiting.is_finished(), "a stops before b starts");
    let held_by_b = waiting.await.unwrap().unwrap();
    assert!(held_by_b.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_answer_that_is_lost_is_no_double_acquire() {
    let engine = Engine::in_virtual_time();
    let lock = Lock::new(&process(&engine, "a").await, "report").unwrap();
    engine.faults().lose_replies("*", 1); // executed, and the connection ends instead of the answer
    let guard = lock.acquire().await.unwrap();
    guard.release().await.unwrap();
    assert!(!lock.status().await.unwrap().is_held());
}

#[tokio::test(start_paused = true)]
async fn a_server_that_restarts_empty_is_noticed() {
    let engine = Engine::in_virtual_time();
    let lock = Lock::new(&process(&engine, "a").await, "report").unwrap();
    let guard = lock.acquire().await.unwrap();
    let first = guard.fencing_token();
    engine.faults().restart(Data::Lost);
    assert_eq!(guard.lost().await, LostReason::Gone);
    let next = lock.acquire().await.unwrap();
    assert!(next.fencing_token() > first, "tokens go on growing");
}

#[tokio::test(start_paused = true)]
async fn an_outage_differs_from_contention() {
    let engine = Engine::in_virtual_time();
    let lock = Lock::new(&process(&engine, "a").await, "report").unwrap();
    engine.faults().kill_connections();
    engine
        .faults()
        .refuse_connections(stanchion::embedded::Switch::On);
    let outage = lock.acquire_timeout(Duration::from_secs(3)).await;
    assert!(
        !matches!(outage, Ok(_) | Err(AcquireError::Rejected { .. })),
        "{outage:?}"
    );
}
