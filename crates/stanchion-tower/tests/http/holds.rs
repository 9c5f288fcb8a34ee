//! One request at a time, at most n requests, and rates.

use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use stanchion_tower::*;
use tower_layer::Layer as _;

use super::*;

fn token<B>(request: &Request<B>) -> String {
    let locked = request.extensions().get::<Locked>().unwrap();
    assert!(locked.is_held());
    locked.fencing_token().unwrap().to_string()
}

/// The lock of a request is that of its path. `/free` needs none.
fn by_path(client: &Client) -> OneAtATimeLayer {
    OneAtATimeLayer::new(client, "paths", |parts| match parts.uri.path() {
        "/free" => None,
        "/invalid" => Some("x".repeat(600)),
        path => Some(path.to_owned()),
    })
    .unwrap()
}

#[tokio::test(start_paused = true)]
async fn one_request_for_a_key_runs_at_a_time_in_all_processes() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let inner = handler.service(|request| Response::new(Full::from(token(request))));
    let here = by_path(&client).layer(inner.clone());
    let there = by_path(&another(&engine).await).layer(inner);
    let first = spawned(&here, request("POST", "/a", ""));
    handler.called(1).await;
    for service in [&here, &there] {
        let busy = send(service, request("POST", "/a", "")).await;
        assert_eq!(busy.status(), 409);
        let refusal = Refusal::Busy { retry_after: 1 };
        assert_eq!(busy.extensions().get(), Some(&refusal));
        assert_eq!(header(&busy, "retry-after"), Some("1"));
        assert_eq!(
            header(&busy, "content-type"),
            Some("application/problem+json")
        );
    }
    assert_eq!(handler.calls(), 1);
    handler.gate.add_permits(1);
    let first = first.await.unwrap();
    // The lock is free when the response is there.
    handler.gate.add_permits(2);
    let second = send(&there, request("POST", "/a", "")).await;
    let token = |text: String| text.parse::<u64>().unwrap();
    assert!(token(text(first).await) < token(text(second).await));
    assert_eq!(send(&here, request("POST", "/b", "")).await.status(), 200);
    assert_eq!(
        send(&here, request("POST", "/invalid", "")).await.status(),
        400
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_waits_for_its_lock_and_no_longer() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let inner = handler.service(|_| Response::default());
    let here = by_path(&client).layer(inner.clone());
    let waits = by_path(&another(&engine).await).wait(Duration::from_millis(2500));
    let waits = waits.layer(inner);
    let first = spawned(&here, request("POST", "/a", ""));
    handler.called(1).await;
    // The same condition has the same status as without a wait.
    let busy = send(&waits, request("POST", "/a", "")).await;
    assert_eq!(busy.status(), 409);
    assert_eq!(header(&busy, "retry-after"), Some("3"));
    let second = spawned(&waits, request("POST", "/a", ""));
    handler.gate.add_permits(2);
    assert_eq!(first.await.unwrap().status(), 200);
    assert_eq!(second.await.unwrap().status(), 200);
    assert_eq!(handler.calls(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_releases_its_lock() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let inner = handler.service(|_| Response::default());
    let here = by_path(&client).layer(inner.clone());
    let there = by_path(&another(&engine).await).layer(inner);
    let dropped = spawned(&here, request("POST", "/a", ""));
    handler.called(1).await;
    dropped.abort();
    assert!(dropped.await.unwrap_err().is_cancelled());
    handler.gate.add_permits(1);
    stanchion_testkit::eventually_async("the lock is free", async || {
        send(&there, request("POST", "/a", "")).await.status() == 200
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_lock_ends_the_handler() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let inner = handler.service(|_| Response::default());
    let here = by_path(&client).layer(inner);
    let lost = spawned(&here, request("POST", "/a", ""));
    drop(here);
    handler.called(1).await;
    let operator = Lock::new(&another(&engine).await, "paths:/a").unwrap();
    assert!(operator.danger().force_release().await.unwrap());
    let lost = tokio::time::timeout(Duration::from_secs(60), lost).await;
    let lost = lost.expect("the handler is dropped").unwrap();
    assert_eq!(lost.status(), 503);
    assert_eq!(lost.extensions().get(), Some(&Refusal::Lost));
    // The handler was dropped: it did not pass the gate.
    assert_eq!(handler.gate.available_permits(), 0);
    assert_eq!(Arc::strong_count(&handler.calls), 1);
}

#[tokio::test(start_paused = true)]
async fn a_fleet_runs_at_most_n_requests() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let inner = handler.service(|request| {
        assert!(request.extensions().get::<Locked>().is_none());
        Response::default()
    });
    let mut processes = Vec::new();
    for client in [client.clone(), another(&engine).await] {
        let permits = LeasedSemaphore::new(&client, "permits").unwrap();
        permits.init(2).await.unwrap();
        let layer = ConcurrencyLayer::new(permits);
        processes.push(layer.layer(inner.clone()));
    }
    let mut running: Vec<_> = (0..2)
        .map(|n| spawned(&processes[n], request("GET", "/", "")))
        .collect();
    handler.called(2).await;
    for service in &processes {
        let full = send(service, request("GET", "/", "")).await;
        assert_eq!(full.status(), 503);
        assert_eq!(header(&full, "retry-after"), Some("1"));
    }
    // The permit of a client that disconnects is free again.
    running.remove(0).abort();
    handler.gate.add_permits(2);
    stanchion_testkit::eventually_async("a permit is free", async || {
        send(&processes[1], request("GET", "/", "")).await.status() == 200
    })
    .await;
    assert_eq!(running.remove(0).await.unwrap().status(), 200);
}

#[tokio::test(start_paused = true)]
async fn a_limited_request_learns_when_to_retry() {
    let (_engine, client) = world().await;
    let handler = Handler::open();
    let layer = RateLimitLayer::by(move |parts| match parts.uri.path() {
        "/invalid" => Err(Lock::new(&client, "").unwrap_err()),
        path => RateLimiter::new(&client, path, "1/10s".parse().unwrap()).map(Some),
    });
    let service = layer.layer(handler.service(|_| Response::default()));
    let facts = |response: &Response<ResponseBody<Body>>| {
        ["limit", "remaining", "reset"].map(|it| {
            let value = header(response, &format!("ratelimit-{it}"));
            value.unwrap().parse::<u64>().unwrap()
        })
    };
    let passed = send(&service, request("GET", "/a", "")).await;
    assert_eq!(passed.status(), 200);
    assert_eq!(facts(&passed), [1, 0, 10]);
    assert_eq!(header(&passed, "retry-after"), None);
    let limited = send(&service, request("GET", "/a", "")).await;
    assert_eq!(limited.status(), 429);
    assert_eq!(header(&limited, "retry-after"), Some("10"));
    assert_eq!(facts(&limited), [1, 0, 10]);
    assert_eq!(send(&service, request("GET", "/b", "")).await.status(), 200);
    assert_eq!(
        send(&service, request("GET", "/invalid", ""))
            .await
            .status(),
        400
    );
    assert_eq!(handler.calls(), 2);
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(send(&service, request("GET", "/a", "")).await.status(), 200);
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
