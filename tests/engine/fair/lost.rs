//! Replies and messages that are lost, and grants that are found all the same.

use stanchion_tests::LostReply;

use super::*;

/// Waits until the first has had the lock for itself, and then the second.
async fn in_turn(
    world: &World,
    first: JoinHandle<FairLockGuard>,
    second: JoinHandle<FairLockGuard>,
) {
    let guard = granted(first).await;
    // A resend has run by now. It released nothing of the next holder.
    assert!(!second.is_finished());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_whose_reply_is_lost_holds_once() {
    for way in LostReply::WAYS {
        let (world, ours, _theirs) = warm().await;
        world.lose_next_reply(way);
        let guard = fair(&ours).acquire().await.unwrap();
        let status = fair(&ours).status().await.unwrap();
        assert_eq!(status.holder.unwrap().hold_count, 1);
        assert_eq!(status.last_token, guard.fencing_token());
        guard.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_reply_is_lost_has_one_place() {
    for way in LostReply::WAYS {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        world.lose_next_reply(way);
        let first = waiting(&world, &fair(&theirs)).await;
        let second = waiting(&world, &fair(&ours)).await;
        sleep(Duration::from_secs(4)).await;
        assert_eq!(queued(&world), 2);
        assert_eq!(world.admin(&["ZCARD", WAITERS]), "2");
        held.release().await.unwrap();
        in_turn(&world, first, second).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_is_lost_grants_once() {
    for way in LostReply::WAYS {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let first = waiting(&world, &fair(&theirs)).await;
        let second = waiting(&world, &fair(&theirs)).await;
        sleep(ms(10)).await;
        world.lose_next_reply(way);
        held.release().await.unwrap();
        in_turn(&world, first, second).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_in_a_reply_that_is_lost_is_found_at_once() {
    for way in LostReply::WAYS {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let first = waiting(&world, &fair(&ours)).await;
        let second = waiting(&world, &fair(&theirs)).await;
        sleep(ms(10)).await;
        world.lose_next_reply(way);
        held.release().await.unwrap();
        // The release has been sent again by now, and the next sign of life is far.
        let released = Instant::now();
        let guard = granted(first).await;
        let waited = released.elapsed();
        assert!(waited < ms(20), "{way:?}: {waited:?}");
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
    world.as_engine().faults().lose_messages(2);
    let before = world.scripts_run();
    held.release().await.unwrap();
    let guard = granted(next).await;
    assert_eq!(world.scripts_run() - before, 1, "the release is all");
    // From the reply of a departure, too: this one was granted and does not take it.
    leaves.abort();
    guard.release().await.unwrap();
    let started = Instant::now();
    let guard = granted(last).await;
    assert_eq!(started.elapsed(), Duration::ZERO);
    // The message to another client is the first that is lost.
    guard.release().await.unwrap();
    granted(far).await.release().await.unwrap();
    assert!(started.elapsed() > ms(100));
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_departure_whose_reply_is_lost_is_final() {
    for way in LostReply::WAYS {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let doomed = waiting(&world, &fair(&theirs)).await;
        let survivor = waiting(&world, &fair(&ours)).await;
        world.lose_next_reply(way);
        doomed.abort();
        eventually("it has left", || queued(&world) == 1).await;
        held.release().await.unwrap();
        granted(survivor).await.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_arrives_in_one_round_trip() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let next = waiting(&world, &fair(&theirs)).await;
    sleep(ms(10)).await;
    world.as_engine().faults().delay(None, ms(10));
    let (started, before) = (Instant::now(), world.scripts_run());
    let releasing = tokio::spawn(held.release());
    let guard = granted(next).await;
    assert!(started.elapsed() <= ms(12), "{:?}", started.elapsed());
    assert_eq!(world.scripts_run() - before, 1, "the release is all");
    releasing.await.unwrap().unwrap();
    // Counted from the server's time of the grant, not from the message's arrival.
    let counted = guard.remaining() + started.elapsed();
    assert!(counted <= ms(1500), "{counted:?}");
    assert!(counted > ms(1400), "{counted:?}");
    drop(guard);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_grant_is_found_by_the_next_sign_of_life() {
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
        world.as_engine().faults().lose_messages(1);
        let started = Instant::now();
        guard.release().await.unwrap();
        let guard = granted(second).await;
        assert!(
            started.elapsed() <= BEAT + ms(10),
            "{:?}",
            started.elapsed()
        );
        guard.release().await.unwrap();
        granted(third).await.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn grants_of_a_process_that_cannot_listen_are_found() {
    let (world, ours, theirs) = warm().await;
    // The linger of the warm-up ends.
    sleep(Duration::from_secs(10)).await;
    let denied = "NOPERM this user has no permissions to access one of the channels";
    world
        .as_engine()
        .faults()
        .fail_next("SUBSCRIBE", denied, 1000);
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
async fn a_client_without_messages_finds_its_grants_by_its_signs_of_life() {
    let (world, ours, _theirs) = warm().await;
    let config = world.config("polling").wake(Wake::Poll);
    let polling = Client::connect_with(config).await.unwrap();
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
async fn a_subscriber_that_is_cut_off_misses_nothing() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&theirs)).await;
    world.as_engine().faults().kill_subscribers();
    let started = Instant::now();
    held.release().await.unwrap();
    granted(first).await.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    assert!(started.elapsed() < ms(1100), "{:?}", started.elapsed());
    world.at_rest().await;
}
