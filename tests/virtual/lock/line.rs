//! Tests of the queue of processes that wait for a lock (the line): dead and silent processes, and other clients. `virtual/fleets` has the cost of
//! a grant, and turns.
//!
//! Long: one suite over one set-up.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{AcquireError, Client, Lock, LockGuard};
use stanchion_tests::{JAVA, World, ms, secs, spawn_ok, together};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const BASE: &str = "redisson_lock__channel:{job}";
const LINE: &str = "stanchion_line:{job}";

fn lock(client: &Client) -> Lock {
    Lock::new(client, "job").unwrap()
}

/// Waiters, one in each process, in the order of the clients. Each releases as soon as it has the lock.
async fn queued(world: &World, clients: &[Client]) -> Vec<JoinHandle<Duration>> {
    let started = Instant::now();
    let mut waiters = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        let lock = lock(client);
        waiters.push(tokio::spawn(async move {
            let guard = lock.acquire().await.unwrap();
            let granted = started.elapsed();
            guard.release().await.unwrap();
            granted
        }));
        world.until(&["ZCARD", LINE], n + 1).await;
    }
    world.quiet().await;
    waiters
}

/// A holder, and a fleet of other clients.
async fn held(world: &World, size: usize) -> (Client, LockGuard, Vec<Client>) {
    let holder = world.named("holder").await;
    let guard = lock(&holder).acquire().await.unwrap();
    (holder, guard, world.fleet(size).await)
}

/// L2. While the lock is held, the killed processes keep their queue entries.
#[tokio::test(start_paused = true)]
async fn processes_without_connections_are_not_counted_and_skipped_at_once() {
    let world = World::engine();
    let (holder, guard, clients) = held(&world, 4).await;
    let waiters = queued(&world, &clients).await;
    let counted = async || lock(&holder).status().await.unwrap().waiting_processes;
    assert_eq!(counted().await, Some(4));
    let faults = world.faults();
    faults.refuse_connections(Switch::On);
    for dead in ["p0", "p1", "p2"] {
        faults.kill_label(dead);
    }
    assert_eq!(counted().await, Some(1));
    assert_eq!(world.admin(&["ZCARD", LINE]), "4");
    let released = Instant::now();
    guard.release().await.unwrap();
    waiters.into_iter().nth(3).unwrap().await.unwrap();
    assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
}

/// L13.
#[tokio::test(start_paused = true)]
async fn a_process_that_falls_silent_with_a_grant_delays_the_next_by_1500_ms() {
    let world = World::engine();
    let (_holder, guard, clients) = held(&world, 2).await;
    let waiters = queued(&world, &clients).await;
    world.faults().freeze(Some("p0"));
    let released = Instant::now();
    guard.release().await.unwrap();
    let mut waiters = waiters.into_iter();
    waiters.nth(1).unwrap().await.unwrap();
    let took = released.elapsed();
    assert!((ms(1490)..ms(1600)).contains(&took), "{took:?}");
}

/// P8: a release may grant to a call that times out at that moment. The error reports that no hold is left only if that is true.
/// P9: the call does not wait long to find out.
#[tokio::test(start_paused = true)]
async fn a_timeout_reports_no_leftover_only_after_its_queue_entry_is_removed() {
    let world = World::engine();
    let faults = world.faults();
    for answers in [true, false] {
        let (_holder, guard, clients) = held(&world, 1).await;
        faults.delay(Some("p0"), ms(5));
        let began = Instant::now();
        let waiting = tokio::spawn(lock(&clients[0]).acquire_timeout(ms(2_000)));
        world.until(&["ZCARD", LINE], "1").await;
        world.waiting(&clients[0], 1, BASE).await;
        tokio::time::sleep_until(began + ms(1_998)).await;
        guard.release().await.unwrap();
        assert_eq!(world.admin(&["EXISTS", "job"]), "1", "it was granted");
        if !answers {
            faults.freeze(Some("p0"));
        }
        let error = waiting.await.unwrap().unwrap_err();
        let AcquireError::TimedOut { free_by, .. } = error else {
            panic!("{error}");
        };
        let left = world.admin(&["EXISTS", "job"]);
        assert_eq!((free_by.is_none(), left == "0"), (answers, answers));
        assert!(began.elapsed() < ms(2_050), "{:?}", began.elapsed());
        faults.clear();
        world.at_rest().await;
    }
}

/// A client that restores its queue entry uses the time of its first arrival.
#[tokio::test(start_paused = true)]
async fn a_reconnect_keeps_the_order() {
    let world = World::engine();
    let (_holder, guard, clients) = held(&world, 3).await;
    let waiters = queued(&world, &clients).await;
    let all = "return table.concat(redis.call('ZRANGE', KEYS[1], 0, -1, 'WITHSCORES'), ' ')";
    let order = || world.admin(&["EVAL", all, "1", LINE]);
    let before = order();
    world.faults().kill_subscribers();
    let _ = world.admin(&["DEL", LINE]);
    world.until(&["ZCARD", LINE], "3").await;
    world.quiet().await;
    assert_eq!(order(), before);
    let released = Instant::now();
    guard.release().await.unwrap();
    together(waiters).await;
    assert!(released.elapsed() < ms(50), "{:?}", released.elapsed());
    world.at_rest().await;
}

/// R8: at maxmemory a request cannot renew a queue entry, but the entry still exists.
#[tokio::test(start_paused = true)]
async fn a_grant_reaches_a_waiter_whose_queue_entry_could_not_be_renewed() {
    let world = World::engine();
    let (_holder, guard, clients) = held(&world, 1).await;
    let mut waiters = queued(&world, &clients).await;
    world.faults().out_of_memory(Switch::On);
    let before = world.scripts_run();
    tokio::time::sleep(secs(6)).await;
    assert!(world.scripts_run() > before, "the waiter has polled");
    let released = Instant::now();
    guard.release().await.unwrap();
    waiters.remove(0).await.unwrap();
    assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
}

fn redisson_holds(world: &World) {
    let _ = world.admin(&["HSET", "job", JAVA, "1"]);
    let _ = world.admin(&["PEXPIRE", "job", "30000"]);
}

fn redisson_releases(world: &World) {
    let _ = world.admin(&["DEL", "job"]);
    let _ = world.admin(&["PUBLISH", BASE, "0"]);
}

/// One process, the relay, is subscribed to Redisson's channel on behalf of the others.
#[tokio::test(start_paused = true)]
async fn a_redisson_release_wakes_one_queued_process() {
    let world = World::engine();
    redisson_holds(&world);
    let clients = world.fleet(12).await;
    let first = spawn_ok(lock(&clients[0]).acquire());
    world.until(&["ZCARD", LINE], "1").await;
    let _rest = queued_behind(&world, &clients[1..]).await;
    let before = world.scripts_run();
    let released = Instant::now();
    redisson_releases(&world);
    let guard = first.await.unwrap();
    assert!(released.elapsed() < ms(10), "{:?}", released.elapsed());
    let scripts = world.scripts_run() - before;
    assert!(scripts <= 2, "{scripts} scripts");
    drop(guard);
}

async fn queued_behind(world: &World, clients: &[Client]) -> Vec<JoinHandle<()>> {
    let mut waiters = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        let lock = lock(client);
        waiters.push(tokio::spawn(async move { drop(lock.acquire().await) }));
        world.until(&["ZCARD", LINE], n + 2).await;
    }
    // Wait until the relay is known. From then on the waiters poll about once a second.
    world.quiet().await;
    waiters
}

/// L9: the relay has fallen silent.
#[tokio::test(start_paused = true)]
async fn a_silent_relay_is_replaced() {
    let world = World::engine();
    redisson_holds(&world);
    let clients = world.fleet(3).await;
    let relay = lock(&clients[0]);
    let _relay = tokio::spawn(async move { drop(relay.acquire().await) });
    world
        .until(&["HEXISTS", "stanchion_wake:{job}", "heard"], "1")
        .await;
    let rest = queued_behind(&world, &clients[1..]).await;
    world.faults().freeze(Some("p0"));
    // Longer than the relay may be silent, and longer than the poll interval of the others.
    tokio::time::sleep(secs(5)).await;
    redisson_releases(&world);
    let released = Instant::now();
    together(rest).await;
    // The silent process is the head of the queue, so it gets the first grant.
    assert!(released.elapsed() < ms(1800), "{:?}", released.elapsed());
}
