//! Tests deadlines (P9) and renewals (P10) to the millisecond, in virtual time. `virtual/leases` has the cases of all kinds.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{
    AcquireError, AcquireOptions, Client, Lock, LostReason, QueryError, ReleaseError, RenewError,
    Renewal,
};
use stanchion_testkit::eventually;
use stanchion_tests::{World, lease, ms, secs, spawn_ok};
use tokio::time::Instant;

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_every_third_of_its_lease_until_the_release() {
    let world = World::engine();
    let lock = Lock::new(&world.client().await, "job")
        .unwrap()
        .lease(lease(secs(3)));
    let guard = lock.acquire().await.unwrap();
    // Caches the script on the server, so that each renewal is one command.
    guard.renew().await.unwrap();
    let before = world.scripts_run();
    tokio::time::sleep(ms(30_500)).await;
    assert_eq!(world.scripts_run() - before, 30);
    guard.release().await.unwrap();
    let before = world.scripts_run();
    tokio::time::sleep(secs(60)).await;
    assert_eq!(world.scripts_run(), before, "P10: never after the release");
}

/// P9. P8: the errors say what is unknown. P3: as soon as the server answers again, calls without an answer are undone, and releases done.
#[tokio::test(start_paused = true)]
async fn without_answers_every_call_ends_at_its_deadline() {
    // The requests do not arrive, or their replies.
    for arrives in [false, true] {
        let world = World::engine();
        let config = world.config("client");
        let config = config.operation_timeout(ms(1500));
        let client = Client::connect_with(config).await.unwrap();
        let lock = Lock::new(&client, "job").unwrap().lease(lease(secs(60)));
        let other = Lock::new(&client, "other").unwrap();
        // The server knows the scripts, so that a request is one command.
        lock.acquire().await.unwrap().release().await.unwrap();
        let guard = lock.acquire().await.unwrap();
        let faults = world.faults();
        if arrives {
            faults.lose_replies("EVALSHA", 1000);
            faults.lose_replies("EVAL", 1000);
        } else {
            faults.freeze(None);
        }
        let mut began = Instant::now();
        let mut within = |limit: u64, what: &str| {
            let took = std::mem::replace(&mut began, Instant::now()).elapsed();
            let limit = ms(limit + 50);
            assert!(took <= limit, "{what} took {took:?}");
        };
        for timeout in [0, 1, 70, 999, 1000, 1001, 5000] {
            let wait = ms(timeout);
            let error = other.acquire_timeout(wait).await.unwrap_err();
            assert!(!matches!(error, AcquireError::Rejected { .. }), "{error}");
            within(timeout, "acquire_timeout");
        }
        let error = other.try_acquire().await.unwrap_err();
        assert!(!matches!(error, AcquireError::Rejected { .. }), "{error}");
        within(1500, "try_acquire");
        for error in [
            guard.renew().await.unwrap_err(),
            guard.reenter().await.unwrap_err(),
        ] {
            assert!(matches!(error, RenewError::Unavailable { .. }), "{error}");
        }
        within(3000, "renew and reenter");
        for error in [
            lock.status().await.unwrap_err(),
            other.danger().force_release().await.unwrap_err(),
        ] {
            let is_open = matches!(
                error,
                QueryError::Unavailable { .. } | QueryError::Unanswered { .. }
            );
            assert!(is_open, "{error}");
        }
        within(3000, "status and force_release");
        assert!(guard.is_held());
        let error = guard.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Ambiguous { .. }), "{error}");
        within(1500, "release");
        faults.thaw(None);
        faults.clear();
        let began = Instant::now();
        world.at_rest().await;
        assert!(began.elapsed() < secs(5));
    }
}

/// P4: newcomers do not pass those that wait, until the clock has caught up.
#[tokio::test(start_paused = true)]
async fn waiters_keep_their_order_when_the_server_clock_steps_back() {
    let (world, clients) = World::engine().with_fleet(4).await;
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
        world.faults().step_clock(-3_600_000);
    }
    for waiter in waiters {
        guard.release().await.unwrap();
        guard = tokio::time::timeout(secs(1), waiter)
            .await
            .expect("another waiter was served first")
            .unwrap()
            .unwrap();
    }
}

/// P4: the watchdog runs when `max_hold` ends the hold, not only when the next renewal is due.
#[tokio::test(start_paused = true)]
async fn a_local_waiter_is_woken_when_max_hold_ends_a_hold_that_was_renewed_late() {
    let world = World::engine();
    // The waiter must be served without a poll.
    let config = world.config("one").poll_interval(secs(600));
    let lock = Lock::new(&Client::connect_with(config).await.unwrap(), "job").unwrap();
    // The server keeps the hold beyond `max_hold`, so the waiter is refused.
    let options = AcquireOptions::new()
        .max_hold(secs(32))
        .rest_after_crash(secs(30));
    let _held = lock.acquire_with(options).await.unwrap();
    let waiter = spawn_ok(lock.acquire());
    // The renewals at 10 s and after get no reply until 25 s.
    tokio::time::sleep(secs(9)).await;
    world.faults().refuse_connections(Switch::On);
    world.faults().kill_connections();
    tokio::time::sleep(secs(16)).await;
    world.faults().refuse_connections(Switch::Off);
    // The end of `max_hold`: the waiter sends a request.
    tokio::time::sleep(ms(6_900)).await;
    let before = world.scripts_run();
    tokio::time::sleep(ms(200)).await;
    assert_eq!(world.scripts_run() - before, 1);
    waiter.abort();
}

#[tokio::test(start_paused = true)]
async fn a_lock_rests_after_its_holder_is_cut_off_and_not_after_a_release() {
    let world = World::engine();
    let (holder, other) = (world.named("holder").await, world.client().await);
    let [lock, there] = [&holder, &other].map(|client| Lock::new(client, "job").unwrap());
    let rests = || {
        let options = AcquireOptions::new().lease(lease(secs(1)));
        options.rest_after_crash(secs(10))
    };
    let guard = lock.acquire_with(rests()).await.unwrap();
    guard.renew().await.unwrap();
    assert!(guard.remaining() <= secs(1));
    assert_eq!(world.admin(&["PTTL", "job"]), "11000");
    guard.release().await.unwrap();
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    for cut_off in [true, false] {
        // Without renewals, as if the process had been killed; the client has detected the loss, so its drop frees the name at once.
        let options = rests().renewal(Renewal::Manual);
        let guard = lock.acquire_with(options).await.unwrap();
        if cut_off {
            world.faults().freeze(Some("holder"));
        }
        let started = other.now();
        assert_eq!(guard.lost().await, LostReason::Expired);
        // P5: the holder reports the loss within its own lease.
        assert!(other.now().since(started) <= secs(1));
        assert!(there.try_acquire().await.unwrap().is_none());
        if !cut_off {
            drop(guard);
        }
        let next = there.acquire().await.unwrap();
        let waited = other.now().since(started);
        let expected = if cut_off { 10..12 } else { 0..2 };
        assert!(expected.contains(&waited.as_secs()), "{waited:?}");
        next.release().await.unwrap();
        world.faults().thaw(None);
    }
}

#[tokio::test(start_paused = true)]
async fn replies_to_other_requests_do_not_extend_a_deadline() {
    let world = World::engine();
    let timeout = secs(3);
    let client = world
        .configured("ours", |it| it.operation_timeout(timeout))
        .await;
    let hold = async |name| {
        let lock = Lock::new(&client, name).unwrap();
        lock.lease(lease(secs(600))).acquire().await.unwrap()
    };
    let (renewed, released) = (hold("renewed").await, hold("released").await);
    // The delay of the replies grows more slowly than time passes, so the connection is never silent.
    let (engine, others) = (world.as_engine().clone(), client.clone());
    let busy = tokio::spawn(async move {
        let mut lag = Duration::ZERO;
        for n in 0.. {
            lag += ms(60);
            engine.faults().delay(Some("ours"), lag);
            let other = Lock::new(&others, format!("other-{n}")).unwrap();
            tokio::spawn(other.try_acquire());
            tokio::time::sleep(ms(100)).await;
        }
    });
    // By now a reply takes more than twice the timeout.
    tokio::time::sleep(secs(12)).await;
    let began = Instant::now();
    let (renewed, released) = tokio::join!(
        async { (renewed.renew().await.unwrap_err(), began.elapsed()) },
        async { (released.release().await.unwrap_err(), began.elapsed()) },
    );
    let late = timeout + ms(50);
    assert!(renewed.1 <= late, "P9: {renewed:?}");
    assert!(released.1 <= late, "P9: {released:?}");
    busy.abort();
}
