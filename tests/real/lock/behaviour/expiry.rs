//! Tests leases that are left, begin longer, or belong to another owner, and the cost of renewals (P10). `real/kinds/leases` has the cases of
//! all kinds.

use std::time::Duration;

use stanchion::{AcquireOptions, Lease, Lock, LockGuard, LostReason, Renewal};
use stanchion_tests::{World, kept};

suite! {
    a_hold_taken_over_is_never_renewed_by_its_old_owner,
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
