//! Logs that a server is lost and that it is back, once each for all connections to that server together.
//!
//! A node has up to three links, and all of them lose a server that stops. The first loss is logged at once, without a
//! reason. A longer outage is logged again with its reason, after 5 s and then every minute. The last link to reconnect logs
//! the end and the length of the outage. If a server is lost again within 10 s of a message, that loss is not logged at
//! once, so a flapping server does not fill the log.
//!
//! The record also has the server's run id, which shows a restart.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::clock::Moment;
use crate::error::ConnectError;

/// A loss within this time after the last message is not logged at once. Only its first reminder is logged.
const QUIET: Duration = Duration::from_secs(10);

/// The age of an outage at which it is logged with its reason.
const FIRST_REMINDER: Duration = Duration::from_secs(5);

/// The interval of later reminders.
const REMINDERS: Duration = Duration::from_secs(60);

/// The state of a server, shared by the supervisors of all links to it. The lock is held only for the update.
#[derive(Debug, Default)]
pub(crate) struct Health(Mutex<HealthState>);

#[derive(Debug)]
struct HealthState {
    /// The number of links without a connection.
    down: u32,
    /// The start of the outage, while `down` is not 0.
    since: Moment,
    /// True when this outage was logged. Then its end is logged, too.
    told: bool,
    /// The time of the last log message about this outage or an earlier one.
    told_at: Option<Moment>,
    /// The moment after which a failed attempt is logged.
    remind_at: Moment,
    /// The server's process that a connection has reached last, and the number of masters that had been replaced by then.
    process: Option<(String, u64)>,
}

impl Default for HealthState {
    fn default() -> Self {
        Self {
            down: 0,
            since: Moment::ZERO,
            told: false,
            told_at: None,
            remind_at: Moment::ZERO,
            process: None,
        }
    }
}

impl Health {
    fn state(&self) -> MutexGuard<'_, HealthState> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns whether any loss was logged.
    #[cfg(test)]
    pub(crate) fn has_told(&self) -> bool {
        self.state().told_at.is_some()
    }

    /// Records that a connection has ended, by the `refusal` of a server that is no master, or without a reason.
    pub(crate) fn lost(&self, server: &str, refusal: Option<&str>, now: Moment) {
        let mut state = self.state();
        // The other links lose the server as well; the loss of the first link is logged for all of them.
        if !state.one_more_down(now) {
            return;
        }
        // If this loss is not logged, its end is not logged either, unless the outage lasts until the first reminder.
        let recent = state.told_at.is_some_and(|told| now.since(told) < QUIET);
        if !recent {
            state.tell(now);
            // Logged without the mutex, because a log line runs the subscriber's code, which may take long.
            drop(state);
            tracing::warn!(server, refusal, "connection lost, connecting again");
        }
    }

    /// Records that a link has failed to connect at its first attempt.
    pub(crate) fn never_up(&self, now: Moment) {
        // Not logged: during `Client::connect` the caller gets the error. For a link that was added later the first reminder
        // logs the outage.
        self.state().one_more_down(now);
    }

    /// Records another failed attempt to connect.
    pub(crate) fn failed(&self, server: &str, error: &ConnectError, now: Moment) {
        let error = error.reason_at(server);
        tracing::debug!(server, error, "connecting failed");
        let mut state = self.state();
        // The reminder needs no timer: each of the regular attempts checks the time.
        if state.down > 0 && now >= state.remind_at {
            state.tell(now);
            state.remind_at = now + REMINDERS;
            let since = whole(now.since(state.since));
            drop(state);
            tracing::warn!(server, error, %since, "not connected");
        }
    }

    /// Records that a link has reconnected.
    pub(crate) fn back(&self, server: &str, now: Moment) {
        let over = self.state().one_less_down(now);
        if let Some(after) = over {
            tracing::info!(server, after = %whole(after), "connected again");
        }
    }

    /// Records the process that a new connection has reached. Returns whether the server was restarted: the run id is another one, and the
    /// sentinels have named no other master since.
    pub(crate) fn reached(&self, run_id: String, replaced: u64) -> bool {
        let before = self.state().process.replace((run_id.clone(), replaced));
        before.is_some_and(|(id, then)| id != run_id && then == replaced)
    }

    /// Records that a link without a connection is no longer needed.
    pub(crate) fn given_up(&self, server: &str, now: Moment) {
        let over = self.state().one_less_down(now);
        if let Some(after) = over {
            tracing::info!(server, after = %whole(after), "not used any more");
        }
    }
}

impl HealthState {
    /// Returns whether it is the first link to be down.
    fn one_more_down(&mut self, now: Moment) -> bool {
        self.down += 1;
        let first = self.down == 1;
        if first {
            // `told_at` keeps its value across outages. Otherwise every loss of a flapping server would be logged.
            (self.since, self.told) = (now, false);
            self.remind_at = now + FIRST_REMINDER;
        }
        first
    }

    /// Returns the length of the outage, if this ends one that was logged.
    fn one_less_down(&mut self, now: Moment) -> Option<Duration> {
        // Saturates, because a wrong count may cost a message but must not end the supervisor.
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
