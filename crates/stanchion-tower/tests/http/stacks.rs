//! Layers with each other, with bodies of other layers, and with requests of gRPC.

use std::time::Duration;

use http_body_util::BodyExt as _;
use http_body_util::combinators::UnsyncBoxBody;
use stanchion_tower::*;
use tower_layer::{Layer as _, Stack};

use super::desk::Desk;
use super::*;

/// The inner body is one that no layer could make, as that of a layer for traces.
#[tokio::test(start_paused = true)]
async fn all_layers_accept_each_other_and_any_body_of_a_response() {
    let (_engine, client) = world().await;
    let permits = LeasedSemaphore::new(&client, "permits").unwrap();
    permits.init(1).await.unwrap();
    let inner = tower::service_fn(|_: Request<Body>| async {
        let body: UnsyncBoxBody<Bytes, Infallible> = Body::from("made").boxed_unsync();
        Ok::<_, Infallible>(Response::new(body))
    });
    let quota: Quota = "2/h".parse().unwrap();
    let keys = IdempotencyLayer::new(&client, "s", |_| Some(String::new())).unwrap();
    let locks = OneAtATimeLayer::new(&client, "s", |_| Some("")).unwrap();
    let rates = RateLimitLayer::new(&client, "s", quota, |_| Some("")).unwrap();
    let stack = rates.layer(keys.layer(locks.layer(ConcurrencyLayer::new(permits).layer(inner))));
    let post = || with(request("POST", "/", ""), "idempotency-key", "k");
    let first = send(&stack, post()).await;
    assert_eq!(first.status(), 200);
    assert_eq!(header(&first, "ratelimit-remaining"), Some("1"));
    assert_eq!(text(first).await, "made");
    let again = send(&stack, post()).await;
    assert_eq!(header(&again, "idempotency-replayed"), Some("true"));
    // Not the stored number.
    assert_eq!(header(&again, "ratelimit-remaining"), Some("0"));
    let length = http_body::Body::size_hint(again.body()).exact();
    assert_eq!(length, Some(4));
    assert_eq!(text(again).await, "made");
    let limited = send(&stack, post()).await;
    assert_eq!(limited.status(), 429);
    let problem = r#"{"title":"The rate limit is reached","status":429}"#;
    assert_eq!(text(limited).await, problem);
}

/// The smaller rest of two limits is the one that a client must know.
#[tokio::test(start_paused = true)]
async fn of_two_rates_the_headers_show_the_one_with_less_left() {
    let mut desk = Desk::new(Handler::open()).await;
    let client = desk.here.clone();
    let rate = |namespace, quota: &str| {
        let quota: Quota = quota.parse().unwrap();
        RateLimitLayer::new(&client, namespace, quota, |_| Some("")).unwrap()
    };
    desk.serve("inner", Stack::new(rate("b", "3/h"), rate("a", "9/h")));
    desk.serve("outer", Stack::new(rate("d", "9/h"), rate("c", "3/h")));
    let text = "
        inner GET / -> 200 #1 rate=3/2/1200 ran
        outer GET / -> 200 #2 rate=3/2/1200 ran
    ";
    desk.check(text).await;
}

/// A client of gRPC reads a status only from headers, and takes no body of another type.
#[tokio::test(start_paused = true)]
async fn a_refusal_for_grpc_is_a_status_of_grpc() {
    let (_engine, client) = world().await;
    let locks = OneAtATimeLayer::new(&client, "s", |_| Some("k")).unwrap();
    let service = locks
        .wait(Duration::from_secs(1))
        .layer(Handler::open().service());
    let held = Lock::new(&client, "s:k").unwrap().acquire().await.unwrap();
    let mut call = request("POST", "/shop.Orders/Settle", "");
    let kind = http::HeaderValue::from_static("application/grpc+proto");
    call.headers_mut().insert("content-type", kind);
    let busy = send(&service, call.clone()).await;
    assert_eq!(busy.status(), 200);
    assert_eq!(header(&busy, "grpc-status"), Some("10"));
    assert_eq!(
        header(&busy, "content-type"),
        Some("application/grpc+proto")
    );
    assert!(busy.extensions().get::<Refusal>().is_some());
    assert_eq!(text(busy).await, "");
    held.release().await.unwrap();
    let passed = send(&service, call).await;
    assert_eq!(header(&passed, "grpc-status"), None);
}
