//! Tests latches with idle expiry (`CountDownLatch::ephemeral`).

use std::time::Duration;

use stanchion::{AcquireError, Event, Rejection};
use stanchion_testkit::eventually;
use stanchion_tests::idle::latch::*;
use stanchion_tests::idle::ttl;
use stanchion_tests::{World, ms, secs};
use tokio::time::sleep;

suite! {
    an_unused_latch_expires_and_leaves_nothing,
    every_use_restarts_the_idle_time,
    the_arm_that_closes_the_latch_sets_the_idle_time,
    a_request_of_a_waiter_extends_the_ttl_and_never_shortens_it,
    a_waiter_of_an_expired_latch_gets_an_error,
    a_latch_that_redisson_arms_does_not_expire,
    an_expiry_is_reported_as_an_event,
}

const CHANNEL: &str = "redisson_countdownlatch__channel__{job}";
const IDLE: &str = "stanchion_latch_idle:{job}";
/// The TTL in milliseconds that a waiter's request gives a latch, by default.
const KEPT: i64 = 70_000;

/// Waits until only marks of operations are left, which expire within seconds.
async fn is_gone(world: &World) {
    eventually("only marks of operations are left", || {
        world
            .keys()
            .iter()
            .all(|key| key.starts_with("stanchion_once:"))
    })
    .await;
}

async fn an_unused_latch_expires_and_leaves_nothing(world: &World) {
    let ours = world.client().await;
    let second = secs(1);
    assert!(ephemeral(&ours, second).arm(3).await.unwrap());
    ends_in(world, "job", 1000);
    ends_in(world, IDLE, 61_000);
    sleep(second + ms(20)).await;
    assert_eq!(plain(&ours).count().await.unwrap(), 0);
    // For later calls the latch is not armed.
    sleep(ms(20)).await;
    plain(&ours).wait().await.unwrap();
    assert_eq!(plain(&ours).count_down().await.unwrap(), 0);
    assert!(!plain(&ours).danger().delete().await.unwrap());
    // The next latch is a new one, without idle expiry.
    assert!(plain(&ours).arm(1).await.unwrap());
    assert_eq!(ttl(world, "job"), -1);
    assert_eq!(ttl(world, IDLE), -2);
    plain(&ours).count_down().await.unwrap();
    is_gone(world).await;
}

async fn every_use_restarts_the_idle_time(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    assert!(ephemeral(&ours, LONG).arm(3).await.unwrap());
    ends_in(world, "job", 1_000_000);
    age(world, 10_000);
    // A handle without the option is a use, too.
    assert_eq!(plain(&theirs).count_down().await.unwrap(), 2);
    ends_in(world, "job", 1_000_000);
    ends_in(world, IDLE, 1_060_000);
    age(world, 10_000);
    assert!(!plain(&theirs).arm(7).await.unwrap());
    ends_in(world, "job", 1_000_000);
    age(world, 10_000);
    let waited = plain(&theirs).wait_timeout(Duration::ZERO).await;
    assert!(matches!(waited, Err(AcquireError::TimedOut { .. })));
    ends_in(world, "job", 1_000_000);
    age(world, 10_000);
    // Reading the count is not a use.
    assert_eq!(plain(&theirs).count().await.unwrap(), 2);
    ends_in(world, "job", 10_000);
}

async fn the_arm_that_closes_the_latch_sets_the_idle_time(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(3).await.unwrap());
    assert!(!ephemeral(&ours, 2 * LONG).arm(3).await.unwrap());
    ends_in(world, "job", 1_000_000);
    assert!(plain(&ours).danger().delete().await.unwrap());
    assert_eq!(ttl(world, IDLE), -2);
    assert!(plain(&ours).arm(3).await.unwrap());
    assert!(!ephemeral(&ours, LONG).arm(3).await.unwrap());
    assert_eq!((ttl(world, "job"), ttl(world, IDLE)), (-1, -2));
}

async fn a_request_of_a_waiter_extends_the_ttl_and_never_shortens_it(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(1).await.unwrap());
    let poll_once = async || {
        let waited = plain(&ours).wait_timeout(Duration::ZERO).await;
        assert!(matches!(waited, Err(AcquireError::TimedOut { .. })));
    };
    poll_once().await;
    ends_in(world, "job", 1_000_000);
    plain(&ours).count_down().await.unwrap();
    let short = secs(1);
    assert!(ephemeral(&ours, short).arm(2).await.unwrap());
    poll_once().await;
    ends_in(world, "job", KEPT);
    ends_in(world, IDLE, KEPT + 60_000);
    plain(&ours).count_down().await.unwrap();
    ends_in(world, "job", KEPT);
}

async fn a_waiter_of_an_expired_latch_gets_an_error(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(1).await.unwrap());
    let waiter = waiting(&ours);
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    // Ends the idle time and deletes the key in one script, because a request in between would extend the TTL.
    let end = "local time = redis.call('TIME')
        local ends = string.format('%.0f', math.floor((time[1] * 1000000 + time[2]) / 1000))
        redis.call('SET', KEYS[2], '1000000 ' .. ends)
        return redis.call('DEL', KEYS[1])";
    let _ = world.admin(&["EVAL", end, "2", "job", IDLE]);
    let _ = world.admin(&["PUBLISH", CHANNEL, "1"]);
    let outcome = waiter.await.unwrap();
    let deleted = matches!(
        &outcome,
        Err(AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        })
    );
    assert!(deleted, "{outcome:?}");
    sleep(ms(20)).await;
    plain(&ours).wait().await.unwrap();
}

async fn a_latch_that_redisson_arms_does_not_expire(world: &World) {
    let ours = world.client().await;
    assert!(ephemeral(&ours, LONG).arm(2).await.unwrap());
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["SET", "job", "2"]);
    assert!(ttl(world, IDLE) > 0);
    assert_eq!(plain(&ours).count_down().await.unwrap(), 1);
    assert_eq!((ttl(world, "job"), ttl(world, IDLE)), (-1, -2));
}

async fn an_expiry_is_reported_as_an_event(world: &World) {
    let ours = world.client().await;
    let mut events = plain(&ours).events();
    assert!(matches!(events.next().await, Some(Event::Now(_))));
    let second = secs(1);
    assert!(ephemeral(&ours, second).arm(2).await.unwrap());
    assert_eq!(events.next().await, Some(Event::Armed(2)));
    assert_eq!(events.next().await, Some(Event::Deleted));
}
