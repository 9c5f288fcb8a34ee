//! Distributed rate limiters on Redis and Valkey, wire-compatible with Redisson's `RRateLimiter`.
//!
//! | | [`RateLimiter`] | [`TokenBucket`] |
//! |---|---|---|
//! | keeps | never more than the quota in *any* interval | a rate in the long run, with bursts; several limits at once |
//! | Redisson's | `RRateLimiter`, and the processes that use it | – |
//! | on the server | an entry for each grant of the last interval | one short string |
//! | for | the hard quota of a third-party API; mixed fleets | limits for each user, millions of names |
//!
//! ```
//! use std::time::Duration;
//! use stanchion_limiter::{Attempt, Client, Quota, RateLimiter};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = "memory://limiter-doc";
//! let client = Client::connect(url).await?; // redis://…
//! let api = RateLimiter::new(&client, "partner-api", Quota::new(100, Duration::from_secs(1))?)?;
//!
//! api.acquire().await?; // returns when a permit counts: now, or at the moment that the server has booked
//!
//! match api.try_acquire().await? {
//!     Attempt::Granted(_) => { /* go on */ }
//!     Attempt::Limited(limited) => println!("429, Retry-After: {}", limited.retry_after_secs()),
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A permit has no lease and is never lost. It is not released: it is free again one interval after it was taken. A permit that was
//! not used can be [refunded](Grant::refund).

// docs.rs builds with nightly and this cfg: the pages then show the feature of each item.
#![cfg_attr(docsrs, feature(doc_cfg))]

mod bucket;
mod danger;
mod keys;
#[cfg(feature = "tower")]
mod layer;
mod limited;
mod limiter;
mod quota;
mod request;
mod scripts;
mod status;

pub use bucket::TokenBucket;
pub use danger::LimiterDanger;
#[cfg(feature = "tower")]
pub use layer::{LayerError, LimitLayer, LimitService, Limiting};
pub use limited::{Attempt, Grant, LimitError, Limited};
pub use limiter::{QuotaScope, RateLimiter, Usage, Waiting};
pub use quota::{InvalidQuota, Limit, Quota};
pub use stanchion_client::{
    AcquireError, Background, Client, ClientConfig, ConfigError, ConnectError, Error, FreeBy,
    InvalidName, Moment, Name, NameRule, Outage, QueryError, Rejection, ReleaseError, Secret,
    ServerInfo, ServerRejection, ServerUrl, ShutdownReport,
};
pub use status::{BucketStatus, LimiterStatus};

/// The program of the README, as a doc test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
