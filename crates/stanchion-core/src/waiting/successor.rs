//! The hand-off of a hold to a waiter of the same process: who gets it, and what that does to the queues.
//!
//! The hold of one name goes to the first waiter for that name. One of several names goes to the first waiter for the same names, once
//! also past others; it may stand in the queue of any of them, and the hold then belongs to that queue. A permit goes to the first waiter
//! for one that does not ask: until the script is answered that waiter counts as asking, as it would with a request of its own.

use std::sync::{Arc, MutexGuard};

use super::lock_entry::{End, LockEntry};
use super::queue::{Queue, Room, Turn, Waiter};
use crate::description::{ServerLine, Sharing, Subject, Synchronizer};
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::line::Approach;
use crate::options::HoldTerms;
use crate::shared::Core;
use stanchion_transport::Wake;

/// Hand-offs in a row before a process joins the end of the line. If nobody else stands there it goes on in the same script.
const TURN: u32 = 8;

/// The waiters among which one is looked for that wants the same locks.
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
    /// For permits: what the server must know of the others of this process that wait behind it.
    pub(crate) approach: Approach,
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

impl Queue {
    /// The waiter that is handed a hold of `sync`: the first, or `past` it the first that wants the same. A turn other than `Try` has already
    /// ended its wait.
    fn first_for(&self, sync: &dyn Synchronizer, past: bool) -> Option<(u64, &Waiter)> {
        let (place, first) = self.first()?;
        if is_same(sync, &*first.sync) {
            return matches!(first.turn, None | Some(Turn::Try)).then_some((place, first));
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
    /// hold. That waiter does not ask until [`LockEntry::hand_over`] or [`LockEntry::not_handed`].
    pub(crate) fn successor(&self, core: &Core, hold: &HoldState) -> Option<Successor> {
        let sync = &*hold.sync;
        sync.hand_off()?;
        let queue = self.queue();
        if let Sharing::Permits(_) = sync.sharing() {
            return self.first_for_permits(queue, core, sync);
        }
        let (handed, stands) = (queue.handed, queue.standing.is_some());
        drop(queue);
        // `handed` bounds the time for which other processes wait. Without a line, or with a place in it, a release serves the others
        // and, in its turn, this process.
        let joins = !stands && sync.line().is_some_and(ServerLine::is_common);
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
                let entry = core.entries.table.get(&Subject::named(sync, name));
                // Outside the shard, which stays unlocked while synchronizers are called.
                let entry = entry.map(|entry| Arc::clone(&entry))?;
                let is_other = !std::ptr::eq(&*entry, self);
                is_other
                    .then(|| entry.reserve(sync, handed, past))
                    .flatten()
            })
        };
        others(false).or_else(|| {
            // Locks that cross are asked for in vain so often that one hand-off past others is worth more than the order.
            let may_pass = handed == 0;
            may_pass.then(|| self.reserve(sync, handed, true).or_else(|| others(true)))?
        })
    }

    /// Reserves the first waiter for a hold of `sync`, after `handed` hand-offs in a row. `past`: it may stand behind others.
    fn reserve(&self, sync: &dyn Synchronizer, handed: u32, past: bool) -> Option<Successor> {
        let mut queue = self.queue();
        // Invariant 1: a waiter that asks may be granted by the server at any moment, and has one owner for one hold.
        if queue.asking > 0 || queue.handing.is_some() || queue.has_live_holder() {
            return None;
        }
        let (place, waiter) = queue.first_for(sync, past)?;
        let successor = Successor {
            entry: self.this.upgrade()?,
            place,
            sync: Arc::clone(&waiter.sync),
            terms: waiter.terms,
            handed,
            approach: Approach::default(),
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

    /// Reserves the first waiter that can have the permits of `sync`.
    fn first_for_permits(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        core: &Core,
        sync: &dyn Synchronizer,
    ) -> Option<Successor> {
        if queue.retired {
            drop(queue);
            // A permit does not keep its queue, so those who wait may have a new one.
            let current = core.entries.table.get(self.subject())?;
            let current = Arc::clone(&current);
            let queue = current.queue();
            let retired = queue.retired;
            return (!retired).then(|| current.first_for_permits(queue, core, sync))?;
        }
        // Redisson's clients hear of releases alone, and have their chance at these.
        if queue.handed >= TURN {
            return None;
        }
        let (place, waiter) = queue.first_parked()?;
        if !is_same(sync, &*waiter.sync) || waiter.sync.sharing() != sync.sharing() {
            return None;
        }
        let mut successor = Successor {
            entry: self.this.upgrade()?,
            place,
            sync: Arc::clone(&waiter.sync),
            terms: waiter.terms,
            handed: queue.handed,
            approach: Approach::default(),
        };
        queue.handed += 1;
        queue.asks(place);
        let others = queue.parked > 0;
        drop(queue);
        successor.approach = Approach {
            polls: core.config.wake == Wake::Poll,
            hears: self.hears_for_line(core, sync),
            others,
            ..Approach::default()
        };
        Some(successor)
    }

    /// Hands `hold` to the successor, which waits here. If it has left, the hold is dropped, and its release serves the next one.
    pub(crate) fn hand_over(&self, successor: &Successor, hold: Hold) {
        let mut queue = self.queue();
        if hold.sharing() == Sharing::Exclusive {
            // Wakes that came meanwhile were for a lock that is held again.
            queue.again = 0;
            queue.handed = match successor.turn_is_over() {
                true => 0,
                false => successor.handed + 1,
            };
            // Also when the waiter has left: newcomers do not ask until the release of the dropped hold calls `freed`.
            queue.holder = hold.weak();
        }
        let Approach {
            others,
            hears,
            polls,
            ..
        } = successor.approach;
        let mut handed = queue.end_handing(successor.place, Some(hold), !others);
        if others
            && !hears
            && !polls
            && let Some((next, _)) = queue.first_parked()
        {
            // Nobody hears Redisson's releases for this process: a refusal says who does.
            handed.wakers.0.extend(queue.nudge(next).0);
        }
        drop(queue);
        handed.finish();
    }

    /// Ends a hand-off that gave nobody the hold.
    pub(crate) fn not_handed(&self, successor: &Successor) {
        let mut queue = self.queue();
        let mut handed = queue.end_handing(successor.place, None, false);
        handed.wakers.0.extend(queue.admit(Room::Unknown).0);
        drop(queue);
        handed.finish();
    }

    /// Records that `hold` has ended and was not handed over. [`LockEntry::not_handed`] would let the next waiter ask at once,
    /// whoever else is next.
    pub(crate) fn freed_unhanded(
        &self,
        successor: &Successor,
        core: &Core,
        hold: &HoldState,
        end: End,
    ) {
        let mut queue = self.queue();
        let handed = queue.end_handing(successor.place, None, false);
        self.freed_in(queue, core, hold, end);
        handed.finish();
    }
}
