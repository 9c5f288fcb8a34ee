//! Tests the read-write lock on real servers: killed servers and holders, paused processes, and a stalled executor.

use std::thread;
use std::time::Duration;

use stanchion::rwlock::Preference;
use stanchion::{AcquireError, Client, LostReason, RwLock};
use stanchion_testkit::{Process, RedisServer, Signal, eventually, eventually_blocking};
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
    let config = config(server.url()).poll_interval(Duration::from_secs(300));
    rwlock(&Client::connect_with(config).await.unwrap(), LONG)
}

async fn listening(server: &RedisServer) {
    eventually("a client subscribes", || server.subscribers(CHANNEL) > 0).await;
}

fn writing(lock: &RwLock) -> JoinHandle<Result<stanchion::WriteGuard, AcquireError>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.write().await })
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
async fn holders_detect_a_restart_without_data_and_a_waiter_acquires() {
    for writes in [false, true] {
        let Some(mut server) = server() else { return };
        let ours = rwlock_of(&server, ms(900)).await;
        let theirs = rwlock_of(&server, LONG).await;
        let lost: std::pin::Pin<Box<dyn Future<Output = LostReason> + Send>> = if writes {
            let guard = ours.write().await.unwrap();
            Box::pin(async move { guard.lost().await })
        } else {
            let guard = ours.read().await.unwrap();
            Box::pin(async move { guard.lost().await })
        };
        let waiter = writing(&theirs);
        listening(&server).await;
        server.restart();
        let reason = soon(LONG / 3, lost).await;
        assert!(
            matches!(reason, LostReason::Gone | LostReason::Expired),
            "{reason:?}"
        );
        let next = soon(LONG / 3, waiter).await.unwrap().unwrap();
        next.release().await.unwrap();
        nothing_left(&server).await;
    }
}

#[tokio::test]
async fn read_holds_survive_a_restart_that_keeps_the_data() {
    let Some(mut server) = start(RedisServer::builder().append_only()) else {
        return;
    };
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
async fn the_next_reader_removes_expired_readers() {
    let Some(server) = server() else { return };
    let mut killed = worker("read", &server, 600, &["20"]);
    line(&mut killed, "HELD");
    let lock = rwlock_of(&server, LONG).await;
    let staying = lock.read().await.unwrap();
    killed.signal(Signal::Kill);
    eventually("the hold keys of the killed readers have expired", || {
        server
            .keys()
            .iter()
            .filter(|key| key.contains("rwlock_timeout"))
            .count()
            == 1
    })
    .await;
    // Expired readers do not count in the status. The next acquire or release removes their fields.
    let fields = || server.cli(&["HLEN", "prices"]).as_int();
    assert_eq!(fields(), 22);
    assert_eq!(lock.status().await.unwrap().reader_count, 1);
    lock.read().await.unwrap().release().await.unwrap();
    assert_eq!(fields(), 2);
    assert!(staying.is_held());
    staying.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_writer_blocks_readers_for_its_lease_at_most() {
    let Some(server) = server() else { return };
    let mut writer = worker("write", &server, 900, &[]);
    line(&mut writer, "HELD");
    let lock = without_polls(&server).await;
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.read().await.unwrap() })
        })
        .collect();
    listening(&server).await;
    writer.signal(Signal::Kill);
    let started = tokio::time::Instant::now();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(soon(ms(900) + SLACK, reader).await.unwrap());
    }
    assert!(started.elapsed() < ms(900) + SLACK);
    drop(guards);
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

#[test]
fn a_blocked_executor_loses_neither_read_nor_write_holds() {
    let Some(server) = server() else { return };
    let runtime = || {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .unwrap()
    };
    for writes in [false, true] {
        let blocked = runtime();
        let (client, reading, written) = blocked.block_on(async {
            let client = connect(server.url()).await;
            let lock = rwlock(&client, ms(1000));
            if writes {
                (client, None, Some(lock.write().await.unwrap()))
            } else {
                (client, Some(lock.read().await.unwrap()), None)
            }
        });
        thread::scope(|scope| {
            let blocking = scope.spawn(|| {
                blocked.block_on(async {
                    #[expect(clippy::disallowed_methods, reason = "the executor is to be blocked")]
                    thread::sleep(Duration::from_secs(3));
                    let reads = reading.as_ref().is_none_or(stanchion::ReadGuard::is_held);
                    let writes = written.as_ref().is_none_or(stanchion::WriteGuard::is_held);
                    assert!(reads && writes, "P10");
                });
            });
            let others = runtime();
            let lock = others.block_on(rwlock_of(&server, LONG));
            while !blocking.is_finished() {
                assert!(others.block_on(lock.try_write()).unwrap().is_none(), "P1");
            }
            blocking.join().unwrap();
        });
        drop((reading, written));
        drop(client);
        eventually_blocking("released", || leftovers(&server).is_empty());
    }
}

/// Writers change two values one after the other, over plain connections. A reader that sees different values has read during a write.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_never_sees_a_half_written_value() {
    let Some(server) = server() else { return };
    let server = std::sync::Arc::new(server);
    admin(&server, &["MSET", "left", "0", "right", "0"]);
    let clients = [connect(server.url()).await, connect(server.url()).await];
    let tasks: Vec<_> = (0..16)
        .map(|i| {
            let (lock, server) = (
                rwlock(&clients[i % 2], LONG),
                std::sync::Arc::clone(&server),
            );
            tokio::spawn(async move {
                for round in 0..12 {
                    let number = |key| server.cli(&["GET", key]).as_int();
                    if (i / 2 + round) % 4 == 0 {
                        let guard = lock.write().await.unwrap();
                        let next = (number("left") + 1).to_string();
                        admin(&server, &["SET", "left", &next]);
                        tokio::task::yield_now().await;
                        admin(&server, &["SET", "right", &next]);
                        guard.release().await.unwrap();
                    } else {
                        let guard = lock.read().await.unwrap();
                        let left = number("left");
                        tokio::task::yield_now().await;
                        assert_eq!(left, number("right"), "P1");
                        guard.release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(server.cli(&["GET", "left"]).as_int(), 16 * 12 / 4);
}
