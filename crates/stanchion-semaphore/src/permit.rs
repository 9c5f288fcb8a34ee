//! The permits that an acquire returns.

use std::fmt;

use stanchion_client::primitive::{Guarded as _, Hold, Permits};
use stanchion_client::{Held, Name, ReleaseError, WireOwner};

use crate::ids::PermitId;
use crate::leased::LeasedSemaphore;

/// Held permits of a [`Semaphore`](crate::Semaphore). Release them, or drop this: the release then runs in the background.
///
/// `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and never panics (P9). A release
/// continues through any outage until the server has answered, as long as the client lives. A client that is
/// [shut down](stanchion_client::Client::shutdown) before that leaves the permits held, see
/// [`SemaphoreDanger::reclaim`](crate::SemaphoreDanger::reclaim).
///
/// It has no `is_held` and no `lost`: a plain permit has no lease, so it neither expires nor is renewed. If an
/// operator took the permits with [`SemaphoreDanger::reclaim`](crate::SemaphoreDanger::reclaim), or the server lost
/// them, the release returns an error.
#[must_use = "a permit that is not bound to a name is dropped at once, and given back: `let permit = …`, not `let _ = …`"]
pub struct Permit {
    hold: Hold,
}

impl Permit {
    pub(crate) fn new(hold: Hold) -> Self {
        Self { hold }
    }

    /// Returns the name of the semaphore, with the client's key prefix.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://permit-name").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let permit = licences.acquire().await?;
    /// println!("{} of {}", permit.count(), permit.name());
    /// assert_eq!(permit.name(), licences.name());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        self.hold.name()
    }

    /// Returns the number of permits.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://permit-count").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let pair = licences.acquire_many(2).await?;
    /// assert_eq!(pair.count(), 2);
    /// pair.release().await?; // both
    /// assert_eq!(licences.available().await?, 3);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn count(&self) -> u32 {
        self.hold.permits()
    }

    /// Returns the owner as stored, as [`SemaphoreStatus::holders`](crate::SemaphoreStatus::holders) lists it.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://permit-owner").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(3).await?;
    /// let permit = licences.acquire().await?;
    /// let log = format!("for an operator: {} has a licence", permit.owner());
    /// assert!(log.contains(&client.id().to_string())); // it begins with the client's UUID
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn owner(&self) -> &WireOwner {
        self.hold.wire_owner()
    }

    /// Releases the permits, and waits for the server's answer. Dropping them does the same in the background.
    ///
    /// ```
    /// # use stanchion_semaphore::{Client, Semaphore};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let client = Client::connect("memory://permit-release").await?;
    /// # let licences = Semaphore::new(&client, "licences")?;
    /// # licences.init(1).await?;
    /// let permit = licences.acquire().await?;
    /// permit.release().await?; // confirmed: the next request finds it free
    /// assert!(licences.try_acquire().await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: nothing was given back, because the server has no record of these permits: an operator
    /// reclaimed them or deleted the semaphore, or the server lost its data. [`ReleaseError::Ambiguous`]: no answer
    /// within the operation timeout; the release continues in the background until there is one.
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    ///
    /// # On the wire
    /// One script, which publishes the number of free permits. It is resent after a lost reply and takes effect once (P6).
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release().await
    }
}

impl fmt::Debug for Permit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Permit").field(&self.hold).finish()
    }
}

/// Held permits of a [`LeasedSemaphore`]. Release them, or drop this: the release then runs in the background.
///
/// `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and never panics (P9).
/// Permits that were acquired together are held together: they are lost when one of them is.
///
/// ```
/// # use stanchion_semaphore::{Client, LeasedSemaphore};
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let client = Client::connect("memory://leasedpermit").await?;
/// # let downloads = LeasedSemaphore::new(&client, "downloads")?;
/// # downloads.init(3).await?;
/// let pair = downloads.acquire_many(2).await?;
/// assert_eq!(pair.count(), 2);
/// let ids = pair.ids();
/// assert_eq!(ids.len(), 2);
/// assert_eq!(ids[0].to_string().len(), 32); // for RPermitExpirableSemaphore.release(id)
/// pair.release().await?; // both
/// assert_eq!(downloads.available().await?, 3);
/// # Ok(())
/// # }
/// ```
pub type LeasedPermit = Held<LeasedSemaphore>;

impl Permits for LeasedSemaphore {
    type Id = PermitId;

    fn id(owner: &WireOwner, index: u32) -> PermitId {
        PermitId::of(owner, index)
    }
}
