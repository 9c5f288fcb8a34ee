//! `Election::lead` runs the work of the leader in each term.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use stanchion::election::{CampaignOptions, Stop, Term, TermEnd, WorkError};
use stanchion::{AcquireError, LostReason};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_is, ms, secs};
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep};

use stanchion_tests::election::*;

type Outcome = Result<(), WorkError>;

async fn until_stopped(_term: Term, stop: Stop) -> Outcome {
    stop.requested().await;
    Ok(())
}

/// kubernetes#139991: the lock is released before the work has ended.
#[tokio::test(start_paused = true)]
async fn the_lease_is_kept_until_slow_work_has_ended() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let (quit, quitting) = oneshot::channel::<()>();
    let ended = Arc::new(AtomicU32::new(0));
    let at_end = Arc::clone(&ended);
    let slow = LEASE * 3;
    let leading = tokio::spawn(
        election(&ours)
            .lead("ours", move |term, stop| {
                let at_end = Arc::clone(&at_end);
                async move {
                    stop.requested().await;
                    assert!(stop.is_requested());
                    sleep(slow).await;
                    assert!(term.is_held() && term.remaining() > Duration::ZERO);
                    at_end.fetch_add(1, Ordering::SeqCst);
                    Ok(())
                }
            })
            .until(async { drop(quitting.await) })
            .grace(slow * 2)
            .into_future(),
    );
    world.until(&["EXISTS", "indexer"], "1").await;
    let waiting = campaign(&theirs, "theirs");
    candidates(&world, &theirs, 1).await;
    quit.send(()).unwrap();
    let started = Instant::now();
    let term = waiting.await.unwrap().unwrap();
    let took = started.elapsed();
    assert_eq!(
        ended.load(Ordering::SeqCst),
        1,
        "released before the work had ended"
    );
    assert!(took >= slow && took < slow + ms(50), "{took:?}");
    let end = leading.await.unwrap().unwrap();
    assert_eq!((end.terms, end.last), (1, TermEnd::Ended));
    drop(term);
}

#[tokio::test(start_paused = true)]
async fn work_that_does_not_stop_is_dropped_after_the_grace() {
    let (world, client) = World::engine().with_client().await;
    let leading = election(&client).lead("v", |_, _| async {
        std::future::pending::<()>().await;
        Ok(())
    });
    let started = Instant::now();
    let end = leading.until(sleep(LEASE)).grace(LEASE * 2).await.unwrap();
    assert_eq!(end.last, TermEnd::Dropped);
    let took = started.elapsed();
    assert!(took >= LEASE * 3 && took < LEASE * 3 + ms(50), "{took:?}");
    assert_eq!(world.admin(&["EXISTS", "indexer"]), "0");
}

/// In Curator's LeaderSelector an exception of the listener is swallowed, and the leadership simply ends.
#[tokio::test(start_paused = true)]
async fn work_that_fails_or_panics_steps_down_and_runs_again_after_a_pause() {
    let (world, client) = World::engine().with_client().await;
    let (runs, times) = (Arc::new(AtomicU32::new(0)), Instant::now());
    let end = election(&client)
        .lead("v", {
            let runs = Arc::clone(&runs);
            move |_, _| {
                let run = runs.fetch_add(1, Ordering::SeqCst);
                async move {
                    match run {
                        0 => panic!("at first"),
                        1 => Err("and then".into()),
                        2 => Ok(()),
                        3 => panic!("at {}", "last"),
                        _ => std::future::pending().await,
                    }
                }
            }
        })
        .until(sleep(secs(5)))
        .grace(Duration::ZERO)
        .await
        .unwrap();
    assert_eq!((end.terms, end.failed, end.panicked), (5, 1, 2));
    assert_eq!(end.last, TermEnd::Dropped);
    assert_eq!(runs.load(Ordering::SeqCst), 5);
    assert!(times.elapsed() < secs(6));
    let end = election(&client)
        .lead("v", |_, _| async { Err("no".into()) })
        .once()
        .await;
    assert_eq!(end.unwrap().last, TermEnd::Failed("no".into()));
    let end = election(&client)
        .lead("v", move |_, _| async move {
            if times.elapsed() > Duration::ZERO {
                panic!("oh")
            }
            Ok(())
        })
        .once()
        .await;
    assert_eq!(end.unwrap().last, TermEnd::Panicked("oh".into()));
    world.at_rest().await;
}

/// A leader whose work fails at once must not block others or load the server.
#[tokio::test(start_paused = true)]
async fn the_pauses_after_failures_grow() {
    let (_world, client) = World::engine().with_client().await;
    let end = election(&client)
        .lead("v", |_, _| async { Err("no".into()) })
        .until(sleep(secs(600)))
        .await
        .unwrap();
    // Pauses of at most 1, 2, 4, 8 and 16 s, then 30 s each, and at least half of that.
    assert!((20..=45).contains(&end.terms), "{end:?}");
}

/// Curator's phantom leaders: the work of a lost term must not continue.
#[tokio::test(start_paused = true)]
async fn a_loss_drops_the_work_and_a_new_term_follows() {
    let (_world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let (tokens, seen) = tokio::sync::mpsc::unbounded_channel();
    let leading = tokio::spawn(
        election(&ours)
            .lead("ours", move |term, stop| {
                tokens.send((term.fencing_token(), term.clone())).unwrap();
                until_stopped(term, stop)
            })
            .until(sleep(secs(300)))
            .into_future(),
    );
    let mut seen = seen;
    let (first, view) = seen.recv().await.unwrap();
    sleep(secs(2)).await;
    assert!(election(&theirs).danger().depose().await.unwrap());
    let (second, again) = seen.recv().await.unwrap();
    assert!(second > first && !view.is_held() && again.is_held());
    assert!(view.proclaim("phantom").await.is_err());
    assert_eq!(view.remaining(), Duration::ZERO);
    assert_eq!(value(election(&theirs).leader().await.unwrap()), "ours");
    let end = leading.await.unwrap().unwrap();
    assert_eq!((end.terms, end.last), (2, TermEnd::Ended));
}

#[tokio::test(start_paused = true)]
async fn a_drain_stops_the_work_before_the_lease_ends() {
    let (world, client) = World::engine().with_client().await;
    let drained = Arc::new(AtomicU32::new(0));
    let at_end = Arc::clone(&drained);
    let leading = tokio::spawn(
        election(&client)
            .lead("v", move |term, stop| {
                let at_end = Arc::clone(&at_end);
                async move {
                    stop.requested().await;
                    at_end.fetch_add(1, Ordering::SeqCst);
                    assert!(term.is_held());
                    Ok(())
                }
            })
            .drain(secs(5))
            .once()
            .into_future(),
    );
    sleep(LEASE * 10).await;
    assert_eq!(drained.load(Ordering::SeqCst), 0, "while renewals succeed");
    world.faults().freeze(None);
    let started = Instant::now();
    eventually("the stop is requested", || {
        drained.load(Ordering::SeqCst) == 1
    })
    .await;
    let took = started.elapsed();
    assert!(took <= LEASE - secs(5) && took > secs(4), "{took:?}");
    let _ = leading.await.unwrap().unwrap();
    world.faults().thaw(None);
}

/// client-go#1155: the election ends after one lost term.
#[tokio::test(start_paused = true)]
async fn lead_campaigns_again_after_the_longest_term() {
    let (_world, client) = World::engine().with_client().await;
    let end = election(&client)
        .lead("v", until_stopped)
        .options(CampaignOptions::new().max_term(secs(20)))
        .until(sleep(secs(200)))
        .await
        .unwrap();
    assert!(end.terms >= 4, "{end:?}");
    let end = election(&client)
        .lead("v", until_stopped)
        .options(CampaignOptions::new().max_term(secs(20)))
        .once()
        .await;
    assert_eq!(end.unwrap().last, TermEnd::Lost(LostReason::MaxHold));
}

/// client-go#1187: a candidate that never led reports the end of a leadership.
#[tokio::test(start_paused = true)]
async fn a_candidate_that_never_led_reports_never_elected() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let term = election(&theirs).campaign("theirs").await.unwrap();
    let waited = election(&ours)
        .lead("ours", until_stopped)
        .until(sleep(LEASE * 2))
        .await;
    let end = waited.unwrap();
    assert_eq!((end.terms, end.last), (0, TermEnd::NeverElected));
    let soon = CampaignOptions::new().timeout(secs(1));
    let gave_up = election(&ours)
        .lead("ours", until_stopped)
        .options(soon)
        .await;
    assert_is!(gave_up, Err(AcquireError::TimedOut { .. }));
    candidates(&world, &theirs, 0).await;
    assert!(term.is_held());
    let closed = ours.shutdown(secs(1)).await;
    assert!(closed.is_clean());
    let shut = election(&ours).lead("ours", until_stopped).await;
    assert_is!(shut, Err(AcquireError::Shutdown { .. }));
}

#[tokio::test(start_paused = true)]
async fn a_dropped_lead_steps_down_in_the_background() {
    let (world, [ours, theirs]) = World::engine().with_named(["ours", "theirs"]).await;
    let leading = tokio::spawn(election(&ours).lead("ours", until_stopped).into_future());
    world.until(&["EXISTS", "indexer"], "1").await;
    let waiting = campaign(&theirs, "theirs");
    candidates(&world, &theirs, 1).await;
    let started = Instant::now();
    leading.abort();
    drop(waiting.await.unwrap().unwrap());
    assert!(started.elapsed() < ms(50));
}

/// Three minutes without a server, then one minute of full memory.
#[tokio::test(start_paused = true)]
async fn lead_continues_after_an_outage() {
    use stanchion::embedded::Switch;
    let (world, client) = World::engine().with_client().await;
    let leading = tokio::spawn(
        election(&client)
            .lead("v", until_stopped)
            .until(sleep(secs(400)))
            .into_future(),
    );
    world.until(&["EXISTS", "indexer"], "1").await;
    let faults = world.faults();
    faults.refuse_connections(Switch::On);
    faults.kill_connections();
    sleep(secs(180)).await;
    faults.refuse_connections(Switch::Off);
    faults.out_of_memory(Switch::On);
    sleep(secs(60)).await;
    faults.out_of_memory(Switch::Off);
    world.until(&["EXISTS", "indexer"], "1").await;
    let end = leading.await.unwrap().unwrap();
    assert_eq!((end.terms, end.last), (2, TermEnd::Ended));
}

/// The compiler infers the error of work that only loops, and of work that uses `?`.
#[tokio::test(start_paused = true)]
async fn work_needs_no_annotation_of_its_error() {
    let (_world, client) = World::engine().with_client().await;
    let looping = election(&client)
        .lead("v", |term, _| async move {
            loop {
                term.proclaim("w").await?;
                sleep(LEASE).await;
            }
        })
        .until(sleep(LEASE))
        .grace(Duration::ZERO);
    assert_eq!(looping.await.unwrap().last, TermEnd::Dropped);
    let failing = election(&client).lead("v", |_, _| async {
        let _: u8 = "x".parse()?;
        Ok(())
    });
    let text = "invalid digit found in string".to_owned();
    assert_eq!(failing.once().await.unwrap().last, TermEnd::Failed(text));
}
