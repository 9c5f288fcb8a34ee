//! The timers of all holds and waiters of a client: renewals, expiries and polls.
//!
//! One task on the background thread, [`run`], sleeps until the first item is due, takes the items that are due and handles
//! them: holds go to the [`watchdog`], queues poll. Any task inserts and removes items. A hold or a queue inserts itself again.
//!
//! Items are weak references: the timetable keeps no hold and no queue alive, and skips those that no longer exist.

use std::sync::{Arc, Weak};
use std::time::Duration;

use crate::hold::holds::{Base, Holds};
use crate::hold::state::HoldState;
use crate::watchdog;
use stanchion_transport::{Moment, Scheduled, Timetable};

/// The longest sleep between two readings of the clock. While the machine is suspended, timers stop but the clock
/// runs. Without this bound a lease that could still be renewed would be lost, and a loss would be noticed late.
const LONGEST_SLEEP: Duration = Duration::from_secs(1);

/// The timetable of a client.
pub(crate) type Agenda = Timetable<Item>;

/// A queue that polls.
pub(crate) trait Polling: Send + Sync {
    /// Lets the first waiter send a request because the poll timer has fired.
    fn poll_now(&self);
}

/// A hold or a queue that is due.
pub(crate) enum Item {
    /// A hold to renew, or to declare lost.
    Hold(Weak<HoldState>),
    /// A queue whose first waiter is to poll.
    Poll(Weak<dyn Polling>),
}

impl Scheduled for Item {
    fn is_batched(&self) -> bool {
        matches!(self, Self::Hold(_))
    }

    fn window(&self) -> Option<Duration> {
        match self {
            // This may drop the last reference to a hold, under the mutex of the table: no part of a hold has a drop of its own, except the core,
            // which the caller keeps.
            Self::Hold(hold) => Some(hold.upgrade()?.batching_window()),
            Self::Poll(_) => None,
        }
    }
}

impl Holds {
    /// The holds in the timetable. Every live hold with a tenure is in it, except while the hold is being rescheduled.
    pub(crate) fn live_holds(&self) -> Vec<Arc<HoldState>> {
        self.timetable.items(|item| match item {
            Item::Hold(hold) => hold.upgrade(),
            Item::Poll(_) => None,
        })
    }
}

/// Runs the timetable until the client is closed or dropped. Keeps the core alive only while it handles items.
pub(crate) async fn run(
    core: Weak<dyn Base>,
    timetable: Arc<Agenda>,
    closed: tokio_util::sync::CancellationToken,
) {
    loop {
        let Some(strong) = core.upgrade() else { return };
        let now = strong.clock.now();
        // The table is unlocked before the items are handled: a queue's mutex comes before it in the lock order.
        let (items, next) = timetable.take_due(now);
        let mut holds = Vec::new();
        for item in items {
            match item {
                Item::Hold(hold) => holds.extend(hold.upgrade()),
                Item::Poll(entry) => {
                    if let Some(entry) = entry.upgrade() {
                        entry.poll_now();
                    }
                }
            }
        }
        // All at once, so that holds of one slot share a batch.
        watchdog::tend(&strong, holds);
        watchdog::listen(&strong);
        // Dropped before the sleep, because the last guard, and the client with it, may be dropped during the sleep.
        drop(strong);
        tokio::select! {
            biased;
            () = closed.cancelled() => return,
            () = timetable.bell.notified() => {}
            () = tokio::time::sleep(next.since(now).min(LONGEST_SLEEP)), if next != Moment::FAR => {}
        }
    }
}
