//! Costs of a holder that hears of its end, and its fate when it cannot.

use std::time::Duration;

use stanchion::{AcquireOptions, Client, Lock, LostReason, Renewal, Wake};
use stanchion_tests::World;
use tokio::time::Instant;

const fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

/// Forces a holder of `client` away after it has held for three seconds. Returns the time until it knows.
async fn forced_away(world: &World, client: &Client, options: AcquireOptions) -> Duration {
    let lock = Lock::new(client, "job").unwrap();
    let guard = lock.acquire_with(options).await.unwrap();
    tokio::time::sleep(seconds(3)).await;
    let other = Lock::new(&world.client().await, "job").unwrap();
    let forced = Instant::now();
    assert!(other.danger().force_release().await.unwrap());
    guard.lost().await;
    forced.elapsed()
}

#[tokio::test(start_paused = true)]
async fn it_takes_a_round_trip_and_not_a_third_of_the_lease() {
    let world = World::slow_engine();
    let client = world.client().await;
    let took = forced_away(&world, &client, AcquireOptions::new()).await;
    // The message, and the question whether it is true: 5 ms for each reply.
    assert!(took < Duration::from_millis(30), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_is_not_renewed_hears_of_it_and_is_not_lengthened() {
    let world = World::engine();
    let client = world.client().await;
    let manual = AcquireOptions::new().renewal(Renewal::Manual);
    let took = forced_away(&world, &client, manual).await;
    assert!(took < Duration::from_millis(10), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn without_messages_the_next_renewal_finds_out() {
    let world = World::engine();
    let config = world.config("client").wake(Wake::Poll);
    let client = Client::connect_with(config).await.unwrap();
    let took = forced_away(&world, &client, AcquireOptions::new()).await;
    assert!(took > seconds(6) && took < seconds(8), "{took:?}");
    assert_eq!(world.as_engine().stats().subscriptions, 0);
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_leaves_it_to_the_next_renewal() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(seconds(3)).await;
    // The release, and what is said to the holder.
    world.as_engine().faults().lose_messages(2);
    let forced = Instant::now();
    assert!(lock.danger().force_release().await.unwrap());
    assert_eq!(guard.lost().await, LostReason::Gone);
    let took = forced.elapsed();
    assert!(took > seconds(6) && took < seconds(8), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_message_while_the_server_cannot_be_asked_is_no_loss() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(seconds(3)).await;
    let faults = world.as_engine().faults();
    faults.fail_next("evalsha", "LOADING not now", 1);
    let number = guard.owner().to_string();
    let number = number.rsplit(':').next().unwrap().to_owned();
    let channel = format!("stanchion_notice:{}", client.id());
    let _ = world.admin(&["PUBLISH", &channel, &format!("gone {number}")]);
    tokio::time::sleep(seconds(60)).await;
    assert!(guard.is_held(), "P5: the server has not said so");
}

#[tokio::test(start_paused = true)]
async fn short_holds_subscribe_to_nothing_and_cost_what_they_cost() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    // The script is unknown to the server at first.
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
        tokio::time::sleep(Duration::from_millis(500)).await;
        guard.release().await.unwrap();
    }
    let after = world.as_engine().stats();
    assert_eq!(after.count("SUBSCRIBE"), 0);
    // The first long one subscribes, once for all.
    for _ in 0..3 {
        let guard = lock.acquire().await.unwrap();
        tokio::time::sleep(seconds(2)).await;
        guard.release().await.unwrap();
    }
    assert_eq!(world.as_engine().stats().count("SUBSCRIBE"), 1);
    assert_eq!(world.as_engine().stats().subscriptions, 1);
}

#[tokio::test(start_paused = true)]
async fn it_is_subscribed_again_after_a_lost_connection() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    tokio::time::sleep(seconds(3)).await;
    world.as_engine().faults().kill_connections();
    tokio::time::sleep(seconds(3)).await;
    let forced = Instant::now();
    assert!(lock.danger().force_release().await.unwrap());
    guard.lost().await;
    assert!(forced.elapsed() < Duration::from_millis(10));
}

#[tokio::test(start_paused = true)]
async fn a_request_is_forgotten_with_the_hold_and_watching_keeps_nothing_alive() {
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    let watching = tokio::spawn(guard.requested());
    tokio::time::sleep(seconds(2)).await;
    drop(guard);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(lock.request_release("x").await.unwrap().heard, 1);
    tokio::time::sleep(seconds(1)).await;
    assert!(!watching.is_finished(), "its hold has ended unasked");
    assert_eq!(guard.request().unwrap().reason, "x");
    guard.release().await.unwrap();
    let report = client.shutdown(seconds(1)).await;
    assert!(report.is_clean());
}
