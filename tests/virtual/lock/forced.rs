//! Tests how soon a holder notices a forced release: by a message, and by its next renewal without one.

use std::time::Duration;

use stanchion::client::Wake;
use stanchion::{AcquireOptions, Client, Lock, LostReason, Renewal};
use stanchion_tests::{World, ms, secs};
use tokio::time::Instant;

/// Releases a hold of `client` by force after 3 s. Returns the time until the holder notices.
async fn notices_after(world: &World, client: &Client, options: AcquireOptions) -> Duration {
    let lock = Lock::new(client, "job").unwrap();
    let guard = lock.acquire_with(options).await.unwrap();
    tokio::time::sleep(secs(3)).await;
    let other = Lock::new(&world.client().await, "job").unwrap();
    let forced = Instant::now();
    assert!(other.danger().force_release().await.unwrap());
    guard.lost().await;
    forced.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_message_or_the_next_renewal_notifies_the_holder_of_a_forced_release() {
    let automatic = AcquireOptions::new();
    let manual = AcquireOptions::new().renewal(Renewal::Manual);
    for (options, wake, earliest, latest) in [
        // The message, and the request that confirms it. Each takes 5 ms.
        (automatic.clone(), Wake::Messages, 0, 30),
        (manual, Wake::Messages, 0, 30),
        (automatic, Wake::Poll, 6_000, 8_000),
    ] {
        let world = World::slow_engine();
        let client = world.configured("client", |it| it.wake(wake)).await;
        let took = notices_after(&world, &client, options).await.as_millis();
        assert!((earliest..latest).contains(&took), "{wake:?}: {took} ms");
        let subscribes = u64::from(wake == Wake::Messages);
        assert_eq!(world.as_engine().stats().subscriptions as u64, subscribes);
    }
}

#[tokio::test(start_paused = true)]
async fn the_next_renewal_notices_a_forced_release_after_a_lost_message() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(secs(3)).await;
    // The messages to the waiters and to the holder.
    world.faults().lose_messages(2);
    let forced = Instant::now();
    assert!(lock.danger().force_release().await.unwrap());
    assert_eq!(guard.lost().await, LostReason::Gone);
    let took = forced.elapsed();
    assert!(took > secs(6) && took < secs(8), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_that_the_server_does_not_confirm_is_no_loss() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(secs(3)).await;
    let faults = world.faults();
    faults.fail_next("evalsha", "LOADING not now", 1);
    let number = guard.owner().to_string();
    let number = number.rsplit(':').next().unwrap().to_owned();
    let channel = format!("stanchion_notice:{}", client.id());
    let _ = world.admin(&["PUBLISH", &channel, &format!("gone {number}")]);
    tokio::time::sleep(secs(60)).await;
    assert!(guard.is_held(), "P5: the server did not confirm the loss");
}

#[tokio::test(start_paused = true)]
async fn short_holds_cost_two_commands_and_no_subscription() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    // Loads the scripts.
    lock.acquire().await.unwrap().release().await.unwrap();
    let before = world.as_engine().stats();
    for _ in 0..100 {
        let guard = lock.acquire().await.unwrap();
        guard.release().await.unwrap();
    }
    let after = world.as_engine().stats();
    assert_eq!(after.commands - before.commands, 200);
    for _ in 0..100 {
        let guard = lock.acquire().await.unwrap();
        tokio::time::sleep(ms(500)).await;
        guard.release().await.unwrap();
    }
    let after = world.as_engine().stats();
    assert_eq!(after.count("SUBSCRIBE"), 0);
    // The first long hold subscribes, once for all later ones.
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        tokio::time::sleep(secs(2)).await;
        guard.release().await.unwrap();
    }
    assert_eq!(world.as_engine().stats().count("SUBSCRIBE"), 1);
    assert_eq!(world.as_engine().stats().subscriptions, 1);
}

#[tokio::test(start_paused = true)]
async fn a_holder_subscribes_again_after_a_lost_connection() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(secs(3)).await;
    world.faults().kill_connections();
    tokio::time::sleep(secs(3)).await;
    let forced = Instant::now();
    assert!(lock.danger().force_release().await.unwrap());
    guard.lost().await;
    assert!(forced.elapsed() < ms(10));
}

#[tokio::test(start_paused = true)]
async fn a_release_request_reaches_the_current_hold_only() {
    let (_world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    let watching = tokio::spawn(guard.requested());
    tokio::time::sleep(secs(2)).await;
    drop(guard);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(lock.request_release("x").await.unwrap().heard, 1);
    tokio::time::sleep(secs(1)).await;
    assert!(!watching.is_finished(), "its hold ended without a request");
    assert_eq!(guard.request().unwrap().reason, "x");
    guard.release().await.unwrap();
    let report = client.shutdown(secs(1)).await;
    assert!(report.is_clean());
}
