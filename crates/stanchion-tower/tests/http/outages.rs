//! The server is out of reach: responses take no longer than they must.

use std::sync::Mutex;
use std::time::Duration;

use stanchion_embedded::Switch;
use stanchion_tower::*;
use tokio::time::Instant;
use tower_layer::Layer as _;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::*;

fn with_key() -> Request<Body> {
    with(request("POST", "/a", ""), "idempotency-key", "k")
}

/// Cuts the connections, and returns when the client knows it.
async fn disconnect(engine: &Engine, client: &Client) {
    engine.faults().refuse_connections(Switch::On);
    engine.faults().kill_connections();
    stanchion_testkit::eventually("the client is disconnected", || !client.is_connected()).await;
}

fn locks(client: &Client) -> OneAtATimeLayer {
    OneAtATimeLayer::new(client, "all", |_| Some("")).unwrap()
}

fn rates(client: &Client) -> RateLimitLayer {
    let quota: Quota = "9/h".parse().unwrap();
    RateLimitLayer::new(client, "all", quota, |_| Some("")).unwrap()
}

fn permits(client: &Client) -> ConcurrencyLayer {
    ConcurrencyLayer::new(LeasedSemaphore::new(client, "permits").unwrap())
}

fn keys(client: &Client) -> IdempotencyLayer {
    IdempotencyLayer::new(client, "all", |_| Some("ann".to_owned())).unwrap()
}

/// Writes down the levels of the crate's events.
#[derive(Clone, Default)]
struct Levels(Arc<Mutex<Vec<Level>>>);

impl Subscriber for Levels {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target().starts_with("stanchion_tower")
    }

    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }

    fn record(&self, _: &Id, _: &Record<'_>) {}

    fn record_follows_from(&self, _: &Id, _: &Id) {}

    fn event(&self, event: &Event<'_>) {
        self.0.lock().unwrap().push(*event.metadata().level());
    }

    fn enter(&self, _: &Id) {}

    fn exit(&self, _: &Id) {}
}

#[tokio::test(start_paused = true)]
async fn no_request_passes_during_an_outage_and_a_client_that_knows_of_it_refuses_at_once() {
    for known in [false, true] {
        let (engine, client) = world().await;
        let handler = Handler::open();
        let inner = handler.service(|_| Response::default());
        let wait = Duration::from_secs(2);
        if known {
            disconnect(&engine, &client).await;
        } else {
            engine.faults().freeze(None);
        }
        let levels = Levels::default();
        let _guard = tracing::subscriber::set_default(levels.clone());
        let began = Instant::now();
        let inner = || inner.clone();
        let responses = [
            send(&locks(&client).layer(inner()), with_key()).await,
            send(&locks(&client).wait(wait).layer(inner()), with_key()).await,
            send(&permits(&client).layer(inner()), with_key()).await,
            send(&permits(&client).wait(wait).layer(inner()), with_key()).await,
            send(&rates(&client).layer(inner()), with_key()).await,
            send(&rates(&client).wait(wait).layer(inner()), with_key()).await,
            send(&keys(&client).layer(inner()), with_key()).await,
        ];
        assert_eq!(began.elapsed() == Duration::ZERO, known);
        for response in responses {
            assert_eq!(response.status(), 503, "{response:?}");
            let refusal = response.extensions().get();
            assert_eq!(refusal, Some(&Refusal::Unavailable), "{response:?}");
            assert_eq!(header(&response, "retry-after"), Some("1"));
        }
        assert_eq!(handler.calls(), 0);
        assert_eq!(*levels.0.lock().unwrap(), [Level::WARN; 7]);
        // A request without a lock passes.
        let free = OneAtATimeLayer::new(&client, "all", |_| None::<String>).unwrap();
        assert_eq!(send(&free.layer(inner()), with_key()).await.status(), 200);

        // The layers work again when the connection is back.
        engine.faults().thaw(None);
        engine.faults().refuse_connections(Switch::Off);
        stanchion_testkit::eventually("the client is connected", || client.is_connected()).await;
        let back = send(&keys(&client).layer(inner()), with_key()).await;
        assert_eq!(back.status(), 200);
    }
}

#[tokio::test(start_paused = true)]
async fn open_layers_pass_requests_while_the_server_is_out_of_reach() {
    let (engine, client) = world().await;
    let handler = Handler::open();
    let inner = handler.service(|request| {
        assert!(request.extensions().get::<Locked>().is_none());
        Response::default()
    });
    let lock = locks(&client).fail_open().layer(inner.clone());
    let waits = locks(&client).wait(Duration::from_secs(1)).fail_open();
    let waits = waits.layer(inner.clone());
    let permit = permits(&client).fail_open().layer(inner.clone());
    let rate = rates(&client).fail_open().layer(inner.clone());
    let pass = async || {
        for service in [&lock, &waits, &permit] {
            assert_eq!(send(service, with_key()).await.status(), 200);
        }
        let passed = send(&rate, with_key()).await;
        assert_eq!(passed.status(), 200);
        assert_eq!(header(&passed, "ratelimit-limit"), None);
    };
    // Not known yet: each request waits for a reply.
    engine.faults().freeze(None);
    pass().await;
    engine.faults().thaw(None);
    disconnect(&engine, &client).await;
    let began = Instant::now();
    pass().await;
    assert_eq!(began.elapsed(), Duration::ZERO);
    assert_eq!(handler.calls(), 8);
}

/// A busy lock is no outage.
#[tokio::test(start_paused = true)]
async fn an_open_layer_is_closed_while_the_server_answers() {
    let (_engine, client) = world().await;
    let held = Lock::new(&client, "all:").unwrap().acquire().await.unwrap();
    let handler = Handler::open();
    let inner = handler.service(|_| Response::default());
    let second = Duration::from_secs(1);
    for layer in [
        locks(&client).fail_open(),
        locks(&client).fail_open().wait(second),
    ] {
        let busy = send(&layer.layer(inner.clone()), with_key()).await;
        assert_eq!(busy.status(), 409);
    }
    held.release().await.unwrap();
}

/// The client may be connected, without knowing that the server is out of reach.
#[tokio::test(start_paused = true)]
async fn a_response_does_not_wait_for_the_release() {
    for disconnected in [false, true] {
        let (engine, client) = world().await;
        let permits = LeasedSemaphore::new(&client, "permits").unwrap();
        permits.init(1).await.unwrap();
        let handler = Handler::closed();
        let inner = handler.service(|_| Response::default());
        let service = locks(&client).layer(ConcurrencyLayer::new(permits.clone()).layer(inner));
        let running = spawned(&service, with_key());
        handler.called(1).await;
        if disconnected {
            disconnect(&engine, &client).await;
        } else {
            engine.faults().freeze(None);
        }
        let began = Instant::now();
        handler.gate.add_permits(1);
        assert_eq!(running.await.unwrap().status(), 200);
        let longest = Duration::from_millis(if disconnected { 0 } else { 2 * 101 });
        assert!(began.elapsed() <= longest, "{:?}", began.elapsed());
        // P3: both releases are under way.
        engine.faults().thaw(None);
        engine.faults().refuse_connections(Switch::Off);
        let lock = Lock::new(&client, "all:").unwrap();
        let soon = Duration::from_secs(5);
        let _guard = lock.acquire_timeout(soon).await.unwrap();
        let _permit = permits.acquire_timeout(soon).await.unwrap();
    }
}

/// The handler has run, so its client gets the response. A repetition gets it, too, when the server is back.
#[tokio::test(start_paused = true)]
async fn a_response_is_stored_after_the_outage_in_which_it_was_sent() {
    for disconnected in [false, true] {
        let (engine, client) = world().await;
        let handler = Handler::closed();
        let service = keys(&client).layer(handler.service(|_| Response::default()));
        let running = spawned(&service, with_key());
        handler.called(1).await;
        if disconnected {
            disconnect(&engine, &client).await;
        } else {
            engine.faults().freeze(None);
        }
        let began = Instant::now();
        handler.gate.add_permits(1);
        assert_eq!(running.await.unwrap().status(), 200);
        let longest = if disconnected { 0 } else { 1 };
        assert_eq!(began.elapsed().as_secs(), longest);
        assert!(began.elapsed().subsec_millis() < 10);

        // Longer than the operation timeout, shorter than the lease.
        tokio::time::sleep(Duration::from_secs(12)).await;
        engine.faults().thaw(None);
        engine.faults().refuse_connections(Switch::Off);
        stanchion_testkit::eventually_async("a repetition gets the response", async || {
            let again = send(&service, with_key()).await;
            header(&again, "idempotency-replayed") == Some("true")
        })
        .await;
        assert_eq!(handler.calls(), 1);
    }
}
