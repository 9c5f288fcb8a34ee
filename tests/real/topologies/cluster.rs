//! Cluster: calls and subscriptions find their slots, and follow slots that move.

use std::collections::BTreeSet;

use stanchion::{
    AcquireError, Client, ConnectError, CountDownLatch, FairLock, Lease, LeasedSemaphore, Lockable,
    LostReason, MultiLock, Outage, Rejection, RwLock, Semaphore,
};
use stanchion_testkit::{Cluster, eventually};
use stanchion_tests::{assert_is, cluster, rejection_of, server};

use super::support::*;

/// Waits until no key is left but fence counters.
async fn at_rest(cluster: &Cluster) {
    eventually("nothing is left", || leftovers(cluster.keys()).is_empty()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_on_all_nodes_exclude_and_wake_by_message() {
    let Some(cluster) = cluster() else { return };
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
    // The keys of such a name would be in different slots.
    for odd in ["a{b", "{}x", "a}b"] {
        assert!(stanchion::Lock::new(&a, odd).is_err(), "{odd}");
    }
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn holders_and_waiters_are_reported_on_all_nodes() {
    let Some(cluster) = cluster() else { return };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    let observer = connect(cluster.url()).await;
    let held = lock(&a, "orders", LONG).acquire().await.unwrap();
    let waiter = waiting(&lock(&b, "orders", LONG));
    let status = || async { lock(&observer, "orders", LONG).status().await.unwrap() };
    soon(LONG, async {
        while status().await.waiting_processes != Some(1) {
            tokio::time::sleep(ms(20)).await;
        }
    })
    .await;
    let holder = status().await.holder.unwrap().owner;
    let processes = observer.processes().await.unwrap().list.unwrap();
    assert_eq!(processes.len(), 3);
    let its = processes.iter().find(|it| it.is_of(&holder)).unwrap();
    assert_eq!(its.client, a.id());
    let both_reported = || async {
        let survey = observer.survey().await.unwrap();
        let holds = survey.clients.iter().any(|it| it.holds.len() == 1);
        holds && survey.clients.iter().any(|it| it.waits.len() == 1)
    };
    soon(LONG, async {
        while !both_reported().await {
            tokio::time::sleep(ms(100)).await;
        }
    })
    .await;
    held.release().await.unwrap();
    granted(waiter).await.release().await.unwrap();
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_moved_slot_keeps_its_holds_and_waiters() {
    let Some(cluster) = cluster() else { return };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    // Two names on one node, of which one moves.
    let moving = "orders";
    let from = cluster.master_of_key(moving);
    let mut others = (0..).map(|n| format!("other-{n}"));
    let staying = others.find(|name| cluster.master_of_key(name) == from);
    let staying = staying.unwrap();
    let to = (from + 1) % 3;
    let (held, kept) = (
        // Long leases: the waiters do not retry, and learn of the move from the old owner only.
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
    assert!(exists(cluster.node(to), moving), "the key has moved");
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
async fn a_migrating_slot_serves_holders_and_grants_nothing() {
    let Some(cluster) = cluster() else { return };
    let a = connect(cluster.url()).await;
    // The target node does not publish to the node on which the waiters are subscribed, so the waiters must poll.
    let b = Client::connect_with(config(cluster.url()).poll_interval(ms(200)))
        .await
        .unwrap();
    let name = "orders";
    let slot = cluster.slot(name);
    let from = cluster.master_of(slot);
    let to = (from + 1) % 3;
    let guard = lock(&a, name, ms(3000)).acquire().await.unwrap();
    let migration = apart(|| cluster.migrate(slot, to));

    // The first renewal goes to the source node, the second by ASK to the target node.
    guard.renew().await.unwrap();
    migration.move_keys();
    assert_eq!(migration.keys_left(), [] as [String; 0]);
    guard.renew().await.unwrap();
    renewed(&guard).await;
    let again = guard.reenter().await.unwrap();
    again.release().await.unwrap();
    let contender = lock(&b, name, LONG);
    // Without waiters the queue has no keys, so the server refuses a script that reads the queue during the migration.
    let options = stanchion::AcquireOptions::new().timeout(ms(300));
    let tried = contender.try_acquire_with(options).await;
    assert!(!matches!(tried, Ok(Some(_))), "P1: {tried:?}");
    let waiter = waiting(&contender);
    let before = token(&guard);
    guard.release().await.unwrap();
    assert_eq!(migration.keys_left(), [] as [String; 0]);

    // A script on two keys, one of which is missing, is refused until the migration ends.
    let refused = lock(&a, name, LONG).acquire_timeout(ms(300)).await;
    match refused.unwrap_err() {
        AcquireError::TimedOut { .. } => {}
        // Ambiguous: the last request was in flight at the deadline.
        AcquireError::Unavailable {
            outage: Outage::Refused { code, .. },
            ..
        }
        | AcquireError::Ambiguous {
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
async fn a_migrating_slot_fails_no_renewal_in_a_batch() {
    let Some(cluster) = cluster() else { return };
    let client = connect(cluster.url()).await;
    let lease = ms(1500);
    let slot = cluster.slot("{m}");
    let to = (cluster.master_of(slot) + 1) % 3;
    let first = lock(&client, "{m}1", lease).acquire().await.unwrap();
    let second = lock(&client, "{m}2", lease).acquire().await.unwrap();
    let reading = RwLock::new(&client, "{m}r").unwrap();
    let reading = reading.lease(Lease::new(lease).unwrap());
    let reader = reading.read().await.unwrap();
    let members = ["{m}3", "{m}4"].map(|name| lock(&client, name, lease));
    let both = MultiLock::new(members.iter().map(|lock| lock as &dyn Lockable)).unwrap();
    let both = both.lease(Lease::new(lease).unwrap());
    let both = both.acquire().await.unwrap();

    let migration = apart(|| cluster.migrate(slot, to));
    // One key of each pair moves first, so both nodes refuse a script that names both keys.
    for key in ["{m}1", "{m}3", "{m}r"] {
        migration.move_key(key);
    }
    let began = client.now();
    eventually("every hold is renewed for two leases", || {
        let ends = [
            first.valid_until(),
            second.valid_until(),
            reader.valid_until(),
            both.valid_until(),
        ];
        let held = first.is_held() && second.is_held() && reader.is_held() && both.is_held();
        assert!(held, "P10: {ends:?}");
        ends.iter().all(|end| *end > began + lease * 3)
    })
    .await;
    migration.move_keys();
    apart(|| migration.finish());
    first.release().await.unwrap();
    second.release().await.unwrap();
    reader.release().await.unwrap();
    both.release().await.unwrap();
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_release_in_a_migrating_slot_needs_one_key_or_waits_for_all() {
    let Some(cluster) = cluster() else { return };
    let client = connect(cluster.url()).await;
    let slot = cluster.slot("{m}");
    let to = (cluster.master_of(slot) + 1) % 3;
    let name = "{m}lock";
    let held = lock(&client, name, LONG).acquire().await.unwrap();
    let fair = FairLock::new(&client, "{m}fair").unwrap();
    let in_order = fair.acquire().await.unwrap();
    let permits = Semaphore::new(&client, "{m}permits").unwrap();
    permits.init(1).await.unwrap();
    let permit = permits.acquire().await.unwrap();
    let moved = Semaphore::new(&client, "{m}moved").unwrap();
    moved.init(2).await.unwrap();
    let leased = LeasedSemaphore::new(&client, "{m}leased").unwrap();
    leased.init(1).await.unwrap();
    let (first, second) = (
        moved.acquire().await.unwrap(),
        leased.acquire().await.unwrap(),
    );
    // A waiter in this process: a hand-off would need the lock and the fence counter in one script.
    let waiter = waiting(&lock(&client, name, LONG));
    eventually("the acquire waits", || client.waiters() == 1).await;
    // A waiter in another process, which is notified of the free permit only after the migration.
    let other = connect(cluster.url()).await;
    let theirs = LeasedSemaphore::new(&other, "{m}leased").unwrap();
    let their_waiter = tokio::spawn(theirs.acquire());
    let channel = "redisson_sc:{m}leased";
    eventually("their waiter is subscribed", || {
        cluster.subscribers(channel) > 0
    })
    .await;

    let migration = apart(|| cluster.migrate(slot, to));
    let of_holds = [
        "{m}moved",
        "stanchion_permits:{m}moved",
        "{m}leased",
        "{m}leased:timeout",
    ];
    for key in [name, "{m}fair", "{m}permits"].iter().chain(&of_holds) {
        migration.move_key(key);
    }
    soon(ms(1000), held.release()).await.unwrap();
    // The wait set of the permits is on another node, or does not exist.
    soon(ms(1000), first.release()).await.unwrap();
    soon(ms(1000), second.release()).await.unwrap();
    let (in_order, permit) = (
        tokio::spawn(in_order.release()),
        tokio::spawn(permit.release()),
    );
    // Nothing is granted, and the releases whose keys are on two nodes keep waiting.
    tokio::time::sleep(ms(500)).await;
    assert!(!in_order.is_finished() && !permit.is_finished() && !waiter.is_finished());
    migration.move_keys();
    apart(|| migration.finish());
    soon(BY_MESSAGE, in_order).await.unwrap().unwrap();
    soon(BY_MESSAGE, permit).await.unwrap().unwrap();
    granted(waiter).await.release().await.unwrap();
    assert_eq!(permits.available().await.unwrap(), 1);
    assert_eq!(moved.available().await.unwrap(), 2);
    let their_permit = soon(BY_MESSAGE, their_waiter).await.unwrap().unwrap();
    their_permit.release().await.unwrap();
    assert_eq!(leased.available().await.unwrap(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_unreachable_master_delays_no_operation_on_other_nodes() {
    let Some(mut cluster) = cluster() else { return };
    let name = "go";
    let dead = (cluster.master_of_key(name) + 1) % 3;
    let url = cluster.url();
    cluster.node(dead).stop_signal();
    // The slot map still names the stopped master. Only this client finds that it does not answer.
    let client = connect(url).await;
    let latch = CountDownLatch::new(&client, name).unwrap();
    assert!(latch.arm(1).await.unwrap(), "P8");
    assert_eq!(latch.count_down().await.unwrap(), 0);
    let semaphore = Semaphore::new(&client, "{go}permits").unwrap();
    assert!(semaphore.init(2).await.unwrap());
    cluster.kill(dead);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_master_is_replaced_under_a_held_lock() {
    let Some(mut cluster) = cluster() else { return };
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
    let Some(mut cluster) = cluster() else { return };
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
async fn one_working_seed_suffices_and_failures_give_distinct_errors() {
    let Some(mut cluster) = cluster() else { return };
    let mute = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = mute.local_addr().unwrap();
    let error = refused(config(format!("redis+cluster://127.0.0.1:1,{mute}"))).await;
    assert_is!(error, ConnectError::Unreachable { .. });

    let Some(alone) = server() else { return };
    let error = refused(config(format!("redis+cluster://{}", alone.addr()))).await;
    assert!(matches!(error, ConnectError::Rejected { .. }), "{error:?}");

    // A client of a single server does not reach the keys of other nodes.
    let one = connect(format!("redis://{}", cluster.node(0).addr())).await;
    let elsewhere = ["a", "b", "c", "d"]
        .into_iter()
        .find(|name| cluster.master_of_key(name) != 0)
        .unwrap();
    let error = lock(&one, elsewhere, LONG).acquire().await.unwrap_err();
    assert!(
        matches!(rejection_of(&error), Rejection::Cluster { .. }),
        "{error}"
    );

    // A dead node, an address that never answers, and a replica, which knows the other nodes.
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
    assert_eq!(
        client.server().placement,
        stanchion::client::Placement::Slots
    );
    assert!(client.shutdown(ms(1000)).await.is_clean());
    at_rest(&cluster).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_renewing_holder_is_notified_of_a_forced_release() {
    let Some(cluster) = cluster() else { return };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    for name in ["orders", "a", "b", "{t1}:job"] {
        let guard = lock(&a, name, ms(6000)).acquire().await.unwrap();
        renewed(&guard).await;
        // The request is published in the slot of the lock, because a script may publish only there.
        let theirs = lock(&b, name, LONG);
        let heard = async || theirs.request_release("x").await.unwrap().heard;
        stanchion_testkit::eventually_async("the holder listens", async || heard().await == 1)
            .await;
        assert_eq!(guard.requested().await.reason, "x");
        assert!(theirs.danger().force_release().await.unwrap());
        // The next renewal is 2 s away, so a loss within 1 s was reported by message.
        let reason = soon(ms(1000), guard.lost()).await;
        assert_eq!(reason, LostReason::Gone, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lazy_client_of_a_cluster_connects_on_first_use() {
    let Some(cluster) = cluster() else { return };
    let client = Client::connect_lazy(cluster.url()).await.unwrap();
    for name in ["orders", "a", "b", "c"] {
        let guard = lock(&client, name, LONG).acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    assert_ne!(client.server().version, "unknown");
    at_rest(&cluster).await;
}
