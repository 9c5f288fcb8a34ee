//! Sentinel: the master is found, followed, and left in time.

use crate::support::*;
use stanchion_testkit::{SentinelSet, eventually};

#[tokio::test]
async fn a_master_is_found_by_its_sentinels_and_messages_wake() {
    let Some(set) = SentinelSet::or_skip("a_master_is_found") else {
        return;
    };
    let (a, b) = (connect(set.url()).await, connect(set.url()).await);
    let guard = lock(&a, "orders", LONG).acquire().await.unwrap();
    assert!(exists(set.server(0), "orders"));
    let waiter = waiting(&lock(&b, "orders", LONG));
    eventually("it listens", || set.server(0).subscribers(&channel("orders")) > 0).await;
    guard.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
}
