//! TLS with Cluster and Sentinel: good certificates work, bad ones give a TLS error in time.

use std::path::PathBuf;

use stanchion::error::ServerRejection;
use stanchion::{Client, ConnectError};
use stanchion_testkit::{Certificate, RedisServer};
use stanchion_tests::assert_is;

use super::support::*;

fn ca_file(server: &RedisServer) -> PathBuf {
    // Next to the server's own files, which are deleted with the server.
    let path = server.unix_path().with_file_name("trusted.crt");
    std::fs::write(&path, server.ca_pem()).unwrap();
    path
}

/// The URL of `server` as a cluster or as a Sentinel.
fn url(server: &RedisServer, kind: &str, path: &str) -> String {
    format!("rediss+{kind}://{}/{path}", server.addr())
}

#[tokio::test]
async fn a_cluster_is_used_over_tls() {
    if RedisServer::or_skip("a_cluster_is_used_over_tls").is_none() {
        return;
    }
    // A cluster of one node. Without `tls-cluster` a node announces its plain port, also to TLS clients.
    let server = RedisServer::builder()
        .tls()
        .cluster_enabled()
        .arg("tls-cluster", "yes")
        .start();
    let config = config(url(&server, "cluster", "")).tls_ca_file(ca_file(&server));
    let (a, b) = (
        Client::connect_with(config.clone()).await.unwrap(),
        Client::connect_with(config).await.unwrap(),
    );
    let guard = lock(&a, "orders", LONG).acquire().await.unwrap();
    let waiter = waiting(&lock(&b, "orders", LONG));
    listening(&server, "orders").await;
    guard.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
}

#[tokio::test]
async fn a_bad_certificate_of_a_set_is_a_tls_error() {
    if RedisServer::or_skip("a_bad_certificate_of_a_set").is_none() {
        return;
    }
    for kind in [
        Certificate::OtherCa,
        Certificate::Expired,
        Certificate::WrongHost,
    ] {
        let server = RedisServer::builder().tls_with(kind).start();
        for url in [
            url(&server, "cluster", ""),
            url(&server, "sentinel", "orders-db"),
        ] {
            let error = refused(config(url).tls_ca_file(ca_file(&server))).await;
            assert!(
                matches!(error, ConnectError::Tls { .. }),
                "{kind:?}: {error:?}"
            );
        }
    }
}

#[tokio::test]
async fn a_sentinel_is_queried_over_tls() {
    if RedisServer::or_skip("a_sentinel_is_queried_over_tls").is_none() {
        return;
    }
    // This server is no sentinel. Its error shows that the query arrived.
    let server = RedisServer::builder().tls().start();
    let error = refused(config(url(&server, "sentinel", "x")).tls_ca_file(ca_file(&server))).await;
    assert!(
        matches!(&error, ConnectError::Rejected { rejection: ServerRejection::Other { detail }, .. } if detail.contains("SENTINEL")),
        "{error:?}"
    );
    // A port that does not speak TLS.
    let plain = RedisServer::start();
    for kind in ["cluster", "sentinel"] {
        let error = refused(
            config(url(&plain, kind, if kind == "cluster" { "" } else { "x" }))
                .tls_ca_file(ca_file(&server)),
        )
        .await;
        assert_is!(
            error,
            ConnectError::Tls { .. } | ConnectError::Unreachable { .. }
        );
    }
}
