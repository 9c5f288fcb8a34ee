//! Facts: what a message, or the answer to one waiter, says to all waiters of a queue.
//!
//! A waiter that is told facts joins the queue *before* what it waits for can happen ([`Ticket::stand_by`]), and is parked. So no
//! message is missed while the subscription lasts, and nobody asks after one. When it was not confirmed yet, or is lost, the first
//! waiter asks as anywhere else, and its answer is told to all.

use std::sync::MutexGuard;
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::{Queue, Turn, Wakers};
use super::ticket::{Ticket, after_expiry};
use crate::description::{Synchronizer, rest_of};
use crate::fact::Told;
use stanchion_transport::Reply;

impl LockEntry {
    /// Tells all waiters what the answer to one of them says.
    pub(crate) fn answered(&self, sync: &dyn Synchronizer, reply: &Reply) {
        if let (Some(_), Some(Reply::Bulk(fact))) = (sync.facts(), rest_of(reply).first()) {
            self.tell(self.queue(), fact);
        }
    }

    /// Tells all waiters a fact, and unlocks the queue.
    pub(super) fn tell(&self, mut queue: MutexGuard<'_, Queue>, fact: &[u8]) {
        let mut wakers = Wakers::default();
        let mut told = Vec::new();
        for (&place, waiter) in &queue.waiters {
            let what = waiter.sync.facts().map(|facts| facts.told(fact));
            match (what, &waiter.turn) {
                // Also while it asks: it takes its turn when it is answered.
                (Some(Told::Over), None | Some(Turn::Try)) => told.push((place, Turn::Seen)),
                (Some(Told::Ask), None) => told.push((place, Turn::Try)),
                _ => {}
            }
        }
        // Who polls asks less and less often until something happens; every answer is a fact.
        if !told.is_empty() {
            queue.refused = 0;
        }
        for (place, turn) in told {
            queue.tell(place, turn, &mut wakers);
        }
        // A fact is as good as an answer.
        queue.outage_since = None;
        drop(queue);
        wakers.call();
    }
}

impl Ticket {
    /// Subscribes, and plans the poll behind the messages (P4).
    pub(crate) fn stand_by(&self) {
        let subscribed = self.core.subscriptions.want(&self.entry);
        let mut queue = self.entry.queue();
        let pause = self.pause(&queue, None, subscribed);
        self.entry
            .poll_by(&mut queue, self.core.clock.now() + pause);
    }

    /// Plans a poll after `pause`, unless one is planned sooner.
    pub(crate) fn ask_within(&self, pause: Duration) {
        let at = self.core.clock.now() + after_expiry(&self.core, pause);
        self.entry.poll_by(&mut self.entry.queue(), at);
    }

    /// Lets it ask.
    pub(crate) fn look(&self) {
        let Some(place) = self.place else { return };
        let wakers = self.entry.queue().nudge(place);
        wakers.call();
    }
}
