//! An acquire as an explicit [`Owner`]. It locks the owner's seat at the name first, so that the owner's acquires take turns, and
//! re-enters a hold that it finds there.

use std::pin::pin;
use std::sync::Arc;

use tokio::sync::MutexGuard;

use super::once::once;
use super::plan::Plan;
use super::timeout_at;
use crate::description::Synchronizer;
use crate::error::{AcquireError, Rejection};
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::hold::renew::{as_acquire_error, reenter};
use crate::hold::state::HoldState;
use crate::options::{AcquireOptions, Reentry};
use crate::owner::Owner;
use crate::seat::{Seat, Seated, live};
use crate::shared::Core;
use crate::waiting::Other;
use stanchion_transport::Moment;

/// An owner's seat at one name, with its lock held.
pub(super) struct Sitting<'a> {
    pub(super) seat: &'a Seat,
    pub(super) seated: MutexGuard<'a, Seated>,
}

/// Re-enters the hold of `owner`, or acquires for this owner with `anew`.
///
/// Keeps the seat locked throughout, so that the owner's acquires of one name take turns and the second finds the first one's hold.
#[expect(clippy::too_many_arguments, reason = "what an acquire is made of")]
pub(super) async fn as_owner(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    owner: &Owner,
    options: &AcquireOptions,
    plan: &Plan,
    deadline: Moment,
    sitting: Sitting<'_>,
    anew: impl AsyncFnOnce(&Seat) -> Result<Option<Hold>, AcquireError>,
) -> Result<Option<Hold>, AcquireError> {
    let Sitting {
        seat: place,
        seated: mut seat,
    } = sitting;
    let shares = sync.sharing().is_read();
    let already = |state: &HoldState, rule| AcquireError::Rejected {
        name: sync.name().clone(),
        rejection: Rejection::AlreadyHeld {
            owner: state.debt.owner.clone(),
            rule,
        },
    };
    // By the clock: a hold with an ended lease is not re-entered, even if it was not declared lost yet.
    let mine = live(seat.of(sync.sharing()));
    // Only a write reaches this point: for a read, the shared hold is `mine`.
    if mine.is_none()
        && let Some(state) = live(&seat.shared)
    {
        return Err(already(
            &state,
            "holds it shared already, and would wait for itself for ever: release the read hold first, or write and downgrade",
        ));
    }
    if let Some(state) = mine {
        if options.reentry == Reentry::Refused {
            return Err(already(
                &state,
                "holds it already, and re-entry was refused",
            ));
        }
        match timeout_at(core, deadline, pin!(reenter(&state, core.base()))).await {
            // The re-entry ends in the background, where its guard is dropped and the count is set back (P3).
            None => return Ok(None),
            Some(Ok(hold)) if hold.is_held() => return Ok(Some(hold)),
            // P10: this future was not polled for so long that the hold has ended.
            Some(Ok(ended)) => drop(ended),
            Some(Err(error)) => {
                // No error here means that there was nothing left to re-enter. Then this owner acquires like any other, with a fresh wire
                // owner (R1).
                if let Some(error) = as_acquire_error(error, state.free_by()) {
                    return Err(error);
                }
            }
        }
    }
    let mut hold = None;
    if let Some(state) = live(&seat.exclusive).filter(|_| shares) {
        // This owner excludes all others already, so one attempt is enough.
        let plan = plan.with(Other {
            within: Some(state.debt.owner.clone()),
            ..Other::default()
        });
        hold = once(core, sync, &plan, deadline).await?.ok();
    }
    // Also when the server refused that attempt: the exclusive hold has ended there, so this owner waits like any other.
    if hold.is_none() {
        hold = anew(place).await?;
    }
    if let Some(hold) = &hold {
        // Before the seat is unlocked: the next acquire of this owner must find the hold.
        hold.adopt(owner);
        *seat.of(sync.sharing()) = hold.weak();
    }
    Ok(hold)
}
