//! Tests of a multi-lock that is queued for a lock which it cannot take: it does not block the waiters behind it.

use std::time::Duration;

use stanchion::{Acquire, Lock, Lockable, MultiLock};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_within, ms, secs, together};
use tokio::time::Instant;

/// L4: an expiry sends no message. A process that polls after the expiry and cannot take the lock notifies the next one.
#[tokio::test(start_paused = true)]
async fn a_head_that_cannot_take_the_free_lock_passes_it_on() {
    for lease in [2600, 3000, 3400] {
        let (world, clients) = World::engine().with_fleet(3).await;
        let lock = |client: usize, name: &str| Lock::new(&clients[client], name).unwrap();
        let queued = |count: usize| {
            let world = &world;
            async move {
                let line = ["ZCARD", "stanchion_line:{a}"];
                let count = count.to_string();
                eventually("it is queued", || world.admin(&line) == count).await;
            }
        };
        let _other = lock(0, "b").acquire().await.unwrap();
        // The holder is a silent process of stanchion. A waiter that is not the head polls at a random time within a second.
        let silent = "11111111-1111-8111-8111-111111111111:1";
        let _ = world.admin(&["HSET", "a", silent, "1"]);
        let _ = world.admin(&["PEXPIRE", "a", &lease.to_string()]);
        let held = Instant::now();
        // Another task of the process waits for `b` already, so the multi-lock sends no second request when it moves to that queue.
        let before = tokio::spawn(lock(1, "b").acquire());
        eventually("it waits", || clients[1].waiters() == 1).await;
        world.quiet().await;
        let both = [lock(1, "a"), lock(1, "b")];
        let both = MultiLock::new(both.iter().map(|lock| lock as &dyn Lockable)).unwrap();
        let first = tokio::spawn(both.acquire());
        queued(1).await;
        let behind = tokio::spawn(lock(2, "a").acquire());
        queued(2).await;
        let guard = behind.await.unwrap().unwrap();
        assert_within(held, ms(lease + 20), ());
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

/// Each task acquires two of four names and holds them for 1 ms. One in `singles` acquires is for a single name.
async fn rush(singles: usize) -> Rush {
    let (world, clients) = World::engine().with_fleet(3).await;
    let end = Instant::now() + secs(1);
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
                let began = Instant::now();
                let guard = wanted.acquire().await.unwrap();
                grants.push((Instant::now(), began.elapsed()));
                tokio::time::sleep(ms(1)).await;
                guard.release().await.unwrap();
            }
            grants
        })
    });
    let grants = together(tasks).await.into_iter();
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

/// L6: the wake-up of one waiter is not lost when another waiter of its process, without a queue entry, sends a request.
#[tokio::test(start_paused = true)]
async fn multi_locks_with_overlapping_names_never_stall() {
    for singles in [2, 1_000_000] {
        let rush = rush(singles).await;
        let (gap, wait, scripts) = (rush.longest_gap, rush.longest_wait, rush.scripts);
        assert!(gap < ms(30), "no grant for {gap:?}");
        assert!(wait < ms(500), "the longest wait: {wait:?}");
        // A request may find one name free and the other one held.
        assert!(scripts < 8.0, "{scripts} scripts for each grant");
    }
}
