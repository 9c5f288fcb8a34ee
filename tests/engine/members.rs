//! The members of a multi-lock, one by one: gone, busy in turns, of one name on several servers.

use std::time::Duration;

use stanchion::{
    AcquireError, Client, Fencing, Lock, Lockable, LostReason, MultiLock, Rejection, ReleaseError,
};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use tokio::time::{Instant, timeout};

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

fn multi(locks: &[Lock]) -> MultiLock {
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn when_one_member_is_gone_the_end_of_the_guard_frees_the_others() {
    for drops in [false, true] {
        let world = World::engine();
        let client = world.client().await;
        let both = multi(&[lock(&client, "a"), lock(&client, "b"), lock(&client, "c")]);
        let guard = both.acquire().await.unwrap();
        let _ = world.admin(&["DEL", "b"]);
        assert_eq!(guard.lost().await, LostReason::Gone);
        assert_eq!(world.keys(), ["a", "c"], "its work may still run");
        let started = Instant::now();
        if drops {
            drop(guard);
        } else {
            let error = guard.release().await.unwrap_err();
            assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
        }
        world.at_rest().await;
        assert!(started.elapsed() < ms(100), "{:?}", started.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_member_that_mints_no_tokens_shows_none() {
    let world = World::engine();
    let client = world.client().await;
    let quiet = lock(&client, "b").with_fencing(Fencing::Off);
    let guard = multi(&[lock(&client, "a"), quiet.clone(), lock(&client, "c")])
        .acquire()
        .await
        .unwrap();
    assert_eq!(guard.fencing_token("b"), None);
    assert!(guard.fencing_token("a").is_some());
    assert_eq!(guard.fencing_token("a"), guard.fencing_token("c"));
    guard.release().await.unwrap();
    let guard = multi(&[quiet]).acquire().await.unwrap();
    assert_eq!(guard.fencing_token("b"), None);
}

/// Holds `lock` for 20 ms of every 25, for ever.
async fn comes_and_goes(lock: Lock, phase: Duration) {
    tokio::time::sleep(phase).await;
    loop {
        let guard = lock.acquire().await.unwrap();
        tokio::time::sleep(ms(20)).await;
        guard.release().await.unwrap();
        tokio::time::sleep(ms(5)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn holders_who_overlap_do_not_starve_it() {
    let world = World::engine();
    let (ours, theirs) = (world.client().await, world.client().await);
    // At every moment at least one of the two is held.
    let others = [
        tokio::spawn(comes_and_goes(lock(&theirs, "a"), ms(0))),
        tokio::spawn(comes_and_goes(lock(&theirs, "b"), ms(12))),
    ];
    let both = multi(&[lock(&ours, "a"), lock(&ours, "b")]);
    for _ in 0..5 {
        let guard = timeout(Duration::from_secs(2), both.acquire()).await;
        guard.expect("it starves").unwrap().release().await.unwrap();
        tokio::time::sleep(ms(100)).await;
    }
    for other in others {
        other.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_held_while_one_member_is_waited_for_however_long() {
    let world = World::engine();
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = lock(&theirs, "b").acquire().await.unwrap();
    let both = multi(&[lock(&ours, "a"), lock(&ours, "b"), lock(&ours, "c")]);
    let waiter = tokio::spawn(async move { both.acquire().await.unwrap() });
    eventually("it waits", || ours.waiters() == 1).await;
    for _ in 0..100 {
        tokio::time::sleep(Duration::from_secs(3)).await;
        assert_eq!(world.keys(), ["b", "stanchion_line:{b}"]);
    }
    held.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

/// Two processes that take one name on two servers, each in what it takes for the order.
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
        let done = timeout(Duration::from_secs(60), task).await;
        assert!(done.is_ok(), "each holds what the other waits for");
        done.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_name_on_two_servers_is_taken_in_one_order_by_clients_that_saw_them_differently() {
    let (first, second) = (World::engine(), World::engine());
    for world in [&first, &second] {
        world.as_engine().faults().delay(None, ms(5));
    }
    let (mine, yours) = (first.client().await, second.client().await);
    for _ in 0..12 {
        // As after a failover or a restart: who connects now is told another identity than who connected before.
        first
            .as_engine()
            .faults()
            .restart(stanchion::embedded::Data::Kept);
        eventually("connected again", || mine.is_connected()).await;
        let (a, b) = (first.client().await, second.client().await);
        never_deadlock([&mine, &yours], [&a, &b]).await;
        never_deadlock([&b, &a], [&mine, &yours]).await;
    }
}

#[tokio::test(start_paused = true)]
async fn one_name_in_two_databases_of_a_server_is_taken_in_one_order() {
    let world = World::engine();
    world.as_engine().faults().delay(None, ms(5));
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
    let world = World::engine();
    let (a, b) = (world.client().await, world.client().await);
    let twice = multi(&[lock(&a, "job"), lock(&b, "job")]);
    let refused = timeout(Duration::from_secs(60), twice.acquire()).await;
    let error = refused.expect("it waits for itself").unwrap_err();
    assert!(
        matches!(
            &error,
            AcquireError::Rejected {
                rejection: Rejection::InvalidOption { .. },
                ..
            }
        ),
        "{error}"
    );
    world.at_rest().await;
}
