//! Tests the fair lock together with Redisson's clients, plain locks, foreign values and unusual names.

use super::*;

suite! {
    a_redisson_waiter_ahead_is_woken_and_never_granted,
    a_redisson_release_wakes_our_first_waiter,
    a_waiter_that_redisson_purged_joins_again,
    a_dead_redisson_waiter_is_skipped_after_its_deadline,
    waiters_restore_a_deleted_queue,
    a_plain_lock_excludes_and_is_excluded_but_does_not_queue,
    foreign_values_are_left_untouched,
    a_large_foreign_value_is_refused_without_reading_it,
    an_invalid_fencing_counter_is_refused_and_left_untouched,
    a_counter_that_becomes_invalid_fails_the_waiters_and_blocks_none,
    names_are_checked,
    a_name_that_would_share_the_queue_of_another_is_refused,
}

async fn a_redisson_waiter_ahead_is_woken_and_never_granted(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = fair(&ours).acquire().await.unwrap();
    assert_ne!(
        redisson_acquires(world, JAVA),
        "",
        "the Redisson waiter is queued"
    );
    let next = waiting(world, &fair(&theirs)).await;
    world
        .subscribed(&format!("redisson_lock__channel:{{job}}:{}", theirs.id()))
        .await;
    world.quiet().await;
    held.release().await.unwrap();
    // In 1.2 s our waiter polls. It must leave the free lock to the Redisson waiter, which acquires by itself.
    tokio::time::sleep(Duration::from_millis(1200)).await;
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    assert_eq!(world.admin(&["LINDEX", QUEUE, "0"]), JAVA);
    assert!(!next.is_finished());
    let left = deadline(world, JAVA) - server_ms(world);
    assert!(
        left <= 300_000,
        "the first waiter has one wait left: {left}"
    );
    assert_eq!(
        redisson_acquires(world, JAVA),
        "",
        "the Redisson waiter acquires"
    );
    assert_eq!(world.admin(&["HGET", "job", JAVA]), "1");
    redisson_releases(world);
    granted(next).await.release().await.unwrap();
    world.at_rest().await;
}

async fn a_redisson_release_wakes_our_first_waiter(world: &World) {
    let client = world.client().await;
    assert_eq!(redisson_acquires(world, JAVA), "");
    let next = waiting(world, &fair(&client)).await;
    let waiter = world.admin(&["LINDEX", QUEUE, "0"]);
    // While a Redisson client holds, the waiter is subscribed to the channel on which Redisson publishes.
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
    // An old deadline, as if Redisson's clock were ahead by more than a wait.
    let _ = world.admin(&["ZADD", TIMEOUTS, "1", &waiter]);
    assert_ne!(redisson_acquires(world, "java:1"), "");
    assert_eq!(world.admin(&["LINDEX", QUEUE, "0"]), "java:1");
    eventually("the waiter is queued again, at the tail", || {
        world.admin(&["LINDEX", QUEUE, "-1"]) == waiter
    })
    .await;
    redisson_releases(world);
    assert_eq!(redisson_acquires(world, "java:1"), "");
    redisson_releases(world);
    granted(next).await.release().await.unwrap();
    world.at_rest().await;
}

async fn a_dead_redisson_waiter_is_skipped_after_its_deadline(world: &World) {
    let client = world.client().await;
    assert_eq!(redisson_acquires(world, JAVA), "");
    assert_ne!(redisson_acquires(world, "java:1"), "");
    let next = waiting(world, &fair(&client)).await;
    // The deadline passed 2 s ago. The fair lock allows 1 s for the difference of Redisson's clock.
    let past = "local t = redis.call('TIME') redis.call('ZADD', KEYS[1], t[1] * 1000 - 2000, 'java:1') return 1";
    let _ = world.admin(&["EVAL", past, "1", TIMEOUTS]);
    let _ = world.admin(&["DEL", "job"]);
    granted(next).await.release().await.unwrap();
    world.at_rest().await;
}

async fn waiters_restore_a_deleted_queue(world: &World) {
    let client = world.client().await;
    let held = fair(&client).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..3 {
        waiters.push(waiting(world, &fair(&client)).await);
    }
    // As Redisson's `delete()`.
    let _ = world.admin(&["DEL", QUEUE, TIMEOUTS]);
    eventually("all waiters are queued again", || queued(world) == 3).await;
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
    // The release of a plain lock notifies no queued waiter. The next poll finds the free lock.
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

    for key in [QUEUE, TIMEOUTS, WAITERS, WAKE] {
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

async fn a_large_foreign_value_is_refused_without_reading_it(world: &World) {
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
            assert_eq!(stats.get(whole), None, "{whole} reads the whole value");
        }
    }
    assert_eq!(world.admin(&["HLEN", "job"]), "2000");
}

/// Invalid values of a fencing counter: not a number, or too large to be incremented exactly.
const INVALID: [&str; 6] = [
    "abc",
    "inf",
    "nan",
    "1.5",
    "9007199254740992",
    "9223372036854775807",
];

fn is_counter_error(rejection: &Rejection) -> bool {
    matches!(rejection, Rejection::WrongType { .. })
        && rejection.to_string().contains("fencing counter")
}

async fn an_invalid_fencing_counter_is_refused_and_left_untouched(world: &World) {
    let client = world.client().await;
    let lock = fair(&client).fencing(Fencing::PerName);
    let fence = "redisson_lock_token:{job}";
    for value in INVALID {
        let _ = world.admin(&["SET", fence, value]);
        for attempt in [lock.acquire().await.map(Some), lock.try_acquire().await] {
            match attempt {
                Err(AcquireError::Rejected { rejection, .. }) => {
                    assert!(is_counter_error(&rejection), "{value}: {rejection}");
                }
                other => panic!("{value}: {other:?}"),
            }
        }
        assert_eq!(world.admin(&["GET", fence]), value);
        assert!(world.keys().is_empty(), "{:?}", world.keys());
    }
    // The largest valid counter.
    let _ = world.admin(&["SET", fence, "9007199254740990"]);
    let guard = lock.acquire().await.unwrap();
    assert_eq!(guard.fencing_token().unwrap().get(), 9_007_199_254_740_991);
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn a_counter_that_becomes_invalid_fails_the_waiters_and_blocks_none(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let per_name = |client| fair(client).fencing(Fencing::PerName);
    let fence = "redisson_lock_token:{job}";
    for value in INVALID {
        let held = per_name(&ours).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for client in [&theirs, &ours] {
            let (lock, before) = (per_name(client), queued(world));
            waiters.push(tokio::spawn(async move { lock.acquire().await }));
            eventually("the waiter is queued", || queued(world) == before + 1).await;
        }
        let good = world.admin(&["GET", fence]);
        let _ = world.admin(&["SET", fence, value]);
        held.release().await.expect("a release needs no token");
        for waiter in waiters {
            let answer = tokio::time::timeout(Duration::from_secs(10), waiter).await;
            match answer.unwrap().unwrap() {
                Err(AcquireError::Rejected { rejection, .. }) => {
                    assert!(is_counter_error(&rejection), "{value}: {rejection}");
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
