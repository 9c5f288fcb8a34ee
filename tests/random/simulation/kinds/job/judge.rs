//! Checks the runs of a job.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LATE, least};
use crate::simulation::kinds::{end_of, explain, progress};
use crate::simulation::operations::{Call, CallResult, Operation};
use crate::simulation::simulate::Finished;
use crate::simulation::time::Time;

pub(super) fn judge(run: &Finished) -> Vec<String> {
    let operations = run.ledger.operations().clone();
    let mut faults = Vec::new();
    let mut runs: Vec<(u64, &Operation)> = operations
        .iter()
        .filter_map(|operation| match operation.call {
            Call::Run(tick) => Some((tick, operation)),
            _ => None,
        })
        .collect();
    runs.sort_by_key(|(_, operation)| operation.began);
    let least = least(run.scenario.seed);
    for pair in runs.windows(2) {
        let [(before, first), (tick, second)] = pair else {
            continue;
        };
        // A tick must not run after a later one.
        if tick <= before {
            let rule = if tick == before {
                "TickTwice"
            } else {
                "TickBackwards"
            };
            let detail = format!("{tick} after {before}: {first:?}, {second:?}");
            faults.push(explain(run, rule, second.began, &detail));
        }
        // For the server the first run began after its request, and the second one before its work.
        let requested = requested_at(&operations, *before, first);
        if second.began < requested + least {
            let detail = format!("{second:?}, the run before was requested at {requested:?}");
            faults.push(explain(run, "Unrested", second.began, &detail));
        }
    }
    let ticks: BTreeMap<u64, &Operation> = runs.iter().copied().collect();
    for operation in &operations {
        if let (Call::Tick(_), CallResult::Already(ran)) = (operation.call, operation.result()) {
            let known = ticks
                .get(&ran)
                .is_some_and(|run| run.began <= operation.ended());
            // The tick may have been claimed by a call that was interrupted, or by one whose reply took so long that the claim may be
            // older than the work.
            let perhaps = operations.iter().any(|other| {
                other.call == Call::Tick(ran)
                    && (other.result() == CallResult::Unknown
                        || other.ended() >= other.began + run.scenario.response_timeout)
                    && other.began <= operation.ended()
            });
            if !known && !perhaps {
                let detail = format!("{ran} did not run: {operation:?}");
                faults.push(explain(run, "Claimed", operation.ended(), &detail));
            }
        }
    }
    faults.extend(missed(run, &operations, &runs, least));
    faults.extend(progress(run, "requests for ticks", |operation| {
        matches!(operation.call, Call::Tick(_))
    }));
    if runs.len() < run.scenario.least {
        faults.push(format!("Poor: only {} runs", runs.len()));
    }
    faults
}

/// Returns when the run was requested that this work belongs to.
fn requested_at(operations: &[Operation], tick: u64, run: &Operation) -> Duration {
    operations
        .iter()
        .filter(|operation| {
            operation.call == Call::Tick(tick)
                && (operation.process, operation.task) == (run.process, run.task)
                && operation.began <= run.began
        })
        .map(|operation| operation.began)
        .max()
        .unwrap_or(run.began)
}

/// In a calm phase a tick runs, unless an earlier run is in progress or the job rests.
fn missed(
    run: &Finished,
    operations: &[Operation],
    runs: &[(u64, &Operation)],
    least: Duration,
) -> Vec<String> {
    let mut requests: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    for operation in operations {
        if let Call::Tick(tick) = operation.call {
            requests.entry(tick).or_default().push(operation);
        }
    }
    let calms = run.ledger.notes().calms.clone();
    // The end of the time in which a run blocks others, also if its process was killed.
    let kept = |operation: &Operation| {
        let after = match operation.end {
            Some(_) => LATE,
            None => run.scenario.leases[0],
        };
        (end_of(run, operation) + after).max(operation.began + least)
    };
    let mut faults = Vec::new();
    for (tick, calls) in requests {
        let (Some(first), Some(last)) = (
            calls.iter().map(|call| call.began).min(),
            calls.iter().map(|call| call.ended()).max(),
        ) else {
            continue;
        };
        let calm = calms.iter().any(|(from, to)| *from <= first && last <= *to);
        let busy = runs.iter().any(|(other, operation)| {
            *other == tick || operation.began <= last && kept(operation) >= first
        });
        if calm && !busy {
            let at = Time::of_date(Duration::from_millis(tick));
            let detail = format!("{tick} did not run: {calls:?}");
            faults.push(explain(run, "Missed", at, &detail));
        }
    }
    faults
}
