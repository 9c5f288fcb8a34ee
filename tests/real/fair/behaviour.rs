//! Tests the fair lock: its layout on the server, its status, and its neighbours: Redisson's clients, foreign values and unusual names.
//! `real/kinds` has what all kinds of hold do.

use futures_util::FutureExt as _;
use stanchion::error::NameRule;
use stanchion::{AcquireError, Client, FairLock, FairLockGuard, Fencing, QueryError, Rejection};
use stanchion_testkit::eventually;
use stanchion_tests::fair::{QUEUE, TIMEOUTS, WAITERS, queued, waiting};
use stanchion_tests::{JAVA, World, lease, ms, secs, spawn_ok};
use tokio::task::JoinHandle;

suite! {
    an_uncontended_cycle_costs_two_commands,
    a_fair_lock_is_redissons_hash_list_and_sorted_set,
    tokens_come_from_the_counter_of_the_fencing_mode,
    a_forced_release_grants_to_the_head,
    queue_length_and_position_are_reported,
    a_redisson_release_wakes_our_first_waiter,
    foreign_values_are_refused_without_reading_them_and_left_untouched,
    names_are_checked,
}

const WAKE: &str = "stanchion_fair_wake:{job}";

fn fair(client: &Client) -> FairLock {
    FairLock::new(client, "job").unwrap()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?}"))
}

/// Returns the guard of a waiter, which must be granted within 20 s.
async fn granted(waiter: JoinHandle<FairLockGuard>) -> FairLockGuard {
    tokio::time::timeout(secs(20), waiter)
        .await
        .unwrap()
        .unwrap()
}

/// Waits until the client is subscribed to its own channel, which carries its grants.
async fn subscribed_to_own_channel(world: &World, client: &Client) {
    let channel = format!("redisson_lock__channel:{{job}}:{}", client.id());
    world.subscribed(&channel).await;
}

/// The deadline of a waiter in Redisson's sorted set, in milliseconds of the server's clock.
fn deadline(world: &World, owner: &str) -> u64 {
    let script = "return redis.call('ZSCORE', KEYS[1], ARGV[1])";
    number(&world.admin(&["EVAL", script, "1", TIMEOUTS, owner]))
}

fn server_ms(world: &World) -> u64 {
    let script = "local t = redis.call('TIME') return t[1] * 1000 + math.floor(t[2] / 1000)";
    number(&world.admin(&["EVAL", script, "0"]))
}

/// Runs a release with the effects of Redisson's script: it deletes the hold and publishes on the first waiter's channel.
fn redisson_releases(world: &World) {
    let script = "redis.call('DEL', KEYS[1]) local h = redis.call('LINDEX', KEYS[2], 0) \
        if h then redis.call('PUBLISH', 'redisson_lock__channel:{job}:' .. h, '0') end return 1";
    assert_eq!(world.admin(&["EVAL", script, "2", "job", QUEUE]), "1");
}

async fn an_uncontended_cycle_costs_two_commands(world: &World) {
    let lock = fair(&world.client().await);
    lock.acquire().await.unwrap().release().await.unwrap();
    let before = world.scripts_run();
    for _ in 0..10 {
        lock.acquire().await.unwrap().release().await.unwrap();
    }
    assert_eq!(world.scripts_run() - before, 20);
    assert!(world.keys().is_empty());
}

async fn a_fair_lock_is_redissons_hash_list_and_sorted_set(world: &World) {
    let client = world.client().await;
    let lock = fair(&client).lease(lease(secs(20)));
    let guard = lock.acquire().await.unwrap();
    assert_eq!(world.keys(), ["job"], "no other keys without waiters");
    let owner = guard.owner().to_string();
    assert_eq!(world.admin(&["HGET", "job", &owner]), "1");
    assert_eq!(world.admin(&["HLEN", "job"]), "1");
    let ttl = number(&world.admin(&["PTTL", "job"]));
    assert!((19_000..=20_000).contains(&ttl), "{ttl}");

    let inner = guard.reenter().await.unwrap();
    assert_eq!(lock.status().await.unwrap().holder.unwrap().hold_count, 2);
    inner.release().await.unwrap();

    let next = waiting(world, &lock).await;
    assert_eq!(world.keys(), ["job", QUEUE, TIMEOUTS, WAITERS, WAKE]);
    let waiter = world.admin(&["LINDEX", QUEUE, "0"]);
    assert!(waiter.starts_with(&format!("{}:", client.id())), "{waiter}");
    let ahead = deadline(world, &waiter) - server_ms(world);
    assert!((595_000..=600_000).contains(&ahead), "two waits: {ahead}");
    assert_eq!(world.admin(&["ZCARD", WAITERS]), "1");
    for (key, most) in [(WAITERS, 150_000), (WAKE, 10_000)] {
        let ttl = number(&world.admin(&["PTTL", key]));
        assert!((1..=most).contains(&ttl), "P3: {key}: {ttl}");
    }

    guard.release().await.unwrap();
    let guard = granted(next).await;
    assert_eq!(guard.owner().to_string(), waiter);
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn tokens_come_from_the_counter_of_the_fencing_mode(world: &World) {
    let client = world.client().await;
    for (fencing, minted) in [
        (Fencing::PerSlot, true),
        (Fencing::PerName, true),
        (Fencing::Off, false),
    ] {
        let lock = fair(&client).fencing(fencing);
        let held = lock.acquire().await.unwrap();
        let next = waiting(world, &lock).await;
        subscribed_to_own_channel(world, &client).await;
        held.release().await.unwrap();
        let guard = granted(next).await;
        assert_eq!(guard.fencing_token().is_some(), minted, "{fencing:?}");
        let status = lock.status().await.unwrap();
        assert_eq!(status.last_token, guard.fencing_token(), "{fencing:?}");
        guard.release().await.unwrap();
    }
    let java = number(&world.admin(&["GET", "redisson_lock_token:{job}"]));
    assert!(java > 0, "Redisson's RFencedLock counts on from here");
    world.at_rest().await;
}

async fn a_forced_release_grants_to_the_head(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = fair(&ours);
    assert!(!lock.danger().force_release().await.unwrap());
    let first = lock.acquire().await.unwrap();
    let next = waiting(world, &fair(&theirs)).await;
    subscribed_to_own_channel(world, &theirs).await;
    assert!(fair(&theirs).danger().force_release().await.unwrap());
    let second = granted(next).await;
    assert!(second.fencing_token() > first.fencing_token());
    let error = first.release().await.unwrap_err();
    assert!(matches!(error, stanchion::ReleaseError::Lost(_)), "{error}");
    assert_eq!(
        lock.status().await.unwrap().holder.unwrap().owner,
        second.owner().to_string()
    );
    second.release().await.unwrap();
    world.at_rest().await;
}

async fn queue_length_and_position_are_reported(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = fair(&ours);
    assert_eq!(lock.queue_len().await.unwrap(), 0);
    assert_eq!(lock.position().await.unwrap(), None);
    let held = lock.acquire().await.unwrap();
    let status = lock.status().await.unwrap();
    assert!(status.is_held());
    assert_eq!(status.queue_len, 0);
    assert_eq!(
        lock.position().await.unwrap(),
        None,
        "a holder is not in the queue"
    );
    let mut waiters = Vec::new();
    for _ in 0..200 {
        let lock = fair(&theirs);
        waiters.push(spawn_ok(lock.acquire()));
    }
    eventually("the calls are queued", || queued(world) == 200).await;
    waiters.push(waiting(world, &lock).await);
    assert_eq!(lock.queue_len().await.unwrap(), 201);
    assert_eq!(lock.position().await.unwrap(), Some(200));
    assert_eq!(fair(&theirs).position().await.unwrap(), Some(0));
    held.release().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.release().await.unwrap();
    }
    world.at_rest().await;
}

async fn a_redisson_release_wakes_our_first_waiter(world: &World) {
    let client = world.client().await;
    let _ = world.admin(&["HSET", "job", JAVA, "1"]);
    let _ = world.admin(&["PEXPIRE", "job", "30000"]);
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
            started.elapsed() < ms(50),
            "by message: {:?}",
            started.elapsed()
        );
    }
    guard.release().await.unwrap();
    world.at_rest().await;
}

/// P8, R7.
async fn foreign_values_are_refused_without_reading_them_and_left_untouched(world: &World) {
    let lock = fair(&world.client().await);
    let wrong = |rejection: &Rejection| matches!(rejection, Rejection::WrongType { .. });
    let fields: Vec<String> = (0..2000).map(|i| format!("field{i}")).collect();
    let mut large = vec!["HSET", "job"];
    large.extend(fields.iter().flat_map(|field| [field.as_str(), "1"]));
    let read_write = &["HSET", "job", "mode", "read", "java:1", "1"][..];
    for (make, read) in [
        (&["SET", "job", "precious"][..], "GET"),
        (read_write, "HLEN"),
        (&large, "HLEN"),
    ] {
        let _ = world.admin(make);
        let before = world.admin(&[read, "job"]);
        for attempt in [lock.acquire().await.map(Some), lock.try_acquire().await] {
            let Err(AcquireError::Rejected { rejection, .. }) = attempt else {
                panic!("{attempt:?}");
            };
            assert!(wrong(&rejection), "{rejection}");
        }
        for failed in [
            lock.status().await.map(drop),
            lock.danger().force_release().await.map(drop),
        ] {
            let Err(QueryError::Rejected { rejection }) = failed else {
                panic!("{failed:?}");
            };
            assert!(wrong(&rejection), "{rejection}");
        }
        assert_eq!(world.keys(), ["job"]);
        assert_eq!(world.admin(&[read, "job"]), before);
        let _ = world.admin(&["DEL", "job"]);
    }
    if let World::Server(server) = world {
        let stats = server.commands_processed();
        for whole in ["hkeys", "hvals", "hgetall"] {
            assert_eq!(stats.get(whole), None, "{whole} reads the whole value");
        }
    }
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

async fn names_are_checked(world: &World) {
    let client = world.client().await;
    for bad in [&b""[..], &[b'x'; 513]] {
        assert!(FairLock::new(&client, bad).is_err());
    }
    let shared = FairLock::new(&client, "{job}").unwrap_err();
    assert_eq!(shared.rule, NameRule::SharesQueue);
    let odd = [&b"\0"[..], b"a}b", b"{", b"\xff\xfe", "größe".as_bytes()];
    let braces = [&b"{job}:x"[..], b"x:{job}", b"{}", b"{{job}}"];
    for name in [&odd[..], &braces].concat() {
        let lock = FairLock::new(&client, name).unwrap();
        let held = lock.acquire().await.unwrap();
        let mut next = Box::pin(lock.acquire());
        assert!((&mut next).now_or_never().is_none());
        held.release().await.unwrap();
        next.await.unwrap().release().await.unwrap();
    }
    // A queue with Redisson's keys.
    let lock = FairLock::new(&client, "{t}:job").unwrap();
    let held = lock.acquire().await.unwrap();
    let next = spawn_ok(lock.acquire());
    let (queue, timeouts) = (
        "redisson_lock_queue:{t}:job",
        "redisson_lock_timeout:{t}:job",
    );
    eventually("the call waits", || {
        world.admin(&["LLEN", queue]) == "1" && world.admin(&["ZCARD", timeouts]) == "1"
    })
    .await;
    held.release().await.unwrap();
    granted(next).await.release().await.unwrap();
    world.at_rest().await;
}
