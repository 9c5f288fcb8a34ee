//! A table of items in order of their due times. Any task inserts and removes items; one task takes the items that are due.
//!
//! An item is taken once. An insertion rings the bell only if the item is due before the moment until which the taking task sleeps.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::Moment;

/// A place in the timetable: the due time, and a number.
pub type Slot = (Moment, u64);

/// The properties of an item that the timetable uses.
pub trait Scheduled {
    /// Returns whether items of this kind are handled together.
    fn is_batched(&self) -> bool;

    /// The time after this item in which others of its kind are taken with it; `None` if it is not batched, or no longer exists.
    fn window(&self) -> Option<Duration>;
}

/// A table of items in order of their due times.
pub struct Timetable<I> {
    /// Locked for single operations only. No other mutex is taken under it.
    table: Mutex<Table<I>>,
    /// Rung after the table is unlocked. Only the task that takes what is due waits for it.
    pub bell: Notify,
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
    /// Any task inserts and removes; one task takes what is due.
    due: BTreeMap<Slot, I>,
    /// The next number, which distinguishes slots of the same moment.
    next: u64,
    /// The moment until which that task sleeps, or will sleep. Only an earlier item rings the bell.
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

    /// Inserts an item. Rings the bell if it is due before the moment until which the taking task sleeps.
    pub fn insert(&self, at: Moment, item: I) -> Slot {
        self.replace(None, at, item)
    }

    /// As [`Timetable::insert`], and removes the item in `old`. In one step, so that [`Timetable::items`] always finds one of them.
    pub fn replace(&self, old: Option<Slot>, at: Moment, item: I) -> Slot {
        let mut table = self.table();
        if let Some(old) = old {
            table.due.remove(&old);
        }
        let slot = (at, table.next);
        table.next += 1;
        table.due.insert(slot, item);
        // A short hold leaves the table before it is due. `armed` stays at the first such moment, so a lock that is
        // taken often does not ring the bell each time.
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

    /// Removes the item in `slot`, if it is still there.
    pub fn remove(&self, slot: Slot) {
        self.table().due.remove(&slot);
    }

    /// Maps the items in the table with `of`, and leaves out those that give `None`.
    pub fn items<T>(&self, of: impl FnMut(&I) -> Option<T>) -> Vec<T> {
        self.table().due.values().filter_map(of).collect()
    }

    /// Takes the items that are due. With the first batched item, also takes the batched items that are due soon
    /// after it. Returns the items, and the moment of the next item.
    pub fn take_due(&self, now: Moment) -> (Vec<I>, Moment) {
        let mut table = self.table();
        let mut horizon = now;
        let mut taken = Vec::new();
        while let Some(entry) = table.due.first_entry() {
            let at = entry.key().0;
            // An item that must not be taken early (a poll) ends the batch, which keeps the order of the table.
            if at > now && (at > horizon || !entry.get().is_batched()) {
                break;
            }
            let item = entry.remove();
            // Only the first item opens the window. If each item could extend it, a batch would grow without a limit.
            if horizon == now
                // An item that loses its last reference here is dropped under this mutex, so its drop may take no lock.
                && let Some(window) = item.window()
            {
                horizon = now + window;
            }
            taken.push(item);
        }
        // Set under the same lock as the taking: a later insertion sees this moment, and rings if its item is earlier.
        table.armed = table.due.keys().next().map_or(Moment::FAR, |slot| slot.0);
        (taken, table.armed)
    }
}
