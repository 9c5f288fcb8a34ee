//! Tests the multi-lock on real servers: a killed server, and members on two servers.

use stanchion::{AcquireError, Client, Lock, Lockable, LostReason, MultiLock};
use stanchion_testkit::{Proxy, eventually};
use stanchion_tests::faults::*;

fn multi(locks: &[Lock]) -> MultiLock {
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

/// Three members of one client: one script.
fn together(client: &Client) -> MultiLock {
    multi(&["a", "b", "c"].map(|name| lock(client, name, LONG)))
}

#[tokio::test]
async fn a_restart_without_data_loses_the_hold_and_recreates_nothing() {
    let Some(mut server) = server() else { return };
    let client = connect(server.url()).await;
    let lease = stanchion::Lease::new(ms(900)).unwrap();
    let multi = together(&client).lease(lease);
    let guard = multi.acquire().await.unwrap();
    server.restart();
    let reason = soon(LONG / 3, guard.lost()).await;
    assert!(matches!(reason, LostReason::Gone | LostReason::Expired));
    assert!(!guard.is_held());
    assert!(guard.release().await.is_err());
    quiet(&server).await;
    assert_eq!(leftovers(&server), [] as [String; 0]);
    let guard = soon(LONG / 3, multi.acquire()).await.unwrap();
    guard.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn a_dead_second_server_rolls_the_first_back() {
    let (Some(first), Some(mut second)) = (server(), server()) else {
        return;
    };
    let clients = [connect(first.url()).await, connect(second.url()).await];
    let multi = multi(&[lock(&clients[0], "a", LONG), lock(&clients[1], "b", LONG)]);
    let guard = multi.acquire().await.unwrap();
    assert_eq!((hold_count(&first, "a"), hold_count(&second, "b")), (1, 1));
    guard.release().await.unwrap();
    second.kill();
    let error = soon(ms(400) + SLACK, multi.acquire_timeout(ms(400)))
        .await
        .unwrap_err();
    // P8: a request that was sent before the client detected the disconnect may have run.
    assert!(
        matches!(
            &error,
            AcquireError::TimedOut { name, .. }
                | AcquireError::Unavailable { name, .. }
                | AcquireError::Ambiguous { name, .. }
                if name.to_string() == "b"
        ),
        "{error}"
    );
    nothing_left(&first).await;
    // The client has detected the disconnect, and sends no request that could run.
    let error = soon(ms(400) + SLACK, multi.acquire_timeout(ms(400)))
        .await
        .unwrap_err();
    assert!(
        matches!(
            &error,
            AcquireError::TimedOut { name, free_by: None, .. } | AcquireError::Unavailable { name, .. }
                if name.to_string() == "b"
        ),
        "{error}"
    );
    nothing_left(&first).await;
    second.restart();
    let guard = soon(LONG / 3, multi.acquire()).await.unwrap();
    guard.release().await.unwrap();
    nothing_left(&first).await;
    nothing_left(&second).await;
}

#[tokio::test]
async fn the_loss_of_one_server_loses_the_multi_lock() {
    let (Some(first), Some(second)) = (server(), server()) else {
        return;
    };
    let proxy = Proxy::start(second.addr());
    let clients = [connect(first.url()).await, connect(proxy.url()).await];
    let multi = multi(&[
        lock(&clients[0], "a", ms(900)),
        lock(&clients[1], "b", ms(900)),
    ]);
    let guard = multi.acquire().await.unwrap();
    proxy.freeze_all();
    assert_eq!(
        soon(ms(900) + SLACK, guard.lost()).await,
        LostReason::Expired
    );
    assert!(!guard.is_held());
    drop(guard);
    nothing_left(&first).await;
    proxy.thaw();
    nothing_left(&second).await;
}

#[tokio::test]
async fn a_waiter_outlives_the_reset_of_its_connections() {
    let Some(server) = server() else { return };
    let proxy = Proxy::start(server.addr());
    let theirs = connect(server.url()).await;
    let client = connect(proxy.url()).await;
    let multi = together(&client);
    for held in ["a", "b", "c"] {
        let guard = lock(&theirs, held, LONG).acquire().await.unwrap();
        let waiter = tokio::spawn({
            let multi = multi.clone();
            async move { multi.acquire().await.unwrap() }
        });
        eventually("the call waits for the held member", || {
            client.waiters() == 1
                && server.subscribers(&format!("redisson_lock__channel:{{{held}}}")) > 0
        })
        .await;
        proxy.reset_all();
        guard.release().await.unwrap();
        let guard = soon(LONG / 3, waiter).await.unwrap();
        guard.release().await.unwrap();
    }
    nothing_left(&server).await;
}
