//! Processes and servers that fall silent, forget, or are full.

use super::*;

#[tokio::test(start_paused = true)]
async fn all_processes_that_fall_silent_delay_the_others_once() {
    for dead in [1, 4] {
        // At every point of their beat, and of a hold that was granted to one of them.
        for after in [0, 120, 260, 499, 900, 1300, 1600, 2500] {
            let (world, ours, theirs) = warm().await;
            let held = fair(&ours).acquire().await.unwrap();
            let mut silent = Vec::new();
            for i in 0..dead {
                silent.push(crowd(&world, &format!("silent{i}"), 50 / dead).await);
            }
            let next = waiting(&world, &fair(&theirs)).await;
            sleep(ms(333)).await;
            for i in 0..dead {
                world
                    .as_engine()
                    .faults()
                    .freeze(Some(&format!("silent{i}")));
            }
            sleep(ms(after)).await;
            let started = Instant::now();
            held.release().await.unwrap();
            let guard = granted(next).await;
            assert!(
                started.elapsed() <= FairLock::GRACE + ms(50),
                "{dead} silent for {after} ms: {:?}",
                started.elapsed()
            );
            // They come back, at the tail, and are served.
            world.as_engine().faults().thaw(None);
            guard.release().await.unwrap();
            let (_clients, waiters): (Vec<_>, Vec<_>) = silent.into_iter().unzip();
            all_served(waiters.into_iter().flatten().collect()).await;
            world.at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_silent_for_less_keeps_its_places() {
    for silence in [400, 800, 1400] {
        for before in [0, 170, 330, 480] {
            let (world, ours, theirs) = warm().await;
            let held = fair(&ours).acquire().await.unwrap();
            let (_silent, waiters) = crowd(&world, "silent", 3).await;
            let last = waiting(&world, &fair(&theirs)).await;
            sleep(BEAT * 2 + ms(before)).await;
            world.as_engine().faults().freeze(Some("silent"));
            sleep(ms(20)).await;
            held.release().await.unwrap();
            sleep(ms(silence)).await;
            world.as_engine().faults().thaw(None);
            for waiter in waiters {
                let guard = granted(waiter).await;
                assert!(!last.is_finished(), "silent for {silence} ms");
                guard.release().await.unwrap();
            }
            granted(last).await.release().await.unwrap();
            world.at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stood_still_evicts_nobody() {
    // To the server, a jump of its clock and a stop are the same: every mark is stale at the first look.
    for jump in [1_600, 2_500, 10_000] {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for i in 0..10 {
            waiters.push(waiting(&world, &fair([&ours, &theirs][i % 2])).await);
        }
        sleep(BEAT).await;
        let order = world.as_engine().execute(&["LRANGE", QUEUE, "0", "-1"]);
        world.as_engine().faults().step_clock(jump);
        sleep(ms(20)).await;
        assert_eq!(
            world.as_engine().execute(&["LRANGE", QUEUE, "0", "-1"]),
            order
        );
        held.release().await.unwrap();
        for (i, waiter) in waiters.into_iter().enumerate() {
            let guard = granted(waiter).await;
            assert_eq!(queued(&world), 9 - i, "in order after {jump} ms");
            guard.release().await.unwrap();
        }
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_falls_silent_with_a_grant_costs_no_more() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let (_silent, waiters) = crowd(&world, "silent", 3).await;
    let next = waiting(&world, &fair(&theirs)).await;
    sleep(BEAT).await;
    world.as_engine().faults().freeze(Some("silent"));
    let started = Instant::now();
    held.release().await.unwrap();
    let guard = granted(next).await;
    assert!(
        started.elapsed() <= FairLock::GRACE + ms(50),
        "{:?}",
        started.elapsed()
    );
    guard.release().await.unwrap();
    world.as_engine().faults().thaw(None);
    all_served(waiters).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_releaser_looks_after_a_queue_that_nobody_else_looks_after() {
    let (world, ours, _theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let (_silent, waiters) = crowd(&world, "silent", 3).await;
    // Behind them only a Redisson client.
    let far = "local t = redis.call('TIME') redis.call('ZADD', KEYS[1], t[1] * 1000 + 300000, 'java:1') redis.call('RPUSH', KEYS[2], 'java:1') return 1";
    let _ = world.admin(&["EVAL", far, "2", TIMEOUTS, QUEUE]);
    sleep(BEAT).await;
    world.as_engine().faults().freeze(Some("silent"));
    sleep(Duration::from_secs(3)).await;
    held.release().await.unwrap();
    // Nobody could see that they were silent, until it looked.
    sleep(FairLock::GRACE + ms(50)).await;
    assert_eq!(world.admin(&["LINDEX", QUEUE, "0"]), "java:1");
    // And that was all: a Redisson client that does not come is nobody's to watch.
    let before = world.scripts_run();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.scripts_run(), before);
    for waiter in waiters {
        waiter.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_falls_silent_is_succeeded_when_its_lease_ends() {
    let (world, _ours, theirs) = warm().await;
    let silent = client(&world, "silent").await;
    let lock = fair(&silent).with_lease(Lease::new(Duration::from_secs(3)).unwrap());
    let held = lock.acquire().await.unwrap();
    let next = waiting(&world, &fair(&theirs)).await;
    world.as_engine().faults().freeze(Some("silent"));
    let started = Instant::now();
    let guard = granted(next).await;
    assert!(!held.is_held());
    assert!(
        (ms(2900)..ms(3020)).contains(&started.elapsed()),
        "expiry sends no message: {:?}",
        started.elapsed()
    );
    world.as_engine().faults().thaw(None);
    assert!(held.release().await.is_err());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    world.at_rest().await;
}

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
