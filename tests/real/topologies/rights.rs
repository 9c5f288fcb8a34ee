//! The rights in `docs/topologies.md` and `docs/running/rights.md` suffice for all operations.

use stanchion::{Client, ClientConfig, Secret};
use stanchion_testkit::RedisServer;
use stanchion_tests::{cluster, rights, sentinels};

use super::family::survives;
use super::support::*;

/// The `number`th line that begins with `ACL SETUSER app` on a page.
fn line(page: &str, number: usize) -> Vec<&str> {
    let block = page
        .split("```text\n")
        .filter(|b| b.starts_with("ACL SETUSER app"));
    let block = block.clone().nth(number).unwrap();
    block
        .split("```")
        .next()
        .unwrap()
        .split_whitespace()
        .collect()
}

const RIGHTS: &str = include_str!("../../../docs/running/rights.md");
const TOPOLOGIES: &str = include_str!("../../../docs/topologies.md");

fn give(server: &RedisServer, line: &[&str]) {
    let reply = server.cli(line);
    assert!(!reply.is_error(), "{line:?}: {reply}");
}

/// Asserts that no server refused a command of a client.
fn nothing_refused<'a>(servers: impl Iterator<Item = &'a RedisServer>) {
    for server in servers {
        assert_eq!(rights::refused(server), [""; 0]);
    }
}

fn login(url: String) -> ClientConfig {
    rights::as_app(config(url))
}

async fn two(config: ClientConfig) -> (Client, Client) {
    let one = Client::connect_with(config.clone()).await.unwrap();
    (one, Client::connect_with(config).await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice_on_a_cluster() {
    let Some(cluster) = cluster() else { return };
    for node in cluster.nodes() {
        give(node, &line(RIGHTS, 0));
        give(node, &line(TOPOLOGIES, 1));
    }
    let clients = two(login(cluster.url())).await;
    let masters = || cluster.nodes()[..3].iter().collect();
    survives(clients.clone(), "app:", masters, || {}).await;
    // While a slot migrates, the source node redirects with ASK.
    let guard = lock(&clients.0, "app:orders", LONG)
        .acquire()
        .await
        .unwrap();
    let slot = cluster.slot("app:orders");
    let to = (cluster.master_of(slot) + 1) % 3;
    let migration = apart(|| cluster.migrate(slot, to));
    migration.move_keys();
    guard.renew().await.unwrap();
    apart(|| migration.finish());
    guard.release().await.unwrap();
    nothing_refused(cluster.nodes().iter());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_documented_rights_suffice_with_sentinels() {
    let Some(set) = sentinels() else { return };
    for number in 0..3 {
        give(set.server(number), &line(RIGHTS, 0));
        give(set.sentinel(number), &line(TOPOLOGIES, 0));
    }
    let config = login(set.url())
        .sentinel_username("app".to_owned())
        .sentinel_password(Secret::new("password"));
    let clients = two(config).await;
    let master = || vec![set.server(set.master())];
    survives(clients, "app:", master, || {
        let _ = set.fail_over();
    })
    .await;
    nothing_refused((0..3).map(|n| set.server(n)));
    nothing_refused((0..3).map(|n| set.sentinel(n)));
}
