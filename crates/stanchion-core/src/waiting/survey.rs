//! The waiters of all queues, for surveys.

use std::sync::Arc;

use super::entries::LockEntries;
use super::shared::Host as _;
use crate::actor::ActorId;
use crate::description::Synchronizer;
use crate::name::Name;
use crate::terms::OnDeadlock;
use crate::wire_owner::WireOwner;
use stanchion_transport::Moment;

/// A waiter.
#[derive(Debug)]
#[non_exhaustive]
pub struct Waiting {
    /// The synchronizer that it waits for.
    pub sync: Arc<dyn Synchronizer>,
    /// The owner for which it requests the hold.
    pub owner: WireOwner,
    /// The actor that waits.
    pub actor: Option<ActorId>,
    /// The effect of a deadlock.
    pub on_deadlock: OnDeadlock,
    /// The start of the call.
    pub began: Moment,
    /// The moment at which it gives up.
    pub deadline: Moment,
}

impl LockEntries {
    /// Calls `see` for the waiters of each queue: at most `most` of a queue, those that joined it first. `see` gets the name and the
    /// number of further waiters. No mutex is held during the call.
    pub(crate) fn survey(&self, most: usize, mut see: impl FnMut(&Name, Vec<Waiting>, usize)) {
        // The shards are unlocked before the first queue is locked, so a survey does not delay look-ups.
        let entries: Vec<_> = self
            .table
            .entries
            .iter()
            .map(|it| Arc::clone(&it))
            .collect();
        for entry in entries {
            let state = entry.state();
            if state.queue.is_empty() {
                continue;
            }
            let waiters = state.queue.waiters().take(most).map(|waiter| Waiting {
                sync: Arc::clone(&waiter.want),
                owner: waiter.owner.clone(),
                actor: waiter.terms.actor,
                on_deadlock: waiter.terms.on_deadlock,
                began: waiter.stay.began,
                deadline: waiter.stay.deadline,
            });
            let (waiters, all) = (waiters.collect(), state.queue.waiters().len());
            drop(state);
            see(entry.name(), waiters, all.saturating_sub(most));
        }
    }
}
