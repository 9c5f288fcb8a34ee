//! P6, for operations that only the lock has. `virtual/lost_replies` has those of all kinds.

use stanchion::{Client, Lock};
use stanchion_testkit::eventually;
use stanchion_tests::{LostReply, World, assert_within, secs, spawn_ok};

async fn warm(world: &World) -> (Client, Lock) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    // Loads all scripts, so that the next EVALSHA is the request under test.
    let guard = lock.acquire().await.unwrap();
    let again = guard.reenter().await.unwrap();
    guard.renew().await.unwrap();
    again.release().await.unwrap();
    let acquire = lock.acquire();
    let next = tokio::spawn(async move { acquire.await.unwrap().release().await.unwrap() });
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
async fn a_hand_off_whose_resend_is_rejected_leaves_no_orphan() {
    let world = World::engine();
    let (client, lock) = warm(&world).await;
    let guard = lock.acquire().await.unwrap();
    let next = spawn_ok(lock.acquire());
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
        .faults()
        .fail_next("EVALSHA", "OOM command not allowed", 1);
    release.await.unwrap().unwrap();
    // P3: the hold that the first run granted is swept. P4: the waiter acquires long before a lease ends.
    let started = tokio::time::Instant::now();
    let guard = next.await.unwrap();
    assert_within(started, secs(10), ());
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
