//! Tests the fair lock: the order of grants, the layout on the server, and re-entry.
//!
//! Long: one suite with one set-up.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::FutureExt as _;
use stanchion::error::NameRule;
use stanchion::{
    AcquireError, AcquireOptions, Client, FairLock, FairLockGuard, Fencing, Lease, Lock,
    QueryError, Rejection,
};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use stanchion_tests::fair::{QUEUE, TIMEOUTS, WAITERS, queued, waiting};
use tokio::task::JoinHandle;

mod neighbours;

suite! {
    an_uncontended_cycle_costs_two_commands,
    a_fair_lock_is_redissons_hash_list_and_sorted_set,
    the_keys_of_a_name_with_braces_are_redissons,
    grants_follow_arrival_over_all_processes,
    a_hand_off_costs_two_commands,
    tokens_grow_over_grants_by_message,
    tokens_come_from_the_counter_of_the_fencing_mode,
    try_acquire_never_overtakes_a_waiter,
    a_timeout_in_the_middle_leaves_the_others_in_order,
    a_granted_hold_is_renewed_to_its_lease,
    an_owner_that_acquires_again_reenters,
    a_forced_release_grants_to_the_head,
    queue_length_and_position_are_reported,
    a_client_that_shuts_down_leaves_the_queue,
}

const WAKE: &str = "stanchion_fair_wake:{job}";
const JAVA: &str = "7c9e6679-7425-40de-944b-e07fc1f90ae7:42";

fn fair(client: &Client) -> FairLock {
    FairLock::new(client, "job").unwrap()
}

fn number(text: &str) -> u64 {
    text.parse().unwrap_or_else(|_| panic!("{text:?}"))
}

/// Returns the guard of a waiter, which must be granted within 20 s.
async fn granted(waiter: JoinHandle<FairLockGuard>) -> FairLockGuard {
    tokio::time::timeout(Duration::from_secs(20), waiter)
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

/// Runs an acquire by `owner` with the effects of Redisson's script. Returns an empty text if it acquired.
fn redisson_acquires(world: &World, owner: &str) -> String {
    let script = "local now = redis.call('TIME'); now = now[1] * 1000 + math.floor(now[2] / 1000) \
        while true do local h = redis.call('LINDEX', KEYS[2], 0) if not h then break end \
          local s = redis.call('ZSCORE', KEYS[3], h) \
          if s and tonumber(s) <= now then redis.call('ZREM', KEYS[3], h) redis.call('LPOP', KEYS[2]) else break end end \
        if redis.call('EXISTS', KEYS[1]) == 0 and (redis.call('EXISTS', KEYS[2]) == 0 or redis.call('LINDEX', KEYS[2], 0) == ARGV[1]) then \
          redis.call('LPOP', KEYS[2]) redis.call('ZREM', KEYS[3], ARGV[1]) \
          for _, m in ipairs(redis.call('ZRANGE', KEYS[3], 0, -1)) do redis.call('ZINCRBY', KEYS[3], -300000, m) end \
          redis.call('HSET', KEYS[1], ARGV[1], 1) redis.call('PEXPIRE', KEYS[1], 30000) return '' end \
        if redis.call('ZSCORE', KEYS[3], ARGV[1]) then return redis.call('PTTL', KEYS[1]) end \
        local last = redis.call('LINDEX', KEYS[2], -1) local base = redis.call('PTTL', KEYS[1]) \
        if last and last ~= ARGV[1] then base = tonumber(redis.call('ZSCORE', KEYS[3], last)) - now end \
        if redis.call('ZADD', KEYS[3], base + 300000 + now, ARGV[1]) == 1 then redis.call('RPUSH', KEYS[2], ARGV[1]) end \
        return base";
    world.admin(&["EVAL", script, "3", "job", QUEUE, TIMEOUTS, owner])
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
    let lock = fair(&client).lease(Lease::new(Duration::from_secs(20)).unwrap());
    let guard = lock.acquire().await.unwrap();
    assert_eq!(world.keys(), ["job"], "no other keys without waiters");
    let owner = guard.owner().to_string();
    assert_eq!(world.admin(&["HGET", "job", &owner]), "1");
    assert_eq!(world.admin(&["HLEN", "job"]), "1");
    let ttl = number(&world.admin(&["PTTL", "job"]));
    assert!((19_000..=20_000).contains(&ttl), "{ttl}");

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

async fn the_keys_of_a_name_with_braces_are_redissons(world: &World) {
    let client = world.client().await;
    let lock = FairLock::new(&client, "{t}:job").unwrap();
    let held = lock.acquire().await.unwrap();
    let next = tokio::spawn({
        let lock = lock.clone();
        async move { lock.acquire().await.unwrap() }
    });
    let queue = "redisson_lock_queue:{t}:job";
    eventually("the call waits", || world.admin(&["LLEN", queue]) == "1").await;
    assert_eq!(
        world.admin(&["ZCARD", "redisson_lock_timeout:{t}:job"]),
        "1"
    );
    held.release().await.unwrap();
    granted(next).await.release().await.unwrap();
    world.at_rest().await;
}

async fn grants_follow_arrival_over_all_processes(world: &World) {
    let mut clients = Vec::new();
    for _ in 0..4 {
        clients.push(world.client().await);
    }
    let held = fair(&clients[0]).acquire().await.unwrap();
    let order = Arc::new(Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..40 {
        let waiter = waiting(world, &fair(&clients[i % 4])).await;
        let order = Arc::clone(&order);
        tasks.push(tokio::spawn(async move {
            let guard = granted(waiter).await;
            order.lock().unwrap().push(i);
            guard.release().await.unwrap();
        }));
    }
    held.release().await.unwrap();
    for task in tasks {
        task.await.unwrap();
    }
    assert_eq!(*order.lock().unwrap(), (0..40).collect::<Vec<_>>());
    world.at_rest().await;
}

async fn a_hand_off_costs_two_commands(world: &World) {
    let clients = [world.client().await, world.client().await];
    let lock = fair(&clients[0]);
    let mut guard = lock.acquire().await.unwrap();
    // Loads the scripts.
    guard.release().await.unwrap();
    guard = lock.acquire().await.unwrap();
    let mut waiters = std::collections::VecDeque::new();
    for client in &clients {
        waiters.push_back(waiting(world, &fair(client)).await);
        subscribed_to_own_channel(world, client).await;
    }
    let (before, started) = (world.scripts_run(), tokio::time::Instant::now());
    for i in 0..100 {
        waiters.push_back(waiting(world, &fair(&clients[i % 2])).await);
        guard.release().await.unwrap();
        guard = waiters.pop_front().unwrap().await.unwrap();
    }
    // Besides the hand-offs: the retry of each client after its subscription, which may come late; and polls, if the machine is slow.
    let polls = 2 + 2 * started.elapsed().as_secs();
    let scripts = world.scripts_run() - before;
    assert!(
        (200..=200 + polls).contains(&scripts),
        "{scripts} scripts for 100 hand-offs in {:?}",
        started.elapsed()
    );
    guard.release().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.release().await.unwrap();
    }
    world.at_rest().await;
}

async fn tokens_grow_over_grants_by_message(world: &World) {
    let clients = [world.client().await, world.client().await];
    let mut guard = fair(&clients[0]).acquire().await.unwrap();
    for i in 0..6 {
        let next = waiting(world, &fair(&clients[i % 2])).await;
        subscribed_to_own_channel(world, &clients[i % 2]).await;
        let before = guard.fencing_token();
        guard.release().await.unwrap();
        guard = granted(next).await;
        assert!(guard.fencing_token() > before);
        assert_eq!(
            fair(&clients[0]).status().await.unwrap().last_token,
            guard.fencing_token()
        );
    }
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

async fn try_acquire_never_overtakes_a_waiter(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = fair(&ours).acquire().await.unwrap();
    assert!(fair(&theirs).try_acquire().await.unwrap().is_none());
    assert_eq!(queued(world), 0, "a try leaves no queue entry");
    held.release().await.unwrap();
    // A live Redisson waiter is at the head of the queue, so a try must not acquire the free lock.
    assert_eq!(redisson_acquires(world, JAVA), "");
    assert_ne!(redisson_acquires(world, "java:1"), "");
    redisson_releases(world);
    assert!(fair(&ours).try_acquire().await.unwrap().is_none());
    assert_eq!(
        redisson_acquires(world, "java:1"),
        "",
        "java:1 is the first waiter"
    );
    redisson_releases(world);
    let guard = fair(&ours).try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn a_timeout_in_the_middle_leaves_the_others_in_order(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(world, &fair(&theirs)).await;
    let impatient = tokio::spawn({
        let lock = fair(&ours);
        async move { lock.acquire_timeout(Duration::from_millis(300)).await }
    });
    eventually("the waiter is queued", || queued(world) == 2).await;
    let last = waiting(world, &fair(&ours)).await;
    let error = impatient.await.unwrap().unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    eventually("the queue entry is removed", || queued(world) == 2).await;
    assert_eq!(world.admin(&["ZCARD", TIMEOUTS]), "2");
    assert_eq!(world.admin(&["ZCARD", WAITERS]), "2");
    held.release().await.unwrap();
    let first = granted(first).await;
    assert!(!last.is_finished());
    first.release().await.unwrap();
    granted(last).await.release().await.unwrap();
    world.at_rest().await;
}

async fn a_granted_hold_is_renewed_to_its_lease(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = fair(&ours).acquire().await.unwrap();
    let next = waiting(world, &fair(&theirs)).await;
    subscribed_to_own_channel(world, &theirs).await;
    world.quiet().await;
    held.release().await.unwrap();
    let guard = granted(next).await;
    // P7: until the first renewal the lease is three quarters of the grace of 2 s. The guard is valid for less.
    let ttl = number(&world.admin(&["PTTL", "job"]));
    assert!(ttl <= 1500, "{ttl}");
    assert!(guard.is_held() && guard.remaining() < Duration::from_millis(1500));
    eventually("the watchdog renews", || {
        assert!(guard.is_held());
        number(&world.admin(&["PTTL", "job"])) > 20_000
    })
    .await;
    eventually("the guard has the new lease", || {
        guard.remaining() > Duration::from_secs(20)
    })
    .await;
    guard.release().await.unwrap();
    world.at_rest().await;
}

async fn an_owner_that_acquires_again_reenters(world: &World) {
    let client = world.client().await;
    let owner = client.owner();
    let lock = fair(&client);
    let options = || AcquireOptions::new().owner(&owner);
    let outer = lock.acquire_with(options()).await.unwrap();
    let next = waiting(world, &lock).await;
    let inner = lock.acquire_with(options()).await.unwrap();
    assert_eq!(lock.status().await.unwrap().holder.unwrap().hold_count, 2);
    outer.release().await.unwrap();
    inner.release().await.unwrap();
    granted(next).await.release().await.unwrap();
    lock.acquire_with(options())
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
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
        waiters.push(tokio::spawn(async move { lock.acquire().await.unwrap() }));
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

async fn a_client_that_shuts_down_leaves_the_queue(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let held = fair(&ours).acquire().await.unwrap();
    let mut leaving = Vec::new();
    for _ in 0..5 {
        let lock = fair(&theirs);
        leaving.push(tokio::spawn(async move { lock.acquire().await }));
    }
    eventually("the calls are queued", || queued(world) == 5).await;
    let report = theirs.shutdown(Duration::from_secs(5)).await;
    for waiter in leaving {
        let error = waiter.await.unwrap().unwrap_err();
        assert!(matches!(error, AcquireError::Shutdown { .. }), "{error}");
    }
    assert!(report.is_clean(), "{report:?}");
    eventually("the queue entries are removed", || queued(world) == 0).await;
    held.release().await.unwrap();
    world.at_rest().await;
}
