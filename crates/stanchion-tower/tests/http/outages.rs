//! The server is out of reach: responses take no longer than they must.

use std::sync::Mutex;
use std::time::Duration;

use stanchion_embedded::Switch;
use stanchion_tower::*;
use tokio::time::Instant;
use tower_layer::Stack;
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Level, Metadata, Subscriber};

use super::desk::Desk;
use super::*;

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

/// Takes the server out of reach. With `known`, the client knows it: it is disconnected.
async fn cut(desk: &Desk, known: bool) {
    match known {
        true => disconnect(&desk.engine, &desk.here).await,
        false => desk.engine.faults().freeze(None),
    }
}

fn mend(engine: &Engine) {
    engine.faults().thaw(None);
    engine.faults().refuse_connections(Switch::Off);
}

#[tokio::test(start_paused = true)]
async fn no_request_passes_during_an_outage_and_a_client_that_knows_of_it_refuses_at_once() {
    for known in [false, true] {
        let mut desk = Desk::new(Handler::open()).await;
        let (client, wait) = (desk.here.clone(), Duration::from_secs(2));
        desk.serve("lock", locks(&client));
        desk.serve("wait_lock", locks(&client).wait(wait));
        desk.serve("permit", permits(&client));
        desk.serve("wait_permit", permits(&client).wait(wait));
        desk.serve("rate", rates(&client));
        desk.serve("wait_rate", rates(&client).wait(wait));
        desk.serve("keys", keys(&client));
        let free = OneAtATimeLayer::new(&client, "all", |_| None::<String>);
        desk.serve("free", free.unwrap());
        cut(&desk, known).await;
        let levels = Levels::default();
        let _guard = tracing::subscriber::set_default(levels.clone());
        let began = Instant::now();
        let text = "
            lock POST /a key=k -> 503 Unavailable retry=1
            wait_lock POST /a key=k -> 503 Unavailable retry=1
            permit POST /a key=k -> 503 Unavailable retry=1
            wait_permit POST /a key=k -> 503 Unavailable retry=1
            rate POST /a key=k -> 503 Unavailable retry=1
            wait_rate POST /a key=k -> 503 Unavailable retry=1
            keys POST /a key=k -> 503 Unavailable retry=1
        ";
        desk.check(text).await;
        assert_eq!(began.elapsed() == Duration::ZERO, known);
        assert_eq!(*levels.0.lock().unwrap(), [Level::WARN; 7]);
        // A request without a lock passes. The layers work again when the connection is back.
        desk.check("free POST /a -> 200 #1 ran").await;
        mend(&desk.engine);
        stanchion_testkit::eventually("the client is connected", || client.is_connected()).await;
        desk.check("keys POST /a key=k -> 200 #2 claim ran").await;
    }
}

/// A busy lock is no outage.
#[tokio::test(start_paused = true)]
async fn open_layers_pass_requests_while_the_server_is_out_of_reach() {
    let mut desk = Desk::new(Handler::open()).await;
    let (client, second) = (desk.here.clone(), Duration::from_secs(1));
    desk.serve("lock", locks(&client).fail_open());
    desk.serve("wait_lock", locks(&client).fail_open().wait(second));
    desk.serve("permit", permits(&client).fail_open());
    desk.serve("rate", rates(&client).fail_open());
    let held = Lock::new(&client, "all:").unwrap().acquire().await.unwrap();
    let text = "
        lock POST /a -> 409 Busy retry=1
        wait_lock POST /a -> 409 Busy retry=1
    ";
    desk.check(text).await;
    held.release().await.unwrap();
    // Not known yet: each request waits for a reply.
    cut(&desk, false).await;
    let text = "
        lock POST /a -> 200 #1 ran
        wait_lock POST /a -> 200 #2 ran
        permit POST /a -> 200 #3 ran
        rate POST /a -> 200 #4 ran
    ";
    desk.check(text).await;
    desk.engine.faults().thaw(None);
    cut(&desk, true).await;
    let began = Instant::now();
    let text = "
        lock POST /a -> 200 #5 ran
        wait_lock POST /a -> 200 #6 ran
        permit POST /a -> 200 #7 ran
        rate POST /a -> 200 #8 ran
    ";
    desk.check(text).await;
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// The client may be connected, without knowing that the server is out of reach.
#[tokio::test(start_paused = true)]
async fn a_response_does_not_wait_for_the_release() {
    for known in [false, true] {
        let mut desk = Desk::new(Handler::closed()).await;
        let semaphore = LeasedSemaphore::new(&desk.here, "permits").unwrap();
        semaphore.init(1).await.unwrap();
        desk.serve("both", Stack::new(permits(&desk.here), locks(&desk.here)));
        desk.check("first = both POST /a").await;
        cut(&desk, known).await;
        let began = Instant::now();
        desk.check("open 1\nfirst -> 200 #1 lock").await;
        let longest = Duration::from_millis(if known { 0 } else { 2 * 101 });
        assert!(began.elapsed() <= longest, "{:?}", began.elapsed());
        // P3: both releases are under way.
        mend(&desk.engine);
        let lock = Lock::new(&desk.here, "all:").unwrap();
        let soon = Duration::from_secs(5);
        let _guard = lock.acquire_timeout(soon).await.unwrap();
        let _permit = semaphore.acquire_timeout(soon).await.unwrap();
    }
}

/// The handler has run, so its client gets the response. A repetition gets it, too, when the server is back.
#[tokio::test(start_paused = true)]
async fn a_response_is_stored_after_the_outage_in_which_it_was_sent() {
    for known in [false, true] {
        let mut desk = Desk::new(Handler::closed()).await;
        desk.serve("keys", keys(&desk.here));
        desk.check("first = keys POST /a key=k").await;
        cut(&desk, known).await;
        let began = Instant::now();
        desk.check("open 2\nfirst -> 200 #1 claim").await;
        assert_eq!(began.elapsed().as_secs(), u64::from(!known));
        assert!(began.elapsed().subsec_millis() < 10);
        // Longer than the operation timeout, shorter than the lease.
        desk.check("wait 12000").await;
        mend(&desk.engine);
        let again = "until keys POST /a key=k -> 200 #1 claim replayed";
        desk.check(again).await;
    }
}
