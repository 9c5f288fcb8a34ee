//! A script that removes a key of a slot that is moving away.

use stanchion_testkit::eventually;
use stanchion_tests::cluster;

use super::support::*;

/// All keys are on the node that gives the slot away. The release removes one of them, and the node refuses the rest of the script.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_before_the_keys_migrate_is_done_and_wakes_the_next_process() {
    let Some(cluster) = cluster() else { return };
    let name = "orders";
    let slot = cluster.slot(name);
    let from = cluster.master_of(slot);
    let clients = [
        connect(cluster.url()).await,
        connect(cluster.url()).await,
        connect(cluster.url()).await,
    ];
    let [a, b, c] = clients.each_ref().map(|client| lock(client, name, LONG));
    let held = a.acquire().await.unwrap();
    let queued = || {
        let count = ["ZCARD", "stanchion_line:{orders}"];
        cluster.node(from).cli(&count).as_int()
    };
    let first = waiting(&b);
    eventually("a process is queued", || queued() == 1).await;
    let second = waiting(&c);
    eventually("two processes are queued", || queued() == 2).await;
    held.release().await.unwrap();
    let held = granted(first).await;
    assert!(
        exists(cluster.node(from), "stanchion_wake:{orders}"),
        "the script needs all its keys on one node"
    );
    let migration = apart(|| cluster.migrate(slot, (from + 1) % 3));
    held.release().await.expect("P8");
    apart(|| migration.finish());
    granted(second).await.release().await.unwrap();
}
