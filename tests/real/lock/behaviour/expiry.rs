//! Tests leases of the lock: they expire, the watchdog renews them (P10), and a holder detects the end in time (P5).

use std::time::Duration;

use stanchion::{
    AcquireOptions, Lease, Lock, LockGuard, LostReason, ReleaseError, RenewError, Renewal,
};
use stanchion_tests::{World, kept};

suite! {
    the_watchdog_keeps_a_hold_beyond_its_lease,
    an_unrenewed_hold_is_lost_before_the_next_grant,
    a_manual_renewal_extends_a_hold,
    a_deleted_hold_is_lost_as_gone_at_the_next_renewal,
    a_hold_taken_over_is_never_renewed_by_its_old_owner,
    max_hold_ends_a_hold_that_would_be_renewed,
    work_is_dropped_when_the_hold_is_lost,
    work_that_ends_in_time_gives_its_result,
    a_released_guard_is_never_lost,
    renewal_and_reentry_never_shorten_a_lease,
    a_hold_that_is_left_ends_with_its_first_lease,
    a_first_lease_does_not_end_the_renewals,
    a_hundred_holds_are_renewed_in_few_scripts,
}

fn short() -> Lease {
    Lease::new(Duration::from_millis(300)).unwrap()
}

async fn manual(lock: &Lock, lease: Lease) -> LockGuard {
    let options = AcquireOptions::new().lease(lease).renewal(Renewal::Manual);
    lock.acquire_with(options).await.unwrap()
}

async fn the_watchdog_keeps_a_hold_beyond_its_lease(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap().lease(kept());
    let guard = lock.acquire().await.unwrap();
    let third_end = guard.valid_until() + 2 * kept().length();
    stanchion_testkit::eventually("the hold is renewed beyond two leases", || {
        guard.valid_until() > third_end
    })
    .await;
    assert!(guard.is_held());
    assert!(
        Lock::new(&world.client().await, "job")
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    guard.release().await.unwrap();
}

async fn an_unrenewed_hold_is_lost_before_the_next_grant(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let guard = manual(&Lock::new(&ours, "job").unwrap(), short()).await;
    let valid_until = guard.valid_until();
    let lost = tokio::spawn({
        let (lost, ours) = (guard.lost(), ours.clone());
        async move { (lost.await, ours.now()) }
    });
    let next = Lock::new(&theirs, "job").unwrap().acquire().await.unwrap();
    // P1. Both clients are on one machine, so their clocks are comparable.
    assert!(theirs.now() >= valid_until);
    assert!(!guard.is_held());
    let (reason, _) = lost.await.unwrap();
    assert_eq!(reason, LostReason::Expired);
    assert!(matches!(
        guard.release().await.unwrap_err(),
        ReleaseError::Lost(_)
    ));
    assert!(
        next.is_held(),
        "a late release does not affect the next holder"
    );
    next.release().await.unwrap();
}

async fn a_manual_renewal_extends_a_hold(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let guard = manual(&lock, kept()).await;
    let first_end = guard.valid_until();
    tokio::time::sleep(Duration::from_millis(100)).await;
    guard.renew().await.unwrap();
    assert!(guard.valid_until() > first_end);
    let _ = world.admin(&["DEL", "job"]);
    let error = guard.renew().await.unwrap_err();
    assert!(matches!(error, RenewError::Lost(_)), "{error}");
    assert_eq!(guard.lost().await, LostReason::Gone);
}

async fn a_deleted_hold_is_lost_as_gone_at_the_next_renewal(world: &World) {
    let lock = Lock::new(&world.client().await, "job")
        .unwrap()
        .lease(kept());
    let guard = lock.acquire().await.unwrap();
    let _ = world.admin(&["DEL", "job"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
}

async fn a_hold_taken_over_is_never_renewed_by_its_old_owner(world: &World) {
    let lock = Lock::new(&world.client().await, "job")
        .unwrap()
        .lease(kept());
    let guard = lock.acquire().await.unwrap();
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["HSET", "job", "someone:1", "1"]);
    let _ = world.admin(&["PEXPIRE", "job", "100000"]);
    assert_eq!(guard.lost().await, LostReason::Gone);
    drop(guard);
    assert_eq!(world.admin(&["HLEN", "job"]), "1");
    assert_eq!(world.admin(&["HGET", "job", "someone:1"]), "1");
}

async fn max_hold_ends_a_hold_that_would_be_renewed(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let options = AcquireOptions::new()
        .lease(kept())
        .max_hold(kept().length() * 3 / 2);
    let guard = Lock::new(&ours, "job")
        .unwrap()
        .acquire_with(options)
        .await
        .unwrap();
    let next = Lock::new(&theirs, "job").unwrap().acquire().await.unwrap();
    assert_eq!(guard.lost().await, LostReason::MaxHold);
    assert!(next.is_held());
}

async fn work_is_dropped_when_the_hold_is_lost(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let guard = manual(&lock, short()).await;
    let error = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(
        (error.reason, error.name.to_string()),
        (LostReason::Expired, "job".to_owned())
    );
}

async fn work_that_ends_in_time_gives_its_result(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.run(async { 42 }).await.unwrap(), 42);
}

async fn a_released_guard_is_never_lost(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let guard = manual(&lock, short()).await;
    let mut lost = Box::pin(guard.lost());
    guard.release().await.unwrap();
    let past_the_lease = tokio::time::timeout(Duration::from_millis(500), &mut lost).await;
    assert!(
        past_the_lease.is_err(),
        "lost after a release: {past_the_lease:?}"
    );
}

async fn renewal_and_reentry_never_shorten_a_lease(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let guard = manual(&lock, kept()).await;
    let _ = world.admin(&["PEXPIRE", "job", "60000"]);
    guard.renew().await.unwrap();
    let inner = guard.reenter().await.unwrap();
    inner.release().await.unwrap();
    let left: u64 = world.admin(&["PTTL", "job"]).parse().unwrap();
    assert!(left > 50_000, "R3: {left} ms left of 60 s");
}

async fn a_hold_that_is_left_ends_with_its_first_lease(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = Lock::new(&ours, "job").unwrap().lease(short());
    let first = Duration::from_millis(2000);
    let options = AcquireOptions::new().first_lease(Lease::new(first).unwrap());
    let began = ours.now();
    let guard = lock.acquire_with(options).await.unwrap();
    let lost = guard.lost();
    guard.leave();
    assert!(lock.try_acquire().await.unwrap().is_none());
    let other = Lock::new(&theirs, "job").unwrap();
    assert!(other.try_acquire().await.unwrap().is_none());
    let next = other.acquire().await.unwrap();
    assert!(theirs.now() >= began + first);
    next.release().await.unwrap();
    // A hold that was left is not reported as lost.
    assert!(futures_util::FutureExt::now_or_never(lost).is_none());
}

async fn a_first_lease_does_not_end_the_renewals(world: &World) {
    let lock = Lock::new(&world.client().await, "job")
        .unwrap()
        .lease(kept());
    let first = Duration::from_millis(2500);
    let options = AcquireOptions::new().first_lease(Lease::new(first).unwrap());
    let guard = lock.acquire_with(options).await.unwrap();
    let twice = guard.valid_until() + first;
    stanchion_testkit::eventually("the hold is renewed beyond its first lease", || {
        guard.valid_until() > twice
    })
    .await;
    assert!(guard.is_held());
    let again = guard.reenter().await.unwrap();
    again.leave();
    assert!(guard.is_held(), "the other guard keeps the hold");
    drop(guard);
}

async fn a_hundred_holds_are_renewed_in_few_scripts(world: &World) {
    let client = world.client().await;
    let mut guards = Vec::new();
    for i in 0..100 {
        let lock = Lock::new(&client, format!("job-{i}"))
            .unwrap()
            .lease(kept());
        guards.push(lock.acquire().await.unwrap());
    }
    let ends: Vec<_> = guards.iter().map(LockGuard::valid_until).collect();
    let before = world.scripts_run();
    stanchion_testkit::eventually("every hold is renewed", || {
        guards
            .iter()
            .zip(&ends)
            .all(|(g, end)| g.valid_until() > *end)
    })
    .await;
    let scripts = world.scripts_run() - before;
    assert!(scripts <= 20, "{scripts} scripts for 100 renewals");
}
