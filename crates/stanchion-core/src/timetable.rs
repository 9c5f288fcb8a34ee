//! Moments, and what is due at them. Any task inserts and removes items; one task takes what is due.
//!
//! An item is taken once. The bell wakes the task that takes only when an item is earlier than the moment it sleeps until.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use stanchion_transport::Moment;

/// A place in the timetable.
pub(crate) type Slot = (Moment, u64);

/// An item, as far as the table needs to know it.
pub(crate) trait Scheduled {
    /// Returns whether items of its kind are handled together.
    fn is_batched(&self) -> bool;

    /// The time after it in which others of its kind are taken with it; `None` if it is not batched, or no longer exists.
    fn window(&self) -> Option<Duration>;
}

pub(crate) struct Timetable<I> {
    /// Locked for single operations only, also under a queue's or a hold's `slot` mutex. No other mutex is taken under it.
    table: Mutex<Table<I>>,
    /// Rung after the table is unlocked. Only `agenda::run` waits for it.
    pub(crate) bell: Notify,
}

impl<I> Default for Timetable<I> {
    fn default() -> Self {
        Self {
            table: Mutex::default(),
            bell: Notify::new(),
        }
    }
}

impl<I> fmt::Debug for Timetable<I> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timetable").finish_non_exhaustive()
    }
}

struct Table<I> {
    /// Any task inserts and removes; only `agenda::run` takes what is due.
    due: BTreeMap<Slot, I>,
    /// The next number, which tells slots of one moment apart.
    next: u64,
    /// The moment until which `agenda::run` sleeps, or will sleep. Only an earlier item rings the bell.
    armed: Moment,
}

impl<I> Default for Table<I> {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            next: 0,
            armed: Moment::FAR,
        }
    }
}

impl<I: Scheduled> Timetable<I> {
    fn table(&self) -> MutexGuard<'_, Table<I>> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, at: Moment, item: I) -> Slot {
        let mut table = self.table();
        let slot = (at, table.next);
        table.next += 1;
        table.due.insert(slot, item);
        // A short hold leaves the table before it is due. `armed` stays at the first such moment, so that a lock which is taken
        // often does not ring the bell each time.
        let ring = at < table.armed;
        if ring {
            table.armed = at;
        }
        drop(table);
        // Rung with the table unlocked; one ring is kept for a task that is not waiting yet.
        if ring {
            self.bell.notify_one();
        }
        slot
    }

    pub(crate) fn remove(&self, slot: Slot) {
        self.table().due.remove(&slot);
    }

    /// The items in the table, each as `of` sees it.
    pub(crate) fn items<T>(&self, of: impl FnMut(&I) -> Option<T>) -> Vec<T> {
        self.table().due.values().filter_map(of).collect()
    }

    /// Takes the items that are due and, with the first that is sent in batches, the others of that kind due soon after it.
    /// Returns them with the moment of the next item.
    pub(crate) fn take_due(&self, now: Moment) -> (Vec<I>, Moment) {
        let mut table = self.table();
        let mut horizon = now;
        let mut taken = Vec::new();
        while let Some(entry) = table.due.first_entry() {
            let at = entry.key().0;
            // What may not be taken early, a poll, ends the batch: the order of the table is kept.
            if at > now && (at > horizon || !entry.get().is_batched()) {
                break;
            }
            let item = entry.remove();
            // Only the first item opens the window. If each could move it on, a batch would grow without end.
            if horizon == now
                // A hold that loses its last reference in here is dropped under this mutex. That takes no lock: its parts have no
                // drop of their own, but for the core, which the caller keeps.
                && let Some(window) = item.window()
            {
                horizon = now + window;
            }
            taken.push(item);
        }
        // Under the same lock as the taking: an item that is inserted after it sees this moment and rings if it is earlier.
        table.armed = table.due.keys().next().map_or(Moment::FAR, |slot| slot.0);
        (taken, table.armed)
    }
}
