//! Distributed semaphores on Redis and Valkey, wire-compatible with Redisson.
//!
//! | | [`Semaphore`] | [`LeasedSemaphore`] |
//! |---|---|---|
//! | Redisson's | `RSemaphore` | `RPermitExpirableSemaphore` |
//! | a permit | is held until it is released | has an id and a lease, which the watchdog renews |
//! | its holder dies | it is lost until an operator [returns it](SemaphoreDanger::reclaim) | it comes back when its lease ends |
//! | commands of a cycle | 2 | 2, and renewals |
//!
//! Take [`LeasedSemaphore`] unless a holder that was paused for longer than its lease must never share with others by
//! mistake, or Java processes use an `RSemaphore` of that name.
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
//! downloads.init(8).await?; // the first to come sets the number
//! let permit = downloads.acquire_timeout(Duration::from_secs(5)).await?;
//! permit.run(async { /* download */ }).await?; // dropped in time if the permit is lost
//! permit.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! # Who is served
//! In a process waiters are served first come, first served, whatever they ask for: a request for many permits keeps
//! those behind it back, as tokio's semaphore does, unless it cannot be served as things are. Between processes whoever asks first gets what is free, with one
//! exception: a request for more than one permit that waits stands in a line on the server, and permits are kept back
//! for the first in that line. See [`Semaphore::acquire_many`] for what that promises.

mod danger;
mod ids;
mod keys;
mod leased;
mod permit;
mod plain;
mod pool;
mod scripts;
mod status;

pub use danger::{LeasedDanger, SemaphoreDanger};
pub use ids::{InvalidPermitId, PermitId};
pub use leased::LeasedSemaphore;
pub use permit::{LeasedPermit, Permit};
pub use plain::Semaphore;
pub use stanchion_core::{
    AbandonedHold, Acquire, AcquireError, AcquireOptions, Acquiring, Background, Client,
    ClientConfig, ConfigError, ConnectError, Ended, Error, Guard, InvalidLease, InvalidName, Lease,
    LeaseLost, LostReason, Moment, Name, NameRule, Outage, Owner, QueryError, Rejection,
    ReleaseError, RenewError, Renewal, Secret, ServerInfo, ServerRejection, ServerUrl,
    ShutdownReport, WireOwner,
};
pub use status::{HeldPermit, LeasedStatus, PermitHolder, SemaphoreStatus};

/// The program of the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
