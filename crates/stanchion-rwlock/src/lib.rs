//! A distributed read-write lock on Redis and Valkey, wire-compatible with Redisson's `RReadWriteLock`.
//!
//! ```no_run
//! use std::time::Duration;
//! use stanchion_rwlock::{Client, RwLock};
//!
//! # async fn show() {}
//! # async fn change(token: Option<stanchion_rwlock::FencingToken>) {}
//! # async fn example() -> Result<(), stanchion_rwlock::Error> {
//! let client = Client::connect("redis://127.0.0.1/").await?;
//! let prices = RwLock::new(&client, "prices")?;
//!
//! let reading = prices.read().await?; // beside any number of other readers
//! reading.run(show()).await?;
//! reading.release().await?;
//!
//! let writing = prices.write_timeout(Duration::from_secs(5)).await?; // alone
//! writing.run(change(writing.fencing_token())).await?; // dropped in time if the lock is lost
//! let reading = writing.downgrade().await?; // no writer comes in between
//! reading.run(show()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! No lease lock excludes a holder that is paused between its check and its write. Give [`WriteGuard::fencing_token`] to
//! the resource you write to, and let it refuse smaller ones.

mod guard;
/// With the scripts, for tests that run them directly: a test runs the text that a client sends.
#[doc(hidden)]
pub mod layout;
mod preference;
#[doc(hidden)]
pub mod read;
mod rwlock;
mod status;
#[doc(hidden)]
pub mod write;

pub use guard::{ReadGuard, Reading, WriteGuard, Writing};
pub use preference::Preference;
pub use rwlock::{RwLock, RwLockDanger, RwLockSide};
pub use stanchion_client::{
    AbandonedHold, Acquire, AcquireError, AcquireOptions, Acquiring, Asked, Background, Client,
    ClientConfig, ConfigError, ConnectError, Ended, Error, Event, Events, Fencing, FencingToken,
    FreeBy, Guard, HoldMode, InvalidLease, InvalidName, Lease, LeaseLost, Lockable, LostReason,
    Moment, Name, NameHolder, NameRule, NameState, Outage, Owner, QueryError, Reentry, Rejection,
    ReleaseError, ReleaseRequest, RenewError, Renewal, Secret, ServerInfo, ServerRejection,
    ServerUrl, ShutdownReport, WireOwner,
};
pub use status::{RwLockHolder, RwLockStatus};

/// The README's program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
