//! The layer that limits the rate of requests.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use http::header::HeaderMap;
use http::request::Parts;
use http::{HeaderName, Request, Response};
use stanchion_client::primitive::Handle;
use stanchion_client::{Client, InvalidName};
use stanchion_limiter::{Grant, Limit, LimitError, Limited, Limiting, TokenBucket};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::refusal::{Form, Refusal, seconds};
use crate::target::identified;

pub(crate) const LIMIT: HeaderName = HeaderName::from_static("ratelimit-limit");
pub(crate) const REMAINING: HeaderName = HeaderName::from_static("ratelimit-remaining");
pub(crate) const RESET: HeaderName = HeaderName::from_static("ratelimit-reset");

/// A request to a limiter. Its error is that of the limiter, with true if the server is out of reach.
type Asked = Pin<Box<dyn Future<Output = Result<Grant, (LimitError, bool)>> + Send>>;
type LimiterOf =
    dyn Fn(&Parts, Option<Duration>) -> Result<Option<Asked>, InvalidName> + Send + Sync;

/// Lets requests pass at a rate, over all processes: for each user, for each address, or one rate for all.
///
/// A closure returns the key of a request, and the layer takes a permit from the [`TokenBucket`] `<namespace>:<key>`. `None` lets the request
/// pass without a limit. With [`by`](Self::by), the closure returns the limiter itself. Outside of HTTP there is
/// [`LimitLayer`](stanchion_limiter::LimitLayer).
///
/// ```
/// use stanchion_tower::{Client, Limit, RateLimitLayer};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://rate-limit-layer").await?; // redis://…
/// let limit = Limit::new("100/m".parse()?, 20)?;
/// let layer = RateLimitLayer::new(&client, "api", limit, |parts| {
///     // In your program: the caller that the authentication has put into `parts.extensions`.
///     Some(parts.headers.get("x-user").map_or(Vec::new(), |user| user.as_bytes().to_vec()))
/// })?;
/// # let _ = axum::Router::<()>::new().layer(layer);
/// # Ok(())
/// # }
/// ```
///
/// # Headers
/// A response has the limit, the permits that are left, and the seconds until all permits are free, as `RateLimit-Limit`,
/// `RateLimit-Remaining` and `RateLimit-Reset`. Of several layers the one with the fewest permits left sets them. A request over the limit gets 429
/// with the exact time as `Retry-After`, [`Refusal::Limited`].
///
/// # Guarantees
/// * No request passes without a permit, unless [`fail_open`](Self::fail_open) allows it. If the server is not reachable, the response is
///   [`Refusal::Unavailable`], and at once if the client knows that it is disconnected.
/// * For the closure, `parts.uri` is the URI that the client sent, also in a nested router: see [the crate](crate#keys).
/// * Readiness is that of the inner service: it never waits for the server.
///
/// # Cancel safety
/// A request that is dropped before it passed gives back its permit or booking (P3).
///
/// # On the wire
/// One script for each request that has a limiter.
#[derive(Clone)]
pub struct RateLimitLayer {
    limiter_of: Arc<LimiterOf>,
    wait: Option<Duration>,
    fails_open: bool,
}

impl RateLimitLayer {
    /// Returns a layer that takes one permit from the bucket `<namespace>:<key>` with this limit, for the key that `key_of` returns for a
    /// request. If the name is too long or otherwise invalid, the response is 400.
    ///
    /// The namespace separates the buckets of this layer from those of other layers: two layers with one namespace share them.
    ///
    /// # Errors
    /// [`InvalidName`]: the namespace is no name, or contains `:`.
    pub fn new<K: AsRef<[u8]>>(
        client: &Client,
        namespace: &str,
        limit: impl Into<Limit>,
        key_of: impl Fn(&Parts) -> Option<K> + Send + Sync + 'static,
    ) -> Result<Self, InvalidName> {
        let namespace = Handle::of(client).namespace(namespace)?;
        let (client, limit) = (client.clone(), limit.into());
        Ok(Self::by(move |parts| {
            let name = key_of(parts).map(|key| namespace.of(key));
            name.map(|name| TokenBucket::new(&client, name, limit))
                .transpose()
        }))
    }

    /// Returns a layer that takes one permit from the limiter that `limiter_of` returns for a request: one with several limits, a
    /// [`RateLimiter`](stanchion_limiter::RateLimiter), or one whose name other programs use. A name that is made from the request may be
    /// invalid: then the response is 400.
    #[must_use]
    pub fn by<L: Limiting>(
        limiter_of: impl Fn(&Parts) -> Result<Option<L>, InvalidName> + Send + Sync + 'static,
    ) -> Self {
        Self {
            limiter_of: Arc::new(move |parts, wait| {
                let asked = limiter_of(parts)?.map(|limiter| limiter.ask(wait));
                Ok(asked.map(|asked| -> Asked {
                    Box::pin(async move { asked.await.map_err(|it| (it.error, it.outage)) })
                }))
            }),
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

    /// Returns the same layer with requests that pass, unlimited, while the server is out of reach. Default: the response is 503. See
    /// [`LimitLayer::fail_open`](stanchion_limiter::LimitLayer::fail_open).
    #[must_use]
    pub fn fail_open(mut self) -> Self {
        self.fails_open = true;
        self
    }
}

impl fmt::Debug for RateLimitLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RateLimitLayer")
            .field("wait", &self.wait)
            .field("fails_open", &self.fails_open)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for RateLimitLayer {
    type Service = RateLimitService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        RateLimitService { inner, layer }
    }
}

/// The service of a [`RateLimitLayer`].
#[derive(Clone, Debug)]
pub struct RateLimitService<S> {
    inner: S,
    layer: RateLimitLayer,
}

/// The content of the headers.
struct Facts {
    limit: u32,
    remaining: u32,
    reset_after: Duration,
}

impl From<&Grant> for Facts {
    fn from(grant: &Grant) -> Self {
        Self {
            limit: grant.limit(),
            remaining: grant.remaining(),
            reset_after: grant.reset_after(),
        }
    }
}

impl From<Limited> for Facts {
    fn from(limited: Limited) -> Self {
        Self {
            limit: limited.limit,
            remaining: limited.remaining,
            reset_after: limited.reset_after,
        }
    }
}

impl Facts {
    fn write(&self, headers: &mut HeaderMap) {
        let inner = headers.get(REMAINING).and_then(|it| it.to_str().ok());
        // The limit of an inner layer that is reached sooner is the one that the client needs.
        if inner.is_some_and(|it| it.parse().is_ok_and(|left: u32| left < self.remaining)) {
            return;
        }
        headers.insert(LIMIT, self.limit.into());
        headers.insert(REMAINING, self.remaining.into());
        headers.insert(RESET, seconds(self.reset_after).into());
    }
}

impl RateLimitLayer {
    /// Takes a permit; `None` if the layer is open in an outage.
    async fn pass(&self, asked: Asked) -> Result<Option<Grant>, (Refusal, Option<Facts>)> {
        let (error, outage) = match asked.await {
            Ok(grant) => return Ok(Some(grant)),
            Err(failed) => failed,
        };
        match error {
            LimitError::TimedOut {
                limited: Some(limited),
                ..
            } => {
                let retry_after = limited.retry_after_secs();
                Err((Refusal::Limited { retry_after }, Some(limited.into())))
            }
            error if outage && self.fails_open => {
                tracing::warn!(%error, "a request goes on unlimited");
                Ok(None)
            }
            // A wait that ended without an answer is an outage: a limiter answers at once.
            error => {
                let error = error.into();
                Err((Refusal::of_acquire(&error, Refusal::Unavailable), None))
            }
        }
    }
}

impl<S, A, B> Service<Request<A>> for RateLimitService<S>
where
    A: Send + 'static,
    B: Send + 'static,
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
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
        let layer = self.layer.clone();
        let asked = identified(&mut parts, |parts| (layer.limiter_of)(parts, layer.wait));
        Box::pin(async move {
            let passed = match asked {
                Ok(None) => Ok(None),
                Ok(Some(asked)) => layer.pass(asked).await,
                Err(error) => Err((Refusal::InvalidName.because(error), None)),
            };
            let (facts, mut response) = match passed {
                // No await between the grant and the call, so a permit that was taken is used.
                Ok(grant) => {
                    let facts = grant.as_ref().map(Facts::from);
                    let response = ready.call(Request::from_parts(parts, body)).await?;
                    (facts, response.map(ResponseBody::inner))
                }
                Err((refusal, facts)) => (facts, refusal.response(&form)),
            };
            if let Some(facts) = facts {
                facts.write(response.headers_mut());
            }
            Ok(response)
        })
    }
}
