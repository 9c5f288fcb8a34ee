//! Tests of the fair queue's state: an expired lock, lost data, full memory, an overwritten key, long waits.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_new_waiter_does_not_overtake_when_the_lock_has_expired() {
    let (world, ours, theirs) = warm().await;
    let options = AcquireOptions::new()
        .lease(Lease::new(ms(200)).unwrap())
        .renewal(Renewal::Manual);
    let abandoned = fair(&ours).acquire_with(options).await.unwrap();
    let (_slow, mut waiters) = queued_client(&world, "slow", 1).await;
    // The queued waiter cannot poll at once.
    world.as_engine().faults().freeze(Some("slow"));
    sleep(ms(300)).await;
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    assert!(fair(&theirs).try_acquire().await.unwrap().is_none());
    let new_waiter = tokio::spawn({
        let lock = fair(&theirs);
        async move { lock.acquire().await.unwrap() }
    });
    sleep(ms(50)).await;
    assert!(!new_waiter.is_finished());
    world.as_engine().faults().thaw(None);
    let guard = granted(waiters.pop().unwrap()).await;
    assert!(!new_waiter.is_finished());
    guard.release().await.unwrap();
    granted(new_waiter).await.release().await.unwrap();
    drop(abandoned);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_manual_hold_that_was_granted_by_message_has_its_whole_lease() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let lock = fair(&theirs);
    let options = AcquireOptions::new()
        .lease(Lease::new(Duration::from_secs(10)).unwrap())
        .renewal(Renewal::Manual);
    let next = tokio::spawn(async move { lock.acquire_with(options).await.unwrap() });
    eventually("it waits", || queued(&world) == 1).await;
    held.release().await.unwrap();
    let guard = granted(next).await;
    sleep(Duration::from_secs(9)).await;
    assert!(guard.is_held(), "renewed once, from the grant to the lease");
    sleep(Duration::from_secs(2)).await;
    assert!(!guard.is_held(), "and never again");
    drop(guard);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn waiters_restore_the_queue_after_a_restart_or_a_data_loss() {
    for data in [Data::Kept, Data::Lost] {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for i in 0..6 {
            waiters.push(waiting(&world, &fair([&ours, &theirs][i % 2])).await);
        }
        world.as_engine().faults().restart(data);
        drop(held);
        all_served(waiters).await;
        world.at_rest().await;
    }
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&theirs)).await;
    world.as_engine().faults().flush_all();
    let started = Instant::now();
    let guard = granted(first).await;
    assert!(
        started.elapsed() <= POLL + ms(20),
        "{:?}",
        started.elapsed()
    );
    assert!(held.release().await.is_err());
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_server_still_grants_to_queued_waiters() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&ours)).await;
    let doomed = waiting(&world, &fair(&ours)).await;
    world.as_engine().faults().out_of_memory(Switch::On);
    // Several polls pass: the server rejects no queued waiter.
    sleep(POLL * 4).await;
    match fair(&theirs).acquire().await {
        Err(AcquireError::Rejected {
            rejection: Rejection::OutOfMemory { .. },
            ..
        }) => {}
        other => panic!("a new waiter needs memory: {other:?}"),
    }
    let inner = held.reenter().await.unwrap();
    inner.release().await.unwrap();
    doomed.abort();
    held.release().await.unwrap();
    let guard = granted(first).await;
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.as_engine().faults().out_of_memory(Switch::Off);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_queued_acquire_keeps_its_deadline() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    for patience in [1, 77, 1234, 5000] {
        let started = Instant::now();
        let error = fair(&theirs)
            .acquire_timeout(ms(patience))
            .await
            .unwrap_err();
        assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
        let late = started.elapsed().saturating_sub(ms(patience));
        assert!(late <= ms(50), "P9: {late:?} after {patience} ms");
        eventually("its queue entry is removed", || queued(&world) == 0).await;
    }
    held.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_renews_its_timeout() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let waiters = [
        waiting(&world, &fair(&theirs)).await,
        waiting(&world, &fair(&theirs)).await,
    ];
    // Redisson removes a waiter after its timeout, which is 10 minutes away at first.
    sleep(Duration::from_secs(1000)).await;
    let script = "local t = redis.call('TIME') return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] - t[1] * 1000";
    let left: i64 = world
        .admin(&["EVAL", script, "1", TIMEOUTS])
        .parse()
        .unwrap();
    assert!(left > 500_000, "{left} ms left");
    held.release().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.release().await.unwrap();
    }
    world.at_rest().await;
}
