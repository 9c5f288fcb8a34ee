//! Cyclic barriers: parties that come again and again, give up, and die; in one half of the seeds who leaves breaks the round.

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::{AcquireError, BarrierError, BrokenBy, CyclicBarrier, Lease, OnLeave, WaitOptions};
use tokio::time::{sleep, timeout};

use super::{Play, Work, explain, may_act_until, progress};
use crate::deeds::{Call, Deed, Pending, Saw};
use crate::simulate::Finished;
use crate::work::Worker;

pub(crate) const BARRIER: Play = Play {
    work,
    judge,
    look: None,
    // The barrier and the answers to arrivals end by themselves, an hour and minutes after the last of them.
    stays: |_, key, _| key.starts_with("stanchion_barrier") || key.starts_with("stanchion_once:"),
};

/// The parties of a round: fewer than tasks.
pub(crate) const PARTIES: u32 = 4;

/// In calm weather with more tasks than parties, rounds follow each other within this.
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
            return ledger.complain("the barrier has no name");
        };
        // OK: the scenarios' leases are leases.
        let barrier = barrier.with_lease(Lease::new(worker.scenario.leases[0]).unwrap_or_default());
        let patient = WaitOptions::new().on_leave(on_leave);
        while !ledger.is_ending() {
            sleep(worker.millis(0, worker.scenario.think)).await;
            let limit = worker.millis(0, Duration::from_secs(3));
            let way = worker.rng.u8(..10);
            let who = (worker.process, worker.task);
            let call = Pending::begin(&ledger, who, Call::Arrive { breaks });
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
                None => Saw::Unknown,
                Some(Ok(passed)) => {
                    ledger.count("passed");
                    Saw::Passed {
                        generation: passed.generation(),
                        arrival: passed.arrival(),
                        last: passed.is_last(),
                    }
                }
                Some(Err(BarrierError::Broken { generation, by, .. })) => {
                    ledger.count("broken");
                    Saw::Broken(generation, by)
                }
                Some(Err(error)) => failed(&ledger, &error),
            });
        }
    })
}

/// What an error says of the place.
pub(crate) fn failed(ledger: &crate::ledger::Ledger, error: &BarrierError) -> Saw {
    match error {
        BarrierError::Acquire(AcquireError::TimedOut { free_by: None, .. }) => {
            ledger.count("timed out");
            Saw::Nothing
        }
        BarrierError::Acquire(AcquireError::Unavailable { .. }) => {
            ledger.count("unavailable");
            Saw::Unknown
        }
        BarrierError::Acquire(AcquireError::TimedOut { .. } | AcquireError::Ambiguous { .. }) => {
            ledger.count("ambiguous");
            Saw::Unknown
        }
        BarrierError::Lost { .. } | BarrierError::Release(_) => {
            ledger.count("lost");
            Saw::Lost
        }
        error => {
            ledger.complain(format!("P8: {error}"));
            Saw::Unknown
        }
    }
}

/// What is known of one round that is complete.
#[derive(Debug, Default)]
pub(crate) struct Round<'a> {
    pub(crate) parties: Vec<(&'a Deed, u32, bool)>,
    /// The last of them that is known came at this time, so it is not complete before.
    pub(crate) from: Duration,
    /// The first of them that was told so.
    pub(crate) to: Duration,
}

/// The rounds that somebody has passed, by their numbers.
pub(crate) fn rounds<'a>(deeds: &'a [Deed]) -> BTreeMap<u64, Round<'a>> {
    let mut rounds: BTreeMap<u64, Round<'a>> = BTreeMap::new();
    for deed in deeds {
        if let Saw::Passed {
            generation,
            arrival,
            last,
        } = deed.saw()
        {
            let round = rounds.entry(generation).or_insert_with(|| Round {
                to: Duration::MAX,
                ..Round::default()
            });
            round.parties.push((deed, arrival, last));
            round.from = round.from.max(deed.began);
            round.to = round.to.min(deed.ended());
        }
    }
    rounds
}

/// What must be true of the rounds of both kinds of barrier.
pub(crate) fn judge_rounds(
    run: &Finished,
    deeds: &[Deed],
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
            fault("PassedEarly", "told before all were here");
        }
        if round.parties.len() > parties as usize {
            fault("Crowded", "more parties than places");
        }
        let last = round.parties.iter().filter(|(_, _, last)| *last).count();
        if last > 1 {
            fault("Last", "two were the last");
        }
        if round
            .parties
            .iter()
            .any(|(_, arrival, last)| *last != (*arrival == parties) || *arrival == 0)
        {
            fault("Last", "the last is the one with the last number");
        }
        // Two have one number only where a third left between them.
        let mut numbers: Vec<_> = round
            .parties
            .iter()
            .map(|(_, arrival, _)| *arrival)
            .collect();
        numbers.sort_unstable();
        let twice = numbers.windows(2).filter(|two| two[0] == two[1]).count();
        let missing = (parties as usize).saturating_sub(round.parties.len());
        if twice > 0 && absent(run, deeds, round, true) == 0 {
            fault("Arrivals", "two came with one number, and nobody left");
        }
        let away = absent(run, deeds, round, false);
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
    for deed in deeds {
        let (Saw::Passed { generation, .. } | Saw::Broken(generation, _)) = deed.saw() else {
            continue;
        };
        let seen = last.insert((deed.process, deed.task), generation);
        if seen >= Some(generation) {
            let detail = format!("{deed:?} after round {seen:?}");
            faults.push(explain(run, "Backwards", deed.ended(), &detail));
        }
    }
    faults
}

/// The number of arrivals at the time of a round that may have taken a place in it, though nobody was told so: their callers left, died, or
/// were out of reach.
/// `left`: those, too, that had certainly given their place back before it was complete.
fn absent(run: &Finished, deeds: &[Deed], round: &Round<'_>, left: bool) -> usize {
    // Since the arrival of the first that is known.
    let since = round.parties.iter().map(|(deed, ..)| deed.began).min();
    deeds
        .iter()
        .filter(|deed| matches!(deed.call, Call::Arrive { .. }))
        .filter(|deed| deed.began <= round.to && Some(may_act_until(run, deed)) >= since)
        .filter(|deed| match deed.saw() {
            Saw::Unknown => true,
            Saw::Nothing => left,
            // Out of reach for longer than its lease it counted, as a dead one does, was not told, and took another place.
            _ => deed.ended() >= round.to + run.scenario.leases[0] / 2,
        })
        .count()
}

fn judge(run: &Finished) -> Vec<String> {
    let deeds = run.ledger.deeds().clone();
    let rounds = rounds(&deeds);
    let mut faults = judge_rounds(run, &deeds, &rounds, PARTIES);
    let mut broken: BTreeMap<u64, BrokenBy> = BTreeMap::new();
    for deed in &deeds {
        let Saw::Broken(round, by) = deed.saw() else {
            continue;
        };
        let why = *broken.entry(round).or_insert(by);
        let Call::Arrive { breaks } = deed.call else {
            continue;
        };
        if why != by {
            let detail = format!("round {round} broke by {why:?} and by {by:?}");
            faults.push(explain(run, "TwoReasons", deed.ended(), &detail));
        }
        if !breaks || rounds.contains_key(&round) {
            let detail = format!("round {round}: {:?}", rounds.get(&round));
            faults.push(explain(run, "BrokenAndComplete", deed.ended(), &detail));
        }
        let blamed = deeds.iter().any(|other| {
            let there = other.began <= deed.ended() && may_act_until(run, other) >= deed.began;
            let ended_so = match by {
                BrokenBy::TimedOut => matches!(other.saw(), Saw::Nothing | Saw::Unknown),
                // Its process died, or was cut off for longer than its lease.
                _ => true,
            };
            there && ended_so
        });
        if !blamed {
            let detail = format!("nobody who left at that time: {deed:?}");
            faults.push(explain(run, "Blameless", deed.ended(), &detail));
        }
    }
    faults.extend(stalls(run, &ends(&rounds, &broken, &deeds)));
    faults.extend(progress(run, "passed rounds", |deed| {
        matches!(deed.saw(), Saw::Passed { .. })
    }));
    faults
}

/// When rounds ended, in order.
fn ends(
    rounds: &BTreeMap<u64, Round<'_>>,
    broken: &BTreeMap<u64, BrokenBy>,
    deeds: &[Deed],
) -> Vec<Duration> {
    let mut ends: Vec<_> = rounds.values().map(|round| round.to).collect();
    ends.extend(deeds.iter().filter_map(|deed| match deed.saw() {
        Saw::Broken(round, _) if broken.contains_key(&round) => Some(deed.ended()),
        _ => None,
    }));
    ends.sort_unstable();
    ends
}

/// In calm weather something goes on all the time.
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
