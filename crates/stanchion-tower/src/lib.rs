//! HTTP layers for [tower](https://docs.rs/tower) and axum whose limits hold for a whole fleet, on Redis and Valkey.
//!
//! | layer | effect | a request that may not pass |
//! |---|---|---|
//! | [`OneAtATimeLayer`] | at most one request for each key, in all processes | 409, or 503 after a wait |
//! | [`IdempotencyLayer`] | a repeated request gets the response of the first one | 400, 409, 410, 413, 422 |
//! | [`ConcurrencyLayer`] | at most n requests at a time, in all processes | 503 and `Retry-After` |
//! | [`RateLimitLayer`] | at most n requests for each interval, in all processes | 429 and `Retry-After` |
//!
//! ```
//! use std::time::Duration;
//! use axum::{Extension, Router, routing::post};
//! use stanchion_tower::{Client, Lock, Locked, OneAtATimeLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("memory://tower-doc").await?; // redis://…
//! let layer = OneAtATimeLayer::new(move |parts| Ok(Some(Lock::new(&client, parts.uri.path())?)))
//!     .wait(Duration::from_secs(2));
//! let app: Router = Router::new()
//!     .route("/accounts/{id}/settle", post(|Extension(lock): Extension<Locked>| async move {
//!         format!("send {:?} with each write", lock.fencing_token())
//!     }))
//!     .layer(layer);
//! # let _ = app;
//! # Ok(())
//! # }
//! ```
//!
//! All layers are closed in an outage: a request that needs the server and gets no answer ends with 503. Its handler is not called.
//! [`RateLimitLayer::fail_open`] is the one exception, and it is off by default.
//!
//! A request whose client disconnects is dropped by the HTTP server. Its lock, claim or permit is released in the background (P3).
//!
//! The layers need a response body that can be made from [`Bytes`](bytes::Bytes), as axum's `Body` and `http_body_util::Full` can.
//! Each response that a layer makes itself has its reason in its extensions: see [`Refusal`].

mod hold;
mod idempotency;
mod limit;
mod record;
mod refusal;

pub use hold::{ConcurrencyLayer, HoldService, Locked, OneAtATimeLayer};
pub use idempotency::{Claim, IdempotencyLayer, IdempotencyService, MAX_RESPONSE_BYTES};
pub use limit::{RateLimitLayer, RateLimitService};
pub use refusal::Refusal;
pub use stanchion_client::{
    Acquire, Background, Client, ClientConfig, ConfigError, ConnectError, Error, FencingToken,
    InvalidDuration, InvalidLease, InvalidName, Lease, Name, QueryError, Secret, ServerUrl,
    ShutdownReport,
};
pub use stanchion_limiter::{InvalidQuota, Limit, Limiting, Quota, RateLimiter, TokenBucket};
pub use stanchion_lock::Lock;
pub use stanchion_semaphore::LeasedSemaphore;

/// The programs of the README and of the book's page.
#[cfg(doctest)]
mod pages {
    #[doc = include_str!("../README.md")]
    struct Readme;
}
