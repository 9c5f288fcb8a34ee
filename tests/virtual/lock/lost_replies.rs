//! Tests P6: an operation takes effect once when its reply is lost after the script ran.

use std::time::Duration;

use stanchion::{Client, Lock};
use stanchion_testkit::eventually;
use stanchion_tests::{LostReply, World, assert_swept_later};

async fn warm(world: &World) -> (Client, Lock) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    // Loads all scripts, so that the next EVALSHA is the request under test.
    let guard = lock.acquire().await.unwrap();
    let again = guard.reenter().await.unwrap();
    guard.renew().await.unwrap();
    again.release().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap().release().await.unwrap() }
    });
    world
        .waiting(&client, 1, "redisson_lock__channel:{job}")
        .await;
    guard.release().await.unwrap();
    next.await.unwrap();
    world.at_rest().await;
    world.quiet().await;
    (client, lock)
}

/// Runs `check` in a new world for each way to lose a reply, and asserts that no key is left.
async fn each_way(check: impl AsyncFn(&World, Client, Lock, LostReply)) {
    for way in LostReply::WAYS {
        let world = World::engine();
        let (client, lock) = warm(&world).await;
        check(&world, client, lock, way).await;
        world.at_rest().await;
    }
}

async fn hold_count(lock: &Lock) -> u32 {
    lock.status().await.unwrap().holder.unwrap().hold_count
}

#[tokio::test(start_paused = true)]
async fn an_acquire_holds_once() {
    each_way(async |world, _client, lock, way| {
        world.lose_next_reply(way);
        let guard = lock.acquire().await.unwrap();
        assert!(guard.is_held());
        let status = lock.status().await.unwrap();
        assert_eq!(status.holder.unwrap().hold_count, 1, "{way:?}");
        assert_eq!(
            status.last_token,
            guard.fencing_token(),
            "{way:?}: the token is the last one minted"
        );
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_try_holds_once() {
    each_way(async |world, _client, lock, way| {
        world.lose_next_reply(way);
        let guard = lock.try_acquire().await.unwrap().expect("it was free");
        assert_eq!(hold_count(&lock).await, 1, "{way:?}");
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_counts_once() {
    each_way(async |world, _client, lock, way| {
        let outer = lock.acquire().await.unwrap();
        world.lose_next_reply(way);
        let inner = outer.reenter().await.unwrap();
        assert_eq!(hold_count(&lock).await, 2, "{way:?}");
        inner.release().await.unwrap();
        assert_eq!(hold_count(&lock).await, 1, "{way:?}");
        outer.release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_partial_release_counts_once() {
    each_way(async |world, _client, lock, way| {
        let outer = lock.acquire().await.unwrap();
        let (middle, inner) = (
            outer.reenter().await.unwrap(),
            outer.reenter().await.unwrap(),
        );
        world.lose_next_reply(way);
        inner.release().await.unwrap();
        assert_eq!(hold_count(&lock).await, 2, "{way:?}");
        drop((outer, middle));
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_renewal_takes_effect() {
    each_way(async |world, _client, lock, way| {
        let guard = lock.acquire().await.unwrap();
        let end = guard.valid_until();
        world.lose_next_reply(way);
        guard.renew().await.unwrap();
        assert!(guard.valid_until() > end, "{way:?}");
        guard.release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_resent_release_does_not_affect_the_next_holder() {
    each_way(async |world, _client, lock, way| {
        let other = Lock::new(&world.client().await, "job").unwrap();
        let guard = lock.acquire().await.unwrap();
        world.lose_next_reply(way);
        let releasing = tokio::spawn(guard.release());
        let next = other.acquire().await.unwrap();
        releasing
            .await
            .unwrap()
            .unwrap_or_else(|e| panic!("{way:?}: {e}"));
        world.quiet().await;
        assert_eq!(
            lock.status().await.unwrap().holder.unwrap().owner,
            next.owner().to_string(),
            "{way:?}"
        );
        next.release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_hands_over_once() {
    each_way(async |world, client, lock, way| {
        let guard = lock.acquire().await.unwrap();
        let next = tokio::spawn({
            let lock = lock.clone();
            async move { lock.acquire().await.unwrap() }
        });
        eventually("it waits", || client.waiters() == 1).await;
        world.quiet().await;
        let first_token = guard.fencing_token();
        world.lose_next_reply(way);
        guard.release().await.unwrap();
        let next = next.await.unwrap();
        assert!(next.fencing_token() > first_token);
        let holder = lock.status().await.unwrap().holder.unwrap();
        assert_eq!(
            (holder.owner, holder.hold_count),
            (next.owner().to_string(), 1),
            "{way:?}"
        );
        next.release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_dropped_guards_release_is_repeated_until_answered() {
    each_way(async |world, _client, lock, way| {
        let guard = lock.acquire().await.unwrap();
        world.as_engine().faults().lose_replies("EVALSHA", 1);
        world.lose_next_reply(way);
        drop(guard);
        world.at_rest().await;
        lock.acquire().await.unwrap().release().await.unwrap();
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_after_a_lost_reply_is_swept() {
    let world = World::engine();
    let (_client, lock) = warm(&world).await;
    // The script runs, its reply is lost, and the caller gives up before the request is resent.
    world.lose_next_reply(LostReply::Silent);
    let error = lock
        .acquire_timeout(Duration::from_millis(50))
        .await
        .unwrap_err();
    assert_swept_later(&error);
    let started = tokio::time::Instant::now();
    world.at_rest().await;
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "swept, not expired: the lease is 30 s"
    );
}

#[tokio::test(start_paused = true)]
async fn a_request_that_arrives_after_its_caller_gave_up_acquires_nothing() {
    let world = World::engine();
    let (_client, lock) = warm(&world).await;
    let faults = world.as_engine().faults();
    // The request is written now and runs at the thaw, long after its caller gave up (P3: `not_after`).
    faults.freeze(None);
    let error = lock
        .acquire_timeout(Duration::from_millis(100))
        .await
        .unwrap_err();
    assert_swept_later(&error);
    tokio::time::sleep(Duration::from_secs(20)).await;
    assert!(world.keys().is_empty());
    faults.thaw(None);
    // The request has run by now.
    assert!(world.keys().is_empty(), "a late request took the lock");
    lock.acquire().await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_whose_resend_is_rejected_leaves_no_orphan() {
    let world = World::engine();
    let (client, lock) = warm(&world).await;
    let guard = lock.acquire().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    eventually("it waits", || client.waiters() == 1).await;
    world.quiet().await;
    // The hand-off runs and its reply is lost. The server rejects the resend.
    world.lose_next_reply(LostReply::Closed);
    let before = world.scripts_run();
    let release = tokio::spawn(guard.release());
    while world.scripts_run() == before {
        tokio::task::yield_now().await;
    }
    world
        .as_engine()
        .faults()
        .fail_next("EVALSHA", "OOM command not allowed", 1);
    release.await.unwrap().unwrap();
    // P3: the hold that the first run granted is swept. P4: the waiter acquires long before a lease ends.
    let started = tokio::time::Instant::now();
    let guard = next.await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(hold_count(&lock).await, 1);
    guard.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_adoption_happens_once() {
    each_way(async |world, _client, lock, way| {
        let ticket = lock.acquire().await.unwrap().detach().await.unwrap();
        // Loads the script.
        let guard = lock.adopt(&ticket).await.unwrap();
        let ticket = guard.detach().await.unwrap();
        world.lose_next_reply(way);
        let guard = lock.adopt(&ticket).await.unwrap();
        assert_eq!(hold_count(&lock).await, 1, "{way:?}");
        let status = lock.status().await.unwrap();
        assert_eq!(status.last_token, guard.fencing_token(), "{way:?}");
        guard.release().await.unwrap();
    })
    .await;
}
