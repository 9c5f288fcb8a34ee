//! What an operator may have to do.

use stanchion_core::QueryError;

use crate::ids::PermitId;
use crate::pool::Pool;
use crate::scripts::{leased, plain};

/// Operations that take permits from under their holders. See [`Semaphore::danger`](crate::Semaphore::danger).
#[derive(Debug)]
pub struct SemaphoreDanger<'a> {
    pub(crate) pool: &'a Pool,
}

impl SemaphoreDanger<'_> {
    /// Gives back what `owner` holds, as [`SemaphoreStatus::holders`](crate::SemaphoreStatus::holders) shows it, and wakes
    /// waiters. Returns how many permits that were.
    ///
    /// For permits of a process that has died. If it lives, more permits are in use than there are, until it releases; its
    /// release then gives nothing back, and says so.
    ///
    /// Never more are given back than keeps those that are free and held within the total, which is known where one of ours
    /// made the semaphore: the others were held of a semaphore that Redisson has deleted and made anew. If Redisson has added
    /// permits meanwhile, that may be too few; [`Semaphore::add`](crate::Semaphore::add) them.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, ReleaseError, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphoredanger-reclaim").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(2).await?;
    /// let permit = licences.acquire().await?; // imagine that its process dies
    /// let holder = &licences.status().await?.holders[0];
    /// assert_eq!(licences.danger().reclaim(&holder.owner).await?, 1);
    /// assert_eq!(licences.available().await?, 2);
    /// assert!(matches!(permit.release().await, Err(ReleaseError::Lost(_)))); // it was alive
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unavailable`]: it may have been done, and it is not done later.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have given them back.
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect and the answer of once (P6).
    pub async fn reclaim(&self, owner: &str) -> Result<u32, QueryError> {
        let given = self
            .pool
            .once(|operation| plain::reclaim(&self.pool.keys, owner, operation))
            .await?;
        Ok(u32::try_from(given).unwrap_or(u32::MAX))
    }

    /// Deletes the semaphore with all that is held of it. Returns whether there was one. Those who hold find out when they
    /// release, those who wait go on waiting: for whoever makes it anew.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, ReleaseError, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://semaphoredanger-delete").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(2).await?;
    /// let permit = licences.acquire().await?;
    /// assert!(licences.danger().delete().await?);
    /// assert!(!licences.danger().delete().await?); // there is none any more
    /// assert!(matches!(permit.release().await, Err(ReleaseError::Lost(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have been done; it is not sent twice, because the second run would
    /// delete what was made meanwhile.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deleted it.
    pub async fn delete(&self) -> Result<bool, QueryError> {
        self.pool.delete().await
    }
}

/// Operations that take permits from under their holders. See [`LeasedSemaphore::danger`](crate::LeasedSemaphore::danger).
#[derive(Debug)]
pub struct LeasedDanger<'a> {
    pub(crate) pool: &'a Pool,
}

impl LeasedDanger<'_> {
    /// Gives one permit back by its id, whoever holds it, and wakes waiters. Returns whether it was held.
    ///
    /// Its holder learns of it at its next renewal, up to a third of its lease later; until then P1 and P5 do not hold.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore, RenewError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leaseddanger-reclaim").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let permit = downloads.acquire().await?;
    /// let id = downloads.status().await?.permits[0].id;
    /// assert!(downloads.danger().reclaim(&id).await?);
    /// assert!(!downloads.danger().reclaim(&id).await?); // no longer held
    /// assert!(matches!(permit.renew().await, Err(RenewError::Lost(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unavailable`]: it may have been done, and it is not done later.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have given it back.
    ///
    /// # On the wire
    /// One script; again after a lost reply, with the effect and the answer of once (P6).
    pub async fn reclaim(&self, id: &PermitId) -> Result<bool, QueryError> {
        self.pool
            .once(|operation| leased::reclaim(&self.pool.keys, id, operation))
            .await
            .map(|given| given == 1)
    }

    /// Deletes the semaphore with all that is held of it. Returns whether there was one. Those who hold find out at their
    /// next renewal, those who wait go on waiting: for whoever makes it anew.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, LeasedSemaphore, RenewError};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://leaseddanger-delete").await?;
    /// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
    /// # downloads.init(3).await?;
    /// let permit = downloads.acquire().await?;
    /// assert!(downloads.danger().delete().await?);
    /// assert!(!downloads.danger().delete().await?); // there is none any more
    /// assert!(matches!(permit.renew().await, Err(RenewError::Lost(_))));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have been done; it is not sent twice, because the second run would
    /// delete what was made meanwhile.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deleted it.
    pub async fn delete(&self) -> Result<bool, QueryError> {
        self.pool.delete().await
    }
}
