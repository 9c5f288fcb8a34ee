//! Tests the multi-lock: it holds all its members or none, and one script acquires members on one server.
//!
//! Long: one suite with one set-up.

use std::time::Duration;

use stanchion::multilock::InvalidMembers;
use stanchion::{
    AcquireError, AcquireOptions, Client, Fencing, Lock, Lockable, LostReason, MultiGuard,
    MultiLock, ReleaseError, RwLock,
};
use stanchion_testkit::{eventually, eventually_async};
use stanchion_tests::{World, kept, lease, ms, secs, spawn_ok};

suite! {
    all_members_are_held_as_locks_of_one_owner,
    eight_members_cost_two_commands_a_cycle,
    a_waiter_holds_no_member_and_the_release_of_any_member_wakes_it,
    one_token_is_above_those_of_all_members,
    the_loss_of_one_member_loses_the_multi_lock,
    members_of_two_clients_are_acquired_in_order_and_rolled_back,
    members_of_two_clients_share_one_timeout,
    the_sides_of_a_read_write_lock_are_members,
    an_owner_reenters_its_members,
    the_lease_is_the_shortest_of_the_members,
    bad_members_are_refused_before_anything_is_sent,
}

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

fn multi(client: &Client, names: &[&str]) -> MultiLock {
    let locks: Vec<Lock> = names.iter().map(|name| lock(client, name)).collect();
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

fn channel(name: &str) -> String {
    format!("redisson_lock__channel:{{{name}}}")
}

fn waiting(multi: &MultiLock) -> tokio::task::JoinHandle<MultiGuard> {
    let multi = multi.clone();
    spawn_ok(multi.acquire())
}

async fn all_members_are_held_as_locks_of_one_owner(world: &World) {
    let client = world.client().await;
    let guard = multi(&client, &["c", "a", "b"]).acquire().await.unwrap();
    assert!(guard.is_held());
    let names: Vec<String> = guard.names().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["a", "b", "c"]);
    assert_eq!(world.keys(), ["a", "b", "c"]);
    let mut owners = Vec::new();
    for name in ["a", "b", "c"] {
        let holder = lock(&client, name).status().await.unwrap().holder.unwrap();
        assert_eq!(holder.hold_count, 1);
        assert!(holder.remaining.unwrap() > secs(20));
        assert!(lock(&client, name).try_acquire().await.unwrap().is_none());
        owners.push(holder.owner);
    }
    owners.dedup();
    assert_eq!(owners.len(), 1);
    assert!(owners[0].starts_with(&client.id().to_string()));
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn eight_members_cost_two_commands_a_cycle(world: &World) {
    let client = world.client().await;
    let multi = multi(&client, &["1", "2", "3", "4", "5", "6", "7", "8"]);
    multi.acquire().await.unwrap().release().await.unwrap();
    let before = world.scripts_run();
    for _ in 0..10 {
        multi.acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(world.scripts_run() - before, 20);
    world.at_rest().await;
}

async fn a_waiter_holds_no_member_and_the_release_of_any_member_wakes_it(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let b = lock(&theirs, "b").acquire().await.unwrap();
    let c = lock(&theirs, "c").acquire().await.unwrap();
    let waiter = waiting(&multi(&ours, &["a", "b", "c"]));
    world.subscribed(&channel("b")).await;
    world.quiet().await;
    let a = lock(&theirs, "a").try_acquire().await.unwrap();
    a.expect("a waiter holds nothing").release().await.unwrap();
    let started = tokio::time::Instant::now();
    b.release().await.unwrap();
    world.subscribed(&channel("c")).await;
    world.quiet().await;
    assert!(!waiter.is_finished());
    assert_eq!(ours.waiters(), 1);
    c.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    assert!(
        started.elapsed() < world.limit(secs(1)),
        "woken by messages, not by polls: {:?}",
        started.elapsed()
    );
    assert_eq!(ours.waiters(), 0);
    world.at_rest().await;
}

async fn one_token_is_above_those_of_all_members(world: &World) {
    let client = world.client().await;
    let per_name = lock(&client, "b").fencing(Fencing::PerName);
    // A counter of Redisson's that is ahead of the server's clock.
    let _ = world.admin(&["SET", "redisson_lock_token:{b}", "4000000000000000"]);
    let without = lock(&client, "c").fencing(Fencing::Off);
    let multi =
        MultiLock::new([&without as &dyn Lockable, &lock(&client, "a"), &per_name]).unwrap();
    let mut last = 0;
    for _ in 0..3 {
        let guard = multi.acquire().await.unwrap();
        let token = |name| guard.fencing_token(name).unwrap().get();
        let (before, same) = (token("a"), token("b"));
        assert_eq!(before, same);
        assert_eq!(guard.fencing_token("x"), None);
        assert!(before > 4_000_000_000_000_000.max(last));
        guard.release().await.unwrap();
        for single in [&lock(&client, "a"), &per_name] {
            let guard = single.acquire().await.unwrap();
            let token = guard.fencing_token().unwrap().get();
            assert!(token > before, "{token} after {before}");
            guard.release().await.unwrap();
            last = last.max(token);
        }
    }
    let _ = world.admin(&["DEL", "redisson_lock_token:{b}"]);
    let off = MultiLock::new([&without as &dyn Lockable]).unwrap();
    let guard = off.acquire().await.unwrap();
    assert_eq!(guard.fencing_token("c"), None);
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn the_loss_of_one_member_loses_the_multi_lock(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    for way in 0..2 {
        let multi = if way == 0 {
            multi(&ours, &["a", "b", "c"])
        } else {
            let locks = [lock(&ours, "a"), lock(&theirs, "b"), lock(&ours, "c")];
            MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
        };
        let multi = multi.lease(kept());
        for taken in ["a", "b", "c"] {
            let guard = multi.acquire().await.unwrap();
            assert!(lock(&theirs, taken).danger().force_release().await.unwrap());
            let other = lock(&theirs, taken).acquire().await.unwrap();
            let work = guard.run(std::future::pending::<()>());
            let lost = tokio::time::timeout(secs(5), work)
                .await
                .unwrap()
                .unwrap_err();
            assert_eq!(lost.reason, LostReason::Gone, "{taken}");
            assert!(!guard.is_held());
            assert_eq!(guard.remaining(), Duration::ZERO);
            assert_eq!(world.keys(), ["a", "b", "c"], "the holder may still work");
            if taken == "b" {
                drop(guard);
            } else {
                let error = guard.release().await.unwrap_err();
                assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
            }
            eventually("the others are released", || world.keys() == [taken]).await;
            assert!(other.is_held());
            other.release().await.unwrap();
        }
    }
    world.at_rest().await;
}

async fn members_of_two_clients_are_acquired_in_order_and_rolled_back(world: &World) {
    let [ours, theirs, other] = world.clients().await;
    let (b, a, c) = (lock(&ours, "b"), lock(&theirs, "a"), lock(&ours, "c"));
    let multi = MultiLock::new([&b as &dyn Lockable, &c, &a]).unwrap();
    let guard = multi.acquire().await.unwrap();
    assert_eq!(world.keys(), ["a", "b", "c"]);
    for single in [&a, &b, &c] {
        let last = single.status().await.unwrap().last_token;
        assert_eq!(guard.fencing_token(single.name().as_bytes()), last);
    }
    guard.release().await.unwrap();
    world.at_rest().await;

    let held = lock(&other, "c").acquire().await.unwrap();
    assert!(multi.try_acquire().await.unwrap().is_none());
    eventually("the others are rolled back", || world.keys() == ["c"]).await;
    let waiter = waiting(&multi);
    world.subscribed(&channel("c")).await;
    world.quiet().await;
    // Members are acquired in order: the waiter holds `a` and `b` while it waits for `c`.
    assert_eq!(world.keys(), ["a", "b", "c", "stanchion_line:{c}"]);
    assert!(lock(&other, "a").try_acquire().await.unwrap().is_none());
    held.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn members_of_two_clients_share_one_timeout(world: &World) {
    let [ours, theirs, other] = world.clients().await;
    let multi = MultiLock::new([&lock(&ours, "a") as &dyn Lockable, &lock(&theirs, "b")]).unwrap();
    let a = lock(&other, "a").acquire().await.unwrap();
    let _b = lock(&other, "b").acquire().await.unwrap();
    let timeout = ms(1500);
    let freeing = async {
        eventually("the call waits for the first member", || {
            ours.waiters() == 1
        })
        .await;
        a.release().await.unwrap();
    };
    let started = tokio::time::Instant::now();
    let (error, ()) = tokio::join!(multi.acquire_timeout(timeout), freeing);
    let error = error.unwrap_err();
    assert!(started.elapsed() <= world.limit(timeout + ms(50)));
    assert!(
        matches!(&error, AcquireError::TimedOut { name, .. } if name.to_string() == "b"),
        "{error}"
    );
    eventually("the first is rolled back", || world.keys() == ["b"]).await;
}

async fn the_sides_of_a_read_write_lock_are_members(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let (prices, stock) = (
        RwLock::new(&ours, "prices").unwrap(),
        RwLock::new(&ours, "stock").unwrap(),
    );
    let (reading, writing) = (prices.read_side(), stock.write_side());
    let plain = lock(&ours, "orders");
    let multi = MultiLock::new([&writing as &dyn Lockable, &plain, &reading]).unwrap();
    let guard = multi.acquire().await.unwrap();
    assert!(guard.fencing_token("stock").is_some());
    assert!(guard.fencing_token("prices").is_none());
    let other = |name| RwLock::new(&theirs, name).unwrap();
    assert!(other("stock").try_read().await.unwrap().is_none());
    assert!(other("prices").try_write().await.unwrap().is_none());
    let reader = other("prices").try_read().await.unwrap().unwrap();
    guard.release().await.unwrap();
    let held = other("stock").read().await.unwrap();
    assert!(multi.try_acquire().await.unwrap().is_none());
    reader.release().await.unwrap();
    eventually_async("the others are rolled back", async || {
        world.keys().iter().all(|key| key.contains("stock"))
    })
    .await;
    held.release().await.unwrap();
    world.at_rest().await;
}

async fn an_owner_reenters_its_members(world: &World) {
    let client = world.client().await;
    let single = lock(&client, "b");
    let held = single.acquire().await.unwrap();
    let multi = multi(&client, &["a", "b"]);
    assert!(multi.try_acquire().await.unwrap().is_none());
    let options = || AcquireOptions::new().owner(held.owner());
    let guard = multi.acquire_with(options()).await.unwrap();
    let count = async || single.status().await.unwrap().holder.map(|h| h.hold_count);
    assert_eq!(count().await, Some(2));
    let again = multi.try_acquire_with(options()).await.unwrap().unwrap();
    assert_eq!(count().await, Some(3));
    again.release().await.unwrap();
    guard.release().await.unwrap();
    assert_eq!(count().await, Some(1));
    assert_eq!(world.keys(), ["b"]);
    held.release().await.unwrap();
    world.at_rest().await;
}

async fn the_lease_is_the_shortest_of_the_members(world: &World) {
    let client = world.client().await;
    let lease = |ms| lease(Duration::from_millis(ms));
    let a = lock(&client, "a").lease(lease(20_000));
    let b = lock(&client, "b").lease(lease(9_000));
    let multi = MultiLock::new([&a as &dyn Lockable, &b]).unwrap();
    let ttl = |name| world.admin(&["PTTL", name]).parse::<u64>().unwrap();
    let guard = multi.acquire().await.unwrap();
    assert!(ttl("a") <= 9_000 && ttl("b") > 8_000);
    assert!(guard.remaining() <= ms(8_910));
    guard.release().await.unwrap();
    let guard = multi.clone().lease(lease(15_000)).acquire().await.unwrap();
    assert!((14_000..=15_000).contains(&ttl("a")) && ttl("b") > 14_000);
    guard.release().await.unwrap();
    let options = AcquireOptions::new().lease(lease(5_000));
    let guard = multi.acquire_with(options).await.unwrap();
    assert!((4_000..=5_000).contains(&ttl("a")) && ttl("b") > 4_000);
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn bad_members_are_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let before = world.scripts_run();
    assert_eq!(
        MultiLock::new([] as [&Lock; 0]).unwrap_err(),
        InvalidMembers::Empty
    );
    let (a, b) = (lock(&client, "a"), lock(&client, "b"));
    let error = MultiLock::new([&a as &dyn Lockable, &b, &a.clone()]).unwrap_err();
    assert!(
        matches!(&error, InvalidMembers::Duplicate { name } if name.to_string() == "a"),
        "{error}"
    );
    assert_eq!(
        error.to_string(),
        "a is given twice: a multi-lock holds each name once"
    );
    assert_eq!(world.scripts_run(), before);
}

#[tokio::test]
async fn on_a_cluster_members_of_one_slot_need_one_script() {
    if !stanchion_testkit::RedisServer::available() {
        return drop(World::server(
            "on_a_cluster_members_of_one_slot_need_one_script",
        ));
    }
    let server = stanchion_testkit::RedisServer::builder()
        .cluster_enabled()
        .start();
    let client = Client::connect(server.url()).await.unwrap();
    let scripts = || {
        let stats = server.commands_processed();
        stats.get("evalsha").unwrap_or(&0) + stats.get("eval").unwrap_or(&0)
    };
    for (names, expected) in [(["{t}:a", "{t}:b"], 2), (["a", "b"], 4)] {
        let multi = multi(&client, &names);
        multi.acquire().await.unwrap().release().await.unwrap();
        let before = scripts();
        multi.acquire().await.unwrap().release().await.unwrap();
        assert_eq!(scripts() - before, expected, "{names:?}");
    }
}
