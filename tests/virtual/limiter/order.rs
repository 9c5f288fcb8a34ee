//! Tests of the order, the times and the cost of grants.

use std::time::Duration;

use stanchion::limiter::Waiting;
use stanchion::{LimitError, RateLimiter};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use tokio::time::Instant;

use stanchion_tests::limiter::*;

#[tokio::test(start_paused = true)]
async fn booked_waiters_return_at_their_times_in_order_of_arrival() {
    let world = World::engine();
    let api = limiter(&world.client().await, "1/s");
    let started = Instant::now();
    let mut waiters = Vec::new();
    for n in 0..5_u64 {
        let acquire = api.acquire();
        waiters.push(tokio::spawn(async move {
            acquire.await.unwrap();
            (n, started.elapsed())
        }));
        tokio::time::sleep(ms(10)).await;
    }
    for waiter in waiters {
        let (n, at) = waiter.await.unwrap();
        // A tokio timer fires up to 1 ms late.
        let late = at.checked_sub(ms(n * 1000)).unwrap();
        assert!(late <= ms(10), "{n} at {at:?}");
    }
}

/// Returns the number of commands per grant, with a constant number of waiters in one process.
async fn cost(waiters: usize, waiting: Waiting) -> f64 {
    let (world, client) = World::engine().with_client().await;
    let api = RateLimiter::new(&client, NAME, quota("10/s"))
        .unwrap()
        .waiting(waiting);
    let record = Record::default();
    let started = Instant::now();
    for _ in 0..waiters {
        let (api, record) = (api.clone(), record.clone());
        tokio::spawn(async move {
            loop {
                api.acquire().await.unwrap();
                record.note(started, 1);
            }
        });
    }
    tokio::time::sleep(ms(10_050)).await;
    let (before, grants) = (world.scripts_run(), record.total());
    tokio::time::sleep(ms(30_000)).await;
    let (ran, grants) = (world.scripts_run() - before, record.total() - grants);
    // Without bookings grants are as late as with Redisson: see acquire.lua.
    let least = if waiting == Waiting::Asked { 260 } else { 298 };
    assert!((least..=302).contains(&grants), "{grants} of 300");
    #[expect(clippy::cast_precision_loss, reason = "small numbers")]
    let cost = ran as f64 / f64::from(grants);
    println!("{waiters} waiters, {waiting:?}: {cost:.2} commands a grant");
    cost
}

#[tokio::test(start_paused = true)]
async fn a_booked_grant_costs_one_command() {
    for waiters in [2, 16, 64, 256] {
        let booked = cost(waiters, Waiting::Booked { horizon: ms(1000) }).await;
        assert!(booked <= 1.02, "{waiters} waiters: {booked}");
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_without_bookings_share_the_requests_of_a_process() {
    for waiters in [2, 64] {
        let polled = cost(waiters, Waiting::Asked).await;
        assert!(polled <= 2.1, "{waiters} waiters: {polled}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_too_short_timeout_fails_at_once_and_takes_nothing() {
    let world = World::engine();
    let api = limiter(&world.client().await, "1/s");
    let _ = granted(&api, 1).await;
    let (started, before) = (Instant::now(), log(world.as_engine()));
    match api.acquire_timeout(ms(900)).await {
        Err(LimitError::TimedOut {
            limited: Some(limited),
            ..
        }) => assert_eq!(limited.retry_after, ms(1000)),
        other => panic!("{other:?}"),
    }
    assert!(started.elapsed() <= ms(1), "{:?}", started.elapsed());
    assert_eq!(log(world.as_engine()), before);
    // This timeout is just long enough.
    api.acquire_timeout(ms(1001)).await.unwrap();
    assert!(started.elapsed() <= ms(1002), "{:?}", started.elapsed());
    // A timeout of zero sends one request.
    assert!(matches!(
        api.acquire_timeout(Duration::ZERO).await,
        Err(LimitError::TimedOut {
            limited: Some(_),
            ..
        })
    ));
    assert!(started.elapsed() <= ms(1003), "{:?}", started.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_timeout_behind_other_waiters_ends_at_the_deadline() {
    let (_world, client) = World::engine().with_client().await;
    let api = limiter(&client, "1/s");
    let others: Vec<_> = (0..5).map(|_| tokio::spawn(api.acquire())).collect();
    eventually("some wait beyond the horizon", || client.waiters() == 3).await;
    let started = Instant::now();
    let error = api.acquire_timeout(ms(300)).await.unwrap_err();
    assert!(
        started.elapsed() <= ms(350),
        "{error}: {:?}",
        started.elapsed()
    );
    for waiter in others {
        waiter.await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_for_all_permits_is_served_among_small_requests() {
    let world = World::engine();
    let mut tasks = Vec::new();
    for client in world.fleet(3).await {
        for _ in 0..10 {
            let api = limiter(&client, "10/s");
            tasks.push(tokio::spawn(async move {
                loop {
                    api.acquire().await.unwrap();
                }
            }));
        }
    }
    tokio::time::sleep(ms(5_000)).await;
    let api = limiter(&world.named("big").await, "10/s");
    for _ in 0..3 {
        let started = Instant::now();
        let served = tokio::time::timeout(ms(10_000), api.acquire_many(10)).await;
        served.unwrap().unwrap();
        assert!(started.elapsed() <= ms(2_100), "{:?}", started.elapsed());
    }
    tasks.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test(start_paused = true)]
async fn bookings_of_a_killed_process_delay_others_by_one_horizon() {
    let world = World::engine();
    let doomed = world.named("doomed").await;
    let api = limiter(&doomed, "10/s");
    let waiters: Vec<_> = (0..50).map(|_| tokio::spawn(api.acquire())).collect();
    eventually("bookings reach the horizon", || {
        log(world.as_engine()).len() == 20
    })
    .await;
    // The frozen connection simulates a killed process: its bookings stay, and are not given back.
    world.faults().freeze(Some("doomed"));
    waiters.iter().for_each(tokio::task::JoinHandle::abort);
    let api = limiter(&world.client().await, "10/s");
    let started = Instant::now();
    api.acquire().await.unwrap();
    // Without the ten bookings the wait is 1 s.
    assert!(started.elapsed() <= ms(2_010), "{:?}", started.elapsed());
    world.faults().thaw(None);
}

/// Requests of other processes for one permit always book at the horizon.
#[tokio::test(start_paused = true)]
async fn a_request_for_several_permits_of_a_bucket_is_not_starved() {
    let world = World::slow_engine();
    for client in world.fleet(6).await {
        let api = stanchion::TokenBucket::new(&client, NAME, quota("6/s")).unwrap();
        for _ in 0..3 {
            let api = api.clone();
            tokio::spawn(async move {
                loop {
                    api.acquire().await.unwrap();
                }
            });
        }
    }
    let api = stanchion::TokenBucket::new(&world.client().await, NAME, quota("6/s")).unwrap();
    tokio::time::sleep(ms(3_000)).await;
    for _ in 0..10 {
        let served = tokio::time::timeout(ms(4_000), api.acquire_many(3)).await;
        assert!(matches!(served, Ok(Ok(_))), "{served:?}");
    }
}

/// A process that was suspended past the time of its booking can compare `due` with its clock.
#[tokio::test(start_paused = true)]
async fn a_late_process_can_measure_its_delay() {
    let (_world, client) = World::engine().with_client().await;
    let api = limiter(&client, "1/s").waiting(Waiting::Booked { horizon: ms(5_000) });
    let first = api.acquire().await.unwrap();
    let second = api.acquire().await.unwrap();
    assert!(second.due() >= first.due() + secs(1));
    assert!(client.now() >= second.due());
    tokio::time::advance(secs(3)).await;
    assert!(client.now().since(second.due()) >= secs(3));
}
