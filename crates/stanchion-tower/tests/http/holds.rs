//! One request at a time, at most n requests, and rates.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use stanchion_tower::*;
use tokio::time::Instant;
use tower_layer::Layer as _;

use super::desk::Desk;
use super::*;

/// The lock of a request is that of its path. `/free` needs none.
fn by_path(client: &Client) -> OneAtATimeLayer {
    OneAtATimeLayer::new(client, "paths", |parts| match parts.uri.path() {
        "/free" => None,
        "/invalid" => Some("x".repeat(600)),
        path => Some(path.to_owned()),
    })
    .unwrap()
}

/// The layer in two processes.
async fn paths(handler: Handler) -> Desk {
    let mut desk = Desk::new(handler).await;
    desk.serve("here", by_path(&desk.here));
    desk.serve("there", by_path(&desk.there));
    desk
}

#[tokio::test(start_paused = true)]
async fn one_request_for_a_key_runs_at_a_time_in_all_processes() {
    let mut desk = paths(Handler::closed()).await;
    desk.serve(
        "waits",
        by_path(&desk.there).wait(Duration::from_millis(2500)),
    );
    let text = "
        first = here POST /a
        here POST /a -> 409 Busy retry=1
        there POST /a -> 409 Busy retry=1
        # Without a free lock, the status is the same as without a wait.
        waits POST /a -> 409 Busy retry=3
        second ~ waits POST /a
        open 2
        first -> 200 #1 lock ran
        second -> 200 #2 lock
        # The lock is free when the response is there.
        open 3
        there POST /a -> 200 #3 lock ran
        here POST /b -> 200 #4 lock ran
        here POST /free -> 200 #5 ran
        here POST /invalid -> 400 InvalidName
        # A dropped request releases its lock.
        third = here POST /a
        abort third
        open 1
        until there POST /a -> 200 #7 lock ran
    ";
    desk.check(text).await;
}

/// The next request of the same client finds the lock free in all processes, however far the server is.
#[tokio::test(start_paused = true)]
async fn a_response_waits_for_the_reply_to_the_release() {
    let mut desk = paths(Handler::open()).await;
    let permits = LeasedSemaphore::new(&desk.here, "permits").unwrap();
    permits.init(1).await.unwrap();
    desk.serve("permit", ConcurrencyLayer::new(permits));
    // The server knows the scripts from here on.
    let (a, b) = ("here POST /a -> 200 #", "permit POST /a -> 200 #");
    desk.check(&format!("{a}1 lock ran")).await;
    desk.check(&format!("{b}2 ran")).await;
    let reply = Duration::from_millis(20);
    desk.engine.faults().delay(None, reply);
    for request in [format!("{a}3 lock ran"), format!("{b}4 ran")] {
        let began = Instant::now();
        desk.check(&request).await;
        assert_eq!(began.elapsed(), 2 * reply, "{request}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_ends_the_handler() {
    let mut desk = paths(Handler::closed()).await;
    let handlers = Arc::strong_count(&desk.handler.calls);
    desk.check("first = here POST /a").await;
    let operator = Lock::new(&another(&desk.engine).await, "paths:/a").unwrap();
    assert!(operator.danger().force_release().await.unwrap());
    desk.check("first -> 503 Lost").await;
    assert_eq!(
        Arc::strong_count(&desk.handler.calls),
        handlers,
        "it was dropped"
    );
}

/// The permit of a client that disconnects is free again.
#[tokio::test(start_paused = true)]
async fn a_fleet_runs_at_most_n_requests() {
    let mut desk = Desk::new(Handler::closed()).await;
    for (name, client) in [("here", desk.here.clone()), ("there", desk.there.clone())] {
        let permits = LeasedSemaphore::new(&client, "permits").unwrap();
        permits.init(2).await.unwrap();
        desk.serve(name, ConcurrencyLayer::new(permits));
    }
    let text = "
        first = here GET /
        second = there GET /
        here GET / -> 503 Full retry=1
        there GET / -> 503 Full retry=1
        abort first
        open 2
        until there GET / -> 200 #3 ran
        second -> 200 #2
    ";
    desk.check(text).await;
}

#[tokio::test(start_paused = true)]
async fn a_limited_request_learns_when_to_retry() {
    let mut desk = Desk::new(Handler::open()).await;
    let client = desk.here.clone();
    let layer = RateLimitLayer::by(move |parts| match parts.uri.path() {
        "/invalid" => Err(Lock::new(&client, "").unwrap_err()),
        path => RateLimiter::new(&client, path, "1/10s".parse().unwrap()).map(Some),
    });
    desk.serve("here", layer);
    let text = "
        here GET /a -> 200 #1 rate=1/0/10 ran
        here GET /a -> 429 Limited retry=10 rate=1/0/10
        here GET /b -> 200 #2 rate=1/0/10 ran
        here GET /invalid -> 400 InvalidName
        wait 10000
        here GET /a -> 200 #3 rate=1/0/10 ran
    ";
    desk.check(text).await;
}

/// Panics if it is called without having been ready.
#[derive(Default)]
struct Once {
    ready: bool,
}

impl Clone for Once {
    fn clone(&self) -> Self {
        Self::default()
    }
}

impl Service<Request<Body>> for Once {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = std::future::Ready<Result<Response<Body>, Infallible>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.ready = true;
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Request<Body>) -> Self::Future {
        assert!(
            std::mem::take(&mut self.ready),
            "called before it was ready"
        );
        std::future::ready(Ok(Response::default()))
    }
}

#[tokio::test(start_paused = true)]
async fn every_layer_calls_the_service_that_is_ready() {
    let (_engine, client) = world().await;
    let permits = LeasedSemaphore::new(&client, "permits").unwrap();
    permits.init(2).await.unwrap();
    let of = client.clone();
    let rate = RateLimitLayer::by(move |_| {
        RateLimiter::new(&of, "rate", "9/h".parse().unwrap()).map(Some)
    });
    let request = with(request("POST", "/a", ""), "idempotency-key", "k");
    for request in [request.clone(), request] {
        let ok = [
            by_path(&client)
                .layer(Once::default())
                .oneshot(request.clone())
                .await,
            ConcurrencyLayer::new(permits.clone())
                .layer(Once::default())
                .oneshot(request.clone())
                .await,
            rate.layer(Once::default()).oneshot(request.clone()).await,
            IdempotencyLayer::new(&client, "keys", |_| Some(String::new()))
                .unwrap()
                .layer(Once::default())
                .oneshot(request)
                .await,
        ];
        assert!(
            ok.into_iter()
                .all(|response| response.unwrap().status() == 200)
        );
    }
}
