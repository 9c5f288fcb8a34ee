//! P3: a run that was dropped before its work was called leaves no hold and no claim; one that was dropped later has run.

use std::sync::atomic::{AtomicU32, Ordering};

use stanchion::{AcquireError, Begun, Outcome};
use stanchion_testkit::{cancel_after, for_each_await_point};
use stanchion_tests::World;

use crate::*;

#[tokio::test(start_paused = true)]
async fn a_tick_dropped_anywhere_is_run_once() {
    let world = World::slow_engine();
    let (one, other) = (world.client().await, world.client().await);
    let start = this_minute(&world);
    let mut round = 0;
    let polls = for_each_await_point(async |polls| {
        round += 1;
        let tick = after(start, seconds(round));
        let runs = AtomicU32::new(0);
        let work = async || {
            runs.fetch_add(1, Ordering::Relaxed);
            tokio::time::sleep(ms(20)).await;
        };
        let done = cancel_after(nightly(&one).run_tick(tick, |_| work()), polls).await;
        // The first request may still be on its way, and its claim not taken back yet: then this one is skipped, and asks again.
        let next = loop {
            match nightly(&other).run_tick(tick, |_| work()).await.unwrap() {
                Outcome::Skipped { .. } => tokio::time::sleep(ms(1)).await,
                other => break other,
            }
        };
        at_rest(&world).await;
        assert_eq!(
            runs.load(Ordering::Relaxed),
            1,
            "after {polls} polls: {done:?}, then {next:?}"
        );
        // The tick before stays claimed.
        let before = nightly(&other)
            .begin_tick(after(start, seconds(round - 1)))
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

/// The first claim of all: nothing was claimed before, and nothing is afterwards.
#[tokio::test(start_paused = true)]
async fn a_first_claim_that_is_taken_back_leaves_none() {
    let world = World::slow_engine();
    let client = world.client().await;
    let tick = this_minute(&world);
    assert!(
        cancel_after(nightly(&client).begin_tick(tick), 1)
            .await
            .is_none()
    );
    at_rest(&world).await;
    world.quiet().await;
    assert_eq!([field(&world, "tick"), field(&world, "owner")], ["", ""]);
    let before = Tick::at(tick.time() - seconds(60)).unwrap();
    assert!(matches!(
        nightly(&client).begin_tick(before).await.unwrap(),
        Begun::Running(_)
    ));
}

/// Written while the server was out of reach, executed when everybody has given up: it takes no lock and claims no tick.
#[tokio::test(start_paused = true)]
async fn a_request_that_outlives_its_caller_claims_nothing() {
    for pause in [seconds(1), seconds(20)] {
        let world = World::engine();
        let (late, other) = (world.named("late").await, world.named("other").await);
        let tick = this_minute(&world);
        // Every script is known to the server.
        assert_eq!(
            nightly(&late).run(|_| async {}).await.unwrap(),
            Outcome::Done(())
        );
        let faults = world.as_engine().faults();
        faults.freeze(Some("late"));
        let run = nightly(&late).run_tick(tick, |_| async { panic!("it was dropped") });
        assert!(tokio::time::timeout(ms(300), run).await.is_err() as bool);
        tokio::time::sleep(pause).await;
        faults.thaw(Some("late"));
        world.quiet().await;
        at_rest(&world).await;
        let here = nightly(&other).run_tick(tick, |_| async {}).await.unwrap();
        assert_eq!(here, Outcome::Done(()), "{pause:?}");
    }
}

/// A duplicate of a request that is on its way while its run is undone must not claim the tick after that.
#[tokio::test(start_paused = true)]
async fn a_duplicate_that_arrives_after_the_undoing_claims_nothing() {
    let world = World::engine();
    let (one, other) = (world.named("one").await, world.named("other").await);
    let tick = this_minute(&world);
    assert_eq!(
        nightly(&one).run(|_| async {}).await.unwrap(),
        Outcome::Done(())
    );
    let faults = world.as_engine().faults();
    // Held back on its way. Its client gives the connection up after a second, and undoes the request over another one.
    faults.hold_requests("EVALSHA", 1);
    let run = nightly(&one).begin_tick(tick);
    assert!(tokio::time::timeout(ms(200), run).await.is_err());
    stanchion_testkit::eventually("it is undone", || !field(&world, "undone").is_empty()).await;
    // It may still run: its time is over after two seconds.
    faults.deliver();
    tokio::time::sleep(ms(10)).await;
    let here = nightly(&other).begin_tick(tick).await.unwrap();
    assert!(matches!(here, Begun::Running(_)), "{here:?}");
}

#[tokio::test(start_paused = true)]
async fn a_closing_client_begins_nothing_and_claims_nothing() {
    let world = World::slow_engine();
    let (closing, other) = (world.client().await, world.client().await);
    let tick = this_minute(&world);
    let run = tokio::spawn(nightly(&closing).begin_tick(tick));
    tokio::time::sleep(ms(2)).await;
    assert!(closing.shutdown(seconds(5)).await.is_clean());
    let refused = run.await.unwrap().unwrap_err();
    assert!(
        matches!(refused, AcquireError::Shutdown { .. }),
        "{refused}"
    );
    assert!(matches!(
        nightly(&other).begin_tick(tick).await.unwrap(),
        Begun::Running(_)
    ));
}

/// P8, P9: an answer comes in time, and says what may be true.
#[tokio::test(start_paused = true)]
async fn without_a_server_nothing_begins_and_the_call_ends_in_time() {
    let world = World::engine();
    let client = world.client().await;
    let tick = this_minute(&world);
    world.as_engine().faults().freeze(None);
    let began = tokio::time::Instant::now();
    let error = nightly(&client).begin_tick(tick).await.unwrap_err();
    assert!(began.elapsed() <= ms(5_050), "{:?}", began.elapsed());
    assert!(matches!(error, AcquireError::Ambiguous { .. }), "{error}");
    world.as_engine().faults().thaw(None);
    world.quiet().await;
    assert!(matches!(
        nightly(&client).begin_tick(tick).await.unwrap(),
        Begun::Running(_)
    ));
}

on_both! {
    /// The guard was returned: from then on its tick has run, whatever was done under it.
    async fn a_guard_that_is_dropped_has_run(world) {
        let client = world.client().await;
        let tick = this_minute(world);
        drop(nightly(&client).begin_tick(tick).await.unwrap());
        at_rest(world).await;
        let again = nightly(&client).begin_tick(tick).await.unwrap();
        assert!(matches!(again, Begun::Already { .. }), "{again:?}");
    }
}
