//! The guard of a held fair lock.

use stanchion_client::primitive::Hold;
use stanchion_client::{FencingToken, RenewError, define_detach, define_guard};

define_guard! {
    /// A held [`FairLock`](crate::FairLock). Release it, or drop it: the release then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`: [`FairLockGuard::reenter`] gives another guard of the same hold. The
    /// release of the last one makes the head of the queue the next holder, in one step. Dropping never blocks, needs no
    /// runtime and never panics (P9).
    pub struct FairLockGuard over hold;

    /// # use stanchion_fair::{AcquireOptions, Client, Ended, FairLock, LostReason, Renewal};
    /// # let client = Client::connect("memory://fair-guard").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    example tickets.acquire(), tickets.acquire_with(options);
}

define_detach! {
    impl FairLockGuard, adopted by FairLock;
}

impl FairLockGuard {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Returns the fencing token of this hold; `None` with [`Fencing::Off`](crate::Fencing::Off).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-fencing_token").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let first = tickets.acquire().await?;
    /// let stale = first.fencing_token();
    /// first.release().await?;
    /// let second = tickets.acquire().await?;
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

    /// Adds a hold of the same owner and returns its guard. Never waits, even if the queue has waiters.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_fair::{Client, FairLock};
    /// # let client = Client::connect("memory://fair-reenter").await?;
    /// # let tickets = FairLock::new(&client, "tickets")?;
    /// let outer = tickets.acquire().await?;
    /// let next = tokio::spawn(tickets.acquire());
    /// # while tickets.queue_len().await? == 0 {}
    /// let inner = outer.reenter().await?; // past the waiter
    /// outer.release().await?;
    /// assert_eq!(tickets.queue_len().await?, 1); // `inner` still holds
    /// inner.release().await?;
    /// assert!(next.await??.is_held());
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
