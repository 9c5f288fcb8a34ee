//! Double barriers: parties enter together and leave together. Some give up, lose their place, or are killed.

use std::time::Duration;

use stanchion::barrier::Inside;
use stanchion::{BarrierError, DoubleBarrier, Lease};
use tokio::time::{sleep, timeout};

use super::barrier::{failed, judge_rounds, rounds, stalls};
use super::{Work, Workload, end_of, explain, progress};
use crate::simulation::held::OPERATION_TIMEOUT;
use crate::simulation::ledger::Ledger;
use crate::simulation::operations::{Call, CallResult, Operation, Pending};
use crate::simulation::simulate::Finished;
use crate::simulation::work::Worker;

pub(crate) const DOUBLE: Workload = Workload {
    work,
    judge,
    inspect: None,
    // The barrier and the kept replies to arrivals expire, as those of a cyclic barrier.
    may_remain: |_, key, _| {
        key.starts_with("stanchion_double") || key.starts_with("stanchion_once:")
    },
};

/// The parties of a round. There are more tasks than parties.
const PARTIES: u32 = 3;

fn work(mut worker: Worker) -> Work {
    Box::pin(async move {
        let ledger = std::sync::Arc::clone(&worker.ledger);
        let Ok(barrier) = DoubleBarrier::new(&worker.client, "phase", PARTIES) else {
            return ledger.complain("the barrier is rejected");
        };
        // OK: the scenarios' leases are leases.
        let barrier = barrier.lease(Lease::new(worker.scenario.leases[0]).unwrap_or_default());
        let caller = (worker.process, worker.task);
        while !ledger.is_ending() {
            sleep(worker.millis(0, worker.scenario.think)).await;
            let limit = worker.millis(0, Duration::from_secs(5));
            let way = worker.rng.u8(..10);
            let call = Pending::begin(&ledger, caller, Call::Arrive { breaks: false });
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
                None => call.end(CallResult::Unknown),
                Some(Err(error)) => call.end(failed(&ledger, &error)),
                Some(Ok(inside)) => {
                    ledger.count("entered");
                    call.end(CallResult::Passed {
                        generation: inside.generation(),
                        arrival: inside.arrival(),
                        last: inside.is_last(),
                    });
                    be_inside(&mut worker, &ledger, caller, inside).await;
                }
            }
        }
    })
}

/// Works inside the barrier, then leaves by a random method.
async fn be_inside(worker: &mut Worker, ledger: &Ledger, caller: (u32, u32), inside: Inside) {
    let generation = inside.generation();
    let length = match worker.rng.u8(..10) {
        0..9 => worker.millis(1, Duration::from_millis(300)),
        _ => worker.millis(1, worker.scenario.leases[0] * 2),
    };
    let (way, limit) = (worker.rng.u8(..10), worker.millis(0, OPERATION_TIMEOUT));
    let call = Pending::begin(ledger, caller, Call::Inside(generation));
    let worked = inside.run(sleep(length)).await;
    if worked.is_err() {
        ledger.count("lost inside");
        call.end(CallResult::Lost);
        return;
    }
    call.end(CallResult::Done);
    let leaving = Pending::begin(ledger, caller, Call::Leave(generation));
    let began = leaving.began;
    let left = match way {
        0 => {
            drop(inside);
            return leaving.end(CallResult::Nothing);
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
        Some(Ok(())) => CallResult::Done,
        None | Some(Err(BarrierError::TimedOut { .. })) => CallResult::Nothing,
        Some(Err(error)) => failed(ledger, &error),
    });
}

fn judge(run: &Finished) -> Vec<String> {
    let operations = run.ledger.operations().clone();
    let rounds = rounds(&operations);
    let mut faults = judge_rounds(run, &operations, &rounds, PARTIES);
    let inside: Vec<(u64, &Operation)> = operations
        .iter()
        .filter_map(|operation| match operation.call {
            Call::Inside(generation) => Some((generation, operation)),
            _ => None,
        })
        .collect();
    for (generation, party) in &inside {
        let end = end_of(run, party);
        // No party continues before all parties have left.
        for other in &operations {
            if other.call == Call::Leave(*generation)
                && other.result() == CallResult::Done
                && other.ended() < end
            {
                let detail = format!("{other:?} before {party:?}");
                faults.push(explain(run, "LeftEarly", other.ended(), &detail));
            }
        }
        // The next round does not begin before all parties have left.
        let next = rounds.range(generation + 1..).next();
        if let Some((next, round)) = next.filter(|(_, round)| round.to < end) {
            let detail = format!("round {next} began before {party:?} had left");
            faults.push(explain(run, "Overlap", round.to, &detail));
        }
    }
    let mut ends: Vec<_> = rounds.values().map(|round| round.to).collect();
    ends.sort_unstable();
    faults.extend(stalls(run, &ends));
    faults.extend(progress(run, "rounds entered", |operation| {
        matches!(operation.call, Call::Inside(_))
    }));
    faults
}
