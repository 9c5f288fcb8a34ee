//! Reports to the log that a server is lost and that it is back: once each, for all connections to it together.
//!
//! A node has up to three links, and all of them lose a server that stops. The first loss is logged at once, without a
//! reason. An outage that lasts is logged again with its reason, after 5 s and then every minute. The last link to reconnect
//! logs the end and the length. A server that is lost again within 10 s of a message is not logged at once, so a flapping
//! server does not fill the log.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Moment;
use crate::error::ConnectError;

/// A loss within this time of the last message is not logged at once, only by the first reminder.
const QUIET: Duration = Duration::from_secs(10);

/// The time into an outage at which it is logged with its reason.
const FIRST_REMINDER: Duration = Duration::from_secs(5);

/// The interval of later reminders.
const REMINDERS: Duration = Duration::from_secs(60);

/// The state of a server, shared by the supervisors of all links to it. The lock is held for the update only.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<State>);

#[derive(Debug)]
struct State {
    /// The number of links without a connection.
    down: u32,
    /// The start of the outage, while `down` is not 0.
    since: Moment,
    /// True when this outage has been logged, so its end will be too.
    told: bool,
    /// The time of the last message about an outage, of this one or an earlier one.
    told_at: Option<Moment>,
    /// From this moment on a failed attempt is logged.
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

    /// Records that a connection has ended.
    pub(crate) fn lost(&self, server: &str, now: Moment) {
        let mut state = self.state();
        // The other links of a server are lost with it; the first one has spoken for them.
        if !state.one_more_down(now) {
            return;
        }
        // Not told, so its end is not either, unless the outage lasts until the first reminder.
        let recent = state.told_at.is_some_and(|told| now.since(told) < QUIET);
        if !recent {
            state.tell(now);
            // A log line runs the subscriber's code, which may take long: not under the mutex.
            drop(state);
            tracing::warn!(server, "connection lost, connecting again");
        }
    }

    /// Records that a link has failed to connect at its first attempt.
    pub(crate) fn never_up(&self, now: Moment) {
        // Silent: during `Client::connect` the caller gets the error, and of a link that was added later the first
        // reminder tells.
        self.state().one_more_down(now);
    }

    /// Records another failed attempt to connect.
    pub(crate) fn failed(&self, server: &str, error: &ConnectError, now: Moment) {
        tracing::debug!(server, %error, "connecting failed");
        let mut state = self.state();
        // No timer of its own: attempts come in any case, and each of them looks.
        if state.down > 0 && now >= state.remind_at {
            state.tell(now);
            state.remind_at = now + REMINDERS;
            let since = whole(now.since(state.since));
            drop(state);
            tracing::warn!(server, %error, %since, "not connected");
        }
    }

    /// Records that a link has reconnected.
    pub(crate) fn back(&self, server: &str, now: Moment) {
        let over = self.state().one_less_down(now);
        if let Some(after) = over {
            tracing::info!(server, after = %whole(after), "connected again");
        }
    }

    /// Records that a link without a connection is not needed any more.
    pub(crate) fn given_up(&self, server: &str, now: Moment) {
        let over = self.state().one_less_down(now);
        if let Some(after) = over {
            tracing::info!(server, after = %whole(after), "not used any more");
        }
    }
}

impl State {
    /// Returns whether it is the first link to be down.
    fn one_more_down(&mut self, now: Moment) -> bool {
        self.down += 1;
        let first = self.down == 1;
        if first {
            // `told_at` stays: it spans outages, or a server that comes and goes would be told each time.
            (self.since, self.told) = (now, false);
            self.remind_at = now + FIRST_REMINDER;
        }
        first
    }

    /// Returns the length of the outage, if this ends one that was logged.
    fn one_less_down(&mut self, now: Moment) -> Option<Duration> {
        // Saturates: a wrong count may cost a message, not the supervisor.
        self.down = self.down.saturating_sub(1);
        let over = self.down == 0 && std::mem::take(&mut self.told);
        over.then(|| now.since(self.since))
    }

    fn tell(&mut self, now: Moment) {
        self.told = true;
        self.told_at = Some(now);
    }
}

/// Formats a duration in whole milliseconds.
fn whole(duration: Duration) -> humantime::FormattedDuration {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    humantime::format_duration(Duration::from_millis(millis))
}
