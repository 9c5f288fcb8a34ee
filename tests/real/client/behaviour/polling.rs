//! Tests `Wake::Poll`, for servers without pub/sub: waiters poll and never subscribe.

use std::time::Duration;

use stanchion::client::Wake;
use stanchion::{AcquireError, Client, Lease, Lock, LockGuard};
use stanchion_tests::World;

suite! {
    a_waiter_acquires_by_polling,
    a_polling_client_never_subscribes,
    polls_become_less_frequent,
    a_polling_waiter_keeps_its_deadline,
    a_polling_waiter_acquires_an_expired_hold,
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

async fn a_waiter_acquires_by_polling(world: &World) {
    let held = held_by_another(world).await;
    let lock = Lock::new(&polling(world).await, "job").unwrap();
    let waiting = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    let before = world.scripts_run();
    stanchion_testkit::eventually_async("the waiter polls", async || {
        world.scripts_run() > before + 3
    })
    .await;
    held.release().await.unwrap();
    waiting.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn a_polling_client_never_subscribes(world: &World) {
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

async fn polls_become_less_frequent(world: &World) {
    let held = held_by_another(world).await;
    let lock = Lock::new(&polling(world).await, "job").unwrap();
    let before = world.scripts_run();
    assert!(lock.acquire_timeout(Duration::from_secs(2)).await.is_err());
    // Pauses double from 1 ms to 128 ms, and jitter halves them at most: about 8 polls, and then at most one every 64 ms.
    let polls = world.scripts_run() - before;
    // On a busy machine each poll takes longer. The engine's polls take no time.
    let least = if matches!(world, World::Engine(_)) {
        10
    } else {
        2
    };
    assert!((least..=45).contains(&polls), "{polls}");
    drop(held);
    world.at_rest().await;
}

async fn a_polling_waiter_keeps_its_deadline(world: &World) {
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

async fn a_polling_waiter_acquires_an_expired_hold(world: &World) {
    let dead = Lock::new(&world.client().await, "job")
        .unwrap()
        .lease(Lease::new(Duration::from_millis(400)).unwrap())
        .acquire_with(stanchion::AcquireOptions::new().renewal(stanchion::Renewal::Manual))
        .await
        .unwrap();
    let lock = Lock::new(&polling(world).await, "job").unwrap();
    let taken = lock.acquire_timeout(Duration::from_secs(20)).await.unwrap();
    assert!(!dead.is_held(), "P1");
    drop((dead, taken));
    world.at_rest().await;
}
