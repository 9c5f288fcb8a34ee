//! Cluster: calls find their slots and follow them, and so do subscriptions.

use std::collections::BTreeSet;

use stanchion::{AcquireError, ConnectError, Outage, Rejection};
use stanchion_testkit::{Cluster, RedisServer, eventually};

use crate::support::*;

/// Waits until no key is left but fence counters.
async fn at_rest(cluster: &Cluster) {
    eventually("nothing is left", || leftovers(cluster.keys()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_on_all_nodes_exclude_and_messages_wake() {
    let Some(cluster) = Cluster::or_skip("names_on_all_nodes") else {
        return;
    };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    let mut owners = BTreeSet::new();
    for name in [
        "orders",
        "a",
        "b",
        "c",
        "d",
        "{t1}:job",
        "order:{42}:settle",
    ] {
        let guard = lock(&a, name, LONG).acquire().await.unwrap();
        let owner = cluster.master_of_key(name);
        assert!(exists(cluster.node(owner), name), "{name}");
        owners.insert(owner);
        let other = lock(&b, name, LONG);
        assert!(other.try_acquire().await.unwrap().is_none(), "P1");
        let waiter = waiting(&other);
        listening(cluster.node(owner), name).await;
        guard.release().await.unwrap();
        granted(waiter).await.release().await.unwrap();
    }
    assert_eq!(owners.len(), 3, "every node has been used");
    // Such a name's keys would be in different slots.
    for odd in ["a{b", "{}x", "a}b"] {
        assert!(stanchion::Lock::new(&a, odd).is_err(), "{odd}");
    }
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_that_moves_takes_holds_and_waiters_along() {
    let Some(cluster) = Cluster::or_skip("a_slot_that_moves") else {
        return;
    };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    // Two names of one node, of which one moves.
    let moving = "orders";
    let from = cluster.master_of_key(moving);
    let mut others = (0..).map(|n| format!("other-{n}"));
    let staying = others.find(|name| cluster.master_of_key(name) == from);
    let staying = staying.unwrap();
    let to = (from + 1) % 3;
    let (held, kept) = (
        // Long leases: waiters have no reason of their own to ask, and learn of the move from the old owner alone.
        lock(&a, moving, LONG).acquire().await.unwrap(),
        lock(&a, &staying, LONG).acquire().await.unwrap(),
    );
    let (mover, stayer) = (
        waiting(&lock(&b, moving, LONG)),
        waiting(&lock(&b, &staying, LONG)),
    );
    listening(cluster.node(from), moving).await;
    listening(cluster.node(from), &staying).await;

    apart(|| cluster.move_slot(cluster.slot(moving), to));
    assert!(exists(cluster.node(to), moving), "it has moved");
    listening(cluster.node(to), moving).await;
    held.renew().await.unwrap();
    listening(cluster.node(from), &staying).await;
    let before = token(&held);
    held.release().await.unwrap();
    let guard = granted(mover).await;
    assert!(
        token(&guard) > before,
        "P2: the counter moved with its slot"
    );
    guard.release().await.unwrap();
    kept.release().await.unwrap();
    granted(stayer).await.release().await.unwrap();
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_slot_on_its_way_serves_what_is_held_and_lets_nobody_in() {
    let Some(cluster) = Cluster::or_skip("a_slot_on_its_way") else {
        return;
    };
    let a = connect(cluster.url()).await;
    // The target sends no message to where waiters listen, so they ask by themselves.
    let b = stanchion::Client::connect_with(config(cluster.url()).poll_interval(ms(200)))
        .await
        .unwrap();
    let name = "orders";
    let slot = cluster.slot(name);
    let from = cluster.master_of(slot);
    let to = (from + 1) % 3;
    let guard = lock(&a, name, ms(3000)).acquire().await.unwrap();
    let migration = apart(|| cluster.migrate(slot, to));

    // Where it was, and then, by ASK, where it is going.
    guard.renew().await.unwrap();
    migration.move_keys();
    assert_eq!(migration.keys_left(), [] as [String; 0]);
    guard.renew().await.unwrap();
    renewed(&guard).await;
    let again = guard.reenter().await.unwrap();
    again.release().await.unwrap();
    let contender = lock(&b, name, LONG);
    assert!(contender.try_acquire().await.unwrap().is_none(), "P1");
    let waiter = waiting(&contender);
    let before = token(&guard);
    guard.release().await.unwrap();
    assert_eq!(migration.keys_left(), [] as [String; 0]);

    // A script on two keys of which one is missing is refused until the slot has arrived.
    let refused = lock(&a, name, LONG).acquire_timeout(ms(300)).await;
    match refused.unwrap_err() {
        AcquireError::TimedOut { .. } => {}
        AcquireError::Unavailable {
            outage: Outage::Refused { code, .. },
            ..
        } => assert_eq!(code, "TRYAGAIN"),
        other => panic!("P8: {other:?}"),
    }
    assert!(!waiter.is_finished());
    apart(|| migration.finish());
    let guard = granted(waiter).await;
    assert!(exists(cluster.node(to), name));
    assert!(token(&guard) > before, "P2");
    guard.release().await.unwrap();
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_without_lost_writes_keeps_holds_and_waiters() {
    let Some(cluster) = Cluster::or_skip("a_failover_without_lost_writes") else {
        return;
    };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    let old = cluster.master_of_key("orders");
    let held = lock(&a, "orders", KEPT).acquire().await.unwrap();
    let waiter = waiting(&lock(&b, "orders", LONG));
    listening(cluster.node(old), "orders").await;
    let new = apart(|| cluster.fail_over(old));
    renewed(&held).await;
    listening(cluster.node(new), "orders").await;
    let before = token(&held);
    held.release().await.unwrap();
    let guard = granted(waiter).await;
    assert!(token(&guard) > before, "P2");
    guard.release().await.unwrap();
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_replaced_under_a_held_lock() {
    let Some(mut cluster) = Cluster::or_skip("a_killed_master_is_replaced") else {
        return;
    };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    let old = cluster.master_of_key("orders");
    let held = lock(&a, "orders", KEPT).acquire().await.unwrap();
    let waiter = waiting(&lock(&b, "orders", LONG));
    listening(cluster.node(old), "orders").await;
    let replica = cluster.replica_of(old);
    eventually("the hold is replicated", || {
        cluster
            .node(replica)
            .commands_processed()
            .contains_key("hset")
            || cluster.node(replica).info("keyspace", "db0").is_some()
    })
    .await;
    cluster.kill(old);
    renewed(&held).await;
    let new = apart(|| cluster.master_of_key("orders"));
    assert_eq!(new, replica);
    listening(cluster.node(new), "orders").await;
    held.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_that_loses_the_acquire_is_reported_in_time_and_tokens_grow() {
    let Some(mut cluster) = Cluster::or_skip("a_failover_that_loses_the_acquire") else {
        return;
    };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    let first = lock(&a, "orders", LONG).acquire().await.unwrap();
    let token_first = token(&first);
    first.release().await.unwrap();
    let old = cluster.master_of_key("orders");
    apart(|| cluster.settle());
    let held_back = cluster.hold_replication(old);
    let lost = lock(&a, "orders", ms(6000)).acquire().await.unwrap();
    assert!(token(&lost) > token_first);
    cluster.kill(old);
    cluster.node(held_back).cont();
    apart(|| cluster.take_over(held_back));
    let other = waiting(&lock(&b, "orders", LONG));
    lost_in_time(&lost, &a).await;
    let guard = granted(other).await;
    assert!(
        token(&guard) > token(&lost),
        "P2: also when the counter is lost"
    );
    drop(lost);
    assert!(guard.is_held());
    guard.release().await.unwrap();
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeds_need_not_all_work_and_their_failure_is_told_by_type() {
    let Some(mut cluster) = Cluster::or_skip("seeds_need_not_all_work") else {
        return;
    };
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = mute.local_addr().unwrap();
    let error = refused(config(format!("redis+cluster://127.0.0.1:1,{mute}"))).await;
    assert!(
        matches!(error, ConnectError::Unreachable { .. }),
        "{error:?}"
    );

    let Some(alone) = RedisServer::or_skip("seeds_need_not_all_work") else {
        return;
    };
    let error = refused(config(format!("redis+cluster://{}", alone.addr()))).await;
    assert!(matches!(error, ConnectError::Rejected { .. }), "{error:?}");

    // One node of many is not the cluster.
    let one = connect(format!("redis://{}", cluster.node(0).addr())).await;
    let elsewhere = ["a", "b", "c", "d"]
        .into_iter()
        .find(|name| cluster.master_of_key(name) != 0)
        .unwrap();
    let error = lock(&one, elsewhere, LONG).acquire().await.unwrap_err();
    assert!(
        matches!(
            error,
            AcquireError::Rejected {
                rejection: Rejection::Cluster { .. },
                ..
            }
        ),
        "{error:?}"
    );

    // A dead one, a mute one and a replica: the replica knows the others.
    cluster.kill(5);
    let url = format!(
        "redis+cluster://{},{mute},{}",
        cluster.node(5).addr(),
        cluster.node(3).addr()
    );
    let client = connect(url).await;
    for name in ["a", "b", "c", "d", "orders"] {
        let guard = lock(&client, name, LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_eq!(client.server().placement, stanchion::Placement::Slots);
    assert!(client.shutdown(ms(1000)).await.is_clean());
    at_rest(&cluster).await;
}
