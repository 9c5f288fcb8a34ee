//! Tests of the members of a multi-lock: members that are busy in turns, and one name on several servers.

use std::time::Duration;

use stanchion::{AcquireError, Client, Lock, Lockable, MultiLock, Rejection};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_is, ms, secs, spawn_ok};
use tokio::time::timeout;

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

fn multi(locks: &[Lock]) -> MultiLock {
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

/// Holds `lock` for 20 ms of every 25 ms, in a loop.
async fn hold_repeatedly(lock: Lock, phase: Duration) {
    tokio::time::sleep(phase).await;
    loop {
        let guard = lock.acquire().await.unwrap();
        tokio::time::sleep(ms(20)).await;
        guard.release().await.unwrap();
        tokio::time::sleep(ms(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn overlapping_holders_do_not_starve_a_multi_lock() {
    let (_world, [ours, theirs]) = World::engine().with_clients().await;
    // At every moment at least one of the two is held.
    let others = [
        tokio::spawn(hold_repeatedly(lock(&theirs, "a"), ms(0))),
        tokio::spawn(hold_repeatedly(lock(&theirs, "b"), ms(12))),
    ];
    let both = multi(&[lock(&ours, "a"), lock(&ours, "b")]);
    for _ in 0..5 {
        let guard = timeout(secs(2), both.acquire()).await;
        guard.expect("starved").unwrap().release().await.unwrap();
        tokio::time::sleep(ms(100)).await;
    }
    for other in others {
        other.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_holds_no_member_while_it_waits() {
    let (world, [ours, theirs]) = World::engine().with_clients().await;
    let held = lock(&theirs, "b").acquire().await.unwrap();
    let waiter = spawn_ok(multi(&[lock(&ours, "a"), lock(&ours, "b"), lock(&ours, "c")]).acquire());
    eventually("it waits", || ours.waiters() == 1).await;
    for _ in 0..100 {
        tokio::time::sleep(secs(3)).await;
        assert_eq!(world.keys(), ["b", "stanchion_line:{b}"]);
    }
    held.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

/// Lets two processes acquire one name on two servers. A deadlock shows that they do not use the same order.
async fn never_deadlock(ours: [&Client; 2], theirs: [&Client; 2]) {
    let tasks = [ours, theirs].map(|clients| {
        let both = multi(&clients.map(|client| lock(client, "job")));
        tokio::spawn(async move {
            for _ in 0..3 {
                both.acquire().await.unwrap().release().await.unwrap();
            }
        })
    });
    for task in tasks {
        let done = timeout(secs(60), task).await;
        assert!(done.is_ok(), "the two processes deadlock");
        done.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn clients_that_know_different_server_identities_lock_in_the_same_order() {
    let (first, second) = (World::engine(), World::engine());
    for world in [&first, &second] {
        world.faults().delay(None, ms(5));
    }
    let (mine, yours) = (first.client().await, second.client().await);
    for _ in 0..12 {
        // As after a failover or a restart: the server gives new clients another identity than earlier ones.
        first.faults().restart(stanchion::embedded::Data::Kept);
        eventually("connected again", || mine.is_connected()).await;
        let (a, b) = (first.client().await, second.client().await);
        never_deadlock([&mine, &yours], [&a, &b]).await;
        never_deadlock([&b, &a], [&mine, &yours]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn clients_lock_one_name_in_two_databases_in_the_same_order() {
    let world = World::engine();
    world.faults().delay(None, ms(5));
    let database = async |number| {
        let mut config = world.config("client");
        config.database = Some(number);
        Client::connect_with(config).await.unwrap()
    };
    for _ in 0..12 {
        let (a, b) = (database(0).await, database(1).await);
        let (c, d) = (database(0).await, database(1).await);
        never_deadlock([&a, &b], [&c, &d]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_name_through_two_clients_of_a_server_is_refused() {
    let (world, [a, b]) = World::engine().with_clients().await;
    let twice = multi(&[lock(&a, "job"), lock(&b, "job")]);
    let refused = timeout(secs(60), twice.acquire()).await;
    let error = refused.expect("a self-deadlock").unwrap_err();
    assert_is!(
        error,
        AcquireError::Rejected {
            rejection: Rejection::InvalidOption { .. },
            ..
        }
    );
    world.at_rest().await;
}
