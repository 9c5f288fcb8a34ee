//! The fair lock beside Redisson, other locks, foreign values and names that do not fit.

use super::*;

suite! {
    a_redisson_waiter_ahead_is_woken_and_never_granted,
    a_redisson_release_wakes_our_head,
    a_waiter_that_redisson_purged_joins_again,
    a_dead_redisson_waiter_is_passed_over_when_its_time_is_up,
    a_queue_that_was_deleted_is_formed_again,
    a_plain_lock_excludes_and_is_excluded_but_does_not_queue,
    foreign_values_are_left_untouched,
    a_large_foreign_value_is_not_read_to_be_refused,
    a_fence_that_counts_nothing_is_refused_and_left_untouched,
    a_fence_that_spoils_while_others_wait_wedges_nobody,
    names_are_checked,
    a_name_that_would_share_the_queue_of_another_is_refused,
}

async fn a_redisson_waiter_ahead_is_woken_and_never_granted(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = fair(&ours).acquire().await.unwrap();
    assert_ne!(redisson_acquires(world, JAVA), "", "it queues");
    let next = waiting(world, &fair(&theirs)).await;
    world
        .subscribed(&format!("redisson_lock__channel:{{job}}:{}", theirs.id()))
        .await;
    world.quiet().await;
    held.release().await.unwrap();
    // Its own script counts its hold. Ours leave the lock to it, however often they look.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    assert_eq!(world.admin(&["LINDEX", QUEUE, "0"]), JAVA);
    assert!(!next.is_finished());
    let left = deadline(world, JAVA) - server_ms(world);
    assert!(left <= 300_000, "at the head it has one wait left: {left}");
    assert_eq!(redisson_acquires(world, JAVA), "", "it acquires");
    assert_eq!(world.admin(&["HGET", "job", JAVA]), "1");
    redisson_releases(world);
    granted(next).await.release().await.unwrap();
    world.at_rest().await;
}

async fn a_redisson_release_wakes_our_head(world: &World) {
    let client = world.client().await;
    assert_eq!(redisson_acquires(world, JAVA), "");
    let next = waiting(world, &fair(&client)).await;
    let waiter = world.admin(&["LINDEX", QUEUE, "0"]);
    // A Redisson client holds, so the waiter listens where Redisson tells it.
    world
        .subscribed(&format!("redisson_lock__channel:{{job}}:{waiter}"))
        .await;
    world.quiet().await;
    let started = tokio::time::Instant::now();
    redisson_releases(world);
    let guard = granted(next).await;
    if matches!(world, World::Engine(_)) {
        assert!(
            started.elapsed() < Duration::from_millis(50),
            "by message: {:?}",
            started.elapsed()
        );
    }
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn a_waiter_that_redisson_purged_joins_again(world: &World) {
    let client = world.client().await;
    assert_eq!(redisson_acquires(world, JAVA), "");
    let next = waiting(world, &fair(&client)).await;
    let waiter = world.admin(&["LINDEX", QUEUE, "0"]);
    // As a clock that is ahead by more than a wait would have it.
    let _ = world.admin(&["ZADD", TIMEOUTS, "1", &waiter]);
    assert_ne!(redisson_acquires(world, "java:1"), "");
    assert_eq!(world.admin(&["LINDEX", QUEUE, "0"]), "java:1");
    eventually("it is back, at the tail", || {
        world.admin(&["LINDEX", QUEUE, "-1"]) == waiter
    })
    .await;
    redisson_releases(world);
    assert_eq!(redisson_acquires(world, "java:1"), "");
    redisson_releases(world);
    granted(next).await.release().await.unwrap();
    world.at_rest().await;
}

async fn a_dead_redisson_waiter_is_passed_over_when_its_time_is_up(world: &World) {
    let client = world.client().await;
    assert_eq!(redisson_acquires(world, JAVA), "");
    assert_ne!(redisson_acquires(world, "java:1"), "");
    let next = waiting(world, &fair(&client)).await;
    // Its time was up 2 s ago: one more second is for its clock.
    let past = "local t = redis.call('TIME') redis.call('ZADD', KEYS[1], t[1] * 1000 - 2000, 'java:1') return 1";
    let _ = world.admin(&["EVAL", past, "1", TIMEOUTS]);
    let _ = world.admin(&["DEL", "job"]);
    granted(next).await.release().await.unwrap();
    world.at_rest().await;
}

async fn a_queue_that_was_deleted_is_formed_again(world: &World) {
    let client = world.client().await;
    let held = fair(&client).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(waiting(world, &fair(&client)).await);
    }
    // Redisson's `delete()` does this.
    let _ = world.admin(&["DEL", QUEUE, TIMEOUTS]);
    eventually("all are back", || queued(world) == 3).await;
    held.release().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.release().await.unwrap();
    }
    world.at_rest().await;
}

async fn a_plain_lock_excludes_and_is_excluded_but_does_not_queue(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let plain = Lock::new(&ours, "job").unwrap();
    let held = plain.acquire().await.unwrap();
    assert!(fair(&theirs).try_acquire().await.unwrap().is_none());
    let next = waiting(world, &fair(&theirs)).await;
    // It tells nobody in the queue; the next sign of life finds out.
    held.release().await.unwrap();
    let guard = granted(next).await;
    assert!(plain.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn foreign_values_are_left_untouched(world: &World) {
    let client = world.client().await;
    let lock = fair(&client);
    let wrong = |rejection: &Rejection| matches!(rejection, Rejection::WrongType { .. });
    let refused = async |what: &str| {
        for attempt in [lock.acquire().await.map(Some), lock.try_acquire().await] {
            match attempt {
                Err(AcquireError::Rejected { rejection, .. }) => {
                    assert!(wrong(&rejection), "{what}: {rejection}");
                }
                other => panic!("{what}: {other:?}"),
            }
        }
    };
    let _ = world.admin(&["SET", "job", "precious"]);
    refused("a string").await;
    assert!(
        matches!(lock.status().await.unwrap_err(), QueryError::Rejected { rejection } if wrong(&rejection))
    );
    assert!(
        matches!(lock.danger().force_release().await.unwrap_err(), QueryError::Rejected { rejection } if wrong(&rejection))
    );
    assert_eq!(world.admin(&["GET", "job"]), "precious");
    assert_eq!(world.keys(), ["job"]);
    let _ = world.admin(&["DEL", "job"]);

    let _ = world.admin(&["HSET", "job", "mode", "read", "java:1", "1"]);
    refused("a read-write lock").await;
    assert!(lock.status().await.is_err());
    assert!(lock.danger().force_release().await.is_err());
    assert_eq!(world.admin(&["HLEN", "job"]), "2");
    assert_eq!(world.keys(), ["job"]);
    let _ = world.admin(&["DEL", "job"]);

    for key in [QUEUE, TIMEOUTS, WAITERS, HEARD] {
        let _ = world.admin(&["SET", key, "precious"]);
        let _ = world.admin(&["HSET", "job", "java:1", "1"]);
        match lock.acquire().await.unwrap_err() {
            AcquireError::Rejected { rejection, .. } => assert!(wrong(&rejection), "{key}"),
            other => panic!("{key}: {other}"),
        }
        assert_eq!(world.keys(), ["job", key]);
        assert_eq!(world.admin(&["GET", key]), "precious");
        let _ = world.admin(&["DEL", "job", key]);
    }
}

async fn a_large_foreign_value_is_not_read_to_be_refused(world: &World) {
    let client = world.client().await;
    let lock = fair(&client);
    let fields: Vec<String> = (0..2000).map(|i| format!("field{i}")).collect();
    let mut command = vec!["HSET", "job"];
    for field in &fields {
        command.extend([field.as_str(), "1"]);
    }
    let _ = world.admin(&command);
    assert!(lock.acquire().await.is_err());
    assert!(lock.status().await.is_err());
    assert!(lock.danger().force_release().await.is_err());
    if let World::Server(server) = world {
        let stats = server.commands_processed();
        for whole in ["hkeys", "hvals", "hgetall"] {
            assert_eq!(stats.get(whole), None, "{whole} reads all of it");
        }
    }
    assert_eq!(world.admin(&["HLEN", "job"]), "2000");
}

/// No number to count on from: not one at all, or one where counting stands still.
const SPOILT: [&str; 6] = [
    "abc",
    "inf",
    "nan",
    "1.5",
    "9007199254740992",
    "9223372036854775807",
];

fn spoilt(rejection: &Rejection) -> bool {
    matches!(rejection, Rejection::WrongType { .. })
        && rejection.to_string().contains("fencing counter")
}

async fn a_fence_that_counts_nothing_is_refused_and_left_untouched(world: &World) {
    let client = world.client().await;
    let lock = fair(&client).with_fencing(Fencing::PerName);
    let fence = "redisson_lock_token:{job}";
    for value in SPOILT {
        let _ = world.admin(&["SET", fence, value]);
        for attempt in [lock.acquire().await.map(Some), lock.try_acquire().await] {
            match attempt {
                Err(AcquireError::Rejected { rejection, .. }) => {
                    assert!(spoilt(&rejection), "{value}: {rejection}");
                }
                other => panic!("{value}: {other:?}"),
            }
        }
        assert_eq!(world.admin(&["GET", fence]), value);
        assert!(world.keys().is_empty(), "{:?}", world.keys());
    }
    // What can be counted on from is.
    let _ = world.admin(&["SET", fence, "9007199254740990"]);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.fencing_token().unwrap().get(), 9_007_199_254_740_991);
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn a_fence_that_spoils_while_others_wait_wedges_nobody(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let per_name = |client| fair(client).with_fencing(Fencing::PerName);
    let fence = "redisson_lock_token:{job}";
    for value in SPOILT {
        let held = per_name(&ours).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for client in [&theirs, &ours] {
            let (lock, before) = (per_name(client), queued(world));
            waiters.push(tokio::spawn(async move { lock.acquire().await }));
            eventually("it queues", || queued(world) == before + 1).await;
        }
        let good = world.admin(&["GET", fence]);
        let _ = world.admin(&["SET", fence, value]);
        held.release().await.expect("a release needs no token");
        for waiter in waiters {
            let answer = tokio::time::timeout(Duration::from_secs(10), waiter).await;
            match answer.unwrap().unwrap() {
                Err(AcquireError::Rejected { rejection, .. }) => {
                    assert!(spoilt(&rejection), "{value}: {rejection}");
                }
                other => panic!("{value}: {other:?}"),
            }
        }
        assert_eq!(world.admin(&["GET", fence]), value);
        world.at_rest().await;
        let _ = world.admin(&["SET", fence, &good]);
        let guard = per_name(&theirs).acquire().await.unwrap();
        assert!(guard.fencing_token().unwrap().get() > number(&good), "P2");
        guard.release().await.unwrap();
    }
}

async fn a_name_that_would_share_the_queue_of_another_is_refused(world: &World) {
    let client = world.client().await;
    let error = FairLock::new(&client, "{job}").unwrap_err();
    assert_eq!(error.rule, NameRule::SharesQueue);
    for fine in ["{job}:x", "x:{job}", "{}", "{{job}}"] {
        let lock = FairLock::new(&client, fine).unwrap();
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    world.at_rest().await;
}

async fn names_are_checked(world: &World) {
    let client = world.client().await;
    for bad in [&b""[..], &[b'x'; 513]] {
        assert!(FairLock::new(&client, bad).is_err());
    }
    for odd in [&b"\0"[..], b"a}b", b"{", b"\xff\xfe", "größe".as_bytes()] {
        let lock = FairLock::new(&client, odd).unwrap();
        let held = lock.acquire().await.unwrap();
        let mut next = Box::pin(lock.acquire());
        assert!((&mut next).now_or_never().is_none());
        held.release().await.unwrap();
        next.await.unwrap().release().await.unwrap();
    }
    world.at_rest().await;
}
