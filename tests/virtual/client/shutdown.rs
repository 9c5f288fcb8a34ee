//! Tests `Client::shutdown` at every stage of a hold: operations in flight may finish, and a clean report means that nothing is left on the
//! server.

use std::time::Duration;

use stanchion::jobs::Outcome;
use stanchion::limiter::Usage;
use stanchion::semaphore::PermitId;
use stanchion::{
    AcquireError, AcquireOptions, Client, CountDownLatch, CyclicBarrier, DoubleBarrier, Election,
    FairLock, Job, LeasedSemaphore, Lock, Lockable, LostReason, MultiLock, QueryError, Quota,
    RateLimiter, RwLock, Semaphore, ShutdownReport, TokenBucket,
};
use stanchion_testkit::cancel_after;
use stanchion_tests::{World, assert_is, lease, ms, secs};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const GRACE: Duration = secs(10);

fn closing(client: &Client, grace: Duration) -> JoinHandle<ShutdownReport> {
    let client = client.clone();
    tokio::spawn(async move { client.shutdown(grace).await })
}

/// A client with a frozen connection, and its lock.
async fn silent(world: &World) -> (Client, Lock) {
    let client = world.named("ours").await;
    let lock = Lock::new(&client, "job").unwrap();
    // Caches the scripts, so that a request is one round trip.
    lock.acquire().await.unwrap().release().await.unwrap();
    world.faults().freeze(Some("ours"));
    (client, lock)
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_an_acquire_in_flight_and_leaves_nothing() {
    for tries in [false, true] {
        let world = World::engine();
        let (client, lock) = silent(&world).await;
        let acquiring = tokio::spawn(async move {
            if tries {
                lock.try_acquire().await
            } else {
                lock.acquire().await.map(Some)
            }
        });
        tokio::time::sleep(ms(20)).await;
        let closing = closing(&client, GRACE);
        tokio::time::sleep(ms(300)).await;
        assert!(!closing.is_finished(), "shutdown waits within its grace");
        world.faults().thaw(None);
        let report = closing.await.unwrap();
        assert!(report.is_clean(), "{report:?}");
        assert_eq!(world.keys(), [] as [&str; 0], "P3");
        let error = acquiring.await.unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::Shutdown { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_without_a_reply_makes_the_report_unclean() {
    let world = World::engine();
    let (client, lock) = silent(&world).await;
    let acquiring = tokio::spawn(lock.acquire());
    tokio::time::sleep(ms(20)).await;
    let report = closing(&client, GRACE).await.unwrap();
    assert_eq!(
        (report.unfinished, report.abandoned.len()),
        (1, 0),
        "{report:?}"
    );
    let error = acquiring.await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::Shutdown { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn an_unpolled_acquire_makes_the_report_unclean() {
    let (_world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let mut acquiring = Box::pin(lock.acquire());
    assert!(cancel_after(acquiring.as_mut(), 1).await.is_none());
    let report = closing(&client, ms(500)).await.unwrap();
    assert_eq!(report.unfinished, 1, "{report:?}");
    let error = acquiring.await.unwrap_err();
    assert!(matches!(error, AcquireError::Shutdown { .. }), "{error}");
}

#[tokio::test(start_paused = true)]
async fn shutdown_waits_for_a_release_in_flight() {
    let world = World::engine();
    let client = world.named("ours").await;
    let locks = [
        Lock::new(&client, "a").unwrap(),
        Lock::new(&client, "b").unwrap(),
    ];
    let both = MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap();
    let single = Lock::new(&client, "job").unwrap();
    let (guard, guards) = (
        single.acquire().await.unwrap(),
        both.acquire().await.unwrap(),
    );
    world.faults().freeze(Some("ours"));
    let releasing = tokio::spawn(guard.release());
    let all = tokio::spawn(guards.release());
    tokio::time::sleep(ms(20)).await;
    let closing = closing(&client, GRACE);
    tokio::time::sleep(ms(300)).await;
    assert!(!closing.is_finished(), "shutdown waits within its grace");
    world.faults().thaw(None);
    let report = closing.await.unwrap();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(world.keys(), [] as [&str; 0]);
    releasing.await.unwrap().unwrap();
    all.await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn shutdown_releases_a_hold_that_was_handed_to_an_unpolled_waiter() {
    let (world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    let mut waiting = Box::pin(lock.acquire());
    // Polls the waiter until it is subscribed and sleeps.
    for _ in 0..20 {
        assert!(cancel_after(waiting.as_mut(), 1).await.is_none());
        tokio::time::sleep(ms(10)).await;
    }
    guard.release().await.unwrap();
    assert_eq!(
        world.keys(),
        ["job", "stanchion_line:{job}"],
        "handed to the waiter, which is not polled"
    );
    let report = client.shutdown(GRACE).await;
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(world.keys(), [] as [&str; 0]);
    let error = waiting.await.unwrap_err();
    assert!(matches!(error, AcquireError::Shutdown { .. }), "{error}");
}

/// P8: without time to remove it, the client's record stays on the server for a while.
#[tokio::test(start_paused = true)]
async fn a_remaining_client_record_makes_the_report_unclean() {
    for grace in [Duration::ZERO, secs(1)] {
        let (world, [holder, waiter]) = World::engine().with_clients().await;
        let guard = Lock::new(&holder, "job").unwrap().acquire().await.unwrap();
        let waiting = tokio::spawn(Lock::new(&waiter, "job").unwrap().acquire());
        let record = format!("stanchion_client:{{{}}}", waiter.id());
        world.until(&["EXISTS", &record], "1").await;
        guard.release().await.unwrap();
        waiting.await.unwrap().unwrap().release().await.unwrap();
        world.quiet().await;
        let report = waiter.shutdown(grace).await;
        let left = world.admin(&["EXISTS", &record]) == "1";
        assert_eq!(left, grace.is_zero());
        assert_eq!(report.is_clean(), !left, "{report:?}");
    }
}

/// P8: a hold that is lost through `max_hold`, with a living guard, stays on the server until its lease ends.
#[tokio::test(start_paused = true)]
async fn shutdown_reports_a_lost_hold_that_is_still_on_the_server() {
    for (lives, later) in [(true, 0), (false, 0), (true, 30_000)] {
        let (world, client) = World::engine().with_client().await;
        let options = AcquireOptions::new()
            .max_hold(ms(500))
            .rest_after_crash(secs(3));
        let lease = lease(secs(2));
        let lock = Lock::new(&client, "job").unwrap().lease(lease);
        let guard = lock.acquire_with(options).await.unwrap();
        assert_eq!(guard.lost().await, LostReason::MaxHold);
        let guard = lives.then_some(guard);
        tokio::time::sleep(ms(later)).await;
        let report = client.shutdown(secs(1)).await;
        let left = world.admin(&["EXISTS", "job"]) == "1";
        assert_eq!(left, lives && later == 0);
        assert_eq!(report.is_clean(), !left, "{report:?}");
        drop(guard);
        let again = client.shutdown(Duration::ZERO).await;
        assert_eq!(
            again.abandoned, report.abandoned,
            "a second shutdown reports the same holds"
        );
        for hold in &report.abandoned {
            assert_eq!(hold.name.as_bytes(), b"job");
            tokio::time::sleep(hold.free_by.bound().unwrap()).await;
            assert_eq!(world.admin(&["EXISTS", "job"]), "0");
        }
    }
}

/// Every public method that returns [`QueryError`].
#[tokio::test(start_paused = true)]
async fn every_query_after_the_shutdown_returns_shutdown_at_once() {
    let (_world, client) = World::engine().with_client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let fair = FairLock::new(&client, "fair").unwrap();
    let shared = RwLock::new(&client, "shared").unwrap();
    let both = MultiLock::new([&lock as &dyn Lockable, &fair]).unwrap();
    let permits = Semaphore::new(&client, "permits").unwrap();
    let leased = LeasedSemaphore::new(&client, "leased").unwrap();
    let id = leased_id(&leased).await;
    let latch = CountDownLatch::new(&client, "latch").unwrap();
    let election = Election::new(&client, "election").unwrap();
    let job = Job::new(&client, "nightly").unwrap();
    let quota: Quota = "1/s".parse().unwrap();
    let api = RateLimiter::new(&client, "api", quota).unwrap();
    let bucket = TokenBucket::new(&client, "bucket", quota).unwrap();
    let barrier = CyclicBarrier::new(&client, "barrier", 2).unwrap();
    let double = DoubleBarrier::new(&client, "double", 2).unwrap();
    let console = client.consoles().remove(0);
    assert!(client.shutdown(GRACE).await.is_clean());
    let began = Instant::now();
    macro_rules! all {
        ($($query:expr),* $(,)?) => {
            [$((stringify!($query), $query.await.map(drop))),*]
        };
    }
    for (query, answer) in all![
        lock.status(),
        lock.request_release("deploy"),
        lock.danger().force_release(),
        fair.status(),
        fair.queue_len(),
        fair.position(),
        fair.request_release("deploy"),
        fair.danger().force_release(),
        shared.status(),
        shared.request_release("deploy"),
        shared.danger().force_release(),
        shared.danger().force_release_readers(),
        shared.danger().force_release_writer(),
        both.danger().force_release(),
        permits.init(3),
        permits.add(1),
        permits.reduce(1),
        permits.drain(),
        permits.available(),
        permits.status(),
        permits.danger().reclaim("owner"),
        permits.danger().delete(),
        leased.init(3),
        leased.set_total(3),
        leased.add(1),
        leased.reduce(1),
        leased.drain(),
        leased.available(),
        leased.acquired(),
        leased.total(),
        leased.status(),
        leased.danger().reclaim(&id),
        leased.danger().delete(),
        latch.arm(1),
        latch.count_down(),
        latch.count_down_by(2),
        latch.count(),
        latch.danger().delete(),
        election.leader(),
        election.candidates(),
        election.request_release("deploy"),
        election.danger().depose(),
        job.status(),
        api.status(),
        api.set_quota(quota, Usage::Keep),
        api.danger().delete(),
        bucket.status(),
        barrier.status(),
        barrier.set_parties(3),
        barrier.danger().break_all(),
        double.status(),
        client.processes(),
        client.survey(),
        client.deadlocks(),
        console.command(&["PING"]),
        console.track(&["job"]),
    ] {
        assert_eq!(answer, Err(QueryError::Shutdown), "{query}");
    }
    assert_eq!(began.elapsed(), Duration::ZERO);
}

/// Returns the id of a permit that was held and is released.
async fn leased_id(leased: &LeasedSemaphore) -> PermitId {
    leased.init(1).await.unwrap();
    let permit = leased.acquire().await.unwrap();
    let id = permit.ids()[0];
    permit.release().await.unwrap();
    id
}

#[tokio::test(start_paused = true)]
async fn shutdown_ends_a_query_in_flight() {
    let world = World::engine();
    let (client, lock) = silent(&world).await;
    let querying = tokio::spawn(async move { lock.status().await });
    tokio::time::sleep(ms(20)).await;
    client.shutdown(ms(100)).await;
    let began = Instant::now();
    assert_eq!(querying.await.unwrap().unwrap_err(), QueryError::Shutdown);
    assert_eq!(began.elapsed(), Duration::ZERO);
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_run_gets_the_grace_and_its_hold_is_released() {
    let (world, client) = World::engine().with_client().await;
    let job = Job::new(&client, "job").unwrap();
    let working = tokio::spawn(job.run(|_| async { tokio::time::sleep(ms(1_000)).await }));
    let locks = ["a", "b"].map(|name| Lock::new(&client, name).unwrap());
    let both = MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap();
    let guards = both.acquire().await.unwrap();
    let together = tokio::spawn(async move {
        guards.run(tokio::time::sleep(ms(2_000))).await.unwrap();
        guards.release().await
    });
    // A guard without a `run`: it is released while others work.
    let bare = Lock::new(&client, "bare").unwrap().acquire().await.unwrap();
    let releasing = tokio::spawn(async move {
        tokio::time::sleep(ms(500)).await;
        bare.release().await
    });
    tokio::time::sleep(ms(20)).await;
    let began = Instant::now();
    let report = client.shutdown(GRACE).await;
    assert!(report.is_clean(), "{report:?}");
    assert!(began.elapsed() < ms(2_100), "{:?}", began.elapsed());
    assert_eq!(working.await.unwrap().unwrap(), Outcome::Done(()));
    together.await.unwrap().unwrap();
    releasing.await.unwrap().unwrap();
    let left = world.keys();
    assert!(
        left.iter()
            .all(|key| key.starts_with("stanchion_job_last") || key.starts_with("stanchion_fence")),
        "{left:?}"
    );
}

#[tokio::test(start_paused = true)]
async fn the_work_of_a_run_is_dropped_at_the_end_of_the_grace() {
    let (_world, client) = World::engine().with_client().await;
    let job = Job::new(&client, "job").unwrap();
    let working = tokio::spawn(job.run(|_| async { std::future::pending::<()>().await }));
    // A guard without work does not make the shutdown wait, and does not extend it.
    let bare = Lock::new(&client, "bare").unwrap().acquire().await.unwrap();
    tokio::time::sleep(ms(20)).await;
    let began = Instant::now();
    let report = client.shutdown(GRACE).await;
    assert_eq!(report.abandoned.len(), 2, "{report:?}");
    assert!(
        (GRACE..GRACE + ms(100)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    let outcome = working.await.unwrap().unwrap();
    assert_is!(
        outcome,
        Outcome::Lost {
            reason: LostReason::Shutdown,
            done: None
        }
    );
    assert!(!bare.is_held());
}

#[tokio::test(start_paused = true)]
async fn a_guard_without_work_does_not_delay_a_shutdown() {
    let (_world, client) = World::engine().with_client().await;
    let guard = Lock::new(&client, "job").unwrap().acquire().await.unwrap();
    // Work that has ended, and work that was dropped.
    guard.run(async {}).await.unwrap();
    let dropped = guard.run(std::future::pending::<()>());
    assert!(tokio::time::timeout(ms(10), dropped).await.is_err());
    let began = Instant::now();
    let report = client.shutdown(GRACE).await;
    assert_eq!(report.abandoned.len(), 1, "{report:?}");
    assert!(began.elapsed() < ms(1_000), "{:?}", began.elapsed());
}
