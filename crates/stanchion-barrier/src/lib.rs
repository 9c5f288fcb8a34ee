//! A distributed cyclic barrier on Redis and Valkey: n parties meet, again and again.
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

mod barrier;
mod error;
mod scripts;

pub use barrier::{CyclicBarrier, Passed};
pub use error::BarrierError;
pub use stanchion_core::{
    AcquireError, Background, Client, ClientConfig, ConfigError, ConnectError, Error, InvalidLease,
    InvalidName, Lease, Name, NameRule, Outage, QueryError, Rejection, Secret, ServerInfo,
    ServerRejection, ServerUrl, ShutdownReport,
};

/// The program of the README, as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
