//! One request, and the reading of its reply.

use std::sync::Arc;
use std::time::Duration;

use super::lock_entry::LockEntry;
use crate::dated::Dated;
use crate::description::{Request, Verdict, now_of, rest_of};
use crate::error::Rejection;
use crate::hint::Refusal;
use crate::hold::claim::Claim;
use crate::hold::debt::Debt;
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::hold::holds::Holds;
use crate::hold::state::Grant;
use crate::hold::sweep::finished;
use crate::line::{Approach, Reason};
use crate::terms::HoldTerms;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Failure, Moment, Outage, Path, Wake, micros};

/// The outcome of one request.
pub(crate) enum Attempt {
    Granted(Hold),
    /// Refused. Boxed: the future of every try would contain one.
    Busy(Box<Refusal>),
    /// Refused because the request reached the server after its deadline.
    Late,
    /// Granted, but the reply took longer than the lease. The hold is being released.
    Stale,
    NotNow(Outage),
    Unanswered(Outage),
    Rejected(Rejection),
}

/// The parameters of a request, besides its debt.
#[derive(Clone, Debug)]
pub(crate) struct Parameters {
    pub(crate) terms: HoldTerms,
    /// The start of the call.
    pub(crate) began: Moment,
    /// True if the call waits after a refusal.
    pub(crate) waits: bool,
    /// True if a grant is given to a waiter, which has to take it.
    pub(crate) is_given: bool,
    /// True if the request may get an entry in the queue on the server.
    pub(crate) first: bool,
    pub(crate) reason: Reason,
    /// Boxed: rare.
    pub(crate) other: Option<Box<Other>>,
}

/// Another owner that an acquire concerns.
#[derive(Clone, Debug, Default)]
pub(crate) struct Other {
    /// The owner of the exclusive hold that this acquire shares: a writer that also reads.
    pub(crate) within: Option<WireOwner>,
    /// The owner of the detached hold that this acquire takes over.
    pub(crate) from: Option<WireOwner>,
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

/// Sends one request and reads its reply. `debt` must outlive the request: its drop cleans up after it (P3).
pub(crate) async fn ask(debt: &Arc<Debt>, asked: &Parameters, entry: &Arc<LockEntry>) -> Attempt {
    let (core, sync) = (&debt.core, &debt.sync);
    // P1: read before the request is sent. The lease counts from here.
    let sent = core.clock.now();
    let limit = core.limit(sync.name(), sent);
    let other = asked.other.as_deref();
    let request = Request {
        since: limit.sent.saturating_sub(micros(sent.since(asked.began))),
        waits: asked.waits,
        first: asked.first,
        approach: Approach {
            arrived: debt.claim().arrived(),
            reason: asked.reason,
            polls: core.config.wake == Wake::Poll,
            hears: entry.hears(core, debt),
        },
        within: other.and_then(|it| it.within.as_ref()),
        from: other.and_then(|it| it.from.as_ref()),
        ..limit.request(&debt.owner, asked.terms.first_asked(sent))
    };
    debt.sends(limit.ends_by);
    let call = sync.acquire(&request);
    let is_newcomer = request.waits && !debt.claim().is_queued() && other.is_none();
    let answer = if is_newcomer && entry.may_release(core, &**sync) {
        // Boxed: rare.
        Box::pin(entry.ask_with_release(debt, limit, &request, &call)).await
    } else {
        core.call(Path::Direct, &call).await
    };
    debt.record(Claim::answered);
    let answer = answer.map(|reply| finished(core, &**sync, reply));
    if let Some(now) = answer.as_ref().ok().and_then(now_of) {
        core.observe(sync.name(), now, sent);
    }
    if let Ok(reply) = &answer {
        entry.told(&**sync, reply);
    }
    match answer {
        Ok(reply) => match Verdict::read(&reply) {
            Some(Verdict::Granted(token)) => {
                let (due, next) = dates(core, sync.dated(rest_of(&reply)));
                let grant = Grant {
                    token,
                    terms: asked.terms,
                    sent,
                    first: None,
                    given: asked.is_given,
                    due,
                    next,
                };
                let hold = Hold::begin(debt, Arc::clone(entry) as _, grant);
                if hold.is_held() || sync.about().keeps_late_grants {
                    Attempt::Granted(hold)
                } else {
                    // P1: the lease has ended before the reply arrived. The hold is dropped here, which releases it.
                    Attempt::Stale
                }
            }
            Some(Verdict::Busy(ttl)) => {
                let hint = sync.hint(rest_of(&reply));
                if let Some(placed) = hint.placed() {
                    debt.record(|it| it.placed(placed.arrived));
                } else if asked.waits
                    && (sync.sharing().keeps_each_waiter() || sync.about().leaves_sign)
                {
                    debt.record(Claim::queued);
                }
                Attempt::Busy(Box::new(Refusal {
                    after: ttl.map(Duration::from_millis),
                    hint,
                    reply,
                }))
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
