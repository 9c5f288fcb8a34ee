//! Facts: final events that a message, or the reply to one waiter, reports to all waiters of a queue.
//!
//! A waiter for a fact joins the queue *before* the event can occur ([`Ticket::stand_by`](super::Ticket::stand_by)), and is parked. Therefore it
//! misses no message while the subscription lasts, and needs no request. If the subscription is not confirmed yet, or is lost, the first waiter sends a
//! request, and all waiters get its reply.

use std::sync::Arc;

use super::lock_entry::LockEntry;
use super::shared::{Host as _, State};
use super::sync::MutexGuard;
use crate::description::{Synchronizer, rest_of};
use crate::fact::Told;
use crate::shared::Core;
use stanchion_transport::Reply;

impl LockEntry {
    /// Passes the fact in the reply to one waiter on to all waiters.
    pub(super) fn told(&self, sync: &dyn Synchronizer, reply: &Reply) {
        if let (Some(_), Some(Reply::Bulk(fact))) = (sync.facts(), rest_of(reply).first())
            && let Some(core) = self.core.upgrade()
        {
            self.tell(&core, self.state(), fact);
        }
    }

    /// Passes a fact to all waiters, and unlocks the queue.
    pub(super) fn tell(
        &self,
        core: &Arc<Core>,
        mut state: MutexGuard<'_, State<Self>>,
        fact: &[u8],
    ) {
        state
            .queue
            .pass_fact(core, |sync| match sync.facts()?.told(fact) {
                Told::Over => Some(true),
                Told::Ask => Some(false),
                Told::Nothing => None,
            });
        self.carry_out(core, state);
    }
}
