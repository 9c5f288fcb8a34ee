//! Distributed semaphores on Redis and Valkey, wire-compatible with Redisson.
//!
//! | | [`Semaphore`] | [`LeasedSemaphore`] |
//! |---|---|---|
//! | Redisson's | `RSemaphore` | `RPermitExpirableSemaphore` |
//! | a permit | is held until it is released | has an id and a lease, which the watchdog renews |
//! | its holder dies | it stays taken until an operator [gives it back](SemaphoreDanger::reclaim) | it comes back when its lease ends |
//! | commands of a cycle | 2 | 2, and renewals |
//!
//! Use [`LeasedSemaphore`], unless a holder must keep its permit through a pause that is longer than a lease, or Java
//! processes use an `RSemaphore` of that name.
//!
//! ```
//! use std::time::Duration;
//! use stanchion_semaphore::{Client, LeasedSemaphore};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), stanchion_semaphore::Error> {
//! # let url = "memory://semaphore-doc";
//! let client = Client::connect(url).await?; // redis://…
//! let downloads = LeasedSemaphore::new(&client, "downloads")?;
//! downloads.init(8).await?; // the first call sets the number
//! let permit = downloads.acquire_timeout(Duration::from_secs(5)).await?;
//! permit.run(async { /* download */ }).await?; // dropped in time if the permit is lost
//! permit.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Order of waiters
//! Within a process, waiters for the same number of permits are served in order of arrival. They share one entry in a queue on
//! the server, which is served in order of arrival, too. A process passes its permits on to its own waiters at most 8 times in a
//! row. A request for many permits holds the others up for a limited time. [`Semaphore::acquire_many`] has the details.

mod danger;
mod ids;
mod keys;
mod leased;
mod permit;
mod plain;
mod pool;
/// The scripts, for tests that run them directly: a test runs the text that a client sends.
#[doc(hidden)]
pub mod scripts;
mod status;

pub use danger::{LeasedDanger, SemaphoreDanger};
pub use ids::{InvalidPermitId, PermitId};
pub use leased::LeasedSemaphore;
pub use permit::{LeasedPermit, Permit};
pub use plain::Semaphore;
pub use stanchion_client::{
    AbandonedHold, Acquire, AcquireError, AcquireOptions, Acquiring, Background, Client,
    ClientConfig, ConfigError, ConnectError, Ended, Error, Event, Events, FreeBy, Guard, HoldMode,
    IdleExpiry, InvalidDuration, InvalidLease, InvalidName, Lease, LeaseLost, LostReason, Moment,
    Name, NameHolder, NameRule, NameState, Outage, Owner, QueryError, Rejection, ReleaseError,
    ReleaseRequest, RenewError, Renewal, Secret, ServerInfo, ServerRejection, ServerUrl,
    ShutdownReport, WireOwner,
};
pub use status::{HeldPermit, LeasedStatus, PermitHolder, SemaphoreStatus};

/// The program of the README, as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
