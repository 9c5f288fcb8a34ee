//! The kinds of simulated primitives. Each defines a workload and the checks of its results.

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

use crate::simulation::ledger::Ledger;
use crate::simulation::operations::{CallResult, Operation};
use crate::simulation::scenario::Scenario;
use crate::simulation::simulate::Finished;
use crate::simulation::time::Time;
use crate::simulation::work::Worker;

/// The work of one task until the simulation ends.
pub(crate) type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A kind: the calls of its tasks, and its checks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Workload {
    pub(crate) work: fn(Worker) -> Work,
    /// Returns the violations. Each text begins with the violated rule.
    pub(crate) judge: fn(&Finished) -> Vec<String>,
    /// Inspects the server between the steps.
    pub(crate) inspect: Option<fn(&Engine, &Scenario, &Ledger)>,
    /// Returns whether a key with this value may remain at the end.
    pub(crate) may_remain: fn(&Scenario, &str, Option<&str>) -> bool,
}

/// The time between two inspections of the server.
pub(crate) const INSPECTION: Duration = Duration::from_millis(50);

/// Returns a violation if there are too few of the calls that `counts` selects. A simulation without progress proves nothing.
pub(crate) fn progress(
    run: &Finished,
    what: &str,
    counts: impl Fn(&Operation) -> bool,
) -> Vec<String> {
    let operations = run.ledger.operations();
    let all = operations
        .iter()
        .filter(|operation| counts(operation))
        .count();
    let mut poor = Vec::new();
    if all < run.scenario.least {
        poor.push(format!("Poor: only {all} {what}"));
    }
    for host in 0..run.scenario.clients {
        let of_host =
            |operation: &&Operation| operation.process / 1_000 == host && counts(operation);
        if !operations.iter().any(|operation| of_host(&operation)) {
            poor.push(format!("Poor: no {what} at host {host}"));
        }
    }
    poor
}

/// Returns when a process was killed, or `Duration::MAX`.
pub(crate) fn killed(run: &Finished, process: u32) -> Duration {
    let notes = run.ledger.notes();
    let found = notes.killed.iter().find(|(killed, _)| *killed == process);
    found.map_or(Duration::MAX, |(_, at)| *at)
}

/// Returns the end of a call or of its process, or the end of the simulation if that is earlier.
pub(crate) fn end_of(run: &Finished, operation: &Operation) -> Duration {
    let end = operation.ended().min(killed(run, operation.process));
    end.min(Time::at(run.scenario.length))
}

/// Returns the latest time at which a call may take effect.
pub(crate) fn may_act_until(run: &Finished, operation: &Operation) -> Duration {
    match operation.result() {
        CallResult::Unknown => {
            end_of(run, operation) + run.scenario.response_timeout * 3 + run.scenario.leases[0]
        }
        _ => operation.ended(),
    }
}

/// Returns a violation with the calls and faults around it.
pub(crate) fn explain(run: &Finished, rule: &str, at: Duration, detail: &str) -> String {
    let (before, after) = (Duration::from_secs(5), Duration::from_secs(1));
    let near = |time: Duration| time + before >= at && time <= at + after;
    let mut lines: Vec<(Duration, String)> = Vec::new();
    for operation in run.ledger.operations().iter() {
        let caller = format!(
            "{}/{} {:?}",
            operation.process, operation.task, operation.call
        );
        if near(operation.began) || operation.end.is_some_and(|(end, _)| near(end)) {
            lines.push((operation.began, format!("{caller} … {:?}", operation.end)));
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
