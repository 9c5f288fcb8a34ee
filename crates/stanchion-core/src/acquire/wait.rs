//! An acquire that waits: a place in the local queue ([`Ticket`]), and the news about it. The queue sends the requests. The wait ends with their
//! outcome, with a hold that was handed over or granted by message, with the deadline, a deadlock, an outage or a shutdown.

use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use super::plan::Plan;
use super::{FIRST_ASK, timeout_at, unless_closing};
use crate::deadlock::DeadlockEdge;
use crate::description::Synchronizer;
use crate::error::AcquireError;
use crate::extension::{GiveUp, Queued};
use crate::free_by::FreeBy;
use crate::hold::debt::Debt;
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::hold::state::Grant;
use crate::options::OnQueued;
use crate::seat::Seat;
use crate::shared::Core;
use crate::terms::HoldTerms;
use crate::waiting::{Answer, LockEntries, LockEntry, News, Outcome, Quit, Shell, Ticket, failed};
use stanchion_transport::{Moment, Outage};

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
    pub(super) ticket: Option<Box<Ticket>>,
}

/// An acquire that waits.
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
            ticket,
        } = wishes;
        let (started, deadline) = (plan.began, plan.deadline);
        let join = || {
            let ticket = LockEntries::join(core, sync, plan.stay(), &plan.terms);
            if sync.facts().is_some() {
                ticket.attend(false);
            }
            ticket
        };
        let mut ticket = ticket.map_or_else(join, |ticket| *ticket);
        // Even with no time left, one request is sent, unless a local holder is known.
        let mut until = deadline.max(started + FIRST_ASK);
        let (mut in_line, mut known) = (None, false);
        loop {
            let outcome = match next(core, &mut ticket, until, give_up.as_deref_mut()).await {
                Next::News(News::Over(outcome)) => outcome,
                Next::News(News::Waits) => {
                    until = deadline;
                    if deadline > started {
                        on_queued.take().into_iter().for_each(OnQueued::call);
                    }
                    // From here on a try of the same owner does not wait behind this call, see `Seat::take_now`.
                    in_line = in_line.or_else(|| seat.map(Seat::in_line));
                    if !std::mem::replace(&mut known, true) {
                        queued(core, &**sync, ticket.entry(), &plan.terms);
                    }
                    continue;
                }
                Next::TimedOut => {
                    let (outage, remark) = (ticket.outage(), ticket.remark());
                    let free_by = Box::pin(leave(core, ticket, deadline)).await;
                    return Err(plan.ended(core, sync, free_by, outage, remark));
                }
                Next::Closing => {
                    let name = sync.name().clone();
                    return Err(AcquireError::Shutdown { name });
                }
                // P3: handled like a time-out. A hold that is granted before the ticket is dropped is released with the ticket.
                Next::Deadlock(cycle) => {
                    let now = core.clock.now();
                    let free_by = Box::pin(leave(core, ticket, now)).await;
                    return Err(AcquireError::Deadlock {
                        name: sync.name().clone(),
                        waited: core.clock.now().since(started),
                        free_by,
                        cycle,
                    });
                }
            };
            match outcome {
                Outcome::Granted(hold) if hold.is_held() || sync.about().keeps_late_grants => {
                    return unless_closing(core, sync, hold);
                }
                // The hold has expired before this task ran. Its drop cleans up on the server; a new owner joins again.
                Outcome::Granted(_) | Outcome::Missed | Outcome::Answered(Answer::Restart) => {
                    ticket = join();
                }
                Outcome::Answered(Answer::Moved(moved)) => ticket = *moved,
                Outcome::Answered(Answer::Failed(error)) => return Err(error),
                Outcome::OutOfReach(outage, debt) => return Err(out_of_reach(sync, outage, debt)),
                Outcome::Seen => return Ok(seen(core, sync, plan, ticket.entry())),
            }
        }
    }
}

fn out_of_reach(
    sync: &Arc<dyn Synchronizer>,
    outage: Outage,
    debt: Option<Arc<Debt>>,
) -> AcquireError {
    match debt {
        Some(debt) => failed(&debt, outage),
        None => AcquireError::Unavailable {
            name: sync.name().clone(),
            outage,
        },
    }
}

/// Begins a hold without a request: the event that another waiter has seen has happened for this waiter, too.
fn seen(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    plan: &Plan,
    entry: &Arc<LockEntry>,
) -> Hold {
    let grant = Grant {
        token: None,
        terms: plan.terms,
        sent: core.clock.now(),
        first: None,
        given: false,
        due: Moment::ZERO,
        next: None,
    };
    let debt = Debt::new(core.base(), sync, plan.terms.lease);
    Hold::begin(&Arc::new(debt), Arc::clone(entry) as _, grant)
}

/// Leaves the queue. Returns the longest life of a leftover on the server, if there may be one: of an earlier unanswered request, of one in flight, of
/// a place in a queue, or of a place in a line.
///
/// P8: the server may grant to a place until the place is given up, so the confirmation is awaited, for as long as P9 allows.
async fn leave(core: &Core, ticket: Ticket, deadline: Moment) -> Option<FreeBy> {
    let Quit { own, entry } = ticket.quit();
    let own = own.and_then(|own| own.leftover());
    let Some(place) = entry else {
        return own;
    };
    let stands = place.leftover();
    match timeout_at(core, deadline + LAST_WORDS, place.give_up()).await {
        Some(true) => own,
        _ => own.max(stands),
    }
}

/// The next step of a wait.
enum Next {
    News(News<Shell>),
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
        None => next_news(core, ticket, deadline).await,
        // Boxed, like all rare futures here: ten thousand waiters carry this future.
        Some(give_up) => Box::pin(next_news_or_deadlock(core, ticket, deadline, give_up)).await,
    }
}

async fn next_news_or_deadlock(
    core: &Core,
    ticket: &mut Ticket,
    deadline: Moment,
    give_up: &mut GiveUp,
) -> Next {
    tokio::select! {
        biased;
        next = next_news(core, ticket, deadline) => next,
        cycle = give_up => Next::Deadlock(cycle),
    }
}

async fn next_news(core: &Core, ticket: &mut Ticket, deadline: Moment) -> Next {
    let news = pin!(async {
        tokio::select! {
            biased;
            // The shutdown first: it gives a hold back that was granted at the same moment.
            () = core.closing.cancelled() => Next::Closing,
            news = ticket.news() => Next::News(news),
        }
    });
    timeout_at(core, deadline, news)
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
