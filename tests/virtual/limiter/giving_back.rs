//! Tests that permits are taken once, and that permits of dropped calls, refunds and shutdowns are given back.

use stanchion::AcquireError;
use stanchion::limiter::{Attempt, Waiting};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::{LostReply, World, assert_within};
use tokio::time::Instant;

use stanchion_tests::limiter::*;

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_at_any_await_point_takes_nothing() {
    let (world, client) = World::slow_engine().with_client().await;
    let api = limiter(&client, "3/m");
    granted(&api, 1).await.refund().await.unwrap();
    let polls = for_each_await_point(async |polls| {
        let covered = match cancel_after(api.acquire_many(2), polls).await {
            Some(grant) => grant.unwrap().refund().await.unwrap(),
            None => false,
        };
        eventually("the permits are given back", || {
            account(world.as_engine()) == (3, 0)
        })
        .await;
        assert_eq!(client.waiters(), 0);
        covered
    })
    .await;
    assert!(polls > 1);
}

/// P3: the booking of a dropped acquire is given back.
#[tokio::test(start_paused = true)]
async fn a_booked_acquire_dropped_at_any_await_point_gives_its_place_to_the_next() {
    let world = World::slow_engine();
    let (client, other) = (world.client().await, world.named("other").await);
    let api = limiter(&client, "1/s");
    let polls = for_each_await_point(async |polls| {
        tokio::time::sleep(ms(3_000)).await;
        let taken = api.acquire().await.unwrap();
        let began = Instant::now();
        let covered = cancel_after(api.acquire(), polls).await.is_some();
        if !covered {
            eventually("only the first grant is left", || {
                log(world.as_engine()).len() == 1
            })
            .await;
            limiter(&other, "1/s").acquire().await.unwrap();
            assert_within(began, ms(1_030), polls);
        }
        drop(taken);
        let (value, sum) = account(world.as_engine());
        assert_eq!(value + sum, 1);
        covered
    })
    .await;
    assert!(polls > 2);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_beyond_the_horizon_dropped_at_any_await_point_passes_its_turn_on() {
    let (_world, client) = World::slow_engine().with_client().await;
    let api = limiter(&client, "1/s");
    let polls = for_each_await_point(async |polls| {
        tokio::time::sleep(ms(5_000)).await;
        let (began, first) = (Instant::now(), api.acquire());
        first.await.unwrap();
        let booked = tokio::spawn(api.acquire());
        let doomed = tokio::spawn({
            let api = api.clone();
            async move { cancel_after(api.acquire(), polls).await.is_some() }
        });
        tokio::time::sleep(ms(1)).await;
        let survivor = tokio::spawn(api.acquire());
        let covered = doomed.await.unwrap();
        booked.await.unwrap().unwrap();
        survivor.await.unwrap().unwrap();
        let latest = if covered { 3 } else { 2 };
        assert_within(began, ms(latest * 1000 + 60), polls);
        assert_eq!(client.waiters(), 0);
        covered
    })
    .await;
    assert!(polls > 2);
}

/// P6.
#[tokio::test(start_paused = true)]
async fn a_lost_reply_takes_permits_once() {
    for way in LostReply::WAYS {
        for wanted in [1, 3] {
            let (world, client) = World::engine().with_client().await;
            let api = limiter(&client, "5/m");
            granted(&api, 1).await.refund().await.unwrap();
            world.lose_next_reply(way);
            assert_eq!(granted(&api, wanted).await.permits(), wanted);
            assert_eq!(
                account(world.as_engine()),
                (5 - i64::from(wanted), i64::from(wanted))
            );
            world.lose_next_reply(way);
            api.acquire_many(2).await.unwrap();
            let left = 3 - i64::from(wanted);
            assert_eq!(account(world.as_engine()), (left, 5 - left), "{way:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_to_a_booking_keeps_its_time() {
    for way in LostReply::WAYS {
        let world = World::engine();
        let api = limiter(&world.client().await, "1/m").waiting(Waiting::Booked {
            horizon: ms(60_000),
        });
        let started = Instant::now();
        let _ = granted(&api, 1).await;
        world.lose_next_reply(way);
        api.acquire().await.unwrap();
        assert!(started.elapsed() >= ms(60_000) && started.elapsed() < ms(60_010));
        let (value, sum) = account(world.as_engine());
        assert_eq!(value + sum, 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_counts_once() {
    for way in LostReply::WAYS {
        let world = World::engine();
        let api = limiter(&world.client().await, "5/m");
        granted(&api, 1).await.refund().await.unwrap();
        let (three, two) = (granted(&api, 3).await, granted(&api, 2).await);
        world.lose_next_reply(way);
        assert!(three.refund().await.unwrap(), "{way:?}");
        assert_eq!(account(world.as_engine()), (3, 2));
        drop(two.refund());
        tokio::time::sleep(ms(100)).await;
        assert_eq!(
            account(world.as_engine()),
            (3, 2),
            "nothing is sent before the first poll"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_refund_after_the_interval_fails_and_changes_nothing() {
    let world = World::engine();
    let api = limiter(&world.client().await, "2/s");
    let old = granted(&api, 2).await;
    tokio::time::sleep(ms(1_000)).await;
    let _new = granted(&api, 1).await;
    assert!(!old.refund().await.unwrap());
    assert_eq!(account(world.as_engine()), (1, 1));
}

/// No request has removed the expired entry from the log yet.
#[tokio::test(start_paused = true)]
async fn a_refund_fails_as_soon_as_the_interval_has_passed() {
    let world = World::engine();
    let api = limiter(&world.client().await, "2/s");
    let (early, late) = (granted(&api, 1).await, granted(&api, 1).await);
    tokio::time::sleep(ms(999)).await;
    assert!(early.refund().await.unwrap());
    tokio::time::sleep(ms(1)).await;
    assert!(!late.refund().await.unwrap());
    let _ = granted(&api, 2).await;
    assert_eq!(account(world.as_engine()), (0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_grant_stays_used() {
    let (world, client) = World::engine().with_client().await;
    let api = limiter(&client, "2/m");
    drop(granted(&api, 1).await);
    tokio::time::sleep(ms(1_000)).await;
    assert_eq!(account(world.as_engine()), (1, 1));
    assert_eq!(client.shutdown(ms(100)).await.abandoned.len(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_waits_and_gives_bookings_back() {
    let (world, client) = World::engine().with_client().await;
    let api = limiter(&client, "1/s");
    let _ = granted(&api, 1).await;
    let waiters: Vec<_> = (0..4).map(|_| tokio::spawn(api.acquire())).collect();
    eventually("one booking exists", || log(world.as_engine()).len() == 2).await;
    let report = client.shutdown(ms(500)).await;
    assert_eq!(report.abandoned.len(), 0, "{report:?}");
    for waiter in waiters {
        let error = waiter.await.unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::Shutdown { .. }), "{error}");
    }
    assert_eq!(account(world.as_engine()), (0, 1));
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_server_fails_in_time() {
    let world = World::engine();
    let api = limiter(&world.client().await, "2/s");
    let _ = granted(&api, 1).await;
    world.faults().freeze(None);
    let started = Instant::now();
    let error = api.acquire_timeout(ms(200)).await.unwrap_err();
    assert!(
        started.elapsed() <= ms(250),
        "{error}: {:?}",
        started.elapsed()
    );
    // P3: permits that the failed request may have taken are given back when the server is reachable again.
    world.faults().thaw(None);
    tokio::time::sleep(secs(20)).await;
    assert!(matches!(
        api.try_acquire_many(2).await.unwrap(),
        Attempt::Granted(_)
    ));
}
