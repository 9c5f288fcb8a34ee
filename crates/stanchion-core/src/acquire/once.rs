//! An acquire that does not wait. The acquire takes no place in the local queue; a visit keeps the queue's entry in the table.

use std::sync::Arc;

use super::plan::Plan;
use super::{timeout_at, unless_closing};
use crate::description::Synchronizer;
use crate::error::AcquireError;
use crate::hint::Refusal;
use crate::hold::debt::Debt;
use crate::hold::handle::Hold;
use crate::hold::queue::HoldQueue as _;
use crate::line::Reason;
use crate::millis::Brief;
use crate::shared::Core;
use crate::waiting::{Attempt, LockEntries, Parameters, ask, failed};
use crate::wire::Retries;
use stanchion_transport::{Moment, Outage, Path, Persistent};

/// An acquire that does not wait. Retries until the deadline, but only after an outage, a late request or a stale grant.
pub(super) async fn once(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    plan: &Plan,
    deadline: Moment,
) -> Result<Result<Hold, Box<Refusal>>, AcquireError> {
    // Kept to the end: the entry must still be in the table when the new holder is recorded in it.
    let visit = LockEntries::visit(core, &**sync);
    let began = core.clock.now();
    let asked = Parameters {
        terms: plan.terms,
        began,
        waits: false,
        is_given: false,
        first: true,
        reason: Reason::Turn,
        other: plan.other.clone(),
    };
    let fresh = || {
        let lease = plan.terms.first_asked(core.clock.now());
        Arc::new(Debt::new(core.base(), sync, lease))
    };
    let mut debt = fresh();
    let (mut retries, mut last) = (Retries::default(), None);
    loop {
        // P3: the request owns all data that it needs. If this future is dropped here, or the deadline passes, the request continues in the background.
        // A grant is released there, and the debt is swept when both this future and the request have dropped it.
        let (ours, entry, asked) = (Arc::clone(&debt), Arc::clone(visit.entry()), asked.clone());
        let work = async move { ask(&ours, &asked, &entry).await };
        let mut work = Persistent::new(&core.runner, work);
        let attempt = timeout_at(core, deadline, &mut work).await;
        // Until the outcome is handled. Otherwise a shutdown in between would count no request as in flight and leave an orphan (P3).
        let _busy = work.take_busy();
        let outage = match attempt {
            Some(Attempt::Granted(hold)) => {
                // Also when the client is closing: the hold is then dropped, and released through this queue.
                visit.entry().acquired(&hold);
                return unless_closing(core, sync, Ok(hold));
            }
            // The debt of an earlier unanswered try remains, and its drop sweeps (P3).
            Some(Attempt::Busy(refusal)) => return Ok(Err(refusal)),
            Some(Attempt::Rejected(rejection)) => {
                let name = sync.name().clone();
                return Err(AcquireError::Rejected { name, rejection });
            }
            Some(late @ (Attempt::Late | Attempt::Stale)) => {
                if matches!(late, Attempt::Late) {
                    // Boxed: rare, and large.
                    let clock = Box::pin(core.synchronise(Path::Direct, sync.name()));
                    timeout_at(core, deadline, clock).await;
                } else {
                    // R1: a release of this owner is under way, so the next request needs a fresh owner.
                    debt = fresh();
                }
                Outage::Unanswered {
                    detail: "requests reached the server too late".into(),
                }
            }
            Some(Attempt::NotNow(outage) | Attempt::Unanswered(outage)) => outage,
            None => {
                // P8: the request is in flight and may be granted. The grant is then released in the background. Earlier requests may
                // have got a reason, which helps more than the time that has passed.
                let waited = core.clock.now().since(began);
                let silence = || Outage::Unanswered {
                    detail: format!("nothing within {}", Brief(waited)),
                };
                let name = sync.name().clone();
                return Err(AcquireError::Ambiguous {
                    name,
                    free_by: debt.free_by(),
                    outage: last.unwrap_or_else(silence),
                });
            }
        };
        // A closing client must not retry during an outage.
        unless_closing(core, sync, ())?;
        if core.clock.now() >= deadline {
            return Err(failed(&debt, outage));
        }
        last = Some(outage);
        Box::pin(core.recover(deadline, &mut retries)).await;
    }
}
