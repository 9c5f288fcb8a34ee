//! HTTP layers for [tower](https://docs.rs/tower) and axum whose limits hold for a whole fleet, on Redis and Valkey.
//!
//! | layer | effect | a request that may not pass |
//! |---|---|---|
//! | [`OneAtATimeLayer`] | at most one request for each key, in all processes | 409 and `Retry-After` |
//! | [`IdempotencyLayer`] | a repeated request gets the response of the first one | 400, 409, 410, 413, 422 |
//! | [`ConcurrencyLayer`] | at most n requests at a time, in all processes | 503 and `Retry-After` |
//! | [`RateLimitLayer`] | at most n requests for each interval, in all processes | 429 and `Retry-After` |
//!
//! ```
//! use std::time::Duration;
//! use axum::{Extension, Router, routing::post};
//! use stanchion_tower::{Client, Locked, OneAtATimeLayer};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let client = Client::connect("memory://tower-doc").await?; // redis://…
//! let layer = OneAtATimeLayer::new(&client, "accounts", |parts| Some(parts.uri.path().to_owned()))?
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
//! # Keys
//! A layer identifies a resource by a key that a closure makes from the request. Two resources must not have one key, and one resource must not
//! have two:
//! * Each layer has a namespace, which is a part of all its names.
//! * In closures, `parts.uri` is the URI that the client sent. A nested router of axum removes its prefix from the path, so `/7` could be an order
//!   or a cart. The feature `axum` reads axum's `OriginalUri`; it is on by default. A router of another framework that removes prefixes needs a
//!   layer, with a namespace, for each nested router.
//! * The path in closures has one spelling: `/orders/%37` is `/orders/7`, as for a router that decodes it.
//!
//! # Outages
//! All layers are closed in an outage: a request that needs the server and gets no answer ends with 503, and its handler is not called. While
//! the client knows that it is disconnected, this takes no time. `fail_open` of a layer lets requests pass instead. [`IdempotencyLayer`] has no
//! such method.
//!
//! A request whose client disconnects is dropped by the HTTP server. Its lock, claim or permit is released in the background (P3).
//!
//! # Responses
//! Each response that a layer makes itself has its reason in its extensions: see [`Refusal`]. For gRPC it has a status of gRPC. The body of a
//! response is a [`ResponseBody`]. [`IdempotencyLayer`] reads the body of a request: its type must be made from [`Bytes`](bytes::Bytes), as axum's
//! `Body` and `http_body_util::Full` are.

mod body;
mod hold;
mod idempotency;
mod key;
mod limit;
mod record;
mod refusal;
mod target;

pub use body::ResponseBody;
pub use hold::{ConcurrencyLayer, HoldService, Locked, OneAtATimeLayer};
pub use idempotency::{Claim, IdempotencyLayer, IdempotencyService, MAX_RESPONSE_BYTES};
pub use limit::{RateLimitLayer, RateLimitService};
pub use refusal::Refusal;
pub use stanchion_client::{
    Acquire, Background, Client, ClientConfig, ConfigError, ConnectError, Error, FencingToken,
    InvalidLease, InvalidName, Lease, Name, Outage, QueryError, Secret, ServerUrl, ShutdownReport,
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
