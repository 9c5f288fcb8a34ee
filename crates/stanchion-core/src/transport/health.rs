//! Tells the log when a server is lost and when it is back: once each, however many connections there are to it.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Moment;
use crate::error::ConnectError;

/// A server that is lost again so soon after it was told is told by its first reminder only.
const QUIET: Duration = Duration::from_secs(10);

/// An outage of this length is told with its reason,
const FIRST_REMINDER: Duration = Duration::from_secs(5);

/// and so often from then on.
const REMINDERS: Duration = Duration::from_secs(60);

/// The state of a server, by all connections to it.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug)]
struct State {
    /// Connections that are missing.
    down: u32,
    since: Moment,
    /// The log knows that the server is lost.
    told: bool,
    told_at: Option<Moment>,
    remind_at: Moment,
}

impl Default for State {
    fn default() -> Self {
        Self {
            down: 0,
            since: Moment::ZERO,
            told: false,
            told_at: None,
            remind_at: Moment::ZERO,
        }
    }
}

impl Health {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection has ended.
    pub(super) fn lost(&self, server: &str, now: Moment) {
        let mut state = self.state();
        if !state.one_more_down(now) {
            return;
        }
        let recent = state.told_at.is_some_and(|told| now.since(told) < QUIET);
        if !recent {
            state.tell(now);
            tracing::warn!(server, "connection lost, connecting again");
        }
    }

    /// A connection could not be made at the first try.
    pub(super) fn never_up(&self, now: Moment) {
        self.state().one_more_down(now);
    }

    /// Another try to connect has failed.
    pub(super) fn failed(&self, server: &str, error: &ConnectError, now: Moment) {
        tracing::debug!(server, %error, "connecting failed");
        let mut state = self.state();
        if state.down > 0 && now >= state.remind_at {
            state.tell(now);
            state.remind_at = now + REMINDERS;
            let since = whole(now.since(state.since));
            tracing::warn!(server, %error, %since, "not connected");
        }
    }

    /// A connection that was missing is there.
    pub(super) fn back(&self, server: &str, now: Moment) {
        if let Some(after) = self.state().one_less_down(now) {
            tracing::info!(server, after = %whole(after), "connected again");
        }
    }

    /// A connection that was missing is not needed any more.
    pub(super) fn given_up(&self, server: &str, now: Moment) {
        if let Some(after) = self.state().one_less_down(now) {
            tracing::info!(server, after = %whole(after), "not used any more");
        }
    }
}

impl State {
    /// Returns whether it is the first.
    fn one_more_down(&mut self, now: Moment) -> bool {
        self.down += 1;
        let first = self.down == 1;
        if first {
            (self.since, self.told) = (now, false);
            self.remind_at = now + FIRST_REMINDER;
        }
        first
    }

    /// How long the outage was, when this ends one that was told.
    fn one_less_down(&mut self, now: Moment) -> Option<Duration> {
        self.down = self.down.saturating_sub(1);
        let over = self.down == 0 && std::mem::take(&mut self.told);
        over.then(|| now.since(self.since))
    }

    fn tell(&mut self, now: Moment) {
        self.told = true;
        self.told_at = Some(now);
    }
}

/// A duration for people.
fn whole(duration: Duration) -> humantime::FormattedDuration {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis))
}
