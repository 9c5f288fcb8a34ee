//! Tests of P3: a run that is dropped before its work begins leaves no hold and no claim. After that, its tick counts as run.

use std::sync::atomic::{AtomicU32, Ordering};

use stanchion::AcquireError;
use stanchion::jobs::{Begun, Outcome};
use stanchion_testkit::{cancel_after, for_each_await_point};
use stanchion_tests::{World, assert_is};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_tick_dropped_at_any_await_point_runs_once() {
    let (world, [one, other]) = World::slow_engine().with_clients().await;
    let start = this_minute(&world);
    let mut round = 0;
    let polls = for_each_await_point(async |polls| {
        round += 1;
        let tick = after(start, secs(round));
        let runs = AtomicU32::new(0);
        let work = async || {
            runs.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(ms(20)).await;
        };
        let done = cancel_after(nightly(&one).run_tick(tick, |_| work()), polls).await;
        // The claim of the dropped call may not be undone yet. Then this call is skipped, and retries.
        let next = loop {
            match nightly(&other).run_tick(tick, |_| work()).await.unwrap() {
                Outcome::Skipped { .. } => tokio::time::sleep(ms(1)).await,
                other => break other,
            }
        };
        only_the_record_is_left(&world).await;
        assert_eq!(
            runs.load(Ordering::Relaxed),
            1,
            "after {polls} polls: {done:?}, then {next:?}"
        );
        // The undo must keep the claim of the previous tick.
        let before = nightly(&other)
            .begin_tick(after(start, secs(round - 1)))
            .await
            .unwrap();
        assert!(
            round == 1 || matches!(before, Begun::Already { .. }),
            "{before:?}"
        );
        done.is_some()
    })
    .await;
    assert!(polls > 3);
}

/// No tick was claimed before, so the undo has no earlier tick to restore.
#[tokio::test(start_paused = true)]
async fn an_undone_first_claim_leaves_no_claim() {
    let (world, client) = World::slow_engine().with_client().await;
    let tick = this_minute(&world);
    assert!(
        cancel_after(nightly(&client).begin_tick(tick), 1)
            .await
            .is_none()
    );
    only_the_record_is_left(&world).await;
    world.quiet().await;
    assert_eq!([field(&world, "tick"), field(&world, "owner")], ["", ""]);
    let before = Tick::at(tick.time() - secs(60)).unwrap();
    assert!(matches!(
        nightly(&client).begin_tick(before).await.unwrap(),
        Begun::Running(_)
    ));
}

/// The request is sent while the server is frozen, and executed after the caller has dropped the call.
#[tokio::test(start_paused = true)]
async fn a_request_that_outlives_its_caller_claims_nothing() {
    for pause in [secs(1), secs(20)] {
        let (world, [late, other]) = World::engine().with_named(["late", "other"]).await;
        let tick = this_minute(&world);
        // Loads the scripts into the server.
        assert_eq!(
            nightly(&late).run(|_| async {}).await.unwrap(),
            Outcome::Done(())
        );
        let faults = world.faults();
        faults.freeze(Some("late"));
        let run = nightly(&late).run_tick(tick, |_| async { panic!("the call was dropped") });
        assert!(tokio::time::timeout(ms(300), run).await.is_err() as bool);
        tokio::time::sleep(pause).await;
        faults.thaw(Some("late"));
        world.quiet().await;
        only_the_record_is_left(&world).await;
        let here = nightly(&other).run_tick(tick, |_| async {}).await.unwrap();
        assert_eq!(here, Outcome::Done(()), "{pause:?}");
    }
}

/// A request that is delayed on its way must not claim the tick after it was undone.
#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_undo_claims_nothing() {
    let (world, [one, other]) = World::engine().with_named(["one", "other"]).await;
    let tick = this_minute(&world);
    assert_eq!(
        nightly(&one).run(|_| async {}).await.unwrap(),
        Outcome::Done(())
    );
    let faults = world.faults();
    // The client closes the connection after 1 s, and undoes the delayed request on another one.
    faults.hold_requests("EVALSHA", 1);
    let run = nightly(&one).begin_tick(tick);
    assert!(tokio::time::timeout(ms(200), run).await.is_err());
    stanchion_testkit::eventually("the request is undone", || {
        !field(&world, "undone").is_empty()
    })
    .await;
    // The server still accepts the request, which expires after 2 s.
    faults.deliver();
    tokio::time::sleep(ms(10)).await;
    let here = nightly(&other).begin_tick(tick).await.unwrap();
    assert!(matches!(here, Begun::Running(_)), "{here:?}");
}

#[tokio::test(start_paused = true)]
async fn a_closing_client_begins_nothing_and_claims_nothing() {
    let (world, [closing, other]) = World::slow_engine().with_clients().await;
    let tick = this_minute(&world);
    let run = tokio::spawn(nightly(&closing).begin_tick(tick));
    tokio::time::sleep(ms(2)).await;
    assert!(closing.shutdown(secs(5)).await.is_clean());
    let refused = run.await.unwrap().unwrap_err();
    assert_is!(refused, AcquireError::Shutdown { .. });
    assert!(matches!(
        nightly(&other).begin_tick(tick).await.unwrap(),
        Begun::Running(_)
    ));
}

/// P8, P9: the call returns in time, and its error says that the outcome is unknown.
#[tokio::test(start_paused = true)]
async fn a_call_without_a_server_fails_in_time() {
    let (world, client) = World::engine().with_client().await;
    let tick = this_minute(&world);
    world.faults().freeze(None);
    let began = tokio::time::Instant::now();
    let error = nightly(&client).begin_tick(tick).await.unwrap_err();
    assert!(began.elapsed() <= ms(5_050), "{:?}", began.elapsed());
    assert!(matches!(error, AcquireError::Ambiguous { .. }), "{error}");
    world.faults().thaw(None);
    world.quiet().await;
    assert!(matches!(
        nightly(&client).begin_tick(tick).await.unwrap(),
        Begun::Running(_)
    ));
}
