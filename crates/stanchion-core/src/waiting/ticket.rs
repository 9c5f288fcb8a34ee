//! One waiter's place in a local queue, as its task has it.
//!
//! [`LockEntries::join`](super::LockEntries::join) creates a [`Ticket`]. The task awaits [`Ticket::news`]: that it has to wait, and the end of the wait. The
//! requests are those of the queue. Only the first one, if it was sent at once, is polled by the task itself, as long as no other waiter
//! depends on it.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::{Context, News, Outcome, after_expiry};
use super::shared::Host as _;
use super::shell::{LocalQueue, Shell};
use crate::hold::debt::Debt;
use crate::line::Reason;
use crate::shared::Core;
use stanchion_transport::{Outage, Persistent};

/// A place in a queue. Dropping it leaves the queue; a hold that it was given and did not take is released.
///
/// Keeps the core and the entry alive while its waiter is in the queue. The queue owns the requests and their leftovers on the server.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) entry: Arc<LockEntry>,
    /// Its place in the queue; `None` once the wait has ended.
    pub(super) place: Option<u64>,
    /// Its first request, until it was polled once. From then on the queue has it.
    pub(super) first: Option<Persistent<()>>,
    /// True while the task polls its first request.
    pub(super) sends: bool,
}

/// The possible leftovers of a waiter that gives up.
#[derive(Debug)]
pub(crate) struct Quit {
    /// Its own requests.
    pub(crate) own: Option<Arc<Debt>>,
    /// The entry of this process, if no waiter is left that can take a grant to it.
    pub(crate) entry: Option<Arc<Debt>>,
}

impl Ticket {
    pub(crate) fn entry(&self) -> &Arc<LockEntry> {
        &self.entry
    }

    fn event<R>(&self, event: impl FnOnce(&mut LocalQueue, &dyn Context<Shell>) -> R) -> R {
        self.entry.event(&self.core, event)
    }

    /// Waits for the next news. Cancel safe: the news stays in the queue until it is taken.
    pub(crate) async fn news(&mut self) -> News<Shell> {
        poll_fn(|cx| {
            let Some(place) = self.place else {
                return Poll::Pending;
            };
            let mut work = self.first.take();
            if work.is_none() && self.sends {
                work = self.entry.take_flight(place);
            }
            if let Some(request) = &mut work
                && Pin::new(request).poll(cx).is_ready()
            {
                work = None;
            }
            self.sends = work.is_some();
            // Before the mutex is locked (invariant 4).
            let waker = cx.waker().clone();
            let news = self.core.entries.table.event(&self.entry, |state| {
                state.more.flights.extend(work.map(|work| (place, work)));
                state.queue.poll(&self.core, place, waker)
            });
            if let Poll::Ready(News::Over(outcome)) = &news {
                self.place = None;
                // Invariant 5: from here on it is renewed as any other.
                if let Outcome::Granted(hold) = outcome {
                    hold.taken();
                }
            }
            news
        })
        .await
    }

    /// Lets the queue keep the entry that this waiter has brought from another queue, if it does not use it at once.
    pub(super) fn brings(&self) {
        let Some(place) = self.place else { return };
        self.event(|queue, cx| queue.bring(cx, place));
    }

    /// Begins to wait for a fact. With `look`, or if one is due, the queue sends a request.
    pub(crate) fn attend(&self, look: bool) {
        let Some(place) = self.place else { return };
        self.event(|queue, cx| queue.attend(cx, place, look));
    }

    /// Returns the failure of the last request of this queue, if no reply has arrived since.
    pub(crate) fn outage(&self) -> Option<Outage> {
        self.entry.state().queue.outage().cloned()
    }

    /// Returns the state of the name that a wait cannot end, if the last refusal of this queue reported one.
    pub(crate) fn remark(&self) -> Option<&'static str> {
        self.entry.state().more.remark
    }

    /// Subscribes, and plans a poll in case a message is lost (P4), for a wait for a fact that begins later.
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

    /// Leaves the queue.
    pub(crate) fn quit(mut self) -> Quit {
        let (own, entry) = self.depart();
        Quit { own, entry }
    }

    fn depart(&mut self) -> (Option<Arc<Debt>>, Option<Arc<Debt>>) {
        match self.place.take() {
            Some(place) => self.event(|queue, cx| queue.leave(cx, place)),
            None => (None, None),
        }
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // After the queue is unlocked: the drop of the debts cleans up (P3).
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
