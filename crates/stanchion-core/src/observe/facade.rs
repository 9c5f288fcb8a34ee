//! The events as metrics of the `metrics` facade. Compiled only with the feature `metrics`.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Mutex, Once, PoisonError};
use std::time::Duration;

use metrics::{
    Unit, counter, describe_counter, describe_gauge, describe_histogram, gauge, histogram,
};

use super::names::{self, Measure, Type};
use stanchion_transport::Gauges;

/// Describes the metrics to the recorder: once for the process, whatever its number of clients.
pub(super) fn describe() {
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

pub(super) fn waited(kind: &'static str, outcome: &'static str, time: Duration) {
    histogram!(names::WAIT, "kind" => kind, "outcome" => outcome).record(time);
}

pub(super) fn held(kind: &'static str, time: Duration) {
    histogram!(names::HOLD, "kind" => kind).record(time);
}

pub(super) fn lost(kind: &'static str, reason: &'static str) {
    counter!(names::LOST, "kind" => kind, "reason" => reason).increment(1);
}

pub(super) fn handed(kind: &'static str) {
    counter!(names::HANDED, "kind" => kind).increment(1);
}

pub(super) fn released(kind: &'static str) {
    counter!(names::RELEASED, "kind" => kind).increment(1);
}

pub(super) fn woken(kind: &'static str, useful: bool) {
    let useful = if useful { "true" } else { "false" };
    counter!(names::WAKES, "kind" => kind, "useful" => useful).increment(1);
}

pub(super) fn renewed(time: Duration) {
    histogram!(names::RENEWAL).record(time);
}

pub(super) fn renewal_failed(kind: &'static str) {
    counter!(names::RENEWAL_FAILURES, "kind" => kind).increment(1);
}

pub(super) fn reconnected() {
    counter!(names::RECONNECTS).increment(1);
}

pub(super) fn limited(kind: &'static str) {
    counter!(names::LIMITED, "kind" => kind).increment(1);
}

pub(super) fn booked(kind: &'static str, ahead: Duration) {
    histogram!(names::BOOKED, "kind" => kind).record(ahead);
}

pub(super) fn job(outcome: &'static str) {
    // A rate needs the zero before the first event.
    for one in ["done", "lost", "skipped", "already"] {
        let events = u64::from(one == outcome);
        counter!(names::JOBS, "outcome" => one).increment(events);
    }
}

pub(super) fn term(end: &'static str) {
    for one in ["ended", "failed", "panicked", "lost", "dropped"] {
        counter!(names::TERMS, "end" => one).increment(u64::from(one == end));
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
pub(super) fn gauges(client: u64, now: Option<&Gauges>) {
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
