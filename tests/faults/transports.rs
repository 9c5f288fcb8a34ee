//! The ways to a server that work: TLS, unix sockets, users, databases, prefixes.

use std::path::PathBuf;

use stanchion::{Client, ClientConfig, ConfigError, ConnectError};
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
    served(waiter, LONG / 3).await;
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

/// A client that trusts `server` and shows it a certificate.
fn showing(server: &RedisServer, (certificate, key): (PathBuf, PathBuf)) -> ClientConfig {
    config(server.url())
        .tls_ca_file(ca_file(server))
        .tls_cert_file(certificate)
        .tls_key_file(key)
}

#[tokio::test]
async fn over_tls_a_server_is_shown_the_certificate_that_it_asks_for() {
    let Some(server) = start(RedisServer::builder().tls().client_certificates()) else {
        return;
    };
    let known = showing(&server, server.client_certificate()).poll_interval(LONG);
    let (a, b) = (
        Client::connect_with(known.clone()).await.unwrap(),
        Client::connect_with(known).await.unwrap(),
    );
    let guard = lock(&a, "orders", LONG).acquire().await.unwrap();
    let waiter = waiting(&lock(&b, "orders", LONG));
    subscribed(&server, "orders").await;
    guard.release().await.unwrap();
    served(waiter, LONG / 3).await;
    nothing_left(&server).await;

    let nobody = config(server.url()).tls_ca_file(ca_file(&server));
    for refused in [nobody, showing(&server, server.strange_certificate())] {
        let error = Client::connect_with(refused).await.unwrap_err();
        assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn over_tls_certificates_that_are_renewed_are_taken_up_at_the_next_connect() {
    let Some(mut server) = start(RedisServer::builder().tls().client_certificates()) else {
        return;
    };
    let ours = server.unix_path();
    let (certificate, key) = (
        ours.with_file_name("our.crt"),
        ours.with_file_name("our.key"),
    );
    let become_ = |(new_certificate, new_key): (PathBuf, PathBuf)| {
        std::fs::copy(new_certificate, &certificate).unwrap();
        std::fs::copy(new_key, &key).unwrap();
    };
    become_(server.client_certificate());
    let config = showing(&server, (certificate.clone(), key.clone()));
    let client = Client::connect_with(config).await.unwrap();
    let orders = lock(&client, "orders", LONG);
    drop(orders.acquire().await.unwrap());

    become_(server.strange_certificate());
    server.restart();
    eventually("it is not let in any more", || !client.is_connected()).await;
    let other = lock(&client, "other", LONG).acquire_timeout(ms(500)).await;
    assert!(other.is_err(), "{other:?}");
    become_(server.client_certificate());
    eventually("it is let in again", || client.is_connected()).await;
    // Away for a moment, as when they are being replaced: the last ones do.
    std::fs::remove_file(&certificate).unwrap();
    server.restart();
    soon(LONG / 3, orders.acquire())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
}

#[tokio::test]
async fn a_certificate_of_ours_that_cannot_be_used_is_a_configuration_error() {
    let Some(server) = start(RedisServer::builder().tls()) else {
        return;
    };
    let (certificate, key) = server.client_certificate();
    let (_, strange_key) = server.strange_certificate();
    let garbage = server.unix_path().with_file_name("garbage");
    std::fs::write(&garbage, "no key").unwrap();
    let missing = PathBuf::from("/nowhere/our.key");
    for (certificate, key, wrong) in [
        (certificate.clone(), missing.clone(), "tls_key_file"),
        (certificate.clone(), garbage.clone(), "tls_key_file"),
        (certificate.clone(), strange_key, "tls_key_file"),
        (missing, key.clone(), "tls_cert_file"),
        (garbage, key.clone(), "tls_cert_file"),
    ] {
        let error = Client::connect_with(showing(&server, (certificate, key))).await;
        let error = error.unwrap_err();
        let fits = matches!(&error, ConnectError::Config(ConfigError::InvalidSetting { setting, .. }) if *setting == wrong);
        assert!(fits, "{wrong}: {error:?}");
    }
    let alone = config(server.url()).tls_cert_file(certificate);
    let error = Client::connect_with(alone).await.unwrap_err();
    assert!(
        error.to_string().contains("tls_key_file is missing"),
        "{error}"
    );
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
    served(waiter, LONG / 3).await;
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
