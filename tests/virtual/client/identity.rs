//! Tests P1 for the identity of a lock: a hold of one lock is no hold of another, even if the two share an owner, a channel or derived keys.
//! `random/generator` draws owners on several servers and in several databases.

use std::time::Duration;

use stanchion::{AcquireOptions, Client, Lock, LockGuard, LostReason, Reentry};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_within, ms, secs, spawn_ok};
use tokio::time::Instant;

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

async fn is_held(client: &Client, name: &str) -> bool {
    lock(client, name).status().await.unwrap().is_held()
}

/// A task that waits for a lock. Returns when the client counts it as a waiter.
async fn waiter(client: &Client, name: &str) -> tokio::task::JoinHandle<LockGuard> {
    let (lock, before) = (lock(client, name), client.waiters());
    let waiting = spawn_ok(lock.acquire());
    eventually("it waits", || client.waiters() > before).await;
    tokio::time::sleep(ms(20)).await;
    waiting
}

#[tokio::test(start_paused = true)]
async fn an_owner_re_enters_through_another_client_of_the_same_server() {
    let (_world, [first, second]) = World::engine().with_clients().await;
    let owner = first.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let outer = lock(&first, "job").acquire_with(options()).await.unwrap();
    let inner = lock(&second, "job").acquire_with(options()).await.unwrap();
    let tried = lock(&second, "job").try_acquire_with(options()).await;
    let tried = tried.unwrap().expect("the owner holds it");
    assert_eq!(outer.fencing_token(), inner.fencing_token());
    let holder = lock(&second, "job").status().await.unwrap().holder.unwrap();
    assert_eq!(holder.hold_count, 3);
    // The three guards are of one hold, which ends with the client that acquired it.
    first.shutdown(Duration::ZERO).await;
    assert_eq!(inner.lost().await, LostReason::Shutdown);
    drop((outer, inner, tried));
}

/// As the documentation of `Owner` says: the same name on another server is acquired separately.
#[tokio::test(start_paused = true)]
async fn an_owner_holds_a_name_on_each_of_two_servers() {
    let (_here, first) = World::engine().with_client().await;
    let (_there, second) = World::engine().with_client().await;
    let owner = first.owner();
    let options = || AcquireOptions::new().owner(&owner).timeout(secs(1));
    let here = lock(&first, "job").acquire_with(options()).await.unwrap();
    let fresh = options().reentry(Reentry::Refused);
    let there = lock(&second, "job").acquire_with(fresh).await.unwrap();
    let again = lock(&first, "job").acquire_with(options()).await.unwrap();
    for (client, count) in [(&first, 2), (&second, 1)] {
        let status = lock(client, "job").status().await.unwrap();
        assert_eq!(status.holder.unwrap().hold_count, count);
    }
    drop((here, there, again));
}

#[tokio::test(start_paused = true)]
async fn the_server_decides_whether_a_hold_of_another_client_is_re_entered() {
    let (world, [first, second]) = World::engine().with_clients().await;
    let owner = first.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let outer = lock(&first, "job").acquire_with(options()).await.unwrap();
    // As after a failover of the second client: its server does not know the hold.
    let _ = world.admin(&["DEL", "job"]);
    let inner = lock(&second, "job").acquire_with(options()).await.unwrap();
    assert!(is_held(&second, "job").await);
    assert_ne!(outer.fencing_token(), inner.fencing_token());
    assert!(inner.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_not_given_a_hold_of_the_name_in_braces() {
    let (world, [ours, theirs]) = World::engine().with_clients().await;
    for (free, held) in [("job", "{job}"), ("{job}", "job")] {
        let elsewhere = lock(&theirs, held).acquire().await.unwrap();
        let here = lock(&ours, free).acquire().await.unwrap();
        let waiting = waiter(&ours, held).await;
        // A waiter of the same name in this process would be handed the hold.
        here.release().await.unwrap();
        tokio::time::sleep(secs(1)).await;
        assert!(!waiting.is_finished(), "{held} is held by another process");
        assert!(!is_held(&ours, free).await);
        let started = Instant::now();
        elsewhere.release().await.unwrap();
        let guard = waiting.await.unwrap();
        assert_eq!(guard.name().as_bytes(), held.as_bytes());
        assert_within(started, ms(20), "P4: by message");
        guard.release().await.unwrap();
    }
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_lock_is_free_while_the_name_in_braces_is_held() {
    let (_world, client) = World::engine().with_client().await;
    let held = lock(&client, "job").acquire().await.unwrap();
    let _waiting = waiter(&client, "job").await;
    let other = lock(&client, "{job}");
    let free = other.acquire_timeout(ms(100));
    let free = free.await.unwrap();
    assert!(free.is_held() && held.is_held());
}

/// Names that share a channel share its subscription.
#[tokio::test(start_paused = true)]
async fn every_queue_of_a_channel_is_woken_and_the_last_one_ends_the_subscription() {
    const CHANNEL: &str = "redisson_lock__channel:{job}";
    let (world, [ours, theirs]) = World::engine().with_clients().await;
    let names = ["job", "{job}"];
    for order in [[0, 1], [1, 0]] {
        let mut held = Vec::new();
        let mut waiting = Vec::new();
        for name in names {
            held.push(Some(lock(&theirs, name).acquire().await.unwrap()));
            waiting.push(Some(waiter(&ours, name).await));
        }
        world.subscribed(CHANNEL).await;
        assert_eq!(world.subscribers(CHANNEL), 1);
        for i in order {
            // Longer than the linger time: the subscription stays as long as one of them waits.
            tokio::time::sleep(secs(4)).await;
            let started = Instant::now();
            held[i].take().unwrap().release().await.unwrap();
            drop(waiting[i].take().unwrap().await.unwrap());
            assert_within(started, ms(20), names[i]);
        }
        assert_eq!(world.subscribers(CHANNEL), 1);
        tokio::time::sleep(secs(4)).await;
        assert_eq!(world.subscribers(CHANNEL), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_waiter_on_a_shared_channel_misses_no_message() {
    let (world, theirs) = World::engine().with_client().await;
    let ours = world.named("ours").await;
    let _other = lock(&theirs, "{job}").acquire().await.unwrap();
    let _waits = waiter(&ours, "{job}").await;
    world.subscribed("redisson_lock__channel:{job}").await;
    world.quiet().await;
    let held = lock(&theirs, "job").acquire().await.unwrap();
    let faults = world.faults();
    let before = world.scripts_run();
    faults.delay(Some("ours"), ms(50));
    let wanted = lock(&ours, "job");
    let started = Instant::now();
    let waiting = spawn_ok(wanted.acquire());
    eventually("the request is sent", || world.scripts_run() > before).await;
    // The message overtakes the reply `busy`. The waiter is registered for messages only after that reply.
    faults.delay(Some("ours"), Duration::ZERO);
    held.release().await.unwrap();
    drop(waiting.await.unwrap());
    assert_within(started, ms(200), ());
}
