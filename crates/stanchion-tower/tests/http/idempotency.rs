//! Idempotency keys on the engine.

use std::time::Duration;

use http::StatusCode;
use stanchion_embedded::Reply;
use stanchion_tower::*;
use tower_layer::Layer as _;

use super::*;

/// The scope is the user. `anonymous` has none.
fn by_user(client: &Client) -> IdempotencyLayer {
    IdempotencyLayer::new(client, "pay", |parts| {
        let user = parts
            .headers
            .get("x-user")
            .map_or("ann", |user| user.to_str().unwrap());
        (user != "anonymous").then(|| user.to_owned())
    })
    .unwrap()
}

fn with_key(key: &'static str, body: &'static str) -> Request<Body> {
    with(request("POST", "/pay?now", body), "idempotency-key", key)
}

/// The number of the attempt, its token and its key.
fn respond(request: &Request<Body>) -> Response<Body> {
    let claim = request.extensions().get::<Claim>().unwrap();
    assert!(claim.lock().is_held());
    let text = format!("{} {}", claim.key(), claim.fencing_token().unwrap());
    let response = Response::builder().status(201).header("x-made", "yes");
    response.body(Full::from(text)).unwrap()
}

async fn token(response: Response<ResponseBody<Body>>) -> u64 {
    text(response)
        .await
        .split_once(' ')
        .unwrap()
        .1
        .parse()
        .unwrap()
}

/// The key of the server that begins with `prefix`.
fn key(engine: &Engine, prefix: &str) -> Option<String> {
    let keys = engine.keys().into_iter();
    let mut keys = keys.map(|key| String::from_utf8(key).unwrap());
    keys.find(|key| key.starts_with(prefix))
}

const DONE: &str = "stanchion_done:{idempotency:";

#[tokio::test(start_paused = true)]
async fn a_repetition_gets_the_stored_response() {
    let (engine, client) = world().await;
    let handler = Handler::open();
    let inner = handler.service(respond);
    let here = by_user(&client).layer(inner.clone());
    let there = by_user(&another(&engine).await).layer(inner);
    let first = send(&here, with_key("\"k\"", "5 €")).await;
    assert_eq!(first.status(), 201);
    assert_eq!(header(&first, "idempotency-replayed"), None);
    let first = text(first).await;
    for service in [&here, &there] {
        let again = send(service, with_key("k", "5 €")).await;
        assert_eq!(again.status(), 201);
        assert_eq!(header(&again, "idempotency-replayed"), Some("true"));
        assert_eq!(header(&again, "x-made"), Some("yes"));
        assert_eq!(text(again).await, first);
    }
    assert_eq!(handler.calls(), 1);

    let other = send(&there, with_key("k", "6 €")).await;
    assert_eq!(other.status(), 422);
    assert_eq!(other.extensions().get(), Some(&Refusal::KeyReused));
    let mut other = with_key("k", "5 €");
    *other.uri_mut() = "/refund".parse().unwrap();
    assert_eq!(send(&there, other).await.status(), 422);

    // Another user's key is another key.
    let bob = with(with_key("k", "6 €"), "x-user", "bob");
    assert_eq!(send(&there, bob).await.status(), 201);
    assert_eq!(handler.calls(), 2);

    // The response is kept for a day.
    let done = key(&engine, DONE).unwrap();
    let Reply::Int(ttl) = engine.execute(&["PTTL", &done]) else {
        panic!("no TTL")
    };
    assert!((86_300_000..=86_400_000).contains(&ttl), "{ttl} ms");
    tokio::time::sleep(Duration::from_secs(86_401)).await;
    assert_eq!(send(&here, with_key("k", "6 €")).await.status(), 201);
    assert_eq!(handler.calls(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_request_without_a_valid_key_is_refused_or_passes() {
    let (_engine, client) = world().await;
    let handler = Handler::open();
    let inner = handler.service(|request| {
        assert!(request.extensions().get::<Claim>().is_none());
        Response::default()
    });
    let optional = by_user(&client).layer(inner.clone());
    let required = by_user(&client).required().layer(inner);
    let without = || request("POST", "/pay", "");
    assert_eq!(send(&optional, without()).await.status(), 200);
    let missing = send(&required, without()).await;
    assert_eq!(missing.status(), 400);
    assert_eq!(missing.extensions().get(), Some(&Refusal::KeyMissing));
    for service in [&optional, &required] {
        assert_eq!(send(service, with_key("a b", "")).await.status(), 400);
    }
    assert_eq!(handler.calls(), 1);
    // Idempotent methods pass. Others need a key, also unknown ones.
    let mut unknown = without();
    *unknown.method_mut() = "SETTLE".parse().unwrap();
    assert_eq!(send(&required, unknown).await.status(), 400);
    for method in ["GET", "PUT", "DELETE"] {
        let mut request = with_key("k", "");
        *request.method_mut() = method.parse().unwrap();
        for _ in 0..2 {
            assert_eq!(send(&required, request.clone()).await.status(), 200);
        }
    }
    assert_eq!(handler.calls(), 7);
}

/// Without a scope, two callers with one key could not be distinguished.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_scope_never_runs_unclaimed_where_a_key_is_required() {
    let (engine, client) = world().await;
    let handler = Handler::open();
    let inner = handler.service(|_| Response::default());
    let optional = by_user(&client).layer(inner.clone());
    let required = by_user(&client).required().layer(inner);
    for (request, refusal) in [
        (with_key("k", ""), Refusal::ScopeMissing),
        (with_key("a b", ""), Refusal::KeyInvalid),
        (request("POST", "/pay", ""), Refusal::KeyMissing),
    ] {
        let request = with(request, "x-user", "anonymous");
        let refused = send(&required, request.clone()).await;
        assert_eq!(refused.status(), 400);
        assert_eq!(refused.extensions().get(), Some(&refusal));
        assert_eq!(send(&optional, request).await.status(), 200);
    }
    assert_eq!(handler.calls(), 3);
    assert_eq!(key(&engine, ""), None);
}

#[tokio::test(start_paused = true)]
async fn a_predicate_says_which_responses_are_stored() {
    let (_engine, client) = world().await;
    let handler = Handler::open();
    let inner = handler.service(|request| {
        let missing = request.headers()["x-user"] == "bob";
        let status = if missing { 404 } else { 500 };
        Response::builder()
            .status(status)
            .body(Body::default())
            .unwrap()
    });
    let layer = by_user(&client).store_if(|response| response.status != 404);
    let service = layer.layer(inner);
    for (user, stored) in [("ann", true), ("bob", false)] {
        let request = with(with_key("k", ""), "x-user", user);
        let first = send(&service, request.clone()).await;
        let again = send(&service, request).await;
        assert_eq!(first.status(), again.status());
        let replayed = header(&again, "idempotency-replayed");
        assert_eq!(replayed, stored.then_some("true"));
    }
    assert_eq!(handler.calls(), 3);
}

/// The namespace is a part of the key.
#[tokio::test(start_paused = true)]
async fn layers_of_two_namespaces_share_no_key() {
    let (_engine, client) = world().await;
    let handler = Handler::open();
    let scope = |_: &http::request::Parts| Some("ann".to_owned());
    let of = |namespace| IdempotencyLayer::new(&client, namespace, scope);
    for namespace in ["payments", "refunds"] {
        let service = of(namespace).unwrap().layer(handler.service(respond));
        let first = send(&service, with_key("k", "")).await;
        assert_eq!(header(&first, "idempotency-replayed"), None);
        assert_eq!(first.status(), 201);
    }
    assert_eq!(handler.calls(), 2);
    for namespace in ["", "a:b"] {
        assert!(of(namespace).is_err(), "{namespace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_body_over_the_bound_is_refused_before_the_claim() {
    let (engine, client) = world().await;
    let handler = Handler::open();
    let small = by_user(&client)
        .max_request(4)
        .layer(handler.service(respond));
    let large = send(&small, with_key("k", "12345")).await;
    assert_eq!(large.status(), 413);
    assert_eq!(handler.calls(), 0);
    assert_eq!(key(&engine, ""), None);
    assert_eq!(send(&small, with_key("k", "1234")).await.status(), 201);
}

#[tokio::test(start_paused = true)]
async fn one_of_concurrent_requests_runs_and_the_others_get_409() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let inner = handler.service(respond);
    let there = by_user(&another(&engine).await).layer(inner.clone());
    let here = by_user(&client).layer(inner);
    let first = spawned(&here, with_key("k", ""));
    handler.called(1).await;
    for body in ["", "another body"] {
        let busy = send(&there, with_key("k", body)).await;
        assert_eq!(busy.status(), 409);
        assert_eq!(busy.extensions().get(), Some(&Refusal::InProgress));
    }
    handler.gate.add_permits(1);
    assert_eq!(first.await.unwrap().status(), 201);
    // Repetitions do not exclude each other.
    let again: Vec<_> = (0..20)
        .map(|_| spawned(&there, with_key("k", "")))
        .collect();
    for again in again {
        let again = again.await.unwrap();
        assert_eq!(
            (again.status(), header(&again, "idempotency-replayed")),
            (StatusCode::CREATED, Some("true"))
        );
    }
    assert_eq!(handler.calls(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_dropped_request_frees_its_claim_and_the_next_token_is_larger() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let tokens = Arc::new(std::sync::Mutex::new(Vec::new()));
    let seen = Arc::clone(&tokens);
    let inner = handler.service(respond);
    let inner = tower::service_fn(move |request: Request<Body>| {
        let claim = request.extensions().get::<Claim>().unwrap();
        seen.lock().unwrap().push(claim.fencing_token().unwrap());
        inner.clone().oneshot(request)
    });
    let here = by_user(&client).layer(inner.clone());
    let there = by_user(&another(&engine).await).layer(inner);
    let dropped = spawned(&here, with_key("k", ""));
    handler.called(1).await;
    dropped.abort();
    handler.gate.add_permits(1);
    stanchion_testkit::eventually_async("the claim is free", async || {
        send(&there, with_key("k", "")).await.status() == 201
    })
    .await;
    assert_eq!(handler.calls(), 2);
    let tokens = tokens.lock().unwrap();
    assert!(tokens[0] < tokens[1], "{tokens:?}");
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_stored() {
    let (engine, client) = world().await;
    let handler = Handler::open();
    let inner = handler.service(|request| {
        let mut response = Response::default();
        *response.status_mut() = request.headers()["x-status"]
            .to_str()
            .unwrap()
            .parse()
            .unwrap();
        response
    });
    let service = by_user(&client).layer(inner);
    let mut calls = 0;
    for (status, stored) in [
        (500, false),
        (503, false),
        (429, false),
        (408, false),
        (404, true),
        (409, true),
        (200, true),
    ] {
        let status_text = status.to_string();
        let request = with(with_key("k", ""), "x-user", &status_text);
        let mut request = with(request, "x-status", &status_text);
        *request.uri_mut() = format!("/{status}").parse().unwrap();
        for _ in 0..2 {
            assert_eq!(send(&service, request.clone()).await.status(), status);
        }
        calls += if stored { 1 } else { 2 };
        assert_eq!(handler.calls(), calls, "{status}");
    }
    // A refusal of another layer is not stored, either.
    let lock = Lock::new(&client, "/pay").unwrap();
    let locks = OneAtATimeLayer::by({
        let lock = lock.clone();
        move |_| Ok(Some(lock.clone()))
    });
    let both = by_user(&client).layer(locks.layer(handler.service(respond)));
    let held = lock.acquire().await.unwrap();
    assert_eq!(send(&both, with_key("k", "")).await.status(), 409);
    held.release().await.unwrap();
    assert_eq!(send(&both, with_key("k", "")).await.status(), 201);
    let _ = engine;
}

#[tokio::test(start_paused = true)]
async fn a_response_that_is_too_large_is_not_stored_and_the_handler_does_not_run_again() {
    let (engine, client) = world().await;
    let handler = Handler::open();
    let inner = handler.service(|request| {
        let length = request.headers()["x-length"].to_str().unwrap();
        Response::new(Full::from(vec![b'x'; length.parse().unwrap()]))
    });
    let service = by_user(&client).layer(inner);
    for (length, again) in [(MAX_RESPONSE_BYTES, 200), (MAX_RESPONSE_BYTES + 1, 410)] {
        let length_text = length.to_string();
        let request = with(with_key("k", ""), "x-user", &length_text);
        let mut request = with(request, "x-length", &length_text);
        let calls = handler.calls();
        let first = send(&service, request.clone()).await;
        assert_eq!(text(first).await.len(), length);
        assert_eq!(send(&service, request.clone()).await.status(), again);
        *request.uri_mut() = "/other".parse().unwrap();
        assert_eq!(send(&service, request).await.status(), 422);
        assert_eq!(handler.calls(), calls + 1);
    }
    let _ = engine;
}

/// A body of unknown length may be endless, so it is not read for the record.
#[tokio::test(start_paused = true)]
async fn a_response_of_unknown_length_is_sent_as_it_comes() {
    use ::axum::body::Body;
    let (_engine, client) = world().await;
    let service = tower::service_fn(|_: Request<Body>| async {
        let body = Body::new(http_body_util::StreamBody::new(Parts::default()));
        Ok::<_, Infallible>(Response::new(body))
    });
    let service = by_user(&client).layer(service);
    let send = async || {
        let request = with_key("k", "").map(Body::new);
        service.clone().oneshot(request).await.unwrap()
    };
    let first = send().await;
    let body = http_body_util::BodyExt::collect(first.into_body()).await;
    assert_eq!(body.unwrap().to_bytes(), "part");
    assert_eq!(send().await.status(), 410);
}

#[derive(Default)]
struct Parts(bool);

impl futures_util::Stream for Parts {
    type Item = Result<http_body::Frame<Bytes>, Infallible>;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        _: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<Self::Item>> {
        let first = !std::mem::replace(&mut self.0, true);
        let frame = http_body::Frame::data(Bytes::from_static(b"part"));
        std::task::Poll::Ready(first.then_some(Ok(frame)))
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_claim_ends_the_handler() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let here = by_user(&client).layer(handler.service(respond));
    let lost = spawned(&here, with_key("k", ""));
    handler.called(1).await;
    let claim = key(&engine, "idempotency:").unwrap();
    let operator = Lock::new(&another(&engine).await, claim).unwrap();
    assert!(operator.danger().force_release().await.unwrap());
    let lost = tokio::time::timeout(Duration::from_secs(60), lost).await;
    let lost = lost.expect("the handler is dropped").unwrap();
    assert_eq!(lost.status(), 503);
    assert_eq!(lost.extensions().get(), Some(&Refusal::Lost));
    assert_eq!(key(&engine, DONE), None);
}

/// The client does not notice that its claim is gone, as in a paused process: no message says so, and no renewal is due.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_lost_its_claim_does_not_overwrite_the_response_of_its_successor() {
    let (engine, client) = world().await;
    let paused = Handler::closed();
    let here = by_user(&client).layer(paused.service(respond));
    let first = spawned(&here, with_key("k", ""));
    paused.called(1).await;
    let claim = key(&engine, "idempotency:").unwrap();
    assert_eq!(engine.execute(&["DEL", &claim]), Reply::Int(1));

    let there = by_user(&another(&engine).await);
    let there = there.layer(Handler::open().service(respond));
    let second = send(&there, with_key("k", "")).await;
    assert_eq!(second.status(), 201);
    let second = token(second).await;
    paused.gate.add_permits(1);
    let first = first.await.unwrap();
    assert_eq!(first.status(), 503);
    assert_eq!(first.extensions().get(), Some(&Refusal::Lost));
    assert_eq!(token(send(&there, with_key("k", "")).await).await, second);
}

/// The handler has run, so its response is sent.
#[tokio::test(start_paused = true)]
async fn a_response_that_cannot_be_stored_is_sent() {
    let (engine, client) = world().await;
    let handler = Handler::closed();
    let service = by_user(&client).layer(handler.service(respond));
    let first = spawned(&service, with_key("k", ""));
    handler.called(1).await;
    engine
        .faults()
        .out_of_memory(stanchion_embedded::Switch::On);
    handler.gate.add_permits(1);
    assert_eq!(first.await.unwrap().status(), 201);
    engine
        .faults()
        .out_of_memory(stanchion_embedded::Switch::Off);
    assert_eq!(key(&engine, DONE), None);
    handler.gate.add_permits(1);
    assert_eq!(send(&service, with_key("k", "")).await.status(), 201);
    assert_eq!(handler.calls(), 2);
}

/// The reply to the script that stores is lost: it is sent again, and stores once (P6).
#[tokio::test(start_paused = true)]
async fn a_lost_reply_does_not_change_the_outcome() {
    let (engine, client) = world().await;
    for lost in 0..4 {
        let handler = Handler::open();
        let service = by_user(&client).layer(handler.service(respond));
        let mut request = with(with_key("k", ""), "x-user", &lost.to_string());
        *request.uri_mut() = format!("/{lost}").parse().unwrap();
        // All scripts are known to the server by now, so each of the four is one EVALSHA.
        if lost == 0 {
            let warm = send(&service, with_key("warm", "")).await;
            assert_eq!(warm.status(), 201);
        }
        let calls = handler.calls();
        engine.faults().lose_replies("EVALSHA", lost);
        let first = send(&service, request.clone()).await;
        assert_eq!(first.status(), 201);
        let first = text(first).await;
        let again = send(&service, request).await;
        assert_eq!(header(&again, "idempotency-replayed"), Some("true"));
        assert_eq!(text(again).await, first);
        assert_eq!(handler.calls(), calls + 1);
    }
}

/// Setters cannot fail, so a request with a key checks their values before the claim.
#[tokio::test(start_paused = true)]
async fn settings_out_of_bounds_reject_requests_with_a_key() {
    let (engine, client) = world().await;
    let handler = Handler::open();
    for layer in [
        by_user(&client).keep(Duration::ZERO),
        by_user(&client).lease(Duration::ZERO),
    ] {
        let service = layer.layer(handler.service(respond));
        let refused = send(&service, with_key("k", "5 €")).await;
        assert_eq!(refused.status(), StatusCode::INTERNAL_SERVER_ERROR);
    }
    assert_eq!(handler.calls(), 0);
    assert_eq!(key(&engine, "idempotency:"), None);
}
