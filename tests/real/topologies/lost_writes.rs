//! Failovers that lose writes: released holds are free again on the new master, and subscriptions move at once.

use std::time::Duration;

use stanchion::{Client, FairLock};
use stanchion_testkit::{RedisServer, eventually};
use stanchion_tests::{cluster, lease, secs, sentinels};

use super::family::Family;
use super::support::*;

/// The limit for a failover and the grants after it: half of the lease that would end the holds otherwise.
const WITHIN: Duration = secs(15);

/// A lease that is renewed every eight seconds.
const SLOW: Duration = secs(24);

/// Holds one of each; `before` stops replication; then everything is released, and `change` promotes a replica without the releases.
/// Another client must acquire each within [`WITHIN`].
async fn released_before(
    (a, b): (&Client, &Client),
    prefix: &str,
    before: impl FnOnce(),
    change: impl FnOnce(),
) {
    let [ours, theirs] = [a, b].map(|client| Family::new(client, prefix, LONG));
    let holds = ours.hold_everything().await;
    let first = token(&holds.lock);
    apart(before);
    holds.release_everything(&ours.latch).await;
    apart(change);
    let again = soon(WITHIN, theirs.lock.acquire()).await.unwrap();
    assert!(token(&again) > first, "P2");
    again.release().await.unwrap();
    macro_rules! free {
        ($kind:literal, $acquire:expr) => {
            let acquired = tokio::time::timeout(WITHIN, $acquire).await;
            let acquired = acquired.unwrap_or_else(|_| panic!("P4: {} is not free", $kind));
            acquired.unwrap().release().await.unwrap();
        };
    }
    free!("a fair lock", theirs.fair.acquire());
    free!("a read-write lock", theirs.written.read());
    free!("a permit", theirs.semaphore.acquire());
    free!("a leased permit", theirs.leased.acquire());
    free!("a multi-lock", theirs.multi.acquire());
    assert_eq!(theirs.semaphore.available().await.unwrap(), 1);
    assert_eq!(theirs.leased.available().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_a_failover_by_sentinels_loses_are_sent_again() {
    let Some(mut set) = sentinels() else { return };
    let (a, b) = (connect(set.url()).await, connect(set.url()).await);
    let pid = set.server(0).pid();
    let hold = || {
        set.await_replication();
        set.hold_replication();
    };
    released_before((&a, &b), "app:", hold, || {
        kill(pid);
        set.resume_replicas(0);
    })
    .await;
    set.kill(0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn releases_that_a_failover_of_a_cluster_loses_are_sent_again() {
    let Some(mut cluster) = cluster() else { return };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    let old = cluster.master_of_key("{t}");
    let replica = cluster.replica_of(old);
    let pid = cluster.node(old).pid();
    let hold = || {
        cluster.await_replication(old);
        assert_eq!(cluster.hold_replication(old), replica);
    };
    released_before((&a, &b), "{t}:", hold, || {
        kill(pid);
        cluster.node(replica).cont();
        let takes_over = ["CLUSTER", "FAILOVER", "TAKEOVER"];
        assert!(!cluster.node(replica).cli(&takes_over).is_error());
    })
    .await;
    cluster.kill(old);
}

/// The waiters of the fair lock that were granted and have released on the old master are still in the queue on the new one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_queue_restored_by_a_failover_delays_no_acquire() {
    let Some(mut set) = sentinels() else { return };
    let (a, b) = (connect(set.url()).await, connect(set.url()).await);
    let fair = |client| {
        let lease = lease(LONG);
        FairLock::new(client, "orders").unwrap().lease(lease)
    };
    let held = fair(&a).acquire().await.unwrap();
    let queue = || set.server(0).cli(&["LLEN", "redisson_lock_queue:{orders}"]);
    let mut waiters = Vec::new();
    for place in 1..=4 {
        let ours = fair(&b);
        waiters.push(tokio::spawn(async move {
            ours.acquire().await.unwrap().release().await.unwrap();
        }));
        eventually("the waiter is queued", || queue().as_int() == place).await;
    }
    apart(|| {
        set.await_replication();
        set.hold_replication();
    });
    held.release().await.unwrap();
    for waiter in waiters {
        soon(BY_MESSAGE, waiter).await.unwrap();
    }
    set.kill(0);
    set.resume_replicas(0);
    let new = apart(|| set.another_master(0));
    // Without repeated releases this takes the lease plus the grace of each of the four waiters.
    let guard = soon(BY_MESSAGE, fair(&a).acquire()).await.unwrap();
    guard.release().await.unwrap();
    eventually("nothing is left", || {
        leftovers(set.server(new).keys()).is_empty()
    })
    .await;
}

fn kill(pid: u32) {
    let pid = pid.to_string();
    let status = std::process::Command::new("kill")
        .args(["-9", &pid])
        .status();
    assert!(status.unwrap().success());
}

fn shard_channels(server: &RedisServer) -> Vec<String> {
    let mut channels = server.cli(&["PUBSUB", "SHARDCHANNELS"]).as_texts();
    channels.retain(|channel| !channel.ends_with(":stanchion"));
    channels.sort_unstable();
    channels
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn subscriptions_move_to_the_new_master_after_a_failover() {
    let Some(cluster) = cluster() else { return };
    // With a long response timeout, the connections for calls to a former master stay open.
    let patient = || config(cluster.url()).response_timeout(LONG);
    let a = Client::connect_with(patient()).await.unwrap();
    let b = Client::connect_with(patient()).await.unwrap();
    let held = lock(&a, "orders", SLOW).acquire().await.unwrap();
    let waiter = waiting(&lock(&b, "orders", LONG));
    // The first renewal subscribes the holder. The next renewal, which would find the new master, is eight seconds away.
    renewed(&held).await;
    let old = cluster.node(cluster.master_of_key("orders"));
    let mut before = Vec::new();
    eventually("the waiter and the holder are subscribed", || {
        before = shard_channels(old);
        before.iter().any(|it| it.contains("notice")) && old.subscribers(&channel("orders")) > 0
    })
    .await;
    let new = apart(|| cluster.node(cluster.fail_over(cluster.master_of_key("orders"))));
    let moved = eventually("all subscriptions are on the new master only", || {
        shard_channels(new) == before && shard_channels(old).is_empty()
    });
    soon(BY_MESSAGE, moved).await;
    held.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
}
