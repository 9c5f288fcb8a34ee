//! Breaking a barrier.

use stanchion_client::QueryError;
use stanchion_client::primitive::{Resend, natural, unexpected};

use crate::barrier::CyclicBarrier;
use crate::meeting::Site;

/// Operations that end the waits of others. See [`CyclicBarrier::danger`].
#[derive(Debug)]
pub struct BarrierDanger<'a> {
    barrier: &'a CyclicBarrier,
}

impl<'a> BarrierDanger<'a> {
    pub(crate) const fn of(barrier: &'a CyclicBarrier) -> Self {
        Self { barrier }
    }
}

impl BarrierDanger<'_> {
    /// Breaks the present round for all of its waiters, whatever their [`OnLeave`](crate::OnLeave): they get
    /// [`BarrierError::Broken`](crate::BarrierError::Broken). Returns their number; with 0 nothing has changed.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, CyclicBarrier};
    /// # let client = Client::connect("memory://barrier-break-all").await?;
    /// # let checkpoint = CyclicBarrier::new(&client, "checkpoint", 2)?;
    /// assert_eq!(checkpoint.danger().break_all().await?, 0); // nobody waits
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have run; it is not sent twice, because the second run would break the next
    /// round.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have broken the round.
    ///
    /// # On the wire
    /// One script, which publishes one message.
    pub async fn break_all(&self) -> Result<u64, QueryError> {
        let Site { handle, keys, .. } = &self.barrier.site;
        let reply = handle.query(&keys.break_all(), Resend::Never).await?;
        natural(&reply).ok_or_else(|| unexpected(&reply))
    }
}
