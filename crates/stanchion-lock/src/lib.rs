//! A distributed reentrant lock on Redis and Valkey, wire-compatible with Redisson's `RLock`.
//!
//! ```no_run
//! use std::time::Duration;
//! use stanchion_lock::{Client, Lock};
//!
//! # async fn settle(token: Option<stanchion_lock::FencingToken>) {}
//! # async fn example() -> Result<(), stanchion_lock::Error> {
//! let client = Client::connect("redis://127.0.0.1/").await?;
//! let orders = Lock::new(&client, "orders")?;
//! let guard = orders.acquire_timeout(Duration::from_secs(5)).await?;
//! guard.run(settle(guard.fencing_token())).await?; // dropped in time if the lock is lost
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! No lease lock excludes a holder that is paused between its check and its write. Give [`LockGuard::fencing_token`] to
//! the resource you write to, and let it refuse smaller ones.

mod free;
mod guard;
mod lock;
/// The scripts, for tests that run them directly: a test runs the text that a client sends.
#[doc(hidden)]
pub mod scripts;
mod status;

pub use guard::LockGuard;
pub use lock::{Danger, Lock};
pub use stanchion_client::{
    AbandonedHold, Acquire, AcquireError, AcquireOptions, Acquiring, AdoptError, Asked, Background,
    Client, ClientConfig, ConfigError, ConnectError, Ended, Error, Event, Events, Fencing,
    FencingToken, FreeBy, Guard, HoldMode, HoldTicket, InvalidLease, InvalidName, InvalidTicket,
    Lease, LeaseLost, LostReason, Moment, Name, NameHolder, NameRule, NameState, Outage, Owner,
    QueryError, Reentry, Rejection, ReleaseError, ReleaseRequest, RenewError, Renewal, Secret,
    ServerInfo, ServerRejection, ServerUrl, ShutdownReport, WireOwner,
};
pub use status::{Holder, LockStatus};

/// The README's program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
