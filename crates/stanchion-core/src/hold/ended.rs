//! The end of a hold, for tasks that wait for it without keeping the hold alive.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::LostReason;
use crate::hold::state::HoldState;
use stanchion_transport::sleep;

/// The way in which a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Released by its holder. The release may not have reached the server yet.
    Released,
    /// Lost before it was released.
    Lost(LostReason),
}

/// A view of a hold that does not keep it alive, for work that must know whether it may go on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Watch {
    hold: Weak<HoldState>,
    over: Arc<Notify>,
}

impl Watch {
    pub(crate) const fn new(hold: Weak<HoldState>, over: Arc<Notify>) -> Self {
        Self { hold, over }
    }

    /// Returns whether the hold is still held, by the clock (P5).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.upgrade().is_some_and(|hold| hold.is_held())
    }

    /// Resolves when the hold is released or lost (P5).
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static + use<> {
        ended(Weak::clone(&self.hold), Arc::clone(&self.over))
    }
}

/// Resolves with the end of `hold`. Keeps nothing alive while it waits.
pub(crate) async fn ended(hold: Weak<HoldState>, over: Arc<Notify>) -> Ended {
    loop {
        let mut told = pin!(over.notified());
        // Enabled before the state is read, so that an end in between notifies this future.
        told.as_mut().enable();
        // Each strong reference ends with its statement, because a watcher must not postpone the end. A renewal may
        // move the end while the timer runs. The next round then sleeps until the new end.
        let left = hold.upgrade().map_or(Duration::ZERO, |hold| {
            hold.valid_until().since(hold.core.clock.now())
        });
        let mut timer = pin!(sleep(left));
        let end = poll_fn(|cx| {
            // P5: every poll compares the clock first, even if the wake-up was for another future. A state that no
            // longer exists was released by its holder.
            if let Some(end) = hold
                .upgrade()
                .map_or(Some(Ended::Released), |hold| hold.ended())
            {
                return Poll::Ready(Some(end));
            }
            if told.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await;
        if let Some(end) = end {
            return end;
        }
    }
}

/// Resolves with the reason when `ended` reports a loss; never resolves after a release.
pub(crate) async fn lost(ended: impl Future<Output = Ended>) -> LostReason {
    // Awaited in its own statement, so that the future and everything in it are dropped before the endless wait begins.
    let end = ended.await;
    match end {
        Ended::Lost(reason) => reason,
        Ended::Released => std::future::pending().await,
    }
}
