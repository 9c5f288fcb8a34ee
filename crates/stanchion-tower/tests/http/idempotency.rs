//! Idempotency keys on the engine.

use std::time::Duration;

use stanchion_embedded::{Reply, Switch};
use stanchion_tower::*;
use tower_layer::{Layer as _, Stack};

use super::desk::Desk;
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

/// The layer in two processes.
async fn payments(handler: Handler) -> Desk {
    let mut desk = Desk::new(handler).await;
    desk.serve("here", by_user(&desk.here));
    desk.serve("there", by_user(&desk.there));
    desk
}

/// The key of the server that begins with `prefix`.
fn key(engine: &Engine, prefix: &str) -> Option<String> {
    let keys = engine.keys().into_iter();
    let mut keys = keys.map(|key| String::from_utf8(key).unwrap());
    keys.find(|key| key.starts_with(prefix))
}

const DONE: &str = "stanchion_done:{idempotency:";

#[tokio::test(start_paused = true)]
async fn requests_and_their_repetitions() {
    assert_eq!(MAX_RESPONSE_BYTES, 65_536);
    let mut desk = payments(Handler::open()).await;
    let client = desk.here.clone();
    let of = |namespace| IdempotencyLayer::new(&client, namespace, |_| Some(String::new()));
    desk.serve("required", by_user(&client).required());
    desk.serve("small", by_user(&client).max_request(4));
    desk.serve("keep", by_user(&client).keep(Duration::ZERO));
    desk.serve("lease", by_user(&client).lease(Duration::ZERO));
    let text = "
        # Others than idempotent methods need a key where it is required, also unknown ones.
        here POST /pay -> 200 #1 ran
        required POST /pay -> 400 KeyMissing
        required SETTLE /pay -> 400 KeyMissing
        required GET /pay key=k -> 200 #2 ran
        required PUT /pay key=k -> 200 #3 ran
        required DELETE /pay key=k -> 200 #4 ran
        required DELETE /pay key=k -> 200 #5 ran
        here POST /pay key=a~b -> 400 KeyInvalid
        required POST /pay key=a~b -> 400 KeyInvalid
        # Without a scope, two callers with one key could not be distinguished.
        required POST /pay user=anonymous key=k -> 400 ScopeMissing
        required POST /pay user=anonymous key=a~b -> 400 KeyInvalid
        required POST /pay user=anonymous -> 400 KeyMissing
        here POST /pay user=anonymous key=k -> 200 #6 ran
        here POST /pay user=anonymous key=a~b -> 200 #7 ran
        here POST /pay user=anonymous -> 200 #8 ran
        # A body over the bound.
        small POST /pay key=k body=12345 -> 413 TooLarge
        # Setters cannot fail, so a request with a key checks their values before the claim.
        keep POST /pay key=k -> 500 Rejected
        lease POST /pay key=k -> 500 Rejected
    ";
    desk.check(text).await;
    assert_eq!(key(&desk.engine, ""), None, "nothing was claimed");
    desk.serve("other", of("other").unwrap());
    desk.serve("not_404", by_user(&client).store_if(|it| it.status != 404));
    let text = r#"
        # A repetition gets the stored response.
        here POST /pay?now key="k" body=5~€ status=201 -> 201 #9 claim ran
        here POST /pay?now key=k body=5~€ -> 201 #9 claim replayed
        there POST /pay?now key=k body=5~€ -> 201 #9 claim replayed
        there POST /pay?now key=k body=6~€ -> 422 KeyReused
        there POST /refund key=k body=5~€ -> 422 KeyReused
        # The user and the namespace are parts of the key.
        here POST /pay?now key=k user=bob -> 200 #10 claim ran
        wait 1
        other POST /pay?now key=k -> 200 #11 claim ran
        # A predicate says which responses are stored.
        not_404 POST /pay key=a status=500 -> 500 #12 claim ran
        not_404 POST /pay key=a status=500 -> 500 #12 claim replayed
        not_404 POST /pay key=b status=404 -> 404 #13 claim ran
        not_404 POST /pay key=b status=404 -> 404 #14 claim ran
        # A response that is too large is not stored, and the handler does not run again.
        here POST /pay key=c length=65536 -> 200 65536 bytes ran
        here POST /pay key=c -> 200 65536 bytes replayed
        here POST /other key=c -> 422 KeyReused
        here POST /pay key=d length=65537 -> 200 65537 bytes ran
        here POST /pay key=d -> 410 NotStored
        here POST /other key=d -> 422 KeyReused
        small POST /pay key=e body=1234 -> 200 #17 claim ran
    "#;
    desk.check(text).await;
    // A response is kept for a day.
    let done = key(&desk.engine, DONE).unwrap();
    let Reply::Int(ttl) = desk.engine.execute(&["PTTL", &done]) else {
        panic!("no TTL")
    };
    assert!((86_390_000..=86_400_000).contains(&ttl), "{ttl} ms");
    for namespace in ["", "a:b"] {
        assert!(of(namespace).is_err(), "{namespace:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn one_of_concurrent_requests_runs_and_the_others_get_409() {
    let mut desk = payments(Handler::closed()).await;
    let text = "
        first = here POST /pay key=k
        there POST /pay key=k -> 409 InProgress retry=1
        there POST /pay key=k body=another -> 409 InProgress retry=1
        open 1
        first -> 200 #1 claim
        there POST /pay key=k -> 200 #1 claim replayed
        # A dropped request frees its claim.
        second = here POST /pay key=dropped
        abort second
        open 1
        until there POST /pay key=dropped -> 200 #3 claim ran
    ";
    desk.check(text).await;
    // Repetitions do not exclude each other.
    let again = (0..20).map(|_| desk.send(&["there", "POST", "/pay", "key=k"]));
    for again in futures_util::future::join_all(again).await {
        assert_eq!(again.shown(), "200 #1 claim replayed");
    }
}

#[tokio::test(start_paused = true)]
async fn a_failure_is_not_stored() {
    let mut desk = payments(Handler::open()).await;
    for (status, stored) in [
        (500, false),
        (503, false),
        (429, false),
        (408, false),
        (404, true),
        (409, true),
        (200, true),
    ] {
        let request = format!("here POST /pay key=k user={status} status={status}");
        let [first, again] = [1, 2].map(|it| desk.handler.calls() + it);
        let again = match stored {
            true => format!("{first} claim replayed"),
            false => format!("{again} claim ran"),
        };
        let first = format!("{request} -> {status} #{first} claim ran");
        let text = format!("{first}\n{request} -> {status} #{again}");
        desk.check(&text).await;
    }
    // A refusal of another layer is not stored, either.
    let lock = Lock::new(&desk.here, "lock").unwrap();
    let held = lock.acquire().await.unwrap();
    let locks = OneAtATimeLayer::by(move |_| Ok(Some(lock.clone())));
    desk.serve("both", Stack::new(locks, by_user(&desk.here)));
    desk.check("both POST /pay key=k -> 409 Busy retry=1").await;
    held.release().await.unwrap();
    desk.check("both POST /pay key=k -> 200 #12 claim ran")
        .await;
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
        let request = with(request("POST", "/pay", ""), "idempotency-key", "k").map(Body::new);
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
    let mut desk = payments(Handler::closed()).await;
    desk.check("first = here POST /pay key=k").await;
    let claim = key(&desk.engine, "idempotency:").unwrap();
    let operator = Lock::new(&another(&desk.engine).await, claim).unwrap();
    assert!(operator.danger().force_release().await.unwrap());
    desk.check("first -> 503 Lost").await;
    assert_eq!(key(&desk.engine, DONE), None);
}

/// The client does not notice that its claim is gone, as in a paused process: no message says so, and no renewal is due.
#[tokio::test(start_paused = true)]
async fn an_attempt_that_lost_its_claim_does_not_overwrite_the_response_of_its_successor() {
    let mut desk = payments(Handler::closed()).await;
    let paused = std::mem::replace(&mut desk.handler, Handler::open());
    desk.serve("next", by_user(&desk.there));
    desk.handler = paused;
    desk.check("first = here POST /pay key=k").await;
    let claim = key(&desk.engine, "idempotency:").unwrap();
    assert_eq!(desk.engine.execute(&["DEL", &claim]), Reply::Int(1));
    let text = "
        next POST /pay key=k status=201 -> 201 #1 claim
        open 1
        first -> 503 Lost
        next POST /pay key=k -> 201 #1 claim replayed
    ";
    desk.check(text).await;
}

/// The handler has run, so its response is sent.
#[tokio::test(start_paused = true)]
async fn a_response_that_cannot_be_stored_is_sent() {
    let mut desk = payments(Handler::closed()).await;
    desk.check("first = here POST /pay key=k").await;
    desk.engine.faults().out_of_memory(Switch::On);
    desk.check("open 2\nfirst -> 200 #1 claim").await;
    desk.engine.faults().out_of_memory(Switch::Off);
    assert_eq!(key(&desk.engine, DONE), None);
    desk.check("here POST /pay key=k -> 200 #2 claim ran").await;
}

/// The reply to the script that stores is lost: it is sent again, and stores once (P6).
#[tokio::test(start_paused = true)]
async fn a_lost_reply_does_not_change_the_outcome() {
    let mut desk = payments(Handler::open()).await;
    // All scripts are known to the server then, so each of the four is one EVALSHA.
    desk.check("here POST /pay key=warm -> 200 #1 claim ran")
        .await;
    for lost in 0..4 {
        desk.engine.faults().lose_replies("EVALSHA", lost);
        let (request, call) = (format!("here POST /pay key=k user={lost}"), lost + 2);
        let [ran, replayed] =
            ["ran", "replayed"].map(|it| format!("{request} -> 200 #{call} claim {it}"));
        let text = format!("{ran}\n{replayed}");
        desk.check(&text).await;
    }
}
