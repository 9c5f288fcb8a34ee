//! Tests of token buckets.

use std::time::Duration;

use stanchion::limiter::{Attempt, Grant, Limit, Limited, Waiting};
use stanchion::{Client, LimitError, Quota, RateLimiter, Rejection, TokenBucket};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::{LostReply, World, ms, rejection_of, secs};
use tokio::time::Instant;

use stanchion_tests::limiter::{Record, clock, quota};

const KEY: &str = "stanchion_bucket:{user}";

fn limit(text: &str, burst: u32) -> Limit {
    Limit::new(text.parse().unwrap(), burst).unwrap()
}

fn bucket(client: &Client, text: &str, burst: u32) -> TokenBucket {
    TokenBucket::new(client, "user", limit(text, burst)).unwrap()
}

async fn granted(bucket: &TokenBucket, permits: u32) -> Grant {
    bucket
        .try_acquire_many(permits)
        .await
        .unwrap()
        .granted()
        .unwrap()
}

#[track_caller]
fn limited(attempt: Attempt) -> Limited {
    match attempt {
        Attempt::Limited(limited) => limited,
        other => panic!("the attempt should be limited: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_bucket_grants_its_burst_then_the_rate() {
    let world = World::engine();
    let user = bucket(&world.client().await, "10/s", 5);
    for left in [4, 3, 2, 1, 0] {
        assert_eq!(granted(&user, 1).await.remaining(), left);
    }
    let refused = limited(user.try_acquire().await.unwrap());
    assert_eq!((refused.limit, refused.remaining), (5, 0));
    assert_eq!(
        (refused.retry_after, refused.reset_after),
        (ms(100), ms(500))
    );
    tokio::time::sleep(ms(99)).await;
    assert_eq!(
        limited(user.try_acquire().await.unwrap()).retry_after,
        ms(1)
    );
    tokio::time::sleep(ms(1)).await;
    let _ = granted(&user, 1).await;
    let ttl: u64 = world.admin(&["PTTL", KEY]).parse().unwrap();
    assert_eq!(ttl, 1500, "the time until the bucket is full, plus 1 s");
    tokio::time::sleep(ms(1600)).await;
    assert_eq!(world.keys(), [""; 0]);
    assert_eq!(user.status().await.unwrap().free, 5);
    assert_eq!(world.keys(), [""; 0], "status writes no key");
}

#[tokio::test(start_paused = true)]
async fn waiters_get_the_rate_at_one_command_per_grant() {
    let (world, client) = World::engine().with_client().await;
    let user = bucket(&client, "10/s", 5);
    let record = Record::default();
    let started = Instant::now();
    for _ in 0..64 {
        let (user, record) = (user.clone(), record.clone());
        tokio::spawn(async move {
            loop {
                user.acquire().await.unwrap();
                record.note(started, 1);
            }
        });
    }
    tokio::time::sleep(ms(5_050)).await;
    let (ran, grants) = (world.scripts_run(), record.total());
    tokio::time::sleep(ms(20_000)).await;
    let (ran, grants) = (world.scripts_run() - ran, record.total() - grants);
    assert_eq!(grants, 200);
    assert!((200..=204).contains(&ran), "{ran} commands for 200 grants");
    // The burst, and the permits of one interval.
    record.check(15, ms(1000));
}

#[tokio::test(start_paused = true)]
async fn all_limits_grant_or_nothing_is_taken() {
    let world = World::engine();
    let user = bucket(&world.client().await, "10/s", 10).and(limit("15/m", 15));
    let _ = granted(&user, 10).await;
    tokio::time::sleep(ms(1_000)).await;
    let before = world.dump();
    // The limit per second has 10 free permits, the limit per minute 5.
    let refused = limited(user.try_acquire_many(10).await.unwrap());
    assert_eq!((refused.limit, refused.remaining), (10, 5));
    assert_eq!(world.dump(), before);
    let _ = granted(&user, 5).await;
    // The limit per minute frees its next permit 4 s after the first request. The booking takes a permit of the limit per second
    // at that time, too.
    let started = Instant::now();
    user.clone().horizon(ms(10_000)).acquire().await.unwrap();
    assert!(
        (2_990..=3_010).contains(&started.elapsed().as_millis()),
        "{:?}",
        started.elapsed()
    );
    let stored = world.admin(&["GET", KEY]);
    let second: f64 = stored.split(' ').nth(1).unwrap().parse().unwrap();
    #[expect(clippy::cast_precision_loss, reason = "46 bits")]
    let now = (clock(world.as_engine()) - 1_704_067_200_000) as f64;
    let refill = second / 1000.0 - now;
    assert!((90.0..=100.0).contains(&refill), "full in {refill} ms");
    let error = user.try_acquire_many(11).await.unwrap_err();
    assert!(
        matches!(rejection_of(&error), Rejection::InvalidOption { .. }),
        "{error}"
    );
}

#[tokio::test(start_paused = true)]
async fn a_new_limit_applies_from_the_next_request() {
    let (_world, client) = World::engine().with_client().await;
    let _ = granted(&bucket(&client, "1/m", 10), 10).await;
    limited(bucket(&client, "1/m", 10).try_acquire().await.unwrap());
    // The used permits stay used: the bucket is full again in 10 min, and both new limits allow less.
    limited(bucket(&client, "60/m", 10).try_acquire().await.unwrap());
    let more = bucket(&client, "60/m", 60).and("2/h".parse::<Quota>().unwrap());
    limited(more.try_acquire().await.unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_too_short_timeout_fails_at_once() {
    let world = World::engine();
    let user = bucket(&world.client().await, "1/s", 1);
    let _ = granted(&user, 1).await;
    let started = Instant::now();
    match user.acquire_timeout(ms(900)).await {
        Err(LimitError::TimedOut {
            limited: Some(limited),
            ..
        }) => assert_eq!(limited.retry_after, ms(1000)),
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() <= ms(1));
    user.acquire_timeout(ms(1100)).await.unwrap();
}

/// P6.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_takes_permits_once() {
    for way in LostReply::WAYS {
        let world = World::engine();
        let user = bucket(&world.client().await, "1/h", 5);
        granted(&user, 1).await.refund().await.unwrap();
        world.lose_next_reply(way);
        assert_eq!(granted(&user, 2).await.remaining(), 3, "{way:?}");
        assert_eq!(user.status().await.unwrap().free, 3, "{way:?}");
    }
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_booked_acquire_dropped_at_any_await_point_is_undone() {
    let (world, client) = World::slow_engine().with_client().await;
    let user = bucket(&client, "1/s", 1);
    let polls = for_each_await_point(async |polls| {
        tokio::time::sleep(ms(3_000)).await;
        user.acquire().await.unwrap();
        let full = user.status().await.unwrap().full_again_in;
        let covered = cancel_after(user.acquire(), polls).await.is_some();
        if !covered {
            eventually("the booking is undone", || world.keys() == [KEY]).await;
            tokio::time::sleep(ms(100)).await;
            let later = user.status().await.unwrap().full_again_in;
            assert!(later <= full, "{polls}: {later:?} after {full:?}");
        }
        covered
    })
    .await;
    assert!(polls > 2);
}

#[tokio::test(start_paused = true)]
async fn only_the_last_grant_can_be_refunded() {
    let world = World::engine();
    let user = bucket(&world.client().await, "1/h", 5);
    let (first, last) = (granted(&user, 2).await, granted(&user, 1).await);
    assert!(!first.refund().await.unwrap());
    assert!(last.refund().await.unwrap());
    assert_eq!(user.status().await.unwrap().free, 3);
}

#[tokio::test(start_paused = true)]
async fn a_server_clock_step_back_does_not_stop_grants() {
    for step in [-2_000, -30_000, -50_000, -3_600_000] {
        let world = World::engine();
        let user = bucket(&world.client().await, "2/s", 2);
        let _ = granted(&user, 2).await;
        world.faults().step_clock(step);
        let (started, record) = (Instant::now(), Record::default());
        // The refusal must not stop the bucket's clock.
        limited(user.try_acquire().await.unwrap());
        for _ in 0..6 {
            user.acquire().await.unwrap();
            record.note(started, 1);
        }
        assert!(
            started.elapsed() <= ms(3_500),
            "{step}: {:?}",
            started.elapsed()
        );
        record.check(3, ms(1000));
    }
}

/// Bookings of several permits reach further than the horizon.
#[tokio::test(start_paused = true)]
async fn bookings_beyond_a_long_horizon_are_kept() {
    for horizon in [30, 45, 60] {
        let world = World::engine();
        let (started, mut waits) = (Instant::now(), Vec::new());
        for (client, permits) in world
            .fleet(11)
            .await
            .into_iter()
            .zip([3, 1, 1, 1, 1, 1, 1, 3, 1, 1, 1])
        {
            let user = bucket(&client, "1/10s", 3).horizon(secs(horizon));
            waits.push(tokio::spawn(async move {
                let timeout = secs(300);
                let grant = user.acquire_many_timeout(permits, timeout).await;
                drop(client);
                grant.map(|_| (started.elapsed(), permits))
            }));
            tokio::time::sleep(ms(10)).await;
        }
        let mut grants = Vec::new();
        for wait in waits {
            grants.push(wait.await.unwrap().unwrap());
        }
        grants.sort_unstable();
        let mut taken = 0;
        for (at, permits) in grants {
            taken += permits;
            let most = 3 + (at + ms(20)).as_secs() / 10;
            assert!(
                u64::from(taken) <= most,
                "horizon {horizon}: {taken} of {most} within {at:?}"
            );
        }
    }
}

/// P6: the caller uses the permits after the late reply, so they count from then on.
#[tokio::test(start_paused = true)]
async fn a_grant_with_a_late_reply_counts_from_the_reply() {
    let (world, [late, other]) = World::engine().with_named(["late", "other"]).await;
    let (one, two) = (bucket(&late, "100/s", 100), bucket(&other, "100/s", 100));
    granted(&one, 1).await.refund().await.unwrap();
    tokio::time::sleep(ms(5_000)).await;
    let sent = Instant::now();
    world.lose_next_reply(LostReply::Silent);
    let grant = one.acquire_many(100).await.unwrap();
    let received = Instant::now();
    assert!(received - sent > ms(500), "{:?}", received - sent);
    assert!(late.now().since(grant.due()) <= ms(5));
    for half_seconds in 1..4 {
        two.acquire_many(50).await.unwrap();
        let took = received.elapsed();
        assert!(took >= ms(500 * half_seconds - 5), "{took:?}");
    }
}

/// During a deployment that adds a limit, processes of the old release know only the first one.
#[tokio::test(start_paused = true)]
async fn a_handle_with_fewer_limits_keeps_the_usage_of_the_others() {
    let (world, [old, new]) = World::engine().with_named(["old", "new"]).await;
    let old = bucket(&old, "10/s", 10);
    let new = bucket(&new, "10/s", 10).and(limit("20/m", 20));
    let mut grants = 0;
    for n in 0..600 {
        if new.try_acquire().await.unwrap().granted().is_some() {
            grants += 1;
        }
        if n % 20 == 0 {
            let grant = old.try_acquire().await.unwrap().granted();
            if n % 40 == 0 {
                assert!(grant.unwrap().refund().await.unwrap());
            }
        }
        tokio::time::sleep(ms(50)).await;
    }
    assert!((29..=30).contains(&grants), "{grants} in 30 s");
    // The usage of the second limit expires when its permits are free again.
    tokio::time::sleep(secs(62)).await;
    assert_eq!(world.keys(), [""; 0]);
}

/// Stored times have 47 bits, so a sum of times is rounded.
#[tokio::test(start_paused = true)]
async fn a_full_bucket_grants_its_burst() {
    let (_world, client) = World::engine().with_client().await;
    for (text, burst) in [
        ("3/s", 2),
        ("7/s", 5),
        ("100/s", u32::MAX),
        ("4294967295/30days", u32::MAX),
        // Full after 199.8 years, of 200 at most.
        ("1/7s", 900_000_000),
    ] {
        for n in 0..50 {
            let name = format!("{text} {burst} {n}");
            let user = TokenBucket::new(&client, name, limit(text, burst)).unwrap();
            assert_eq!(granted(&user, burst).await.remaining(), 0, "{text}");
            tokio::time::advance(Duration::from_micros(1_237)).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_full_bucket_rejects_a_refund() {
    let world = World::engine();
    let user = bucket(&world.client().await, "2/s", 2);
    let (early, late) = (granted(&user, 1).await, granted(&user, 1).await);
    tokio::time::sleep(ms(999)).await;
    assert!(!early.refund().await.unwrap(), "not the last grant");
    tokio::time::sleep(ms(1)).await;
    assert_eq!(world.keys(), [KEY]);
    assert!(!late.refund().await.unwrap());
    // A refund succeeds until the bucket is full.
    let last = granted(&user, 1).await;
    tokio::time::sleep(ms(499)).await;
    assert!(last.refund().await.unwrap());
    assert_eq!(user.status().await.unwrap().free, 2);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_key_is_rejected() {
    let world = World::engine();
    let user = bucket(&world.client().await, "2/s", 2);
    for command in [&["SET", KEY, "text"][..], &["RPUSH", KEY, "item"]] {
        let _ = world.admin(&["DEL", KEY]);
        let _ = world.admin(command);
        let before = world.dump();
        let error = user.try_acquire().await.unwrap_err();
        assert!(
            matches!(rejection_of(&error), Rejection::WrongType { .. }),
            "{error}"
        );
        assert_eq!(world.dump(), before);
    }
}

/// Setters cannot fail, so each request checks their values.
#[tokio::test(start_paused = true)]
async fn values_out_of_bounds_are_refused_with_the_value_and_the_rule() {
    let (world, client) = World::engine().with_client().await;
    let before = world.scripts_run();
    let far = bucket(&client, "1/s", 1).horizon(ms(60_001));
    let rule = "invalid option: horizon 1m 1ms: at most 60s";
    let error = far.try_acquire().await.unwrap_err().to_string();
    assert!(error.ends_with(rule), "{error}");
    let api = RateLimiter::new(&client, "api", quota("1/s")).unwrap();
    let booked = Waiting::Booked {
        horizon: ms(60_001),
    };
    let far = api.waiting(booked);
    let error = far.acquire().await.unwrap_err().to_string();
    assert!(error.ends_with(rule), "{error}");
    let fast = TokenBucket::new(&client, "fast", quota("101/1ms")).unwrap();
    let error = fast.try_acquire().await.unwrap_err().to_string();
    assert!(
        error.contains("quota 101/ms: a bucket gets at most 100 permits per millisecond"),
        "{error}"
    );
    assert_eq!(world.scripts_run(), before);
}
