//! Double barriers: parties that enter together and leave together, give up, lose their place and die.

use std::time::Duration;

use stanchion::{AcquireError, BarrierError, DoubleBarrier, Inside, Lease};
use tokio::time::{sleep, timeout};

use super::barrier::{failed, judge_rounds, rounds, stalls};
use super::{Play, Work, end_of, explain, progress};
use crate::deeds::{Call, Deed, Pending, Saw};
use crate::held::OPERATION;
use crate::ledger::Ledger;
use crate::simulate::Finished;
use crate::work::Worker;

pub(crate) const DOUBLE: Play = Play {
    work,
    judge,
    look: None,
    // As those of a cyclic barrier.
    stays: |_, key, _| key.starts_with("stanchion_double") || key.starts_with("stanchion_once:"),
};

/// The parties of a round: fewer than tasks.
const PARTIES: u32 = 3;

fn work(mut worker: Worker) -> Work {
    Box::pin(async move {
        let ledger = std::sync::Arc::clone(&worker.ledger);
        let Ok(barrier) = DoubleBarrier::new(&worker.client, "phase", PARTIES) else {
            return ledger.complain("the barrier has no name");
        };
        // OK: the scenarios' leases are leases.
        let barrier = barrier.with_lease(Lease::new(worker.scenario.leases[0]).unwrap_or_default());
        let who = (worker.process, worker.task);
        while !ledger.is_ending() {
            sleep(worker.millis(0, worker.scenario.think)).await;
            let limit = worker.millis(0, Duration::from_secs(5));
            let way = worker.rng.u8(..10);
            let call = Pending::begin(&ledger, who, Call::Arrive { breaks: false });
            let began = call.began;
            let entered = match way {
                0..6 => tokio::select! {
                    entered = barrier.enter() => Some(entered),
                    () = ledger.until_ending() => None,
                },
                6..9 => {
                    let entered = barrier.enter_timeout(limit).await;
                    ledger.check_bound("enter_timeout", began, limit);
                    Some(entered)
                }
                _ => timeout(limit, barrier.enter()).await.ok(),
            };
            match entered {
                None => call.end(Saw::Unknown),
                Some(Err(error)) => call.end(failed(&ledger, &error)),
                Some(Ok(inside)) => {
                    ledger.count("entered");
                    call.end(Saw::Passed {
                        generation: inside.generation(),
                        arrival: inside.arrival(),
                        last: inside.is_last(),
                    });
                    be_inside(&mut worker, &ledger, who, inside).await;
                }
            }
        }
    })
}

/// The work inside, and a way to leave.
async fn be_inside(worker: &mut Worker, ledger: &Ledger, who: (u32, u32), inside: Inside) {
    let generation = inside.generation();
    let length = match worker.rng.u8(..10) {
        0..9 => worker.millis(1, Duration::from_millis(300)),
        _ => worker.millis(1, worker.scenario.leases[0] * 2),
    };
    let (way, limit) = (worker.rng.u8(..10), worker.millis(0, OPERATION));
    let call = Pending::begin(ledger, who, Call::Inside(generation));
    let worked = inside.run(sleep(length)).await;
    if worked.is_err() {
        ledger.count("lost inside");
        call.end(Saw::Lost);
        return;
    }
    call.end(Saw::Done);
    let leaving = Pending::begin(ledger, who, Call::Leave(generation));
    let began = leaving.began;
    let left = match way {
        0 => {
            drop(inside);
            return leaving.end(Saw::Nothing);
        }
        1 => timeout(limit, inside.leave()).await.ok(),
        2..5 => {
            let left = inside.leave_timeout(limit).await;
            ledger.check_bound("leave_timeout", began, limit);
            Some(left)
        }
        _ => Some(inside.leave().await),
    };
    leaving.end(match left {
        Some(Ok(())) => Saw::Done,
        None | Some(Err(BarrierError::Acquire(AcquireError::TimedOut { .. }))) => Saw::Nothing,
        Some(Err(error)) => failed(ledger, &error),
    });
}

fn judge(run: &Finished) -> Vec<String> {
    let deeds = run.ledger.deeds().clone();
    let rounds = rounds(&deeds);
    let mut faults = judge_rounds(run, &deeds, &rounds, PARTIES);
    let inside: Vec<(u64, &Deed)> = deeds
        .iter()
        .filter_map(|deed| match deed.call {
            Call::Inside(generation) => Some((generation, deed)),
            _ => None,
        })
        .collect();
    for (generation, party) in &inside {
        let end = end_of(run, party);
        // Nobody goes on before all are out.
        for other in &deeds {
            if other.call == Call::Leave(*generation)
                && other.saw() == Saw::Done
                && other.ended() < end
            {
                let detail = format!("{other:?} before {party:?}");
                faults.push(explain(run, "LeftEarly", other.ended(), &detail));
            }
        }
        // Nobody is in the next round before that.
        let next = rounds.range(generation + 1..).next();
        if let Some((next, round)) = next.filter(|(_, round)| round.to < end) {
            let detail = format!("round {next} began before {party:?} had left");
            faults.push(explain(run, "Overlap", round.to, &detail));
        }
    }
    let mut ends: Vec<_> = rounds.values().map(|round| round.to).collect();
    ends.sort_unstable();
    faults.extend(stalls(run, &ends));
    faults.extend(progress(run, "rounds entered", |deed| {
        matches!(deed.call, Call::Inside(_))
    }));
    faults
}
