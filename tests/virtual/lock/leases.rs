//! Tests deadlines (P9) and renewals (P10) to the millisecond, in virtual time. `virtual/leases` has the cases of all kinds.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{AcquireError, AcquireOptions, Client, Lease, Lock, LostReason};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use tokio::time::Instant;

fn seconds(n: u64) -> Lease {
    Lease::new(Duration::from_secs(n)).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_every_third_of_its_lease_until_the_release() {
    let world = World::engine();
    let lock = Lock::new(&world.client().await, "job")
        .unwrap()
        .lease(seconds(3));
    let guard = lock.acquire().await.unwrap();
    // Caches the script on the server, so that each renewal is one command.
    guard.renew().await.unwrap();
    let before = world.scripts_run();
    tokio::time::sleep(Duration::from_millis(30_500)).await;
    assert_eq!(world.scripts_run() - before, 30);
    guard.release().await.unwrap();
    let before = world.scripts_run();
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!(world.scripts_run(), before, "P10: never after the release");
}

#[tokio::test(start_paused = true)]
async fn no_call_outlives_its_deadline() {
    let world = World::engine();
    let config = world
        .config("client")
        .operation_timeout(Duration::from_millis(1500));
    let client = Client::connect_with(config).await.unwrap();
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    let other = Lock::new(&client, "other").unwrap();
    world.as_engine().faults().freeze(None);
    let bounded = async |what: &str, limit: u64, work: &mut dyn AsyncCall| {
        let started = Instant::now();
        work.call().await;
        let elapsed = started.elapsed();
        assert!(
            elapsed <= Duration::from_millis(limit + 50),
            "{what} took {elapsed:?}"
        );
    };
    for timeout in [0, 1, 70, 999, 1000, 1001, 5000] {
        let wait = Duration::from_millis(timeout);
        bounded("acquire_timeout", timeout, &mut async || {
            drop(other.acquire_timeout(wait).await.unwrap_err());
        })
        .await;
    }
    bounded("try_acquire", 1500, &mut async || {
        drop(other.try_acquire().await.unwrap_err());
    })
    .await;
    bounded("renew", 1500, &mut async || {
        drop(guard.renew().await.unwrap_err());
    })
    .await;
    bounded("reenter", 1500, &mut async || {
        drop(guard.reenter().await.unwrap_err());
    })
    .await;
    bounded("status", 1500, &mut async || {
        drop(other.status().await.unwrap_err());
    })
    .await;
    let mut guard = Some(guard);
    bounded("release", 1500, &mut async || {
        drop(
            guard
                .take()
                .map(|g| async { g.release().await.unwrap_err() })
                .unwrap()
                .await,
        );
    })
    .await;
}

/// An async closure behind a reference.
trait AsyncCall {
    fn call(&mut self) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>>;
}

impl<F: AsyncFnMut()> AsyncCall for F {
    fn call(&mut self) -> std::pin::Pin<Box<dyn Future<Output = ()> + '_>> {
        Box::pin(self())
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_without_a_deadline_gives_up_after_the_outage_tolerance() {
    let world = World::engine();
    let config = world
        .config("client")
        .outage_tolerance(Duration::from_secs(8));
    let client = Client::connect_with(config).await.unwrap();
    world
        .as_engine()
        .faults()
        .restart(stanchion::embedded::Data::Lost);
    world.as_engine().faults().refuse_connections(Switch::On);
    let started = Instant::now();
    let error = Lock::new(&client, "job")
        .unwrap()
        .acquire()
        .await
        .unwrap_err();
    assert!(
        matches!(
            error,
            AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. }
        ),
        "{error}"
    );
    assert!(
        (8..10).contains(&started.elapsed().as_secs()),
        "{:?}",
        started.elapsed()
    );
}

#[tokio::test(start_paused = true)]
async fn tokens_grow_when_the_server_clock_steps_back() {
    let world = World::engine();
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let mut last = None;
    for _ in 0..5 {
        let guard = lock.acquire().await.unwrap();
        assert!(guard.fencing_token() > last);
        last = guard.fencing_token();
        guard.release().await.unwrap();
        world.as_engine().faults().step_clock(-60_000);
    }
}

/// P4: newcomers do not pass those that wait, until the clock has caught up.
#[tokio::test(start_paused = true)]
async fn waiters_keep_their_order_when_the_server_clock_steps_back() {
    let world = World::engine();
    let clients = world.fleet(4).await;
    let mut calls = clients.iter().map(|client| {
        let lock = Lock::new(client, "job").unwrap();
        async move { lock.acquire().await }
    });
    let mut guard = calls.next().unwrap().await.unwrap();
    let mut waiters = Vec::new();
    for (call, client) in calls.zip(&clients[1..]) {
        waiters.push(tokio::spawn(call));
        eventually("it waits", || client.waiters() == 1).await;
        world.quiet().await;
        world.as_engine().faults().step_clock(-3_600_000);
    }
    for waiter in waiters {
        guard.release().await.unwrap();
        guard = tokio::time::timeout(Duration::from_secs(1), waiter)
            .await
            .expect("another waiter was served first")
            .unwrap()
            .unwrap();
    }
}

/// Guards against a defect: the deadline of such a call ended it before any reply could arrive.
#[tokio::test(start_paused = true)]
async fn a_try_with_a_zero_timeout_sends_one_request() {
    let world = World::engine();
    let lock = Lock::new(&world.client().await, "job").unwrap();
    world
        .as_engine()
        .faults()
        .delay(None, Duration::from_millis(5));
    let at_once = || AcquireOptions::new().timeout(Duration::ZERO);
    let guard = lock.try_acquire_with(at_once()).await.unwrap().unwrap();
    assert!(lock.try_acquire_with(at_once()).await.unwrap().is_none());
    guard.release().await.unwrap();
}

/// P4: the watchdog runs when `max_hold` ends the hold, not only when the next renewal is due.
#[tokio::test(start_paused = true)]
async fn a_local_waiter_is_woken_when_max_hold_ends_a_hold_that_was_renewed_late() {
    let world = World::engine();
    // The waiter must be served without a poll.
    let config = world.config("one").poll_interval(Duration::from_secs(600));
    let lock = Lock::new(&Client::connect_with(config).await.unwrap(), "job").unwrap();
    // The server keeps the hold beyond `max_hold`, so the waiter is refused.
    let options = AcquireOptions::new()
        .max_hold(Duration::from_secs(32))
        .rest_after_crash(Duration::from_secs(30));
    let _held = lock.acquire_with(options).await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    // The renewals at 10 s and after get no reply until 25 s.
    tokio::time::sleep(Duration::from_secs(9)).await;
    world.as_engine().faults().refuse_connections(Switch::On);
    world.as_engine().faults().kill_connections();
    tokio::time::sleep(Duration::from_secs(16)).await;
    world.as_engine().faults().refuse_connections(Switch::Off);
    // The end of `max_hold`: the waiter sends a request.
    tokio::time::sleep(Duration::from_millis(6_900)).await;
    let before = world.scripts_run();
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert_eq!(world.scripts_run() - before, 1);
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lock_rests_after_its_holder_is_cut_off() {
    let world = World::engine();
    let (holder, other) = (world.named("holder").await, world.client().await);
    let [lock, there] = [&holder, &other].map(|client| Lock::new(client, "job").unwrap());
    let options = AcquireOptions::new()
        .lease(Lease::new(Duration::from_secs(1)).unwrap())
        .rest_after_crash(Duration::from_secs(10));
    let guard = lock.acquire_with(options).await.unwrap();
    world.as_engine().faults().freeze(Some("holder"));
    let started = other.now();
    assert_eq!(guard.lost().await, LostReason::Expired);
    // P5: the holder reports the loss within its own lease.
    assert!(other.now().since(started) <= Duration::from_secs(1));
    let _next = there.acquire().await.unwrap();
    let waited = other.now().since(started);
    assert!(
        waited >= Duration::from_secs(10) && waited < Duration::from_secs(12),
        "{waited:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn replies_to_other_requests_do_not_extend_a_deadline() {
    let world = World::engine();
    let timeout = Duration::from_secs(3);
    let config = world.config("ours").operation_timeout(timeout);
    let client = Client::connect_with(config).await.unwrap();
    let hold = async |name| {
        let lock = Lock::new(&client, name).unwrap();
        lock.lease(seconds(600)).acquire().await.unwrap()
    };
    let (renewed, released) = (hold("renewed").await, hold("released").await);
    // The delay of the replies grows more slowly than time passes, so the connection is never silent.
    let (engine, others) = (world.as_engine().clone(), client.clone());
    let busy = tokio::spawn(async move {
        let mut lag = Duration::ZERO;
        for n in 0.. {
            lag += Duration::from_millis(60);
            engine.faults().delay(Some("ours"), lag);
            let other = Lock::new(&others, format!("other-{n}")).unwrap();
            tokio::spawn(other.try_acquire());
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    // By now a reply takes more than twice the timeout.
    tokio::time::sleep(Duration::from_secs(12)).await;
    let began = Instant::now();
    let (renewed, released) = tokio::join!(
        async { (renewed.renew().await.unwrap_err(), began.elapsed()) },
        async { (released.release().await.unwrap_err(), began.elapsed()) },
    );
    let late = timeout + Duration::from_millis(50);
    assert!(renewed.1 <= late, "P9: {renewed:?}");
    assert!(released.1 <= late, "P9: {released:?}");
    busy.abort();
}
