//! Deleting a latch.

use stanchion_client::QueryError;
#[cfg(doc)]
use stanchion_client::Rejection;

use crate::latch::CountDownLatch;

/// Operations that end the waits of others. See [`CountDownLatch::danger`].
#[derive(Debug)]
pub struct LatchDanger<'a> {
    pub(crate) latch: &'a CountDownLatch,
}

impl LatchDanger<'_> {
    /// Removes a closed latch, and returns whether there was one. Its waiters get [`Rejection::Deleted`] at once. Later waits
    /// find it open, as any latch that is not armed. Redisson's waiters are not woken, as by Redisson's own `delete`. A latch
    /// that Redisson deleted is open.
    ///
    /// ```
    /// # use stanchion_latch::{AcquireError, Client, CountDownLatch, Rejection};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://countdownlatch-delete").await?;
    /// # let imported = CountDownLatch::new(&client, "import")?;
    /// imported.arm(3).await?; // and no worker is left that could count down
    /// let operator = imported.danger();
    /// let (waited, deleted) = tokio::join!(imported.wait(), operator.delete());
    /// assert!(deleted?);
    /// assert!(matches!(
    ///     waited,
    ///     Err(AcquireError::Rejected { rejection: Rejection::Deleted, .. })
    /// ));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`] when the name belongs to something else. After
    /// [`QueryError::Unanswered`] or [`QueryError::Unavailable`] it may have been deleted.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deleted it.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6). Publishes `1`, as Redisson
    /// does.
    pub async fn delete(&self) -> Result<bool, QueryError> {
        let operation = self.latch.handle.operation().await?;
        let call = self.latch.description.delete(&operation);
        let answer = self.latch.operate(&operation, &call).await?;
        Ok(answer == 1)
    }
}
