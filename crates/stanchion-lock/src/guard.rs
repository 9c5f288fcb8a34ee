//! The guard of a held lock.

use stanchion_client::primitive::Hold;
use stanchion_client::{FencingToken, RenewError, define_detach, define_guard};

define_guard! {
    /// A held [`Lock`](crate::Lock). Release it, or drop it: the release then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`: [`LockGuard::reenter`] gives another guard of the same hold. The lock is
    /// free when the last of them is released. Dropping never blocks, needs no runtime and never panics (P9).
    pub struct LockGuard over hold;

    /// # use stanchion_lock::{AcquireOptions, Client, Ended, Lock, LostReason, Renewal};
    /// # let client = Client::connect("memory://lock-guard").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    example orders.acquire(), orders.acquire_with(options);
}

define_detach! {
    impl LockGuard, adopted by Lock;
}

impl LockGuard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Returns the fencing token of this hold; `None` with [`Fencing::Off`](crate::Fencing::Off).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-fencing_token").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let first = orders.acquire().await?;
    /// let stale = first.fencing_token();
    /// first.release().await?;
    /// let second = orders.acquire().await?;
    /// assert!(second.fencing_token() > stale); // a resource that has seen this one refuses `stale`
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P2: larger than the token of every earlier outermost acquisition of this name, also after the server lost its
    /// data, as long as its clock is not set back. Re-entries share it.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing_token()
    }

    /// Adds a hold of the same owner and returns its guard. Never waits for another owner.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_lock::{Client, Lock};
    /// # let client = Client::connect("memory://lock-reenter").await?;
    /// # let orders = Lock::new(&client, "orders")?;
    /// let outer = orders.acquire().await?;
    /// let inner = outer.reenter().await?;
    /// outer.release().await?;
    /// assert!(orders.try_acquire().await?.is_none()); // `inner` still holds
    /// inner.release().await?;
    /// assert!(orders.try_acquire().await?.is_some());
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
    /// One script, which sets the hold count that Redisson's `getHoldCount` reads. It is sent again after a lost reply, with
    /// the effect of once (P6).
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        self.hold.reenter().await.map(Self::new)
    }
}
