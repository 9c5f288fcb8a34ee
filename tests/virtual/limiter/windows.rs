//! Tests that no interval has more grants than the quota.

use std::time::Duration;

use stanchion::embedded::Reply;
use stanchion::limiter::Waiting;
use stanchion::{LimitError, RateLimiter};
use stanchion_testkit::{cancel_after, eventually};
use stanchion_tests::{LostReply, World, together};
use tokio::time::Instant;

use stanchion_tests::limiter::*;

#[tokio::test(start_paused = true)]
async fn a_hundred_tasks_use_the_whole_quota_and_no_more() {
    for waiting in [Waiting::Booked { horizon: ms(1000) }, Waiting::Asked] {
        let world = World::engine();
        let (started, record) = (Instant::now(), Record::default());
        let mut tasks = Vec::new();
        for client in world.fleet(4).await {
            for _ in 0..25 {
                let (api, record) = (limiter(&client, "10/s").waiting(waiting), record.clone());
                tasks.push(tokio::spawn(async move {
                    loop {
                        api.acquire().await.unwrap();
                        record.note(started, 1);
                    }
                }));
            }
        }
        tokio::time::sleep(ms(20_500)).await;
        tasks.iter().for_each(tokio::task::JoinHandle::abort);
        record.check(10, ms(1000));
        let total = record.total();
        // Without bookings grants are as late as with Redisson.
        let least = if waiting == Waiting::Asked { 180 } else { 205 };
        assert!(
            (least..=210).contains(&total),
            "{waiting:?}: {total} of 210"
        );
    }
}

/// Some of the requests are dropped while they wait.
#[tokio::test(start_paused = true)]
async fn random_requests_never_exceed_the_quota() {
    let seeds = std::env::var("STANCHION_SEEDS").map_or(8, |n| n.parse().unwrap());
    for seed in 0..seeds {
        let (world, clients) = World::slow_engine().with_fleet(3).await;
        let mut rng = fastrand::Rng::with_seed(seed);
        let (rate, interval) = (rng.u32(3..12), ms(rng.u64(50..1500)));
        let mut tasks = Vec::new();
        for worker in 0..12_usize {
            let text = format!("{rate}/{}ms", interval.as_millis());
            let api = limiter(&clients[worker % 3], &text);
            let mut rng = rng.fork();
            tasks.push(tokio::spawn(async move {
                for _ in 0..60 {
                    let permits = if rng.bool() { 1 } else { rng.u32(1..=rate) };
                    one(&api, &mut rng, permits).await;
                    tokio::time::sleep(ms(rng.u64(0..40))).await;
                }
            }));
        }
        let mut seen = Seen::default();
        let whole = i64::try_from(interval.as_millis()).unwrap();
        while !tasks.iter().all(tokio::task::JoinHandle::is_finished) {
            // Shorter than every interval, so that no entry is missed.
            tokio::time::sleep(ms(20)).await;
            seen.update(&entries(world.as_engine()), clock(world.as_engine()), whole);
        }
        together(tasks).await;
        seen.check(i64::from(rate), whole);
        world.quiet().await;
        let (value, sum) = account(world.as_engine());
        assert_eq!(value + sum, i64::from(rate), "seed {seed}");
    }
}

async fn one(api: &RateLimiter, rng: &mut fastrand::Rng, permits: u32) {
    match rng.u8(0..10) {
        0..2 => drop(api.try_acquire_many(permits).await.unwrap()),
        2..4 => {
            let timeout = ms(rng.u64(0..2000));
            match api.acquire_many_timeout(permits, timeout).await {
                Ok(_) | Err(LimitError::TimedOut { .. }) => {}
                Err(error) => panic!("{error}"),
            }
        }
        4..6 => {
            let polls = rng.usize(0..8);
            cancel_after(api.acquire_many(permits), polls).await;
        }
        6 => {
            let grant = api.acquire_many(permits).await.unwrap();
            grant.refund().await.unwrap();
        }
        _ => {
            api.acquire_many(permits).await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn the_edge_of_an_interval_is_exact() {
    let world = World::engine();
    let api = limiter(&world.client().await, "1/s");
    let _ = granted(&api, 1).await;
    tokio::time::sleep(ms(999)).await;
    assert_eq!(limited(api.try_acquire().await.unwrap()).retry_after, ms(1));
    tokio::time::sleep(ms(1)).await;
    let _ = granted(&api, 1).await;
}

/// The log has whole milliseconds. The rounding must not shorten the interval.
#[tokio::test(start_paused = true)]
async fn a_permit_counts_for_at_least_one_interval() {
    let world = World::engine();
    let api = limiter(&world.client().await, "1/s");
    granted(&api, 1).await.refund().await.unwrap();
    let into = |now: Duration| now.subsec_micros() % 1000;
    let started = Instant::now();
    tokio::time::advance(Duration::from_micros(900)).await;
    let _ = granted(&api, 1).await;
    assert_eq!(
        into(started.elapsed()),
        900,
        "the permit is taken late in a millisecond"
    );
    tokio::time::advance(Duration::from_micros(999_200)).await;
    assert_eq!(limited(api.try_acquire().await.unwrap()).retry_after, ms(1));
    tokio::time::advance(Duration::from_micros(900)).await;
    let _ = granted(&api, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_server_clock_step_back_does_not_delay_waiters() {
    for step in [-2_000, -30_000, -50_000, -600_000, -3_600_000] {
        let world = World::engine();
        let api = limiter(&world.client().await, "2/s");
        let (started, record) = (Instant::now(), Record::default());
        let _ = granted(&api, 2).await;
        record.note(started, 2);
        tokio::time::sleep(ms(300)).await;
        // One caller has a booking before the step. The others arrive after it.
        let booked = tokio::spawn(api.acquire());
        eventually("the booking exists", || log(world.as_engine()).len() == 2).await;
        world.faults().step_clock(step);
        let stepped = Instant::now();
        limited(api.try_acquire().await.unwrap());
        booked.await.unwrap().unwrap();
        record.note(started, 1);
        for _ in 0..6 {
            api.acquire().await.unwrap();
            record.note(started, 1);
        }
        assert!(
            stepped.elapsed() <= ms(4_500),
            "{step}: {:?}",
            stepped.elapsed()
        );
        record.check(2, ms(1000));
    }
}

/// After a step back the script moves only the entries of this library. A Redisson client dates its entries by its own clock.
#[tokio::test(start_paused = true)]
async fn a_server_clock_step_back_keeps_the_dates_of_redissons_entries() {
    let world = World::engine();
    let api = limiter(&world.client().await, "3/m");
    let _ = granted(&api, 1).await;
    let now = clock(world.as_engine());
    let java = [b"\x08abcdefgh".as_slice(), &1_u32.to_le_bytes()].concat();
    let args: [&[u8]; 4] = [
        b"ZADD",
        LOG.as_bytes(),
        &now.to_string().into_bytes(),
        &java,
    ];
    let _ = world.as_engine().execute(&args);
    let _ = world.admin(&["DECR", VALUE]);
    world.faults().step_clock(-20_000);
    let _ = granted(&api, 1).await;
    #[expect(clippy::cast_precision_loss, reason = "41 bits")]
    let dated = Reply::Double(now as f64);
    let score = world
        .as_engine()
        .execute(&[b"ZSCORE", LOG.as_bytes(), &java]);
    assert_eq!(score, dated);
    let ours = ["ZCOUNT", LOG, "-inf", &(now - 19_000).to_string()];
    assert_eq!(world.admin(&ours), "2");
}

/// P6: the caller uses the permits after the late reply, so they count from then on.
#[tokio::test(start_paused = true)]
async fn a_grant_with_a_late_reply_counts_from_the_reply() {
    for waiting in [Waiting::Booked { horizon: ms(1000) }, Waiting::Asked] {
        for others in [0, 4] {
            let (world, [late, other]) = World::engine().with_named(["late", "other"]).await;
            let (one, two) = (
                limiter(&late, "100/s").waiting(waiting),
                limiter(&other, "100/s").waiting(waiting),
            );
            granted(&one, 1).await.refund().await.unwrap();
            let (started, record) = (Instant::now(), Record::default());
            world.lose_next_reply(LostReply::Silent);
            let unanswered = tokio::spawn({
                let record = record.clone();
                async move {
                    let grant = one.acquire_many(100).await.unwrap();
                    record.note(started, 100);
                    assert!(late.now().since(grant.due()) <= ms(5));
                }
            });
            eventually("the permits are granted", || {
                !log(world.as_engine()).is_empty()
            })
            .await;
            // Other callers take permits before the late reply arrives.
            let mut waits = Vec::new();
            for _ in 0..others {
                let (two, record) = (two.clone(), record.clone());
                waits.push(tokio::spawn(async move {
                    for _ in 0..10 {
                        two.acquire_many(50).await.unwrap();
                        record.note(started, 50);
                    }
                }));
            }
            unanswered.await.unwrap();
            two.acquire_many(100).await.unwrap();
            record.note(started, 100);
            together(waits).await;
            assert_eq!(record.total(), 200 + 500 * others);
            record.check(100, ms(1000));
            let (value, sum) = account(world.as_engine());
            assert_eq!(value + sum, 100);
        }
    }
}
