//! P4: messages that cross requests, and the life of a subscription. `virtual/lost_messages` has the cases of all kinds.

use std::time::Duration;

use stanchion::{AcquireError, Client, Lock, LockGuard};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_within, ms, secs};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const CHANNEL: &str = "redisson_lock__channel:{job}";

type Waiter = JoinHandle<Result<LockGuard, AcquireError>>;

fn lock(client: &Client) -> Lock {
    Lock::new(client, "job").unwrap()
}

/// Releases `held`, and returns the time until the waiter has the lock.
async fn pass_on(held: LockGuard, waiting: Waiter) -> Duration {
    let started = Instant::now();
    held.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    started.elapsed()
}

async fn holder_and_waiter(world: &World) -> (Client, Client, LockGuard, Waiter) {
    let ours = world.named("ours").await;
    let theirs = world.named("theirs").await;
    // The server knows the scripts, so that each request is one round trip.
    let known = lock(&ours).acquire().await.unwrap();
    known.release().await.unwrap();
    let held = lock(&ours).acquire().await.unwrap();
    let waiting = tokio::spawn(lock(&theirs).acquire());
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    (ours, theirs, held, waiting)
}

#[tokio::test(start_paused = true)]
async fn a_message_during_a_request_makes_the_waiter_retry() {
    let world = World::engine();
    let (_ours, _theirs, held, waiting) = holder_and_waiter(&world).await;
    let faults = world.faults();
    // A stray message makes the waiter send a request. The reply, busy, takes 50 ms.
    let _ = world.admin(&["PUBLISH", CHANNEL, "0"]);
    let before = world.scripts_run();
    faults.delay(Some("theirs"), ms(50));
    eventually("the request is sent", || world.scripts_run() > before).await;
    // The lock is released now, and the message overtakes that reply.
    faults.delay(Some("theirs"), Duration::ZERO);
    let took = pass_on(held, waiting).await;
    assert!(took < ms(100), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_lingering_subscription_wakes_a_new_waiter_before_its_first_reply() {
    let world = World::engine();
    let (ours, theirs, held, waiting) = holder_and_waiter(&world).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    // No waiter is left, and the subscription lingers.
    let held = lock(&ours).acquire().await.unwrap();
    let before = world.scripts_run();
    let faults = world.faults();
    faults.delay(Some("theirs"), ms(50));
    let started = Instant::now();
    let waiting = tokio::spawn(lock(&theirs).acquire());
    eventually("the request is sent", || world.scripts_run() > before).await;
    // The message overtakes the reply, busy.
    faults.delay(Some("theirs"), Duration::ZERO);
    held.release().await.unwrap();
    drop(waiting.await.unwrap().unwrap());
    assert_within(started, ms(200), ());
}

#[tokio::test(start_paused = true)]
async fn a_subscription_ends_after_its_linger_and_not_before() {
    let world = World::engine();
    let (_ours, _theirs, held, waiting) = holder_and_waiter(&world).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    tokio::time::sleep(secs(2)).await;
    assert_eq!(world.subscribers(CHANNEL), 1);
    tokio::time::sleep(secs(2)).await;
    assert_eq!(world.subscribers(CHANNEL), 0);
}

#[tokio::test(start_paused = true)]
async fn a_subscription_requested_while_it_ends_is_restored() {
    let world = World::engine();
    let (ours, theirs, held, waiting) = holder_and_waiter(&world).await;
    held.release().await.unwrap();
    waiting.await.unwrap().unwrap().release().await.unwrap();
    // A new waiter arrives at many points around the end of the linger time. Slow replies widen the window.
    world.faults().delay(None, ms(7));
    for offset in (2_960..3_060).step_by(4) {
        tokio::time::sleep(ms(offset)).await;
        let held = lock(&ours).acquire().await.unwrap();
        let waiting = tokio::spawn(lock(&theirs).acquire());
        tokio::time::sleep(ms(500)).await;
        assert_eq!(world.subscribers(CHANNEL), 1, "{offset}");
        let started = Instant::now();
        held.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        assert_within(started, ms(100), offset);
    }
}
