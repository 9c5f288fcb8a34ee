//! Grants that take effect at a later moment.

use std::pin::pin;

use super::{FIRST_ASK, timeout_at};
use crate::description::code_of;
use crate::error::AcquireError;
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::shared::Core;
use stanchion_transport::{Moment, Path, sleep};

/// The outcome of the wait for a dated grant.
pub(super) enum Awaited {
    /// The grant is in effect.
    Due(Hold),
    /// The server has lost the grant.
    Forgotten,
    /// The deadline has passed. The grant is being released.
    TimedOut,
}

/// Waits until `hold` takes effect. If the future is dropped before that, the hold is released in the background (P3).
///
/// # Errors
/// [`AcquireError::Shutdown`].
pub(super) async fn until_due(
    core: &Core,
    hold: Hold,
    granted: Moment,
    deadline: Moment,
) -> Result<Awaited, AcquireError> {
    let due = hold.due();
    if due <= granted {
        return Ok(Awaited::Due(hold));
    }
    let wait = due.since(granted);
    // Counted from the reply, `due` may be a round trip after the server's own moment. The server knew the deadline (P9).
    let latest = if deadline == Moment::FAR {
        deadline
    } else {
        deadline + FIRST_ASK
    };
    let counts = pin!(async {
        let sleep = sleep(due.since(core.clock.now()));
        tokio::select! {
            biased;
            () = core.closing.cancelled() => false,
            () = sleep => true,
        }
    });
    match timeout_at(core, latest, counts).await {
        None => return Ok(Awaited::TimedOut),
        Some(false) => {
            let name = hold.name().clone();
            return Err(AcquireError::Shutdown { name });
        }
        Some(true) => {}
    }
    let Some(question) = hold.confirmation(wait) else {
        return Ok(Awaited::Due(hold));
    };
    // Without a reply the grant counts: the server's last reply granted it.
    let asking = pin!(core.call(Path::Direct, &question));
    let answer = timeout_at(core, latest, asking).await;
    match answer.and_then(Result::ok).as_ref().and_then(code_of) {
        Some(0) => {
            // The drop also removes a hold that an earlier unanswered request may bring back (P3, R2).
            drop(hold);
            Ok(Awaited::Forgotten)
        }
        _ => Ok(Awaited::Due(hold)),
    }
}
