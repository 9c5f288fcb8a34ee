//! Cluster: calls find their slots, and follow them.

use crate::support::*;
use stanchion_testkit::{Cluster, eventually};

#[tokio::test]
async fn names_on_all_nodes_exclude_and_messages_wake() {
    let Some(cluster) = Cluster::or_skip("names_on_all_nodes") else {
        return;
    };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    let mut owners = std::collections::BTreeSet::new();
    for name in ["orders", "a", "b", "c", "d", "{t1}:job", "order:{42}:settle"] {
        let guard = lock(&a, name, LONG).acquire().await.unwrap();
        let owner = cluster.master_of_key(name);
        assert!(exists(cluster.node(owner), name), "{name}");
        owners.insert(owner);
        let other = lock(&b, name, LONG);
        assert!(other.try_acquire().await.unwrap().is_none(), "P1");
        let waiter = waiting(&other);
        eventually("it listens where the slot is", || {
            cluster.node(owner).subscribers(&channel(name)) > 0
        })
        .await;
        guard.release().await.unwrap();
        granted(waiter).await.release().await.unwrap();
    }
    assert_eq!(owners.len(), 3, "every node has been used");
    assert_eq!(leftovers(cluster.keys()), [] as [String; 0]);
}
