//! Tests of the events and gauges that a client reports to its observer.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stanchion::client::{Gauges, Observer};
use stanchion::embedded::Switch;
use stanchion::{AcquireOptions, Client, CountDownLatch, Lock};
use stanchion_tests::{World, ms, secs};

/// Counts events by their labels.
#[derive(Default)]
struct Counting {
    events: Mutex<BTreeMap<String, u64>>,
    gauges: Mutex<Gauges>,
    fails: bool,
}

impl Counting {
    fn count(&self, event: String) {
        *self.events.lock().unwrap().entry(event).or_default() += 1;
        assert!(!self.fails, "an observer that panics");
    }

    fn of(&self, event: &str) -> u64 {
        *self.events.lock().unwrap().get(event).unwrap_or(&0)
    }

    fn now(&self) -> Gauges {
        self.gauges.lock().unwrap().clone()
    }
}

impl Observer for Counting {
    fn waited(&self, kind: &'static str, outcome: &'static str, _: Duration) {
        self.count(format!("waited {kind} {outcome}"));
    }

    fn held(&self, kind: &'static str, time: Duration) {
        self.count(format!("held {kind} {}", time.as_secs()));
    }

    fn lost(&self, kind: &'static str, reason: &'static str) {
        self.count(format!("lost {kind} {reason}"));
    }

    fn handed(&self, kind: &'static str) {
        self.count(format!("handed {kind}"));
    }

    fn released(&self, kind: &'static str) {
        self.count(format!("released {kind}"));
    }

    fn woken(&self, kind: &'static str, useful: bool) {
        self.count(format!("woken {kind} {useful}"));
    }

    fn renewed(&self, _: Duration) {
        self.count("renewed".into());
    }

    fn renewal_failed(&self, kind: &'static str) {
        self.count(format!("renewal failed {kind}"));
    }

    fn reconnected(&self) {
        self.count("reconnected".into());
    }

    fn gauges(&self, now: &Gauges) {
        *self.gauges.lock().unwrap() = now.clone();
    }
}

async fn observed(world: &World, observer: &Arc<Counting>) -> Client {
    let config = world.config("observed").observer(observer.clone());
    Client::connect_with(config).await.unwrap()
}

async fn seconds(n: u64) {
    tokio::time::sleep(secs(n)).await;
}

#[tokio::test(start_paused = true)]
async fn each_event_is_reported_once_with_its_labels() {
    let world = World::engine();
    let counting = Arc::new(Counting::default());
    let client = observed(&world, &counting).await;
    let other = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let short = lock.acquire_timeout(ms(10)).await;
    assert!(short.is_err());
    seconds(5).await;
    guard.release().await.unwrap();
    for (event, times) in [
        ("waited lock acquired", 1),
        ("waited lock busy", 1),
        ("waited lock timed_out", 1),
        ("held lock 5", 1),
        ("released lock", 1),
        ("handed lock", 0),
        ("woken lock true", 0),
        ("woken lock false", 0),
    ] {
        assert_eq!(counting.of(event), times, "{event}");
    }
    // By hand-off, and by the message of another process.
    let guard = lock.acquire().await.unwrap();
    let next = tokio::spawn(lock.acquire());
    seconds(1).await;
    guard.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(counting.of("handed lock"), 1);
    assert_eq!(counting.of("woken lock true"), 1);
    let theirs = Lock::new(&other, "job").unwrap().acquire().await.unwrap();
    let next = tokio::spawn(lock.acquire());
    seconds(1).await;
    theirs.release().await.unwrap();
    next.await.unwrap().unwrap().release().await.unwrap();
    assert_eq!(counting.of("woken lock true"), 2);
    let brief = AcquireOptions::new().max_hold(secs(20));
    let guard = lock.acquire_with(brief).await.unwrap();
    guard.lost().await;
    assert_eq!(counting.of("lost lock max_hold"), 1);
    assert_eq!(counting.of("held lock 19") + counting.of("held lock 20"), 1);
}

#[tokio::test(start_paused = true)]
async fn gauges_show_current_holds_waits_and_connections() {
    let world = World::engine();
    let counting = Arc::new(Counting::default());
    let client = observed(&world, &counting).await;
    let (a, b) = (
        Lock::new(&client, "a").unwrap(),
        Lock::new(&client, "b").unwrap(),
    );
    let latch = CountDownLatch::new(&client, "done").unwrap();
    latch.arm(1).await.unwrap();
    let (first, second) = (a.acquire().await.unwrap(), b.acquire().await.unwrap());
    let waiting = tokio::spawn(a.acquire());
    seconds(7).await;
    let waits = latch.clone();
    let at_latch = tokio::spawn(async move { waits.wait().await });
    seconds(3).await;
    let now = counting.now();
    assert_eq!(now.held, [("lock", 2)]);
    let mut waits = now.waiting.clone();
    waits.sort_unstable();
    assert_eq!(waits, [("latch", 1), ("lock", 1)]);
    assert_eq!(now.oldest_wait.as_secs(), 9, "as of the last beat");
    assert!(now.connected.iter().all(|(_, up)| *up == 1), "{now:?}");
    assert_eq!(now.connected.len(), 3);
    latch.count_down().await.unwrap();
    at_latch.await.unwrap().unwrap();
    waiting.abort();
    drop((first, second));
    seconds(2).await;
    let now = counting.now();
    // A latch has no holder, so it does not count as a hold.
    assert_eq!((now.held, now.waiting), (vec![("lock", 0)], vec![]));
    assert_eq!(now.oldest_wait, Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn an_outage_reports_failed_renewals_and_reconnects() {
    let world = World::engine();
    let counting = Arc::new(Counting::default());
    let client = observed(&world, &counting).await;
    let guard = Lock::new(&client, "job").unwrap().acquire().await.unwrap();
    seconds(9).await;
    let faults = world.faults();
    faults.refuse_connections(Switch::On);
    faults.kill_connections();
    seconds(5).await;
    assert!(counting.now().connected.iter().all(|(_, up)| *up == 0));
    assert!(counting.of("renewal failed lock") > 0);
    assert_eq!(counting.of("reconnected"), 0);
    faults.refuse_connections(Switch::Off);
    seconds(5).await;
    // In virtual time: one connection for commands and background work, and one for messages.
    assert_eq!(counting.of("reconnected"), 2);
    assert!(counting.now().connected.iter().all(|(_, up)| *up == 1));
    assert!(counting.of("renewed") > 0 && guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn an_observer_that_panics_is_not_called_again_and_renewals_go_on() {
    let world = World::engine();
    let counting = Arc::new(Counting {
        fails: true,
        ..Counting::default()
    });
    let client = observed(&world, &counting).await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    // P10: renewals go on.
    seconds(90).await;
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let calls: u64 = counting.events.lock().unwrap().values().sum();
    assert_eq!(calls, 1);
}
