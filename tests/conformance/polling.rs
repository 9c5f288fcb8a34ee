//! `Wake::Poll`: waiters on servers without pub/sub.

use std::time::Duration;

use stanchion::{AcquireError, Client, Lease, Lock, LockGuard, Wake};
use stanchion_tests::World;

suite! {
    a_waiter_without_messages_acquires_by_asking,
    nobody_subscribes,
    the_pace_slows_down,
    a_deadline_is_kept,
    an_expired_hold_is_noticed,
}

const CHANNEL: &str = "redisson_lock__channel:{job}";

async fn held_by_another(world: &World) -> LockGuard {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    lock.acquire().await.unwrap()
}

async fn polling(world: &World) -> Client {
    Client::connect_with(world.config("polling").wake(Wake::Poll))
        .await
        .unwrap()
}

async fn a_waiter_without_messages_acquires_by_asking(world: &World) {
    let held = held_by_another(world).await;
    let lock = Lock::new(&polling(world).await, "job").unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    let asked = world.scripts_run();
    stanchion_testkit::eventually_async("it asks again and again", async || {
        world.scripts_run() > asked + 3
    })
    .await;
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn nobody_subscribes(world: &World) {
    let client = polling(world).await;
    let lock = Lock::new(&client, "job").unwrap();
    let held = lock.acquire().await.unwrap();
    assert!(
        lock.acquire_timeout(Duration::from_millis(300))
            .await
            .is_err()
    );
    assert_eq!(world.subscribers(CHANNEL), 0);
    drop(held);
    world.at_rest().await;
}

async fn the_pace_slows_down(world: &World) {
    let held = held_by_another(world).await;
    let lock = Lock::new(&polling(world).await, "job").unwrap();
    let before = world.scripts_run();
    assert!(lock.acquire_timeout(Duration::from_secs(2)).await.is_err());
    // Pauses of 1, 2, 4 .. 128 ms, each between half and the whole: about 8 and then at most one each 64 ms.
    let asked = world.scripts_run() - before;
    assert!((10..=45).contains(&asked), "{asked}");
    drop(held);
    world.at_rest().await;
}

async fn a_deadline_is_kept(world: &World) {
    let held = held_by_another(world).await;
    let lock = Lock::new(&polling(world).await, "job").unwrap();
    let error = lock
        .acquire_timeout(Duration::from_millis(200))
        .await
        .unwrap_err();
    let AcquireError::TimedOut { waited, .. } = error else {
        panic!("{error}")
    };
    assert!(waited >= Duration::from_millis(200), "{waited:?}");
    drop(held);
    world.at_rest().await;
}

async fn an_expired_hold_is_noticed(world: &World) {
    let dead = Lock::new(&world.client().await, "job")
        .unwrap()
        .with_lease(Lease::new(Duration::from_millis(400)).unwrap())
        .acquire_with(stanchion::AcquireOptions::new().renewal(stanchion::Renewal::Manual))
        .await
        .unwrap();
    let lock = Lock::new(&polling(world).await, "job").unwrap();
    let taken = lock.acquire_timeout(Duration::from_secs(20)).await.unwrap();
    assert!(!dead.is_held(), "P1");
    drop((dead, taken));
    world.at_rest().await;
}
