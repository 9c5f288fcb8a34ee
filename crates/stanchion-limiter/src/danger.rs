//! Deleting a rate limiter.

use stanchion_client::QueryError;
use stanchion_client::primitive::{Resend, natural, unexpected};

use crate::limiter::RateLimiter;
use crate::scripts::limiter::delete;

/// Operations that let more than the quota through. See [`RateLimiter::danger`].
#[derive(Debug)]
pub struct LimiterDanger<'a> {
    pub(crate) limiter: &'a RateLimiter,
}

impl LimiterDanger<'_> {
    /// Deletes the limiter with all its grants and bookings, and returns whether it existed. The next request creates it again, so for one interval more than
    /// the quota may be used. With
    /// [`QuotaScope::PerClient`](crate::QuotaScope::PerClient), the state of other clients stays until its TTL ends.
    ///
    /// ```
    /// # use stanchion_limiter::{Client, RateLimiter};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://ratelimiter-delete").await?;
    /// let api = RateLimiter::new(&client, "partner-api", "10/m".parse()?)?;
    /// let _ = api.try_acquire_many(10).await?;
    /// assert!(api.danger().delete().await?);
    /// assert!(api.try_acquire_many(10).await?.granted().is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have taken effect. It is not resent, because a second run could delete a
    /// limiter that was created in between.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deleted it.
    pub async fn delete(&self) -> Result<bool, QueryError> {
        let call = delete(&self.limiter.keys);
        let reply = self.limiter.handle.query(&call, Resend::Never).await?;
        let deleted = natural(&reply).ok_or_else(|| unexpected(&reply))?;
        Ok(deleted == 1)
    }
}
