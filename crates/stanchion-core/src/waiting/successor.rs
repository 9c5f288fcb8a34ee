//! The hand-off of a hold to a waiter of the same process: who gets it, and what that does to the queues.
//!
//! The hold of one name goes to the first waiter for that name. One of several names goes to the first waiter for the same names,
//! which may stand in the queue of any of them; the hold then belongs to that queue.

use std::sync::Arc;

use super::lock_entry::LockEntry;
use super::queue::{Room, Turn, Wakers};
use crate::description::{ServerLine, Subject, Synchronizer};
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::options::HoldTerms;
use crate::shared::Core;

/// Hand-offs in a row before a process joins the end of the line. If nobody else stands there it goes on in the same script.
const TURN: u32 = 8;

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
    /// Returns whether this process has had its turn: where the server keeps a line, the successor joins it.
    pub(crate) const fn turn_is_over(&self) -> bool {
        self.handed >= TURN
    }
}

/// Returns whether the script of `holder` makes a hold of what `waiter` waits for.
fn is_same(holder: &dyn Synchronizer, waiter: &dyn Synchronizer) -> bool {
    let several = holder.in_parts() || waiter.in_parts();
    holder.kind() == waiter.kind() && (!several || holder.names() == waiter.names())
}

impl LockEntry {
    /// Reserves the waiter to hand `hold` to, if a hand-off is allowed now: the first of this queue, or of that of another name of the
    /// hold. That waiter does not ask until [`LockEntry::hand_over`] or [`LockEntry::not_handed`].
    pub(crate) fn successor(&self, core: &Core, hold: &HoldState) -> Option<Successor> {
        let sync = &*hold.sync;
        sync.hand_off()?;
        let queue = self.queue();
        let (handed, stands) = (queue.handed, queue.standing.is_some());
        drop(queue);
        // `handed` bounds the time for which other processes wait. Without a line, or with a place in it, a release serves the others
        // and, in its turn, this process.
        let joins = !stands && sync.line().is_some_and(ServerLine::is_common);
        if handed >= TURN && !joins {
            return None;
        }
        let own = self.reserve(sync, handed);
        if own.is_some() || !sync.in_parts() {
            return own;
        }
        sync.names().into_iter().find_map(|name| {
            let entry = core.entries.table.get(&Subject::named(sync, name));
            // Outside the shard, which stays unlocked while synchronizers are called.
            let entry = entry.map(|entry| Arc::clone(&entry))?;
            let is_other = !std::ptr::eq(&*entry, self);
            is_other.then(|| entry.reserve(sync, handed)).flatten()
        })
    }

    /// Reserves the first waiter for a hold of `sync`, after `handed` hand-offs in a row.
    fn reserve(&self, sync: &dyn Synchronizer, handed: u32) -> Option<Successor> {
        let mut queue = self.queue();
        // Invariant 1: a waiter that asks may be granted by the server at any moment, and has one owner for one hold.
        if queue.asking > 0 || queue.handing.is_some() || queue.has_live_holder() {
            return None;
        }
        let (place, waiter) = queue.first()?;
        let is_free = matches!(waiter.turn, None | Some(Turn::Try));
        // Nobody is handed a hold past the first waiter. A turn other than `Try` has already ended the wait.
        if !is_free || !is_same(sync, &*waiter.sync) {
            return None;
        }
        let successor = Successor {
            entry: self.this.upgrade()?,
            place,
            sync: Arc::clone(&waiter.sync),
            terms: waiter.terms,
            handed,
        };
        // Before the queue is unlocked: until the script's answer nobody of this queue may ask (invariant 1).
        queue.handing = Some(place);
        // A `Try` given before is taken back: the hold arrives without asking.
        if let Some(waiter) = queue.waiters.get_mut(&place)
            && waiter.turn.take().is_some()
        {
            queue.parked += 1;
        }
        Some(successor)
    }

    /// Hands `hold` to the successor, which waits here. If it has left, the hold is dropped, and its release serves the next one.
    pub(crate) fn hand_over(&self, successor: &Successor, hold: Hold) {
        let mut queue = self.queue();
        queue.handing = None;
        // Wakes that came meanwhile were for a lock that is held again.
        queue.again = 0;
        queue.handed = match successor.turn_is_over() {
            true => 0,
            false => successor.handed + 1,
        };
        // Also when the waiter has left: newcomers do not ask until the release of the dropped hold calls `freed`.
        queue.holder = hold.weak();
        if !queue.waiters.contains_key(&successor.place) {
            drop(queue);
            return drop(hold);
        }
        let mut wakers = Wakers::default();
        queue.tell(successor.place, Turn::Take(hold.unclaimed()), &mut wakers);
        drop(queue);
        wakers.call();
    }

    /// Ends a hand-off that gave nobody the hold.
    pub(crate) fn not_handed(&self) {
        let mut queue = self.queue();
        queue.handing = None;
        let wakers = queue.admit(Room::Unknown);
        drop(queue);
        wakers.call();
    }
}
