//! A multi-lock in the line of a lock that it cannot take: others are not kept waiting.

use std::time::Duration;

use stanchion::{Acquire, Lock, Lockable, MultiLock};
use stanchion_testkit::eventually;
use stanchion_tests::{World, together};
use tokio::time::Instant;

/// L4: an expiry sends no message, so whoever looks after it and cannot take the lock tells the next.
#[tokio::test(start_paused = true)]
async fn a_head_that_looks_in_vain_passes_the_free_lock_on() {
    for lease in [2600, 3000, 3400] {
        let world = World::engine();
        let clients = world.fleet(3).await;
        let lock = |client: usize, name: &str| Lock::new(&clients[client], name).unwrap();
        let in_line = |places: usize| {
            let world = &world;
            async move {
                let line = ["ZCARD", "stanchion_line:{a}"];
                let places = places.to_string();
                eventually("it stands in line", || world.admin(&line) == places).await;
            }
        };
        let _other = lock(0, "b").acquire().await.unwrap();
        // A process of stanchion's that falls silent: whoever is not the head looks at some moment of a second only.
        let silent = "11111111-1111-8111-8111-111111111111:1";
        let _ = world.admin(&["HSET", "a", silent, "1"]);
        let _ = world.admin(&["PEXPIRE", "a", &lease.to_string()]);
        let held = Instant::now();
        // Another task of the same process waits there already, so the multi-lock does not ask a second time when it moves there.
        let before = lock(1, "b");
        let before = tokio::spawn(async move { before.acquire().await });
        eventually("it waits", || clients[1].waiters() == 1).await;
        world.quiet().await;
        let both = [lock(1, "a"), lock(1, "b")];
        let both = MultiLock::new(both.iter().map(|lock| lock as &dyn Lockable)).unwrap();
        let first = tokio::spawn(async move { both.acquire().await });
        in_line(1).await;
        let behind = lock(2, "a");
        let behind = tokio::spawn(async move { behind.acquire().await });
        in_line(2).await;
        let guard = behind.await.unwrap().unwrap();
        let elapsed = held.elapsed();
        assert!(elapsed < Duration::from_millis(lease + 20), "{elapsed:?}");
        guard.release().await.unwrap();
        first.abort();
        before.abort();
    }
}

/// Grants to 39 tasks of three clients in a second.
struct Rush {
    longest_gap: Duration,
    longest_wait: Duration,
    scripts: f64,
}

/// Each task takes two of four names and holds them for 1 ms; of `singles` acquires one takes a single name.
async fn rush(singles: usize) -> Rush {
    let world = World::engine();
    let clients = world.fleet(3).await;
    let end = Instant::now() + Duration::from_secs(1);
    let tasks = (0..39_u32).map(|worker| {
        let client = clients[worker as usize % 3].clone();
        tokio::spawn(async move {
            let mut random = fastrand::Rng::with_seed(worker.into());
            let mut grants = Vec::new();
            while Instant::now() < end {
                let one = random.usize(0..4);
                let other = (one + random.usize(1..4)) % 4;
                let locks =
                    [one, other].map(|name| Lock::new(&client, format!("n{name}")).unwrap());
                let both = MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap();
                let wanted: &dyn Acquire = match random.usize(0..singles) {
                    0 => &locks[0],
                    _ => &both,
                };
                let asked = Instant::now();
                let guard = wanted.acquire().await.unwrap();
                grants.push((Instant::now(), asked.elapsed()));
                tokio::time::sleep(Duration::from_millis(1)).await;
                guard.release().await.unwrap();
            }
            grants
        })
    });
    let grants = together(tasks.collect()).await.into_iter();
    let mut grants: Vec<_> = grants.flatten().collect();
    grants.sort_unstable();
    world.at_rest().await;
    let gaps = grants.windows(2).map(|two| two[1].0 - two[0].0);
    Rush {
        longest_gap: gaps.max().unwrap(),
        longest_wait: grants.iter().map(|(_, waited)| *waited).max().unwrap(),
        scripts: world.scripts_run() as f64 / grants.len() as f64,
    }
}

/// L6: what one waiter was told is not lost when another one of its process asks, which has no place yet.
#[tokio::test(start_paused = true)]
async fn names_that_cross_never_stand_still() {
    for singles in [2, 1_000_000] {
        let rush = rush(singles).await;
        let (gap, wait, scripts) = (rush.longest_gap, rush.longest_wait, rush.scripts);
        assert!(gap < Duration::from_millis(30), "no grant for {gap:?}");
        assert!(
            wait < Duration::from_millis(500),
            "somebody waited {wait:?}"
        );
        // Each name is free for a request or two whose other name is not.
        assert!(scripts < 8.0, "{scripts} scripts for each grant");
    }
}

/// P4: the message that lets a process try takes its place off the line. If the waiter is handed the locks before it has asked, the
/// process has no place when it releases them, and nobody tells the next.
#[tokio::test(start_paused = true)]
async fn who_was_told_and_is_handed_the_locks_instead_leaves_the_next_a_request() {
    let world = World::engine();
    let clients = world.fleet(2).await;
    let multi = |names: [&str; 2]| {
        let locks = names.map(|name| Lock::new(&clients[0], name).unwrap());
        MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
    };
    let both = multi(["a", "b"]);
    let theirs = Lock::new(&clients[1], "a")
        .unwrap()
        .acquire()
        .await
        .unwrap();
    // Waits in line, and is not polled again until it is handed the locks.
    let mut first = Box::pin(both.acquire());
    while world.admin(&["ZCARD", "stanchion_line:{a}"]) != "1" {
        let once = tokio::time::timeout(Duration::from_millis(1), &mut first).await;
        assert!(once.is_err());
    }
    let waiting = multi(["a", "c"]);
    let next = tokio::spawn(async move { waiting.acquire().await.unwrap() });
    eventually("it waits", || clients[0].waiters() == 2).await;
    // Tells the first to try.
    theirs.release().await.unwrap();
    world.quiet().await;
    assert_eq!(world.admin(&["EXISTS", "stanchion_line:{a}"]), "0");
    let guard = both.try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();
    let guard = first.await.unwrap();
    guard.release().await.unwrap();
    let next = tokio::time::timeout(Duration::from_millis(100), next).await;
    let next = next.expect("a free lock, and nobody was told").unwrap();
    next.release().await.unwrap();
    world.at_rest().await;
}

/// A multi-lock of `a` and `b` that waits in the line of `b`, whose holder, the process of no client, is silent; and the line's key.
async fn behind_a_silent_holder(
    world: &World,
    client: &stanchion::Client,
    lease: Duration,
) -> tokio::task::JoinHandle<stanchion::MultiGuard> {
    let silent = "11111111-1111-8111-8111-111111111111:1";
    let _ = world.admin(&["HSET", "b", silent, "1"]);
    let _ = world.admin(&["PEXPIRE", "b", &lease.as_millis().to_string()]);
    let both = ["a", "b"].map(|name| Lock::new(client, name).unwrap());
    let both = MultiLock::new(both.iter().map(|lock| lock as &dyn Lockable)).unwrap();
    let waiting = tokio::spawn(async move { both.acquire().await.unwrap() });
    in_line_of_b(world, 1).await;
    waiting
}

const LINE_OF_B: &str = "stanchion_line:{b}";

async fn in_line_of_b(world: &World, places: usize) {
    let places = places.to_string();
    eventually("it is queued", || {
        world.admin(&["ZCARD", LINE_OF_B]) == places
    })
    .await;
}

/// L4: an expiry sends no message. A multi-lock that takes a lock whose line it was in notifies the next of the end of its lease.
#[tokio::test(start_paused = true)]
async fn a_multi_lock_that_leaves_a_line_notifies_the_new_head() {
    let world = World::engine();
    let clients = world.fleet(3).await;
    let lock = |client: usize, name: &str| Lock::new(&clients[client], name).unwrap();
    let held = lock(0, "b").acquire().await.unwrap();
    let both = ["a", "b"].map(|name| lock(1, name));
    let both = MultiLock::new(both.iter().map(|lock| lock as &dyn Lockable)).unwrap();
    let waiting = tokio::spawn(async move { both.acquire().await.unwrap() });
    in_line_of_b(&world, 1).await;
    let behind = lock(2, "b");
    let next = tokio::spawn(async move { behind.acquire().await.unwrap() });
    in_line_of_b(&world, 2).await;
    let place = world.admin(&[
        "EVAL",
        "return redis.call('ZRANGE', KEYS[1], 1, 1)[1]",
        "1",
        LINE_OF_B,
    ]);
    let channel = format!("redisson_lock__channel:{{b}}:{}", &place[..36]);
    let mut messages = world.listen(&channel).await;
    held.release().await.unwrap();
    let guard = waiting.await.unwrap();
    // While the multi-lock, which was notified, may not have sent its request; and when it has.
    for expected in ["P 25", "N 30000"] {
        let message = tokio::time::timeout(Duration::from_millis(20), messages.next()).await;
        assert_eq!(message.expect(expected), expected);
    }
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

/// L3: a holder fell silent, so others in its line may be dead. A multi-lock that finds this out lets the living say so.
#[tokio::test(start_paused = true)]
async fn a_multi_lock_behind_a_silent_holder_removes_dead_processes_from_the_line() {
    let world = World::engine();
    let (first, next) = (world.named("first").await, world.named("next").await);
    let waiting = behind_a_silent_holder(&world, &first, Duration::from_secs(3)).await;
    // Dead processes behind it: nobody is subscribed for them.
    let arrived = world.admin(&[
        "EVAL",
        "return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]",
        "1",
        LINE_OF_B,
    ]);
    let arrived: u64 = arrived.parse().unwrap();
    for n in 1..=20 {
        let place = format!("00000000-0000-8000-8000-{n:012}:1");
        let _ = world.admin(&["ZADD", LINE_OF_B, &(arrived + n).to_string(), &place]);
    }
    let lock = Lock::new(&next, "b").unwrap();
    let next = tokio::spawn(async move { lock.acquire().await.unwrap() });
    in_line_of_b(&world, 22).await;
    let guard = waiting.await.unwrap();
    // The living one has sent a request again.
    in_line_of_b(&world, 1).await;
    let released = Instant::now();
    guard.release().await.unwrap();
    let next = next.await.unwrap();
    let elapsed = released.elapsed();
    assert!(elapsed < Duration::from_millis(20), "{elapsed:?}");
    next.release().await.unwrap();
    world.at_rest().await;
}
