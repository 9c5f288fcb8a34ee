//! Tests of the queue of processes that wait for a lock (the line): the cost of a grant, dead and silent processes, and other clients.
//!
//! Long: one suite over one set-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::client::Wake;
use stanchion::embedded::Switch;
use stanchion::{AcquireError, Client, Lock, LockGuard};
use stanchion_testkit::eventually;
use stanchion_tests::{JAVA, World};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const BASE: &str = "redisson_lock__channel:{job}";
const LINE: &str = "stanchion_line:{job}";

fn lock(client: &Client) -> Lock {
    Lock::new(client, "job").unwrap()
}

/// The number of grants to a fleet of clients, and its waiting times.
#[derive(Debug, Default)]
struct Tally {
    grants: AtomicU64,
    waited_micros: AtomicU64,
    longest_micros: AtomicU64,
}

/// Spawns one task for each process, which acquires, holds, releases and pauses in a loop.
fn work(clients: &[Client], tally: &Arc<Tally>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for client in clients {
        let (lock, tally) = (lock(client), Arc::clone(tally));
        tasks.spawn(async move {
            loop {
                let began = Instant::now();
                let guard = lock.acquire().await.unwrap();
                let waited = u64::try_from(began.elapsed().as_micros()).unwrap();
                tally.grants.fetch_add(1, Ordering::Relaxed);
                tally.waited_micros.fetch_add(waited, Ordering::Relaxed);
                tally.longest_micros.fetch_max(waited, Ordering::Relaxed);
                tokio::time::sleep(ms(2)).await;
                guard.release().await.unwrap();
                tokio::time::sleep(ms(2)).await;
            }
        });
    }
    tasks
}

/// Lets a fleet work for `length` to warm up, and returns the tally of the next `length`.
async fn tallied(clients: &[Client], length: Duration) -> Tally {
    let tally = Arc::new(Tally::default());
    let mut tasks = work(clients, &tally);
    tokio::time::sleep(length).await;
    let warm = [&tally.grants, &tally.waited_micros, &tally.longest_micros];
    for count in warm {
        count.store(0, Ordering::Relaxed);
    }
    tokio::time::sleep(length).await;
    tasks.shutdown().await;
    Arc::into_inner(tally).unwrap()
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
        eventually("it is queued", || {
            world.admin(&["ZCARD", LINE]) == (n + 1).to_string()
        })
        .await;
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

/// P11.
#[tokio::test(start_paused = true)]
async fn a_grant_costs_two_commands_however_many_processes_wait() {
    for size in [2, 16, 64] {
        let world = World::engine();
        let clients = world.fleet(size).await;
        let tally = Arc::new(Tally::default());
        let mut tasks = work(&clients, &tally);
        tokio::time::sleep(Duration::from_secs(3)).await;
        let (scripts, grants) = (world.scripts_run(), tally.grants.load(Ordering::Relaxed));
        tokio::time::sleep(Duration::from_secs(3)).await;
        let scripts = world.scripts_run() - scripts;
        let grants = tally.grants.load(Ordering::Relaxed) - grants;
        tasks.shutdown().await;
        assert!(grants > 500, "{size}: {grants} grants");
        assert!(
            scripts * 10 <= grants * 23,
            "{size}: {scripts} scripts for {grants} grants"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn processes_take_turns() {
    for size in [3, 16] {
        let world = World::engine();
        let tally = tallied(&world.fleet(size).await, Duration::from_secs(4)).await;
        let grants = tally.grants.into_inner();
        let mean = tally.waited_micros.into_inner() / grants;
        let longest = tally.longest_micros.into_inner();
        assert!(
            longest <= 5 * mean,
            "{size}: {longest} us at the longest, {mean} us on average"
        );
    }
}

/// L2. While the lock is held, the killed processes keep their queue entries.
#[tokio::test(start_paused = true)]
async fn processes_without_connections_are_not_counted_and_skipped_at_once() {
    let world = World::engine();
    let (holder, guard, clients) = held(&world, 4).await;
    let waiters = queued(&world, &clients).await;
    let counted = async || lock(&holder).status().await.unwrap().waiting_processes;
    assert_eq!(counted().await, Some(4));
    let faults = world.as_engine().faults();
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
    world.as_engine().faults().freeze(Some("p0"));
    let released = Instant::now();
    guard.release().await.unwrap();
    let mut waiters = waiters.into_iter();
    waiters.nth(1).unwrap().await.unwrap();
    let took = released.elapsed();
    assert!((ms(1490)..ms(1600)).contains(&took), "{took:?}");
}

/// L3. Without that rule each silent process costs 1.5 s.
#[tokio::test(start_paused = true)]
async fn many_silent_processes_cost_little_more_than_one() {
    let world = World::engine();
    let (_holder, guard, clients) = held(&world, 60).await;
    let waiters = queued(&world, &clients).await;
    for silent in 0..40 {
        world
            .as_engine()
            .faults()
            .freeze(Some(&format!("p{silent}")));
    }
    let released = Instant::now();
    guard.release().await.unwrap();
    for living in waiters.into_iter().skip(40) {
        living.await.unwrap();
    }
    assert!(released.elapsed() < ms(2000), "{:?}", released.elapsed());
}

/// P8: a release may grant to a call that times out at that moment. The error reports that no hold is left only if that is true.
/// P9: the call does not wait long to find out.
#[tokio::test(start_paused = true)]
async fn a_timeout_reports_no_leftover_only_after_its_queue_entry_is_removed() {
    let world = World::engine();
    let faults = world.as_engine().faults();
    for answers in [true, false] {
        let (_holder, guard, clients) = held(&world, 1).await;
        faults.delay(Some("p0"), ms(5));
        let began = Instant::now();
        let waiting = tokio::spawn(lock(&clients[0]).acquire_timeout(ms(2_000)));
        eventually("it is queued", || world.admin(&["ZCARD", LINE]) == "1").await;
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
    world.as_engine().faults().kill_subscribers();
    let _ = world.admin(&["DEL", LINE]);
    eventually("all are back", || world.admin(&["ZCARD", LINE]) == "3").await;
    world.quiet().await;
    assert_eq!(order(), before);
    let released = Instant::now();
    guard.release().await.unwrap();
    for waiter in waiters {
        waiter.await.unwrap();
    }
    assert!(released.elapsed() < ms(50), "{:?}", released.elapsed());
    world.at_rest().await;
}

/// R8: at maxmemory a request cannot renew a queue entry, but the entry still exists.
#[tokio::test(start_paused = true)]
async fn a_grant_reaches_a_waiter_whose_queue_entry_could_not_be_renewed() {
    let world = World::engine();
    let (_holder, guard, clients) = held(&world, 1).await;
    let mut waiters = queued(&world, &clients).await;
    world.as_engine().faults().out_of_memory(Switch::On);
    let before = world.scripts_run();
    tokio::time::sleep(Duration::from_secs(6)).await;
    assert!(world.scripts_run() > before, "the waiter has polled");
    let released = Instant::now();
    guard.release().await.unwrap();
    waiters.remove(0).await.unwrap();
    assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
}

/// L6. A process that hands the lock from task to task never frees it. Other clients get a chance when its turn ends. `client/pollers` has the
/// queue of several processes.
#[tokio::test(start_paused = true)]
async fn hand_offs_do_not_starve_a_polling_client() {
    let world = World::engine();
    let config = world.config("polling").wake(Wake::Poll);
    let polling = lock(&Client::connect_with(config).await.unwrap());
    let client = world.client().await;
    let mut tasks = work(&[(); 4].map(|()| client.clone()), &Arc::default());
    tokio::time::sleep(Duration::from_secs(2)).await;
    let started = Instant::now();
    for _ in 0..5 {
        polling.acquire().await.unwrap().release().await.unwrap();
    }
    // The client polls about every 100 ms.
    let took = started.elapsed();
    assert!(took < Duration::from_secs(20), "{took:?}");
    tasks.shutdown().await;
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
    let first = lock(&clients[0]);
    let first = tokio::spawn(async move { first.acquire().await.unwrap() });
    eventually("it is queued", || world.admin(&["ZCARD", LINE]) == "1").await;
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
        eventually("it is queued", || {
            world.admin(&["ZCARD", LINE]) == (n + 2).to_string()
        })
        .await;
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
    eventually("the relay is subscribed", || {
        world.admin(&["HEXISTS", "stanchion_wake:{job}", "heard"]) == "1"
    })
    .await;
    let rest = queued_behind(&world, &clients[1..]).await;
    world.as_engine().faults().freeze(Some("p0"));
    // Longer than the relay may be silent, and longer than the poll interval of the others.
    tokio::time::sleep(Duration::from_secs(5)).await;
    redisson_releases(&world);
    let released = Instant::now();
    for waiter in rest {
        waiter.await.unwrap();
    }
    // The silent process is the head of the queue, so it gets the first grant.
    assert!(released.elapsed() < ms(1800), "{:?}", released.elapsed());
}

#[tokio::test(start_paused = true)]
async fn redissons_waiters_are_not_starved() {
    let world = World::engine();
    let clients = world.fleet(4).await;
    let tally = Arc::new(Tally::default());
    let mut tasks = work(&clients, &tally);
    let mut java = world.listen(BASE).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    let before = tally.grants.load(Ordering::Relaxed);
    let mut turns = 0;
    let ended = Instant::now() + Duration::from_secs(2);
    while Instant::now() < ended {
        let payload = java.next().await;
        if payload == "0" || payload == "00" {
            redisson_holds(&world);
            turns += 1;
            tokio::time::sleep(ms(3)).await;
            redisson_releases(&world);
            // Redisson does not compete for the lock that it has just released.
            while java.next().await != "0" {}
        }
    }
    let ours = tally.grants.load(Ordering::Relaxed) - before;
    tasks.shutdown().await;
    assert!(
        turns * 7 >= ours,
        "{turns} turns of Redisson's, {ours} of ours"
    );
    assert!(
        ours * 7 >= turns,
        "{turns} turns of Redisson's, {ours} of ours"
    );
}
