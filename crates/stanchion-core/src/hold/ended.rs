//! The end of a hold.

use std::future::Future;

use crate::error::LostReason;

/// The way in which a hold ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Ended {
    /// Released by its holder. The release may not have reached the server yet.
    Released,
    /// Lost before it was released.
    Lost(LostReason),
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
