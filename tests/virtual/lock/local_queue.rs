//! Tests of the local queue of one name: outages, losses, unpolled futures, wakers that own a future, and endless hand-offs.

use std::pin::{Pin, pin};
use std::sync::{Arc, Mutex};
use std::task::{Context, Waker};

use stanchion::client::Wake;
use stanchion::embedded::{Engine, Switch};
use stanchion::{AcquireError, AcquireOptions, Client, ClientConfig, FairLock, Lock, LostReason};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_is, lease, ms, poll_once, secs, spawn_ok};
use tokio::task::JoinSet;
use tokio::time::Instant;

fn out_of_reach(world: &World, on: Switch) {
    let faults = world.faults();
    match on {
        Switch::On => faults.freeze(None),
        Switch::Off => faults.thaw(None),
    }
    faults.refuse_connections(on);
}

/// The time at which a wait for `job` failed, and its error.
type Failing = tokio::task::JoinHandle<(Instant, AcquireError)>;

fn failing(lock: &Lock) -> Failing {
    let lock = lock.clone();
    tokio::spawn(async move {
        let error = lock.acquire().await.unwrap_err();
        (Instant::now(), error)
    })
}

#[tokio::test(start_paused = true)]
async fn waiters_of_one_name_give_up_together_when_the_server_is_out_of_reach() {
    let world = World::engine();
    let elsewhere = Lock::new(&world.client().await, "job").unwrap();
    let _elsewhere = elsewhere.acquire().await.unwrap();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let waiters: Vec<Failing> = (0..5).map(|_| failing(&lock)).collect();
    eventually("they wait", || client.waiters() == 5).await;
    tokio::time::sleep(ms(500)).await;
    out_of_reach(&world, Switch::On);
    let began = Instant::now();
    tokio::time::sleep(secs(20)).await;
    // A waiter that arrives during the outage has its own time limit.
    let late = failing(&lock);
    let mut failed = Vec::new();
    for waiter in waiters {
        let (at, error) = waiter.await.unwrap();
        assert_is!(
            error,
            AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. }
        );
        failed.push(at - began);
    }
    let (first, last) = (failed.iter().min().unwrap(), failed.iter().max().unwrap());
    assert!(*first >= secs(30), "{failed:?}");
    assert!(*last <= secs(33), "{failed:?}");
    let (at, _) = late.await.unwrap();
    let late = at - began;
    assert!(late >= secs(50) && late <= secs(53), "{late:?}");
}

#[tokio::test(start_paused = true)]
async fn outages_that_ended_do_not_add_up() {
    let world = World::engine();
    let elsewhere = Lock::new(&world.client().await, "job").unwrap();
    let elsewhere = elsewhere.acquire().await.unwrap();
    let client = world.client().await;
    let waiting = tokio::spawn(Lock::new(&client, "job").unwrap().acquire());
    eventually("it waits", || client.waiters() == 1).await;
    for _ in 0..3 {
        out_of_reach(&world, Switch::On);
        tokio::time::sleep(secs(20)).await;
        out_of_reach(&world, Switch::Off);
        tokio::time::sleep(secs(5)).await;
    }
    assert!(!waiting.is_finished());
    drop(elsewhere);
    drop(waiting.await.unwrap().unwrap());
}

#[tokio::test(start_paused = true)]
async fn a_loss_during_a_renewal_wakes_the_next_waiter() {
    for wake in [Wake::Poll, Wake::Messages] {
        for frozen in [1300, 1600, 1900, 2500, 4000] {
            let world = World::engine();
            let client = world.configured("client", |it| it.wake(wake)).await;
            let lock = Lock::new(&client, "job").unwrap();
            let lock = lock.lease(lease(ms(900)));
            let guard = lock.acquire().await.unwrap();
            guard.renew().await.unwrap();
            let next = lock.clone();
            let waiting = tokio::spawn(async move { next.acquire().await.map(drop) });
            let loss = tokio::spawn(guard.lost());
            tokio::time::sleep(ms(4150)).await;
            world.faults().freeze(None);
            tokio::time::sleep(ms(frozen)).await;
            world.faults().thaw(None);
            assert_eq!(loss.await.unwrap(), LostReason::Expired);
            // P4: only the loss can wake the next waiter, because the lost guard is not dropped yet.
            let got = tokio::time::timeout(secs(6), waiting).await;
            assert!(got.is_ok(), "{wake:?} {frozen}: the free lock stays unused");
            drop(guard);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_does_not_queue_behind_a_waiter_of_the_same_owner() {
    let (world, [ours, theirs]) = World::engine().with_clients().await;
    let held = Lock::new(&theirs, "job").unwrap().acquire().await.unwrap();
    let lock = Lock::new(&ours, "job").unwrap();
    let owner = ours.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let (waits, its) = (lock.clone(), options());
    let waiting = spawn_ok(waits.acquire_with(its));
    eventually("it waits", || ours.waiters() == 1).await;
    tokio::time::sleep(ms(20)).await;
    let started = Instant::now();
    assert!(lock.try_acquire_with(options()).await.unwrap().is_none());
    assert!(started.elapsed() < ms(5), "{:?}", started.elapsed());
    held.release().await.unwrap();
    let outer = waiting.await.unwrap();
    // Two tries of one owner at the same time take turns, and both re-enter.
    let tries = [0, 1].map(|_| {
        let (lock, options) = (lock.clone(), options());
        spawn_ok(lock.try_acquire_with(options))
    });
    for tried in tries {
        assert!(tried.await.unwrap().is_some());
    }
    drop(outer);
    world.at_rest().await;
}

/// Polls a future until it waits, and then leaves it unpolled.
macro_rules! left_waiting {
    ($future:ident, $client:expr) => {
        for _ in 0..20 {
            assert!(poll_once($future.as_mut()).await.is_none());
            tokio::time::sleep(ms(5)).await;
        }
        assert_eq!($client.waiters(), 1, "it waits");
    };
}

#[tokio::test(start_paused = true)]
async fn a_hold_handed_to_an_unpolled_future_is_passed_on_after_a_second() {
    let (world, [ours, theirs]) = World::engine().with_clients().await;
    let lock = Lock::new(&ours, "job").unwrap();
    let lock = lock.lease(lease(secs(3)));
    let held = lock.acquire().await.unwrap();
    let mut left = pin!(lock.acquire());
    left_waiting!(left, ours);
    let behind = lock.clone();
    let behind = tokio::spawn(async move { drop(behind.acquire().await.unwrap()) });
    eventually("both wait", || ours.waiters() == 2).await;
    let elsewhere = Lock::new(&theirs, "job").unwrap();
    let elsewhere = tokio::spawn(async move { drop(elsewhere.acquire().await.unwrap()) });
    eventually("they wait", || theirs.waiters() == 1).await;
    tokio::time::sleep(ms(50)).await;
    let started = Instant::now();
    held.release().await.unwrap();
    // One of the two acquires, and then the other.
    behind.await.unwrap();
    elsewhere.await.unwrap();
    assert!(started.elapsed() >= ms(990), "{:?}", started.elapsed());
    assert!(started.elapsed() <= ms(1200), "{:?}", started.elapsed());
    // The future that is polled again is queued at the end, and acquires.
    let late = left.await.unwrap();
    assert!(late.is_held());
    late.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_renewed_from_the_time_its_future_takes_it() {
    let (_world, ours) = World::engine().with_client().await;
    let lock = Lock::new(&ours, "job").unwrap();
    let lock = lock.lease(lease(secs(3)));
    let held = lock.acquire().await.unwrap();
    let mut left = pin!(lock.acquire());
    left_waiting!(left, ours);
    held.release().await.unwrap();
    tokio::time::sleep(ms(900)).await;
    let guard = left.await.unwrap();
    tokio::time::sleep(secs(20)).await;
    assert!(guard.is_held());
}

/// P10: a message grants during the first request, whose reply its task reads later than a second.
#[tokio::test(start_paused = true)]
async fn a_hold_that_is_taken_after_a_second_is_renewed() {
    let world = World::engine();
    let (ours, theirs) = (world.client().await, world.client().await);
    let [lock, elsewhere] = [&ours, &theirs].map(|it| Lock::new(it, "job").unwrap());
    let held = elsewhere.acquire().await.unwrap();
    let before = tokio::spawn({
        let lock = lock.clone();
        async move { drop(lock.acquire().await.unwrap()) }
    });
    // From here on the process is subscribed.
    eventually("it waits", || ours.waiters() == 1).await;
    world.quiet().await;
    held.release().await.unwrap();
    before.await.unwrap();
    let held = elsewhere.acquire().await.unwrap();
    let (mut late, run) = (pin!(lock.acquire()), world.scripts_run());
    assert!(poll_once(late.as_mut()).await.is_none());
    eventually("the request is refused", || world.scripts_run() > run).await;
    held.release().await.unwrap();
    tokio::time::sleep(ms(1200)).await;
    let guard = late.await.unwrap();
    tokio::time::sleep(secs(90)).await;
    assert!(guard.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_grant_to_an_unpolled_future_is_passed_on_after_a_second() {
    let (world, [ours, theirs]) = World::engine().with_clients().await;
    let lease = lease(secs(3));
    let lock = FairLock::new(&ours, "job").unwrap().lease(lease);
    let held = lock.acquire().await.unwrap();
    let mut left = pin!(lock.acquire());
    left_waiting!(left, ours);
    let elsewhere = spawn_ok(FairLock::new(&theirs, "job").unwrap().acquire());
    eventually("they wait", || theirs.waiters() == 1).await;
    tokio::time::sleep(ms(50)).await;
    let started = Instant::now();
    held.release().await.unwrap();
    drop(elsewhere.await.unwrap());
    assert!(started.elapsed() >= ms(990), "{:?}", started.elapsed());
    assert!(started.elapsed() <= ms(1200), "{:?}", started.elapsed());
    let late = left.await.unwrap();
    assert!(late.is_held());
    late.release().await.unwrap();
    tokio::time::sleep(secs(10)).await;
    world.at_rest().await;
}

/// A waker that owns a future, as in an executor that keeps a task in its waker.
struct Owning(#[expect(dead_code, reason = "to be dropped")] Mutex<Option<Task>>);
type Task = Pin<Box<dyn Future<Output = ()> + Send>>;

impl std::task::Wake for Owning {
    fn wake(self: Arc<Self>) {}
}

#[test]
fn dropping_a_waker_that_owns_a_waiter_causes_no_deadlock() {
    let (done, is_done) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let engine = Engine::new();
        let client = Client::connect_with(ClientConfig::embedded(&engine));
        let client = runtime.block_on(client).unwrap();
        let lock = Lock::new(&client, "job").unwrap();
        let _held = runtime.block_on(lock.acquire()).unwrap();
        let _entered = runtime.enter();
        let second = lock.clone();
        let mut second: Task = Box::pin(async move { drop(second.acquire().await) });
        let mut first = Box::pin(async { drop(lock.acquire().await) });
        let mut nothing = Context::from_waker(Waker::noop());
        assert!(second.as_mut().poll(&mut nothing).is_pending());
        let owning: Waker = Arc::new(Owning(Mutex::new(Some(second)))).into();
        assert!(
            first
                .as_mut()
                .poll(&mut Context::from_waker(&owning))
                .is_pending()
        );
        drop(owning);
        // Another waker replaces the owning one, which drops the second waiter.
        assert!(first.as_mut().poll(&mut nothing).is_pending());
        done.send(()).unwrap();
    });
    let ended = is_done.recv_timeout(secs(10));
    assert!(ended.is_ok(), "a deadlock");
}

/// P4: no message tells a client that polls of the grant to its entry. The client holds by adoption, without a place in its local queue.
#[tokio::test(start_paused = true)]
async fn a_polling_client_that_adopted_the_lock_sends_a_request_after_its_release() {
    for (waiters, held_for) in [(1, 20), (9, 20), (12, 3000)] {
        let world = World::engine();
        let theirs = world.named("theirs").await;
        let polling = world.config("polling").wake(Wake::Poll);
        let polling = Client::connect_with(polling).await.unwrap();
        let of = |client: &Client| Lock::new(client, "job").unwrap();
        let held = of(&theirs).acquire().await.unwrap();
        let mut tasks = JoinSet::new();
        let mut join = |client: &Client| {
            let lock = of(client);
            tasks.spawn(async move {
                let guard = lock.acquire().await.unwrap();
                let granted = Instant::now();
                tokio::time::sleep(ms(2)).await;
                guard.release().await.unwrap();
                granted
            });
        };
        (0..waiters).for_each(|_| join(&polling));
        tokio::time::sleep(ms(300)).await;
        join(&theirs);
        tokio::time::sleep(ms(300)).await;
        let ticket = held.detach().await.unwrap();
        let held = of(&polling).adopt(&ticket).await.unwrap();
        tokio::time::sleep(ms(held_for)).await;
        held.release().await.unwrap();
        let mut last = Instant::now();
        let mut grants = tasks.join_all().await;
        grants.sort_unstable();
        for at in grants {
            let idle = at.duration_since(last);
            assert!(idle < ms(300), "{waiters} waiters: idle for {idle:?}");
            last = at;
        }
    }
}

/// P4, P11.
#[tokio::test(start_paused = true)]
async fn ten_thousand_waiters_share_one_subscription_and_are_served_in_order() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let held = lock.acquire().await.unwrap();
    let served = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = JoinSet::new();
    for n in 0..10_000 {
        let (lock, served) = (lock.clone(), Arc::clone(&served));
        tasks.spawn(async move {
            let guard = lock.acquire().await.unwrap();
            served.lock().unwrap().push(n);
            guard.release().await.unwrap();
        });
    }
    world
        .waiting(&client, 10_000, "redisson_lock__channel:{job}")
        .await;
    let before = world.scripts_run();
    held.release().await.unwrap();
    tasks.join_all().await;
    let scripts = world.scripts_run() - before;
    assert!(scripts < 12_000, "{scripts} scripts for 10 000 grants");
    assert_eq!(world.subscribers("redisson_lock__channel:{job}"), 1);
    assert!(served.lock().unwrap().iter().is_sorted());
    world.at_rest().await;
}
