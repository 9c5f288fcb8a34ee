//! Helpers for the event tests.

use std::time::Duration;

use crate::{World, ms, secs};
use stanchion::events::NameState;
use stanchion::{Client, Event, Events, Lock};
use tokio::time::timeout;

/// A timeout far above the duration of any step.
pub const LONG: Duration = secs(60);
/// The default poll interval.
pub const POLL: Duration = secs(5);
/// The time from a change to its event when a message reports the change, in virtual time.
pub const SOON: Duration = ms(50);

/// An engine whose network ends after far more virtual time than any test needs.
pub fn engine() -> World {
    World::engine().ends_after(LONG * 120)
}

pub fn slow_engine() -> World {
    World::slow_engine().ends_after(LONG * 120)
}

pub async fn next(events: &mut Events) -> Event {
    timeout(LONG, events.next())
        .await
        .expect("an event arrives")
        .expect("the stream has not ended")
}

/// The short names (`taken`, `released`, …) of the events up to the first `last`.
pub async fn words(events: &mut Events, last: &str) -> Vec<String> {
    let mut words = Vec::new();
    while words.last().is_none_or(|word| word != last) {
        words.push(word(&next(events).await));
    }
    words
}

pub fn word(event: &Event) -> String {
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
        Event::Round(round) => format!("round {round}"),
        Event::Parties(parties) => format!("{parties} parties"),
        Event::Deleted => "deleted".into(),
        Event::Unknown(_) => "unknown".into(),
        other => panic!("{other:?}"),
    }
}

/// Returns the next event, which must be a state.
pub async fn now(events: &mut Events) -> NameState {
    match next(events).await {
        Event::Now(state) => state,
        other => panic!("expected Event::Now: {other:?}"),
    }
}

/// Asserts that no event arrives within `pause`.
pub async fn quiet(events: &mut Events, pause: Duration) {
    let nothing = timeout(pause, events.next()).await;
    assert!(nothing.is_err(), "{nothing:?}");
}

pub fn lock(client: &Client) -> Lock {
    Lock::new(client, "orders").unwrap()
}
