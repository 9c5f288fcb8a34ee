//! The least time: the job rests until it has passed, to the millisecond, and no longer.

use stanchion::embedded::Switch;
use stanchion::{AcquireOptions, Activity, Begun, Job, Lease, Lock, LostReason, Outcome};
use stanchion_testkit::eventually_async;
use stanchion_tests::World;

use crate::*;

/// Begins as soon as it can.
async fn begins(job: &Job) {
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
        // The machine that ran it may be switched off.
        assert!(one.shutdown(seconds(5)).await.is_clean());
        let skipped = job(&other).run(|_| async { panic!("twice") }).await.unwrap();
        let Outcome::<()>::Skipped { holder, free_by } = skipped else { panic!("{skipped:?}") };
        assert_eq!(holder.activity, Activity::Resting);
        let left = free_by.unwrap();
        // Its begin is rounded up to a whole millisecond, so that the rest is never shorter.
        assert!(left <= ms(3_001) && left > ms(500), "{left:?}");
        begins(&job(&other)).await;
    }

    /// Longer than asked for is as wrong as shorter: with a lease of 30 s the next start would be missed.
    async fn the_rest_is_no_longer_than_asked_for(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(2));
        let worked = job.run(|_| async { tokio::time::sleep(ms(500)).await }).await.unwrap();
        assert_eq!(worked, Outcome::Done(()));
        let left = ttl(world);
        assert!((1..=1_500).contains(&left), "{left}");
        begins(&job).await;
    }

    async fn a_job_that_took_longer_is_free_at_once(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(ms(200));
        let worked = job.run(|_| async { tokio::time::sleep(ms(400)).await }).await.unwrap();
        assert_eq!(worked, Outcome::Done(()));
        assert!(ttl(world) < 0);
    }

    async fn a_run_that_is_dropped_or_panics_rests(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(60));
        let cut = tokio::time::timeout(ms(100), job.run(|_| std::future::pending::<()>())).await;
        assert!(cut.is_err());
        rests(&job).await;
        assert!(Lock::new(&client, "nightly").unwrap().danger().force_release().await.unwrap());
        let task = tokio::spawn({
            let job = job.clone();
            async move { job.run(|_| async { panic!("on purpose") }).await.map(|_: Outcome<()>| ()) }
        });
        assert!(task.await.unwrap_err().is_panic());
        rests(&job).await;
    }

    async fn a_run_that_was_cut_by_its_longest_time_rests(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(60)).max_run(ms(300));
        let cut = job.run(|_| std::future::pending::<()>()).await.unwrap();
        assert_eq!(cut, Outcome::Lost { reason: LostReason::MaxHold, done: None });
        rests(&job).await;
    }

    /// Whoever waits for the lock of that name learns when the rest ends, though it was told of a whole lease.
    async fn a_waiter_for_the_lock_gets_it_when_the_rest_is_over(world) {
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
        at_rest(world).await;
    }

    async fn a_rest_can_be_ended_by_force(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(600));
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
        assert!(Lock::new(&client, "nightly").unwrap().danger().force_release().await.unwrap());
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
    }

    /// The record tells when the rest ends. Without it the lease that was asked for at the start is at least as long.
    async fn a_lost_record_does_not_shorten_the_rest(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(seconds(60));
        let Begun::Running(run) = job.begin().await.unwrap() else { panic!() };
        drop(world.admin(&["DEL", RECORD]));
        run.release().await.unwrap();
        assert!(ttl(world) > 50_000, "{}", ttl(world));
    }
}

async fn rests(job: &Job) {
    eventually_async("it rests", async || {
        let holder = job.status().await.unwrap().holder;
        holder.is_some_and(|holder| holder.activity == Activity::Resting)
    })
    .await;
    assert!(job.status().await.unwrap().free_by > Some(seconds(30)));
}

#[tokio::test(start_paused = true)]
async fn the_rest_ends_to_the_millisecond() {
    for (lease, worked) in [(30, 0), (30, 9), (1, 9), (600, 3)] {
        let world = World::engine();
        let client = world.client().await;
        let lease = Lease::new(seconds(lease)).unwrap();
        let job = nightly(&client).with_lease(lease).at_least(seconds(10));
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

/// Killed at once, it has asked for its least time all the same.
#[tokio::test(start_paused = true)]
async fn a_process_that_dies_keeps_the_job_for_its_least_time() {
    let world = World::engine();
    let (dying, other) = (world.named("dying").await, world.client().await);
    let job = nightly(&dying).at_least(seconds(300));
    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!()
    };
    world.as_engine().faults().freeze(Some("dying"));
    tokio::time::sleep(seconds(295)).await;
    let held = nightly(&other).begin().await.unwrap();
    assert!(matches!(held, Begun::Skipped { .. }), "{held:?}");
    tokio::time::sleep(seconds(6)).await;
    assert!(matches!(
        nightly(&other).begin().await.unwrap(),
        Begun::Running(_)
    ));
    assert!(!run.is_held());
}

/// A renewal that was on its way when the run ended must not lengthen the rest: it is in another name.
#[tokio::test(start_paused = true)]
async fn a_late_renewal_does_not_lengthen_the_rest() {
    let world = World::engine();
    let client = world.client().await;
    let job = nightly(&client).at_least(seconds(5));
    let Begun::Running(run) = job.begin().await.unwrap() else {
        panic!()
    };
    run.renew().await.unwrap(); // the server knows the script
    world.as_engine().faults().hold_requests("EVALSHA", 1);
    drop(tokio::time::timeout(ms(100), run.renew()).await);
    // Its client gives the connection up after a second, and ends the run over another one. The renewal's time is over after two.
    drop(run);
    eventually_async("it rests", async || ttl(&world) <= 5_000).await;
    world.as_engine().faults().deliver();
    tokio::time::sleep(ms(10)).await;
    assert!((1..=5_000).contains(&ttl(&world)), "{}", ttl(&world));
}

#[tokio::test(start_paused = true)]
async fn at_maxmemory_nothing_begins_and_what_runs_ends() {
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
async fn what_cannot_be_asked_for_is_refused_by_its_value_and_a_rule() {
    let world = World::engine();
    let client = world.client().await;
    let owner = AcquireOptions::new().owner(&client.owner());
    for (job, rule) in [
        (
            nightly(&client).at_least(seconds(31 * 86_400)),
            "at_least 1month",
        ),
        (
            nightly(&client).remember(ms(10)),
            "remember 10ms: 1s to 10 years",
        ),
        (nightly(&client).max_run(ms(1)), "max_hold 1ms"),
        (nightly(&client).with_options(owner), "an owner of its own"),
    ] {
        let error = job.begin().await.unwrap_err().to_string();
        assert!(error.contains(rule), "{error}");
    }
    assert!(world.keys().is_empty());
}
