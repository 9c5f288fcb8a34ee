//! A distributed count-down latch on Redis and Valkey, wire-compatible with Redisson's `RCountDownLatch`.
//!
//! A latch is armed with a count, and its waiters continue when the count reaches zero: a start signal for many
//! waiters, or a meeting point where one waiter waits for many workers.
//!
//! ```
//! use stanchion_latch::{Client, CountDownLatch, QueryError};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = "memory://latch-doc";
//! let client = Client::connect(url).await?; // redis://…
//! let imported = CountDownLatch::new(&client, "import:2026-11")?;
//! imported.arm(16).await?; // false: it is armed already
//! # for _ in 0..16 { tokio::spawn(worker(imported.clone())); }
//! imported.wait().await?; // until 16 workers have counted down
//! # Ok(())
//! # }
//!
//! # async fn import() {}
//! async fn worker(imported: CountDownLatch) -> Result<(), QueryError> {
//!     import().await;
//!     let left = imported.count_down().await?; // counts once, also when the answer is lost
//!     println!("{left} to go");
//!     Ok(())
//! }
//! ```
//!
//! A latch has no owner and no lease. If a worker dies before it counts down, the count stays where it is, unless the latch is
//! [ephemeral](CountDownLatch::ephemeral): wait with
//! [`CountDownLatch::wait_timeout`], or have an operator who can [delete](LatchDanger::delete) the latch.

mod danger;
mod latch;
/// The scripts, for tests that run them directly: a test runs the text that a client sends.
#[doc(hidden)]
pub mod scripts;

pub use danger::LatchDanger;
pub use latch::CountDownLatch;
pub use stanchion_client::{
    AcquireError, AcquireOptions, Background, Client, ClientConfig, ConfigError, ConnectError,
    Error, Event, Events, FreeBy, HoldMode, IdleExpiry, InvalidDuration, InvalidName, Name,
    NameHolder, NameRule, NameState, Outage, QueryError, Rejection, Secret, ServerInfo,
    ServerRejection, ServerUrl, ShutdownReport,
};

/// The program of the README, as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
