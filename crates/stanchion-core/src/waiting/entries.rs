//! All local queues of a client: waiters join, visitors come, and a shutdown takes what is left.

use std::sync::Arc;

use dashmap::mapref::multiple::RefMulti;

use super::lock_entry::LockEntry;
use super::queue::{Context as _, Stay};
use super::sending;
use super::shared::{Host as _, State, Table};
use super::shell::LocalWaiter;
use super::ticket::{Ticket, Visit};
use crate::description::{Subject, Synchronizer};
use crate::hold::debt::Debt;
use crate::hold::handle::Hold;
use crate::name::Name;
use crate::receiver::Part;
use crate::shared::Core;
use crate::terms::HoldTerms;

/// The number of idle queues that a client keeps: one that is made and forgotten in every cycle costs three allocations and two changes of
/// the table. Some 2.6 KB each.
const WARM: usize = 256;

/// All queues of a client.
#[derive(Debug)]
pub(crate) struct LockEntries {
    pub(super) table: Table<LockEntry>,
}

impl Default for LockEntries {
    fn default() -> Self {
        Self {
            table: Table::new(WARM),
        }
    }
}

impl LockEntries {
    /// Takes a place in the queue of the name of `sync`, as a new owner.
    pub(crate) fn join(
        core: &Arc<Core>,
        sync: &Arc<dyn Synchronizer>,
        stay: Stay,
        terms: &HoldTerms,
    ) -> Ticket {
        let debt = core.owe(sync, terms);
        Self::join_at(core, sync.name(), &sync.about().channel, debt, stay, terms)
    }

    /// Takes a place in the queue of `name`, as the owner of `debt`.
    pub(super) fn join_at(
        core: &Arc<Core>,
        name: &Name,
        channel: &[u8],
        debt: Arc<Debt>,
        stay: Stay,
        terms: &HoldTerms,
    ) -> Ticket {
        let subject = Subject::queue_of(&*debt.sync, name);
        let new = || LockEntry::new(&subject, channel, core);
        let joins = |state: &mut State<_>| state.queue.join(core, debt, *terms, stay);
        let (entry, (place, ask)) = core.entries.table.enter(&subject, new, joins);
        let first = ask.map(|ask| sending::begin(core, Arc::clone(&entry), ask));
        if first.is_none() {
            // No refusal will subscribe this waiter soon. Messages must reach it before that (P4).
            entry.want(core);
        }
        Ticket {
            core: Arc::clone(core),
            sends: first.is_some(),
            entry,
            place: Some(place),
            first,
        }
    }

    /// Keeps the entry in the table without a place in its queue: for an attempt that does not wait.
    pub(crate) fn visit(core: &Arc<Core>, sync: &dyn Synchronizer) -> Visit {
        let subject = Subject::queue_of(sync, sync.name());
        let new = || LockEntry::new(&subject, &sync.about().channel, core);
        let comes = |state: &mut State<_>| state.uses.visitors += 1;
        let (entry, ()) = core.entries.table.enter(&subject, new, comes);
        Visit {
            core: Arc::clone(core),
            entry,
        }
    }

    /// Returns the debts of the waiters that have a place in a queue on the server. Locks each queue under its shard.
    pub(crate) fn queued(&self) -> Vec<Arc<Debt>> {
        let mut queued = Vec::new();
        for entry in &self.table.entries {
            let state = entry.state();
            let debts = state.queue.waiters().filter_map(LocalWaiter::debt);
            queued.extend(debts.filter(|it| it.claim().is_queued()).cloned());
        }
        queued
    }

    /// The queue for the name of `sync`, if there is one.
    fn of(&self, sync: &dyn Synchronizer) -> Option<Arc<LockEntry>> {
        let entry = self
            .table
            .entries
            .get(&Subject::queue_of(sync, sync.name()));
        // Outside the shard: wakers may run foreign code.
        entry.map(|entry| Arc::clone(&entry))
    }

    /// Handles a grant in a reply like one by message. If no waiter is left, the sweep of its debt gives the grant back (P3).
    pub(crate) fn granted(&self, sync: &dyn Synchronizer, grant: &[u8]) {
        if let Some(entry) = self.of(sync) {
            entry.woken(&Part::Queue, grant);
        }
    }

    /// Takes the entries in the queues on the server. The caller drops them after the queues are unlocked, which gives them up.
    pub(crate) fn standing(&self) -> Vec<Arc<Debt>> {
        let taken = |entry: RefMulti<'_, Subject, Arc<LockEntry>>| entry.state().queue.take_entry();
        self.table.entries.iter().filter_map(taken).collect()
    }

    /// Takes the holds that were handed or granted to waiters which have not been polled since. The caller drops them after
    /// the queues are unlocked (invariant 4).
    pub(crate) fn untaken(&self) -> Vec<Hold> {
        let taken =
            |entry: RefMulti<'_, Subject, Arc<LockEntry>>| entry.state().queue.take_untaken();
        self.table.entries.iter().flat_map(taken).collect()
    }
}
