//! Tests of the least time: after a short run the job rests, and others skip it, until exactly that time has passed.

use stanchion::embedded::Switch;
use stanchion::jobs::{Activity, Begun, Outcome};
use stanchion::{AcquireOptions, Job, Lease, Lock, LostReason};
use stanchion_testkit::eventually_async;
use stanchion_tests::World;

use crate::*;

/// Waits until a run begins.
async fn until_a_run_begins(job: &Job) {
    eventually_async("the rest is over", async || {
        matches!(job.begin().await.unwrap(), Begun::Running(_))
    })
    .await;
}

on_both! {
    async fn a_quick_job_rests_and_another_machine_skips_it(world) {
        let (one, other) = (world.client().await, world.client().await);
        let job = |client| nightly(client).at_least(seconds(3));
        assert_eq!(job(&one).run(|_| async {}).await.unwrap(), Outcome::Done(()));
        // The rest must not depend on the client that ran the job.
        assert!(one.shutdown(seconds(5)).await.is_clean());
        let skipped = job(&other).run(|_| async { panic!("twice") }).await.unwrap();
        let Outcome::<()>::Skipped { holder, free_by } = skipped else { panic!("{skipped:?}") };
        assert_eq!(holder.activity, Activity::Resting);
        let left = free_by.unwrap();
        // The begin of the run is rounded up to a whole millisecond, so that the rest is never too short.
        assert!(left <= ms(3_001) && left > ms(500), "{left:?}");
        until_a_run_begins(&job(&other)).await;
    }

    /// A rest for the whole lease of 30 s would make the next start fail.
    async fn the_rest_is_no_longer_than_the_least_time(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(2));
        let worked = job.run(|_| async { tokio::time::sleep(ms(500)).await }).await.unwrap();
        assert_eq!(worked, Outcome::Done(()));
        let left = ttl(world);
        assert!((1..=1_500).contains(&left), "{left}");
        until_a_run_begins(&job).await;
    }

    async fn a_run_longer_than_the_least_time_frees_the_job_at_once(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(ms(200));
        let worked = job.run(|_| async { tokio::time::sleep(ms(400)).await }).await.unwrap();
        assert_eq!(worked, Outcome::Done(()));
        assert_eq!(ttl(world), -2, "the job is free");
    }

    async fn a_dropped_or_panicked_run_starts_the_rest(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(60));
        let cut = tokio::time::timeout(ms(100), job.run(|_| std::future::pending::<()>())).await;
        assert!(cut.is_err());
        until_it_rests(&job).await;
        assert!(Lock::new(&client, "nightly").unwrap().danger().force_release().await.unwrap());
        let task = tokio::spawn({
            let job = job.clone();
            async move { job.run(|_| async { panic!("on purpose") }).await.map(|_: Outcome<()>| ()) }
        });
        assert!(task.await.unwrap_err().is_panic());
        until_it_rests(&job).await;
    }

    async fn a_run_that_max_run_ends_starts_the_rest(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(60)).max_run(ms(300));
        let cut = job.run(|_| std::future::pending::<()>()).await.unwrap();
        assert_eq!(cut, Outcome::Lost { reason: LostReason::MaxHold, done: None });
        until_it_rests(&job).await;
    }

    /// The waiter for the lock of the same name has first received the TTL of a whole lease. The rest is shorter.
    async fn a_waiter_for_the_lock_acquires_it_when_the_rest_ends(world) {
        let (one, other) = (world.client().await, world.client().await);
        let job = nightly(&one).at_least(seconds(2));
        let lock = Lock::new(&other, "nightly").unwrap();
        let Begun::Running(run) = job.begin().await.unwrap() else { panic!() };
        let began = tokio::time::Instant::now();
        let waiter = tokio::spawn(lock.acquire());
        world.waiting(&other, 1, "redisson_lock__channel:{nightly}").await;
        run.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        let waited = began.elapsed();
        assert!(waited > ms(1_900) && waited < world.limit(ms(2_100)), "{waited:?}");
        guard.release().await.unwrap();
        only_the_record_is_left(world).await;
    }

    async fn force_release_ends_the_rest(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(600));
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
        assert!(Lock::new(&client, "nightly").unwrap().danger().force_release().await.unwrap());
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
    }

    /// The record contains the end of the rest. Without a record the lease of the run applies, which is at least as long.
    async fn a_lost_record_does_not_shorten_the_rest(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(60));
        let Begun::Running(run) = job.begin().await.unwrap() else { panic!() };
        drop(world.admin(&["DEL", RECORD]));
        run.release().await.unwrap();
        assert!(ttl(world) > 50_000, "{}", ttl(world));
    }
}

async fn until_it_rests(job: &Job) {
    eventually_async("the job rests", async || {
        let holder = job.status().await.unwrap().holder;
        holder.is_some_and(|holder| holder.activity == Activity::Resting)
    })
    .await;
    assert!(job.status().await.unwrap().free_by > Some(seconds(30)));
}

#[tokio::test(start_paused = true)]
async fn the_rest_ends_exactly_after_the_least_time() {
    for (lease, worked) in [(30, 0), (30, 9), (1, 9), (600, 3)] {
        let world = World::engine();
        let client = world.client().await;
        let lease = Lease::new(seconds(lease)).unwrap();
        let job = nightly(&client).lease(lease).at_least(seconds(10));
        let began = tokio::time::Instant::now();
        let work = async || tokio::time::sleep(seconds(worked)).await;
        assert_eq!(job.run(|_| work()).await.unwrap(), Outcome::Done(()));
        while matches!(job.begin().await.unwrap(), Begun::Skipped { .. }) {
            tokio::time::sleep(ms(1)).await;
        }
        let rested = began.elapsed();
        assert!(
            rested >= seconds(10) && rested <= ms(10_005),
            "{lease:?} {worked}: {rested:?}"
        );
    }
}

/// The first request reserves the job for the least time, before the process dies; for the first lease of the options if that is longer.
#[tokio::test(start_paused = true)]
async fn a_process_that_dies_keeps_the_job_for_its_least_time() {
    for (least, first) in [(300, None), (100, Some(300)), (300, Some(100))] {
        dies(least, first).await;
    }
}

async fn dies(least: u64, first: Option<u64>) {
    let world = World::engine();
    let (dying, other) = (world.named("dying").await, world.client().await);
    let mut job = nightly(&dying).at_least(seconds(least));
    if let Some(first) = first {
        job = job.options(AcquireOptions::new().first_lease(seconds(first)));
    }
    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!()
    };
    world.as_engine().faults().freeze(Some("dying"));
    tokio::time::sleep(seconds(295)).await;
    let held = nightly(&other).begin().await.unwrap();
    assert!(
        matches!(held, Begun::Skipped { .. }),
        "{least} {first:?}: {held:?}"
    );
    tokio::time::sleep(seconds(6)).await;
    assert!(matches!(
        nightly(&other).begin().await.unwrap(),
        Begun::Running(_)
    ));
    assert!(!run.is_held());
}

/// A renewal that is in flight when the run ends must not lengthen the rest. The rest is held under another owner.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_does_not_lengthen_the_rest() {
    let world = World::engine();
    let client = world.client().await;
    let job = nightly(&client).at_least(seconds(5));
    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!()
    };
    run.renew().await.unwrap(); // loads the script into the server
    world.as_engine().faults().hold_requests("EVALSHA", 1);
    drop(tokio::time::timeout(ms(100), run.renew()).await);
    // The client closes the connection after 1 s, and ends the run on another one. The server rejects the renewal after 2 s.
    drop(run);
    eventually_async("the job rests", async || ttl(&world) <= 5_000).await;
    world.as_engine().faults().deliver();
    tokio::time::sleep(ms(10)).await;
    assert!((1..=5_000).contains(&ttl(&world)), "{}", ttl(&world));
}

#[tokio::test(start_paused = true)]
async fn at_maxmemory_a_run_can_end_but_none_can_begin() {
    let world = World::engine();
    let client = world.client().await;
    let job = nightly(&client).at_least(seconds(60));
    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!()
    };
    world.as_engine().faults().out_of_memory(Switch::On);
    run.release().await.unwrap();
    assert_eq!(
        job.status().await.unwrap().holder.unwrap().activity,
        Activity::Resting
    );
    let refused = Job::new(&client, "other")
        .unwrap()
        .begin()
        .await
        .unwrap_err();
    assert!(refused.to_string().contains("memory"), "{refused}");
    assert!(
        !world.keys().iter().any(|key| key.contains("other")),
        "{:?}",
        world.keys()
    );
}

#[tokio::test(start_paused = true)]
async fn an_invalid_option_is_rejected_with_its_value_and_rule() {
    let world = World::engine();
    let client = world.client().await;
    let owner = AcquireOptions::new().owner(&client.owner());
    for (job, rule) in [
        (
            nightly(&client).at_least(seconds(31 * 86_400)),
            "at_least 1month",
        ),
        (nightly(&client).max_run(ms(1)), "max_hold 1ms"),
        (nightly(&client).options(owner), "an owner of its own"),
    ] {
        let error = job.begin().await.unwrap_err().to_string();
        assert!(error.contains(rule), "{error}");
    }
    for time in [ms(10), seconds(11 * 365 * 86_400)] {
        let odd = nightly(&client).remember(time);
        let error = odd.begin().await.unwrap_err().to_string();
        assert!(error.contains("remember 1"), "{error}");
        assert!(error.ends_with(": 1s to 10 years"), "{error}");
    }
    assert!(world.keys().is_empty());
}
