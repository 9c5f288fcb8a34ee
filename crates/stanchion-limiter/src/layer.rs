//! A tower layer: limits requests to the rate of a limiter, which a closure selects for each request.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use stanchion_client::{AcquireError, InvalidName};
use tower_layer::Layer;
use tower_service::Service;

use crate::bucket::TokenBucket;
use crate::limited::{Attempt, Grant, LimitError, Limited};
use crate::limiter::RateLimiter;
use crate::request::Asking;

type Asked = Pin<Box<dyn Future<Output = Result<Grant, NotLet>> + Send>>;

/// The error of a request that was not let through.
#[expect(unnameable_types, reason = "only this crate's limiters can be asked")]
#[derive(Debug)]
pub struct NotLet {
    /// The reason.
    pub error: LimitError,
    /// True if the server was out of reach, false if the server or this process decided.
    pub outage: bool,
}

/// A limiter that a [`LimitLayer`] can use: a [`RateLimiter`] or a [`TokenBucket`].
pub trait Limiting: sealed::Sealed + Send + 'static {
    #[doc(hidden)]
    fn ask(&self, wait: Option<Duration>) -> Asked;
}

mod sealed {
    #[expect(unnameable_types, reason = "only this crate's limiters can be asked")]
    pub trait Sealed {}
}

macro_rules! limiting {
    ($($limiter:ty),*) => { $(
        impl sealed::Sealed for $limiter {}

        impl Limiting for $limiter {
            fn ask(&self, wait: Option<Duration>) -> Asked {
                Box::pin(let_through(self.asking(1, wait), wait))
            }
        }
    )* };
}

limiting!(RateLimiter, TokenBucket);

async fn let_through(asking: Asking, wait: Option<Duration>) -> Result<Grant, NotLet> {
    let (client, answer) = (asking.handle.clone(), Arc::clone(&asking.answer));
    let name = asking.sync.name().clone();
    if let Some(outage) = client.outage(&name) {
        return Err(NotLet {
            error: LimitError::Acquire(AcquireError::Unavailable { name, outage }),
            outage: true,
        });
    }
    let asked = match wait {
        Some(wait) => asking.acquire(Some(wait)).await,
        None => match asking.try_acquire().await {
            Ok(Attempt::Granted(grant)) => Ok(grant),
            Ok(Attempt::Limited(limited)) => Err(LimitError::TimedOut {
                name,
                waited: Duration::ZERO,
                limited: Some(limited),
                free_by: None,
            }),
            Err(error) => Err(error.into()),
        },
    };
    asked.map_err(|error| {
        let outage = match &error {
            LimitError::Acquire(
                AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. },
            ) => true,
            // Not an outage: a call that only waited behind others of its process sent nothing, and a call with a reply was not cut off.
            LimitError::TimedOut {
                limited: None,
                free_by,
                ..
            } => !client.is_connected() || free_by.is_some() && answer.last().is_none(),
            LimitError::Acquire(_) | LimitError::TimedOut { .. } => false,
        };
        NotLet { error, outage }
    })
}

/// Lets requests through at the rate of a limiter, which a closure selects for each request: by user, by address, or one for all.
///
/// A request that is not let through ends with a [`LayerError`]. You choose the response to the client, for instance one with status
/// 429 and [`retry_after_secs`](Limited::retry_after_secs) in the header `Retry-After`.
///
/// ```
/// use stanchion_limiter::{Client, InvalidName, LayerError, Limit, LimitLayer, TokenBucket};
/// # use std::convert::Infallible;
/// # use std::task::{Context, Poll};
/// # use tower_layer::Layer as _;
/// # use tower_service::Service;
/// # #[derive(Clone)] struct Api;
/// # impl Service<&'static str> for Api {
/// #     type Response = u16; type Error = Infallible; type Future = std::future::Ready<Result<u16, Infallible>>;
/// #     fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> { Poll::Ready(Ok(())) }
/// #     fn call(&mut self, _: &'static str) -> Self::Future { std::future::ready(Ok(200)) }
/// # }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://limit-layer").await?; // redis://…
/// let limit = Limit::new("1/m".parse()?, 1)?;
/// let layer = LimitLayer::new(move |user: &&'static str| -> Result<_, InvalidName> {
///     // `None`: this request is not limited.
///     Ok(Some(TokenBucket::new(&client, format!("user:{user}"), limit)?))
/// });
/// let mut api = layer.layer(Api);
/// assert_eq!(api.call("ann").await?, 200);
/// match api.call("ann").await {
///     Err(LayerError::Limited(limited)) => println!("429, Retry-After: {}", limited.retry_after_secs()),
///     other => panic!("{other:?}"),
/// }
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// No request passes without a permit, unless [`fail_open`](LimitLayer::fail_open) allows it. Readiness is that of the inner service:
/// it never waits for the server.
///
/// # Cancel safety
/// A request that is dropped before it was let through gives back its permit or booking (P3).
///
/// # On the wire
/// One script for each request that has a limiter.
pub struct LimitLayer<F> {
    limiter_of: Arc<F>,
    wait: Option<Duration>,
    fails_open: bool,
}

impl<F> LimitLayer<F> {
    /// A layer that takes one permit from the limiter that `limiter_of` returns for a request; `None` lets the request through. A
    /// name that is made from the request may be invalid: then the request ends with [`LayerError::Name`].
    #[must_use]
    pub fn new(limiter_of: F) -> Self {
        Self {
            limiter_of: Arc::new(limiter_of),
            wait: None,
            fails_open: false,
        }
    }

    /// Returns the same layer with requests that wait for at most this time. They are rejected at once if this time is too short.
    /// Default: no request waits.
    #[must_use]
    pub fn wait(mut self, most: Duration) -> Self {
        self.wait = Some(most);
        self
    }

    /// Returns the same layer with requests that pass, unlimited, while the server is out of reach. Default: they end with
    /// [`LayerError::Acquire`].
    ///
    /// A request passes if the server has not replied within the operation timeout, and at once if the connection is known to be
    /// lost. A request that may [`wait`](Self::wait) passes if that time, or the outage tolerance if it is less, has passed without a
    /// reply. If the server granted a permit after all, the permit is given back (P3). All other requests end with their error: those
    /// with an invalid name, those that the server rejects, and those that timed out behind other calls of their process.
    #[must_use]
    pub fn fail_open(mut self) -> Self {
        self.fails_open = true;
        self
    }
}

impl<F> Clone for LimitLayer<F> {
    fn clone(&self) -> Self {
        Self {
            limiter_of: Arc::clone(&self.limiter_of),
            wait: self.wait,
            fails_open: self.fails_open,
        }
    }
}

impl<F> fmt::Debug for LimitLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitLayer")
            .field("wait", &self.wait)
            .field("fails_open", &self.fails_open)
            .finish_non_exhaustive()
    }
}

impl<S, F> Layer<S> for LimitLayer<F> {
    type Service = LimitService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        LimitService {
            inner,
            layer: self.clone(),
        }
    }
}

/// The service of a [`LimitLayer`].
pub struct LimitService<S, F> {
    inner: S,
    layer: LimitLayer<F>,
}

impl<S: Clone, F> Clone for LimitService<S, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for LimitService<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LimitService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// The error of a request that did not get a response from the inner service.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LayerError<E> {
    /// The request may not pass now. Nothing was taken.
    #[error(transparent)]
    Limited(Limited),
    /// The name of the limiter is invalid.
    #[error(transparent)]
    Name(InvalidName),
    /// The request to the limiter failed.
    #[error(transparent)]
    Acquire(AcquireError),
    /// The inner service failed.
    #[error(transparent)]
    Inner(E),
}

impl<R, S, F, L> Service<R> for LimitService<S, F>
where
    R: Send + 'static,
    S: Service<R> + Clone + Send + 'static,
    S::Future: Send,
    F: Fn(&R) -> Result<Option<L>, InvalidName>,
    L: Limiting,
{
    type Response = S::Response;
    type Error = LayerError<S::Error>;
    type Future = Pin<Box<dyn Future<Output = Result<S::Response, Self::Error>> + Send>>;

    fn poll_ready(&mut self, cx: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        self.inner.poll_ready(cx).map_err(LayerError::Inner)
    }

    fn call(&mut self, request: R) -> Self::Future {
        // Call the instance that is ready; its clone may not be ready.
        let next = self.inner.clone();
        let mut ready = std::mem::replace(&mut self.inner, next);
        let asked = match (self.layer.limiter_of)(&request) {
            Ok(limiter) => limiter.map(|limiter| limiter.ask(self.layer.wait)),
            Err(error) => return Box::pin(async { Err(LayerError::Name(error)) }),
        };
        let opens = self.layer.fails_open;
        Box::pin(async move {
            if let Some(asked) = asked {
                // No await between the grant and the call, so a permit that was taken is used.
                match asked.await {
                    Ok(_used) => {}
                    Err(NotLet { error, outage }) if opens && outage => {
                        tracing::warn!(%error, "a request goes on unlimited");
                    }
                    Err(NotLet { error, .. }) => {
                        return Err(match error {
                            LimitError::TimedOut {
                                limited: Some(limited),
                                ..
                            } => LayerError::Limited(limited),
                            error => LayerError::Acquire(error.into()),
                        });
                    }
                }
            }
            ready.call(request).await.map_err(LayerError::Inner)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use stanchion_client::Client;
    use std::convert::Infallible;
    use std::future::{Ready, poll_fn, ready};

    /// Counts its calls, and panics if it is called without having been ready.
    #[derive(Debug, Default)]
    struct Inner {
        ready: bool,
        calls: Arc<std::sync::atomic::AtomicU32>,
    }

    impl Clone for Inner {
        fn clone(&self) -> Self {
            Self {
                ready: false,
                calls: Arc::clone(&self.calls),
            }
        }
    }

    impl Service<&'static str> for Inner {
        type Response = ();
        type Error = Infallible;
        type Future = Ready<Result<(), Infallible>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
            self.ready = true;
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: &'static str) -> Self::Future {
            assert!(
                std::mem::take(&mut self.ready),
                "called before it was ready"
            );
            self.calls
                .fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            ready(Ok(()))
        }
    }

    async fn ask<S: Service<&'static str>>(
        service: &mut S,
        request: &'static str,
    ) -> Result<S::Response, S::Error> {
        poll_fn(|cx| service.poll_ready(cx)).await?;
        service.call(request).await
    }

    #[tokio::test]
    async fn each_key_has_its_limit_and_no_request_passes_without_a_permit() {
        let client = Client::connect("memory://layer").await.unwrap();
        let inner = Inner::default();
        let calls = Arc::clone(&inner.calls);
        let limiter_of = move |user: &&'static str| match *user {
            "free" => Ok(None),
            user => RateLimiter::new(&client, user, "2/2s".parse().unwrap()).map(Some),
        };
        let mut service = LimitLayer::new(limiter_of).layer(inner);
        for user in ["a", "a", "b", "free", "free", "free"] {
            ask(&mut service, user).await.unwrap();
        }
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 6);
        let limited = ask(&mut service, "a").await.unwrap_err();
        assert!(matches!(limited, LayerError::Limited(it) if it.limit == 2 && it.remaining == 0));
        let odd = ask(&mut service, "").await.unwrap_err();
        assert!(matches!(odd, LayerError::Name(_)));
        // Dropped while it waits: the booking is given back, and the service was not called.
        let mut waits = service.clone();
        waits.layer = waits.layer.wait(Duration::from_secs(5));
        let dropped = tokio::time::timeout(Duration::from_millis(100), ask(&mut waits, "a"));
        assert!(dropped.await.is_err());
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 6);
        ask(&mut waits, "a").await.unwrap();
        assert_eq!(calls.load(std::sync::atomic::Ordering::Relaxed), 7);
    }
}
