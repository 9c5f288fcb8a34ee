//! One acquire, and its requests.

use std::sync::Arc;
use std::time::Duration;

use super::plan::Plan;
use super::timeout_at;
use crate::dated::Dated;
use crate::description::{Request, Synchronizer, Verdict, now_of, rest_of};
use crate::error::{AcquireError, Rejection};
use crate::hint::Hint;
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::hold::holds::{Base, Holds};
use crate::hold::state::Grant;
use crate::hold::sweep::{Debt, finished};
use crate::line::{Approach, Reason};
use crate::waiting::{Applicant, LockEntry, Stay, Ticket};
use stanchion_transport::{Busy, Failure, Moment, Outage, Path, Persistent, Wake, micros};

/// The outcome of one request.
pub(super) enum Attempt {
    Granted(Hold),
    /// Refused, with the time after which to retry. Boxed: most hints are empty, and every waiter carries one.
    Busy(Option<Duration>, Box<Hint>),
    /// Refused because the request reached the server after its deadline.
    Late,
    /// Granted, but the reply took longer than the lease. The hold is being released.
    Stale,
    NotNow(Outage),
    Unanswered(Outage),
    Rejected(Rejection),
}

/// One logical acquire: the owner of its requests, with the debt of that owner.
#[derive(Debug)]
pub(super) struct Asking<'a> {
    /// Swept when this is dropped, or when the request under way has ended, whichever is later (P3).
    pub(super) debt: Arc<Debt>,
    /// Borrowed: with a copy, the future of every waiter would contain the plan twice.
    plan: &'a Plan,
    /// The reason of the next request.
    reason: Reason,
    /// True if the next request may get an entry in the queue on the server.
    first: bool,
    /// Delays a shutdown until the outcome of the last request is handled (P3). Dropped after the clean-up has begun.
    busy: Option<Busy>,
}

impl<'a> Asking<'a> {
    pub(super) fn new(core: Arc<dyn Base>, sync: &Arc<dyn Synchronizer>, plan: &'a Plan) -> Self {
        let lease = plan.terms.first_asked(core.clock.now());
        Self::of(Arc::new(Debt::new(core, sync, lease)), plan)
    }

    /// Continues an acquire that has the debt `debt`.
    pub(super) const fn of(debt: Arc<Debt>, plan: &'a Plan) -> Self {
        Self {
            debt,
            plan,
            reason: Reason::Turn,
            first: true,
            busy: None,
        }
    }

    /// Uses the entry of this process in the queue on the server, if there is one, for the next request.
    pub(super) fn step_up(&mut self, ticket: &Ticket, reason: Reason) {
        let (standing, first) = ticket.step_up(&self.debt, reason);
        self.first = first;
        if let Some(standing) = standing {
            // The replaced debt was not used yet, or is swept here.
            self.debt = standing;
        }
        self.reason = reason;
    }

    /// Returns whether the last request followed no wake, but a subscription that was confirmed or lost.
    pub(super) fn follows_subscription(&self) -> bool {
        self.reason == Reason::Resubscribed
    }

    /// Gives the owner of the last request to the queue, as the place of this process, and continues with a fresh owner.
    pub(super) fn stood(&mut self) {
        self.debt = self.anew().debt;
    }

    /// Makes the same acquire again, with a fresh owner.
    pub(super) fn anew(&self) -> Self {
        Self::new(Arc::clone(&self.debt.core), &self.debt.sync, self.plan)
    }

    /// Records that the outcome of the last request is handled.
    pub(super) fn handled(&mut self) {
        self.busy = None;
    }

    /// Begins a hold without a request: the event that another waiter has seen has happened for this waiter, too.
    pub(super) fn seen(&self, entry: &Arc<LockEntry>) -> Hold {
        let grant = Grant {
            owner: self.debt.owner.clone(),
            token: None,
            terms: self.plan.terms,
            sent: self.debt.core.clock.now(),
            first: None,
            unanswered_until: Moment::ZERO,
            due: Moment::ZERO,
            next: None,
        };
        let core = Arc::clone(&self.debt.core);
        Hold::begin(core, &self.debt.sync, Arc::clone(entry) as _, grant)
    }

    pub(super) fn applicant(&self) -> Applicant {
        Applicant {
            sync: Arc::clone(&self.debt.sync),
            owner: self.debt.owner.clone(),
        }
    }

    pub(super) const fn stay(&self) -> Stay {
        Stay {
            began: self.plan.began,
            deadline: self.plan.deadline,
        }
    }

    /// Passes the debt to `hold`, if the grant is to this owner. A hold that was handed over has its own owner.
    pub(super) fn given(&self, hold: &Hold) {
        if *hold.wire_owner() == self.debt.owner {
            hold.mind(self.debt.settle());
        }
    }

    /// Sends one request; `None` when the deadline passes first. If this future is dropped while the request is under way, the request is
    /// awaited in the background, and a grant is released there.
    pub(super) async fn attempt(
        &mut self,
        entry: &Arc<LockEntry>,
        deadline: Moment,
    ) -> Option<Attempt> {
        // P3: the request owns all data that it needs, because it may outlive this future and its caller.
        let (debt, entry) = (Arc::clone(&self.debt), Arc::clone(entry));
        let (plan, reason, first) = (self.plan.clone(), self.reason, self.first);
        let mut work = Persistent::new(&self.debt.core.runner, async move {
            ask(&debt, &plan, &entry, first, reason).await
        });
        let core = &self.debt.core;
        // If this future is dropped here, or the deadline passes, `work` continues in the background. A grant is released there, and the
        // debt is swept when both this future and the request have dropped it.
        let outcome = timeout_at(core, deadline, &mut work).await?;
        // Kept until the outcome has reached the queue or the caller. Otherwise a shutdown in between would count no request as under way
        // and leave an orphan (P3).
        self.busy = work.take_busy();
        match &outcome {
            // Boxed: rare, and large.
            Attempt::Late => {
                let clock = Box::pin(core.synchronise(Path::Direct, self.debt.sync.name()));
                timeout_at(core, deadline, clock).await;
            }
            // R1: a release of this owner is under way, so the next request needs a fresh owner.
            Attempt::Stale => {
                let lease = self.plan.terms.first_asked(core.clock.now());
                self.debt = Arc::new(Debt::new(Arc::clone(core), &self.debt.sync, lease));
            }
            Attempt::Granted(_)
            | Attempt::Busy(..)
            | Attempt::Rejected(_)
            | Attempt::NotNow(_)
            | Attempt::Unanswered(_) => {}
        }
        Some(outcome)
    }

    pub(super) fn failed(&self, outage: Outage) -> AcquireError {
        let name = self.debt.sync.name().clone();
        match self.debt.leftover() {
            Some(free_by) => AcquireError::Ambiguous {
                name,
                free_by,
                outage,
            },
            // P8: every request was answered, or is known not to have run.
            None => AcquireError::Unavailable { name, outage },
        }
    }

    /// Returns `granted`, unless the client is closing: then no caller receives a hold, and dropping this one releases it (P3).
    pub(super) fn unless_closing<T>(&self, granted: T) -> Result<T, AcquireError> {
        if self.debt.core.closing.is_cancelled() {
            return Err(self.shut_down());
        }
        Ok(granted)
    }

    pub(super) fn shut_down(&self) -> AcquireError {
        AcquireError::Shutdown {
            name: self.debt.sync.name().clone(),
        }
    }

    pub(super) fn rejected(&self, rejection: Rejection) -> AcquireError {
        AcquireError::Rejected {
            name: self.debt.sync.name().clone(),
            rejection,
        }
    }
}

/// Returns the moments of a dated grant that was answered just now; zero and `None` for any other grant.
fn dates(core: &Holds, Dated { due, next }: Dated) -> (Moment, Option<Moment>) {
    if due.is_zero() && next.is_none() {
        return (Moment::ZERO, None);
    }
    // Counted from the reply, which is later than the server's own clock reading: never early.
    let answered = core.clock.now();
    (answered + due, next.map(|next| answered + next))
}

/// Sends one request and reads its reply.
async fn ask(
    debt: &Debt,
    plan: &Plan,
    entry: &Arc<LockEntry>,
    first: bool,
    reason: Reason,
) -> Attempt {
    let (core, sync) = (&debt.core, &debt.sync);
    // P1: read before the request is sent. The lease counts from here.
    let sent = core.clock.now();
    let limit = core.limit(sync.name(), sent);
    let other = plan.other.as_deref();
    let request = Request {
        since: limit.sent.saturating_sub(micros(sent.since(plan.began))),
        waits: plan.waits(),
        first,
        approach: Approach {
            arrived: debt.arrived(),
            reason,
            polls: core.config.wake == Wake::Poll,
            hears: entry.hears(core, debt),
        },
        within: other.and_then(|it| it.within.as_ref()),
        from: other.and_then(|it| it.from.as_ref()),
        ..limit.request(&debt.owner, plan.terms.first_asked(sent))
    };
    let call = sync.acquire(&request);
    let is_newcomer = request.waits && !debt.is_queued() && plan.other.is_none();
    let answer = if is_newcomer && entry.may_release(core, &**sync) {
        // Boxed: rare.
        Box::pin(entry.ask_with_release(debt, limit, &request, &call)).await
    } else {
        core.call(Path::Direct, &call).await
    };
    let answer = answer.map(|reply| finished(core, &**sync, reply));
    if let Some(now) = answer.as_ref().ok().and_then(now_of) {
        core.observe(sync.name(), now, sent);
    }
    if let Ok(reply) = &answer {
        entry.answered(&**sync, reply);
    }
    match answer {
        Ok(reply) => match Verdict::read(&reply) {
            Some(Verdict::Granted(token)) => {
                let (due, next) = dates(core, sync.dated(rest_of(&reply)));
                let grant = Grant {
                    owner: debt.owner.clone(),
                    token,
                    terms: plan.terms,
                    sent,
                    first: None,
                    // R2: the hold takes over the debt. Its release is followed by a sweep after the earlier requests.
                    unanswered_until: debt.settle(),
                    due,
                    next,
                };
                let (core, queue) = (Arc::clone(core), Arc::clone(entry) as _);
                let hold = Hold::begin(core, sync, queue, grant);
                if hold.is_held() || sync.keeps_late_grants() {
                    Attempt::Granted(hold)
                } else {
                    // P1: the lease has ended before the reply arrived. The hold is dropped here, which releases it.
                    Attempt::Stale
                }
            }
            Some(Verdict::Busy(ttl)) => {
                let hint = sync.hint(rest_of(&reply));
                // Recorded by the request, not by its caller: the caller may be gone, but the place or mark is on the server (P3).
                if let Some(placed) = hint.placed() {
                    debt.placed(placed.arrived);
                } else if plan.waits() && sync.leaves_sign() {
                    debt.queued();
                }
                Attempt::Busy(ttl.map(Duration::from_millis), Box::new(hint))
            }
            Some(Verdict::Late) => Attempt::Late,
            Some(Verdict::Gone) => Attempt::Rejected(Rejection::Deleted),
            None => Attempt::Rejected(Rejection::Other {
                detail: format!("an unexpected reply: {reply:?}"),
            }),
        },
        Err(Failure::Unanswered(outage)) => {
            // The request may still run until then, and be granted or take a place (P3).
            debt.unanswered(limit.ends_by);
            Attempt::Unanswered(outage)
        }
        // The request has not run, so there is nothing to undo.
        Err(Failure::NotNow(outage)) => Attempt::NotNow(outage),
        Err(Failure::Rejected(rejection)) => Attempt::Rejected(rejection.into()),
    }
}
