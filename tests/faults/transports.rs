//! The ways to a server that work: TLS, unix sockets, users, databases, prefixes.

use stanchion::Client;
use stanchion_testkit::{RedisServer, eventually};

use crate::connecting::ca_file;
use crate::support::*;

#[tokio::test]
async fn over_tls_locks_exclude_and_messages_wake() {
    let Some(server) = start(RedisServer::builder().tls()) else {
        return;
    };
    // Their own asking would come far too late.
    let config = config(server.url())
        .tls_ca_file(ca_file(&server))
        .poll_interval(LONG);
    let (a, b) = (
        Client::connect_with(config.clone()).await.unwrap(),
        Client::connect_with(config).await.unwrap(),
    );
    let guard = lock(&a, "orders", LONG).acquire().await.unwrap();
    assert!(
        lock(&b, "orders", LONG)
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    let waiter = waiting(&lock(&b, "orders", LONG));
    subscribed(&server, "orders").await;
    guard.release().await.unwrap();
    granted(waiter, LONG / 3).await.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn over_tls_a_host_name_is_checked_and_found_good() {
    let Some(server) = start(RedisServer::builder().tls()) else {
        return;
    };
    let url = format!("rediss://localhost:{}/", server.addr().port());
    let client = Client::connect_with(config(url).tls_ca_file(ca_file(&server)))
        .await
        .unwrap();
    lock(&client, "orders", LONG)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn over_tls_a_restarted_server_is_found_again() {
    let Some(mut server) = start(RedisServer::builder().tls()) else {
        return;
    };
    let client = Client::connect_with(config(server.url()).tls_ca_file(ca_file(&server)))
        .await
        .unwrap();
    let lock = lock(&client, "orders", LONG);
    drop(lock.acquire().await.unwrap());
    server.restart();
    soon(LONG / 3, lock.acquire())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_unix_socket_works_with_its_messages() {
    let Some(server) = start(RedisServer::builder().unix_socket().password("pw")) else {
        return;
    };
    let lock_a = lock_of(server.unix_url(), "orders", LONG).await;
    let lock_b = lock_of(server.url(), "orders", LONG).await;
    let guard = lock_b.acquire().await.unwrap();
    let waiter = waiting(&lock_a);
    subscribed(&server, "orders").await;
    guard.release().await.unwrap();
    granted(waiter, LONG / 3).await.release().await.unwrap();
    nothing_left(&server).await;
}

#[tokio::test]
async fn user_password_and_database_of_the_url_are_used() {
    let Some(server) = server() else { return };
    admin(
        &server,
        &[
            "ACL", "SETUSER", "us@er", "reset", "on", ">p/w", "~*", "&*", "+@all",
        ],
    );
    let url = format!("redis://us%40er:p%2Fw@{}/3", server.addr());
    let lock_a = lock_of(url.clone(), "orders", LONG).await;
    let guard = lock_a.acquire().await.unwrap();
    let keys = server.cli(&[
        "EVAL",
        "redis.call('SELECT', 3) return redis.call('KEYS', 'orders')",
        "0",
    ]);
    assert_eq!(keys.as_texts(), ["orders"]);
    assert_eq!(server.keys(), [] as [String; 0], "nothing in database 0");
    let clients = server.cli(&["CLIENT", "LIST"]);
    assert_eq!(
        clients
            .as_text()
            .lines()
            .filter(|line| line.contains("user=us@er"))
            .count(),
        3
    );
    // Another database is another lock.
    assert!(is_free(&server, "orders").await);
    assert!(
        lock_of(url, "orders", LONG)
            .await
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    guard.release().await.unwrap();
}

#[tokio::test]
async fn a_key_prefix_is_part_of_key_and_channel() {
    let Some(server) = server() else { return };
    let client = Client::connect_with(
        config(server.url())
            .key_prefix("app:".to_owned())
            .poll_interval(LONG),
    )
    .await
    .unwrap();
    let lock_a = lock(&client, "orders", LONG);
    let lock_b = lock_of(server.url(), "app:orders", LONG).await;
    let guard = lock_b.acquire().await.unwrap();
    assert_eq!(leftovers(&server), ["app:orders"]);
    let waiter = waiting(&lock_a);
    subscribed(&server, "app:orders").await;
    guard.release().await.unwrap();
    let guard = granted(waiter, LONG / 3).await;
    assert_eq!(guard.name().to_string(), "app:orders");
    assert!(is_free(&server, "orders").await);
    guard.release().await.unwrap();
}

#[tokio::test]
async fn every_connection_ends_with_its_client() {
    let Some(server) = server() else { return };
    // Besides the one that asks. Connections of earlier questions take a moment to go.
    let others = || server.cli(&["CLIENT", "LIST"]).as_text().lines().count() - 1;
    eventually("nobody is connected", || others() == 0).await;
    let client = connect(server.url()).await;
    let guard = lock(&client, "orders", LONG).acquire().await.unwrap();
    drop(client);
    eventually("the guard keeps the client's three", || others() == 3).await;
    assert!(guard.is_held());
    drop(guard);
    eventually("all are closed", || others() == 0).await;
    nothing_left(&server).await;
}
