//! Numbered databases of a cluster.

use stanchion::Client;
use stanchion_testkit::Cluster;
use stanchion_tests::server;

use super::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_of_a_cluster_is_used_or_refused() {
    let Some(server) = server() else { return };
    let known = server.cli(&["CONFIG", "GET", "cluster-databases"]);
    let has_databases = !known.as_array().is_empty();
    let settings: &[_] = match has_databases {
        true => &[("cluster-databases", "2")],
        false => &[],
    };
    let cluster = Cluster::with(settings);
    let second = format!("{}/1", cluster.url().trim_end_matches('/'));
    if !has_databases {
        let error = Client::connect_with(config(second)).await.unwrap_err();
        let text = error.to_string();
        assert!(
            text.contains("SELECT is not allowed in cluster mode"),
            "{text}"
        );
        return;
    }
    let zero = connect(cluster.url()).await;
    let (a, b) = (connect(second.clone()).await, connect(second).await);
    let in_zero = lock(&zero, "orders", LONG).acquire().await.unwrap();
    let guard = lock(&a, "orders", LONG).acquire().await.unwrap();
    let other = lock(&b, "orders", LONG);
    assert!(other.try_acquire().await.unwrap().is_none(), "P1");
    let waiter = waiting(&other);
    listening(cluster.node(cluster.master_of_key("orders")), "orders").await;
    guard.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    assert!(in_zero.is_held());
    in_zero.release().await.unwrap();
}
