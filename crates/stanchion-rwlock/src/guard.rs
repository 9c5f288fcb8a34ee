//! The guards of a held read-write lock.

use std::sync::Arc;

use stanchion_client::primitive::{Hold, Synchronizer};
use stanchion_client::{FencingToken, ReleaseError, RenewError, define_guard};

define_guard! {
    /// A read hold of an [`RwLock`](crate::RwLock). Release it, or drop it: the release then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`: [`ReadGuard::reenter`] gives another guard of the same hold. Dropping
    /// never blocks, needs no runtime and never panics (P9).
    ///
    /// A read hold cannot become a write hold: two readers that both waited for that would deadlock. Release it,
    /// acquire for writing, and read the data again.
    pub struct ReadGuard over hold;

    /// # use stanchion_rwlock::{AcquireOptions, Client, Ended, LostReason, Renewal, RwLock};
    /// # let client = Client::connect("memory://rwlock-read_guard").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    example prices.read(), prices.read_with(options);
}

define_guard! {
    /// A write hold of an [`RwLock`](crate::RwLock). Release it, or drop it: the release then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`: [`WriteGuard::reenter`] gives another guard of the same hold. Dropping
    /// never blocks, needs no runtime and never panics (P9).
    pub struct WriteGuard over hold with read: Arc<dyn Synchronizer>;

    /// # use stanchion_rwlock::{AcquireOptions, Client, Ended, LostReason, Renewal, RwLock};
    /// # let client = Client::connect("memory://rwlock-write_guard").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    example prices.write(), prices.write_with(options);
}

impl ReadGuard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Adds a read hold of the same owner and returns its guard. Never waits, not even for a waiting writer.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-reenter_read").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let outer = prices.read().await?;
    /// let writer = tokio::spawn(prices.write()); // waits for the reader
    /// # tokio::task::yield_now().await;
    /// let inner = outer.reenter().await?; // past the waiting writer
    /// outer.release().await?;
    /// assert!(inner.is_held() && !writer.is_finished());
    /// inner.release().await?;
    /// assert!(writer.await??.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RenewError::Lost`] when the hold has ended; the other errors leave it as it was. Ends within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: a re-entry already sent is undone in the background.
    ///
    /// # On the wire
    /// One script, which sets the hold count that Redisson's `getReadHoldCount` reads. It is sent again after a lost reply,
    /// with the effect of once (P6).
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        self.hold.reenter().await.map(Self::new)
    }
}

impl WriteGuard {
    pub(crate) fn new(hold: Hold, read: Arc<dyn Synchronizer>) -> Self {
        Self { hold, read }
    }

    /// Returns the fencing token of this hold; `None` with [`Fencing::Off`](crate::Fencing::Off).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-fencing_token").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let first = prices.write().await?;
    /// let stale = first.fencing_token();
    /// first.release().await?;
    /// let second = prices.write().await?;
    /// assert!(second.fencing_token() > stale); // a resource that has seen this one refuses `stale`
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P2: larger than the token of every earlier outermost acquisition for writing of this name, also after the server
    /// lost its data, as long as its clock is not set back. Re-entries share it. Readers have none.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing_token()
    }

    /// Adds a write hold of the same owner and returns its guard. Never waits for another owner.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-reenter_write").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let outer = prices.write().await?;
    /// let inner = outer.reenter().await?;
    /// outer.release().await?;
    /// assert!(prices.try_read().await?.is_none()); // `inner` still holds
    /// inner.release().await?;
    /// assert!(prices.try_read().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`RenewError::Lost`] when the hold has ended; the other errors leave it as it was. Ends within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: a re-entry already sent is undone in the background.
    ///
    /// # On the wire
    /// One script. It is sent again after a lost reply, with the effect of once (P6).
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        let hold = self.hold.reenter().await?;
        Ok(Self::new(hold, Arc::clone(&self.read)))
    }

    /// Turns this write hold into a read hold of the same owner and lease, in one step: no writer comes in between, and
    /// waiting readers are granted.
    ///
    /// Read holds that the writer already has stay as they are.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_rwlock::{Client, RwLock};
    /// # let client = Client::connect("memory://rwlock-downgrade").await?;
    /// # let prices = RwLock::new(&client, "prices")?;
    /// let writing = prices.write().await?;
    /// let reading = writing.downgrade().await?;
    /// assert!(prices.try_write().await?.is_none()); // what was written stays as it is
    /// assert!(prices.try_read().await?.is_some()); // and others may read it
    /// # drop(reading);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: it had already ended. [`ReleaseError::Ambiguous`]: no answer within the operation timeout.
    /// [`ReleaseError::Rejected`]: it was re-entered, and its other guards would lose their hold. In all cases this guard is
    /// released, in the background if necessary.
    ///
    /// # Cancel safety
    /// A dropped call continues in the background, and the read hold is released there.
    ///
    /// # On the wire
    /// One script, and the message `1`. The script is sent again after a lost reply, with the effect of once (P6). Redisson
    /// publishes nothing when it downgrades, so its waiting readers sleep until the lease ends.
    pub async fn downgrade(self) -> Result<ReadGuard, ReleaseError> {
        self.hold.downgrade(&self.read).await.map(ReadGuard::new)
    }
}
