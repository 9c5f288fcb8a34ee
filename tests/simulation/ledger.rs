//! The notes of one simulation while it runs.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stanchion_testkit::{Event, History, Kind, Mode};

use crate::deeds::Deed;
use crate::time::Time;

/// A call may end this much later than its deadline (P9).
pub(crate) const GRACE: Duration = Duration::from_millis(50);

/// The record of a simulation, shared by its hosts.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    pub(crate) time: Time,
    /// Holds, and the acquires that they come from.
    pub(crate) history: History,
    /// Other calls, in the order in which they began.
    deeds: Mutex<Vec<Deed>>,
    /// Tasks begin nothing new.
    pub(crate) ending: AtomicBool,
    /// Client hosts whose tasks have all ended by themselves.
    pub(crate) done: AtomicU32,
    notes: Mutex<Notes>,
}

/// The facts that are not in the history.
#[derive(Clone, Debug, Default)]
pub(crate) struct Notes {
    /// Promises that a host saw broken.
    pub(crate) complaints: Vec<String>,
    /// When which process was killed.
    pub(crate) killed: Vec<(u32, Duration)>,
    /// When the server lost its data.
    pub(crate) losses: Vec<Duration>,
    /// Stretches without faults.
    pub(crate) calms: Vec<(Duration, Duration)>,
    /// Events of the network and the hosts.
    pub(crate) faults: Vec<(Duration, String)>,
    /// The outcomes of calls, counted.
    pub(crate) counts: BTreeMap<&'static str, u32>,
    /// Detached holds that nobody has adopted yet.
    pub(crate) post: Vec<Posted>,
    /// Keys that came and went, of the kinds that look at the server.
    pub(crate) sights: Vec<(Duration, String, bool)>,
    /// The longest that connecting a client took.
    pub(crate) slowest_connect: Duration,
}

/// A ticket on its way from one process to another.
#[derive(Clone, Debug)]
pub(crate) struct Posted {
    pub(crate) number: u64,
    pub(crate) name: String,
    pub(crate) ticket: String,
    /// Until when its hold lasts at least.
    pub(crate) until: Duration,
}

impl Ledger {
    /// The notes.
    pub(crate) fn notes(&self) -> MutexGuard<'_, Notes> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The calls that are no acquires of holds.
    pub(crate) fn deeds(&self) -> MutexGuard<'_, Vec<Deed>> {
        self.deeds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A promise is broken.
    pub(crate) fn complain(&self, what: impl Into<String>) {
        let text = format!("at {:?}: {}", self.time.now(), what.into());
        self.notes().complaints.push(text);
    }

    /// A rule is broken, as a judge would say.
    pub(crate) fn complain_of(&self, rule: &str, what: impl Into<String>) {
        let text = format!("{rule} at {:?}: {}", self.time.now(), what.into());
        self.notes().complaints.push(text);
    }

    /// One more of these.
    pub(crate) fn count(&self, what: &'static str) {
        *self.notes().counts.entry(what).or_default() += 1;
    }

    /// Something was done to the network or a host.
    pub(crate) fn fault(&self, what: impl Into<String>) {
        let now = self.time.now();
        self.notes().faults.push((now, what.into()));
    }

    /// Returns whether tasks should stop.
    pub(crate) fn is_ending(&self) -> bool {
        self.ending.load(Ordering::Relaxed)
    }

    /// Resolves when tasks should stop: for those who wait for others, who stop as well.
    pub(crate) async fn until_ending(&self) {
        while !self.is_ending() {
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// A call that should have ended `within` a time since `started`.
    pub(crate) fn check_bound(&self, call: &str, started: Duration, within: Duration) {
        let took = self.time.now().saturating_sub(started);
        // Deadlines are on the client's clock, which may be slow by 0.4 %.
        if took > within + within / 250 + GRACE {
            self.complain(format!("P9: {call} took {took:?}, {within:?} allowed"));
        }
    }
}

/// Writes the history of one task.
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
