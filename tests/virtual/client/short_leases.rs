//! Tests leases that are shorter than those of grants by message: a hold that a process has waited for ends as early as any other.

use std::mem::forget;
use std::time::Duration;

use stanchion::{AcquireOptions, Lock, Renewal};
use stanchion_testkit::eventually;
use stanchion_tests::kinds::{Case, kinds, served};
use stanchion_tests::{World, lease, ms, secs};
use tokio::time::{Instant, sleep};

const SHORT: Duration = ms(300);

#[derive(Clone, Copy, Debug)]
enum Short {
    /// The process with a short lease stops.
    Stopped,
    /// The guard of a call with a short `max_hold` is leaked.
    Longest,
    /// The same with a short lease that is not renewed.
    Manual,
}

/// A multi-lock waits for one name at a time.
#[tokio::test(start_paused = true)]
async fn a_hold_that_was_waited_for_ends_with_its_lease() {
    for kind in kinds()
        .into_iter()
        .filter(|kind| !kind.0.starts_with("locks of"))
    {
        for short in [Short::Stopped, Short::Longest, Short::Manual] {
            let case = Case::new(kind, World::engine()).await;
            let third = case.world.named("third").await;
            let held = case.theirs().acquire().await.unwrap();
            let lease = lease(SHORT);
            let options = AcquireOptions::new();
            let options = match short {
                Short::Stopped => options.lease(lease),
                Short::Longest => options.max_hold(SHORT),
                Short::Manual => options.lease(lease).renewal(Renewal::Manual),
            };
            let ours = case.ours();
            let second = tokio::spawn(async move {
                let Some(guard) = ours.acquire_with(options).await else {
                    return false;
                };
                forget(guard.unwrap());
                true
            });
            sleep(secs(1)).await;
            let next = served((kind.2)(&third, &third));
            sleep(secs(1)).await;
            held.release().await.unwrap();
            if !second.await.unwrap() {
                break;
            }
            let granted = Instant::now();
            if let Short::Stopped = short {
                case.world.faults().freeze(Some("ours"));
            }
            next.await.unwrap();
            let waited = granted.elapsed();
            let limit = SHORT + ms(250);
            assert!(waited <= limit, "{}, {short:?}: {waited:?}", case.label);
        }
    }
}

/// The grant by message of a process with a usual lease is as long as before.
#[tokio::test(start_paused = true)]
async fn a_usual_lease_is_not_shortened() {
    let (world, clients) = World::engine().with_fleet(2).await;
    let [ours, theirs] = [0, 1].map(|n| Lock::new(&clients[n], "job").unwrap());
    let guard = ours.acquire().await.unwrap();
    let waiter = tokio::spawn(theirs.acquire());
    eventually("it waits", || clients[1].waiters() == 1).await;
    world.quiet().await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    sleep(secs(4)).await;
    assert!(guard.is_held());
}
