//! Several distributed synchronizers as one, all or nothing, on Redis and Valkey.
//!
//! ```
//! use std::time::Duration;
//! use stanchion_lock::{Client, Lock};
//! use stanchion_multilock::MultiLock;
//!
//! # async fn transfer() {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = "memory://multilock-doc";
//! let client = Client::connect(url).await?; // redis://…
//! let (alice, bob) = (Lock::new(&client, "account:alice")?, Lock::new(&client, "account:bob")?);
//! let both = MultiLock::new([&alice, &bob])?; // in any order
//! let guard = both.acquire_timeout(Duration::from_secs(5)).await?;
//! guard.run(transfer()).await?; // dropped in time if either is lost
//! guard.release().await?;
//! # Ok(())
//! # }
//! ```
//!
//! Two tasks that take the same names never deadlock, in any order of the names.

mod guard;
mod members;
mod multilock;
mod origin;
/// The scripts, for tests that run them directly: a test runs the text that a client sends.
#[doc(hidden)]
pub mod scripts;

pub use guard::MultiGuard;
pub use members::InvalidMembers;
pub use multilock::{MultiDanger, MultiLock};
pub use stanchion_client::{
    Acquire, AcquireError, AcquireOptions, Acquiring, Background, Client, ClientConfig,
    ConfigError, ConnectError, Ended, Error, FencingToken, FreeBy, Guard, InvalidLease,
    InvalidName, Lease, LeaseLost, Lockable, LostReason, Moment, Name, NameRule, Outage,
    QueryError, Rejection, ReleaseError, ReleaseRequest, RenewError, Renewal, Secret, ServerInfo,
    ServerRejection, ServerUrl, ShutdownReport,
};

/// The program of the README, as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
