//! The state of a queue: expired, forgotten, full, overwritten, stamped anew.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_finds_the_lock_expired_takes_its_turn() {
    let (world, ours, theirs) = warm().await;
    let options = AcquireOptions::new()
        .lease(Lease::new(ms(200)).unwrap())
        .renewal(Renewal::Manual);
    let abandoned = fair(&ours).acquire_with(options).await.unwrap();
    let (_slow, mut waiters) = crowd(&world, "slow", 1).await;
    // The one that waits cannot look at once.
    world.as_engine().faults().freeze(Some("slow"));
    sleep(ms(300)).await;
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    assert!(fair(&theirs).try_acquire().await.unwrap().is_none());
    let newcomer = tokio::spawn({
        let lock = fair(&theirs);
        async move { lock.acquire().await.unwrap() }
    });
    sleep(ms(50)).await;
    assert!(!newcomer.is_finished());
    world.as_engine().faults().thaw(None);
    let guard = granted(waiters.pop().unwrap()).await;
    assert!(!newcomer.is_finished());
    guard.release().await.unwrap();
    granted(newcomer).await.release().await.unwrap();
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
async fn a_server_that_forgets_everything_gets_the_queue_back() {
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
        started.elapsed() <= BEAT + ms(20),
        "{:?}",
        started.elapsed()
    );
    assert!(held.release().await.is_err());
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_server_still_grants_to_those_that_wait() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&ours)).await;
    let doomed = waiting(&world, &fair(&ours)).await;
    world.as_engine().faults().out_of_memory(Switch::On);
    // Several beats: nobody that waits is refused.
    sleep(BEAT * 4).await;
    match fair(&theirs).acquire().await {
        Err(AcquireError::Rejected {
            rejection: Rejection::OutOfMemory { .. },
            ..
        }) => {}
        other => panic!("a newcomer needs memory: {other:?}"),
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
async fn a_value_that_is_overwritten_is_told_to_those_that_wait() {
    let (world, ours, theirs) = warm().await;
    let _held = fair(&ours).acquire().await.unwrap();
    let lock = fair(&theirs);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    eventually("it waits", || queued(&world) == 1).await;
    let _ = world.admin(&["SET", "job", "precious"]);
    let started = Instant::now();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(
        matches!(
            &error,
            AcquireError::Rejected {
                rejection: Rejection::WrongType { .. },
                ..
            }
        ),
        "{error}"
    );
    assert!(
        started.elapsed() <= BEAT + ms(20),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(world.admin(&["GET", "job"]), "precious");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_queue_is_kept_to_the_millisecond() {
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
        eventually("its place is given up", || queued(&world) == 0).await;
    }
    held.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_stamped_anew() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let waiters = [
        waiting(&world, &fair(&theirs)).await,
        waiting(&world, &fair(&theirs)).await,
    ];
    // Redisson would purge a waiter whose deadline passes; ours is 10 minutes away at first.
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
