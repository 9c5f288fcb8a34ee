//! All local queues of a client, and their life.
//!
//! The first waiter or visitor of a subject creates its [`LockEntry`]; when the last one has left and no holder of this process is alive,
//! it is marked `retired` and removed from the table. A caller that looked it up in between sees the mark and looks it up again.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};

use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;

use super::lock_entry::LockEntry;
use super::queue::{Asked, Stay};
use super::shell::LocalWaiter;
use super::subscriptions::Ear;
use super::ticket::{Applicant, Ticket, Visit};
use crate::description::{Subject, Synchronizer};
use crate::hold::handle::Hold;
use crate::hold::sweep::{Debt, Leftover};
use crate::name::Name;
use crate::options::HoldTerms;
use crate::shared::Core;
use stanchion_transport::Moment;

/// The number of idle queues that a client keeps: one that is made and forgotten in every cycle costs three allocations and two changes of
/// the table. Some 2.6 KB each.
const WARM: usize = 256;

/// All queues of a client.
#[derive(Debug, Default)]
pub(crate) struct LockEntries {
    pub(super) table: DashMap<Subject, Arc<LockEntry>>,
    /// Queues that have been idle since they came in here, or were at some time, in that order.
    warm: Mutex<VecDeque<Arc<LockEntry>>>,
}

impl LockEntries {
    fn get(&self, core: &Arc<Core>, subject: &Subject, channel: &[u8]) -> Arc<LockEntry> {
        // A shared look first: `entry` locks the shard for writing, and most callers find the queue there.
        if let Some(entry) = self.table.get(subject) {
            return Arc::clone(&entry);
        }
        Arc::clone(
            &self
                .table
                .entry(subject.clone())
                .or_insert_with(|| LockEntry::new(subject, channel, core)),
        )
    }

    /// Takes a place in the queue of the applicant's own name.
    pub(crate) fn join(
        core: &Arc<Core>,
        applicant: Applicant,
        stay: Stay,
        terms: &HoldTerms,
    ) -> Ticket {
        let sync = Arc::clone(&applicant.sync);
        Self::join_at(core, sync.name(), sync.channel(), applicant, stay, terms)
    }

    /// Takes a place in the queue of `name`.
    pub(crate) fn join_at(
        core: &Arc<Core>,
        name: &Name,
        channel: &[u8],
        applicant: Applicant,
        stay: Stay,
        terms: &HoldTerms,
    ) -> Ticket {
        let subject = Subject::queue_of(&*applicant.sync, name);
        loop {
            let entry = core.entries.get(core, &subject, channel);
            if let Some(place) = entry.join(core, &applicant, stay, terms) {
                return Ticket {
                    core: Arc::clone(core),
                    entry,
                    applicant,
                    place: Some(place),
                };
            }
            // The entry was retired between the look-up and the join. The next look-up creates a new one.
        }
    }

    /// Keeps an idle entry for a while, and removes the one that has been kept for longest from the table.
    pub(super) fn keep_warm(&self, entry: Arc<LockEntry>) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        warm.push_back(entry);
        let oldest = (warm.len() > WARM).then(|| warm.pop_front()).flatten();
        drop(warm);
        let Some(oldest) = oldest else { return };
        let mut state = oldest.state();
        state.uses.warm = false;
        // Before the mutex is unlocked: a caller that has already looked this entry up must see it.
        state.uses.retired = state.is_idle();
        let retired = state.uses.retired;
        // The table's shard is locked after the queue is unlocked: elsewhere a queue is locked under its shard.
        drop(state);
        if retired {
            // By identity: an entry that was retired before may have a successor.
            self.table
                .remove_if(&oldest.subject, |_, entry| Arc::ptr_eq(entry, &oldest));
        }
    }

    /// Keeps the entry in the table without a place in its queue: for an attempt that does not wait.
    pub(crate) fn visit(core: &Arc<Core>, sync: &dyn Synchronizer) -> Visit {
        let subject = Subject::queue_of(sync, sync.name());
        loop {
            let entry = core.entries.get(core, &subject, sync.channel());
            let mut state = entry.state();
            // Decided under the mutex that `keep_warm` marks it under. An entry that is leaving the table must not gain a
            // user: the next look-up creates a new one.
            if !state.uses.retired {
                state.uses.visitors += 1;
                drop(state);
                return Visit {
                    core: Arc::clone(core),
                    entry,
                };
            }
        }
    }

    /// Returns the leftovers on the server of waiters that have sent requests. Locks each queue under its shard.
    pub(crate) fn places(&self) -> Vec<(Arc<dyn Synchronizer>, Leftover)> {
        let mut places = Vec::new();
        for entry in &self.table {
            let state = entry.state();
            // Only a request has leftovers, and only if a refusal leaves a sign.
            let asked =
                |waiter: &&LocalWaiter| waiter.asked != Asked::Never && waiter.want.leaves_sign();
            places.extend(state.queue.waiters().filter(asked).map(|waiter| {
                let leftover = Leftover {
                    owner: waiter.owner.clone(),
                    lease: waiter.terms.asked_for(waiter.terms.lease),
                    // A request under way has a debt of its own, which is swept after it.
                    unanswered_until: Moment::ZERO,
                    queued: true,
                };
                (Arc::clone(&waiter.want), leftover)
            }));
        }
        places
    }

    /// The queue for the name of `sync`, if there is one.
    fn of(&self, sync: &dyn Synchronizer) -> Option<Arc<LockEntry>> {
        let entry = self.table.get(&Subject::queue_of(sync, sync.name()));
        // Outside the shard: wakers may run foreign code.
        entry.map(|entry| Arc::clone(&entry))
    }

    /// Handles a grant in a reply like one by message. If no waiter is left, the sweep of its debt gives the grant back (P3).
    pub(crate) fn granted(&self, sync: &dyn Synchronizer, grant: &[u8]) {
        if let Some(entry) = self.of(sync) {
            entry.woken(&Ear::Queue, grant);
        }
    }

    /// Takes the entries in the queues on the server. The caller drops them after the queues are unlocked, which gives them up.
    pub(crate) fn standing(&self) -> Vec<Arc<Debt>> {
        let taken = |entry: RefMulti<'_, Subject, Arc<LockEntry>>| entry.state().queue.take_entry();
        self.table.iter().filter_map(taken).collect()
    }

    /// Takes the holds that were handed or granted to waiters which have not been polled since. The caller drops them after
    /// the queues are unlocked (invariant 4).
    pub(crate) fn unclaimed(&self) -> Vec<Hold> {
        let taken =
            |entry: RefMulti<'_, Subject, Arc<LockEntry>>| entry.state().queue.take_unclaimed();
        self.table.iter().flat_map(taken).collect()
    }

    pub(crate) fn waiters(&self) -> usize {
        self.table
            .iter()
            .map(|entry| entry.state().queue.waiters().len())
            .sum()
    }
}
