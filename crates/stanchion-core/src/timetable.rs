//! The timers of all holds and waiters of a client: when to renew, when a hold has expired, when a waiter asks again.
//!
//! One task on the background thread, [`run`], sleeps until the first item is due, takes what is due and handles it: holds go to
//! the [`watchdog`], queues poll. Items are inserted and removed by any task. An item is taken once; its hold or queue inserts
//! itself again. The bell wakes the task only when an item is earlier than the time it sleeps until.
//!
//! Items are weak: the timetable keeps no hold and no queue alive, and skips those that no longer exist.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::client::Core;
use crate::hold::HoldState;
use crate::waiting::Entry;
use crate::watchdog;
use stanchion_transport::Moment;

/// The longest sleep between two readings of the clock. Timers stand still while the machine is suspended, the clock does not:
/// without this bound a lease that could still be renewed would be lost, and a loss noticed late.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A place in the timetable.
pub(crate) type Slot = (Moment, u64);

pub(crate) enum Item {
    /// A hold to renew, or to declare lost.
    Hold(Weak<HoldState>),
    /// A queue whose first waiter asks again.
    Poll(Weak<Entry>),
}

#[derive(Default)]
pub(crate) struct Timetable {
    /// Locked for single operations only, also under a queue's or a hold's `slot` mutex. No other mutex is taken under it.
    table: Mutex<Table>,
    /// Rung after the table is unlocked. Only [`run`] waits for it.
    bell: Notify,
}

impl std::fmt::Debug for Timetable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timetable").finish_non_exhaustive()
    }
}

struct Table {
    due: BTreeMap<Slot, Item>,
    /// The next number, which tells slots of one moment apart.
    next: u64,
    /// The moment until which [`run`] sleeps, or will sleep. Only an earlier item rings the bell.
    armed: Moment,
}

impl Default for Table {
    fn default() -> Self {
        Self {
            due: BTreeMap::new(),
            next: 0,
            armed: Moment::FAR,
        }
    }
}

impl Timetable {
    fn table(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn insert(&self, at: Moment, item: Item) -> Slot {
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
        if ring {
            self.bell.notify_one();
        }
        slot
    }

    pub(crate) fn remove(&self, slot: Slot) {
        self.table().due.remove(&slot);
    }

    /// The holds in the table. Every live hold with a tenure is in it, except for the moment in which it is rescheduled.
    pub(crate) fn holds(&self) -> Vec<Arc<HoldState>> {
        let table = self.table();
        table
            .due
            .values()
            .filter_map(|item| {
                if let Item::Hold(hold) = item {
                    hold.upgrade()
                } else {
                    None
                }
            })
            .collect()
    }

    /// Takes the items that are due and, with the first hold, the holds due soon after it: renewals are sent in batches. Returns
    /// them with the moment of the next item.
    fn take_due(&self, now: Moment) -> (Vec<Item>, Moment) {
        let mut table = self.table();
        let mut horizon = now;
        let mut taken = Vec::new();
        while let Some(entry) = table.due.first_entry() {
            let at = entry.key().0;
            if at > now {
                let soon = at <= horizon && matches!(entry.get(), Item::Hold(_));
                if !soon {
                    break;
                }
            }
            let item = entry.remove();
            if let (Item::Hold(hold), true) = (&item, horizon == now)
                && let Some(hold) = hold.upgrade()
            {
                horizon = now + hold.batching_window();
            }
            taken.push(item);
        }
        table.armed = table.due.keys().next().map_or(Moment::FAR, |slot| slot.0);
        (taken, table.armed)
    }
}

/// Runs the timetable until the client is closed or dropped: it keeps the core only while it handles items.
pub(crate) async fn run(
    core: Weak<Core>,
    timetable: Arc<Timetable>,
    closed: tokio_util::sync::CancellationToken,
) {
    loop {
        let Some(strong) = core.upgrade() else { return };
        let now = strong.clock.now();
        let (items, next) = timetable.take_due(now);
        let mut holds = Vec::new();
        for item in items {
            match item {
                Item::Hold(hold) => holds.extend(hold.upgrade()),
                Item::Poll(entry) => {
                    if let Some(entry) = entry.upgrade() {
                        entry.poll_now(&strong);
                    }
                }
            }
        }
        watchdog::tend(&strong, holds);
        drop(strong);
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = timetable.bell.notified() => {}
            () = tokio::time::sleep(next.since(now).min(LONGEST_SLEEP)), if next != Moment::FAR => {}
        }
    }
}
