//! Facts: final events that a message, or the reply to one waiter, reports to all waiters of a queue.
//!
//! A waiter for a fact joins the queue *before* the event can occur ([`Ticket::stand_by`]), and is parked. Therefore it misses no message
//! while the subscription lasts, and needs no request. If the subscription is not confirmed yet, or is lost, the first waiter sends a
//! request, and all waiters get its reply.

use std::sync::MutexGuard;
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::{Queue, Turn, Wakers};
use super::ticket::{Ticket, after_expiry};
use crate::description::{Synchronizer, rest_of};
use crate::fact::Told;
use crate::line::Reason;
use stanchion_transport::Reply;

impl LockEntry {
    /// Passes the fact in the reply to one waiter on to all waiters.
    pub(crate) fn answered(&self, sync: &dyn Synchronizer, reply: &Reply) {
        if let (Some(_), Some(Reply::Bulk(fact))) = (sync.facts(), rest_of(reply).first()) {
            self.tell(self.queue(), fact);
        }
    }

    /// Passes a fact to all waiters, and unlocks the queue.
    pub(super) fn tell(&self, mut queue: MutexGuard<'_, Queue>, fact: &[u8]) {
        let mut wakers = Wakers::default();
        let mut told = Vec::new();
        for (&place, waiter) in &queue.waiters {
            let what = waiter.sync.facts().map(|facts| facts.told(fact));
            match (what, &waiter.turn) {
                // Also during its request: the waiter takes this turn after the reply.
                (Some(Told::Over), None | Some(Turn::Try(_))) => told.push((place, Turn::Seen)),
                (Some(Told::Ask), None) => told.push((place, Turn::Try(Reason::Turn))),
                _ => {}
            }
        }
        // A client that polls lengthens its pauses until an event occurs. Every reply is a fact, but most report no event.
        if !told.is_empty() {
            queue.refused = 0;
        }
        for (place, turn) in told {
            queue.tell(place, turn, &mut wakers);
        }
        // A fact counts as a reply.
        queue.outage_since = None;
        drop(queue);
        wakers.call();
    }
}

impl Ticket {
    /// Subscribes, and plans a poll in case a message is lost (P4).
    pub(crate) fn stand_by(&self) {
        let subscribed = self.core.subscriptions.want(&self.entry);
        let mut queue = self.entry.queue();
        let pause = self.pause(&queue, None, subscribed);
        self.entry
            .poll_by(&mut queue, self.core.clock.now() + pause, Reason::Turn);
    }

    /// Plans a poll after `pause`, unless one is planned sooner.
    pub(crate) fn ask_within(&self, pause: Duration) {
        let at = self.core.clock.now() + after_expiry(&self.core, pause);
        self.entry
            .poll_by(&mut self.entry.queue(), at, Reason::Turn);
    }

    /// Lets the waiter send a request.
    pub(crate) fn look(&self) {
        let Some(place) = self.place else { return };
        let wakers = self.entry.queue().nudge(place);
        wakers.call();
    }
}
