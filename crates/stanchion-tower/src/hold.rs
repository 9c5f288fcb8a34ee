//! The layers that hold something while the handler runs: a lock, or a permit.

use std::fmt;
use std::pin::Pin;
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response};
use stanchion_client::{Acquire, AcquireError, FencingToken, Guard, InvalidName, Name};
use stanchion_semaphore::LeasedSemaphore;
use tower_layer::Layer;
use tower_service::Service;

use crate::refusal::Refusal;

/// The lock of a request, as the handler sees it: [`OneAtATimeLayer`] puts it into the request's extensions. Cheap to clone. A clone does
/// not keep the lock held.
#[derive(Clone, Debug)]
pub struct Locked {
    name: Name,
    token: Option<FencingToken>,
    guard: Weak<Guard>,
}

impl Locked {
    pub(crate) fn of(guard: &Arc<Guard>) -> Self {
        Self {
            name: guard.name().clone(),
            token: guard.fencing_token(),
            guard: Arc::downgrade(guard),
        }
    }

    /// Returns the name of the lock, with the client's key prefix; of several locks the first.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// Returns the fencing token: send it with each write, and let the resource refuse smaller ones (P2). `None` for locks without tokens.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token
    }

    /// Returns whether the lock is still held, by the clock (P5). For work that cannot be dropped at an await point, as in
    /// `spawn_blocking`.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.guard.upgrade().is_some_and(|guard| guard.is_held())
    }
}

/// Releases before the response is sent, so that the client's next request finds the lock free.
pub(crate) async fn release(guard: Arc<Guard>) {
    // If work that outlives the handler reads the state right now, the guard is released when that read ends.
    if let Ok(guard) = Arc::try_unwrap(guard)
        && let Err(error) = guard.release().await
    {
        tracing::warn!(%error, "the release after a request is not confirmed");
    }
}

/// The settings of both layers.
struct Settings<F> {
    lock_of: Arc<F>,
    wait: Option<Duration>,
    /// The refusal of a request that does not wait.
    busy: Refusal,
}

impl<F> Settings<F> {
    fn new(lock_of: F, busy: Refusal) -> Self {
        Self {
            lock_of: Arc::new(lock_of),
            wait: None,
            busy,
        }
    }
}

impl<F> Clone for Settings<F> {
    fn clone(&self) -> Self {
        Self {
            lock_of: Arc::clone(&self.lock_of),
            ..*self
        }
    }
}

/// Runs at most one request at a time for each key, in all processes.
///
/// A closure returns the lock of a request: a [`Lock`](stanchion_lock::Lock), or anything else that is [acquired](Acquire), such as one
/// side of a read-write lock. `None` lets the request pass without a lock. The lock is held until the handler has returned its response.
/// The body of the response is sent after that.
///
/// ```
/// use stanchion_tower::{Client, Lock, OneAtATimeLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://one-at-a-time-layer").await?; // redis://…
/// let layer = OneAtATimeLayer::new(move |parts| match parts.method.is_safe() {
///     true => Ok(None), // reads run concurrently
///     false => Ok(Some(Lock::new(&client, parts.uri.path())?)),
/// });
/// # let _ = axum::Router::<()>::new().layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// * No request passes without its lock. If the server is not reachable, the response is [`Refusal::Unavailable`].
/// * The handler finds its [`Locked`] in the request's extensions.
/// * If the lock is lost, the handler is dropped at an await point (P5), and the response is [`Refusal::Lost`]. If the loss is noticed
///   only at the release, the response of the handler is sent.
/// * Readiness is that of the inner service: it never waits for the server.
///
/// # Cancel safety
/// A request that is dropped leaves nothing (P3): its lock, or its place among the waiters, is released in the background.
///
/// # On the wire
/// The acquire and the release of the lock.
pub struct OneAtATimeLayer<F>(Settings<F>);

impl<F> OneAtATimeLayer<F> {
    /// Returns a layer that holds the lock that `lock_of` returns for a request. If it is held elsewhere, the response is 409,
    /// [`Refusal::Busy`]. A name that is made from the request may be invalid: then the response is 400.
    #[must_use]
    pub fn new<L>(lock_of: F) -> Self
    where
        F: Fn(&Parts) -> Result<Option<L>, InvalidName>,
        L: Acquire,
    {
        Self(Settings::new(lock_of, Refusal::Busy))
    }

    /// Returns the same layer with requests that wait for their lock, for at most this time. After it the response is 503 with
    /// `Retry-After`, [`Refusal::Full`]. Default: no request waits.
    #[must_use]
    pub fn wait(mut self, most: Duration) -> Self {
        self.0.wait = Some(most);
        self
    }
}

/// Runs at most n requests at a time, in all processes: each holds a permit of a [`LeasedSemaphore`].
///
/// A closure returns the semaphore of a request; `None` lets the request pass without a permit. The permit is held until the handler has
/// returned its response. The body of the response is sent after that. If a process dies, its permits are free after their leases.
///
/// ```
/// use stanchion_tower::{Client, ConcurrencyLayer, LeasedSemaphore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://concurrency-layer").await?; // redis://…
/// let reports = LeasedSemaphore::new(&client, "reports")?;
/// reports.init(20).await?; // once; later calls change nothing
/// let layer = ConcurrencyLayer::new(move |_| Ok(Some(reports.clone())));
/// # let _ = axum::Router::<()>::new().layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// * No request passes without a permit. If the server is not reachable, the response is [`Refusal::Unavailable`].
/// * If the permit is lost, the handler is dropped at an await point (P5), and the response is [`Refusal::Lost`].
/// * Readiness is that of the inner service: it never waits for the server.
///
/// # Cancel safety
/// A request that is dropped leaves nothing (P3): its permit, or its place among the waiters, is released in the background.
///
/// # On the wire
/// The acquire and the release of a permit.
pub struct ConcurrencyLayer<F>(Settings<F>);

impl<F> ConcurrencyLayer<F> {
    /// Returns a layer that holds a permit of the semaphore that `semaphore_of` returns for a request. If none is free, the response is
    /// 503 with `Retry-After: 1`, [`Refusal::Full`]. A name that is made from the request may be invalid: then the response is 400.
    #[must_use]
    pub fn new(semaphore_of: F) -> Self
    where
        F: Fn(&Parts) -> Result<Option<LeasedSemaphore>, InvalidName>,
    {
        Self(Settings::new(semaphore_of, Refusal::full(Duration::ZERO)))
    }

    /// Returns the same layer with requests that wait for a permit, for at most this time. `Retry-After` then has this time, too.
    /// Default: no request waits.
    #[must_use]
    pub fn wait(mut self, most: Duration) -> Self {
        self.0.wait = Some(most);
        self
    }
}

/// The service of a [`OneAtATimeLayer`] or a [`ConcurrencyLayer`].
pub struct HoldService<S, F> {
    inner: S,
    settings: Settings<F>,
}

macro_rules! layers {
    ($($layer:ident),*) => { $(
        impl<F> Clone for $layer<F> {
            fn clone(&self) -> Self {
                Self(self.0.clone())
            }
        }

        impl<F> fmt::Debug for $layer<F> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut f = f.debug_struct(stringify!($layer));
                f.field("wait", &self.0.wait).finish_non_exhaustive()
            }
        }

        impl<S, F> Layer<S> for $layer<F> {
            type Service = HoldService<S, F>;

            fn layer(&self, inner: S) -> Self::Service {
                let settings = self.0.clone();
                HoldService { inner, settings }
            }
        }
    )* };
}

layers!(OneAtATimeLayer, ConcurrencyLayer);

impl<S: Clone, F> Clone for HoldService<S, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            settings: self.settings.clone(),
        }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for HoldService<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

/// Acquires what a request needs, and waits for at most `wait`.
async fn acquire(
    lock: impl Acquire,
    wait: Option<Duration>,
) -> Result<Option<Guard>, AcquireError> {
    match wait {
        None => lock.try_acquire().await,
        Some(most) => lock.acquire_timeout(most).await.map(Some),
    }
}

impl<S, F, L, A, B> Service<Request<A>> for HoldService<S, F>
where
    A: Send + 'static,
    B: From<Bytes> + Send + 'static,
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    F: Fn(&Parts) -> Result<Option<L>, InvalidName>,
    L: Acquire + 'static,
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
        let (mut parts, body) = request.into_parts();
        let lock = match (self.settings.lock_of)(&parts) {
            Ok(Some(lock)) => lock,
            Ok(None) => return Box::pin(ready.call(Request::from_parts(parts, body))),
            Err(_) => return Box::pin(async { Ok(Refusal::InvalidName.response()) }),
        };
        let (wait, busy) = (self.settings.wait, self.settings.busy);
        Box::pin(async move {
            let guard = match acquire(lock, wait).await {
                Ok(Some(guard)) => Arc::new(guard),
                Ok(None) => return Ok(busy.response()),
                Err(error) => {
                    let timed_out = Refusal::full(wait.unwrap_or_default());
                    return Ok(Refusal::of_acquire(&error, timed_out).response());
                }
            };
            // Of a permit there is nothing that a handler needs.
            if busy == Refusal::Busy {
                parts.extensions.insert(Locked::of(&guard));
            }
            let work = async { ready.call(Request::from_parts(parts, body)).await };
            let Ok(result) = guard.run(work).await else {
                return Ok(Refusal::Lost.response());
            };
            release(guard).await;
            result
        })
    }
}
