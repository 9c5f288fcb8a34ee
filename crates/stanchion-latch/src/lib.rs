//! A distributed count-down latch on Redis and Valkey, wire-compatible with Redisson's `RCountDownLatch`.
//!
//! A latch is armed with a count. Whoever waits goes on when the count has come down to zero: a start signal for many, or
//! a meeting point where one waits for many.
//!
//! ```no_run
//! use stanchion_latch::{Client, CountDownLatch};
//!
//! # async fn import(shard: u64) {}
//! # async fn coordinator() -> Result<(), stanchion_latch::Error> {
//! let client = Client::connect("redis://127.0.0.1/").await?;
//! let imported = CountDownLatch::new(&client, "import:2026-11")?;
//! imported.arm(16).await?; // false: somebody has armed it already
//! imported.wait().await?; // until 16 workers have counted down
//! # Ok(())
//! # }
//!
//! # async fn worker(imported: CountDownLatch) -> Result<(), stanchion_latch::Error> {
//! import(7).await;
//! let left = imported.count_down().await?; // counts once, also when the answer is lost
//! # let _ = left;
//! # Ok(())
//! # }
//! ```
//!
//! A latch belongs to nobody: it has no owner, no lease and no TTL. A worker that dies before it counts down leaves the
//! count where it is, so wait with [`CountDownLatch::wait_timeout`], or have somebody who can
//! [delete](CountDownLatch::delete) it.

mod latch;
mod scripts;

pub use latch::CountDownLatch;
pub use stanchion_core::{
    AcquireError, Background, Client, ClientConfig, ConfigError, ConnectError, Error, InvalidName,
    Name, NameRule, Outage, QueryError, Rejection, Secret, ServerInfo, ServerRejection, ServerUrl,
    ShutdownReport,
};

/// The program of the README runs.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
