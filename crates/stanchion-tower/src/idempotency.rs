//! The layer for idempotency keys.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{Request, Response, StatusCode, response};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use stanchion_client::primitive::{Handle, bounded, timeout};
use stanchion_client::{Acquire as _, Client, FencingToken, Guard, InvalidName, Lease, QueryError};
use tower_layer::Layer;
use tower_service::Service;

use crate::body::ResponseBody;
use crate::hold::{Locked, release};
use crate::key::key_of;
use crate::record::{Encoded, Record, fingerprint};
use crate::refusal::{Form, Refusal};
use crate::target::identified;

/// The most bytes of headers and body of a response that an [`IdempotencyLayer`] stores: 64 KiB.
pub const MAX_RESPONSE_BYTES: usize = 64 * 1024;

const KEEP: Duration = Duration::from_secs(24 * 3600);
const MAX_REQUEST_BYTES: usize = 1024 * 1024;

/// The longest time for which a response waits until it is stored. A server that is this slow is about to be out of reach.
const STORING: Duration = Duration::from_secs(1);

/// The claim of an idempotency key, as the handler sees it: [`IdempotencyLayer`] puts it into the request's extensions. Cheap to clone. A
/// clone does not keep the claim.
#[derive(Clone, Debug)]
pub struct Claim {
    key: Arc<str>,
    lock: Locked,
}

impl Claim {
    /// Returns the idempotency key, without the quotes of the header.
    #[must_use]
    pub fn key(&self) -> &str {
        &self.key
    }

    /// Returns the fencing token. A later attempt with the same key has a larger token (P2): a resource that stores the token can refuse
    /// the writes of an attempt whose process was paused.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.lock.fencing_token()
    }

    /// Returns the lock that is the claim.
    #[must_use]
    pub fn lock(&self) -> &Locked {
        &self.lock
    }
}

/// Executes a request with an `Idempotency-Key` once, and responds to repetitions with the stored response.
///
/// Follows [the IETF draft](https://datatracker.ietf.org/doc/draft-ietf-httpapi-idempotency-key-header/): requests with the method `POST`
/// or `PATCH`, or another method that is not idempotent, may have a key. A closure returns the scope of a request: the authenticated caller.
/// Different callers can use the same key. Therefore put the layer inside the authentication. `None` lets the request pass, unless a
/// key is [required](Self::required).
///
/// ```
/// use axum::{Extension, Router, routing::post};
/// use stanchion_tower::{Claim, Client, IdempotencyLayer};
///
/// async fn pay(Extension(claim): Extension<Claim>, order: String) -> String {
///     // INSERT … with claim.key(), and claim.fencing_token() with each write.
///     format!("paid {order}")
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let client = Client::connect("memory://idempotency-layer").await?; // redis://…
/// let layer = IdempotencyLayer::new(&client, "shop", |parts| {
///     // In your program: the caller that the authentication has put into `parts.extensions`.
///     Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned())
/// })?;
/// let app: Router = Router::new().route("/payments", post(pay)).layer(layer.required());
/// # let _ = app;
/// # Ok(())
/// # }
/// ```
///
/// | the request | response |
/// |---|---|
/// | has a new key | that of the handler |
/// | repeats one that was processed | the stored response, with `Idempotency-Replayed: true` |
/// | repeats one that is in progress, in any process | 409 |
/// | has a known key, and another method, path, query or body | 422 |
/// | has no key, or no scope | that of the handler; 400 if the key is [required](Self::required) |
/// | has an invalid key: none of 1 to 255 visible ASCII characters, or a quoted string (RFC 8941) of such characters and spaces | 400 |
/// | has a key, and a body over 1 MiB, or [another bound](Self::max_request) | 413 |
///
/// # Guarantees
/// * While the server keeps its data, at most one attempt for a key is in progress at a time (P1), and none begins after a response
///   was stored. The handler finds its [`Claim`] in the request's extensions.
/// * A request that ends without a stored response can be repeated, and its handler runs again, with a larger fencing token: after a crash
///   of the process (once the lease has ended, default 30 s), a disconnect of the client, a panic, a response with the status 5xx,
///   408, 425 or 429 (or as [`store_if`](Self::store_if) says), or a [`Refusal`] of a layer inside.
/// * The path that counts is the one that the client sent, also in a nested router: see [the crate](crate#keys).
/// * Only the attempt that holds the claim stores a response. An attempt that has lost its claim ends with [`Refusal::Lost`]; a
///   repetition gets the response of its successor.
/// * A response over [64 KiB](MAX_RESPONSE_BYTES), or with a body of unknown length, is not stored. The server remembers that the request
///   was processed, and repetitions get 410. The handler does not run again.
/// * If the server is not reachable at the beginning, the response is [`Refusal::Unavailable`], at once if the client knows that it is
///   disconnected. The handler is not called. If the server is not reachable at the end, the response of the handler is sent after at most 1 s,
///   and the layer stores it as soon as the server is back. If the claim ends before that, a repetition runs the handler again.
///
/// The exactness of the effects is that of the handler: a crash between its write and the stored response repeats the handler. Write
/// [`Claim::key`] with a uniqueness constraint in the same transaction.
///
/// # Cancel safety
/// A request that is dropped gives its claim back in the background (P3). The effects of its handler so far stay. To let handlers end although the
/// client disconnected, run this layer in a task: see the book's page.
///
/// # On the wire
/// A new key needs four scripts: the acquire of the lock `idempotency:<digest>`, a read, the stored response, the release. A
/// repetition needs three. The response is in the hash `stanchion_done:{idempotency:<digest>}` with a TTL of 24 h, or
/// [another time](Self::keep).
#[derive(Clone)]
pub struct IdempotencyLayer {
    client: Client,
    namespace: Arc<str>,
    scope_of: Arc<ScopeOf>,
    store_if: Arc<StoreIf>,
    required: bool,
    lease: Duration,
    keep: Duration,
    max_request: usize,
}

type ScopeOf = dyn Fn(&Parts) -> Option<String> + Send + Sync;
type StoreIf = dyn Fn(&response::Parts) -> bool + Send + Sync;

impl IdempotencyLayer {
    /// Returns a layer for the requests that have a scope.
    ///
    /// The namespace separates the keys of this layer from those of other layers. Layers with one namespace share their keys: then a key that was
    /// used on one route gets 422 on another one.
    ///
    /// # Errors
    /// [`InvalidName`]: the namespace is no name, or contains `:`.
    pub fn new(
        client: &Client,
        namespace: &str,
        scope_of: impl Fn(&Parts) -> Option<String> + Send + Sync + 'static,
    ) -> Result<Self, InvalidName> {
        // One rule for the namespaces of all layers.
        Handle::of(client).namespace(namespace)?;
        Ok(Self {
            client: client.clone(),
            namespace: namespace.into(),
            scope_of: Arc::new(scope_of),
            store_if: Arc::new(is_final),
            required: false,
            lease: Lease::default().length(),
            keep: KEEP,
            max_request: MAX_REQUEST_BYTES,
        })
    }

    /// Returns the same layer with requests that need a key and a scope: otherwise the response to a request whose method is not idempotent,
    /// such as `POST`, is 400, and no handler runs without a [`Claim`]. Default: a request without a key or a scope passes.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// Returns the same layer with another rule for the responses that are stored. A request whose response is not stored can be repeated,
    /// and its handler runs again. Default: all are stored but those with the status 5xx, 408, 425 or 429. A [`Refusal`] of a layer
    /// inside is never stored.
    ///
    /// ```
    /// # use stanchion_tower::{Client, IdempotencyLayer};
    /// # fn layer(layer: IdempotencyLayer) -> IdempotencyLayer {
    /// // A 404 is not final: the account may exist at the next attempt.
    /// layer.store_if(|response| response.status.is_success())
    /// # }
    /// ```
    #[must_use]
    pub fn store_if(
        mut self,
        is_final: impl Fn(&response::Parts) -> bool + Send + Sync + 'static,
    ) -> Self {
        self.store_if = Arc::new(is_final);
        self
    }

    /// Returns the same layer with another lease of the claim: the time after which a repetition runs if the process died. Default 30 s. The
    /// claim is renewed while the handler runs. 10 ms to 30 days: otherwise requests with a key are [rejected](Refusal::Rejected).
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.lease = lease.into();
        self
    }

    /// Returns the same layer with another time for which responses are stored. Default 24 h. 1 s to 1 year: otherwise requests with a key are
    /// [rejected](Refusal::Rejected).
    #[must_use]
    pub fn keep(mut self, time: Duration) -> Self {
        self.keep = time;
        self
    }

    /// Returns the same layer with another bound for the body of a request with a key, in bytes. Default 1 MiB. The body is read into
    /// memory before the claim, for the fingerprint. A larger body is refused with 413.
    #[must_use]
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.max_request = bytes;
        self
    }
}

impl fmt::Debug for IdempotencyLayer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("namespace", &self.namespace)
            .field("required", &self.required)
            .field("lease", &self.lease)
            .field("keep", &self.keep)
            .field("max_request", &self.max_request)
            .finish_non_exhaustive()
    }
}

impl<S> Layer<S> for IdempotencyLayer {
    type Service = IdempotencyService<S>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        IdempotencyService { inner, layer }
    }
}

/// The service of an [`IdempotencyLayer`].
#[derive(Clone, Debug)]
pub struct IdempotencyService<S> {
    inner: S,
    layer: IdempotencyLayer,
}

/// Reads the body of a request, for its fingerprint.
async fn read<A>(body: A, most: usize) -> Result<Bytes, Refusal>
where
    A: Body,
    A::Error: Into<Box<dyn Error + Send + Sync>>,
{
    if usize::try_from(body.size_hint().lower()).is_ok_and(|least| least <= most) {
        match Limited::new(body, most).collect().await {
            Ok(whole) => return Ok(whole.to_bytes()),
            Err(error) if !error.is::<LengthLimitError>() => {
                tracing::debug!(%error, "the body of a request with an idempotency key ended early");
                return Err(Refusal::Unreadable);
            }
            Err(_) => {}
        }
    }
    Err(Refusal::TooLarge)
}

/// Returns whether repetitions get this response. Otherwise they run the handler again.
fn is_final(response: &response::Parts) -> bool {
    let again = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    !(response.status.is_server_error() || again.contains(&response.status))
}

/// The response to a request with a key, or the error of the inner service.
type Outcome<B, E> = Result<Response<ResponseBody<B>>, E>;

impl IdempotencyLayer {
    /// Returns the scope and the key of a request; `None` lets the request pass.
    fn wanted(&self, parts: &mut Parts) -> Result<Option<(String, String)>, Refusal> {
        // RFC 9110, 9.2.2: a client may repeat these without a key. Not a list of methods: an unknown one must not pass unclaimed.
        if parts.method.is_idempotent() {
            return Ok(None);
        }
        match identified(parts, |parts| (self.scope_of)(parts)) {
            Some(scope) => match key_of(&parts.headers)? {
                Some(key) => Ok(Some((scope, key))),
                None if self.required => Err(Refusal::KeyMissing),
                None => Ok(None),
            },
            None if self.required => {
                let key = key_of(&parts.headers)?;
                Err(key.map_or(Refusal::KeyMissing, |_| Refusal::ScopeMissing))
            }
            None => Ok(None),
        }
    }

    async fn serve<S, A, B>(
        self,
        ready: &mut S,
        scope: String,
        key: String,
        mut parts: Parts,
        body: A,
    ) -> Result<Outcome<B, S::Error>, Refusal>
    where
        A: Body + From<Bytes>,
        A::Error: Into<Box<dyn Error + Send + Sync>>,
        B: Body<Data = Bytes>,
        S: Service<Request<A>, Response = Response<B>>,
    {
        let bounds = Duration::from_secs(1)..=Duration::from_secs(365 * 86_400);
        bounded("keep", self.keep, bounds, "1s to 1 year")
            .map_err(|error| Refusal::Rejected.because(error))?;
        let record = Record::new(&self.client, &self.namespace, &scope, &key, self.lease)
            .map_err(|error| Refusal::Rejected.because(error))?;
        if let Some(outage) = record.lock.outage() {
            return Err(Refusal::Unavailable.because(outage));
        }
        // Before the claim: a client that sends slowly keeps no claim.
        let body = read(body, self.max_request).await?;
        let print = identified(&mut parts, |parts| fingerprint(parts, &body));
        let claimed = record.lock.try_acquire().await;
        let claimed = claimed.map_err(|e| Refusal::of_acquire(&e, Refusal::InProgress))?;
        // Read after the claim: the request that had the claim before stored its response first.
        let stored = record.read().await.map_err(|e| Refusal::of_query(&e))?;
        let guard = match (claimed, stored) {
            (_, Some(stored)) => return stored.replay(&print).map(Ok),
            (None, None) => return Err(Refusal::InProgress),
            (Some(guard), None) => guard,
        };
        let owner = guard.hold().wire_owner().clone();
        let guard = Arc::new(Guard::from(guard));
        parts.extensions.insert(Claim {
            key: key.into(),
            lock: Locked::of(&guard),
        });
        let request = Request::from_parts(parts, body.into());
        let work = async {
            let (parts, body) = match ready.call(request).await {
                Ok(response) => response.into_parts(),
                Err(error) => return Ok((Err(error), None)),
            };
            let refused = parts.extensions.get::<Refusal>().is_some();
            if refused || !(self.store_if)(&parts) {
                let response = Response::from_parts(parts, ResponseBody::inner(body));
                return Ok((Ok(response), None));
            }
            let most = MAX_RESPONSE_BYTES as u64;
            if body.size_hint().upper().is_none_or(|size| size > most) {
                let response = Response::from_parts(parts, ResponseBody::inner(body));
                return Ok((Ok(response), Some(Encoded::default())));
            }
            let Ok(body) = body.collect().await else {
                return Err(Refusal::Broken.because("its body ended with an error"));
            };
            let body = body.to_bytes();
            let encoded = Encoded::of(&parts, &body).unwrap_or_default();
            let response = Response::from_parts(parts, ResponseBody::of_layer(body));
            Ok((Ok(response), Some(encoded)))
        };
        let ran = guard.run(work).await;
        let (outcome, encoded) = ran.map_err(|lost| Refusal::Lost.because(lost))??;
        let Some(encoded) = encoded else {
            release(guard, record.lock.outage()).await;
            return Ok(outcome);
        };
        // In the background if the request is dropped, or if the server does not answer: a stored response is worth more than a free claim.
        let outage = record.lock.outage();
        let (handle, keep) = (record.handle.clone(), self.keep);
        let storing = handle.persist(async move {
            let stored = loop {
                match record.store(&owner, keep, &print, &encoded).await {
                    // Not a busy loop: a query tries for the operation timeout.
                    Err(QueryError::Unavailable { .. }) if guard.is_held() => {}
                    stored => break stored,
                }
            };
            if let Err(error) = &stored {
                tracing::warn!(%error, "the response to a request with an idempotency key was not stored");
            }
            // Its drop releases the claim, and no repetition waits for that: each finds what was stored.
            drop(guard);
            stored
        });
        // The handler has ended, and its response does not wait for a server that is out of reach.
        if outage.is_none()
            && let Some(Ok(false)) = timeout(STORING, storing).await
        {
            return Err(Refusal::Lost.because("another attempt has the claim"));
        }
        Ok(outcome)
    }
}

impl<S, A, B> Service<Request<A>> for IdempotencyService<S>
where
    A: Body + From<Bytes> + Send + 'static,
    A::Data: Send,
    A::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body<Data = Bytes> + Send + 'static,
    B::Error: Send,
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
        let wanted = self.layer.wanted(&mut parts);
        let layer = self.layer.clone();
        Box::pin(async move {
            let (scope, key) = match wanted {
                Ok(Some(wanted)) => wanted,
                Ok(None) => {
                    let response = ready.call(Request::from_parts(parts, body)).await;
                    return response.map(|response| response.map(ResponseBody::inner));
                }
                Err(refusal) => return Ok(refusal.response(&form)),
            };
            let served = layer.serve(&mut ready, scope, key, parts, body).await;
            served.unwrap_or_else(|refusal| Ok(refusal.response(&form)))
        })
    }
}
