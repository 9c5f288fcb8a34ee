//! The loop of an acquire that waits.
//!
//! The loop begins with a fresh wire owner and a place in the local queue ([`Ticket`]). Each turn `Try` sends one request: a grant ends
//! the loop, a refusal parks the ticket. The loop also ends with a hold that was handed over or granted by message, with the
//! deadline, a deadlock, an outage or a shutdown.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::attempt::{Asking, Attempt};
use super::plan::Plan;
use super::{FIRST_ASK, timeout_at};
use crate::deadlock::DeadlockEdge;
use crate::description::Synchronizer;
use crate::error::AcquireError;
use crate::extension::{GiveUp, Queued};
use crate::free_by::FreeBy;
use crate::hint::Hint;
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::hold::sweep::Debt;
use crate::options::OnQueued;
use crate::seat::Seat;
use crate::shared::Core;
use crate::terms::HoldTerms;
use crate::waiting::{LocalTurn, LockEntries, LockEntry, Ticket, Turn};
use crate::wire::Retries;
use stanchion_transport::Moment;

/// The time after the deadline during which a call waits for the confirmation that its place was given up. Half of the limit of P9:
/// timers fire late, and clocks differ.
const LAST_WORDS: Duration = Duration::from_millis(25);

/// The optional parameters of a wait.
#[derive(Default)]
pub(super) struct Wishes<'a> {
    pub(super) on_queued: Option<&'a OnQueued>,
    /// Ends when the wait must be given up because of a deadlock.
    pub(super) give_up: Option<&'a mut GiveUp>,
    /// The place of a standby, which was taken before. Boxed: rare.
    pub(super) begun: Option<Box<Begun>>,
}

/// A wait that has begun: the debt of its owner, and its place in the queue.
#[derive(Debug)]
pub(super) struct Begun {
    pub(super) debt: Arc<Debt>,
    pub(super) ticket: Ticket,
}

/// The loop of an acquire that waits.
#[expect(
    clippy::manual_async_fn,
    reason = "an async fn keeps its arguments twice, and every waiter carries this future"
)]
pub(super) fn wait(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    plan: &Plan,
    seat: Option<&Seat>,
    wishes: Wishes<'_>,
) -> impl Future<Output = Result<Hold, AcquireError>> + Send {
    async move {
        let Wishes {
            mut on_queued,
            mut give_up,
            begun,
        } = wishes;
        let (started, deadline, terms) = (plan.began, plan.deadline, &plan.terms);
        let mut in_line = None;
        // Even with no time left, one request is sent, unless a local holder is known.
        let patience = deadline.max(started + FIRST_ASK);
        // A first request that is sent at once was not caused by a wake.
        let mut waited = false;
        let (mut asking, mut ticket) = match begun {
            Some(begun) => {
                let Begun { debt, ticket } = *begun;
                (Asking::of(debt, plan), ticket)
            }
            None => {
                let asking = Asking::new(core.base(), sync, plan);
                let stay = asking.stay();
                let ticket = LockEntries::join(core, asking.applicant(), stay, terms);
                (asking, ticket)
            }
        };
        let (mut looked, mut retries) = (false, Retries::default());
        loop {
            asking.handled();
            if ticket.must_wait() {
                // The first request may be far off, so no refusal subscribes this waiter. Messages must reach it before that (P4).
                ticket.entry().want(core);
                waited = true;
                on_queued.take().into_iter().for_each(OnQueued::call);
                // From here on a try of the same owner does not wait behind this call, see `Seat::take_now`.
                in_line = in_line.or_else(|| seat.map(Seat::in_line));
            }
            if waited && !std::mem::replace(&mut looked, true) {
                queued(core, &**sync, ticket.entry(), terms);
            }
            let turn = match next(core, &mut ticket, deadline, give_up.as_deref_mut()).await {
                Next::Turn(turn) => turn,
                Next::TimedOut => {
                    let outage = ticket.outage();
                    let free_by = Box::pin(leave(core, &asking, ticket, deadline)).await;
                    return Err(plan.ended(core, sync, free_by, outage));
                }
                Next::Closing => return Err(asking.shut_down()),
                // P3: handled like a time-out. A hold that is granted before the ticket is dropped is released with the ticket.
                Next::Deadlock(cycle) => {
                    let now = core.clock.now();
                    let free_by = Box::pin(leave(core, &asking, ticket, now)).await;
                    return Err(AcquireError::Deadlock {
                        name: sync.name().clone(),
                        waited: core.clock.now().since(started),
                        free_by,
                        cycle,
                    });
                }
            };
            match turn {
                Turn::Take(hold) if hold.is_held() => {
                    core.tell(|sink| sink.woken(sync.kind().name(), true));
                    asking.given(&hold);
                    return Ok(hold);
                }
                // The hold expired before this task ran, and the waiter's place in the queue was removed with it. Dropping the hold and the
                // old `Asking` cleans up on the server; a fresh owner joins again.
                Turn::Take(_) | Turn::Missed => {
                    asking = asking.anew();
                    ticket = LockEntries::join(core, asking.applicant(), asking.stay(), terms);
                    continue;
                }
                Turn::OutOfReach(outage) => return Err(asking.failed(outage)),
                Turn::Seen => return Ok(asking.seen(ticket.entry())),
                Turn::Try(reason) => asking.step_up(&ticket, reason),
            }
            let Some(attempt) = asking.attempt(ticket.entry(), patience).await else {
                // P8: the request is under way, and may be granted before its sweep.
                return Err(plan.ended(core, sync, asking.debt.under_way(), ticket.outage()));
            };
            if !matches!(attempt, Attempt::NotNow(_) | Attempt::Unanswered(_)) {
                retries = Retries::default();
            }
            match attempt {
                Attempt::Granted(hold) => {
                    ticket.acquired(&hold, waited);
                    if waited && !asking.follows_subscription() {
                        core.tell(|sink| sink.woken(sync.kind().name(), true));
                    }
                    return asking.unless_closing(hold);
                }
                Attempt::Busy(ttl, hint) => match &*hint {
                    // P8: this refusal is final. Only earlier unanswered requests may have left something.
                    Hint::TooLate => {
                        return Err(plan.timed_out(core, sync, asking.debt.leftover()));
                    }
                    Hint::Elsewhere { name, channel, .. }
                        if !ticket.entry().is_for(&**sync, name) =>
                    {
                        // A new place begins with a try, so no message is missed in between.
                        ticket = LockEntries::join_at(
                            core,
                            name,
                            channel,
                            asking.applicant(),
                            asking.stay(),
                            terms,
                        );
                        if hint.placed().is_some() && !ticket.brings(&asking.debt) {
                            asking.stood();
                        }
                    }
                    _ => {
                        if std::mem::replace(&mut waited, true) && !asking.follows_subscription() {
                            core.tell(|sink| sink.woken(sync.kind().name(), false));
                        }
                        if deadline > started {
                            on_queued.take().into_iter().for_each(OnQueued::call);
                        }
                        if ticket.busy(ttl, &hint, &asking.debt) {
                            asking.stood();
                        }
                    }
                },
                Attempt::Rejected(rejection) => return Err(asking.rejected(rejection)),
                // The script decided nothing, and the server's clock has been read since.
                Attempt::Late => ticket.again(),
                // R1: the owner is a fresh one, so it needs a fresh place.
                Attempt::Stale => {
                    ticket = LockEntries::join(core, asking.applicant(), asking.stay(), terms);
                }
                Attempt::NotNow(outage) | Attempt::Unanswered(outage) => {
                    let now = core.clock.now();
                    if ticket.unanswered(&outage) {
                        return Err(asking.failed(outage));
                    }
                    if now >= deadline {
                        // Not `TimedOut`: no holder is known, because the server could not be reached.
                        return Err(asking.failed(outage));
                    }
                    // Boxed, like all rare futures here: ten thousand waiters carry this future.
                    let until = deadline.min(now + core.config.outage_tolerance);
                    Box::pin(core.recover(until, &mut retries)).await;
                    if core.clock.now() >= deadline {
                        return Err(asking.failed(outage));
                    }
                    ticket.again();
                }
            }
        }
    }
}

/// Leaves the queue while no request is under way. Returns the longest life of a leftover on the server, if there may be one: of an
/// earlier unanswered request, of a place in a queue, or of a place in a line.
///
/// P8: the server may grant to a place until the place is given up, so the confirmation is awaited, for as long as P9 allows.
async fn leave(
    core: &Core,
    asking: &Asking<'_>,
    ticket: Ticket,
    deadline: Moment,
) -> Option<FreeBy> {
    let own = asking.debt.leftover();
    let Some(place) = ticket.quit() else {
        return own;
    };
    let stands = place.leftover();
    match timeout_at(core, deadline + LAST_WORDS, place.give_up()).await {
        Some(true) => own,
        _ => own.max(stands),
    }
}

/// The next step of a wait: a turn in the queue, or the end of the wait.
enum Next {
    Turn(LocalTurn),
    TimedOut,
    Closing,
    Deadlock(Vec<DeadlockEdge>),
}

async fn next(
    core: &Core,
    ticket: &mut Ticket,
    deadline: Moment,
    give_up: Option<&mut GiveUp>,
) -> Next {
    match give_up {
        None => next_turn(core, ticket, deadline).await,
        // Boxed, like all rare futures here.
        Some(give_up) => Box::pin(next_turn_or_deadlock(core, ticket, deadline, give_up)).await,
    }
}

async fn next_turn_or_deadlock(
    core: &Core,
    ticket: &mut Ticket,
    deadline: Moment,
    give_up: &mut GiveUp,
) -> Next {
    tokio::select! {
        biased;
        next = next_turn(core, ticket, deadline) => next,
        cycle = give_up => Next::Deadlock(cycle),
    }
}

async fn next_turn(core: &Core, ticket: &mut Ticket, deadline: Moment) -> Next {
    let turn = pin!(async {
        tokio::select! {
            biased;
            // The shutdown first: during an outage a turn is always ready.
            () = core.closing.cancelled() => Next::Closing,
            turn = ticket.turn() => Next::Turn(turn),
        }
    });
    timeout_at(core, deadline, turn)
        .await
        .unwrap_or(Next::TimedOut)
}

/// Informs the extensions that the call waits.
///
/// A hold that its caller has not taken yet does not count as a hold of the waiting actor. On another thread the waiter's own grant may arrive
/// just before this call, and a hand-off gives that hold a new owner.
fn queued(core: &Core, sync: &dyn Synchronizer, entry: &LockEntry, terms: &HoldTerms) {
    let call = Queued {
        sync,
        name: entry.name().as_bytes(),
        holds_itself: terms.actor.is_some_and(|actor| entry.is_held_by(actor)),
    };
    for extension in core.extensions.iter() {
        extension.queued(&call);
    }
}
