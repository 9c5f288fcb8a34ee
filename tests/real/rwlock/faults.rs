//! Tests the read-write lock on real servers: a restart, killed and paused processes.

use std::time::Duration;

use stanchion::rwlock::Preference;
use stanchion::{AcquireError, Client, RwLock};
use stanchion_testkit::{Process, RedisServer, Signal, eventually};
use tokio::task::JoinHandle;

use stanchion_tests::faults::*;

const CHANNEL: &str = "redisson_rwlock:{prices}";

fn rwlock(client: &Client, lease: Duration) -> RwLock {
    RwLock::new(client, "prices")
        .unwrap()
        .lease(stanchion::Lease::new(lease).unwrap())
}

async fn rwlock_of(server: &RedisServer, lease: Duration) -> RwLock {
    rwlock(&connect(server.url()).await, lease)
}

/// Returns a lock on a client that does not poll: a message or the end of a TTL wakes its waiters.
async fn without_polls(server: &RedisServer) -> RwLock {
    let config = config(server.url()).poll_interval(secs(300));
    rwlock(&Client::connect_with(config).await.unwrap(), LONG)
}

async fn listening(server: &RedisServer) {
    eventually("a client subscribes", || server.subscribers(CHANNEL) > 0).await;
}

fn writing(lock: &RwLock) -> JoinHandle<Result<stanchion::WriteGuard, AcquireError>> {
    let lock = lock.clone();
    tokio::spawn(lock.write())
}

fn worker(role: &str, server: &RedisServer, lease_ms: u64, more: &[&str]) -> Process {
    let (url, lease) = (server.url(), lease_ms.to_string());
    let mut args = vec![role, &url, "prices", &lease];
    args.extend(more);
    Process::start(env!("CARGO_BIN_EXE_stanchion-test-worker"), &args)
}

fn line(worker: &mut Process, start: &str) -> String {
    worker.wait_for_line(|line| line.starts_with(start), LONG / 3)
}

#[tokio::test]
async fn read_holds_survive_a_restart_that_keeps_the_data() {
    let Some(mut server) = durable() else { return };
    let ours = rwlock_of(&server, ms(3000)).await;
    let theirs = rwlock_of(&server, LONG).await;
    let (first, second) = (ours.read().await.unwrap(), theirs.read().await.unwrap());
    server.restart();
    let before = first.valid_until();
    eventually("the watchdog renews", || first.valid_until() > before).await;
    assert!(theirs.try_write().await.unwrap().is_none(), "P1");
    first.release().await.unwrap();
    second.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn killed_readers_block_a_writer_for_their_lease_at_most() {
    let Some(server) = server() else { return };
    let mut killed = worker("read", &server, 900, &["40"]);
    line(&mut killed, "HELD");
    let lock = without_polls(&server).await;
    let waiter = writing(&lock);
    listening(&server).await;
    assert!(!waiter.is_finished());
    killed.signal(Signal::Kill);
    let guard = soon(ms(900) + SLACK, waiter).await.unwrap().unwrap();
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_writer_killed_while_it_waits_blocks_no_reader() {
    let Some(server) = server() else { return };
    let lock = rwlock_of(&server, LONG)
        .await
        .preference(Preference::Writer);
    let reading = lock.read().await.unwrap();
    let mut writer = worker("write", &server, 900, &[]);
    line(&mut writer, "CONNECTED");
    eventually("the writer is queued", || {
        server.keys().iter().any(|key| key.contains("rwlock_line"))
    })
    .await;
    // A writer that is not subscribed yet would count as dead.
    listening(&server).await;
    assert!(lock.try_read().await.unwrap().is_none());
    writer.signal(Signal::Kill);
    // The server removes its entry when no subscriber is left.
    let joined = soon(SLACK, lock.read()).await.unwrap();
    drop((reading, joined));
    nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_paused_beyond_its_lease_detects_the_loss() {
    let Some(server) = server() else { return };
    let mut reader = worker("read", &server, 600, &["3"]);
    line(&mut reader, "HELD");
    let lock = without_polls(&server).await;
    let waiter = writing(&lock);
    listening(&server).await;
    reader.signal(Signal::Stop);
    let guard = soon(ms(600) + SLACK, waiter).await.unwrap().unwrap();
    reader.signal(Signal::Cont);
    assert_eq!(line(&mut reader, "LOST"), "LOST Expired");
    // P3, R1: late requests of the reader do not affect the writer's hold.
    quiet(&server).await;
    guard.renew().await.unwrap();
    assert!(lock.status().await.unwrap().writer.is_some());
    reader.close_stdin();
    assert!(reader.wait(LONG / 3).success());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    nothing_left(&server).await;
}
