//! An acquire that does not wait. The acquire takes no place in the local queue; a visit keeps the queue's entry in the table.

use std::sync::Arc;

use super::attempt::{Asking, Attempt};
use super::plan::Plan;
use crate::description::Synchronizer;
use crate::error::AcquireError;
use crate::hint::Refusal;
use crate::hold::handle::Hold;
use crate::hold::queue::HoldQueue as _;
use crate::millis::Brief;
use crate::shared::Core;
use crate::waiting::LockEntries;
use crate::wire::Retries;
use stanchion_transport::{Moment, Outage};

/// An acquire that does not wait. Retries until the deadline, but only after an outage, a late request or a stale grant.
pub(super) async fn once(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    plan: &Plan,
    deadline: Moment,
) -> Result<Result<Hold, Refusal>, AcquireError> {
    // Kept to the end: the entry must still be in the table when the new holder is recorded in it.
    let visit = LockEntries::visit(core, &**sync);
    let asked = core.clock.now();
    let plan = Plan {
        began: asked,
        deadline: asked,
        ..plan.clone()
    };
    let mut asking = Asking::new(core.base(), sync, &plan);
    let (mut retries, mut last) = (Retries::default(), None);
    loop {
        let outage = match asking.attempt(visit.entry(), deadline).await {
            Some(Attempt::Granted(hold)) => {
                // Also when the client is closing: the hold is then dropped, and released through this queue.
                visit.entry().acquired(&hold);
                return asking.unless_closing(Ok(hold));
            }
            // The debt of an earlier unanswered try remains, and its drop sweeps (P3).
            Some(Attempt::Busy(after, hint)) => return Ok(Err(Refusal { after, hint })),
            Some(Attempt::Rejected(rejection)) => return Err(asking.rejected(rejection)),
            Some(Attempt::Late | Attempt::Stale) => Outage::Unanswered {
                detail: "requests reached the server too late".into(),
            },
            Some(Attempt::NotNow(outage) | Attempt::Unanswered(outage)) => outage,
            None => {
                // P8: the request is under way and may be granted. The grant is then released in the background. Earlier requests may
                // have got a reason, which helps more than the time that has passed.
                let waited = core.clock.now().since(asked);
                let silence = || Outage::Unanswered {
                    detail: format!("nothing within {}", Brief(waited)),
                };
                let name = sync.name().clone();
                return Err(AcquireError::Ambiguous {
                    name,
                    free_by: asking.debt.free_by(),
                    outage: last.unwrap_or_else(silence),
                });
            }
        };
        // A closing client must not retry during an outage.
        asking.unless_closing(())?;
        if core.clock.now() >= deadline {
            return Err(asking.failed(outage));
        }
        last = Some(outage);
        Box::pin(core.recover(deadline, &mut retries)).await;
    }
}
