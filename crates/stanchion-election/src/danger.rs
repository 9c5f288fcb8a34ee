//! Ending a leader's term by force.

use stanchion_client::QueryError;
use stanchion_client::primitive::{Reply, Resend};

use crate::election::Election;

/// Operations that end a leader's term by force. See [`Election::danger`].
#[derive(Debug)]
pub struct ElectionDanger<'a> {
    election: &'a Election,
}

impl<'a> ElectionDanger<'a> {
    pub(crate) const fn of(election: &'a Election) -> Self {
        Self { election }
    }
}

impl ElectionDanger<'_> {
    /// Ends the term of the present leader. Returns whether there was one.
    ///
    /// A message notifies the leader, which then checks its term at the server: it learns of the end within a round trip. It learns
    /// of it only at its next renewal, up to a third of its lease later, if the message is lost, or if it comes before the server has
    /// confirmed the subscription that the leader's client sends after the election. Until then, P1 and P5 do not hold; fencing
    /// tokens still do. The deposed leader has no cooldown, so it may win again.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-depose").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let old = indexer.campaign("a").await?;
    /// assert!(indexer.danger().depose().await?);
    /// assert!(old.renew().await.is_err()); // `old` learns that it is lost
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: the script may have run. It is not sent twice, because the second run would depose
    /// the next leader.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deposed the leader.
    pub async fn depose(&self) -> Result<bool, QueryError> {
        let Election { handle, keys, .. } = self.election;
        let reply = handle.query(&keys.depose(), Resend::Never).await?;
        Ok(reply == Reply::Int(1))
    }
}
