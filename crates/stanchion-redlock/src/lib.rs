//! One lock on a quorum of independent Redis or Valkey servers.
//!
//! ```
//! use stanchion_redlock::{Client, RedLock};
//!
//! # async fn compact() {}
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let urls = ["memory://redlock-doc-1", "memory://redlock-doc-2", "memory://redlock-doc-3"];
//! let mut nodes = Vec::new();
//! for url in urls { // redis://…, three independent servers
//!     nodes.push(Client::connect(url).await?);
//! }
//! let compaction = RedLock::new(&nodes, "compaction")?;
//! if let Some(guard) = compaction.try_acquire().await? {
//!     guard.run(compact()).await?; // dropped in time if the quorum is lost
//!     guard.release().await?;
//! }
//! # Ok(())
//! # }
//! ```
//!
//! **Use it to save work, not to protect data.** The lock survives the loss of a minority of servers without a failover. It
//! assumes that clocks run at nearly the same rate and that no server restarts without its holds. It has no fencing token,
//! because a quorum of counters yields none that always grows. `docs/primitives/redlock.md` says when not to use it.

mod error;
mod guard;
mod nodes;
mod redlock;
mod round;

pub use error::{NodeOutcome, NodeReport, RedLockError};
pub use guard::RedGuard;
pub use nodes::InvalidNodes;
pub use redlock::RedLock;
pub use stanchion_client::{
    Acquire, AcquireError, AcquireOptions, Acquiring, Background, Client, ClientConfig,
    ConfigError, ConnectError, Ended, Error, FreeBy, Guard, InvalidLease, InvalidName, Lease,
    LeaseLost, LostReason, Moment, Name, NameRule, Outage, QueryError, Rejection, ReleaseError,
    ReleaseRequest, RenewError, Renewal, Secret, ServerInfo, ServerRejection, ServerUrl,
    ShutdownReport,
};

/// The program of the README, as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
