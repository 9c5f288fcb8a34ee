//! Cyclic barriers: parties arrive repeatedly, give up, or are killed. In every other seed a party that leaves breaks the round.

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::barrier::{BrokenBy, OnLeave, WaitOptions};
use stanchion::{AcquireError, BarrierError, CyclicBarrier, Lease};
use tokio::time::{sleep, timeout};

use super::{Work, Workload, explain, may_act_until, progress};
use crate::simulation::operations::{Call, CallResult, Operation, Pending};
use crate::simulation::simulate::Finished;
use crate::simulation::work::Worker;

pub(crate) const BARRIER: Workload = Workload {
    work,
    judge,
    inspect: None,
    // The barrier expires an hour after the last arrival, and the kept replies to arrivals after some minutes.
    may_remain: |_, key, _| {
        key.starts_with("stanchion_barrier") || key.starts_with("stanchion_once:")
    },
};

/// The parties of a round. There are more tasks than parties.
pub(crate) const PARTIES: u32 = 4;

/// In a calm phase the next round ends within this time, because there are more tasks than parties.
pub(crate) const BETWEEN: Duration = Duration::from_secs(8);

fn work(mut worker: Worker) -> Work {
    Box::pin(async move {
        let ledger = std::sync::Arc::clone(&worker.ledger);
        let breaks = worker.scenario.seed.is_multiple_of(2);
        let on_leave = if breaks {
            OnLeave::Break
        } else {
            OnLeave::Free
        };
        let Ok(barrier) = CyclicBarrier::new(&worker.client, "gate", PARTIES) else {
            return ledger.complain("the barrier is rejected");
        };
        // OK: the scenarios' leases are leases.
        let barrier = barrier.lease(Lease::new(worker.scenario.leases[0]).unwrap_or_default());
        let patient = WaitOptions::new().on_leave(on_leave);
        while !ledger.is_ending() {
            sleep(worker.millis(0, worker.scenario.think)).await;
            let limit = worker.millis(0, Duration::from_secs(3));
            let way = worker.rng.u8(..10);
            let caller = (worker.process, worker.task);
            let call = Pending::begin(&ledger, caller, Call::Arrive { breaks });
            let began = call.began;
            let waited = match way {
                0..6 => {
                    let wait = barrier.wait_with(patient);
                    tokio::select! {
                        waited = wait => Some(waited),
                        () = ledger.until_ending() => None,
                    }
                }
                6..9 => {
                    let waited = barrier.wait_with(patient.timeout(limit)).await;
                    ledger.check_bound("wait_timeout", began, limit);
                    Some(waited)
                }
                _ => timeout(limit, barrier.wait_with(patient)).await.ok(),
            };
            call.end(match waited {
                None => CallResult::Unknown,
                Some(Ok(passed)) => {
                    ledger.count("passed");
                    CallResult::Passed {
                        generation: passed.generation(),
                        arrival: passed.arrival(),
                        last: passed.is_last(),
                    }
                }
                Some(Err(BarrierError::Broken { generation, by, .. })) => {
                    ledger.count("broken");
                    CallResult::Broken(generation, by)
                }
                Some(Err(error)) => failed(&ledger, &error),
            });
        }
    })
}

/// Returns the result that an error stands for, and counts it.
pub(crate) fn failed(
    ledger: &crate::simulation::ledger::Ledger,
    error: &BarrierError,
) -> CallResult {
    match error {
        BarrierError::TimedOut { free_by: None, .. } => {
            ledger.count("timed out");
            CallResult::Nothing
        }
        BarrierError::Acquire(AcquireError::Unavailable { .. }) => {
            ledger.count("unavailable");
            CallResult::Unknown
        }
        BarrierError::TimedOut { .. } | BarrierError::Acquire(AcquireError::Ambiguous { .. }) => {
            ledger.count("ambiguous");
            CallResult::Unknown
        }
        BarrierError::Lost { .. } | BarrierError::Release(_) => {
            ledger.count("lost");
            CallResult::Lost
        }
        error => {
            ledger.complain(format!("P8: {error}"));
            CallResult::Unknown
        }
    }
}

/// A complete round, by the results of its parties.
#[derive(Debug, Default)]
pub(crate) struct Round<'a> {
    pub(crate) parties: Vec<(&'a Operation, u32, bool)>,
    /// The latest known arrival. The round cannot be complete before it.
    pub(crate) from: Duration,
    /// The earliest return of a party. The round is complete by then.
    pub(crate) to: Duration,
}

/// Returns the rounds that at least one party has passed, by their numbers.
pub(crate) fn rounds<'a>(operations: &'a [Operation]) -> BTreeMap<u64, Round<'a>> {
    let mut rounds: BTreeMap<u64, Round<'a>> = BTreeMap::new();
    for operation in operations {
        if let CallResult::Passed {
            generation,
            arrival,
            last,
        } = operation.result()
        {
            let round = rounds.entry(generation).or_insert_with(|| Round {
                to: Duration::MAX,
                ..Round::default()
            });
            round.parties.push((operation, arrival, last));
            round.from = round.from.max(operation.began);
            round.to = round.to.min(operation.ended());
        }
    }
    rounds
}

/// Checks the rounds of both kinds of barrier.
pub(crate) fn judge_rounds(
    run: &Finished,
    operations: &[Operation],
    rounds: &BTreeMap<u64, Round<'_>>,
    parties: u32,
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut before: Option<(u64, &Round<'_>)> = None;
    for (generation, round) in rounds {
        let mut fault = |rule: &str, detail: &str| {
            let detail = format!("round {generation}: {detail}: {:?}", round.parties);
            faults.push(explain(run, rule, round.to, &detail));
        };
        if round.from > round.to {
            fault(
                "PassedEarly",
                "a party passed before all parties had arrived",
            );
        }
        if round.parties.len() > parties as usize {
            fault("Crowded", "more parties than places");
        }
        let last = round.parties.iter().filter(|(_, _, last)| *last).count();
        if last > 1 {
            fault("Last", "two parties are the last one");
        }
        if round
            .parties
            .iter()
            .any(|(_, arrival, last)| *last != (*arrival == parties) || *arrival == 0)
        {
            fault("Last", "the last party and the last number differ");
        }
        // Two parties have the same number only if a third one left between their arrivals.
        let mut numbers: Vec<_> = round
            .parties
            .iter()
            .map(|(_, arrival, _)| *arrival)
            .collect();
        numbers.sort_unstable();
        let twice = numbers.windows(2).filter(|two| two[0] == two[1]).count();
        let missing = (parties as usize).saturating_sub(round.parties.len());
        if twice > 0 && absent(run, operations, round, true) == 0 {
            fault(
                "Arrivals",
                "two parties have the same number, and no party left",
            );
        }
        let away = absent(run, operations, round, false);
        if missing > away {
            fault(
                "Incomplete",
                &format!("{missing} are missing, {away} may have counted"),
            );
        }
        if let Some((earlier, other)) = before.filter(|(_, other)| other.from > round.to) {
            fault(
                "Order",
                &format!("complete before round {earlier}, {other:?}"),
            );
        }
        before = Some((*generation, round));
    }
    let mut last: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    for operation in operations {
        let (CallResult::Passed { generation, .. } | CallResult::Broken(generation, _)) =
            operation.result()
        else {
            continue;
        };
        let seen = last.insert((operation.process, operation.task), generation);
        if seen >= Some(generation) {
            let detail = format!("{operation:?} after round {seen:?}");
            faults.push(explain(run, "Backwards", operation.ended(), &detail));
        }
    }
    faults
}

/// Returns the number of arrivals without a known result that may have taken a place in a round: their callers left, were killed, or
/// were unreachable.
/// `left`: counts callers, too, that had certainly given their place back before the round was complete.
fn absent(run: &Finished, operations: &[Operation], round: &Round<'_>, left: bool) -> usize {
    // The earliest known arrival.
    let since = round
        .parties
        .iter()
        .map(|(operation, ..)| operation.began)
        .min();
    operations
        .iter()
        .filter(|operation| matches!(operation.call, Call::Arrive { .. }))
        .filter(|operation| {
            operation.began <= round.to && Some(may_act_until(run, operation)) >= since
        })
        .filter(|operation| match operation.result() {
            CallResult::Unknown => true,
            CallResult::Nothing => left,
            // A party that was unreachable for longer than its lease counted in the round, got no reply, and took another place later.
            _ => operation.ended() >= round.to + run.scenario.leases[0] / 2,
        })
        .count()
}

fn judge(run: &Finished) -> Vec<String> {
    let operations = run.ledger.operations().clone();
    let rounds = rounds(&operations);
    let mut faults = judge_rounds(run, &operations, &rounds, PARTIES);
    let mut broken: BTreeMap<u64, BrokenBy> = BTreeMap::new();
    for operation in &operations {
        let CallResult::Broken(round, by) = operation.result() else {
            continue;
        };
        let why = *broken.entry(round).or_insert(by);
        let Call::Arrive { breaks } = operation.call else {
            continue;
        };
        if why != by {
            let detail = format!("round {round} broke by {why:?} and by {by:?}");
            faults.push(explain(run, "TwoReasons", operation.ended(), &detail));
        }
        if !breaks || rounds.contains_key(&round) {
            let detail = format!("round {round}: {:?}", rounds.get(&round));
            faults.push(explain(
                run,
                "BrokenAndComplete",
                operation.ended(),
                &detail,
            ));
        }
        let blamed = operations.iter().any(|other| {
            let there =
                other.began <= operation.ended() && may_act_until(run, other) >= operation.began;
            let ended_so = match by {
                BrokenBy::TimedOut => {
                    matches!(other.result(), CallResult::Nothing | CallResult::Unknown)
                }
                // Its process was killed, or unreachable for longer than its lease.
                _ => true,
            };
            there && ended_so
        });
        if !blamed {
            let detail = format!("no party left at that time: {operation:?}");
            faults.push(explain(run, "Blameless", operation.ended(), &detail));
        }
    }
    faults.extend(stalls(run, &ends(&rounds, &broken, &operations)));
    faults.extend(progress(run, "passed rounds", |operation| {
        matches!(operation.result(), CallResult::Passed { .. })
    }));
    faults
}

/// Returns the ends of rounds, sorted.
fn ends(
    rounds: &BTreeMap<u64, Round<'_>>,
    broken: &BTreeMap<u64, BrokenBy>,
    operations: &[Operation],
) -> Vec<Duration> {
    let mut ends: Vec<_> = rounds.values().map(|round| round.to).collect();
    ends.extend(
        operations
            .iter()
            .filter_map(|operation| match operation.result() {
                CallResult::Broken(round, _) if broken.contains_key(&round) => {
                    Some(operation.ended())
                }
                _ => None,
            }),
    );
    ends.sort_unstable();
    ends
}

/// In a calm phase rounds keep ending.
pub(crate) fn stalls(run: &Finished, ends: &[Duration]) -> Vec<String> {
    let calms = run.ledger.notes().calms.clone();
    let mut faults = Vec::new();
    for (from, to) in calms {
        let mut last = from;
        let within = ends.iter().copied().filter(|at| from < *at && *at < to);
        for at in within.chain([to]) {
            if at.saturating_sub(last) > BETWEEN {
                let detail = format!("no round ends from {last:?} to {at:?}");
                faults.push(explain(run, "Stalled", at.min(last + BETWEEN), &detail));
            }
            last = at;
        }
    }
    faults
}
