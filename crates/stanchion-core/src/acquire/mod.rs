//! Acquiring: the call of a user, from its options to its hold or its error. The requests of a call that waits are those of its queue.
//!
//! * [`plan`]: the options of an acquire, checked and resolved. One type from the verb to the request.
//! * [`wait`](mod@wait): an acquire that waits in the local queue. [`once`](mod@once): an acquire that does not.
//! * [`dated`]: the wait for a grant that takes effect at a later moment.
//! * [`stand_by`]: a wait that begins before the awaited event can happen.
//! * [`reentry`]: an acquire as an explicit owner, which re-enters an existing hold of this owner.
//!
//! A [`Debt`](crate::hold::debt::Debt) is all that an owner may have on the server. It is swept when its last reference is
//! dropped (P3). A grant becomes a [`Hold`], which keeps the debt. After an unanswered request the retry uses the same owner. If a
//! hold of the owner is being released, the next attempt uses a fresh owner (rule R1).

mod dated;
mod once;
mod plan;
mod reentry;
mod stand_by;
mod wait;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::description::{Subject, Synchronizer};
use crate::error::AcquireError;
use crate::hint::Refusal;
use crate::hold::handle::Hold;
use crate::hold::holds::Holds;
use crate::millis::whole_millis;
use crate::options::AcquireOptions;
use crate::owner::Owner;
use crate::seat::Seat;
use crate::shared::Core;
use crate::waiting::Other;
use crate::wire_owner::WireOwner;
use dated::{Awaited, until_due};
use once::once;
use plan::{Plan, give_up};
use reentry::{Sitting, as_owner};
use stanchion_transport::{Moment, Outage, timeout};
use wait::{Wishes, wait};

pub(crate) use stand_by::StandingBy;

/// The time limit of the only request of a call that has no time left.
/// Below the 50 ms by which a call may outlive its deadline (P9).
const FIRST_ASK: Duration = Duration::from_millis(45);

/// Acquires, waiting as `options` say.
pub(crate) async fn acquire(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    options: &AcquireOptions,
    lease: Duration,
) -> Result<Hold, AcquireError> {
    let plan = Plan::of_wait(core, &**sync, options, lease)?;
    let mut give_up = give_up(core, &**sync, options, plan.terms.actor, plan.began)?;
    let wishes = Wishes {
        on_queued: options.on_queued.as_ref(),
        give_up: give_up.as_mut(),
        ticket: None,
    };
    match &options.owner {
        None => {
            let hold = wait(core, sync, &plan, None, wishes).await?;
            if hold.due() == Moment::ZERO {
                return Ok(hold);
            }
            // Boxed: few primitives date their grants, and every waiter would carry the size of this future.
            Box::pin(when_due(core, sync, &plan, hold)).await
        }
        // Boxed: an explicit owner is rare, and every waiter would carry the size of this future.
        Some(owner) => Box::pin(acquire_as(core, sync, owner, options, &plan, wishes)).await,
    }
}

/// Waits until a dated grant takes effect.
async fn when_due(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    plan: &Plan,
    mut hold: Hold,
) -> Result<Hold, AcquireError> {
    while hold.due() != Moment::ZERO {
        let granted = core.clock.now();
        let ahead = hold.due().since(granted);
        if !ahead.is_zero() {
            tracing::Span::current().record("booked_ms", whole_millis(ahead));
            core.tell(|sink| sink.booked(sync.kind().name(), ahead));
        }
        match until_due(core, hold, granted, plan.deadline).await? {
            Awaited::Due(hold) => return Ok(hold),
            Awaited::TimedOut => {
                // P8: the release of the grant is under way.
                let free_by = core.free_by(sync.tenure(), plan.terms.first_lease);
                return Err(plan.timed_out(core, sync, Some(free_by)));
            }
            // The server has lost the grant, so the acquire starts again.
            Awaited::Forgotten => {
                hold = wait(core, sync, plan, None, Wishes::default()).await?;
            }
        }
    }
    Ok(hold)
}

/// Acquires as `owner`.
async fn acquire_as(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    owner: &Owner,
    options: &AcquireOptions,
    plan: &Plan,
    wishes: Wishes<'_>,
) -> Result<Hold, AcquireError> {
    let anew = async |seat: &Seat| {
        let hold = wait(core, sync, plan, Some(seat), wishes).await;
        hold.map(Some)
    };
    let seat = owner.seat(&core.realm, Subject::of(&**sync));
    // Another task of the owner may keep the seat for as long as it waits for the name, so only the deadline bounds this wait.
    let Some(seated) = timeout_at(core, plan.deadline, pin!(seat.take())).await else {
        return Err(plan.timed_out(core, sync, None));
    };
    let sitting = Sitting {
        seat: &seat,
        seated,
    };
    // Even with no time left, one request is sent to re-enter a hold of this owner.
    let patience = plan.deadline.max(plan.began + FIRST_ASK);
    as_owner(core, sync, owner, options, plan, patience, sitting, anew)
        .await?
        .ok_or_else(|| plan.timed_out(core, sync, None))
}

/// Tries once, without waiting; `None` when another owner holds the name.
pub(crate) async fn try_acquire(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    options: &AcquireOptions,
    lease: Duration,
) -> Result<Option<Hold>, AcquireError> {
    let Some(owner) = &options.owner else {
        return ask(core, sync, options, lease).await.map(Result::ok);
    };
    let plan = Plan::of_try(core, &**sync, options, lease)?;
    let deadline = deadline_of_try(core, options);
    let anew = async |_: &Seat| {
        let answer = once(core, sync, &plan, deadline).await;
        answer.map(Result::ok)
    };
    let seat = owner.seat(&core.realm, Subject::of(&**sync));
    let seated = match timeout_at(core, deadline, pin!(seat.take_now())).await {
        Some(Some(seated)) => seated,
        // Another task of this owner is queued, so another owner holds the name.
        Some(None) => return Ok(None),
        None => {
            // P8: this call has sent nothing; the unanswered request belongs to another call.
            let name = sync.name().clone();
            let detail = "another request of this owner has not been answered".into();
            let outage = Outage::Unanswered { detail };
            return Err(AcquireError::Unavailable { name, outage });
        }
    };
    let sitting = Sitting {
        seat: &seat,
        seated,
    };
    Box::pin(as_owner(
        core, sync, owner, options, &plan, deadline, sitting, anew,
    ))
    .await
}

/// Takes over the detached hold of `from`, which lasts until `until` at the longest; `None` when that hold has ended.
pub(crate) async fn adopt(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    from: WireOwner,
    until: Moment,
    options: &AcquireOptions,
    lease: Duration,
) -> Result<Option<Hold>, AcquireError> {
    let mut plan = Plan::of_adoption(core, &**sync, options, lease)?.with(Other {
        from: Some(from),
        ..Other::default()
    });
    // P10: `max_hold` counts from the start of the ticket's hold.
    plan.terms.until = until;
    let deadline = deadline_of_try(core, options);
    once(core, sync, &plan, deadline).await.map(Result::ok)
}

/// Tries once, as a new owner, and returns the content of a refusal.
pub(crate) async fn ask(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    options: &AcquireOptions,
    lease: Duration,
) -> Result<Result<Hold, Box<Refusal>>, AcquireError> {
    let plan = Plan::of_try(core, &**sync, options, lease)?;
    let deadline = deadline_of_try(core, options);
    once(core, sync, &plan, deadline).await
}

/// P9: a try always has a bound, even if its options have none. With no time at all it sends one request.
fn deadline_of_try(core: &Core, options: &AcquireOptions) -> Moment {
    let timeout = match options.timeout {
        Some(Duration::ZERO) => FIRST_ASK,
        Some(timeout) => timeout,
        None => core.config.operation_timeout,
    };
    core.clock.now() + timeout
}

/// Returns `granted`, unless the client is closing: then no caller receives a hold, and dropping this one releases it (P3).
fn unless_closing<T>(
    core: &Core,
    sync: &Arc<dyn Synchronizer>,
    granted: T,
) -> Result<T, AcquireError> {
    if core.closing.is_cancelled() {
        let name = sync.name().clone();
        return Err(AcquireError::Shutdown { name });
    }
    Ok(granted)
}

/// Runs `work`; `None` when `deadline` passes first. The caller pins `work`: if passed by value, every waiter would carry it twice.
async fn timeout_at<T>(
    core: &Holds,
    deadline: Moment,
    work: impl Future<Output = T> + Unpin,
) -> Option<T> {
    if deadline == Moment::FAR {
        return Some(work.await);
    }
    timeout(deadline.since(core.clock.now()), work).await
}
