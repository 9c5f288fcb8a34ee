//! The end of a hold, for whoever waits for it without keeping the hold.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::error::LostReason;
use crate::hold::HoldState;

/// How a hold came to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Its holder gave it up. The server may not have heard of it yet.
    Released,
    /// It was lost before.
    Lost(LostReason),
}

/// Resolves with the end of `hold`, and keeps nothing of it meanwhile.
pub(crate) async fn ended(hold: Weak<HoldState>, over: Arc<Notify>) -> Ended {
    loop {
        let mut told = pin!(over.notified());
        told.as_mut().enable();
        let left = hold.upgrade().map_or(Duration::ZERO, |hold| {
            hold.valid_until().since(hold.core.clock.now())
        });
        let mut timer = pin!(tokio::time::sleep(left));
        let end = poll_fn(|cx| {
            // P5: every poll, whatever caused it, asks the clock first. A state that has gone was given up by its holder.
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

/// What `ended` tells of a loss; pends for ever after a release.
pub(crate) async fn lost(ended: impl Future<Output = Ended>) -> LostReason {
    // Bound here, and so gone, whatever it kept, when the wait for nothing begins.
    let end = ended.await;
    match end {
        Ended::Lost(reason) => reason,
        Ended::Released => std::future::pending().await,
    }
}
