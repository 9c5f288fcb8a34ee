//! What an acquire gives.

use stanchion_core::primitive::Hold;
use stanchion_core::{FencingToken, RenewError, define_guard};

define_guard! {
    /// A held [`FairLock`](crate::FairLock). Release it, or drop it: the release then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`: [`FairLockGuard::reenter`] gives another guard of the same hold. When the
    /// last of them has gone, the release itself makes the head of the queue the next holder. Dropping blocks on nothing,
    /// needs no runtime and never panics (P9).
    pub struct FairLockGuard;
}

impl FairLockGuard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// The fencing token of this hold; `None` with [`Fencing::Off`](crate::Fencing::Off).
    ///
    /// # Guarantees
    /// P2: larger than the token of every earlier outermost acquisition of this name, also after the server lost its
    /// data, as long as its clock does not go back. Re-entries share it.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing_token()
    }

    /// Holds once more, as the same owner. Never waits for anybody, whoever is in the queue.
    ///
    /// # Errors
    /// [`RenewError::Lost`] when the hold is over; the other errors leave it as it was. Ends within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: a re-entry that was sent is taken back in the background.
    ///
    /// # On the wire
    /// One script, which sets the hold count that Redisson's `getHoldCount` reads; again after a lost reply, with the
    /// effect of once (P6).
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        self.hold.reenter().await.map(Self::new)
    }
}
