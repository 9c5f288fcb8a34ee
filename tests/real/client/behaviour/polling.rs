//! Tests `Wake::Poll`, for servers without pub/sub: waiters poll and never subscribe.

use stanchion::client::Wake;
use stanchion::{AcquireError, AcquireOptions, Client, Lock, Renewal};
use stanchion_testkit::eventually;
use stanchion_tests::{World, lease, ms, secs};

suite! {
    a_waiter_acquires_by_polling_and_never_subscribes,
    polls_become_less_frequent,
    a_polling_waiter_acquires_an_expired_hold,
}

/// The lock of a client that is subscribed, and of one that polls.
async fn two(world: &World) -> [Lock; 2] {
    let polling = world.config("polling").wake(Wake::Poll);
    let polling = Client::connect_with(polling).await.unwrap();
    [world.client().await, polling].map(|client| Lock::new(&client, "job").unwrap())
}

async fn a_waiter_acquires_by_polling_and_never_subscribes(world: &World) {
    let [subscribed, polling] = two(world).await;
    let held = subscribed.acquire().await.unwrap();
    let before = world.scripts_run();
    let waiting = tokio::spawn(polling.acquire());
    eventually("the waiter polls", || world.scripts_run() > before + 3).await;
    assert_eq!(world.subscribers("redisson_lock__channel:{job}"), 0);
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn polls_become_less_frequent(world: &World) {
    let [subscribed, polling] = two(world).await;
    let held = subscribed.acquire().await.unwrap();
    let before = world.scripts_run();
    let error = polling.acquire_timeout(secs(2)).await;
    let AcquireError::TimedOut { waited, .. } = error.unwrap_err() else {
        panic!("timed out")
    };
    assert!(waited >= secs(2), "P9: {waited:?}");
    // Pauses double from 1 ms to 128 ms, and jitter halves them at most: about 8 polls, and then at most one every 64 ms.
    let polls = world.scripts_run() - before;
    // On a busy machine each poll takes longer. The engine's polls take no time.
    let is_exact = matches!(world, World::Engine(_));
    let least = if is_exact { 10 } else { 2 };
    assert!((least..=45).contains(&polls), "{polls}");
    drop(held);
    world.at_rest().await;
}

async fn a_polling_waiter_acquires_an_expired_hold(world: &World) {
    let [subscribed, polling] = two(world).await;
    let brief = lease(ms(400));
    let options = AcquireOptions::new().lease(brief).renewal(Renewal::Manual);
    let dead = subscribed.acquire_with(options).await.unwrap();
    let patience = secs(60);
    let _taken = polling.acquire_timeout(patience).await.unwrap();
    assert!(!dead.is_held(), "P1");
}
