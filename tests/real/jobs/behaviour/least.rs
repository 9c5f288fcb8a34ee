//! Tests of the least time: after a short run the job rests, and others skip it, until exactly that time has passed.

use stanchion::jobs::{Activity, Begun, Outcome};
use stanchion::{Job, Lock, LostReason};
use stanchion_testkit::eventually_async;

use super::super::*;

/// Waits until a run begins.
async fn until_a_run_begins(job: &Job) {
    eventually_async("the rest is over", async || {
        matches!(job.begin().await.unwrap(), Begun::Running(_))
    })
    .await;
}

async fn until_it_rests(job: &Job) {
    eventually_async("the job rests", async || {
        let holder = job.status().await.unwrap().holder;
        holder.is_some_and(|holder| holder.activity == Activity::Resting)
    })
    .await;
    assert!(job.status().await.unwrap().free_by > Some(secs(30)));
}

on_both! {
    async fn a_quick_job_rests_and_another_machine_skips_it(world) {
        let (one, other) = (world.client().await, world.client().await);
        let job = |client| nightly(client).at_least(secs(3));
        assert_eq!(job(&one).run(|_| async {}).await.unwrap(), Outcome::Done(()));
        // The rest must not depend on the client that ran the job.
        assert!(one.shutdown(secs(5)).await.is_clean());
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
        let job = nightly(&client).at_least(secs(2));
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
        let job = nightly(&client).at_least(secs(60));
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
        let job = nightly(&client).at_least(secs(60)).max_run(ms(300));
        let cut = job.run(|_| std::future::pending::<()>()).await.unwrap();
        assert_eq!(cut, Outcome::Lost { reason: LostReason::MaxHold, done: None });
        until_it_rests(&job).await;
    }

    /// The waiter for the lock of the same name has first received the TTL of a whole lease. The rest is shorter.
    async fn a_waiter_for_the_lock_acquires_it_when_the_rest_ends(world) {
        let (one, other) = (world.client().await, world.client().await);
        let job = nightly(&one).at_least(secs(2));
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
        let job = nightly(&client).at_least(secs(600));
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
        assert!(Lock::new(&client, "nightly").unwrap().danger().force_release().await.unwrap());
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
    }

    /// The record contains the end of the rest. Without a record the lease of the run applies, which is at least as long.
    async fn a_lost_record_does_not_shorten_the_rest(world) {
        let client = world.client().await;
        let job = nightly(&client).at_least(secs(60));
        let Begun::Running(run) = job.begin().await.unwrap() else { panic!() };
        drop(world.admin(&["DEL", RECORD]));
        run.release().await.unwrap();
        assert!(ttl(world) > 50_000, "{}", ttl(world));
    }
}
