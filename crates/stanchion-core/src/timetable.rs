//! The one place with timers for holds and waiters: when to renew, when a hold is over, when a waiter asks again.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::Notify;

use crate::client::Core;
use crate::hold::HoldState;
use crate::waiting::Entry;
use crate::watchdog;
use stanchion_transport::Moment;

/// The longest sleep between two looks at the clock. Timers stand still while the machine is suspended, the clock does not:
/// without this a lease that could still be renewed would be lost, and a loss be told late.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// A place in the timetable.
pub(crate) type Slot = (Moment, u64);

pub(crate) enum Item {
    /// Renew it, or see that it is over.
    Hold(Weak<HoldState>),
    /// Let its first waiter ask again.
    Poll(Weak<Entry>),
}

#[derive(Default)]
pub(crate) struct Timetable {
    table: Mutex<Table>,
    bell: Notify,
}

impl std::fmt::Debug for Timetable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Timetable").finish_non_exhaustive()
    }
}

struct Table {
    due: BTreeMap<Slot, Item>,
    next: u64,
    /// When the loop will look again by itself. Only something earlier needs the bell.
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
        // An uncontended lock comes and goes within one third of its lease; the loop stays armed for the first such
        // time and is not rung for each.
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

    /// The holds that are in the table now.
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

    /// Takes what is due, and with the first hold all holds that would be due soon after: renewals go in batches.
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

/// Runs the timetable until the client is gone.
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
