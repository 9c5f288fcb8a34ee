//! Tests a server at its memory limit, and a server that flushes its scripts.

use stanchion::{AcquireOptions, Rejection};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::faults::*;

fn fill_up(server: &RedisServer) {
    admin(server, &["CONFIG", "SET", "maxmemory", "1"]);
}

#[tokio::test]
async fn without_memory_an_acquire_is_rejected_and_writes_nothing() {
    let Some(server) = server() else { return };
    let lock = lock_of(server.url(), "orders", LONG).await;
    fill_up(&server);
    assert!(matches!(
        rejected(lock.acquire().await),
        Rejection::OutOfMemory { .. }
    ));
    assert!(matches!(
        rejected(lock.try_acquire().await.map(|_| ())),
        Rejection::OutOfMemory { .. }
    ));
    assert_eq!(server.keys(), [] as [String; 0], "not even a counter");
    assert!(lock.status().await.unwrap().holder.is_none());
    admin(&server, &["CONFIG", "SET", "maxmemory", "0"]);
    lock.acquire().await.unwrap().release().await.unwrap();
}

#[tokio::test]
async fn without_memory_holds_are_renewed_reentered_passed_on_and_released() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let lock = lock(&client, "orders", ms(1500));
    let guard = lock.acquire().await.unwrap();
    let waiter = waiting(&lock);
    eventually("the call waits", || client.waiters() == 1).await;
    fill_up(&server);
    let again = guard.reenter().await.unwrap();
    assert_eq!(hold_count(&server, "orders"), 2);
    guard.renew().await.unwrap();
    renewed(&guard).await;
    again.release().await.unwrap();
    assert_eq!(hold_count(&server, "orders"), 1);
    let first = token(&guard);
    guard.release().await.unwrap();
    let next = granted(waiter, ms(1500)).await;
    assert!(token(&next) > first, "P2");
    next.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn without_memory_a_dropped_guard_is_released() {
    let Some(server) = server() else { return };
    let guard = acquired(server.url(), "orders", LONG).await;
    fill_up(&server);
    drop(guard);
    nothing_left(&server).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn calls_succeed_while_the_server_flushes_its_scripts() {
    let Some(server) = server() else { return };
    let client = connect(server.url()).await;
    let calls = tokio::spawn(async move {
        let orders = lock(&client, "orders", LONG);
        let rounds = async {
            let options = AcquireOptions::new().timeout(LONG / 3);
            for _ in 0..100 {
                let guard = orders.acquire_with(options.clone()).await.unwrap();
                let waiter = waiting(&orders);
                let again = guard.reenter().await.unwrap();
                guard.renew().await.unwrap();
                again.release().await.unwrap();
                guard.release().await.unwrap();
                served(waiter, LONG / 3).await;
                // The server may not know the script of the waiter's request, which then runs after the release that passes the lock
                // on. In that case the lock is granted to this process once more, and released at once.
                soon(LONG / 3, async {
                    while orders.status().await.unwrap().is_held() {}
                })
                .await;
            }
        };
        let short = lock(&client, "short", ms(2000));
        let watched = async {
            let guard = short.acquire().await.unwrap();
            renewed(&guard).await;
            guard.release().await.unwrap();
        };
        tokio::join!(rounds, watched);
    });
    tokio::task::block_in_place(|| {
        while !calls.is_finished() {
            admin(&server, &["SCRIPT", "FLUSH"]);
        }
    });
    calls.await.unwrap();
    nothing_left(&server).await;
}
