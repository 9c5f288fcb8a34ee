//! Tests server errors (P8): a rejected request returns a typed error and leaves nothing, and holds can be released at maxmemory.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{AcquireError, AcquireOptions, Lease, Rejection};
use stanchion_testkit::{cancel_after, eventually};
use stanchion_tests::World;

use super::{preferring, rwlock, warm};

fn is_out_of_memory(error: &AcquireError) -> bool {
    matches!(
        error,
        AcquireError::Rejected {
            rejection: Rejection::OutOfMemory { .. },
            ..
        }
    )
}

#[tokio::test(start_paused = true)]
async fn at_maxmemory_acquires_fail_and_holds_are_renewed_and_released() {
    let world = World::engine();
    let client = world.client().await;
    let lock = rwlock(&client).lease(Lease::new(Duration::from_secs(3)).unwrap());
    let reading = lock.read().await.unwrap();
    let keys = world.keys();
    world.as_engine().faults().out_of_memory(Switch::On);
    let error = lock.read().await.unwrap_err();
    assert!(is_out_of_memory(&error), "{error}");
    assert_eq!(world.keys(), keys, "nothing was written");
    // At maxmemory a waiting writer has no queue entry.
    let preferring = preferring(&client);
    let error = preferring
        .write_timeout(Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    let end = reading.valid_until();
    eventually("the watchdog renews", || reading.valid_until() > end).await;
    reading.renew().await.unwrap();
    let again = reading.reenter().await.unwrap();
    again.release().await.unwrap();
    reading.release().await.unwrap();
    assert!(world.keys().is_empty());
    let error = lock.write().await.unwrap_err();
    assert!(is_out_of_memory(&error), "{error}");
    assert!(world.keys().is_empty());

    world.as_engine().faults().out_of_memory(Switch::Off);
    let writing = lock.write().await.unwrap();
    let options = AcquireOptions::new().owner(writing.owner());
    let nested = lock.read_with(options).await.unwrap();
    world.as_engine().faults().out_of_memory(Switch::On);
    let again = writing.reenter().await.unwrap();
    again.release().await.unwrap();
    let end = writing.valid_until();
    eventually("the watchdog renews", || writing.valid_until() > end).await;
    nested.release().await.unwrap();
    let reading = writing.downgrade().await.unwrap();
    let key = format!(
        "{{job}}:{}:rwlock_timeout:1",
        lock.status().await.unwrap().readers[0].owner
    );
    let _ = world.admin(&["DEL", &key]);
    reading.renew().await.unwrap();
    assert_eq!(world.admin(&["EXISTS", &key]), "1");
    reading.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_fence_of_another_type_is_an_error_and_nothing_is_held() {
    let world = World::engine();
    let client = world.client().await;
    let lock = rwlock(&client).fencing(stanchion::Fencing::PerName);
    let _ = world.admin(&["RPUSH", "redisson_lock_token:{job}", "x"]);
    let error = lock.write().await.unwrap_err();
    assert!(error.to_string().contains("another kind"), "{error}");
    assert!(world.keys().is_empty());
    // Readers use no fencing token.
    lock.read().await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

/// Runs `work` after a step of the server's clock, and checks the number of its scripts.
async fn stepped<T, E: std::fmt::Debug>(
    world: &World,
    step: i64,
    scripts: u64,
    work: impl Future<Output = Result<T, E>>,
) -> T {
    world.as_engine().faults().step_clock(step);
    let before = world.scripts_run();
    let outcome = work.await.unwrap();
    assert_eq!(world.scripts_run() - before, scripts, "after {step} ms");
    outcome
}

/// After a step forward the first request is late. After a step back none is. A release is never refused.
#[tokio::test(start_paused = true)]
async fn a_step_of_the_server_clock_costs_one_refusal_per_request() {
    for (step, scripts) in [(60_000, 2), (-60_000, 1)] {
        let world = World::engine();
        let client = world.client().await;
        // The server caches each script, so a request without a refusal is one script.
        warm(&client).await;
        world.quiet().await;
        // Longer than all steps together.
        let lease = Lease::new(Duration::from_secs(7200)).unwrap();
        let lock = preferring(&client).lease(lease);
        let reading = stepped(&world, step, scripts, lock.read()).await;
        let again = stepped(&world, step, scripts, reading.reenter()).await;
        stepped(&world, step, scripts, reading.renew()).await;
        stepped(&world, step, 1, again.release()).await;
        stepped(&world, step, 1, reading.release()).await;
        let writing = stepped(&world, step, scripts, lock.write()).await;
        let reading = stepped(&world, step, scripts, writing.downgrade()).await;
        assert!(reading.is_held());
        reading.release().await.unwrap();
        world.at_rest().await;
    }
}

/// P9: a downgrade and a re-entry by one owner run one after the other, without a deadlock.
#[tokio::test(start_paused = true)]
async fn a_downgrade_and_a_re_entry_of_one_owner_do_not_wait_for_each_other() {
    let world = World::slow_engine();
    let client = world.client().await;
    warm(&client).await;
    let (lock, owner) = (rwlock(&client), client.owner());
    let options = || AcquireOptions::new().owner(&owner);
    let writing = lock.write_with(options()).await.unwrap();
    // Both operations wait for a renewal in flight.
    assert!(cancel_after(writing.renew(), 1).await.is_none());
    let started = tokio::time::Instant::now();
    let downgrading = tokio::spawn(writing.downgrade());
    tokio::time::sleep(Duration::from_millis(1)).await;
    let again = lock.write_with(options()).await;
    let reading = downgrading.await.unwrap().unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    // The re-entry came second: a reader that requests the write lock would wait for itself.
    assert!(matches!(
        again.unwrap_err(),
        AcquireError::Rejected {
            rejection: Rejection::AlreadyHeld { .. },
            ..
        }
    ));
    reading.release().await.unwrap();
    world.at_rest().await;
}
