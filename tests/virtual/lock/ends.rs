//! Tests of the end of a hold: after a suspend, for tasks that watch it, and behind another operation of the same owner.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::client::{Clock, TokioClock};
use stanchion::{
    AcquireOptions, Client, Fencing, LeaseLost, Lock, Lockable, LostReason, Moment, MultiLock,
    RedLock, ReleaseError, RwLock,
};
use stanchion_testkit::eventually;
use stanchion_tests::{World, lease, ms, poll_once, secs, spawn_ok};
use tokio::time::Instant;

/// A clock that advances while the machine is suspended. Timers do not.
#[derive(Clone, Debug)]
struct Suspendable {
    clock: TokioClock,
    slept: Arc<AtomicU64>,
}

impl Suspendable {
    fn start() -> Self {
        Self {
            clock: TokioClock::start(),
            slept: Arc::default(),
        }
    }

    fn suspend(&self, length: Duration) {
        let millis = u64::try_from(length.as_millis()).unwrap();
        self.slept.fetch_add(millis, Ordering::Relaxed);
    }

    async fn client(&self, world: &World) -> Client {
        let config = world.config("client").clock(self.clone());
        Client::connect_with(config).await.unwrap()
    }
}

impl Clock for Suspendable {
    fn now(&self) -> Moment {
        let slept = ms(self.slept.load(Ordering::Relaxed));
        Moment::from_origin(self.clock.now().since_origin() + slept)
    }
}

/// Work that suspends the machine for a minute, and then counts its steps.
fn suspended(clock: &Suspendable, steps: &Arc<AtomicU64>) -> impl Future<Output = ()> + use<> {
    let (clock, steps) = (clock.clone(), Arc::clone(steps));
    async move {
        tokio::time::sleep(ms(50)).await;
        clock.suspend(secs(60));
        loop {
            tokio::time::sleep(ms(10)).await;
            steps.fetch_add(1, Ordering::Relaxed);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn work_under_a_guard_takes_no_step_after_a_suspend() {
    let clock = Suspendable::start();
    let worlds = [World::engine(), World::engine(), World::engine()];
    let mut clients = Vec::new();
    for world in &worlds {
        clients.push(clock.client(world).await);
    }
    let client = &clients[0];
    let steps = Arc::new(AtomicU64::new(0));
    let is_expired = |done: Result<(), LeaseLost>, what: &str| {
        assert_eq!(done.unwrap_err().reason, LostReason::Expired, "{what}");
        assert_eq!(steps.swap(0, Ordering::Relaxed), 0, "P5: {what}");
    };

    let single = Lock::new(client, "single").unwrap();
    let guard = single.acquire().await.unwrap();
    is_expired(guard.run(suspended(&clock, &steps)).await, "Lock");

    let (a, b) = (
        Lock::new(client, "a").unwrap(),
        Lock::new(client, "b").unwrap(),
    );
    let together = MultiLock::new([&a as &dyn Lockable, &b]).unwrap();
    let guard = together.acquire().await.unwrap();
    is_expired(guard.run(suspended(&clock, &steps)).await, "one script");

    let elsewhere = Lock::new(&clients[1], "c").unwrap();
    let in_order = MultiLock::new([&single as &dyn Lockable, &elsewhere]).unwrap();
    let guard = in_order.acquire().await.unwrap();
    is_expired(guard.run(suspended(&clock, &steps)).await, "in order");

    let quorum = RedLock::new(&clients, "job").unwrap();
    let guard = quorum.acquire().await.unwrap();
    is_expired(guard.run(suspended(&clock, &steps)).await, "RedLock");
    assert_eq!(guard.nodes_held(), 0);
}

#[tokio::test(start_paused = true)]
async fn a_lease_that_outlasts_a_suspend_is_renewed_soon_after_it() {
    let world = World::engine();
    let clock = Suspendable::start();
    let client = clock.client(&world).await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    for _ in 0..5 {
        // The renewal is due at 10 s and the lease ends at 29.7 s. The suspend has not advanced the renewal's timer.
        clock.suspend(secs(25));
        let lost = tokio::time::timeout(secs(2), guard.lost()).await;
        assert!(lost.is_err(), "{lost:?}");
        assert!(guard.remaining() > secs(25), "{:?}", guard.remaining());
    }
    // The lease ends during this suspend. `lost()` resolves soon, although no timer is due yet.
    clock.suspend(secs(60));
    let lost = tokio::time::timeout(secs(2), guard.lost()).await;
    assert_eq!(lost.unwrap(), LostReason::Expired);
}

#[tokio::test(start_paused = true)]
async fn a_watcher_of_a_hold_keeps_no_client_alive() {
    let (world, others) = (World::engine(), World::engine());
    // Every part of a client holds a reference to the clock, so the count shows whether parts are left.
    let clock = Suspendable::start();
    let (client, other) = (clock.client(&world).await, clock.client(&others).await);
    let lock = Lock::new(&client, "job").unwrap();
    let apart = Lock::new(&other, "part").unwrap();
    let both = MultiLock::new([&lock as &dyn Lockable, &apart]).unwrap();
    let watchers = {
        let guard = lock.acquire().await.unwrap();
        let watcher = tokio::spawn(guard.lost());
        tokio::task::yield_now().await;
        guard.release().await.unwrap();
        let guard = both.acquire().await.unwrap();
        let second = tokio::spawn(guard.lost());
        tokio::task::yield_now().await;
        drop(guard);
        [watcher, second]
    };
    world.at_rest().await;
    drop((lock, apart, both, client, other));
    eventually("the clients are dropped", || {
        Arc::strong_count(&clock.slept) == 1
    })
    .await;
    assert!(
        watchers.iter().all(|watcher| !watcher.is_finished()),
        "a released hold is never reported as lost"
    );
}

/// P9: an unanswered renewal continues for as long as the lease. Calls that wait behind it have their own deadlines.
#[tokio::test(start_paused = true)]
async fn a_call_behind_another_of_its_owner_keeps_its_deadline() {
    let limit = ms(5_050);
    let unconfirmed = |outcome: Result<(), ReleaseError>, what: &str| {
        let error = outcome.unwrap_err();
        assert!(
            matches!(error, ReleaseError::Ambiguous { .. }),
            "{what}: {error}"
        );
    };
    for what in ["release", "second release", "renew", "reenter", "downgrade"] {
        let (world, client) = World::engine().with_client().await;
        let lock = RwLock::new(&client, "job")
            .unwrap()
            .lease(lease(secs(3600)));
        let plain = Lock::new(&client, "plain")
            .unwrap()
            .lease(lease(secs(3600)));
        let (write, guard) = (lock.write().await.unwrap(), plain.acquire().await.unwrap());
        world.faults().freeze(None);
        let (first, second) = tokio::join!(guard.renew(), write.renew());
        first.unwrap_err();
        second.unwrap_err();
        let started = Instant::now();
        match what {
            "release" => unconfirmed(guard.release().await, what),
            "renew" => drop(guard.renew().await.unwrap_err()),
            "reenter" => drop(guard.reenter().await.unwrap_err()),
            "downgrade" => unconfirmed(write.downgrade().await.map(drop), what),
            _ => {
                world.faults().thaw(None);
                let again = guard.reenter().await.unwrap();
                world.faults().freeze(None);
                drop(again);
                tokio::time::sleep(ms(100)).await;
                unconfirmed(guard.release().await, what);
            }
        }
        assert!(
            started.elapsed() <= limit + ms(100),
            "P9: {what} took {:?}",
            started.elapsed()
        );
        world.faults().thaw(None);
        // P3: a release that gave up continues in the background.
        if what == "downgrade" {
            eventually("released in the background", || {
                !world.keys().iter().any(|key| key == "job")
            })
            .await;
        } else if what.ends_with("release") {
            eventually("released in the background", || {
                !world.keys().iter().any(|key| key == "plain")
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_mints_a_token_if_the_successor_wants_one() {
    let (world, client) = World::engine().with_client().await;
    let with = Lock::new(&client, "job").unwrap();
    let without = with.clone().fencing(Fencing::Off);
    let named = with.clone().fencing(Fencing::PerName);
    let mut guard = without.acquire().await.unwrap();
    assert_eq!(guard.fencing_token(), None);
    let mut last = None;
    let turns = [
        (&without, false),
        (&with, true),
        (&without, false),
        (&named, true),
        (&with, true),
    ];
    for (n, (next, mints)) in turns.into_iter().enumerate() {
        let waiter = spawn_ok(next.acquire());
        eventually("it waits", || client.waiters() == 1).await;
        world.quiet().await;
        let before = world.scripts_run();
        guard.release().await.unwrap();
        guard = waiter.await.unwrap();
        // The first hand-off also loads the script.
        assert!(
            n == 0 || world.scripts_run() == before + 1,
            "handed over in one script"
        );
        let token = guard.fencing_token();
        assert_eq!(token.is_some(), mints, "P2");
        if mints {
            assert!(token > last, "P2: {token:?} after {last:?}");
            last = token;
        }
    }
}

/// P9, P10: a call that waits behind an unpolled re-entry finishes it. The re-entry keeps no hold alive.
#[tokio::test(start_paused = true)]
async fn an_unpolled_re_entry_delays_no_call_and_keeps_no_hold() {
    for taken in [true, false] {
        let (world, [first, second, third]) = World::slow_engine().with_clients().await;
        let owner = first.owner();
        let [here, there, theirs] = [&first, &second, &third]
            .map(|client| Lock::new(client, "job").unwrap().lease(lease(secs(6))));
        let options = || AcquireOptions::new().owner(&owner);
        let outer = here.acquire_with(options()).await.unwrap();
        let mut parked = Box::pin(there.acquire_with(options()));
        assert!(poll_once(parked.as_mut()).await.is_none());
        let began = Instant::now();
        let inner = outer.reenter().await.unwrap();
        let count = here.status().await.unwrap().holder.unwrap().hold_count;
        assert_eq!(count, 3, "the server has counted the re-entry");
        inner.release().await.unwrap();
        outer.release().await.unwrap();
        assert!(began.elapsed() < ms(150), "{:?}", began.elapsed());
        assert!(here.status().await.unwrap().holder.is_some());
        if taken {
            let inner = parked.await.unwrap();
            tokio::time::sleep(ms(20_000)).await;
            assert!(inner.is_held(), "renewed since its future was polled");
            inner.release().await.unwrap();
        } else {
            let next = theirs.acquire().await.unwrap();
            assert!(began.elapsed() < ms(6_200), "{:?}", began.elapsed());
            next.release().await.unwrap();
            let late = parked.await.unwrap();
            assert!(late.is_held(), "the re-entry became a new acquire");
            late.release().await.unwrap();
        }
        world.at_rest().await;
    }
}

/// P9: a re-entry that another call of its owner finishes is woken at its end, even if it waits only for its turn.
#[tokio::test(start_paused = true)]
async fn concurrent_re_entries_of_one_owner_all_end() {
    let (world, client) = World::engine().with_client().await;
    let guard = Lock::new(&client, "job").unwrap().acquire().await.unwrap();
    world.faults().delay(None, ms(150));
    let began = Instant::now();
    let guard = Arc::new(guard);
    // One task for each: in a single task, one wake-up would poll all of them.
    let re_entered = || {
        let guard = Arc::clone(&guard);
        tokio::spawn(async move { guard.reenter().await.map(drop) })
    };
    for all in [re_entered(), re_entered(), re_entered()] {
        all.await.unwrap().unwrap();
    }
    assert!(began.elapsed() < ms(1_500), "{:?}", began.elapsed());
    drop(guard);
    world.at_rest().await;
}
