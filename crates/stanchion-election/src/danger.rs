//! Taking the office away.

use stanchion_core::QueryError;
use stanchion_core::primitive::{Reply, Resend};

use crate::election::Election;

/// Operations that take the office away from its leader. See [`Election::danger`].
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
    /// Ends the term of whoever leads. Returns whether somebody did.
    ///
    /// The leader is told, and asks the server: it knows within a round trip. If the message is lost, or comes before the server has
    /// confirmed the subscription that its client sends when it is elected, it learns of it at its next renewal, up to a third of its
    /// lease later. Until it knows, P1 and P5 do not hold; fencing
    /// tokens still do. It does not rest: it may win again.
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
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have run; it is not sent twice, because the second run would depose the
    /// next leader.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deposed the leader.
    pub async fn depose(&self) -> Result<bool, QueryError> {
        let Election { handle, keys, .. } = self.election;
        let reply = handle.query(&keys.depose(), Resend::Never).await?;
        Ok(reply == Reply::Int(1))
    }
}
