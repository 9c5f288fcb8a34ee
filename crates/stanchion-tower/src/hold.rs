//! The layers that hold something while the handler runs: a lock, or a permit.

use std::fmt;
use std::pin::{Pin, pin};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::task::{Context, Poll};
use std::time::Duration;

use http::request::Parts;
use http::{Request, Response};
use stanchion_client::primitive::{Handle, timeout};
use stanchion_client::{
    Acquire, AcquireError, AcquireOptions, Client, FencingToken, Guard, InvalidName, Name, Outage,
};
use stanchion_lock::Lock;
use stanchion_semaphore::LeasedSemaphore;
use tower_layer::Layer;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::refusal::{Form, Refusal, after};
use crate::target::identified;

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

/// The longest time for which a response waits for the release: some round trips, and less than a client notices.
const RELEASING: Duration = Duration::from_millis(100);

/// Releases before the response is sent, so that the client's next request finds the lock free in all processes. A server that does not answer
/// delays no response: the release continues in the background (P3).
pub(crate) async fn release(guard: Arc<Guard>, outage: Option<Outage>) {
    // If work that outlives the handler reads the state right now, the guard is released when that read ends.
    if let Ok(guard) = Arc::try_unwrap(guard)
        && outage.is_none()
        && let Some(Err(error)) = timeout(RELEASING, pin!(guard.release())).await
    {
        tracing::warn!(%error, "the release after a request failed");
    }
}

type LockOf = dyn Fn(&Parts) -> Result<Option<Box<dyn Acquire>>, InvalidName> + Send + Sync;

/// Boxes what `lock_of` returns.
fn boxed<L: Acquire + 'static>(
    lock_of: impl Fn(&Parts) -> Result<Option<L>, InvalidName> + Send + Sync + 'static,
) -> Arc<LockOf> {
    Arc::new(move |parts| {
        let lock = lock_of(parts)?;
        Ok(lock.map(|lock| Box::new(lock) as Box<dyn Acquire>))
    })
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock,
    Permit,
}

/// The settings of both layers.
#[derive(Clone)]
struct Settings {
    lock_of: Arc<LockOf>,
    kind: Kind,
    wait: Option<Duration>,
    fails_open: bool,
}

impl Settings {
    fn new(kind: Kind, lock_of: Arc<LockOf>) -> Self {
        Self {
            lock_of,
            kind,
            wait: None,
            fails_open: false,
        }
    }

    /// One response for one condition: a request that has waited gets the same status.
    fn busy(&self) -> Refusal {
        let retry_after = after(self.wait);
        match self.kind {
            Kind::Lock => Refusal::Busy { retry_after },
            Kind::Permit => Refusal::Full { retry_after },
        }
    }

    /// Acquires what a request needs; `None` if the layer is open in an outage.
    async fn acquire(&self, lock: &dyn Acquire) -> Result<Option<Guard>, Refusal> {
        if let Some(outage) = lock.outage() {
            return self.without(outage);
        }
        let Some(wait) = self.wait else {
            return match lock.try_acquire().await {
                Ok(Some(guard)) => Ok(Some(guard)),
                Ok(None) => Err(self.busy()),
                Err(error) => self.failed(error),
            };
        };
        let queued = Arc::new(AtomicBool::new(false));
        let noted = Arc::clone(&queued);
        // Relaxed: the flag orders nothing else.
        let options = AcquireOptions::new()
            .timeout(wait)
            .on_queued(move || noted.store(true, Ordering::Relaxed));
        match lock.acquire_with(options).await {
            Ok(guard) => Ok(Some(guard)),
            // P8: without a reply no holder is known, and a reply to a waiting request is not expected while the client is disconnected.
            Err(error @ AcquireError::TimedOut { .. })
                if !queued.load(Ordering::Relaxed) || lock.outage().is_some() =>
            {
                self.without(error)
            }
            Err(error) => self.failed(error),
        }
    }

    fn failed(&self, error: AcquireError) -> Result<Option<Guard>, Refusal> {
        match error {
            AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. } => {
                self.without(error)
            }
            error => Err(Refusal::of_acquire(&error, self.busy())),
        }
    }

    /// The outcome of an outage.
    fn without(&self, reason: impl fmt::Display) -> Result<Option<Guard>, Refusal> {
        if self.fails_open {
            tracing::warn!(%reason, "a request goes on without its {}", match self.kind {
                Kind::Lock => "lock",
                Kind::Permit => "permit",
            });
            return Ok(None);
        }
        Err(Refusal::Unavailable.because(reason))
    }
}

/// Runs at most one request at a time for each key, in all processes.
///
/// A closure returns the key of a request, and the layer holds the [`Lock`] `<namespace>:<key>`. `None` lets the request pass without a lock.
/// With [`by`](Self::by), the closure returns the lock itself. The lock is held until the handler has returned its response. The body of the
/// response is sent after that.
///
/// ```
/// use stanchion_tower::{Client, OneAtATimeLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://one-at-a-time-layer").await?; // redis://…
/// let layer = OneAtATimeLayer::new(&client, "accounts", |parts| match parts.method.is_safe() {
///     true => None, // reads run concurrently
///     false => Some(parts.uri.path().to_owned()),
/// })?;
/// # let _ = axum::Router::<()>::new().layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// * No request passes without its lock, unless [`fail_open`](Self::fail_open) allows it. If the server is not reachable, the response is
///   [`Refusal::Unavailable`], and at once if the client knows that it is disconnected.
/// * For the closure, `parts.uri` is the URI that the client sent, also in a nested router, and its path has one spelling: see
///   [the crate](crate#keys).
/// * The handler finds its [`Locked`] in the request's extensions.
/// * If the lock is lost, the handler is dropped at an await point (P5), and the response is [`Refusal::Lost`]. If the loss is noticed
///   only at the release, the response of the handler is sent.
/// * The client's next request finds the lock free. The response waits for that for at most 100 ms, and not at all if the client knows that it
///   is disconnected.
/// * Readiness is that of the inner service: it never waits for the server.
///
/// # Cancel safety
/// A request that is dropped leaves nothing (P3): its lock, or its place among the waiters, is released in the background.
///
/// # On the wire
/// The acquire and the release of the lock.
#[derive(Clone)]
pub struct OneAtATimeLayer(Settings);

impl OneAtATimeLayer {
    /// Returns a layer that holds the lock `<namespace>:<key>`, with the key that `key_of` returns for a request. If another request has it,
    /// the response is 409, [`Refusal::Busy`]. If the name is too long or otherwise invalid, the response is 400.
    ///
    /// The namespace separates the resources of this layer from those of other layers: two layers with one namespace share their locks.
    ///
    /// # Errors
    /// [`InvalidName`]: the namespace is no name, or contains `:`.
    pub fn new<K: AsRef<[u8]>>(
        client: &Client,
        namespace: &str,
        key_of: impl Fn(&Parts) -> Option<K> + Send + Sync + 'static,
    ) -> Result<Self, InvalidName> {
        let namespace = Handle::of(client).namespace(namespace)?;
        let client = client.clone();
        Ok(Self::by(move |parts| {
            let name = key_of(parts).map(|key| namespace.of(key));
            name.map(|name| Lock::new(&client, name)).transpose()
        }))
    }

    /// Returns a layer that holds the lock that `lock_of` returns for a request: a lock of another kind, such as one side of a read-write
    /// lock, or one whose name other programs use. Anything that is [acquired](Acquire) can be the lock.
    ///
    /// ```
    /// use stanchion_tower::{Client, Lock, OneAtATimeLayer};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// let client = Client::connect("memory://one-at-a-time-layer-by").await?; // redis://…
    /// let imports = Lock::new(&client, "imports")?; // a nightly job has it, too
    /// let layer = OneAtATimeLayer::by(move |_| Ok(Some(imports.clone())));
    /// # let _ = axum::Router::<()>::new().layer(layer);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn by<L: Acquire + 'static>(
        lock_of: impl Fn(&Parts) -> Result<Option<L>, InvalidName> + Send + Sync + 'static,
    ) -> Self {
        Self(Settings::new(Kind::Lock, boxed(lock_of)))
    }

    /// Returns the same layer with requests that wait for their lock, for at most this time. `Retry-After` then has this time, too.
    /// Default: no request waits.
    #[must_use]
    pub fn wait(mut self, most: Duration) -> Self {
        self.0.wait = Some(most);
        self
    }

    /// Returns the same layer with requests that pass **without a lock** while the server is out of reach: their handlers run
    /// concurrently, and find no [`Locked`]. For work that is only wasted if it is done twice. Default: the response is 503.
    ///
    /// A request passes at once if the client knows that it is disconnected, otherwise when its [`wait`](Self::wait) or the operation timeout
    /// has ended without a reply. If the server granted the lock after all, it is released (P3).
    #[must_use]
    pub fn fail_open(mut self) -> Self {
        self.0.fails_open = true;
        self
    }
}

/// Runs at most n requests at a time, in all processes: each holds a permit of a [`LeasedSemaphore`].
///
/// The permit is held until the handler has returned its response. The body of the response is sent after that. If a process dies, its permits
/// are free after their leases.
///
/// ```
/// use stanchion_tower::{Client, ConcurrencyLayer, LeasedSemaphore};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://concurrency-layer").await?; // redis://…
/// let reports = LeasedSemaphore::new(&client, "reports")?;
/// reports.init(20).await?; // once; later calls change nothing
/// let layer = ConcurrencyLayer::new(reports);
/// # let _ = axum::Router::<()>::new().layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// # Guarantees
/// * No request passes without a permit, unless [`fail_open`](Self::fail_open) allows it. If the server is not reachable, the response is
///   [`Refusal::Unavailable`], and at once if the client knows that it is disconnected.
/// * If the permit is lost, the handler is dropped at an await point (P5), and the response is [`Refusal::Lost`].
/// * The response waits for the release of the permit for at most 100 ms, and not at all if the client knows that it is disconnected.
/// * Readiness is that of the inner service: it never waits for the server.
///
/// # Cancel safety
/// A request that is dropped leaves nothing (P3): its permit, or its place among the waiters, is released in the background.
///
/// # On the wire
/// The acquire and the release of a permit.
#[derive(Clone)]
pub struct ConcurrencyLayer(Settings);

impl ConcurrencyLayer {
    /// Returns a layer that holds a permit of `semaphore` for each request. If none is free, the response is 503 with `Retry-After: 1`,
    /// [`Refusal::Full`].
    #[must_use]
    pub fn new(semaphore: LeasedSemaphore) -> Self {
        Self::by(move |_| Ok(Some(semaphore.clone())))
    }

    /// Returns a layer that holds a permit of the semaphore that `semaphore_of` returns for a request; `None` lets the request pass without
    /// a permit. A name that is made from the request may be invalid: then the response is 400. For the closure, `parts.uri` is the
    /// URI that the client sent: see [the crate](crate#keys).
    #[must_use]
    pub fn by(
        semaphore_of: impl Fn(&Parts) -> Result<Option<LeasedSemaphore>, InvalidName>
        + Send
        + Sync
        + 'static,
    ) -> Self {
        Self(Settings::new(Kind::Permit, boxed(semaphore_of)))
    }

    /// Returns the same layer with requests that wait for a permit, for at most this time. `Retry-After` then has this time, too.
    /// Default: no request waits.
    #[must_use]
    pub fn wait(mut self, most: Duration) -> Self {
        self.0.wait = Some(most);
        self
    }

    /// Returns the same layer with requests that pass, without a permit, while the server is out of reach: their number is then unlimited.
    /// Default: the response is 503. A request passes at the same moment as with [`OneAtATimeLayer::fail_open`].
    #[must_use]
    pub fn fail_open(mut self) -> Self {
        self.0.fails_open = true;
        self
    }
}

/// The service of a [`OneAtATimeLayer`] or a [`ConcurrencyLayer`].
#[derive(Clone)]
pub struct HoldService<S> {
    inner: S,
    settings: Settings,
}

macro_rules! layers {
    ($($layer:ident),*) => { $(
        impl fmt::Debug for $layer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($layer))
                    .field("wait", &self.0.wait)
                    .field("fails_open", &self.0.fails_open)
                    .finish_non_exhaustive()
            }
        }

        impl<S> Layer<S> for $layer {
            type Service = HoldService<S>;

            fn layer(&self, inner: S) -> Self::Service {
                let settings = self.0.clone();
                HoldService { inner, settings }
            }
        }
    )* };
}

layers!(OneAtATimeLayer, ConcurrencyLayer);

impl<S: fmt::Debug> fmt::Debug for HoldService<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldService")
            .field("inner", &self.inner)
            .finish_non_exhaustive()
    }
}

impl<S, A, B> Service<Request<A>> for HoldService<S>
where
    A: Send + 'static,
    B: Send + 'static,
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
{
    type Response = Response<ResponseBody<B>>;
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
        let form = Form::of(&parts.headers);
        let settings = self.settings.clone();
        let lock = identified(&mut parts, |parts| (settings.lock_of)(parts));
        Box::pin(async move {
            let acquired = match lock {
                Ok(None) => None,
                Ok(Some(lock)) => match settings.acquire(&*lock).await {
                    Ok(guard) => guard.map(|guard| (lock, Arc::new(guard))),
                    Err(refusal) => return Ok(refusal.response(&form)),
                },
                Err(error) => return Ok(Refusal::InvalidName.because(error).response(&form)),
            };
            let Some((lock, guard)) = acquired else {
                let response = ready.call(Request::from_parts(parts, body)).await;
                return response.map(|response| response.map(ResponseBody::inner));
            };
            // Of a permit there is nothing that a handler needs.
            if settings.kind == Kind::Lock {
                parts.extensions.insert(Locked::of(&guard));
            }
            let work = async { ready.call(Request::from_parts(parts, body)).await };
            let result = match guard.run(work).await {
                Ok(result) => result,
                Err(lost) => return Ok(Refusal::Lost.because(lost).response(&form)),
            };
            release(guard, lock.outage()).await;
            result.map(|response| response.map(ResponseBody::inner))
        })
    }
}
