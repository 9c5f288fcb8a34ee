//! Tests the mutual exclusion of the lock (P1), and that an acquire without a guard leaves no keys (P3).

use std::time::Duration;

use stanchion::{AcquireError, Lock, ReleaseError};
use stanchion_tests::World;

suite! {
    a_released_lock_leaves_nothing,
    a_dropped_guard_is_released,
    two_calls_on_one_handle_exclude_each_other,
    another_client_is_excluded,
    try_acquire_returns_none_while_the_lock_is_held,
    a_timeout_leaves_nothing,
    a_zero_timeout_tries_once,
    force_release_frees_the_lock_and_the_old_holder_cannot_release_it,
    sixty_four_tasks_never_overlap,
    a_shut_down_client_acquires_nothing,
}

async fn a_released_lock_leaves_nothing(world: &World) {
    let client = world.client().await;
    let guard = Lock::new(&client, "job").unwrap().acquire().await.unwrap();
    assert_eq!(world.keys(), ["job"]);
    assert!(guard.is_held());
    guard.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn a_dropped_guard_is_released(world: &World) {
    let client = world.client().await;
    drop(Lock::new(&client, "job").unwrap().acquire().await.unwrap());
    world.at_rest().await;
    assert_eq!(client.shutdown(Duration::from_secs(5)).await.unfinished, 0);
}

async fn two_calls_on_one_handle_exclude_each_other(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let first = lock.acquire().await.unwrap();
    let second = lock.clone();
    assert!(second.try_acquire().await.unwrap().is_none());
    first.release().await.unwrap();
    assert!(second.try_acquire().await.unwrap().is_some());
}

async fn another_client_is_excluded(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = Lock::new(&ours, "job").unwrap().acquire().await.unwrap();
    let lock = Lock::new(&theirs, "job").unwrap();
    let waiting = tokio::spawn(async move { lock.acquire().await.unwrap().fencing_token() });
    world.subscribed("redisson_lock__channel:{job}").await;
    assert!(!waiting.is_finished());
    let token = held.fencing_token();
    held.release().await.unwrap();
    assert!(waiting.await.unwrap() > token);
}

async fn try_acquire_returns_none_while_the_lock_is_held(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = Lock::new(&ours, "job")
        .unwrap()
        .try_acquire()
        .await
        .unwrap()
        .expect("the lock is free");
    assert!(
        Lock::new(&theirs, "job")
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_none()
    );
    held.release().await.unwrap();
    assert!(
        Lock::new(&theirs, "job")
            .unwrap()
            .try_acquire()
            .await
            .unwrap()
            .is_some()
    );
}

async fn a_timeout_leaves_nothing(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = Lock::new(&ours, "job").unwrap().acquire().await.unwrap();
    let lock = Lock::new(&theirs, "job").unwrap();
    let error = lock
        .acquire_timeout(Duration::from_millis(100))
        .await
        .unwrap_err();
    assert!(
        matches!(error, AcquireError::TimedOut { free_by: None, .. }),
        "{error}"
    );
    assert_eq!(theirs.waiters(), 0);
    held.release().await.unwrap();
    // The client removes its queue entry in the background. A grant that precedes the removal is passed on.
    world.at_rest().await;
}

async fn a_zero_timeout_tries_once(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = Lock::new(&theirs, "job").unwrap();
    lock.acquire_timeout(Duration::ZERO)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let _held = Lock::new(&ours, "job").unwrap().acquire().await.unwrap();
    let error = lock.acquire_timeout(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
}

async fn force_release_frees_the_lock_and_the_old_holder_cannot_release_it(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = Lock::new(&ours, "job").unwrap();
    assert!(!lock.danger().force_release().await.unwrap());
    let first = lock.acquire().await.unwrap();
    assert!(
        Lock::new(&theirs, "job")
            .unwrap()
            .danger()
            .force_release()
            .await
            .unwrap()
    );
    let second = Lock::new(&theirs, "job").unwrap().acquire().await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    let error = first.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_eq!(
        lock.status().await.unwrap().holder.unwrap().owner,
        second.owner().to_string()
    );
    second.release().await.unwrap();
}

async fn sixty_four_tasks_never_overlap(world: &World) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    let clients = [world.client().await, world.client().await];
    let inside = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|i| {
            let (lock, inside) = (
                Lock::new(&clients[i % 2], "job").unwrap(),
                Arc::clone(&inside),
            );
            tokio::spawn(async move {
                for _ in 0..5 {
                    let guard = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0);
                    tokio::task::yield_now().await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    guard.release().await.unwrap();
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    world.at_rest().await;
}

async fn a_shut_down_client_acquires_nothing(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let held = lock.acquire().await.unwrap();
    let waiter = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await }
    });
    world.subscribed("redisson_lock__channel:{job}").await;
    let report = client.shutdown(Duration::from_secs(5)).await;
    assert_eq!(report.abandoned.len(), 1, "{report:?}");
    assert!(matches!(
        waiter.await.unwrap(),
        Err(AcquireError::Shutdown { .. })
    ));
    assert!(matches!(
        lock.acquire().await,
        Err(AcquireError::Shutdown { .. })
    ));
    assert_eq!(held.lost().await, stanchion::LostReason::Shutdown);
    // The work under the hold may still run, so the key stays until the lease ends.
    assert_eq!(world.keys(), ["job"]);
}
