//! Tests that each tick runs once, whatever the clocks of the machines show.

use stanchion::jobs::{Activity, Begun, Outcome};
use stanchion::{AcquireError, LostReason, Rejection, Tick};

use super::super::*;

on_both! {
    /// The first run ends before the second machine's request. A lock alone would let the tick run again.
    async fn two_machines_a_second_apart_run_a_tick_once(world) {
        let (one, other) = (world.client().await, world.client().await);
        let tick = this_minute(world);
        let first = nightly(&one).run_tick(tick, |run| async move { run.tick() }).await.unwrap();
        assert_eq!(first, Outcome::Done(Some(tick)));
        let begun = server_time(world);
        tokio::time::sleep(ms(1_000)).await;
        let second = nightly(&other).run_tick(tick, |_| async { panic!("twice") }).await.unwrap();
        let Outcome::<()>::Already { tick: ran, at } = second else { panic!("{second:?}") };
        assert_eq!(ran, tick);
        assert!(at <= begun && begun.duration_since(at).unwrap() < secs(5), "{at:?}");
        only_the_record_is_left(world).await;
    }

    async fn a_tick_whose_run_fails_does_not_run_again(world) {
        let client = world.client().await;
        let tick = this_minute(world);
        let failed = nightly(&client).run_tick(tick, |_| async { Err::<(), _>("no disk") }).await.unwrap();
        assert_eq!(failed, Outcome::Done(Err("no disk")));
        let again = nightly(&client).begin_tick(tick).await.unwrap();
        assert!(matches!(again, Begun::Already { .. }), "{again:?}");
    }

    async fn a_tick_before_the_last_one_does_not_run(world) {
        let client = world.client().await;
        let (job, tick) = (nightly(&client), this_minute(world));
        assert_eq!(job.run_tick(tick, |_| async {}).await.unwrap(), Outcome::Done(()));
        let before = Tick::from_unix_millis(tick.unix_millis() - 1).unwrap();
        let late = job.run_tick(before, |_| async { panic!("an old one") }).await.unwrap();
        assert!(matches!(late, Outcome::<()>::Already { tick: last, .. } if last == tick), "{late:?}");
        let next = after(tick, ms(1));
        assert_eq!(job.run_tick(next, |_| async {}).await.unwrap(), Outcome::Done(()));
    }

    async fn a_run_makes_others_skip_its_tick_and_the_next_one(world) {
        let (one, other) = (world.client().await, world.client().await);
        let tick = this_minute(world);
        let next = after(tick, ms(500));
        let Begun::Running(run) = nightly(&one).begin_tick(tick).await.unwrap() else { panic!() };
        // Skipped and not Already, because the run has not ended.
        let same = nightly(&other).begin_tick(tick).await.unwrap();
        assert!(matches!(same, Begun::Skipped { .. }), "{same:?}");
        let before = Tick::from_unix_millis(tick.unix_millis() - 1).unwrap();
        let before = nightly(&other).begin_tick(before).await.unwrap();
        assert!(matches!(before, Begun::Skipped { .. }), "{before:?}");
        let overlap = nightly(&other).begin_tick(next).await.unwrap();
        let Begun::Skipped { holder, free_by } = overlap else { panic!("{overlap:?}") };
        assert_eq!(holder.owner, run.owner().to_string());
        assert_eq!(holder.activity, Activity::Running);
        assert!(free_by > Some(secs(20)) && free_by <= Some(secs(30)), "{free_by:?}");
        run.release().await.unwrap();
        let same = nightly(&other).begin_tick(tick).await.unwrap();
        assert!(matches!(same, Begun::Already { .. }), "{same:?}");
        // A machine with a late clock runs the tick that others skipped.
        let Begun::Running(run) = nightly(&other).begin_tick(next).await.unwrap() else { panic!() };
        assert_eq!(run.tick(), Some(next));
        run.release().await.unwrap();
        only_the_record_is_left(world).await;
    }

    async fn a_run_without_a_tick_does_not_change_the_last_tick(world) {
        let client = world.client().await;
        let (job, tick) = (nightly(&client), this_minute(world));
        assert_eq!(job.run(|run| async move { run.tick() }).await.unwrap(), Outcome::Done(None));
        assert_eq!(job.run_tick(tick, |_| async {}).await.unwrap(), Outcome::Done(()));
        assert_eq!(job.run(|_| async {}).await.unwrap(), Outcome::Done(()));
        let again = job.begin_tick(tick).await.unwrap();
        assert!(matches!(again, Begun::Already { tick: last, .. } if last == tick), "{again:?}");
    }

    /// A tick that lies a year ahead, from a machine with a wrong clock, would block the job until then.
    async fn a_tick_too_far_ahead_or_behind_is_rejected_and_claims_nothing(world) {
        let client = world.client().await;
        let (job, tick) = (nightly(&client), this_minute(world));
        for (odd, rule) in [
            (after(tick, secs(3_700)), "more than 1h ahead of the server's clock"),
            (Tick::at(tick.time() - secs(8 * 86_400)).unwrap(), "older than the 7days"),
        ] {
            let error = job.run_tick(odd, |_| async {}).await.unwrap_err();
            let AcquireError::Rejected { rejection: Rejection::InvalidOption { rule: text }, .. } = &error else {
                panic!("{error}");
            };
            assert!(text.contains(rule) && text.contains(&odd.to_string()), "{text}");
        }
        assert!(world.keys().is_empty(), "{:?}", world.keys());
        assert_eq!(job.run_tick(tick, |_| async {}).await.unwrap(), Outcome::Done(()));
    }

    async fn a_tick_that_has_run_is_reported_as_run_during_a_later_run(world) {
        let (one, other) = (world.client().await, world.client().await);
        let tick = this_minute(world);
        assert_eq!(nightly(&one).run_tick(tick, |_| async {}).await.unwrap(), Outcome::Done(()));
        let Begun::Running(run) = nightly(&one).begin_tick(after(tick, ms(2))).await.unwrap() else { panic!() };
        let before = nightly(&other).begin_tick(tick).await.unwrap();
        assert!(matches!(before, Begun::Already { tick: last, .. } if last == tick), "{before:?}");
        let between = nightly(&other).begin_tick(after(tick, ms(1))).await.unwrap();
        assert!(matches!(between, Begun::Skipped { .. }), "{between:?}");
        run.release().await.unwrap();
        // A run without a tick does not change the last tick either.
        let Begun::Running(run) = nightly(&one).begin().await.unwrap() else { panic!() };
        let last = nightly(&other).begin_tick(after(tick, ms(2))).await.unwrap();
        assert!(matches!(last, Begun::Already { .. }), "{last:?}");
        run.release().await.unwrap();
    }

    async fn the_record_expires_after_the_remember_time(world) {
        let client = world.client().await;
        let (job, tick) = (nightly(&client), this_minute(world));
        assert_eq!(job.run_tick(tick, |_| async {}).await.unwrap(), Outcome::Done(()));
        let left: u64 = world.admin(&["PTTL", RECORD]).parse().unwrap();
        assert!((7 * 86_400_000 - 5_000..=7 * 86_400_000).contains(&left), "{left}");
        let brief = job.remember(secs(90));
        assert_eq!(brief.run_tick(after(tick, ms(1)), |_| async {}).await.unwrap(), Outcome::Done(()));
        let left: u64 = world.admin(&["PTTL", RECORD]).parse().unwrap();
        assert!((80_000..=90_000).contains(&left), "{left}");
    }

    async fn the_status_reports_the_last_run(world) {
        let client = world.client().await;
        let (job, tick) = (nightly(&client), this_minute(world));
        let never = job.status().await.unwrap();
        assert_eq!((never.holder, never.free_by, never.last_tick, never.last_run), (None, None, None, None));
        let Begun::Running(run) = job.begin_tick(tick).await.unwrap() else { panic!() };
        let status = job.status().await.unwrap();
        assert_eq!(status.holder.unwrap().activity, Activity::Running);
        assert_eq!(status.last_tick, Some(tick));
        let last = status.last_run.unwrap();
        assert_eq!((last.owner, last.ended), (run.owner().to_string(), None));
        run.release().await.unwrap();
        let status = job.status().await.unwrap();
        assert_eq!(status.holder, None);
        assert!(status.last_run.unwrap().ended.unwrap() >= last.began);
    }

    /// The limit of a run is independent of its lease. A run that exceeds the limit is reported as lost, not as done.
    async fn max_run_drops_a_longer_run_and_its_tick_does_not_run_again(world) {
        let client = world.client().await;
        let tick = this_minute(world);
        let job = nightly(&client).max_run(ms(300));
        let long = job.run_tick(tick, |_| std::future::pending::<()>()).await.unwrap();
        assert_eq!(long, Outcome::Lost { reason: LostReason::MaxHold, done: None });
        only_the_record_is_left(world).await;
        let again = job.begin_tick(tick).await.unwrap();
        assert!(matches!(again, Begun::Already { .. }), "{again:?}");
        let next = job.run_tick(after(tick, ms(1)), |_| async {}).await.unwrap();
        assert_eq!(next, Outcome::Done(()));
    }
}
