//! Tests of the layers: on the engine in virtual time, with axum and clients that disconnect, and with a process that is killed.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod axum;
mod desk;
mod holds;
mod idempotency;
mod killed;
mod nested;
mod outages;
mod stacks;
mod tonic;

use std::collections::HashMap;
use std::convert::Infallible;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use stanchion_embedded::Engine;
use stanchion_tower::{Claim, Client, ClientConfig, Locked};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tower::ServiceExt as _;
use tower_service::Service;

type Body = Full<Bytes>;

/// A server in virtual time, and a client of it.
async fn world() -> (Engine, Client) {
    let engine = Engine::in_virtual_time();
    let client = another(&engine).await;
    (engine, client)
}

/// Another client of the server: another process.
async fn another(engine: &Engine) -> Client {
    let config = ClientConfig::embedded(engine).virtual_time();
    Client::connect_with(config).await.unwrap()
}

fn request(method: &str, path: &str, body: &'static str) -> Request<Body> {
    let request = Request::builder().method(method).uri(path);
    request.body(Full::from(body)).unwrap()
}

/// Adds a header.
fn with(mut request: Request<Body>, name: &'static str, value: &str) -> Request<Body> {
    request.headers_mut().insert(name, value.parse().unwrap());
    request
}

async fn send<S, B>(service: &S, request: Request<Body>) -> Response<B>
where
    S: Service<Request<Body>, Response = Response<B>, Error = Infallible> + Clone,
{
    service.clone().oneshot(request).await.unwrap()
}

async fn text<B>(response: Response<B>) -> String
where
    B: http_body::Body<Data = Bytes, Error: std::fmt::Debug>,
{
    let body = http_body_util::BodyExt::collect(response.into_body()).await;
    String::from_utf8(body.unwrap().to_bytes().to_vec()).unwrap()
}

fn header<'a, B>(response: &'a Response<B>, name: &str) -> Option<&'a str> {
    response
        .headers()
        .get(name)
        .map(|value| value.to_str().unwrap())
}

/// A handler that counts its calls, and responds when the test opens the gate.
#[derive(Clone)]
struct Handler {
    calls: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
    /// The last token of each claim and lock.
    tokens: Arc<Mutex<HashMap<String, u64>>>,
}

impl Handler {
    fn closed() -> Self {
        Self {
            calls: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
            tokens: Arc::default(),
        }
    }

    fn open() -> Self {
        let handler = Self::closed();
        handler.gate.add_permits(1000);
        handler
    }

    fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    async fn called(&self, times: usize) {
        stanchion_testkit::eventually("the handler is called", || self.calls() == times).await;
    }

    /// P2: the request holds what its layer acquired, and the token is larger than those before. Returns what that is.
    fn holds(&self, request: &Request<Body>) -> &'static str {
        let user = request.headers().get("x-user");
        let (name, lock, what) = if let Some(claim) = request.extensions().get::<Claim>() {
            (
                format!("{} of {user:?}", claim.key()),
                claim.lock(),
                " claim",
            )
        } else if let Some(lock) = request.extensions().get::<Locked>() {
            (request.uri().path().to_owned(), lock, " lock")
        } else {
            return "";
        };
        assert!(lock.is_held());
        let token = lock.fencing_token().unwrap().get();
        let last = self.tokens.lock().unwrap().insert(name, token);
        assert!(last.is_none_or(|last| last < token), "{last:?} {token}");
        what
    }

    /// A service behind the gate, which responds with the number of its call, and `claim` or `lock`.
    fn service(
        &self,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Future + Send,
    > + Clone
    + Send
    + 'static {
        let handler = self.clone();
        tower::service_fn(move |request: Request<Body>| {
            let handler = handler.clone();
            async move {
                let call = handler.calls.fetch_add(1, Ordering::Relaxed) + 1;
                let what = handler.holds(&request);
                handler.gate.acquire().await.unwrap().forget();
                let header = |name| Some(request.headers().get(name)?.to_str().unwrap());
                let response = Response::builder().status(header("x-status").unwrap_or("200"));
                let response = match header("x-length") {
                    Some(length) => response.body("x".repeat(length.parse().unwrap())),
                    None => response
                        .header("x-made", "yes")
                        .body(format!("#{call}{what}")),
                };
                Ok(response.unwrap().map(Body::from))
            }
        })
    }
}
