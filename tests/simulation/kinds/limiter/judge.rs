//! What must be true of the grants of a limiter.

use std::time::Duration;

use super::{BURST, INTERVAL, RATE};
use crate::deeds::{Call, Deed, Saw};
use crate::kinds::{end_of, explain, progress};
use crate::simulate::Finished;

/// In calm weather a request without a deadline is served within this. Twelve tasks want what comes back in some three seconds; but a
/// process waits in its own order, and processes in none.
const SERVED: Duration = Duration::from_secs(12);

/// In calm weather an answer takes less, and a moment is known to so much.
const ANSWER: Duration = Duration::from_millis(60);

/// Clocks are shown to a millisecond.
const TIMER: Duration = Duration::from_millis(2);

/// By so much a client's clock may be fast while it waits for a booked moment: 0.4 % of two seconds, and a timer.
const FAST: Duration = Duration::from_millis(12);

/// A grant as its caller knows it: it counts from a moment between these two on.
#[derive(Clone, Copy, Debug)]
struct Counted {
    from: Duration,
    to: Duration,
    permits: u32,
}

pub(super) fn judge(run: &Finished) -> Vec<String> {
    let deeds = run.ledger.deeds().clone();
    let is_bucket = run.scenario.play.look.is_none();
    let grants = counted(run, &deeds);
    let mut faults = Vec::new();
    for (n, first) in grants.iter().enumerate() {
        // Grants that certainly count between the beginning of the first and the end of the last of them.
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
    faults.extend(dry(run, &deeds));
    faults.extend(progress(run, "grants", |deed| {
        matches!(deed.saw(), Saw::Granted(_))
    }));
    faults
}

/// What was granted and not given back, in the order of the earliest moments.
fn counted(run: &Finished, deeds: &[Deed]) -> Vec<Counted> {
    let calms = run.ledger.notes().calms.clone();
    let mut grants = Vec::new();
    for deed in deeds {
        let (Call::Permits(permits), Saw::Granted(due)) = (deed.call, deed.saw()) else {
            continue;
        };
        let refunded = deeds.iter().any(|other| {
            other.call == Call::Refund
                && (other.process, other.task) == (deed.process, deed.task)
                && other.began == deed.ended()
        });
        if refunded {
            continue;
        }
        let calm = calms
            .iter()
            .any(|(from, to)| *from <= deed.began && deed.ended() <= *to);
        // One that was booked counts from its moment on; another from some moment between its request and the answer.
        let moment = if due > deed.began + TIMER {
            due
        } else {
            deed.ended()
        };
        let from = if calm {
            moment
                .min(deed.ended())
                .saturating_sub(ANSWER)
                .max(deed.began)
        } else {
            deed.began
        };
        grants.push(Counted {
            from,
            to: deed.ended() + FAST,
            permits,
        });
    }
    grants.sort_by_key(|grant| grant.from);
    grants
}

/// In calm weather everybody is served in time.
fn dry(run: &Finished, deeds: &[Deed]) -> Vec<String> {
    let calms = run.ledger.notes().calms.clone();
    let mut faults = Vec::new();
    for deed in deeds {
        for (from, to) in &calms {
            let since = deed.began.max(*from);
            let until = end_of(run, deed).min(*to);
            if matches!(deed.call, Call::Permits(_)) && until > since + SERVED {
                let detail = format!("{deed:?} waits from {since:?} to {until:?}");
                faults.push(explain(run, "Dry", since + SERVED, &detail));
            }
        }
    }
    faults
}
