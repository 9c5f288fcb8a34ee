//! The queue as holds use it: their ends, and the hand-off of a hold to a waiter of the same process.
//!
//! The hold of several names may go to a waiter in the queue of any of the names; the hold then belongs to that queue. The queue chooses
//! among its waiters: see `queue/holders.rs`.

use std::sync::Arc;
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::Context;
use super::shared::Host as _;
use super::shell::{LocalQueue, Shell};
use crate::about::Sharing;
use crate::description::{End, Subject, Synchronizer};
use crate::hold::debt::Debt;
use crate::hold::handle::Hold;
use crate::hold::queue::{HoldQueue, Piggyback, Successor};
use crate::hold::state::HoldState;
use crate::line::{Placed, Reason, TURN, Yields};
use crate::shared::Core;

impl HoldQueue for LockEntry {
    fn freed(&self, hold: &HoldState, end: End) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let _: Option<()> = core.entries.table.present(self, |entry, mut state| {
            state.queue.freed(&core, hold, end);
            entry.carry_out(&core, state);
        });
    }

    fn untaken(&self, hold: &HoldState) {
        self.at_hand_off(|queue, _| queue.untaken(hold));
    }

    fn acquired(&self, hold: &Hold) {
        if let Some(core) = self.core.upgrade() {
            self.event(&core, |queue, cx| queue.acquired_without_place(cx, hold));
        }
    }

    fn successor(&self, hold: &HoldState) -> Option<Successor> {
        let core = &self.core.upgrade()?;
        let sync = &hold.sync;
        sync.hold()?.hand_off()?;
        let table = &core.entries.table;
        let (this, (handed, stands)) =
            table.present(self, |entry, state| (entry.this(), state.queue.hand_offs()))?;
        let this = this?;
        // `handed` bounds the time for which other processes wait. Without a queue on the server, or with an entry in it, a release serves
        // the others and, in its turn, this process.
        let permits = sync.sharing().permits().is_some();
        let joins = !stands && sync.server_queue().is_some() && sync.about().has_common_entry();
        if handed >= TURN && !joins && !permits {
            return None;
        }
        let own = this.reserve(core, sync, handed, false);
        if own.is_some() || !sync.about().in_parts() {
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

    fn hand_over(&self, successor: &Successor, hold: Hold) {
        let handed = match successor.yields {
            Yields::All => 0,
            _ => successor.handed + 1,
        };
        let (place, kind) = (successor.place, successor.sync.kind().name());
        if let Some(core) = self.core.upgrade() {
            core.tell(|sink| sink.woken(kind, true));
        }
        self.at_hand_off(|queue, cx| queue.hand_over(cx, place, hold, handed));
    }

    fn not_handed(&self, successor: &Successor) {
        self.at_hand_off(|queue, cx| {
            queue.end_hand_off(cx, successor.place, None);
            queue.admit(cx, Reason::Turn);
        });
    }

    fn freed_unhanded(&self, successor: &Successor, hold: &HoldState, end: End) {
        self.at_hand_off(|queue, cx| {
            queue.end_hand_off(cx, successor.place, None);
            queue.freed(cx, hold, end);
        });
    }

    fn passed_on(&self, hold: &HoldState, debt: &Arc<Debt>, ttl: Option<Duration>, placed: Placed) {
        self.at_hand_off(|queue, cx| {
            queue.passed_on(cx, Arc::clone(debt), ttl, placed);
            queue.freed(cx, hold, End::Released);
        });
    }

    fn piggyback(&self, hold: &HoldState) -> Option<Box<dyn Piggyback>> {
        Some(Box::new(self.with_release_of(hold)?))
    }
}

impl LockEntry {
    /// Reserves the first waiter for a hold of `sync`, after `handed` hand-offs in a row. `past`: it may be behind others.
    fn reserve(
        &self,
        core: &Arc<Core>,
        sync: &Arc<dyn Synchronizer>,
        handed: u32,
        past: bool,
    ) -> Option<Successor> {
        let entry = self.this.upgrade()?;
        let mut state = self.state();
        let handed = match sync.sharing() {
            // Others may have begun since the caller read the number.
            Sharing::Permits(_) => state.queue.hand_offs().0,
            _ => handed,
        };
        let yields = Yields::after(handed, state.queue.waiters().len());
        let place = state.queue.reserve(core, sync, past)?;
        let waiter = state.queue.waiter(place)?;
        let (sync, terms) = (Arc::clone(&waiter.want), waiter.terms);
        drop(state);
        let subscribed = |channel| core.subscriptions.hears(channel);
        let hears = yields == Yields::All && self.neighbours(&*sync).is_some_and(subscribed);
        Some(Successor {
            queue: entry,
            place,
            sync,
            terms,
            handed,
            yields,
            hears,
        })
    }

    /// Passes an event of a hand-off to the queue. The hold keeps the client alive.
    fn at_hand_off(&self, event: impl FnOnce(&mut LocalQueue, &dyn Context<Shell>)) {
        if let Some(core) = self.core.upgrade() {
            self.event(&core, event);
        }
    }
}
