//! The layer that limits the rate of requests.

use std::convert::Infallible;
use std::fmt;
use std::future::{Ready, ready};
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use stanchion_client::InvalidName;
use stanchion_limiter::{LayerError, LimitLayer, LimitService, Limiting};
use tower_layer::Layer;
use tower_service::Service;

use crate::refusal::Refusal;

/// Lets requests pass at the rate of a limiter, which a closure returns for each request: by user, by address, or one for all.
///
/// This is [`LimitLayer`] for HTTP: it responds itself, so that the error of the service stays that of the inner service. `None` lets the
/// request pass without a limit.
///
/// ```
/// use stanchion_tower::{Client, Limit, RateLimitLayer, TokenBucket};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://rate-limit-layer").await?; // redis://…
/// let limit = Limit::new("100/m".parse()?, 20)?;
/// let layer = RateLimitLayer::new(move |parts| {
///     let user = parts.headers.get("x-user").map_or(&b"anonymous"[..], |user| user.as_bytes());
///     Ok(Some(TokenBucket::new(&client, [b"user:", user].concat(), limit)?))
/// });
/// # let _ = axum::Router::<()>::new().layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// No request passes without a permit, unless [`fail_open`](Self::fail_open) allows it. A request over the limit gets 429 with the exact
/// time as `Retry-After`, [`Refusal::Limited`]. If the server is not reachable, the response is [`Refusal::Unavailable`].
///
/// # Cancel safety
/// A request that is dropped before it passed gives back its permit or booking (P3).
///
/// # On the wire
/// One script for each request that has a limiter.
pub struct RateLimitLayer<F> {
    gate: LimitLayer<F>,
}

impl<F> RateLimitLayer<F> {
    /// Returns a layer that takes one permit from the limiter that `limiter_of` returns for a request. A name that is made from the
    /// request may be invalid: then the response is 400.
    #[must_use]
    pub fn new<L>(limiter_of: F) -> Self
    where
        F: Fn(&Parts) -> Result<Option<L>, InvalidName>,
        L: Limiting,
    {
        let gate = LimitLayer::new(limiter_of);
        Self { gate }
    }

    /// Returns the same layer with requests that wait for at most this time. See [`LimitLayer::wait`].
    #[must_use]
    pub fn wait(self, most: Duration) -> Self {
        let gate = self.gate.wait(most);
        Self { gate }
    }

    /// Returns the same layer with requests that pass, unlimited, while the server is out of reach. See [`LimitLayer::fail_open`].
    #[must_use]
    pub fn fail_open(self) -> Self {
        let gate = self.gate.fail_open();
        Self { gate }
    }
}

/// The inner service of the gate: returns the request that was let through.
#[derive(Clone, Copy, Debug)]
struct Through;

impl Service<Parts> for Through {
    type Response = Parts;
    type Error = Infallible;
    type Future = Ready<Result<Parts, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, parts: Parts) -> Self::Future {
        ready(Ok(parts))
    }
}

/// The service of a [`RateLimitLayer`].
pub struct RateLimitService<S, F> {
    inner: S,
    gate: LimitService<Through, F>,
}

impl<F> Clone for RateLimitLayer<F> {
    fn clone(&self) -> Self {
        let gate = self.gate.clone();
        Self { gate }
    }
}

impl<F> fmt::Debug for RateLimitLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RateLimitLayer").field(&self.gate).finish()
    }
}

impl<S, F> Layer<S> for RateLimitLayer<F> {
    type Service = RateLimitService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        let gate = self.gate.layer(Through);
        RateLimitService { inner, gate }
    }
}

impl<S: Clone, F> Clone for RateLimitService<S, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            gate: self.gate.clone(),
        }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for RateLimitService<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, F, L, A, B> Service<Request<A>> for RateLimitService<S, F>
where
    A: Send + 'static,
    B: From<Bytes> + Send + 'static,
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&Parts) -> Result<Option<L>, InvalidName>,
    L: Limiting,
{
    type Response = Response<B>;
    type Error = S::Error;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx)
    }

    fn call(&mut self, request: Request<A>) -> Self::Future {
        // Call the instance that is ready; its clone may not be ready.
        let next = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, next);
        let (parts, body) = request.into_parts();
        let let_through = self.gate.call(parts);
        Box::pin(async move {
            let refusal = match let_through.await {
                // No await between the grant and the call, so a permit that was taken is used.
                Ok(parts) => return ready.call(Request::from_parts(parts, body)).await,
                Err(LayerError::Limited(limited)) => Refusal::Limited {
                    retry_after: limited.retry_after_secs(),
                },
                Err(LayerError::Name(_)) => Refusal::InvalidName,
                // A wait that ended without an answer is an outage: a limiter answers at once.
                Err(LayerError::Acquire(error)) => {
                    Refusal::of_acquire(&error, Refusal::Unavailable)
                }
                Err(_) => Refusal::Unavailable,
            };
            Ok(refusal.response())
        })
    }
}
