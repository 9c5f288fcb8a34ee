//! Tests of the fields that the spans of operations have when they close.

use stanchion::{AcquireOptions, Fencing, Lock, RwLock};
use stanchion_tests::{World, ms, secs};
use tracing_subscriber::filter::LevelFilter;
use tracing_subscriber::fmt::format::FmtSpan;
use tracing_subscriber::util::SubscriberInitExt as _;

use crate::Log;

fn listen(most: LevelFilter) -> (Log, impl Drop) {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(most)
        .with_span_events(FmtSpan::CLOSE)
        .with_ansi(false)
        .without_time()
        .with_writer(log.writer())
        .finish();
    (log, subscriber.set_default())
}

/// The fields of the last span of this name that has ended.
fn last(log: &Log, operation: &str) -> String {
    let begin = format!("{operation}{{");
    let text = log.text();
    let lines = text.lines().filter(|line| line.contains(" close"));
    let mut fields = lines.filter_map(|line| line.split_once(&begin)?.1.split_once('}'));
    fields
        .next_back()
        .map(|(fields, _)| fields.to_owned())
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_span_ends_with_its_outcome_its_token_and_its_times() {
    let (log, _listening) = listen(LevelFilter::DEBUG);
    let world = World::engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    let token = guard.fencing_token().unwrap().get();
    let of = |rest: &str| format!("kind=\"lock\" name=job {rest}");
    let acquired = format!("outcome=\"acquired\" waited_ms=0 token={token}");
    assert_eq!(last(&log, "acquire"), of(&acquired));
    let waiting = lock.acquire_timeout(ms(70)).await;
    assert!(waiting.is_err());
    let timed_out = of("outcome=\"timed_out\" waited_ms=70");
    assert_eq!(last(&log, "acquire"), timed_out);
    assert!(lock.try_acquire().await.unwrap().is_none());
    let busy = of("outcome=\"busy\" waited_ms=0");
    assert_eq!(last(&log, "try_acquire"), busy);
    tokio::time::sleep(secs(2)).await;
    guard.renew().await.unwrap();
    guard.reenter().await.unwrap().release().await.unwrap();
    for operation in ["renew", "reenter"] {
        let fields = last(&log, operation);
        assert!(
            fields.contains("outcome=\"renewed\" held_ms=2070"),
            "{fields}"
        );
    }
    guard.release().await.unwrap();
    let released = format!("outcome=\"released\" held_ms=2070 token={token}");
    assert_eq!(last(&log, "release"), of(&released));
    let brief = AcquireOptions::new().max_hold(secs(1));
    let plain = lock.fencing(Fencing::Off);
    let guard = plain.acquire_with(brief).await.unwrap();
    guard.lost().await;
    assert!(guard.release().await.is_err());
    let lost = last(&log, "release");
    assert!(lost.starts_with(&of("outcome=\"lost\" held_ms=")), "{lost}");
    assert!(!lost.contains("token"));
    let writing = RwLock::new(&client, "prices")
        .unwrap()
        .write()
        .await
        .unwrap();
    writing.downgrade().await.unwrap().release().await.unwrap();
    let downgraded = last(&log, "downgrade");
    assert!(downgraded.contains("outcome=\"released\""), "{downgraded}");
}

/// A span of the program around an operation may have fields with the same names.
#[tokio::test(start_paused = true)]
async fn a_disabled_span_records_nothing_in_the_enclosing_span() {
    use tracing::Instrument as _;

    let (log, _listening) = listen(LevelFilter::INFO);
    let world = World::engine();
    let client = world.client().await;
    let outer = tracing::info_span!("order", outcome = "mine", token = tracing::field::Empty);
    let work = async {
        let lock = Lock::new(&client, "job").unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
    };
    work.instrument(outer).await;
    assert_eq!(last(&log, "order"), "outcome=\"mine\"");
}
