//! Operations for operators.

use stanchion_client::QueryError;

use crate::ids::PermitId;
use crate::pool::Pool;
use crate::scripts::{leased, plain};

/// Operations that take permits away from their holders. See [`Semaphore::danger`](crate::Semaphore::danger).
#[derive(Debug)]
pub struct SemaphoreDanger<'a> {
    pub(crate) pool: &'a Pool,
}

impl SemaphoreDanger<'_> {
    /// Gives back the permits that `owner` holds, wakes waiters, and returns the number of permits.
    /// [`SemaphoreStatus::holders`](crate::SemaphoreStatus::holders) lists the owners.
    ///
    /// Meant for the permits of a process that has died. If it is alive, more permits are in use than exist until it releases;
    /// that release then gives nothing back and returns an error.
    ///
    /// Where a stanchion client created the semaphore, its total is known, and free and held permits together never exceed it. If
    /// Redisson has deleted and recreated the semaphore, permits above the total belong to the earlier one. If Redisson has added
    /// permits in the meantime, too few may be given back; [`Semaphore::add`](crate::Semaphore::add) the rest.
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
    /// [`QueryError`]. [`QueryError::Unavailable`]: it may have taken effect, and does not take effect later.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have given them back.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6).
    pub async fn reclaim(&self, owner: &str) -> Result<u32, QueryError> {
        let given = self
            .pool
            .once(|operation| plain::reclaim(&self.pool.keys, owner, operation))
            .await?;
        Ok(u32::try_from(given).unwrap_or(u32::MAX))
    }

    /// Deletes the semaphore and all its holds, and returns whether it existed. Holders learn of it when they
    /// release. Waiters keep waiting until the semaphore is created again.
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
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have taken effect. The script is not resent: a second run could delete a
    /// semaphore that was created in the meantime.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deleted it.
    pub async fn delete(&self) -> Result<bool, QueryError> {
        self.pool.delete().await
    }
}

/// Operations that take permits away from their holders. See [`LeasedSemaphore::danger`](crate::LeasedSemaphore::danger).
#[derive(Debug)]
pub struct LeasedDanger<'a> {
    pub(crate) pool: &'a Pool,
}

impl LeasedDanger<'_> {
    /// Gives back the permit with this id, wakes waiters, and returns whether it was held.
    ///
    /// A holder that has renewed its lease before gets a message. Any other holder learns of the loss at its next
    /// renewal, up to a third of its lease later. Until then P1 and P5 do not hold.
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
    /// [`QueryError`]. [`QueryError::Unavailable`]: it may have taken effect, and does not take effect later.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have given it back.
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once and gives the same answer (P6).
    pub async fn reclaim(&self, id: &PermitId) -> Result<bool, QueryError> {
        self.pool
            .once(|operation| leased::reclaim(&self.pool.keys, id, operation))
            .await
            .map(|given| given == 1)
    }

    /// Deletes the semaphore and all its holds, and returns whether it existed. Holders that have renewed
    /// before get a message; others learn of it at their next renewal. Waiters keep waiting until the semaphore is created again.
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
    /// [`QueryError`]. [`QueryError::Unanswered`]: it may have taken effect. The script is not resent: a second run could delete a
    /// semaphore that was created in the meantime.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have deleted it.
    pub async fn delete(&self) -> Result<bool, QueryError> {
        self.pool.delete().await
    }
}
