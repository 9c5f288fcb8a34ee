//! Tests leases that are shorter than those of grants by message: a hold that a process has waited for ends as early as any other.

use std::mem::forget;
use std::time::Duration;

use stanchion::{
    AcquireOptions, Client, FairLock, Lease, LeasedSemaphore, Lock, LockGuard, Renewal, RwLock,
};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use tokio::time::{Instant, sleep};

const SHORT: Duration = Duration::from_millis(300);

#[derive(Clone, Copy, Debug)]
enum Kind {
    Lock,
    Fair,
    Writers,
    Readers,
    Leased,
}

#[derive(Clone, Copy, Debug)]
enum Case {
    /// The process with a short lease stops.
    Stopped,
    /// The guard of a call with a short `max_hold` is leaked.
    Longest,
    /// The same with a short lease that is not renewed.
    Manual,
}

/// Acquires, and releases after `hold`, or leaks the guard. Returns the moment of the grant.
async fn holds(
    kind: Kind,
    client: &Client,
    options: AcquireOptions,
    hold: Option<Duration>,
) -> Instant {
    macro_rules! holds {
        ($acquire:expr) => {{
            let guard = $acquire.await.unwrap();
            let granted = Instant::now();
            match hold {
                None => forget(guard),
                Some(hold) => {
                    sleep(hold).await;
                    guard.release().await.unwrap();
                }
            }
            granted
        }};
    }
    match kind {
        Kind::Lock => holds!(Lock::new(client, "job").unwrap().acquire_with(options)),
        Kind::Fair => holds!(FairLock::new(client, "job").unwrap().acquire_with(options)),
        Kind::Writers => holds!(RwLock::new(client, "job").unwrap().write_with(options)),
        Kind::Readers => holds!(RwLock::new(client, "job").unwrap().read_with(options)),
        Kind::Leased => {
            let semaphore = LeasedSemaphore::new(client, "job").unwrap();
            holds!(semaphore.acquire_with(1, options))
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_hold_that_was_waited_for_ends_with_its_lease() {
    // A fair lock calls the processes after a grant that was not released, and waits for their answers.
    for kind in [
        Kind::Lock,
        Kind::Fair,
        Kind::Writers,
        Kind::Readers,
        Kind::Leased,
    ] {
        for case in [Case::Stopped, Case::Longest, Case::Manual] {
            let world = World::engine();
            let clients = world.fleet(3).await;
            if let Kind::Leased = kind {
                let semaphore = LeasedSemaphore::new(&clients[0], "job").unwrap();
                let _ = semaphore.init(1).await.unwrap();
            }
            // A writer in front of the reader, and behind it.
            let holder = if let Kind::Readers = kind {
                Kind::Writers
            } else {
                kind
            };
            let first = clients[0].clone();
            let usual = AcquireOptions::new;
            let hold = Some(Duration::from_secs(2));
            let first = tokio::spawn(async move { holds(holder, &first, usual(), hold).await });
            world.quiet().await;
            let lease = Lease::new(SHORT).unwrap();
            let options = usual();
            let options = match case {
                Case::Stopped => options.lease(lease),
                Case::Longest => options.max_hold(SHORT),
                Case::Manual => options.lease(lease).renewal(Renewal::Manual),
            };
            let second = clients[1].clone();
            let second = tokio::spawn(async move { holds(kind, &second, options, None).await });
            eventually("it waits", || clients[1].waiters() == 1).await;
            world.quiet().await;
            let third = clients[2].clone();
            let third = tokio::spawn(async move { holds(holder, &third, usual(), None).await });
            first.await.unwrap();
            let granted = second.await.unwrap();
            if let Case::Stopped = case {
                world.as_engine().faults().freeze(Some("p1"));
            }
            let waited = third.await.unwrap() - granted;
            assert!(
                waited <= SHORT + Duration::from_millis(250),
                "{kind:?}, {case:?}: {waited:?}"
            );
        }
    }
}

/// The grant by message of a process with a usual lease is as long as before.
#[tokio::test(start_paused = true)]
async fn a_usual_lease_is_not_shortened() {
    let world = World::engine();
    let clients = world.fleet(2).await;
    let guard: LockGuard = Lock::new(&clients[0], "job")
        .unwrap()
        .acquire()
        .await
        .unwrap();
    let waiter = tokio::spawn(Lock::new(&clients[1], "job").unwrap().acquire());
    eventually("it waits", || clients[1].waiters() == 1).await;
    world.quiet().await;
    guard.release().await.unwrap();
    let guard = waiter.await.unwrap().unwrap();
    sleep(Duration::from_secs(4)).await;
    assert!(guard.is_held());
}
