//! The record of one simulation: holds, other calls, faults, and complaints.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stanchion_testkit::{Event, History, Kind, Mode};

use crate::simulation::operations::Operation;
use crate::simulation::time::Time;

/// A call may end this much later than its deadline (P9).
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// The record of a simulation, shared by its hosts.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) time: Time,
    /// Holds and their acquires.
    pub(crate) history: History,
    /// Other calls, in the order in which they began.
    operations: Mutex<Vec<Operation>>,
    /// Set when tasks must not begin new calls.
    pub(crate) ending: AtomicBool,
    /// The number of client hosts whose tasks have all ended.
    pub(crate) done: AtomicU32,
    notes: Mutex<Notes>,
}

/// Events that are not in the history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// Violations that a host detected.
    pub(crate) complaints: Vec<String>,
    /// Killed processes, with the times.
    pub(crate) killed: Vec<(u32, Duration)>,
    /// The times at which the server lost its data.
    pub(crate) losses: Vec<Duration>,
    /// Phases without faults.
    pub(crate) calms: Vec<(Duration, Duration)>,
    /// Faults of the network and the hosts, and their ends.
    pub(crate) faults: Vec<(Duration, String)>,
    /// The number of calls with each outcome.
    pub(crate) counts: BTreeMap<&'static str, u32>,
    /// Tickets that processes may adopt.
    pub(crate) offers: Vec<OfferedTicket>,
    /// Keys that appeared or disappeared on the server, for kinds that inspect it.
    pub(crate) key_changes: Vec<(Duration, String, bool)>,
    /// The longest that connecting a client took.
    pub(crate) slowest_connect: Duration,
}

/// A ticket that another process may adopt.
#[derive(Clone, Debug)]
pub(crate) struct OfferedTicket {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) ticket: String,
    /// The earliest time at which its hold may end.
    pub(crate) until: Duration,
}

impl Ledger {
    /// The notes.
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls that are no acquires of holds.
    pub(crate) fn operations(&self) -> MutexGuard<'_, Vec<Operation>> {
        self.operations
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Records a violation of a promise.
    pub(crate) fn complain(&self, what: impl Into<String>) {
        let text = format!("at {:?}: {}", self.time.now(), what.into());
        self.notes().complaints.push(text);
    }

    /// Records a violation of a rule.
    pub(crate) fn complain_of(&self, rule: &str, what: impl Into<String>) {
        let text = format!("{rule} at {:?}: {}", self.time.now(), what.into());
        self.notes().complaints.push(text);
    }

    /// Counts one more outcome of this name.
    pub(crate) fn count(&self, what: &'static str) {
        *self.notes().counts.entry(what).or_default() += 1;
    }

    /// Records a fault of the network or a host.
    pub(crate) fn fault(&self, what: impl Into<String>) {
        let now = self.time.now();
        self.notes().faults.push((now, what.into()));
    }

    /// Returns whether tasks should stop.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Resolves when tasks should stop, for tasks that wait for other tasks.
    pub(crate) async fn until_ending(&self) {
        while !self.is_ending() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Complains if a call that began at `started` took longer than `within`.
    pub(crate) fn check_bound(&self, call: &str, started: Duration, within: Duration) {
        let took = self.time.now().saturating_sub(started);
        // Deadlines are on the client's clock, which may be slow by 0.4 %.
        if took > within + within / 250 + GRACE {
            self.complain(format!("P9: {call} took {took:?}, {within:?} allowed"));
        }
    }
}

/// Records the history of one task.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scribe<'a> {
    pub(crate) ledger: &'a Ledger,
    pub(crate) process: u32,
    pub(crate) task: u32,
    pub(crate) name: &'a str,
    pub(crate) mode: Mode,
}

impl Scribe<'_> {
    pub(crate) fn record(&self, kind: Kind) {
        self.record_with(kind, None, None);
    }

    pub(crate) fn record_with(&self, kind: Kind, token: Option<u64>, safe_until: Option<Duration>) {
        self.ledger.history.record(Event {
            at: self.ledger.time.now(),
            process: self.process,
            task: self.task,
            name: self.name.to_owned(),
            kind,
            mode: self.mode,
            token,
            safe_until,
        });
    }

    pub(crate) fn complain(&self, what: &str) {
        self.ledger.complain(format!(
            "{}/{} {:?}: {what}",
            self.process, self.task, self.name
        ));
    }

    /// See [`Ledger::check_bound`].
    pub(crate) fn check_bound(&self, call: &str, started: Duration, within: Duration) {
        let call = format!("{}/{} {call}({:?})", self.process, self.task, self.name);
        self.ledger.check_bound(&call, started, within);
    }
}
