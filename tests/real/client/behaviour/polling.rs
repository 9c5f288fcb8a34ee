//! Tests `Wake::Poll`, for servers without pub/sub: waiters poll and never subscribe.

use stanchion::client::Wake;
use stanchion::{AcquireError, Client, Lock};
use stanchion_tests::{World, secs};

suite! {
    polls_become_less_frequent,
}

/// The lock of a client that is subscribed, and of one that polls.
async fn two(world: &World) -> [Lock; 2] {
    let polling = world.config("polling").wake(Wake::Poll);
    let polling = Client::connect_with(polling).await.unwrap();
    [world.client().await, polling].map(|client| Lock::new(&client, "job").unwrap())
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
    assert_eq!(world.subscribers("redisson_lock__channel:{job}"), 0);
    drop(held);
    world.at_rest().await;
}
