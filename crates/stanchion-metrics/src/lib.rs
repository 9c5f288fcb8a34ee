//! The events of stanchion's clients as metrics of the [`metrics`] facade.
//!
//! The feature `metrics` of the client's crates installs a [`Recorder`] in each client. The names of the metrics are in
//! `docs/running/monitoring.md`.

mod names;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use names::{Measure, Type};
use stanchion_transport::{Gauges, Observer};

/// Describes the metrics to the recorder: once for the process, whatever its number of clients.
fn describe() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        for metric in names::ALL {
            let unit = match metric.unit {
                Measure::Count => Unit::Count,
                Measure::Seconds => Unit::Seconds,
            };
            match metric.kind {
                Type::Counter => describe_counter!(metric.name, unit, metric.help),
                Type::Gauge => describe_gauge!(metric.name, unit, metric.help),
                Type::Histogram => describe_histogram!(metric.name, unit, metric.help),
            }
        }
        // A counter without labels exists from the start: an alert on its rate needs the zero before the first event.
        counter!(names::RECONNECTS).increment(0);
    });
}

/// Records the events of one client. Each client needs one of its own.
#[derive(Debug)]
pub struct Recorder {
    /// Distinguishes the clients of a process, for the gauges.
    number: u64,
}

impl Recorder {
    /// Makes the recorder of a client, and describes the metrics if this is the first one.
    #[must_use]
    pub fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        describe();
        Self {
            number: NEXT.fetch_add(1, Ordering::Relaxed),
        }
    }
}

impl Default for Recorder {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for Recorder {
    fn drop(&mut self) {
        gauges(self.number, None);
    }
}

impl Observer for Recorder {
    fn waited(&self, kind: &'static str, outcome: &'static str, time: Duration) {
        histogram!(names::WAIT, "kind" => kind, "outcome" => outcome).record(time);
    }

    fn held(&self, kind: &'static str, time: Duration) {
        histogram!(names::HOLD, "kind" => kind).record(time);
    }

    fn lost(&self, kind: &'static str, reason: &'static str) {
        counter!(names::LOST, "kind" => kind, "reason" => reason).increment(1);
    }

    fn handed(&self, kind: &'static str) {
        counter!(names::HANDED, "kind" => kind).increment(1);
    }

    fn released(&self, kind: &'static str) {
        counter!(names::RELEASED, "kind" => kind).increment(1);
    }

    fn woken(&self, kind: &'static str, useful: bool) {
        let useful = if useful { "true" } else { "false" };
        counter!(names::WAKES, "kind" => kind, "useful" => useful).increment(1);
    }

    fn renewed(&self, time: Duration) {
        histogram!(names::RENEWAL).record(time);
    }

    fn renewal_failed(&self, kind: &'static str) {
        counter!(names::RENEWAL_FAILURES, "kind" => kind).increment(1);
    }

    fn reconnected(&self) {
        counter!(names::RECONNECTS).increment(1);
    }

    fn limited(&self, kind: &'static str) {
        counter!(names::LIMITED, "kind" => kind).increment(1);
    }

    fn booked(&self, kind: &'static str, ahead: Duration) {
        histogram!(names::BOOKED, "kind" => kind).record(ahead);
    }

    fn job(&self, outcome: &'static str) {
        // A rate needs the zero before the first event.
        for one in ["done", "lost", "skipped", "already"] {
            let events = u64::from(one == outcome);
            counter!(names::JOBS, "outcome" => one).increment(events);
        }
    }

    fn term(&self, end: &'static str) {
        for one in ["ended", "failed", "panicked", "lost", "dropped"] {
            counter!(names::TERMS, "end" => one).increment(u64::from(one == end));
        }
    }

    fn gauges(&self, now: &Gauges) {
        gauges(self.number, Some(now));
    }
}

/// The gauges of a process, which may have several clients. They are set as sums: the value of one client must not hide another's.
static PROCESS: Mutex<Process> = Mutex::new(Process {
    clients: BTreeMap::new(),
    kinds: BTreeSet::new(),
});

struct Process {
    clients: BTreeMap<u64, Gauges>,
    /// The kinds that were ever seen. The gauges of a kind that only a closed client had are set to zero. The counters of a new kind begin
    /// at zero, because a rate needs the value before the first event.
    kinds: BTreeSet<&'static str>,
}

/// Sets the gauges after the figures of `client` have changed; `None`: the client is closed.
fn gauges(client: u64, now: Option<&Gauges>) {
    let mut guard = PROCESS.lock().unwrap_or_else(PoisonError::into_inner);
    let process = &mut *guard;
    match now {
        Some(now) => drop(process.clients.insert(client, now.clone())),
        None => drop(process.clients.remove(&client)),
    }
    let (mut held, mut waiting, mut connected) =
        (BTreeMap::new(), BTreeMap::new(), BTreeMap::new());
    let mut oldest = Duration::ZERO;
    for link in ["direct", "background", "subscriber"] {
        connected.insert(link, 0);
    }
    let mut new = Vec::new();
    for gauges in process.clients.values() {
        let add = |sums: &mut BTreeMap<&'static str, u64>, figures: &[(&'static str, u64)]| {
            for (label, count) in figures {
                *sums.entry(label).or_default() += count;
            }
        };
        add(&mut held, &gauges.held);
        add(&mut waiting, &gauges.waiting);
        add(&mut connected, &gauges.connected);
        oldest = oldest.max(gauges.oldest_wait);
    }
    for kind in held.keys().chain(waiting.keys()) {
        if process.kinds.insert(kind) {
            new.push(*kind);
        }
    }
    let kinds: Vec<&'static str> = process.kinds.iter().copied().collect();
    // A recorder is foreign code, so it is not called under the mutex.
    drop(guard);
    for kind in new {
        for reason in ["expired", "gone", "max_hold", "shutdown"] {
            counter!(names::LOST, "kind" => kind, "reason" => reason).increment(0);
        }
        for useful in ["true", "false"] {
            counter!(names::WAKES, "kind" => kind, "useful" => useful).increment(0);
        }
        for name in [names::RENEWAL_FAILURES, names::HANDED, names::RELEASED] {
            counter!(name, "kind" => kind).increment(0);
        }
    }
    let number = |count: u64| f64::from(u32::try_from(count).unwrap_or(u32::MAX));
    for kind in kinds {
        let of = |sums: &BTreeMap<&'static str, u64>| number(sums.get(kind).copied().unwrap_or(0));
        gauge!(names::HELD, "kind" => kind).set(of(&held));
        gauge!(names::WAITING, "kind" => kind).set(of(&waiting));
    }
    for (link, count) in connected {
        gauge!(names::CONNECTED, "link" => link).set(number(count));
    }
    gauge!(names::OLDEST_WAIT).set(oldest.as_secs_f64());
}
