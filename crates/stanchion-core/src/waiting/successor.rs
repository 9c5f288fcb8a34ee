//! The hand-off of a hold to a waiter of the same process: the choice of the waiter, and the effect on the queues.
//!
//! The hold of one name goes to the first waiter for that name. The hold of several names goes to the first waiter for the same names, once
//! also past others. That waiter may be in the queue of any of the names; the hold then belongs to that queue. A permit goes to the first
//! parked waiter. Until the script's reply that waiter counts as requesting, as with a request of its own.

use std::sync::Arc;

use super::lock_entry::{End, LockEntry};
use super::queue::{Queue, Turn, Waiter};
use crate::description::{ServerLine, Sharing, Subject, Synchronizer};
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::line::Reason;
use crate::options::HoldTerms;
use crate::shared::Core;

/// Hand-offs in a row before a process joins the end of the server's queue. If no other process waits, the same script hands off again.
const TURN: u32 = 8;

/// The number of waiters that are searched for one that wants the same locks.
const LOOKED_AT: usize = 16;

/// The waiter a hold is about to be passed to.
#[derive(Clone, Debug)]
pub(crate) struct Successor {
    /// The queue that it waits in: that of the hold, or of another of its names.
    pub(crate) entry: Arc<LockEntry>,
    place: u64,
    /// The synchronizer that it waits for: of the same name, but perhaps with another counter for tokens.
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) terms: HoldTerms,
    /// The hand-offs in a row before this one.
    handed: u32,
}

impl Successor {
    /// Returns whether this process has had its turn. Then the successor joins the server's queue, if there is one.
    pub(crate) const fn turn_is_over(&self) -> bool {
        self.handed >= TURN
    }
}

/// Returns whether the script of `holder` can make the hold that `waiter` waits for.
fn is_same(holder: &dyn Synchronizer, waiter: &dyn Synchronizer) -> bool {
    let several = holder.in_parts() || waiter.in_parts();
    holder.kind() == waiter.kind() && (!several || holder.names() == waiter.names())
}

impl Queue {
    /// The waiter that gets a hold of `sync`: the first, or with `past` a later one that wants the same. A turn other than `Try` has
    /// already ended its wait.
    fn first_for(&self, sync: &dyn Synchronizer, past: bool) -> Option<(u64, &Waiter)> {
        let (place, first) = self.first()?;
        if let Sharing::Permits(_) = sync.sharing() {
            // Other waiters may be requesting.
            let (place, waiter) = self.waiters.iter().find(|(_, it)| it.is_parked())?;
            let same = is_same(sync, &*waiter.sync) && waiter.sync.sharing() == sync.sharing();
            return same.then_some((*place, waiter));
        }
        if is_same(sync, &*first.sync) {
            return matches!(first.turn, None | Some(Turn::Try(_))).then_some((place, first));
        }
        let fits = |it: &Waiter| it.is_parked() && is_same(sync, &*it.sync);
        let mut others = self.waiters.iter().take(LOOKED_AT).skip(1);
        let (place, waiter) =
            (past && first.is_parked()).then(|| others.find(|(_, it)| fits(it)))??;
        Some((*place, waiter))
    }
}

impl LockEntry {
    /// Reserves the waiter to hand `hold` to, if a hand-off is allowed now: the first of this queue, or of that of another name of the
    /// hold. That waiter sends no request until [`LockEntry::hand_over`] or [`LockEntry::not_handed`].
    pub(crate) fn successor(&self, core: &Core, hold: &HoldState) -> Option<Successor> {
        let sync = &*hold.sync;
        sync.hand_off()?;
        let queue = self.queue();
        if queue.uses.retired {
            drop(queue);
            // A permit does not keep its queue, so the waiters may have a new one.
            let current = core
                .entries
                .table
                .get(self.subject())
                .map(|it| Arc::clone(&it));
            return current?.successor(core, hold);
        }
        let (handed, stands) = (queue.handed, queue.stands());
        drop(queue);
        // `handed` bounds the time for which other processes wait. Without a queue on the server, or with an entry in it, a release serves
        // the others and, in its turn, this process.
        let permits = matches!(sync.sharing(), Sharing::Permits(_));
        let joins = !stands && !permits && sync.line().is_some_and(ServerLine::is_common);
        if handed >= TURN && !joins {
            return None;
        }
        let own = self.reserve(sync, handed, false);
        if own.is_some() || !sync.in_parts() {
            return own;
        }
        let names = sync.names();
        let others = |past| {
            names.iter().find_map(|name| {
                let entry = core.entries.table.get(&Subject::queue_of(sync, name));
                // Outside the shard, which stays unlocked while synchronizers are called.
                let entry = entry.map(|entry| Arc::clone(&entry))?;
                let is_other = !std::ptr::eq(&*entry, self);
                is_other
                    .then(|| entry.reserve(sync, handed, past))
                    .flatten()
            })
        };
        others(false).or_else(|| {
            // Requests for overlapping locks are refused so often that one hand-off past others is worth more than the order.
            let may_pass = handed == 0;
            may_pass.then(|| self.reserve(sync, handed, true).or_else(|| others(true)))?
        })
    }

    /// Reserves the first waiter for a hold of `sync`, after `handed` hand-offs in a row. `past`: it may be behind others.
    fn reserve(&self, sync: &dyn Synchronizer, handed: u32, past: bool) -> Option<Successor> {
        let mut queue = self.queue();
        let permits = matches!(sync.sharing(), Sharing::Permits(_));
        // Invariant 1: the server may grant a request in flight at any moment, and its waiter can take one hold only.
        let under_way = queue.asking > 0 || queue.handing.is_some() || queue.has_live_holder();
        if under_way && !permits {
            return None;
        }
        let (place, waiter) = queue.first_for(sync, past)?;
        let successor = Successor {
            entry: self.this.upgrade()?,
            place,
            sync: Arc::clone(&waiter.sync),
            terms: waiter.terms,
            handed,
        };
        if permits {
            queue.handed += 1;
            queue.asks(place);
            return Some(successor);
        }
        // Before the queue is unlocked: until the script's reply no waiter of this queue may send a request (invariant 1).
        queue.handing = Some(place);
        // A `Try` given before is taken back: the hold arrives without a request.
        if let Some(waiter) = queue.waiters.get_mut(&place)
            && waiter.turn.take().is_some()
        {
            queue.count_parked(1);
        }
        Some(successor)
    }

    /// Hands `hold` to the successor, which waits here. If it has left, the hold is dropped, and its release serves the next one.
    pub(crate) fn hand_over(&self, successor: &Successor, hold: Hold) {
        let mut queue = self.queue();
        if hold.sharing() == Sharing::Exclusive {
            // Wake-ups during the hand-off were for a lock that is held again.
            queue.due = None;
            queue.handed = match successor.turn_is_over() {
                true => 0,
                false => successor.handed + 1,
            };
            // Also when the waiter has left: new waiters send no requests until the release of the dropped hold calls `freed`.
            queue.holder = hold.weak();
        }
        let handed = queue.end_handing(successor.place, Some(hold));
        drop(queue);
        handed.finish();
    }

    /// Ends a hand-off without a new holder.
    pub(crate) fn not_handed(&self, successor: &Successor) {
        let mut queue = self.queue();
        let mut handed = queue.end_handing(successor.place, None);
        handed.wakers.0.extend(queue.admit(Reason::Turn).0);
        drop(queue);
        handed.finish();
    }

    /// Records that `hold` has ended and was not handed over. [`LockEntry::not_handed`] would let the next waiter send a request
    /// at once, even if another process is next.
    pub(crate) fn freed_unhanded(
        &self,
        successor: &Successor,
        core: &Core,
        hold: &HoldState,
        end: End,
    ) {
        let mut queue = self.queue();
        let handed = queue.end_handing(successor.place, None);
        self.freed_in(queue, core, hold, end);
        handed.finish();
    }
}
