//! Acquiring: try, subscribe, try, wait for a message or the timer, try. One loop for all primitives.
//!
//! * [`attempt`]: one acquire and its requests. Each runs inside a [`Persistent`](stanchion_transport::Persistent): when the caller
//!   drops its future, the request is awaited in the background, and a grant is released there.
//! * [`wait`](mod@wait): the loop of an acquire that waits, in the local queue. [`once`](mod@once): an acquire that does not.
//! * [`dated`]: the wait for a grant that takes effect at a later moment.
//! * [`stand_by`]: a wait that begins before the awaited event can happen.
//! * [`reentry`]: an acquire as an explicit owner, which re-enters an existing hold of this owner.
//!
//! A [`Debt`](crate::hold::sweep::Debt) is the possible leftover of the requests on the server. It is swept when its last reference is
//! dropped (P3). A grant becomes a [`Hold`], which takes over the debt. After an unanswered request the retry uses the same owner. If a
//! hold of the owner is being released, the next attempt uses a fresh owner (rule R1).

mod attempt;
mod dated;
mod once;
mod reentry;
mod stand_by;
mod wait;

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use crate::actor::ActorId;
use crate::description::{Subject, Synchronizer, Tenure};
use crate::error::{AcquireError, Rejection};
use crate::extension::{GiveUp, Patient};
use crate::free_by::FreeBy;
use crate::hint::Refusal;
use crate::hold::handle::Hold;
use crate::lease::Lease;
use crate::millis::whole_millis;
use crate::options::{AcquireOptions, HoldTerms, OnDeadlock};
use crate::owner::Owner;
use crate::seat::Seat;
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use attempt::Other;
use dated::{Awaited, until_due};
use once::once;
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
    lease: Lease,
) -> Result<Hold, AcquireError> {
    let terms = check(core, &**sync, options, lease)?;
    let started = core.clock.now();
    let mut give_up = give_up(core, &**sync, options, terms.actor, started)?;
    let wishes = Wishes {
        on_queued: options.on_queued.as_ref(),
        give_up: give_up.as_mut(),
        begun: None,
    };
    let deadline = options
        .timeout
        .map_or(Moment::FAR, |timeout| started + timeout);
    match &options.owner {
        None => {
            let hold = wait(core, sync, &terms, started, deadline, None, wishes).await?;
            if hold.due() == Moment::ZERO {
                return Ok(hold);
            }
            // Boxed: few primitives date their grants, and every waiter would carry the size of this future.
            Box::pin(when_due(core, sync, &terms, started, deadline, hold)).await
        }
        // Boxed: an explicit owner is rare, and every waiter would carry the size of this future.
        Some(owner) => {
            Box::pin(acquire_as(
                core, sync, owner, options, terms, started, deadline, wishes,
            ))
            .await
        }
    }
}

/// Waits until a dated grant takes effect.
async fn when_due(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    terms: &HoldTerms,
    started: Moment,
    deadline: Moment,
    mut hold: Hold,
) -> Result<Hold, AcquireError> {
    while hold.due() != Moment::ZERO {
        let granted = core.clock.now();
        let ahead = hold.due().since(granted);
        if !ahead.is_zero() {
            tracing::Span::current().record("booked_ms", whole_millis(ahead));
            core.tell(|sink| sink.booked(sync.kind().name(), ahead));
        }
        match until_due(core, hold, granted, deadline).await? {
            Awaited::Due(hold) => return Ok(hold),
            Awaited::TimedOut => {
                // P8: the release of the grant is under way.
                let free_by = core.free_by(sync.tenure(), terms.first_lease);
                return Err(timed_out(core, sync, started, Some(free_by)));
            }
            // The server has lost the grant, so the acquire starts again.
            Awaited::Forgotten => {
                let wishes = Wishes::default();
                hold = wait(core, sync, terms, started, deadline, None, wishes).await?;
            }
        }
    }
    Ok(hold)
}

/// Acquires as `owner`.
#[expect(clippy::too_many_arguments, reason = "what an acquire is made of")]
async fn acquire_as(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    owner: &Owner,
    options: &AcquireOptions,
    terms: HoldTerms,
    started: Moment,
    deadline: Moment,
    wishes: Wishes<'_>,
) -> Result<Hold, AcquireError> {
    let anew = async |seat: &Seat| {
        let hold = wait(core, sync, &terms, started, deadline, Some(seat), wishes).await;
        hold.map(Some)
    };
    let seat = owner.seat(&core.realm, Subject::of(&**sync));
    // Another task of the owner may keep the seat for as long as it waits for the name, so only the deadline bounds this wait.
    let Some(seated) = timeout_at(core, deadline, pin!(seat.take())).await else {
        return Err(timed_out(core, sync, started, None));
    };
    let sitting = Sitting {
        seat: &seat,
        seated,
    };
    // Even with no time left, one request is sent to re-enter a hold of this owner.
    let patience = deadline.max(started + FIRST_ASK);
    as_owner(core, sync, owner, options, terms, patience, sitting, anew)
        .await?
        .ok_or_else(|| timed_out(core, sync, started, None))
}

/// Tries once, without waiting; `None` when another owner holds the name.
pub(crate) async fn try_acquire(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    options: &AcquireOptions,
    lease: Lease,
) -> Result<Option<Hold>, AcquireError> {
    let terms = check(core, &**sync, options, lease)?;
    let deadline = deadline_of_try(core, options);
    match &options.owner {
        None => once(core, sync, terms, deadline, None)
            .await
            .map(Result::ok),
        Some(owner) => {
            let anew = async |_: &Seat| {
                let answer = once(core, sync, terms, deadline, None).await;
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
                core, sync, owner, options, terms, deadline, sitting, anew,
            ))
            .await
        }
    }
}

/// Takes over the detached hold of `from`, which lasts until `until` at the longest; `None` when that hold has ended.
pub(crate) async fn adopt(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    from: WireOwner,
    until: Moment,
    options: &AcquireOptions,
    lease: Lease,
) -> Result<Option<Hold>, AcquireError> {
    let mut terms = check(core, &**sync, options, lease)?;
    // P10: `max_hold` counts from the start of the ticket's hold.
    terms.until = until;
    let deadline = core.clock.now() + core.config.operation_timeout;
    let other = Box::new(Other {
        from: Some(from),
        ..Other::default()
    });
    once(core, sync, terms, deadline, Some(other))
        .await
        .map(Result::ok)
}

/// Tries once, as a new owner, and returns the content of a refusal.
pub(crate) async fn ask(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    options: &AcquireOptions,
    lease: Lease,
) -> Result<Result<Hold, Refusal>, AcquireError> {
    let terms = check(core, &**sync, options, lease)?;
    let deadline = deadline_of_try(core, options);
    once(core, sync, terms, deadline, None).await
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

/// Checks the options, and resolves their defaults.
fn check(
    core: &Core,
    sync: &dyn Synchronizer,
    options: &AcquireOptions,
    lease: Lease,
) -> Result<HoldTerms, AcquireError> {
    if let Some(rule) = needs_a_hold(sync, options) {
        return Err(AcquireError::Rejected {
            name: sync.name().clone(),
            rejection: Rejection::InvalidOption { rule },
        });
    }
    if let Some(max_hold) = options.max_hold
        && max_hold < Lease::MIN.length()
    {
        let rule = format!(
            "max_hold {} is shorter than the shortest lease, 10ms",
            humantime::format_duration(max_hold)
        );
        return Err(AcquireError::Rejected {
            name: sync.name().clone(),
            rejection: Rejection::InvalidOption { rule },
        });
    }
    // The scope first: a scope declares which acquires belong together, an owner only which acquires re-enter each other.
    let scope = core.extensions.iter().find_map(|it| it.actor());
    let actor = scope.or_else(|| ActorId::of(options.owner.as_ref()));
    give_up(core, sync, options, actor, core.clock.now())?;
    let lease = options.lease_or(lease);
    let first_lease = options.first_lease.unwrap_or(lease);
    if first_lease < lease {
        let rule = format!(
            "first_lease {first_lease} is shorter than the lease, {lease}, which would hide it"
        );
        return Err(AcquireError::Rejected {
            name: sync.name().clone(),
            rejection: Rejection::InvalidOption { rule },
        });
    }
    Ok(HoldTerms {
        lease,
        first_lease,
        renewal: options.renewal,
        max_hold: options.max_hold,
        until: Moment::FAR,
        rest_ms: u32::try_from(whole_millis(options.rest_after_crash)).unwrap_or(u32::MAX),
        actor,
        on_deadlock: options.on_deadlock,
    })
}

/// Returns the rule that an option for leases or holds breaks where there is none: it would do nothing.
fn needs_a_hold(sync: &dyn Synchronizer, options: &AcquireOptions) -> Option<String> {
    let kind = sync.kind().name();
    let without = match sync.tenure() {
        Tenure::Leased => return None,
        Tenure::Unleased => "holds without a lease",
        Tenure::Nothing if options.owner.is_some() => {
            return Some(format!("owner: a wait for a {kind} leaves no hold"));
        }
        Tenure::Nothing => "no holds",
    };
    let option = options.of_a_lease()?;
    Some(format!("{option}: a {kind} has {without}"))
}

/// Returns the search for a deadlock that [`OnDeadlock::Fail`] demands; it begins when it is first polled. An option that could never have an
/// effect is refused.
fn give_up(
    core: &Core,
    sync: &dyn Synchronizer,
    options: &AcquireOptions,
    actor: Option<ActorId>,
    began: Moment,
) -> Result<Option<GiveUp>, AcquireError> {
    if options.on_deadlock == OnDeadlock::Wait {
        return Ok(None);
    }
    let wait = Patient { sync, actor, began };
    let begun = core.extensions.iter().find_map(|it| it.give_up(&wait));
    let begun = begun.unwrap_or(Err(
        "on_deadlock: Fail needs stanchion-survey, which is missing",
    ));
    begun.map(Some).map_err(|rule| AcquireError::Rejected {
        name: sync.name().clone(),
        rejection: Rejection::InvalidOption { rule: rule.into() },
    })
}

/// The error of a call that began at `started`. `free_by`: the time by which a request that the call left is certainly undone.
fn timed_out(
    core: &Core,
    sync: &Arc<dyn Synchronizer>,
    started: Moment,
    free_by: Option<FreeBy>,
) -> AcquireError {
    AcquireError::TimedOut {
        name: sync.name().clone(),
        waited: core.clock.now().since(started),
        free_by,
    }
}

/// Runs `work`; `None` when `deadline` passes first. The caller pins `work`: if passed by value, every waiter would carry it twice.
async fn timeout_at<T>(
    core: &Core,
    deadline: Moment,
    work: impl Future<Output = T> + Unpin,
) -> Option<T> {
    if deadline == Moment::FAR {
        return Some(work.await);
    }
    timeout(deadline.since(core.clock.now()), work).await
}
