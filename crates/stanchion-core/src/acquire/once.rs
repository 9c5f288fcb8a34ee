//! An acquire that does not wait: it has no place in the local queue, only a visit.

use std::sync::Arc;

use super::attempt::{Asking, Attempt, Manner};
use crate::description::Synchronizer;
use crate::error::AcquireError;
use crate::hold::handle::Hold;
use crate::millis::Brief;
use crate::options::HoldTerms;
use crate::shared::Core;
use crate::waiting::LockEntries;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Moment, Outage};

/// An acquire that does not wait. Asks again only while the server cannot be reached and the deadline has not passed.
pub(super) async fn once(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    terms: HoldTerms,
    deadline: Moment,
    within: Option<WireOwner>,
) -> Result<Option<Hold>, AcquireError> {
    let visit = LockEntries::visit(core, &**sync);
    let asked = core.clock.now();
    let manner = Manner {
        terms,
        began: asked,
        waits: false,
        within,
    };
    let mut asking = Asking::new(core, sync, manner);
    loop {
        let outage = match asking.attempt(visit.entry(), false, deadline).await {
            Some(Attempt::Granted(hold, left)) => {
                visit.entry().acquired(&hold, left);
                return asking.unless_closing(Some(hold));
            }
            Some(Attempt::Busy(..)) => return Ok(None),
            Some(Attempt::Rejected(rejection)) => return Err(asking.rejected(rejection)),
            Some(Attempt::Late | Attempt::Stale) => Outage::Unanswered {
                detail: "requests reached the server too late".into(),
            },
            Some(Attempt::NotNow(outage) | Attempt::Unanswered(outage)) => outage,
            None => {
                let waited = core.clock.now().since(asked);
                let detail = format!("nothing within {}", Brief(waited));
                let name = sync.name().clone();
                return Err(AcquireError::Ambiguous {
                    name,
                    free_by: asking.debt.free_by(),
                    outage: Outage::Unanswered { detail },
                });
            }
        };
        asking.unless_closing(())?;
        if core.clock.now() >= deadline {
            return Err(asking.failed(outage));
        }
        Box::pin(core.recover(deadline)).await;
    }
}
