//! One waiter's place in a local queue.
//!
//! [`LockEntries::join`](super::LockEntries::join) creates a [`Ticket`]. The acquire loop then alternates: it awaits [`Ticket::turn`],
//! sends a request when the turn is [`Turn::Try`](super::queue::Turn::Try), and reports the reply with [`Ticket::busy`], [`Ticket::again`],
//! [`Ticket::unanswered`] or [`Ticket::acquired`]. The place ends with `acquired`, with any turn but `Try`, or with the drop of
//! the ticket, which passes an untaken wake or hold to the next waiter.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::{Context, Refused, Turn, after_expiry};
use super::shared::Host as _;
use super::shell::{LocalQueue, LocalTurn};
use crate::description::{Synchronizer, has_one_entry};
use crate::hint::Hint;
use crate::hold::handle::Hold;
use crate::hold::sweep::Debt;
use crate::line::Reason;
use crate::receiver::Part;
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use stanchion_transport::Outage;

/// The synchronizer and the owner that a place in a queue is taken for.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) owner: WireOwner,
}

/// A place in a queue. Dropping it leaves the queue and passes an untaken turn on.
///
/// Keeps the core and the entry alive while its waiter is in the queue. Owned by one acquire; only the waiter's state in the
/// queue is shared, under the queue's mutex.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) entry: Arc<LockEntry>,
    pub(super) applicant: Applicant,
    /// Its place in the queue; `None` once the waiter was removed.
    pub(super) place: Option<u64>,
}

impl Ticket {
    pub(crate) fn entry(&self) -> &Arc<LockEntry> {
        &self.entry
    }

    fn event<R>(&self, event: impl FnOnce(&mut LocalQueue, &dyn Context) -> R) -> R {
        self.entry.event(&self.core, event)
    }

    /// Waits for this waiter's turn. Cancel safe: the turn stays in the queue until it is taken.
    pub(crate) async fn turn(&mut self) -> LocalTurn {
        poll_fn(|cx| {
            let Some(place) = self.place else {
                return Poll::Pending;
            };
            // Before the mutex is locked (invariant 4).
            let waker = cx.waker().clone();
            let turn = self.event(|queue, cx| queue.take_turn(cx, place, waker));
            if !matches!(turn, Poll::Pending | Poll::Ready(Turn::Try(_))) {
                self.place = None;
            }
            // Invariant 5: from here on it is renewed as any other.
            if let Poll::Ready(Turn::Take(hold)) = &turn {
                hold.claim();
            }
            turn
        })
        .await
    }

    /// Returns whether its turn has not come yet.
    pub(crate) fn must_wait(&self) -> bool {
        let must_wait = |place| self.entry.state().queue.must_wait(place);
        self.place.is_some_and(must_wait)
    }

    /// Takes the entry of this process for a request of this waiter, whose own debt is `own`. Returns the debt of the requesting owner, if
    /// it is not `own`, and whether the request may get an entry.
    pub(crate) fn step_up(&self, own: &Arc<Debt>, reason: Reason) -> (Option<Arc<Debt>>, bool) {
        let Some(place) = self.place else {
            return (None, false);
        };
        self.event(|queue, _| queue.request(place, own, reason))
    }

    /// Brings the entry of `debt`, which a request from another queue got. Returns whether this waiter sends the next request, for that
    /// entry. Otherwise this queue keeps the entry if its first waiter can use it, or the entry is given up.
    pub(crate) fn brings(&self, debt: &Arc<Debt>) -> bool {
        let Some(place) = self.place else {
            return false;
        };
        self.event(|queue, cx| queue.bring(cx, place, Arc::clone(debt)))
    }

    /// Parks the waiter after a refusal. A message or a poll lets it retry: after `ttl`, or the poll interval if that is
    /// shorter.
    ///
    /// Returns whether the queue has taken `debt`, that of the request, as the entry of this process on the server.
    pub(crate) fn busy(&mut self, ttl: Option<Duration>, hint: &Hint, debt: &Arc<Debt>) -> bool {
        let Some(place) = self.place else {
            return false;
        };
        // P4: subscribed before the waiter is parked. A release after the refusal either is a message for this queue, or is found
        // by the try that follows the confirmation. Before the queue is locked, because `want` may lock it.
        let subscribed = self.entry.want(&self.core);
        let Applicant { sync, owner, .. } = &self.applicant;
        // Only Redisson wakes a waiter on its own channel. Without its clients the client's one channel is enough.
        let own = || sync.server_queue()?.channel_of(owner);
        if let Hint::Queue { foreign: true, .. } = hint
            && let Some(own) = own()
        {
            let waiter = self.entry.receiver(Part::Waiter(owner.clone()));
            let subscriptions = &self.core.subscriptions;
            subscriptions.want(&self.entry, &waiter, &own, None);
        }
        let placed = hint.placed();
        let (granted, forgotten) = match hint {
            Hint::Queue {
                granted, forgotten, ..
            } => (granted.clone(), *forgotten),
            _ => (None, false),
        };
        self.entry.play(&self.core, &**sync, hint.role());
        let refused = Refused {
            ttl,
            placed,
            debt: Arc::clone(debt),
            // R8: at maxmemory an entry cannot be renewed, and is still there.
            has_entry: has_one_entry(&**sync) && (placed.is_some() || debt.arrived() > 0),
            granted,
            forgotten,
            subscribed,
        };
        self.event(|queue, cx| queue.refused(cx, place, refused))
    }

    /// Lets the waiter retry after an attempt without a decision.
    pub(crate) fn again(&self) {
        let Some(place) = self.place else { return };
        self.event(|queue, _| queue.undecided(place));
    }

    /// Lets the waiter send a request.
    pub(crate) fn look(&self) {
        let Some(place) = self.place else { return };
        self.event(|queue, _| queue.nudge(place));
    }

    /// Records that the attempt was not answered. Returns whether this waiter must give up; others that have waited for too long
    /// get that turn at the same time.
    pub(crate) fn unanswered(&self, outage: &Outage) -> bool {
        let Some(place) = self.place else {
            return false;
        };
        let tolerance = self.core.config.outage_tolerance;
        // The waiter counts as requesting until `again`: if the first sends the requests for all, only it retries at a silent server.
        self.event(|queue, cx| queue.unanswered(cx, place, tolerance, outage))
    }

    /// Returns the failure of the last request of this queue, if no reply has arrived since.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.entry.state().queue.outage().cloned()
    }

    /// Leaves the queue with `hold`, and wakes the waiters that may hold concurrently. `waited`: the call has waited before.
    pub(crate) fn acquired(&mut self, hold: &Hold, waited: bool) {
        let Some(place) = self.place.take() else {
            return;
        };
        let other = self.event(|queue, cx| queue.acquired(cx, place, hold, hold.next(), waited));
        // A grant by message crossed this reply. If both are of one owner, the release of one would free the other. A second permit is
        // released.
        if let Some(other) = other
            && other.wire_owner() == hold.wire_owner()
        {
            other.disown();
        }
    }

    /// Subscribes, and plans a poll in case a message is lost (P4).
    pub(crate) fn stand_by(&self) {
        let subscribed = self.entry.want(&self.core);
        self.event(|queue, cx| {
            let pause = queue.pause(cx, None, subscribed);
            queue.poll_by(cx.now() + pause, Reason::Turn);
        });
    }

    /// Plans a poll after `pause`, unless one is planned sooner.
    pub(crate) fn ask_within(&self, pause: Duration) {
        self.event(|queue, cx| queue.poll_by(cx.now() + after_expiry(cx, pause), Reason::Turn));
    }

    /// Leaves the queue. Returns the entry of this process on the server, if no waiter is left that can take a grant to it.
    pub(crate) fn quit(mut self) -> Option<Arc<Debt>> {
        self.depart()
    }

    fn depart(&mut self) -> Option<Arc<Debt>> {
        let place = self.place.take()?;
        self.event(|queue, cx| queue.leave(cx, place))
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // After the queue is unlocked: the drop of the debt gives the entry up (P3).
        drop(self.depart());
    }
}

/// An attempt without a place in the queue; see [`LockEntries::visit`](super::LockEntries::visit). Keeps the entry in the table.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(super) core: Arc<Core>,
    pub(super) entry: Arc<LockEntry>,
}

impl Visit {
    pub(crate) fn entry(&self) -> &Arc<LockEntry> {
        &self.entry
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut state = self.entry.state();
        state.uses.visitors -= 1;
        self.entry.carry_out(&self.core, state);
    }
}
