//! Tests of the layers: on the engine in virtual time, with axum and clients that disconnect, and with a process that is killed.
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod axum;
mod holds;
mod idempotency;
mod killed;
mod nested;
mod outages;
mod stacks;
mod tonic;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::Full;
use stanchion_embedded::Engine;
use stanchion_tower::{Client, ClientConfig};
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

/// Sends a request in a task.
fn spawned<S>(service: &S, request: Request<Body>) -> JoinHandle<S::Response>
where
    S: Service<Request<Body>, Response: Send, Error = Infallible, Future: Send>,
    S: Clone + Send + 'static,
{
    let sent = service.clone().oneshot(request);
    tokio::spawn(async { sent.await.unwrap() })
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

/// A handler that counts its calls, and returns when the test opens the gate.
#[derive(Clone)]
struct Handler {
    calls: Arc<AtomicUsize>,
    gate: Arc<Semaphore>,
}

impl Handler {
    fn closed() -> Self {
        Self {
            calls: Arc::default(),
            gate: Arc::new(Semaphore::new(0)),
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

    /// A service whose responses are made by `respond`, behind the gate.
    fn service<F>(
        &self,
        respond: F,
    ) -> impl Service<
        Request<Body>,
        Response = Response<Body>,
        Error = Infallible,
        Future: Future + Send,
    > + Clone
    + Send
    + 'static
    where
        F: Fn(&Request<Body>) -> Response<Body> + Clone + Send + 'static,
    {
        let handler = self.clone();
        tower::service_fn(move |request: Request<Body>| {
            let (handler, respond) = (handler.clone(), respond.clone());
            async move {
                handler.calls.fetch_add(1, Ordering::Relaxed);
                handler.gate.acquire().await.unwrap().forget();
                Ok(respond(&request))
            }
        })
    }
}
