//! Distributed barriers on Redis and Valkey: n parties meet, again and again ([`CyclicBarrier`]), or enter and leave together
//! ([`DoubleBarrier`]).
//!
//! ```
//! use stanchion_barrier::{Client, CyclicBarrier};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = "memory://barrier-doc";
//! let client = Client::connect(url).await?; // redis://…
//! let checkpoint = CyclicBarrier::new(&client, "checkpoint", 2)?;
//! let (one, other) = tokio::join!(checkpoint.wait(), checkpoint.wait());
//! let (one, other) = (one?, other?);
//! assert_eq!(one.generation(), other.generation());
//! assert!(one.is_last() != other.is_last());
//! # Ok(())
//! # }
//! ```

mod arrival;
mod barrier;
mod cyclic;
mod danger;
mod double;
mod error;
mod fact;
mod inside;
mod keys;
mod meeting;
mod options;
mod round;
mod status;

pub use barrier::{CyclicBarrier, Passed};
pub use danger::BarrierDanger;
pub use double::DoubleBarrier;
pub use error::{BarrierError, BrokenBy, InvalidBarrier};
pub use inside::Inside;
pub use options::{OnLeave, WaitOptions};
pub use stanchion_client::{
    AcquireError, Background, Client, ClientConfig, ConfigError, ConnectError, Error, Event,
    Events, FreeBy, InvalidLease, InvalidName, Lease, LeaseLost, LostReason, Name, NameRule,
    NameState, Outage, QueryError, Rejection, ReleaseError, Secret, ServerInfo, ServerRejection,
    ServerUrl, ShutdownReport,
};
pub use status::{BarrierStatus, DoubleStatus};

/// The program of the README, as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
