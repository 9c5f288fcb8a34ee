//! The hand-off of a hold to a waiter of the same process: the choice of the waiter, and the effect on the queues.
//!
//! The hold of several names may go to a waiter in the queue of any of the names; the hold then belongs to that queue. The queue chooses
//! among its waiters: see `queue/holders.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::End;
use super::shared::Host as _;
use crate::description::{ServerLine, Sharing, Subject, Synchronizer};
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::hold::sweep::Debt;
use crate::line::{Placed, Reason};
use crate::options::HoldTerms;
use crate::shared::Core;

/// Hand-offs in a row before a process joins the end of the server's queue. If no other process waits, the same script hands off again.
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
    /// Returns whether this process has had its turn. Then the successor joins the server's queue, if there is one.
    pub(crate) const fn turn_is_over(&self) -> bool {
        self.handed >= TURN
    }
}

impl LockEntry {
    /// Reserves the waiter to hand `hold` to, if a hand-off is allowed now: the first of this queue, or of that of another name of the
    /// hold. That waiter sends no request until [`LockEntry::hand_over`] or [`LockEntry::not_handed`].
    pub(crate) fn successor(&self, core: &Core, hold: &HoldState) -> Option<Successor> {
        let sync = &hold.sync;
        sync.hand_off()?;
        let table = &core.entries.table;
        let (this, (handed, stands)) =
            table.present(self, |entry, state| (entry.this(), state.queue.hand_offs()))?;
        let this = this?;
        // `handed` bounds the time for which other processes wait. Without a queue on the server, or with an entry in it, a release serves
        // the others and, in its turn, this process.
        let permits = matches!(sync.sharing(), Sharing::Permits(_));
        let joins = !stands && !permits && sync.line().is_some_and(ServerLine::is_common);
        if handed >= TURN && !joins {
            return None;
        }
        let own = this.reserve(core, sync, handed, false);
        if own.is_some() || !sync.in_parts() {
            return own;
        }
        let names = sync.names();
        let others = |past| {
            names.iter().find_map(|name| {
                let entry = core
                    .entries
                    .table
                    .entries
                    .get(&Subject::queue_of(&**sync, name));
                // Outside the shard, which stays unlocked while synchronizers are called.
                let entry = entry.map(|entry| Arc::clone(&entry))?;
                let is_other = !Arc::ptr_eq(&entry, &this);
                is_other
                    .then(|| entry.reserve(core, sync, handed, past))
                    .flatten()
            })
        };
        others(false).or_else(|| {
            // Requests for overlapping locks are refused so often that one hand-off past others is worth more than the order.
            let may_pass = handed == 0;
            may_pass.then(|| {
                this.reserve(core, sync, handed, true)
                    .or_else(|| others(true))
            })?
        })
    }

    /// Reserves the first waiter for a hold of `sync`, after `handed` hand-offs in a row. `past`: it may be behind others.
    fn reserve(
        &self,
        core: &Core,
        sync: &Arc<dyn Synchronizer>,
        handed: u32,
        past: bool,
    ) -> Option<Successor> {
        let entry = self.this.upgrade()?;
        let mut state = self.state();
        let place = state.queue.reserve(core, sync, past)?;
        let waiter = state.queue.waiter(place)?;
        let (sync, terms) = (Arc::clone(&waiter.want), waiter.terms);
        drop(state);
        Some(Successor {
            entry,
            place,
            sync,
            terms,
            handed,
        })
    }

    /// Hands `hold` to the successor, which waits here. If it has left, the hold is dropped, and its release serves the next one.
    pub(crate) fn hand_over(&self, core: &Core, successor: &Successor, hold: Hold) {
        let handed = match successor.turn_is_over() {
            true => 0,
            false => successor.handed + 1,
        };
        let place = successor.place;
        self.event(core, |queue, cx| {
            queue.hand_over(cx, place, hold.unclaimed(), handed);
        });
    }

    /// Ends a hand-off without a new holder.
    pub(crate) fn not_handed(&self, core: &Core, successor: &Successor) {
        self.event(core, |queue, cx| {
            queue.end_hand_off(cx, successor.place, None);
            queue.admit(Reason::Turn);
        });
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
        self.event(core, |queue, cx| {
            queue.end_hand_off(cx, successor.place, None);
            queue.freed(cx, hold, end);
        });
    }

    /// Ends a hand-off of `hold` in which another process was ahead: the successor's `debt` becomes the entry of this process.
    pub(crate) fn passed_on(
        &self,
        hold: &HoldState,
        debt: &Arc<Debt>,
        ttl: Option<Duration>,
        placed: Placed,
    ) {
        self.event(&hold.core, |queue, cx| {
            queue.passed_on(cx, Arc::clone(debt), ttl, placed);
            queue.freed(cx, hold, End::Released);
        });
    }
}
