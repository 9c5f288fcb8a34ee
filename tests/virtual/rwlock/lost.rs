//! Tests lost replies and messages: a resent request takes effect once (P6), and a lost message costs one poll interval at most (P4).

use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Client};
use stanchion_tests::{LostReply, World};
use tokio::time::Instant;

use super::{CHANNEL, preferring, rwlock, warm};

/// The default poll interval.
const POLL: Duration = Duration::from_secs(5);

async fn world() -> (World, Client) {
    let world = World::engine();
    let client = world.client().await;
    warm(&client).await;
    world.at_rest().await;
    world.quiet().await;
    (world, client)
}

#[tokio::test(start_paused = true)]
async fn an_acquire_with_a_lost_reply_holds_once() {
    for way in LostReply::WAYS {
        let (world, client) = world().await;
        let lock = rwlock(&client);
        let other = lock.read().await.unwrap();
        world.lose_next_reply(way);
        let reading = lock.read().await.unwrap();
        world.lose_next_reply(way);
        let tried = lock.try_read().await.unwrap().unwrap();
        let status = lock.status().await.unwrap();
        assert_eq!(status.reader_count, 3, "{way:?}");
        assert!(status.readers.iter().all(|reader| reader.hold_count == 1));
        drop((other, reading, tried));
        world.at_rest().await;
        world.lose_next_reply(way);
        let writing = lock.write().await.unwrap();
        let status = lock.status().await.unwrap();
        assert_eq!(status.writer.unwrap().hold_count, 1, "{way:?}");
        assert_eq!(status.last_token, writing.fencing_token());
        world.lose_next_reply(way);
        let options = AcquireOptions::new().owner(writing.owner());
        let nested = lock.read_with(options).await.unwrap();
        assert_eq!(lock.status().await.unwrap().reader_count, 1);
        writing.release().await.unwrap();
        nested.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn re_entries_and_partial_releases_with_lost_replies_count_once() {
    for way in LostReply::WAYS {
        let (world, client) = world().await;
        let lock = rwlock(&client);
        let reading = lock.read().await.unwrap();
        world.lose_next_reply(way);
        let again = reading.reenter().await.unwrap();
        let count = async || lock.status().await.unwrap().readers[0].hold_count;
        assert_eq!(count().await, 2, "{way:?}");
        world.lose_next_reply(way);
        again.release().await.unwrap();
        assert_eq!(count().await, 1, "{way:?}");
        reading.release().await.unwrap();
        let writing = lock.write().await.unwrap();
        world.lose_next_reply(way);
        let again = writing.reenter().await.unwrap();
        let count = async || lock.status().await.unwrap().writer.unwrap().hold_count;
        assert_eq!(count().await, 2, "{way:?}");
        world.lose_next_reply(way);
        again.release().await.unwrap();
        assert_eq!(count().await, 1, "{way:?}");
        writing.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_with_a_lost_reply_extends_the_lease() {
    for way in LostReply::WAYS {
        let (world, client) = world().await;
        let lock = rwlock(&client);
        let reading = lock.read().await.unwrap();
        let end = reading.valid_until();
        world.lose_next_reply(way);
        reading.renew().await.unwrap();
        assert!(reading.valid_until() > end, "{way:?}");
        drop(reading);
        let writing = lock.write().await.unwrap();
        let end = writing.valid_until();
        world.lose_next_reply(way);
        writing.renew().await.unwrap();
        assert!(writing.valid_until() > end, "{way:?}");
        writing.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_with_a_lost_reply_does_not_affect_the_next_holder() {
    for way in LostReply::WAYS {
        let (world, client) = world().await;
        let other = rwlock(&world.client().await);
        let lock = rwlock(&client);
        let reading = lock.read().await.unwrap();
        world.lose_next_reply(way);
        let releasing = tokio::spawn(reading.release());
        let next = other.write().await.unwrap();
        releasing.await.unwrap().unwrap();
        world.quiet().await;
        let holder = async || lock.status().await.unwrap().writer.unwrap().owner;
        assert_eq!(holder().await, next.owner().to_string(), "{way:?}");
        next.release().await.unwrap();

        let writing = lock.write().await.unwrap();
        world.lose_next_reply(way);
        let releasing = tokio::spawn(writing.release());
        let next = other.write().await.unwrap();
        releasing.await.unwrap().unwrap();
        world.quiet().await;
        assert_eq!(holder().await, next.owner().to_string(), "{way:?}");
        next.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_with_a_lost_reply_takes_effect_once() {
    for way in LostReply::WAYS {
        let (world, client) = world().await;
        let lock = rwlock(&client);
        let writing = lock.write().await.unwrap();
        world.lose_next_reply(way);
        let reading = writing.downgrade().await.unwrap();
        let status = lock.status().await.unwrap();
        assert_eq!((status.writer, status.reader_count), (None, 1), "{way:?}");
        assert!(reading.is_held());
        // P5: the guard's lease starts with the second request, so the server's must, too.
        let key = format!("{{job}}:{}:rwlock_timeout:1", status.readers[0].owner);
        for key in ["job", &key] {
            let left: u64 = world.admin(&["PTTL", key]).parse().unwrap();
            assert!(Duration::from_millis(left) > reading.remaining(), "{way:?}");
        }
        let joined = lock.read().await.unwrap();
        reading.release().await.unwrap();
        joined.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn acquires_that_give_up_without_a_reply_leave_nothing() {
    for way in LostReply::WAYS {
        let (world, client) = world().await;
        for writes in [false, true] {
            // Every reply is lost until long after the deadline.
            let faults = world.as_engine().faults();
            match way {
                LostReply::Closed => faults.lose_replies("EVALSHA", 100),
                LostReply::Silent => faults.lose_replies_silently("EVALSHA", 100),
            }
            let lock = preferring(&client);
            let patience = Duration::from_millis(300);
            let error = if writes {
                lock.write_timeout(patience).await.unwrap_err()
            } else {
                lock.read_timeout(patience).await.unwrap_err()
            };
            let is_expected = matches!(
                error,
                AcquireError::TimedOut {
                    free_by: Some(_),
                    ..
                } | AcquireError::Ambiguous { .. }
            );
            assert!(is_expected, "{error}");
            faults.clear();
            let started = Instant::now();
            world.at_rest().await;
            assert!(
                started.elapsed() < Duration::from_secs(10),
                "swept, not expired"
            );
            // R2: no late request leaves anything either.
            tokio::time::sleep(Duration::from_secs(20)).await;
            assert!(world.keys().is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn requests_that_run_after_their_callers_gave_up_acquire_nothing() {
    let (world, client) = world().await;
    let other = world.client().await;
    let reading = preferring(&other).read().await.unwrap();
    let faults = world.as_engine().faults();
    // The requests run when the network thaws, long after their callers gave up. `not_after` rejects them (P3).
    faults.freeze(None);
    let lock = preferring(&client);
    let patience = Duration::from_millis(100);
    drop(lock.read_timeout(patience).await.unwrap_err());
    drop(lock.write_timeout(patience).await.unwrap_err());
    tokio::time::sleep(Duration::from_secs(40)).await;
    drop(reading);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(world.keys().is_empty());
    faults.thaw(None);
    // `thaw` has run the late requests.
    assert!(world.keys().is_empty(), "a late request acquired the lock");
    lock.write().await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_delays_readers_and_writers_by_one_poll_interval_at_most() {
    for writes in [false, true] {
        let (world, client) = world().await;
        let held = rwlock(&client).write().await.unwrap();
        let other = world.client().await;
        let waiters: Vec<_> = (0..3)
            .map(|_| {
                let lock = rwlock(&other);
                tokio::spawn(async move {
                    if writes {
                        lock.write().await.unwrap().release().await.unwrap();
                    } else {
                        lock.read().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        world.waiting(&other, 3, CHANNEL).await;
        world.as_engine().faults().lose_messages(1);
        let started = Instant::now();
        held.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        let elapsed = started.elapsed();
        assert!(elapsed <= POLL + Duration::from_millis(100), "{elapsed:?}");
        assert!(
            elapsed > Duration::from_millis(100),
            "the message was not lost"
        );
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_send_requests_when_their_lost_subscription_is_restored() {
    let (world, client) = world().await;
    let other = world.client().await;
    let held = rwlock(&client).write().await.unwrap();
    let waiters: Vec<_> = (0..5)
        .map(|_| {
            let lock = rwlock(&other);
            tokio::spawn(async move { lock.read().await.unwrap() })
        })
        .collect();
    world.waiting(&other, 5, CHANNEL).await;
    world.as_engine().faults().kill_subscribers();
    let started = Instant::now();
    held.release().await.unwrap();
    let mut reading = Vec::new();
    for waiter in waiters {
        reading.push(waiter.await.unwrap());
    }
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    drop(reading);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_notices_a_release_between_its_attempt_and_its_subscription() {
    let world = World::engine();
    let ours = world.named("ours").await;
    let theirs = world.named("theirs").await;
    warm(&ours).await;
    world.at_rest().await;
    let held = rwlock(&ours).write().await.unwrap();
    // Every reply to the waiter takes 20 ms, so the reply to the first attempt arrives before the subscription is confirmed.
    world
        .as_engine()
        .faults()
        .delay(Some("theirs"), Duration::from_millis(20));
    let lock = rwlock(&theirs);
    let started = Instant::now();
    let waiting = tokio::spawn(async move { lock.read().await.unwrap() });
    world.subscribed(CHANNEL).await;
    world.as_engine().faults().lose_messages(1);
    held.release().await.unwrap();
    drop(waiting.await.unwrap());
    assert!(
        started.elapsed() < Duration::from_millis(200),
        "{:?}",
        started.elapsed()
    );
}
