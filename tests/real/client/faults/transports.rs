//! Tests the ways to connect to a server: TLS, unix sockets, users, databases and key prefixes.

use std::path::PathBuf;

use stanchion::{Client, ClientConfig, ConfigError, ConnectError};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::faults::*;

use super::connecting::ca_file;

/// P1, P4: two clients exclude each other, and a message wakes the waiter.
async fn exclude_and_wake(server: &RedisServer, configs: [ClientConfig; 2]) {
    // The poll interval is too long to wake a waiter in time.
    let configs = configs.map(|config| config.poll_interval(LONG));
    let [ours, theirs] = &configs;
    let a = Client::connect_with(ours.clone()).await.unwrap();
    let b = Client::connect_with(theirs.clone()).await.unwrap();
    let guard = lock(&a, "orders", LONG).acquire().await.unwrap();
    let theirs = lock(&b, "orders", LONG);
    assert!(theirs.try_acquire().await.unwrap().is_none());
    let waiter = waiting(&theirs);
    subscribed(server, "orders").await;
    guard.release().await.unwrap();
    served(waiter, LONG / 3).await;
    nothing_left(server).await;
}

/// By its address, and by its host name.
#[tokio::test]
async fn over_tls_locks_exclude_and_messages_wake() {
    let Some(server) = with_tls() else { return };
    let by_name = format!("rediss://localhost:{}/", server.addr().port());
    let configs = [config(server.url()), config(by_name)];
    let configs = configs.map(|config| config.tls_ca_file(ca_file(&server)));
    exclude_and_wake(&server, configs).await;
}

#[tokio::test]
async fn over_tls_a_client_reconnects_to_a_restarted_server() {
    let Some(mut server) = with_tls() else { return };
    let client = Client::connect_with(config(server.url()).tls_ca_file(ca_file(&server)))
        .await
        .unwrap();
    let lock = lock(&client, "orders", LONG);
    drop(lock.acquire().await.unwrap());
    server.restart();
    drop(soon(LONG / 3, lock.acquire()).await.unwrap());
}

/// A configuration that trusts `server` and has a client certificate.
fn presenting(server: &RedisServer, (certificate, key): (PathBuf, PathBuf)) -> ClientConfig {
    config(server.url())
        .tls_ca_file(ca_file(server))
        .tls_cert_file(certificate)
        .tls_key_file(key)
}

#[tokio::test]
async fn over_tls_a_client_presents_its_certificate_if_the_server_requires_one() {
    let Some(server) = start(RedisServer::builder().tls().client_certificates()) else {
        return;
    };
    let known = presenting(&server, server.client_certificate());
    exclude_and_wake(&server, [known.clone(), known]).await;

    let without = config(server.url()).tls_ca_file(ca_file(&server));
    for refused in [without, presenting(&server, server.strange_certificate())] {
        let error = Client::connect_with(refused).await.unwrap_err();
        assert!(matches!(error, ConnectError::Tls { .. }), "{error:?}");
    }
}

#[tokio::test]
async fn over_tls_renewed_certificates_are_used_at_the_next_connect() {
    let Some(mut server) = start(RedisServer::builder().tls().client_certificates()) else {
        return;
    };
    let ours = server.unix_path();
    let (certificate, key) = (
        ours.with_file_name("our.crt"),
        ours.with_file_name("our.key"),
    );
    let install = |(new_certificate, new_key): (PathBuf, PathBuf)| {
        std::fs::copy(new_certificate, &certificate).unwrap();
        std::fs::copy(new_key, &key).unwrap();
    };
    install(server.client_certificate());
    let config = presenting(&server, (certificate.clone(), key.clone()));
    let client = Client::connect_with(config).await.unwrap();
    let orders = lock(&client, "orders", LONG);
    drop(orders.acquire().await.unwrap());

    install(server.strange_certificate());
    server.restart();
    eventually("the server refuses the client", || !client.is_connected()).await;
    let other = lock(&client, "other", LONG).acquire_timeout(ms(500)).await;
    assert!(other.is_err(), "{other:?}");
    install(server.client_certificate());
    eventually("the server accepts the client again", || {
        client.is_connected()
    })
    .await;
    // A file is missing, as during a replacement: the client uses the last certificate.
    std::fs::remove_file(&certificate).unwrap();
    server.restart();
    drop(soon(LONG / 3, orders.acquire()).await.unwrap());
}

#[tokio::test]
async fn an_unusable_client_certificate_is_a_configuration_error() {
    let Some(server) = with_tls() else { return };
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
        let error = Client::connect_with(presenting(&server, (certificate, key))).await;
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
    let configs = [config(server.url()), config(server.unix_url())];
    exclude_and_wake(&server, configs).await;
}

#[tokio::test]
async fn user_password_and_database_of_the_url_are_used() {
    let Some(server) = server() else { return };
    let user = "ACL SETUSER us@er reset on >p/w ~* &* +@all";
    admin(&server, &user.split(' ').collect::<Vec<_>>());
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
    let ours = clients.as_text().matches("user=us@er ").count();
    assert_eq!(ours, 3);
    // Another database is another lock.
    assert!(is_free(&server, "orders").await);
    let there = lock_of(url, "orders", LONG).await;
    assert!(there.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
}

#[tokio::test]
async fn every_connection_closes_with_the_last_guard_of_a_dropped_client() {
    let Some(server) = server() else { return };
    // All connections but that of the query. Connections of earlier queries close with a delay.
    let others = || server.cli(&["CLIENT", "LIST"]).as_text().lines().count() - 1;
    eventually("no client is connected", || others() == 0).await;
    let client = connect(server.url()).await;
    let guard = lock(&client, "orders", LONG).acquire().await.unwrap();
    drop(client);
    eventually("the guard keeps the client's three connections", || {
        others() == 3
    })
    .await;
    assert!(guard.is_held());
    drop(guard);
    eventually("all connections are closed", || others() == 0).await;
    nothing_left(&server).await;
}
