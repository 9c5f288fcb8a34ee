//! Tests of jobs whose keys others use, too: locks of the same name, Redisson, foreign keys. Also names, tokens and commands.

use stanchion::jobs::{Activity, Begun, Outcome};
use stanchion::{AcquireError, Fencing, Job, Lock, LostReason, Rejection};
use stanchion_tests::JAVA;

use super::super::*;

on_both! {
    async fn a_lock_of_the_same_name_blocks_the_job(world) {
        let (one, other) = (world.client().await, world.client().await);
        let (lock, tick) = (Lock::new(&one, "nightly").unwrap(), this_minute(world));
        let guard = lock.acquire().await.unwrap();
        let skipped = nightly(&other).run_tick(tick, |_| async { panic!() }).await.unwrap();
        let Outcome::<()>::Skipped { holder, free_by } = skipped else { panic!("{skipped:?}") };
        assert_eq!((holder.owner, holder.activity), (guard.owner().to_string(), Activity::Running));
        assert!(free_by.is_some());
        guard.release().await.unwrap();
        // A skipped tick can still run.
        let Begun::Running(run) = nightly(&other).begin_tick(tick).await.unwrap() else { panic!() };
        assert!(lock.try_acquire().await.unwrap().is_none());
        let waiter = tokio::spawn(lock.acquire());
        world.waiting(&one, 1, "redisson_lock__channel:{nightly}").await;
        let token = run.fencing_token();
        run.release().await.unwrap();
        let guard = waiter.await.unwrap().unwrap();
        assert!(guard.fencing_token() > token, "P2: one counter");
        guard.release().await.unwrap();
        only_the_record_is_left(world).await;
    }

    async fn a_skip_names_the_java_process_that_holds_the_lock(world) {
        let client = world.client().await;
        drop(world.admin(&["HSET", "nightly", JAVA, "2"]));
        drop(world.admin(&["PEXPIRE", "nightly", "20000"]));
        let skipped = nightly(&client).begin().await.unwrap();
        let Begun::Skipped { holder, free_by } = skipped else { panic!("{skipped:?}") };
        assert_eq!((holder.owner.as_str(), holder.activity), (JAVA, Activity::Running));
        assert!(free_by <= Some(secs(20)) && free_by > Some(secs(10)));
        drop(world.admin(&["PERSIST", "nightly"]));
        let skipped = nightly(&client).begin().await.unwrap();
        assert!(matches!(skipped, Begun::Skipped { free_by: None, .. }), "{skipped:?}");
    }

    /// A waiter of Redisson sleeps until the TTL in its reply has passed or a message arrives.
    async fn redisson_waiters_are_notified_of_the_end_and_of_the_rest(world) {
        let client = world.client().await;
        let mut java = world.listen("redisson_lock__channel:{nightly}").await;
        assert_eq!(nightly(&client).run(|_| async {}).await.unwrap(), Outcome::Done(()));
        // By the zero in front, stanchion's processes know that it is a turn of Redisson's clients.
        assert_eq!(java.next().await, "00");
        let job = nightly(&client).at_least(secs(60));
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
        assert_eq!(java.next().await, "0");
        assert!(ttl(world) > 50_000);
    }

    async fn force_release_ends_a_run_as_lost(world) {
        let client = world.client().await;
        let lock = Lock::new(&client, "nightly").unwrap();
        let lost = nightly(&client).run(async |_| {
            tokio::time::sleep(ms(1_500)).await;
            assert!(lock.danger().force_release().await.unwrap());
            std::future::pending::<()>().await;
        }).await.unwrap();
        assert_eq!(lost, Outcome::Lost { reason: LostReason::Gone, done: None });
        only_the_record_is_left(world).await;
    }

    /// The work may still run elsewhere in the process, so other clients skip the job until the lease ends.
    async fn a_run_whose_client_shuts_down_is_lost(world) {
        let (client, other) = (world.client().await, world.client().await);
        let lost = nightly(&client).run(async |_| {
            let left = client.shutdown(secs(1)).await;
            assert_eq!(left.abandoned.len(), 1);
            std::future::pending::<()>().await;
        }).await.unwrap();
        assert_eq!(lost, Outcome::Lost { reason: LostReason::Shutdown, done: None });
        assert!(matches!(nightly(&other).begin().await.unwrap(), Begun::Skipped { .. }));
    }

    /// The work may have ended after the loss. The outcome reports the loss, with the result of the work.
    async fn work_that_ends_after_the_loss_is_reported_as_lost(world) {
        let client = world.client().await;
        let out = nightly(&client).run(async |_| {
            drop(world.admin(&["DEL", "nightly"]));
            7
        }).await.unwrap();
        assert_eq!(out, Outcome::Lost { reason: LostReason::Gone, done: Some(7) });
    }

    async fn foreign_keys_are_rejected_and_unchanged(world) {
        let client = world.client().await;
        let refused = async |what: &str| {
            let before = world.dump();
            let error = nightly(&client).begin_tick(this_minute(world)).await.unwrap_err();
            let wrong = matches!(error, AcquireError::Rejected { rejection: Rejection::WrongType { .. }, .. });
            assert!(wrong, "{what}: {error}");
            assert_eq!(world.dump(), before, "{what}");
        };
        drop(world.admin(&["SET", "nightly", "theirs"]));
        refused("a string").await;
        drop(world.admin(&["DEL", "nightly"]));
        drop(world.admin(&["HSET", "nightly", "mode", "read", "x:1", "1"]));
        refused("a read-write lock").await;
        drop(world.admin(&["DEL", "nightly"]));
        drop(world.admin(&["HSET", "nightly", "colour", "red"]));
        refused("a hash").await;
        drop(world.admin(&["DEL", "nightly"]));
        drop(world.admin(&["SET", RECORD, "theirs"]));
        refused("a record of another type").await;
    }

    async fn a_replaced_record_does_not_prevent_the_release(world) {
        let client = world.client().await;
        let Begun::Running(run) = nightly(&client).begin().await.unwrap() else { panic!() };
        drop(world.admin(&["SET", RECORD, "theirs"]));
        run.release().await.unwrap();
        assert_eq!(ttl(world), -2, "the job is free");
        assert_eq!(world.admin(&["GET", RECORD]), "theirs");
    }

    async fn names_of_any_bytes_are_separate_jobs(world) {
        let client = world.client().await;
        let tick = this_minute(world);
        let names: [&[u8]; 7] = [b"x", b"{x}", b"a{7}b", b"{", b"with\nnewline", b"\xff\0", b"'); DROP"];
        for name in names {
            let job = Job::new(&client, name).unwrap();
            let ran = job.run_tick(tick, |_| async {}).await.unwrap();
            assert_eq!(ran, Outcome::Done(()), "{name:?}: shares its ticks with another job");
            let again = job.begin_tick(tick).await.unwrap();
            assert!(matches!(again, Begun::Already { .. }), "{name:?}");
        }
    }

    async fn tokens_come_from_the_configured_counter(world) {
        let client = world.client().await;
        let token = async |job: &Job| match job.run(|run| async move { run.fencing_token() }).await.unwrap() {
            Outcome::Done(token) => token,
            other => panic!("{other:?}"),
        };
        let job = nightly(&client);
        assert!(token(&job).await < token(&job).await, "P2");
        assert_eq!(token(&job.clone().fencing(Fencing::Off)).await, None);
        let own = job.fencing(Fencing::PerName);
        let last = token(&own).await.unwrap();
        assert_eq!(world.admin(&["GET", "redisson_lock_token:{nightly}"]), last.to_string());
    }

    async fn a_run_costs_two_commands_and_a_rejected_tick_one(world) {
        let client = world.client().await;
        let (job, tick) = (nightly(&client), this_minute(world));
        assert_eq!(job.run_tick(tick, |_| async {}).await.unwrap(), Outcome::Done(()));
        world.quiet().await;
        let before = world.scripts_run();
        assert_eq!(job.run_tick(after(tick, ms(1)), |_| async {}).await.unwrap(), Outcome::Done(()));
        assert_eq!(world.scripts_run() - before, 2, "P11");
        let _ = job.begin_tick(tick).await.unwrap();
        assert_eq!(world.scripts_run() - before, 3);
    }
}
