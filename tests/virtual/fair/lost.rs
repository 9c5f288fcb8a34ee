//! Tests that the fair lock's waiters find their grants after lost replies and lost messages, and what a grant by message and a long wait
//! renew. `virtual/lost_replies` and `virtual/lost_messages` have the cases of all kinds.

use stanchion_tests::{LostReply, assert_within, manual, ms, secs, spawn_ok};

use super::*;

#[tokio::test(start_paused = true)]
async fn a_grant_in_a_lost_reply_is_found_at_once() {
    for way in LostReply::WAYS {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let first = waiting(&world, &fair(&ours)).await;
        let second = waiting(&world, &fair(&theirs)).await;
        sleep(ms(10)).await;
        world.lose_next_reply(way);
        held.release().await.unwrap();
        // The release has been resent by now, and the next poll is not due soon.
        let released = Instant::now();
        let guard = granted(first).await;
        assert_within(released, ms(20), way);
        guard.release().await.unwrap();
        granted(second).await.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_inside_a_client_needs_no_message() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let next = waiting(&world, &fair(&ours)).await;
    let leaves = waiting(&world, &fair(&ours)).await;
    let last = waiting(&world, &fair(&ours)).await;
    let far = waiting(&world, &fair(&theirs)).await;
    sleep(ms(10)).await;
    world.faults().lose_messages(usize::MAX);
    let before = world.scripts_run();
    held.release().await.unwrap();
    let guard = granted(next).await;
    assert_eq!(world.scripts_run() - before, 1, "only the release was sent");
    world.faults().lose_messages(0);
    // A reply to a departure grants, too: `leaves` gets the grant, has left, and passes it on to `last`.
    leaves.abort();
    guard.release().await.unwrap();
    let started = Instant::now();
    let guard = granted(last).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    // The grant to the other client is a message, and it is lost.
    world.faults().lose_messages(1);
    guard.release().await.unwrap();
    granted(far).await.release().await.unwrap();
    assert!(started.elapsed() > ms(100));
    assert!(started.elapsed() <= POLL + ms(10), "P4");
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_arrives_in_one_round_trip() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let next = waiting(&world, &fair(&theirs)).await;
    sleep(ms(10)).await;
    world.faults().delay(None, ms(10));
    let (started, before) = (Instant::now(), world.scripts_run());
    let releasing = tokio::spawn(held.release());
    let guard = granted(next).await;
    assert!(started.elapsed() <= ms(12), "{:?}", started.elapsed());
    assert_eq!(world.scripts_run() - before, 1, "only the release was sent");
    releasing.await.unwrap().unwrap();
    // The lease counts from the server's time of the grant, not from the arrival of the message.
    let counted = guard.remaining() + started.elapsed();
    assert!(counted <= ms(1500), "{counted:?}");
    assert!(counted > ms(1400), "{counted:?}");
    drop(guard);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_grant_is_found_when_it_ends() {
    let (world, ours, theirs) = warm().await;
    for _ in 0..5 {
        let held = fair(&ours).acquire().await.unwrap();
        let first = waiting(&world, &fair(&theirs)).await;
        let between = waiting(&world, &fair(&ours)).await;
        let second = waiting(&world, &fair(&theirs)).await;
        held.release().await.unwrap();
        granted(first).await.release().await.unwrap();
        let guard = granted(between).await;
        let third = waiting(&world, &fair(&theirs)).await;
        world.faults().lose_messages(1);
        let started = Instant::now();
        guard.release().await.unwrap();
        let guard = granted(second).await;
        assert!(
            started.elapsed() <= GRANTED + ms(10),
            "{:?}",
            started.elapsed()
        );
        guard.release().await.unwrap();
        granted(third).await.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_cannot_subscribe_finds_its_grants() {
    let (world, ours, theirs) = warm().await;
    // The subscriptions of the warm-up end after their linger time.
    sleep(secs(10)).await;
    let denied = "NOPERM this user has no permissions to access one of the channels";
    world.faults().fail_next("SUBSCRIBE", denied, 1000);
    let held = fair(&ours).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..4 {
        waiters.push(waiting(&world, &fair(&theirs)).await);
    }
    held.release().await.unwrap();
    for waiter in waiters {
        let started = Instant::now();
        let guard = granted(waiter).await;
        assert!(
            started.elapsed() <= BEAT + ms(10),
            "{:?}",
            started.elapsed()
        );
        guard.release().await.unwrap();
    }
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_polling_client_finds_its_grants() {
    let (world, ours, _theirs) = warm().await;
    let polling = world.polling().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&polling)).await;
    let second = waiting(&world, &fair(&polling)).await;
    held.release().await.unwrap();
    for waiter in [first, second] {
        let started = Instant::now();
        let guard = granted(waiter).await;
        assert!(
            started.elapsed() <= BEAT + ms(10),
            "{:?}",
            started.elapsed()
        );
        guard.release().await.unwrap();
    }
    let channel = format!("redisson_lock__channel:{{job}}:{}", polling.id());
    assert_eq!(world.subscribers(&channel), 0);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_manual_hold_that_was_granted_by_message_has_its_whole_lease() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let lock = fair(&theirs);
    let options = manual(secs(10));
    let next = spawn_ok(lock.acquire_with(options));
    eventually("it waits", || queued(&world) == 1).await;
    held.release().await.unwrap();
    let guard = granted(next).await;
    sleep(secs(9)).await;
    assert!(guard.is_held(), "renewed once, from the grant to the lease");
    sleep(secs(2)).await;
    assert!(!guard.is_held(), "and never again");
    drop(guard);
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
    sleep(secs(1000)).await;
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
