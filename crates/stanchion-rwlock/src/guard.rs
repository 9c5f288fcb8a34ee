//! What an acquire gives.

use std::sync::Arc;

use stanchion_core::primitive::{Hold, Synchronizer};
use stanchion_core::{FencingToken, ReleaseError, RenewError, define_guard};

define_guard! {
    /// A read hold of an [`RwLock`](crate::RwLock). Release it, or drop it: the release then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`: [`ReadGuard::reenter`] gives another guard of the same hold. Dropping
    /// blocks on nothing, needs no runtime and never panics (P9).
    ///
    /// There is no way from here to a write hold: two readers that both waited for it would wait for ever. Release,
    /// write, and look again.
    pub struct ReadGuard;
}

define_guard! {
    /// A write hold of an [`RwLock`](crate::RwLock). Release it, or drop it: the release then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`: [`WriteGuard::reenter`] gives another guard of the same hold. Dropping
    /// blocks on nothing, needs no runtime and never panics (P9).
    pub struct WriteGuard with read: Arc<dyn Synchronizer>;
}

impl ReadGuard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Holds once more, as the same owner. Never waits for anybody, also not for a writer that waits.
    ///
    /// # Errors
    /// [`RenewError::Lost`] when the hold is over; the other errors leave it as it was. Ends within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: a re-entry that was sent is taken back in the background.
    ///
    /// # On the wire
    /// One script, which sets the hold count that Redisson's `getReadHoldCount` reads; again after a lost reply, with
    /// the effect of once (P6).
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        self.hold.reenter().await.map(Self::new)
    }
}

impl WriteGuard {
    pub(crate) fn new(hold: Hold, read: Arc<dyn Synchronizer>) -> Self {
        Self { hold, read }
    }

    /// The fencing token of this hold; `None` with [`Fencing::Off`](crate::Fencing::Off).
    ///
    /// # Guarantees
    /// P2: larger than the token of every earlier outermost acquisition for writing of this name, also after the server
    /// lost its data, as long as its clock does not go back. Re-entries share it. Readers have none.
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
    /// One script; again after a lost reply, with the effect of once (P6).
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        let hold = self.hold.reenter().await?;
        Ok(Self::new(hold, Arc::clone(&self.read)))
    }

    /// Turns this write hold into a read hold of the same owner and lease, in one step: no writer comes in between, and
    /// readers that wait are let in.
    ///
    /// Read holds that the writer has besides stay as they are.
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: it had ended before. [`ReleaseError::Ambiguous`]: no answer within the operation timeout.
    /// [`ReleaseError::Rejected`]: it was re-entered, and its other guards would lose what they hold. In all cases this
    /// guard is released, in the background where need be.
    ///
    /// # Cancel safety
    /// Dropped, it goes on in the background, and the read hold is released there.
    ///
    /// # On the wire
    /// One script, and the message `1`; again after a lost reply, with the effect of once (P6). Redisson publishes
    /// nothing when it downgrades, so its waiting readers sleep on until the lease ends.
    pub async fn downgrade(self) -> Result<ReadGuard, ReleaseError> {
        self.hold.downgrade(&self.read).await.map(ReadGuard::new)
    }
}
