//! The kinds of things that are simulated. Each is a short description: what its users do, and how a judge looks at what they saw.

pub(crate) mod barrier;
pub(crate) mod double;
pub(crate) mod election;
pub(crate) mod holds;
pub(crate) mod job;
pub(crate) mod latch;
pub(crate) mod limiter;
pub(crate) mod ticket;

use std::pin::Pin;
use std::time::Duration;

use stanchion::embedded::Engine;

use crate::deeds::{Deed, Saw};
use crate::ledger::Ledger;
use crate::scenario::Scenario;
use crate::simulate::Finished;
use crate::time::Time;
use crate::work::Worker;

/// What one task does until the simulation ends.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A kind.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Play {
    pub(crate) work: fn(Worker) -> Work,
    /// Returns what was broken: each text begins with the rule.
    pub(crate) judge: fn(&Finished) -> Vec<String>,
    /// Looks at the server between the steps.
    pub(crate) look: Option<fn(&Engine, &Scenario, &Ledger)>,
    /// Returns whether a key with its value may be left in the end.
    pub(crate) stays: fn(&Scenario, &str, Option<&str>) -> bool,
}

/// The time between two looks at the server.
pub(crate) const LOOK: Duration = Duration::from_millis(50);

/// A simulation in which nothing happens proves nothing: of what counts there must be enough.
pub(crate) fn progress(run: &Finished, what: &str, counts: impl Fn(&Deed) -> bool) -> Vec<String> {
    let deeds = run.ledger.deeds();
    let all = deeds.iter().filter(|deed| counts(deed)).count();
    let mut poor = Vec::new();
    if all < run.scenario.least {
        poor.push(format!("Poor: only {all} {what}"));
    }
    for host in 0..run.scenario.clients {
        let of_host = |deed: &&Deed| deed.process / 1_000 == host && counts(deed);
        if !deeds.iter().any(|deed| of_host(&deed)) {
            poor.push(format!("Poor: no {what} at host {host}"));
        }
    }
    poor
}

/// Returns when the process of a call was killed, or the end of time.
pub(crate) fn killed(run: &Finished, process: u32) -> Duration {
    let notes = run.ledger.notes();
    let found = notes.killed.iter().find(|(killed, _)| *killed == process);
    found.map_or(Duration::MAX, |(_, at)| *at)
}

/// Returns until when a call was under way, or its process lived; at most the length of the simulation.
pub(crate) fn end_of(run: &Finished, deed: &Deed) -> Duration {
    let end = deed.ended().min(killed(run, deed.process));
    end.min(Time::at(run.scenario.length))
}

/// Returns until when a call without a certain end may still take effect.
pub(crate) fn may_act_until(run: &Finished, deed: &Deed) -> Duration {
    match deed.saw() {
        Saw::Unknown => {
            end_of(run, deed) + run.scenario.response_timeout * 3 + run.scenario.leases[0]
        }
        _ => deed.ended(),
    }
}

/// A fault, with what happened around it.
pub(crate) fn explain(run: &Finished, rule: &str, at: Duration, detail: &str) -> String {
    let (before, after) = (Duration::from_secs(5), Duration::from_secs(1));
    let near = |time: Duration| time + before >= at && time <= at + after;
    let mut lines: Vec<(Duration, String)> = Vec::new();
    for deed in run.ledger.deeds().iter() {
        let who = format!("{}/{} {:?}", deed.process, deed.task, deed.call);
        if near(deed.began) || deed.end.is_some_and(|(end, _)| near(end)) {
            lines.push((deed.began, format!("{who} … {:?}", deed.end)));
        }
    }
    let notes = run.ledger.notes();
    let faults = notes.faults.iter().filter(|(time, _)| near(*time));
    lines.extend(faults.map(|(time, what)| (*time, format!("-- {what}"))));
    lines.sort();
    let from = lines.len().saturating_sub(70);
    let lines: Vec<_> = lines[from..]
        .iter()
        .map(|(time, what)| format!("      {time:?} {what}"))
        .collect();
    format!("{rule} at {at:?}: {detail}\n{}", lines.join("\n"))
}
