//! The plan of an acquire: its options, checked and resolved.

use std::sync::Arc;
use std::time::Duration;

use crate::about::Tenure;
use crate::actor::ActorId;
use crate::description::Synchronizer;
use crate::error::{AcquireError, Rejection, lease_of};
use crate::extension::{GiveUp, Patient};
use crate::free_by::FreeBy;
use crate::lease::Lease;
use crate::millis::whole_millis;
use crate::options::{AcquireOptions, ReadOptions as _, Reentry};
use crate::shared::Core;
use crate::terms::{HoldTerms, OnDeadlock};
use crate::waiting::{Other, Stay};
use stanchion_transport::{Moment, Outage};

/// What one acquire is to do. The loops, the queue and all requests of the acquire read it.
#[derive(Clone, Debug)]
pub(super) struct Plan {
    /// The part that outlives the acquire.
    pub(super) terms: HoldTerms,
    /// The start of the call.
    pub(super) began: Moment,
    /// The end of the wait. The start of the call for a try, which leaves no place in a queue.
    pub(super) deadline: Moment,
    /// Boxed: rare.
    pub(super) other: Option<Box<Other>>,
}

impl Plan {
    /// Makes the plan of a try.
    pub(super) fn of_try(
        core: &Core,
        sync: &dyn Synchronizer,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Self, AcquireError> {
        let Some(option) = options.of_a_wait() else {
            return Self::new(core, sync, options, lease);
        };
        Err(AcquireError::Rejected {
            name: sync.name().clone(),
            rejection: Rejection::InvalidOption {
                rule: format!("{option}: a try does not wait"),
            },
        })
    }

    /// Makes the plan of an adoption, which never waits, and is a new owner.
    pub(super) fn of_adoption(
        core: &Core,
        sync: &dyn Synchronizer,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Self, AcquireError> {
        if options.owner.is_some() {
            return Err(AcquireError::Rejected {
                name: sync.name().clone(),
                rejection: Rejection::InvalidOption {
                    rule: "owner: an adopted hold has a new owner".into(),
                },
            });
        }
        Self::of_try(core, sync, options, lease)
    }

    /// Checks the options, and resolves their defaults.
    fn new(
        core: &Core,
        sync: &dyn Synchronizer,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Self, AcquireError> {
        let began = core.clock.now();
        let rejected = |rejection| AcquireError::Rejected {
            name: sync.name().clone(),
            rejection,
        };
        let refused = |rule| rejected(Rejection::InvalidOption { rule });
        if let Some(rule) = needs_a_hold(sync, options) {
            return Err(refused(rule));
        }
        if options.reentry == Reentry::Refused && options.owner.is_none() {
            return Err(refused(
                "reentry Refused: without an owner no acquire re-enters".into(),
            ));
        }
        if let Some(max_hold) = options.max_hold
            && max_hold < Lease::MIN.length()
        {
            return Err(refused(format!(
                "max_hold {} is shorter than the shortest lease, 10ms",
                humantime::format_duration(max_hold)
            )));
        }
        // The scope first: a scope declares which acquires belong together, an owner only which acquires re-enter each other.
        let scope = core.extensions.iter().find_map(|it| it.actor());
        let actor = scope.or_else(|| ActorId::of(options.owner.as_ref().map(|owner| owner.mark())));
        give_up(core, sync, options, actor, began)?;
        let checked = |option, length| lease_of(option, length).map_err(rejected);
        let lease = checked("lease", options.lease.unwrap_or(lease))?;
        let first_lease = match options.first_lease {
            Some(first) => checked("first_lease", first)?,
            None => lease,
        };
        if first_lease < lease {
            return Err(refused(format!(
                "first_lease {first_lease} is shorter than the lease, {lease}, which would hide it"
            )));
        }
        let rest = options.rest_after_crash;
        if first_lease.length().saturating_add(rest) > Lease::MAX.length() {
            return Err(refused(format!(
                "rest_after_crash {} and the lease, {first_lease}, exceed 30days together",
                humantime::format_duration(rest)
            )));
        }
        let terms = HoldTerms {
            lease,
            first_lease,
            renewal: options.renewal,
            max_hold: options.max_hold,
            until: Moment::FAR,
            rest_ms: u32::try_from(whole_millis(rest)).unwrap_or(u32::MAX),
            actor,
            on_deadlock: options.on_deadlock,
        };
        Ok(Self {
            terms,
            began,
            deadline: began,
            other: None,
        })
    }

    /// Makes the plan of an acquire that waits as `options` say.
    pub(super) fn of_wait(
        core: &Core,
        sync: &dyn Synchronizer,
        options: &AcquireOptions,
        lease: Duration,
    ) -> Result<Self, AcquireError> {
        let mut plan = Self::new(core, sync, options, lease)?;
        plan.deadline = (options.timeout).map_or(Moment::FAR, |timeout| plan.began + timeout);
        Ok(plan)
    }

    /// Returns the same plan with another owner that it concerns.
    pub(super) fn with(&self, other: Other) -> Self {
        Self {
            other: Some(Box::new(other)),
            ..self.clone()
        }
    }

    /// The call, for the queue.
    pub(super) const fn stay(&self) -> Stay {
        Stay {
            began: self.began,
            deadline: self.deadline,
        }
    }

    /// The error of the call at its deadline. `free_by`: the time by which a request that the call left is certainly undone.
    pub(super) fn timed_out(
        &self,
        core: &Core,
        sync: &Arc<dyn Synchronizer>,
        free_by: Option<FreeBy>,
    ) -> AcquireError {
        self.ended(core, sync, free_by, None, None)
    }

    /// As [`Plan::timed_out`], at the end of a wait. `outage`: the failure of its last request. Then no holder is known, because the server decided
    /// nothing. `remark`: a state of the name that the wait could not end.
    pub(super) fn ended(
        &self,
        core: &Core,
        sync: &Arc<dyn Synchronizer>,
        free_by: Option<FreeBy>,
        outage: Option<Outage>,
        remark: Option<&'static str>,
    ) -> AcquireError {
        let name = sync.name().clone();
        match (outage, free_by) {
            (None, free_by) => AcquireError::TimedOut {
                name,
                waited: core.clock.now().since(self.began),
                free_by,
                remark: remark.map(Into::into),
            },
            (Some(outage), None) => AcquireError::Unavailable { name, outage },
            (Some(outage), Some(free_by)) => AcquireError::Ambiguous {
                name,
                free_by,
                outage,
            },
        }
    }
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
pub(super) fn give_up(
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
