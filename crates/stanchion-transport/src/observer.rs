//! The events of a client, for programs that count them.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Receives the events of a client, from which metrics are made, for programs that do not use the `metrics` facade. Passed
/// to [`ClientConfig::observer`](crate::ClientConfig::observer).
///
/// `kind` is a kind of synchronizer, such as `lock`. The other texts are the labels of the metrics in `docs/running/monitoring.md`.
/// No event contains the name of a synchronizer, because the number of names is unbounded.
///
/// # Rules
/// The methods are called from the tasks that acquire and release, and from the client's background thread, which also
/// renews leases. They must not block, and must not wait for the client. By default a method does nothing. An observer that
/// panics is not called again.
pub trait Observer: Send + Sync + 'static {
    /// An acquire has ended after `time`: `acquired`, `busy` (a try that was refused), `timed_out` or `failed`.
    fn waited(&self, kind: &'static str, outcome: &'static str, time: Duration) {
        let _ = (kind, outcome, time);
    }

    /// A hold has ended, released or lost, `time` after its grant.
    fn held(&self, kind: &'static str, time: Duration) {
        let _ = (kind, time);
    }

    /// A hold was lost: `expired`, `gone`, `max_hold` or `shutdown`.
    fn lost(&self, kind: &'static str, reason: &'static str) {
        let _ = (kind, reason);
    }

    /// A hold was handed to the next waiter in this process.
    fn handed(&self, kind: &'static str) {
        let _ = kind;
    }

    /// A hold was released for all processes.
    fn released(&self, kind: &'static str) {
        let _ = kind;
    }

    /// A waiter was woken, by a message, a release in this process or its poll. `useful`: the waiter then got its hold. For
    /// a fair lock, permits and latches, the request that follows a new subscription counts, too.
    fn woken(&self, kind: &'static str, useful: bool) {
        let _ = (kind, useful);
    }

    /// A batch of renewals was answered, or has failed, after `time`.
    fn renewed(&self, time: Duration) {
        let _ = time;
    }

    /// The renewal of a hold was refused or not answered. The client will retry it.
    fn renewal_failed(&self, kind: &'static str) {
        let _ = kind;
    }

    /// A connection that was lost is open again.
    fn reconnected(&self) {}

    /// A request for permits of a limiter was refused: a try, or a wait that cannot end before its deadline.
    fn limited(&self, kind: &'static str) {
        let _ = kind;
    }

    /// Permits of a limiter were granted for a moment `ahead` from now, and the caller waits for that moment.
    fn booked(&self, kind: &'static str, ahead: Duration) {
        let _ = (kind, ahead);
    }

    /// An attempt to run a job has ended: `done`, `lost`, `skipped` or `already`.
    fn job(&self, outcome: &'static str) {
        let _ = outcome;
    }

    /// A term of an election's `lead` has ended: `ended`, `failed`, `panicked`, `lost` or `dropped`.
    fn term(&self, end: &'static str) {
        let _ = end;
    }

    /// The current figures, once per second.
    fn gauges(&self, now: &Gauges) {
        let _ = now;
    }
}

/// The current figures of one client.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gauges {
    /// The number of holds, by kind.
    pub held: Vec<(&'static str, u64)>,
    /// The number of calls that wait, by kind.
    pub waiting: Vec<(&'static str, u64)>,
    /// The age of the oldest waiting call, or zero if no call waits.
    pub oldest_wait: Duration,
    /// The number of open connections, by their use: `direct`, `background`, `subscriber`.
    pub connected: Vec<(&'static str, u64)>,
}

/// An observer in a configuration.
#[derive(Clone)]
pub(crate) struct Observing(pub(crate) Arc<dyn Observer>);

impl fmt::Debug for Observing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Observer")
    }
}
