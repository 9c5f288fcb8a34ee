//! What must be true of the runs of a job.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{LATE, least};
use crate::deeds::{Call, Deed, Saw};
use crate::kinds::{end_of, explain, progress};
use crate::simulate::Finished;
use crate::time::Time;

pub(super) fn judge(run: &Finished) -> Vec<String> {
    let deeds = run.ledger.deeds().clone();
    let mut faults = Vec::new();
    let mut runs: Vec<(u64, &Deed)> = deeds
        .iter()
        .filter_map(|deed| match deed.call {
            Call::Run(tick) => Some((tick, deed)),
            _ => None,
        })
        .collect();
    runs.sort_by_key(|(_, deed)| deed.began);
    let least = least(run.scenario.seed);
    for pair in runs.windows(2) {
        let [(before, first), (tick, second)] = pair else {
            continue;
        };
        // A later tick that has run counts for all before it.
        if tick <= before {
            let rule = if tick == before {
                "TickTwice"
            } else {
                "TickBackwards"
            };
            let detail = format!("{tick} after {before}: {first:?}, {second:?}");
            faults.push(explain(run, rule, second.began, &detail));
        }
        // The server's beginning of the first was after its call, that of the second before its work.
        let asked = asked(&deeds, *before, first);
        if second.began < asked + least {
            let detail = format!("{second:?}, the one before was asked for at {asked:?}");
            faults.push(explain(run, "Unrested", second.began, &detail));
        }
    }
    let ticks: BTreeMap<u64, &Deed> = runs.iter().copied().collect();
    for deed in &deeds {
        if let (Call::Tick(_), Saw::Already(ran)) = (deed.call, deed.saw()) {
            let known = ticks.get(&ran).is_some_and(|run| run.began <= deed.ended());
            // Nobody saw its work, but somebody asked for it, and was cut short; or had no answer for so long that its claim may be
            // older than its work.
            let perhaps = deeds.iter().any(|other| {
                other.call == Call::Tick(ran)
                    && (other.saw() == Saw::Unknown
                        || other.ended() >= other.began + run.scenario.response_timeout)
                    && other.began <= deed.ended()
            });
            if !known && !perhaps {
                let detail = format!("nobody ran {ran}: {deed:?}");
                faults.push(explain(run, "Claimed", deed.ended(), &detail));
            }
        }
    }
    faults.extend(missed(run, &deeds, &runs, least));
    faults.extend(progress(run, "ticks asked for", |deed| {
        matches!(deed.call, Call::Tick(_))
    }));
    if runs.len() < run.scenario.least {
        faults.push(format!("Poor: only {} runs", runs.len()));
    }
    faults
}

/// When the run was asked for that this is the work of.
fn asked(deeds: &[Deed], tick: u64, run: &Deed) -> Duration {
    deeds
        .iter()
        .filter(|deed| {
            deed.call == Call::Tick(tick)
                && (deed.process, deed.task) == (run.process, run.task)
                && deed.began <= run.began
        })
        .map(|deed| deed.began)
        .max()
        .unwrap_or(run.began)
}

/// A tick is run in calm weather, unless a run before it goes on, or the job rests.
fn missed(run: &Finished, deeds: &[Deed], runs: &[(u64, &Deed)], least: Duration) -> Vec<String> {
    let mut asked: BTreeMap<u64, Vec<&Deed>> = BTreeMap::new();
    for deed in deeds {
        if let Call::Tick(tick) = deed.call {
            asked.entry(tick).or_default().push(deed);
        }
    }
    let calms = run.ledger.notes().calms.clone();
    // How long a run keeps others off: also one whose process died in it.
    let kept = |deed: &Deed| {
        let after = match deed.end {
            Some(_) => LATE,
            None => run.scenario.leases[0],
        };
        (end_of(run, deed) + after).max(deed.began + least)
    };
    let mut faults = Vec::new();
    for (tick, calls) in asked {
        let (Some(first), Some(last)) = (
            calls.iter().map(|call| call.began).min(),
            calls.iter().map(|call| call.ended()).max(),
        ) else {
            continue;
        };
        let calm = calms.iter().any(|(from, to)| *from <= first && last <= *to);
        let busy = runs
            .iter()
            .any(|(other, deed)| *other == tick || deed.began <= last && kept(deed) >= first);
        if calm && !busy {
            let at = Time::of_date(Duration::from_millis(tick));
            let detail = format!("{tick} has not been run: {calls:?}");
            faults.push(explain(run, "Missed", at, &detail));
        }
    }
    faults
}
