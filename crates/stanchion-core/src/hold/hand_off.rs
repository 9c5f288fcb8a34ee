//! The transfer of a hold to another owner in one script: a hand-off to a local waiter, or a downgrade.
//!
//! The new owner has a debt until it is granted (see [`Debt`]): a run whose answer was lost may have granted to the
//! new owner. The sweep of the debt then undoes that grant.

use std::sync::Arc;
use std::time::Duration;

use super::debt::Debt;
use super::release::{Freed, Sent, ambiguous, end, gone, publicly, was_sent};
use super::sweep::{finished, is_divided};
use crate::description::{End, Request, Synchronizer, Verdict, rest_of};
use crate::error::{Rejection, ReleaseError};
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::hold::queue::{HoldQueue, Successor};
use crate::hold::state::{Grant, HoldState};
use crate::line::Placed;
use crate::owner::Owner;
use crate::terms::HoldTerms;
use crate::wire::Retries;
use stanchion_transport::{Call, Failure, Moment, Path, Reply};

/// The transfer of a hold from one owner to the next in one script: one round trip, no message.
struct Passing<'a> {
    from: &'a Arc<HoldState>,
    terms: HoldTerms,
    /// The queue of the new hold.
    queue: &'a Arc<dyn HoldQueue>,
    /// The debt of the new owner: a run whose answer was lost may have granted to it (P3).
    to: Arc<Debt>,
    /// True if the hold is given to a waiter.
    given: bool,
    /// True for permits: one try only. Other permits may be free, so a waiter must not wait longer than for a request of its own.
    once: bool,
}

enum Passed {
    To(Hold),
    /// Released; the new owner has a place in the line, and may poll after this time.
    InLine(Option<Duration>, Placed),
    /// The script did nothing: it came too late, or others are next.
    Undone,
    Gone,
    Rejected,
    /// Nothing was done: the slot is being migrated, and the script's keys are on two nodes.
    Divided,
    Unanswered,
}

impl<'a> Passing<'a> {
    fn new(
        from: &'a Arc<HoldState>,
        to: &'a Arc<dyn Synchronizer>,
        terms: HoldTerms,
        queue: &'a Arc<dyn HoldQueue>,
        given: bool,
    ) -> Self {
        Self {
            from,
            given,
            terms,
            queue,
            to: Arc::new(Debt::new(
                Arc::clone(&from.core),
                to,
                terms.first_asked(from.core.clock.now()),
            )),
            once: to.sharing().permits().is_some(),
        }
    }

    /// Sends the script of `call` until it is answered or the old hold has expired; for permits only once.
    async fn go(&self, path: Path, call: impl Fn(&Request<'_>) -> Option<Call>) -> Passed {
        let (core, mut retries) = (&self.from.core, Retries::default());
        loop {
            let sent = core.clock.now();
            // Each try has the same two owners, by which the script recognises an earlier run (R7).
            let limit = core.limit(self.from.sync.name(), sent);
            let request = limit.request(&self.to.owner, self.terms.first_asked(sent));
            let Some(call) = call(&request) else {
                return Passed::Rejected;
            };
            let reply = core.call(path, &call).await;
            let reply = reply.map(|reply| finished(core, &*self.to.sync, reply));
            match reply.as_ref().map(Verdict::read) {
                Ok(Some(Verdict::Granted(token))) => {
                    let grant = Grant {
                        token,
                        terms: self.terms,
                        sent,
                        first: None,
                        given: self.given,
                        due: Moment::ZERO,
                        next: None,
                    };
                    let queue = Arc::clone(self.queue);
                    return Passed::To(Hold::begin(&self.to, queue, grant));
                }
                Ok(Some(Verdict::Late)) => {
                    core.synchronise(path, self.from.sync.name()).await;
                    // The clock was read for the requests that follow: a wrong clock makes all of them late.
                    return Passed::Undone;
                }
                Ok(Some(Verdict::Busy(ttl))) => {
                    let Some(placed) = self.placed_by(&reply) else {
                        return Passed::Undone;
                    };
                    self.to.record(|it| it.placed(placed.arrived));
                    return Passed::InLine(ttl.map(Duration::from_millis), placed);
                }
                Ok(_) => return Passed::Gone,
                Err(Failure::Rejected(_)) => return Passed::Rejected,
                Err(Failure::Unanswered(outage)) => {
                    self.to.unanswered(limit.ends_by);
                    self.from.failed(outage);
                }
                Err(failure) if is_divided(failure) => return Passed::Divided,
                Err(Failure::NotNow(outage)) => self.from.failed(outage),
            }
            // The old hold's lease has ended by now, except after the single try for permits. A grant to the new owner is swept with the debt (P3).
            if self.once || core.clock.now() >= self.from.valid_until() {
                return Passed::Unanswered;
            }
            core.recover(self.from.valid_until(), &mut retries).await;
        }
    }

    /// The place in the line that `reply` gives to the new owner.
    fn placed_by(&self, reply: &Result<Reply, Failure>) -> Option<Placed> {
        self.to.sync.hint(rest_of(reply.as_ref().ok()?)).placed()
    }

    /// Returns whether an earlier try went unanswered. The answer may then describe the effect of that try.
    fn was_resent(&self) -> bool {
        self.to.claim().is_unanswered()
    }
}

/// Hands the hold to `successor`, or releases it publicly if a hand-off is not possible.
pub(super) async fn hand_off(
    state: &Arc<HoldState>,
    successor: Successor,
    path: Path,
) -> Result<(), ReleaseError> {
    let (to, queue) = (&successor.sync, &successor.queue);
    let moves = state.sync.about().in_parts() && !Arc::ptr_eq(queue, &state.queue);
    let passing = Passing::new(state, to, successor.terms, queue, true);
    // P2: the successor's token comes from the successor's counter.
    let script = |request: &Request<'_>| {
        let mut request = *request;
        (request.yields, request.approach.hears) = (successor.yields, successor.hears);
        let hand_off = to.hold()?.hand_off()?;
        Some(hand_off.hand_off(&state.debt.owner, &request))
    };
    let passed = passing.go(path, script).await;
    let (end, outcome) = match passed {
        Passed::To(hold) if hold.is_held() => {
            let kind = state.sync.kind().name();
            state.core.tell(|sink| sink.handed(kind));
            queue.hand_over(&successor, hold);
            if moves {
                // Invariant 3 of the queue that the hold leaves: its next waiter sends a request, or has a place in line.
                state.queue.freed(state, End::Released);
            }
            return Ok(());
        }
        Passed::InLine(ttl, placed) => {
            let kind = state.sync.kind().name();
            state.core.tell(|sink| sink.released(kind));
            queue.passed_on(state, &passing.to, ttl, placed);
            return Ok(());
        }
        Passed::To(hold) => {
            // The answer took longer than the lease, so there is no hold to pass on.
            drop(hold);
            queue.not_handed(&successor);
            if moves {
                state.queue.freed(state, End::Unknown);
            }
            return Ok(());
        }
        Passed::Undone | Passed::Divided if !passing.was_resent() => {
            // Nothing was done. A plain release has one key, so it works during a migration, too.
            queue.not_handed(&successor);
            return publicly(state, path, Freed::No).await;
        }
        Passed::Unanswered if !passing.once => (End::Unknown, Err(ambiguous(state))),
        Passed::Undone | Passed::Rejected | Passed::Divided | Passed::Unanswered => {
            // An earlier run may have passed the hold on, the end of a turn may have failed halfway, or nothing was done. A plain release is
            // right in each case.
            drop(passing);
            queue.not_handed(&successor);
            return publicly(state, path, Freed::Perhaps).await;
        }
        // P6: the earlier run removed the old owner. A grant of that run to the new owner is swept with the debt.
        Passed::Gone if passing.was_resent() => (End::Unknown, Ok(())),
        Passed::Gone => (End::Unknown, Err(gone(state))),
    };
    // The sweep begins before the next waiter's request: a grant to the unused owner would make the server refuse that request.
    drop(passing);
    if moves {
        queue.not_handed(&successor);
        state.queue.freed(state, end);
    } else {
        queue.freed_unhanded(&successor, state, end);
    }
    outcome
}

/// Turns an exclusive hold into a shared one, with no other holder in between.
pub(crate) async fn downgrade(
    state: Arc<HoldState>,
    to: Arc<dyn Synchronizer>,
    owner: Option<Owner>,
) -> Result<Hold, ReleaseError> {
    // The seat is locked before the count, as in an acquire of the same owner: in the other order the two could deadlock.
    let seat = owner.as_ref().map(|owner| state.seat_of(owner));
    let mut seated = match &seat {
        Some(seat) => Some(seat.take().await),
        None => None,
    };
    let mut count = state.turn().await;
    if *count > 1 {
        let error = counted(&state, *count);
        // The guard was consumed, so its count is given up, as after any other failure.
        drop(count);
        drop(Hold::another(&state));
        return Err(error);
    }
    // P5: the hold ends here before the server may admit readers.
    *count = 0;
    end(&state)?;
    let sent = Sent::begin(&state);
    // P10: the downgrade does not restart `max_hold`.
    let passing = Passing::new(&state, &to, state.terms_left(), &state.queue, false);
    let script = |to: &Request<'_>| state.sync.hold()?.downgrade(&state.debt.owner, to);
    let mut passed = passing.go(Path::Direct, script).await;
    if matches!(passed, Passed::Undone) {
        // The first try was refused as late and did nothing. The server's clock has been read again since.
        passed = passing.go(Path::Direct, script).await;
    }
    // The script needs its keys on one node, and no script with fewer keys exists. So the downgrade waits until the slot has moved.
    let mut retries = Retries::default();
    while matches!(passed, Passed::Divided) && state.core.clock.now() < state.valid_until() {
        let until = state.valid_until();
        state.core.recover(until, &mut retries).await;
        passed = passing.go(Path::Direct, script).await;
    }
    // R2: an earlier acquire of the writer may still run after the readers have left.
    was_sent(&state, sent);
    let error = match passed {
        Passed::To(hold) => {
            // The script's message wakes the waiters of other processes; the local ones are woken here.
            state.queue.freed(&state, End::Unknown);
            state.queue.acquired(&hold);
            if let (Some(owner), Some(seated)) = (owner, &mut seated) {
                hold.adopt(&owner);
                seated.shared = hold.weak();
            }
            return Ok(hold);
        }
        Passed::Undone | Passed::Rejected => {
            drop(passing);
            return Err(publicly(&state, Path::Direct, Freed::Perhaps)
                .await
                .err()
                .unwrap_or_else(|| gone(&state)));
        }
        Passed::Gone | Passed::InLine(..) => gone(&state),
        Passed::Divided | Passed::Unanswered => ambiguous(&state),
    };
    drop(passing);
    state.queue.freed(&state, End::Unknown);
    Err(error)
}

/// The error of a downgrade of a hold that is counted more than once.
fn counted(state: &HoldState, count: u32) -> ReleaseError {
    ReleaseError::Rejected {
        name: state.sync.name().clone(),
        rejection: Rejection::InvalidOption {
            rule: format!(
                "held {count} times by its owner: only a hold that was not re-entered can be downgraded"
            ),
        },
    }
}
