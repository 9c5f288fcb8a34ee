//! The layer for idempotency keys.

use std::error::Error;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, Method, Request, Response, StatusCode};
use http_body::Body;
use http_body_util::{BodyExt as _, LengthLimitError, Limited};
use stanchion_client::primitive::bounded;
use stanchion_client::{Client, FencingToken, Guard, InvalidDuration, Lease};
use tower_layer::Layer;
use tower_service::Service;

use crate::hold::{Locked, release};
use crate::record::{Encoded, Record, fingerprint};
use crate::refusal::Refusal;

/// The most bytes of headers and body of a response that an [`IdempotencyLayer`] stores: 64 KiB.
pub const MAX_RESPONSE_BYTES: usize = 64 * 1024;

const KEEP: Duration = Duration::from_secs(24 * 3600);
const MAX_REQUEST_BYTES: usize = 1024 * 1024;
const LONGEST_KEY: usize = 255;

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
/// or `PATCH` may have a key. A closure returns the scope of a request: the authenticated caller. Different callers can use the same key.
/// Therefore put the layer inside the authentication. `None` lets the request pass.
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
/// let layer = IdempotencyLayer::new(&client, |parts| {
///     // In your program: the caller that the authentication has put into `parts.extensions`.
///     Some(parts.headers.get("x-user")?.to_str().ok()?.to_owned())
/// });
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
/// | has no key | that of the handler; 400 if the key is [required](Self::required) |
/// | has an invalid key: none of 1 to 255 visible ASCII characters, or a quoted string (RFC 8941) of such characters and spaces | 400 |
/// | has a key, and a body over 1 MiB, or [another bound](Self::max_request) | 413 |
///
/// # Guarantees
/// * While the server keeps its data, at most one attempt for a key is in progress at a time (P1), and none begins after a response
///   was stored. The handler finds its [`Claim`] in the request's extensions.
/// * A request that ends without a stored response can be repeated, and its handler runs again, with a larger fencing token: after a crash
///   of the process (once the lease has ended, default 30 s), a disconnect of the client, a panic, or a response with the status 5xx,
///   408, 425 or 429, or a [`Refusal`] of a layer inside.
/// * Only the attempt that holds the claim stores a response. An attempt that has lost its claim ends with [`Refusal::Lost`]; a
///   repetition gets the response of its successor.
/// * A response over [64 KiB](MAX_RESPONSE_BYTES), or with a body of unknown length, is not stored. The server remembers that the request
///   was processed, and repetitions get 410. The handler does not run again.
/// * If the server is not reachable at the beginning, the response is [`Refusal::Unavailable`], and the handler is not called. If it is not
///   reachable at the end, the response of the handler is sent, and a repetition runs the handler again.
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
pub struct IdempotencyLayer<F> {
    scope_of: Arc<F>,
    settings: Settings,
}

#[derive(Clone)]
struct Settings {
    client: Client,
    required: bool,
    lease: Lease,
    keep: Duration,
    max_request: usize,
}

impl<F> IdempotencyLayer<F>
where
    F: Fn(&Parts) -> Option<String>,
{
    /// Returns a layer for the requests that have a scope.
    #[must_use]
    pub fn new(client: &Client, scope_of: F) -> Self {
        Self {
            scope_of: Arc::new(scope_of),
            settings: Settings {
                client: client.clone(),
                required: false,
                lease: Lease::default(),
                keep: KEEP,
                max_request: MAX_REQUEST_BYTES,
            },
        }
    }
}

impl<F> IdempotencyLayer<F> {
    /// Returns the same layer with requests that need a key: without one the response to `POST` and `PATCH` is 400. Default: a request
    /// without a key passes.
    #[must_use]
    pub fn required(mut self) -> Self {
        self.settings.required = true;
        self
    }

    /// Returns the same layer with another lease of the claim: the time after which a repetition runs if the process died. Default 30 s. The
    /// claim is renewed while the handler runs.
    #[must_use]
    pub fn lease(mut self, lease: Lease) -> Self {
        self.settings.lease = lease;
        self
    }

    /// Returns the same layer with another time for which responses are stored. Default 24 h.
    ///
    /// # Errors
    /// [`InvalidDuration`] outside 1 s to 1 year.
    pub fn keep(mut self, time: Duration) -> Result<Self, InvalidDuration> {
        let bounds = Duration::from_secs(1)..=Duration::from_secs(365 * 86_400);
        self.settings.keep = bounded("keep", time, bounds, "1s to 1 year")?;
        Ok(self)
    }

    /// Returns the same layer with another bound for the body of a request with a key, in bytes. Default 1 MiB. The body is read into
    /// memory before the claim, for the fingerprint. A larger body is refused with 413.
    #[must_use]
    pub fn max_request(mut self, bytes: usize) -> Self {
        self.settings.max_request = bytes;
        self
    }
}

impl<F> Clone for IdempotencyLayer<F> {
    fn clone(&self) -> Self {
        Self {
            scope_of: Arc::clone(&self.scope_of),
            settings: self.settings.clone(),
        }
    }
}

impl<F> fmt::Debug for IdempotencyLayer<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyLayer")
            .field("required", &self.settings.required)
            .field("lease", &self.settings.lease)
            .field("keep", &self.settings.keep)
            .field("max_request", &self.settings.max_request)
            .finish_non_exhaustive()
    }
}

impl<S, F> Layer<S> for IdempotencyLayer<F> {
    type Service = IdempotencyService<S, F>;

    fn layer(&self, inner: S) -> Self::Service {
        let layer = self.clone();
        IdempotencyService { inner, layer }
    }
}

/// The service of an [`IdempotencyLayer`].
pub struct IdempotencyService<S, F> {
    inner: S,
    layer: IdempotencyLayer<F>,
}

impl<S: Clone, F> Clone for IdempotencyService<S, F> {
    fn clone(&self) -> Self {
        Self {
            inner: self.inner.clone(),
            layer: self.layer.clone(),
        }
    }
}

impl<S: fmt::Debug, F> fmt::Debug for IdempotencyService<S, F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("IdempotencyService")
            .field("inner", &self.inner)
            .field("layer", &self.layer)
            .finish()
    }
}

/// Returns the key of a request. The draft has a quoted string (RFC 8941); many clients send the key without quotes.
fn key_of(headers: &HeaderMap) -> Result<Option<String>, Refusal> {
    let mut values = headers.get_all("idempotency-key").iter();
    let Some(value) = values.next() else {
        return Ok(None);
    };
    let text = value.to_str().map_err(|_| Refusal::KeyInvalid)?;
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquoted(quoted).ok_or(Refusal::KeyInvalid)?,
        None if text.contains([' ', '\t']) => return Err(Refusal::KeyInvalid),
        None => text.to_owned(),
    };
    if values.next().is_some() || key.is_empty() || key.len() > LONGEST_KEY {
        return Err(Refusal::KeyInvalid);
    }
    Ok(Some(key))
}

/// Reads a string of RFC 8941 behind its first quote.
fn unquoted(text: &str) -> Option<String> {
    let (mut key, mut chars) = (String::new(), text.strip_suffix('"')?.chars());
    while let Some(char) = chars.next() {
        key.push(match char {
            '\\' => chars.next().filter(|next| ['"', '\\'].contains(next))?,
            '"' | '\t' => return None,
            other => other,
        });
    }
    Some(key)
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
fn is_final<B>(response: &Response<B>) -> bool {
    let again = [
        StatusCode::REQUEST_TIMEOUT,
        StatusCode::TOO_EARLY,
        StatusCode::TOO_MANY_REQUESTS,
    ];
    let status = response.status();
    let refused = response.extensions().get::<Refusal>().is_some();
    !(refused || status.is_server_error() || again.contains(&status))
}

/// The response to a request with a key, or the error of the inner service.
type Outcome<B, E> = Result<Response<B>, E>;

impl Settings {
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
        B: Body + From<Bytes>,
        S: Service<Request<A>, Response = Response<B>>,
    {
        // Before the claim: a client that sends slowly keeps no claim.
        let body = read(body, self.max_request).await?;
        let print = fingerprint(&parts, &body);
        let record =
            Record::new(&self.client, &scope, &key, self.lease).map_err(|_| Refusal::Rejected)?;
        let claimed = record.lock.try_acquire().await;
        let claimed = claimed.map_err(|e| Refusal::of_acquire(&e, Refusal::Unavailable))?;
        // Read after the claim: the request that had the claim before stored its response first.
        let stored = record.read().await.map_err(|e| Refusal::of_query(&e))?;
        let guard = match (claimed, stored) {
            (_, Some(stored)) => return Ok(Ok(stored.replay(&print))),
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
            let response = match ready.call(request).await {
                Ok(response) if is_final(&response) => response,
                other => return Ok((other, false, None)),
            };
            let (parts, body) = response.into_parts();
            let most = MAX_RESPONSE_BYTES as u64;
            if body.size_hint().upper().is_none_or(|size| size > most) {
                return Ok((Ok(Response::from_parts(parts, body)), true, None));
            }
            let Ok(body) = body.collect().await else {
                return Err(Refusal::Broken);
            };
            let body = body.to_bytes();
            let stored = Encoded::of(&parts, &body);
            Ok((Ok(Response::from_parts(parts, body.into())), true, stored))
        };
        let (outcome, done, encoded) = guard.run(work).await.map_err(|_| Refusal::Lost)??;
        if done {
            match record.store(&owner, self.keep, &print, encoded).await {
                Ok(true) => {}
                Ok(false) => return Err(Refusal::Lost),
                Err(error) => {
                    tracing::warn!(%error, "the response to a request with an idempotency key was not stored");
                }
            }
        }
        release(guard).await;
        Ok(outcome)
    }
}

impl<S, F, A, B> Service<Request<A>> for IdempotencyService<S, F>
where
    A: Body + From<Bytes> + Send + 'static,
    A::Data: Send,
    A::Error: Into<Box<dyn Error + Send + Sync>>,
    B: Body + From<Bytes> + Send + 'static,
    B::Data: Send,
    B::Error: Send,
    S: Service<Request<A>, Response = Response<B>> + Clone + Send + 'static,
    S::Future: Send,
    S::Error: Send,
    F: Fn(&Parts) -> Option<String>,
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
        let with_keys = [Method::POST, Method::PATCH].contains(&parts.method);
        let scope = with_keys.then(|| (self.layer.scope_of)(&parts)).flatten();
        let key = scope.map(|scope| (scope, key_of(&parts.headers)));
        let (scope, key) = match key {
            Some((scope, Ok(Some(key)))) => (scope, key),
            Some((_, Err(refusal))) => return Box::pin(async move { Ok(refusal.response()) }),
            Some((_, Ok(None))) if self.layer.settings.required => {
                return Box::pin(async { Ok(Refusal::KeyMissing.response()) });
            }
            _ => return Box::pin(ready.call(Request::from_parts(parts, body))),
        };
        let settings = self.layer.settings.clone();
        Box::pin(async move {
            let served = settings.serve(&mut ready, scope, key, parts, body).await;
            served.unwrap_or_else(|refusal| Ok(refusal.response()))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::HeaderValue;

    fn key(values: &[&'static str]) -> Result<Option<String>, Refusal> {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append("idempotency-key", HeaderValue::from_static(value));
        }
        key_of(&headers)
    }

    #[test]
    fn keys_are_strings_with_or_without_quotes() {
        assert_eq!(key(&[]), Ok(None));
        for (value, wanted) in [
            ("\"8e03978e-40d5\"", "8e03978e-40d5"),
            ("8e03978e-40d5", "8e03978e-40d5"),
            (r#""a \"b\" \\ c""#, r#"a "b" \ c"#),
        ] {
            assert_eq!(key(&[value]), Ok(Some(wanted.to_owned())), "{value}");
        }
        for value in [
            "", "\"\"", "\"a", "\"", "a b", r#""a"b""#, r#""a\b""#, "\"a\\\"",
        ] {
            assert_eq!(key(&[value]), Err(Refusal::KeyInvalid), "{value}");
        }
        assert_eq!(key(&["a", "a"]), Err(Refusal::KeyInvalid));
        let long = "k".repeat(LONGEST_KEY + 1).leak();
        assert_eq!(key(&[long]), Err(Refusal::KeyInvalid));
        assert!(key(&[&long[1..]]).is_ok());
    }
}
