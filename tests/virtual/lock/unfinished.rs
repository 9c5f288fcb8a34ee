//! Tests scripts that free something and find more dead processes than they check in one run: the client runs `tend` for the rest.
//!
//! Each scenario puts a thousand dead processes in front of a living one, and measures how long the lock or permit stays idle.

use std::time::Duration;

use stanchion::{Client, Lock, Lockable, MultiLock, RwLock};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use stanchion_tests::permits::{KINDS, Kind};
use tokio::task::JoinHandle;
use tokio::time::Instant;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

const DEAD: usize = 1000;
/// The limit for the idle time.
const BOUND: Duration = ms(250);
const LINE: &str = "stanchion_line:{job}";
const RW_LINE: &str = "stanchion_rwlock_line:{job}";

/// The arrival score of the first process in a queue or wait set.
fn arrival(world: &World, key: &str) -> f64 {
    let script = "return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2]";
    world.admin(&["EVAL", script, "1", key]).parse().unwrap()
}

/// Adds dead processes to a queue or wait set, as processes that arrived at `score`.
fn add_dead(world: &World, key: &str, score: f64, member: impl Fn(usize) -> String) {
    for n in 0..DEAD {
        let _ = world.admin(&["ZADD", key, &format!("{score:.0}"), &member(n)]);
    }
}

fn entry(n: usize) -> String {
    format!("00000000-0000-8000-8000-{n:012}:1")
}

fn permit(n: usize) -> String {
    entry(n) + "=1"
}

/// Spawns a waiter that returns the time of its grant. Returns when the waiter is queued in `key`, which then has `count` entries.
async fn queued<F>(world: &World, key: &str, count: usize, acquires: F) -> JoinHandle<Instant>
where
    F: Future<Output = Instant> + Send + 'static,
{
    let waiter = tokio::spawn(acquires);
    eventually("the waiter is queued", || {
        world.admin(&["ZCARD", key]) == count.to_string()
    })
    .await;
    // Lets the poll pass that was scheduled before the subscription.
    tokio::time::sleep(ms(1000)).await;
    world.quiet().await;
    waiter
}

/// A waiter for the lock `name`.
fn locks(client: &Client, name: &str) -> impl Future<Output = Instant> + Send + 'static {
    let lock = Lock::new(client, name).unwrap();
    async move {
        let guard = lock.acquire().await.unwrap();
        let at = Instant::now();
        guard.release().await.unwrap();
        at
    }
}

async fn in_time(what: &str, began: Instant, waiter: JoinHandle<Instant>) {
    let took = waiter.await.unwrap() - began;
    assert!(took < BOUND, "{what}: {took:?}");
}

fn joined(client: &Client) -> MultiLock {
    let (x, y) = (
        Lock::new(client, "job").unwrap(),
        Lock::new(client, "tob").unwrap(),
    );
    MultiLock::new([&x as &dyn Lockable, &y]).unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_lock_skips_all_dead_processes() {
    let world = World::engine();
    let (a, b) = (world.named("a").await, world.named("b").await);
    let guard = Lock::new(&a, "job").unwrap().acquire().await.unwrap();
    let waiter = queued(&world, LINE, 1, locks(&b, "job")).await;
    add_dead(&world, LINE, 1.0, entry);
    let began = Instant::now();
    guard.release().await.unwrap();
    in_time("release", began, waiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_skips_all_dead_processes() {
    let world = World::engine();
    let (a, b) = (world.named("a").await, world.named("b").await);
    let lock = Lock::new(&a, "job").unwrap();
    let _guard = lock.acquire().await.unwrap();
    let waiter = queued(&world, LINE, 1, locks(&b, "job")).await;
    add_dead(&world, LINE, 1.0, entry);
    let began = Instant::now();
    assert!(lock.danger().force_release().await.unwrap());
    in_time("forced release", began, waiter).await;
}

/// After eight hand-offs inside a process, the lock goes to the queue.
#[tokio::test(start_paused = true)]
async fn a_hand_off_at_the_end_of_a_turn_skips_all_dead_processes() {
    let world = World::engine();
    let (a, b) = (world.named("a").await, world.named("b").await);
    let guard = Lock::new(&a, "job").unwrap().acquire().await.unwrap();
    let mut waiters: Vec<_> = (0..20).map(|_| tokio::spawn(locks(&a, "job"))).collect();
    eventually("all tasks wait", || a.waiters() == 20).await;
    waiters.push(queued(&world, LINE, 2, locks(&b, "job")).await);
    add_dead(&world, LINE, 1.0, entry);
    let mut last = Instant::now();
    guard.release().await.unwrap();
    let mut grants = Vec::new();
    for waiter in waiters {
        grants.push(waiter.await.unwrap());
    }
    grants.sort_unstable();
    for grant in grants {
        assert!(grant - last < BOUND, "idle for {:?}", grant - last);
        last = grant;
    }
}

/// A client that polls is dead when it has not asked for a second.
#[tokio::test(start_paused = true)]
async fn a_release_skips_all_dead_clients_that_polled() {
    let world = World::engine();
    let (a, b) = (world.named("a").await, world.named("b").await);
    let guard = Lock::new(&a, "job").unwrap().acquire().await.unwrap();
    let waiter = queued(&world, LINE, 1, locks(&b, "job")).await;
    add_dead(&world, LINE, 1.0, |n| entry(n) + "?");
    let began = Instant::now();
    guard.release().await.unwrap();
    in_time("release", began, waiter).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_multi_lock_skips_all_dead_processes() {
    let world = World::engine();
    let (a, b) = (world.named("a").await, world.named("b").await);
    let guard = joined(&a).acquire().await.unwrap();
    let waiter = queued(&world, LINE, 1, locks(&b, "job")).await;
    add_dead(&world, LINE, 1.0, entry);
    let began = Instant::now();
    guard.release().await.unwrap();
    in_time("release of a multi-lock", began, waiter).await;
}

/// The key of one lock was deleted, so the hand-off fails and frees the other lock.
#[tokio::test(start_paused = true)]
async fn a_failed_hand_off_of_a_multi_lock_skips_all_dead_processes() {
    let world = World::engine();
    let (a, b) = (world.named("a").await, world.named("b").await);
    let both = joined(&a);
    let guard = both.acquire().await.unwrap();
    let local = tokio::spawn({
        let both = both.clone();
        async move { both.acquire().await.unwrap().release().await }
    });
    eventually("the next task waits", || a.waiters() == 1).await;
    let waiter = queued(&world, "stanchion_line:{tob}", 1, locks(&b, "tob")).await;
    add_dead(&world, "stanchion_line:{tob}", 1.0, entry);
    let _ = world.admin(&["DEL", "job"]);
    let began = Instant::now();
    guard.release().await.unwrap_err();
    in_time("failed hand-off", began, waiter).await;
    let local = tokio::time::timeout(Duration::from_secs(20), local).await;
    assert!(local.is_ok(), "the next task of the process still waits");
}

/// A multi-lock is woken for one lock, finds the other held, and leaves the first to the queue.
#[tokio::test(start_paused = true)]
async fn a_refused_request_of_a_multi_lock_skips_all_dead_processes() {
    let world = World::engine();
    let (a, b, c) = (
        world.named("a").await,
        world.named("b").await,
        world.named("c").await,
    );
    let guard = Lock::new(&a, "job").unwrap().acquire().await.unwrap();
    let _other = Lock::new(&a, "tob").unwrap().acquire().await.unwrap();
    let both = joined(&c);
    let joint = tokio::spawn(async move { both.acquire().await.map(drop) });
    eventually("the waiter is queued", || {
        world.admin(&["ZCARD", LINE]) == "1"
    })
    .await;
    let arrived = arrival(&world, LINE);
    tokio::time::sleep(ms(1)).await;
    let waiter = queued(&world, LINE, 2, locks(&b, "job")).await;
    add_dead(&world, LINE, arrived + 1.0, entry);
    let began = Instant::now();
    guard.release().await.unwrap();
    in_time("refused request", began, waiter).await;
    joint.abort();
}

async fn rw_waiter(world: &World, client: &Client, writes: bool) -> JoinHandle<Instant> {
    let lock = RwLock::new(client, "job").unwrap();
    let acquires = async move {
        if writes {
            drop(lock.write().await.unwrap());
        } else {
            drop(lock.read().await.unwrap());
        }
        Instant::now()
    };
    queued(world, RW_LINE, 1, acquires).await
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_of_a_read_write_lock_skips_all_dead_processes() {
    for writes in [true, false] {
        for side in ["", "r"] {
            let world = World::engine();
            let (a, b) = (world.named("a").await, world.named("b").await);
            let lock = RwLock::new(&a, "job").unwrap();
            let _guard = lock.write().await.unwrap();
            let waiter = rw_waiter(&world, &b, writes).await;
            add_dead(&world, RW_LINE, 1.0, |n| entry(n) + side);
            let began = Instant::now();
            assert!(lock.danger().force_release().await.unwrap());
            in_time(&format!("forced: {writes}, {side:?}"), began, waiter).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_skips_all_dead_processes() {
    for side in ["", "r", "R"] {
        let world = World::engine();
        let (a, b) = (world.named("a").await, world.named("b").await);
        let guard = RwLock::new(&a, "job").unwrap().write().await.unwrap();
        let waiter = rw_waiter(&world, &b, false).await;
        add_dead(&world, RW_LINE, 1.0, |n| entry(n) + side);
        let began = Instant::now();
        let _reading = guard.downgrade().await.unwrap();
        in_time(&format!("downgrade: {side:?}"), began, waiter).await;
    }
}

/// One process holds the only permit, and a living process waits behind dead ones.
async fn permits(
    world: &World,
    kind: Kind,
) -> (Client, stanchion_tests::permits::Seat, JoinHandle<Instant>) {
    let (a, b) = (world.named("a").await, world.named("b").await);
    kind.on(&a).init(1).await.unwrap();
    let held = kind.on(&a).acquire(1).await.unwrap();
    let seats = kind.on(&b);
    let acquires = async move {
        let permit = seats.acquire(1).await.unwrap();
        let at = Instant::now();
        permit.release().await.unwrap();
        at
    };
    let waiter = queued(world, kind.line(), 1, acquires).await;
    add_dead(world, kind.line(), 1.0, permit);
    (a, held, waiter)
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_permit_skips_all_dead_processes() {
    for kind in KINDS {
        let world = World::engine();
        let (_a, held, waiter) = permits(&world, kind).await;
        let began = Instant::now();
        held.release().await.unwrap();
        in_time(&format!("{kind:?}"), began, waiter).await;
    }
}

#[tokio::test(start_paused = true)]
async fn added_permits_skip_all_dead_processes() {
    for kind in KINDS {
        let world = World::engine();
        let (a, _held, waiter) = permits(&world, kind).await;
        let began = Instant::now();
        kind.on(&a).add(1).await.unwrap();
        in_time(&format!("{kind:?}"), began, waiter).await;
    }
}

/// A process that was granted a plain permit is frozen: after half a second, the next living process gets it.
#[tokio::test(start_paused = true)]
async fn the_wake_up_behind_a_frozen_process_skips_all_dead_processes() {
    let world = World::engine();
    let (a, b, c) = (
        world.named("a").await,
        world.named("b").await,
        world.named("c").await,
    );
    let kind = Kind::Plain;
    kind.on(&a).init(1).await.unwrap();
    let held = kind.on(&a).acquire(1).await.unwrap();
    let [silent, living] = [b, c].map(|client| {
        let seats = kind.on(&client);
        async move {
            let permit = seats.acquire(1).await.unwrap();
            let at = Instant::now();
            permit.release().await.unwrap();
            drop(client);
            at
        }
    });
    let silent = queued(&world, kind.line(), 1, silent).await;
    let first = arrival(&world, kind.line());
    tokio::time::sleep(ms(1)).await;
    let living = queued(&world, kind.line(), 2, living).await;
    add_dead(&world, kind.line(), first + 1.0, permit);
    world.as_engine().faults().freeze(Some("b"));
    let began = Instant::now();
    held.release().await.unwrap();
    let took = living.await.unwrap() - began;
    assert!(took < ms(700), "{took:?}");
    silent.abort();
}
