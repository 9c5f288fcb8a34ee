//! Tests scripts that free something and find more dead processes than they check in one run: the client runs `tend` for the rest.
//!
//! Each scenario puts a thousand dead processes in front of a living one, and measures how long the lock or permit stays idle.

use std::time::Duration;

use stanchion::{Client, Lock, Lockable, MultiLock, RwLock};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{KINDS, Kind};
use stanchion_tests::{World, ms, secs};
use tokio::task::JoinHandle;
use tokio::time::Instant;

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

/// Adds dead processes to a queue or wait set, as processes that arrived at `score`. `mark` says what they want.
fn add_dead(world: &World, key: &str, score: f64, mark: &str) {
    for n in 0..DEAD {
        let entry = format!("00000000-0000-8000-8000-{n:012}:1{mark}");
        let _ = world.admin(&["ZADD", key, &format!("{score:.0}"), &entry]);
    }
}

/// Spawns a waiter that returns the time of its grant. Returns when the waiter is queued in `key`, which then has `count` entries.
async fn queued(
    world: &World,
    key: &str,
    count: usize,
    acquires: impl Future<Output = Instant> + Send + 'static,
) -> JoinHandle<Instant> {
    let waiter = tokio::spawn(acquires);
    world.until(&["ZCARD", key], count).await;
    // Lets the poll pass that was scheduled before the subscription.
    tokio::time::sleep(ms(1000)).await;
    world.quiet().await;
    waiter
}

/// Queues a waiter behind dead processes with `mark`, and asserts that it is served soon after `frees`.
async fn skips_the_dead(
    world: &World,
    (line, mark): (&str, &str),
    waits: impl Future<Output = Instant> + Send + 'static,
    frees: impl Future<Output = ()>,
) {
    let waiter = queued(world, line, 1, waits).await;
    add_dead(world, line, 1.0, mark);
    let began = Instant::now();
    frees.await;
    let took = waiter.await.unwrap() - began;
    assert!(took < BOUND, "{line} {mark}: {took:?}");
}

async fn two() -> (World, Client, Client) {
    let (world, [a, b]) = World::engine().with_named(["a", "b"]).await;
    (world, a, b)
}

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

fn rwlock(client: &Client) -> RwLock {
    RwLock::new(client, "job").unwrap()
}

fn joined(client: &Client) -> MultiLock {
    MultiLock::new([&lock(client, "job") as &dyn Lockable, &lock(client, "tob")]).unwrap()
}

/// A waiter for the lock `name`.
fn locks(client: &Client, name: &str) -> impl Future<Output = Instant> + Send + 'static {
    let lock = lock(client, name);
    async move {
        let guard = lock.acquire().await.unwrap();
        let at = Instant::now();
        guard.release().await.unwrap();
        at
    }
}

/// The dead are subscribers that are gone, and clients that poll and have not asked for a second.
#[tokio::test(start_paused = true)]
async fn a_release_of_a_lock_skips_all_dead_processes() {
    for mark in ["", "?"] {
        let (world, a, b) = two().await;
        let guard = lock(&a, "job").acquire().await.unwrap();
        let frees = async { guard.release().await.unwrap() };
        skips_the_dead(&world, (LINE, mark), locks(&b, "job"), frees).await;
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_skips_all_dead_processes() {
    let (world, a, b) = two().await;
    let lock = lock(&a, "job");
    let _guard = lock.acquire().await.unwrap();
    let frees = async { assert!(lock.danger().force_release().await.unwrap()) };
    skips_the_dead(&world, (LINE, ""), locks(&b, "job"), frees).await;
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_multi_lock_skips_all_dead_processes() {
    let (world, a, b) = two().await;
    let guard = joined(&a).acquire().await.unwrap();
    let frees = async { guard.release().await.unwrap() };
    skips_the_dead(&world, (LINE, ""), locks(&b, "job"), frees).await;
}

/// The key of one lock was deleted, so the hand-off fails and frees the other lock.
#[tokio::test(start_paused = true)]
async fn a_failed_hand_off_of_a_multi_lock_skips_all_dead_processes() {
    let (world, a, b) = two().await;
    let both = joined(&a);
    let guard = both.acquire().await.unwrap();
    let acquire = both.acquire();
    let local = tokio::spawn(async move { acquire.await.unwrap().release().await.unwrap() });
    eventually("the next task waits", || a.waiters() == 1).await;
    let frees = async {
        let _ = world.admin(&["DEL", "job"]);
        guard.release().await.unwrap_err();
    };
    let line = "stanchion_line:{tob}";
    skips_the_dead(&world, (line, ""), locks(&b, "tob"), frees).await;
    let local = tokio::time::timeout(secs(20), local).await;
    assert!(local.is_ok(), "the next task of the process still waits");
}

#[tokio::test(start_paused = true)]
async fn a_forced_release_of_a_read_write_lock_skips_all_dead_processes() {
    for writes in [true, false] {
        for mark in ["", "r"] {
            let (world, a, b) = two().await;
            let lock = rwlock(&a);
            let _guard = lock.write().await.unwrap();
            let frees = async { assert!(lock.danger().force_release().await.unwrap()) };
            skips_the_dead(&world, (RW_LINE, mark), reads_or_writes(&b, writes), frees).await;
        }
    }
}

fn reads_or_writes(client: &Client, writes: bool) -> impl Future<Output = Instant> + use<> {
    let lock = rwlock(client);
    async move {
        if writes {
            drop(lock.write().await.unwrap());
        } else {
            drop(lock.read().await.unwrap());
        }
        Instant::now()
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_skips_all_dead_processes() {
    for mark in ["", "r", "R"] {
        let (world, a, b) = two().await;
        let guard = rwlock(&a).write().await.unwrap();
        let mut reading = None;
        let frees = async { reading = Some(guard.downgrade().await.unwrap()) };
        skips_the_dead(&world, (RW_LINE, mark), reads_or_writes(&b, false), frees).await;
    }
}

fn takes_a_permit(kind: Kind, client: Client) -> impl Future<Output = Instant> + Send {
    let seats = kind.on(&client);
    async move {
        let permit = seats.acquire(1).await.unwrap();
        let at = Instant::now();
        permit.release().await.unwrap();
        drop(client);
        at
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_permit_and_an_added_one_skip_all_dead_processes() {
    for kind in KINDS {
        for adds in [false, true] {
            let (world, a, b) = two().await;
            kind.on(&a).init(1).await.unwrap();
            let mut held = Some(kind.on(&a).acquire(1).await.unwrap());
            let frees = async {
                match adds {
                    true => drop(kind.on(&a).add(1).await.unwrap()),
                    false => held.take().unwrap().release().await.unwrap(),
                }
            };
            skips_the_dead(&world, (kind.line(), "=1"), takes_a_permit(kind, b), frees).await;
        }
    }
}

/// After eight hand-offs inside a process, the lock goes to the queue.
#[tokio::test(start_paused = true)]
async fn a_hand_off_at_the_end_of_a_turn_skips_all_dead_processes() {
    let (world, a, b) = two().await;
    let guard = lock(&a, "job").acquire().await.unwrap();
    let mut waiters: Vec<_> = (0..20).map(|_| tokio::spawn(locks(&a, "job"))).collect();
    eventually("all tasks wait", || a.waiters() == 20).await;
    waiters.push(queued(&world, LINE, 2, locks(&b, "job")).await);
    add_dead(&world, LINE, 1.0, "");
    let mut last = Instant::now();
    guard.release().await.unwrap();
    let mut grants = stanchion_tests::together(waiters).await;
    grants.sort_unstable();
    for grant in grants {
        assert!(grant - last < BOUND, "idle for {:?}", grant - last);
        last = grant;
    }
}

/// A multi-lock is woken for one lock, finds the other held, and leaves the first to the queue.
#[tokio::test(start_paused = true)]
async fn a_refused_request_of_a_multi_lock_skips_all_dead_processes() {
    let (world, a, b) = two().await;
    let c = world.named("c").await;
    let guard = lock(&a, "job").acquire().await.unwrap();
    let _other = lock(&a, "tob").acquire().await.unwrap();
    let both = joined(&c);
    let both = async move {
        drop(both.acquire().await);
        Instant::now()
    };
    let both = queued(&world, LINE, 1, both).await;
    let arrived = arrival(&world, LINE);
    let waiter = queued(&world, LINE, 2, locks(&b, "job")).await;
    add_dead(&world, LINE, arrived + 1.0, "");
    let began = Instant::now();
    guard.release().await.unwrap();
    let took = waiter.await.unwrap() - began;
    assert!(took < BOUND, "{took:?}");
    both.abort();
}

/// A process that was granted a plain permit is frozen: after half a second, the next living process gets it.
#[tokio::test(start_paused = true)]
async fn the_wake_up_behind_a_frozen_process_skips_all_dead_processes() {
    let (world, a, b) = two().await;
    let kind = Kind::Plain;
    kind.on(&a).init(1).await.unwrap();
    let held = kind.on(&a).acquire(1).await.unwrap();
    let silent = queued(&world, kind.line(), 1, takes_a_permit(kind, b)).await;
    let first = arrival(&world, kind.line());
    let living = takes_a_permit(kind, world.named("c").await);
    let living = queued(&world, kind.line(), 2, living).await;
    add_dead(&world, kind.line(), first + 1.0, "=1");
    world.faults().freeze(Some("b"));
    let began = Instant::now();
    held.release().await.unwrap();
    let took = living.await.unwrap() - began;
    assert!(took < ms(700), "{took:?}");
    silent.abort();
}
