//! Helpers of the tests of events.

use std::time::Duration;

use stanchion::{Client, Event, Events, Lock, NameState};
use stanchion_tests::World;
use tokio::time::timeout;

/// More than anything takes.
pub(crate) const LONG: Duration = Duration::from_secs(60);
/// The default poll interval.
pub(crate) const POLL: Duration = Duration::from_secs(5);
/// The time within which a change that a message tells of is an event, in virtual time.
pub(crate) const SOON: Duration = Duration::from_millis(50);

/// Ends long after every test.
pub(crate) fn engine() -> World {
    World::engine().ends_after(LONG * 120)
}

pub(crate) fn slow_engine() -> World {
    World::slow_engine().ends_after(LONG * 120)
}

pub(crate) async fn next(events: &mut Events) -> Event {
    timeout(LONG, events.next())
        .await
        .expect("something happens")
        .expect("the stream goes on")
}

/// The events until the first of `last`, which comes last, in short: `taken`, `released`, …
pub(crate) async fn words(events: &mut Events, last: &str) -> Vec<String> {
    let mut words = Vec::new();
    while words.last().is_none_or(|word| word != last) {
        words.push(word(&next(events).await));
    }
    words
}

pub(crate) fn word(event: &Event) -> String {
    match event {
        Event::Now(_) => "now".into(),
        Event::Taken(_) => "taken".into(),
        Event::Released(_) => "released".into(),
        Event::Expired(_) => "expired".into(),
        Event::Free => "free".into(),
        Event::Available(free) => format!("{free} free"),
        Event::Armed(count) => format!("armed {count}"),
        Event::Counted(count) => format!("counted {count}"),
        Event::Opened => "opened".into(),
        Event::Deleted => "deleted".into(),
        Event::Unknown(_) => "unknown".into(),
        other => panic!("{other:?}"),
    }
}

/// The state of now, which is the first event.
pub(crate) async fn now(events: &mut Events) -> NameState {
    match next(events).await {
        Event::Now(state) => state,
        other => panic!("no state: {other:?}"),
    }
}

/// Asserts that nothing happens for a while.
pub(crate) async fn quiet(events: &mut Events, pause: Duration) {
    let nothing = timeout(pause, events.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

pub(crate) fn lock(client: &Client) -> Lock {
    Lock::new(client, "orders").unwrap()
}
