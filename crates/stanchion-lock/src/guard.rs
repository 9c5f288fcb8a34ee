//! What an acquire gives.

use stanchion_core::{FencingToken, RenewError, define_guard};

use stanchion_core::primitive::Hold;

define_guard! {
    /// A held [`Lock`](crate::Lock). Release it, or drop it: the release then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`: [`LockGuard::reenter`] gives another guard of the same hold. The lock is
    /// free when the last of them has gone. Dropping blocks on nothing, needs no runtime and never panics (P9).
    pub struct LockGuard;
}

impl LockGuard {
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

    /// Holds once more, as the same owner. Never waits for anybody.
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
