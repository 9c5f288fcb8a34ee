//! An owner's place at one subject: its holds there, and the mutex by which its tasks take turns.
//!
//! A [`Seat`] is locked by each acquire of an explicit owner, from its start to its end.

use std::sync::{Arc, Weak};

use tokio::sync::{MutexGuard, watch};

use crate::about::Sharing;
use crate::hold::state::HoldState;

/// An owner's place at one subject. An acquire as that owner locks it first.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// The owner's holds. An acquire keeps it locked from its start to its end, across its waits, so that two acquires by one
    /// owner take turns and the second finds the first one's hold. Re-entry waits for [`HoldState::turn`] under it.
    seated: tokio::sync::Mutex<Seated>,
    /// True while the task that has `seated` waits for another holder, perhaps for long. Only that task sets it.
    in_line: watch::Sender<bool>,
}

impl Seat {
    /// Returns whether the seat is unused and its owner holds nothing there.
    pub(crate) fn is_vacant(&self) -> bool {
        // A locked seat is in use: an acquire that holds nothing yet is under way.
        self.try_take().is_some_and(|seated| seated.is_empty())
    }

    pub(crate) async fn take(&self) -> MutexGuard<'_, Seated> {
        self.seated.lock().await
    }

    /// Waits for other attempts of this owner, which are short. Returns `None` if one of them waits in line.
    pub(crate) async fn take_now(&self) -> Option<MutexGuard<'_, Seated>> {
        // `wait_for` below checks the present value first, so it also sees a task that is already in line.
        let mut in_line = self.in_line.subscribe();
        tokio::select! {
            biased;
            seated = self.take() => Some(seated),
            _ = in_line.wait_for(|waits| *waits) => None,
        }
    }

    pub(crate) fn try_take(&self) -> Option<MutexGuard<'_, Seated>> {
        self.seated.try_lock().ok()
    }

    /// Marks that the task with `seated` waits for another holder, until the returned value is dropped.
    pub(crate) fn in_line(&self) -> InLine<'_> {
        // Not `send`: without a receiver `send` would keep the old value.
        self.in_line.send_replace(true);
        InLine(self)
    }
}

/// The mark of [`Seat::in_line`].
pub(crate) struct InLine<'a>(&'a Seat);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.in_line.send_replace(false);
    }
}

/// An owner's holds of one subject: both may exist at once, because a writer may also read. Weak, so that an owner keeps no hold alive.
#[derive(Debug, Default)]
pub(crate) struct Seated {
    pub(crate) exclusive: Weak<HoldState>,
    pub(crate) shared: Weak<HoldState>,
}

impl Seated {
    pub(crate) fn of(&mut self, sharing: Sharing) -> &mut Weak<HoldState> {
        match sharing.is_read() {
            true => &mut self.shared,
            false => &mut self.exclusive,
        }
    }

    fn is_empty(&self) -> bool {
        self.exclusive.strong_count() == 0 && self.shared.strong_count() == 0
    }
}

/// The hold, if it is still held.
pub(crate) fn live(hold: &Weak<HoldState>) -> Option<Arc<HoldState>> {
    hold.upgrade().filter(|state| state.is_held())
}
