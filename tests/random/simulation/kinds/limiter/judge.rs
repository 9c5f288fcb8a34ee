//! Checks the grants of a limiter.

use std::time::Duration;

use super::{BURST, INTERVAL, RATE};
use crate::simulation::kinds::{end_of, explain, progress};
use crate::simulation::operations::{Call, CallResult, Operation};
use crate::simulation::simulate::Finished;

/// In a calm phase a request without a deadline is served within this time. The requests of twelve tasks need the permits of about
/// 3 s. The order is fixed within a process, but not between processes.
const SERVED: Duration = Duration::from_secs(12);

/// In a calm phase a reply takes less than this. Also the uncertainty of the time of a grant.
const ANSWER: Duration = Duration::from_millis(60);

/// The resolution of clocks, with a margin.
const TIMER: Duration = Duration::from_millis(2);

/// The error of a client's clock while it waits for a booked time: 0.4 % of 2 s, and a timer.
const FAST: Duration = Duration::from_millis(12);

/// A grant as its caller knows it. The permits count from a time between `from` and `to`.
#[derive(Clone, Copy, Debug)]
struct Counted {
    from: Duration,
    to: Duration,
    permits: u32,
}

pub(super) fn judge(run: &Finished) -> Vec<String> {
    let operations = run.ledger.operations().clone();
    let is_bucket = run.scenario.workload.inspect.is_none();
    let grants = counted(run, &operations);
    let mut faults = Vec::new();
    for (n, first) in grants.iter().enumerate() {
        // The grants that certainly count between the beginning of the first and the end of the last.
        let (mut sum, mut to) = (0, first.to);
        let mut later: Vec<_> = grants[n..]
            .iter()
            .take_while(|it| it.from <= first.from + 5 * INTERVAL)
            .collect();
        later.sort_by_key(|it| it.to);
        for grant in later {
            sum += grant.permits;
            to = to.max(grant.to);
            let span = to.saturating_sub(first.from);
            let most = if is_bucket {
                f64::from(BURST) + f64::from(RATE) * span.as_secs_f64() / INTERVAL.as_secs_f64()
            } else if span < INTERVAL {
                f64::from(RATE)
            } else {
                break;
            };
            if f64::from(sum) > most {
                let detail = format!("{sum} permits from {:?} to {to:?}: {most}", first.from);
                faults.push(explain(run, "Exceeded", to, &detail));
                break;
            }
        }
    }
    faults.extend(dry(run, &operations));
    faults.extend(progress(run, "grants", |operation| {
        matches!(operation.result(), CallResult::Granted(_))
    }));
    faults
}

/// Returns the grants without refund, ordered by the earliest time from which they may count.
fn counted(run: &Finished, operations: &[Operation]) -> Vec<Counted> {
    let calms = run.ledger.notes().calms.clone();
    let mut grants = Vec::new();
    for operation in operations {
        let (Call::Permits(permits), CallResult::Granted(due)) =
            (operation.call, operation.result())
        else {
            continue;
        };
        let refunded = operations.iter().any(|other| {
            other.call == Call::Refund
                && (other.process, other.task) == (operation.process, operation.task)
                && other.began == operation.ended()
        });
        if refunded {
            continue;
        }
        let calm = calms
            .iter()
            .any(|(from, to)| *from <= operation.began && operation.ended() <= *to);
        // A booked grant counts from its due time. Another one counts from a time between the request and the reply.
        let moment = if due > operation.began + TIMER {
            due
        } else {
            operation.ended()
        };
        let from = if calm {
            moment
                .min(operation.ended())
                .saturating_sub(ANSWER)
                .max(operation.began)
        } else {
            operation.began
        };
        grants.push(Counted {
            from,
            to: operation.ended() + FAST,
            permits,
        });
    }
    grants.sort_by_key(|grant| grant.from);
    grants
}

/// In a calm phase every request is served in time.
fn dry(run: &Finished, operations: &[Operation]) -> Vec<String> {
    let calms = run.ledger.notes().calms.clone();
    let mut faults = Vec::new();
    for operation in operations {
        for (from, to) in &calms {
            let since = operation.began.max(*from);
            let until = end_of(run, operation).min(*to);
            if matches!(operation.call, Call::Permits(_)) && until > since + SERVED {
                let detail = format!("{operation:?} waits from {since:?} to {until:?}");
                faults.push(explain(run, "Dry", since + SERVED, &detail));
            }
        }
    }
    faults
}
