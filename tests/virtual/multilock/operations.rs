//! Tests of the multi-lock: futures dropped while members become free, resends that find a member taken, random faults, and a model.
//!
//! Long: one suite over one set-up.

use std::collections::BTreeMap;
use std::time::Duration;

use proptest::prelude::*;
use stanchion::{Client, Lease, Lock, Lockable, LostReason, MultiGuard, MultiLock};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::World;
use tokio::time::Instant;

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

fn multi(client: &Client, names: &[&str]) -> MultiLock {
    let locks: Vec<Lock> = names.iter().map(|name| lock(client, name)).collect();
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

/// The way in which the members are acquired.
#[derive(Clone, Copy, Debug)]
enum Way {
    Together,
    InOrder,
}

const WAYS: [Way; 2] = [Way::Together, Way::InOrder];

/// Three members of `ours`; in order, the middle one is of `theirs`.
fn three(way: Way, ours: &Client, theirs: &Client) -> MultiLock {
    let middle = match way {
        Way::Together => ours,
        Way::InOrder => theirs,
    };
    let locks = [lock(ours, "a"), lock(middle, "b"), lock(ours, "c")];
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

async fn clients(world: &World) -> (Client, Client) {
    let ours = world.named("ours").await;
    let theirs = world.named("theirs").await;
    // The server knows the scripts, so that each request is one round trip and one EVALSHA.
    for way in WAYS {
        let multi = three(way, &ours, &theirs);
        multi.acquire().await.unwrap().release().await.unwrap();
    }
    (ours, theirs)
}

/// Replies take 5 ms, so that requests are in flight when their futures are dropped.
async fn slow() -> (World, Client, Client) {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    let faults = world.as_engine().faults();
    faults.delay(None, Duration::from_millis(5));
    (world, ours, theirs)
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_leaves_nothing_and_passes_its_wake_on() {
    for way in WAYS {
        let (world, ours, theirs) = slow().await;
        let multi = three(way, &ours, &theirs);
        let polls = for_each_await_point(async |polls| {
            // Two members are held at first, and are released while the doomed waiter is at any point of its wait.
            let b = lock(&theirs, "b").acquire().await.unwrap();
            let c = lock(&theirs, "c").acquire().await.unwrap();
            let releasing = tokio::spawn(async move {
                tokio::time::sleep(Duration::from_millis(40)).await;
                b.release().await.unwrap();
                tokio::time::sleep(Duration::from_millis(40)).await;
                c.release().await.unwrap();
            });
            let doomed = tokio::spawn({
                let multi = multi.clone();
                async move { cancel_after(multi.acquire(), polls).await.is_some() }
            });
            tokio::task::yield_now().await;
            let started = Instant::now();
            let survivor = multi.acquire().await.unwrap();
            assert!(
                started.elapsed() < Duration::from_secs(1),
                "{way:?}: the survivor missed its wake-up after {polls} polls: {:?}",
                started.elapsed()
            );
            survivor.release().await.unwrap();
            releasing.await.unwrap();
            let covered = doomed.await.unwrap();
            world.at_rest().await;
            assert_eq!(ours.waiters() + theirs.waiters(), 0, "after {polls} polls");
            covered
        })
        .await;
        assert!(polls > 3);
    }
}

/// R12: the first run acquires all members, and its reply is lost. Another client has one member when the request is resent.
#[tokio::test(start_paused = true)]
async fn a_resent_acquire_that_finds_a_member_taken_keeps_nothing() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    world
        .as_engine()
        .faults()
        .lose_replies_silently("EVALSHA", 1);
    let multi = three(Way::Together, &ours, &theirs);
    let waiter = tokio::spawn(async move { multi.acquire().await.unwrap() });
    eventually("it has run", || world.keys() == ["a", "b", "c"]).await;
    assert!(lock(&theirs, "b").danger().force_release().await.unwrap());
    let taken = lock(&theirs, "b").acquire().await.unwrap();
    // Another task waits for a member that the first run still holds.
    let a = lock(&theirs, "a");
    let next = tokio::spawn(async move { a.acquire().await.unwrap() });
    let started = Instant::now();
    next.await.unwrap().release().await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(2),
        "the resend, after a second, releases the member and wakes its waiter: {:?}",
        started.elapsed()
    );
    world.quiet().await;
    assert_eq!(world.keys(), ["b", "stanchion_line:{b}"]);
    assert!(!waiter.is_finished());
    taken.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_is_lost_in_time_when_its_server_falls_silent() {
    for way in WAYS {
        let world = World::engine();
        let (ours, theirs) = clients(&world).await;
        let lease = Lease::new(Duration::from_secs(3)).unwrap();
        let multi = three(way, &ours, &theirs).lease(lease);
        let guard = multi.acquire().await.unwrap();
        tokio::time::sleep(Duration::from_secs(10)).await;
        assert!(guard.is_held(), "the watchdog renews every member");
        // In order, only one of the two clients falls silent. That is enough.
        world.as_engine().faults().freeze(Some("ours"));
        let left = guard.remaining();
        let started = Instant::now();
        assert_eq!(guard.lost().await, LostReason::Expired);
        assert!(started.elapsed() <= left, "{:?}", started.elapsed());
        assert!(!guard.is_held());
        world.as_engine().faults().thaw(None);
        drop(guard);
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_that_moves_to_another_queue_wakes_the_waiter_behind_it() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    // The first in the local queue of `a` is a multi-lock that finds `b` held and moves to its queue.
    let a = lock(&theirs, "a").acquire().await.unwrap();
    let b = lock(&theirs, "b").acquire().await.unwrap();
    let both = multi(&ours, &["a", "b"]);
    let first = tokio::spawn(async move { both.acquire().await.unwrap() });
    eventually("it waits", || ours.waiters() == 1).await;
    let single = lock(&ours, "a");
    let second = tokio::spawn(async move { single.acquire().await.unwrap() });
    eventually("both wait", || ours.waiters() == 2).await;
    world.quiet().await;
    let started = Instant::now();
    a.release().await.unwrap();
    let second = second.await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    b.release().await.unwrap();
    world.quiet().await;
    assert!(!first.is_finished());
    let started = Instant::now();
    second.release().await.unwrap();
    first.await.unwrap().release().await.unwrap();
    assert!(
        started.elapsed() < Duration::from_secs(1),
        "{:?}",
        started.elapsed()
    );
    world.at_rest().await;
}

/// Many tasks lock random members while the network fails. No name has two holders, every wait ends, and no key is left.
#[tokio::test(start_paused = true)]
async fn random_faults_cause_no_overlap_and_no_orphan() {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU64, Ordering};
    for seed in 0..8 {
        let world = World::engine();
        let (ours, theirs) = clients(&world).await;
        let mut rng = fastrand::Rng::with_seed(seed);
        let inside: Arc<[AtomicU64; 4]> = Arc::default();
        let names = ["a", "b", "c", "d"];
        let storm = tokio::spawn({
            let (faults, mut rng) = (world.as_engine().faults(), rng.fork());
            async move {
                for _ in 0..60 {
                    tokio::time::sleep(Duration::from_millis(rng.u64(1..80))).await;
                    match rng.u8(0..7) {
                        0 => faults.kill_connections(),
                        1 => faults.kill_subscribers(),
                        2 => faults.lose_replies("EVALSHA", 2),
                        3 => faults.lose_replies_silently("EVALSHA", 1),
                        4 => faults.lose_messages(2),
                        _ => faults.delay(None, Duration::from_millis(rng.u64(0..20))),
                    }
                }
                faults.clear();
            }
        });
        let tasks: Vec<_> = (0..16)
            .map(|task| {
                let mut rng = rng.fork();
                let clients = [ours.clone(), theirs.clone()];
                let inside = Arc::clone(&inside);
                tokio::spawn(async move {
                    for _ in 0..12 {
                        let mut picked: Vec<usize> = (0..names.len()).collect();
                        rng.shuffle(&mut picked);
                        picked.truncate(rng.usize(1..=3));
                        let client = |i: usize| match task % 3 {
                            0 => &clients[i % 2],
                            n => &clients[n - 1],
                        };
                        let locks: Vec<Lock> =
                            picked.iter().map(|i| lock(client(*i), names[*i])).collect();
                        let multi =
                            MultiLock::new(locks.iter().map(|l| l as &dyn Lockable)).unwrap();
                        let patience = Duration::from_millis(rng.u64(0..3_000));
                        let work = async {
                            let Ok(guard) = multi.acquire().await else {
                                return;
                            };
                            for i in &picked {
                                assert_eq!(inside[*i].fetch_add(1, Ordering::SeqCst), 0, "{i}");
                            }
                            let left = Inside(&inside, &picked);
                            let pause = Duration::from_millis(rng.u64(0..10));
                            let _ = guard.run(tokio::time::sleep(pause)).await;
                            drop(left);
                        };
                        // Some futures are dropped before they end.
                        let _ = tokio::time::timeout(patience, work).await;
                    }
                })
            })
            .collect();
        for task in tasks {
            tokio::time::timeout(Duration::from_secs(300), task)
                .await
                .unwrap_or_else(|_| panic!("seed {seed}: a task does not end"))
                .unwrap();
        }
        storm.await.unwrap();
        world.at_rest().await;
        assert_eq!(ours.waiters() + theirs.waiters(), 0, "seed {seed}");
    }
}

/// Removes its task from the names when the work ends or is dropped.
struct Inside<'a>(&'a [std::sync::atomic::AtomicU64; 4], &'a [usize]);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        for i in self.1 {
            self.0[*i].fetch_sub(1, std::sync::atomic::Ordering::SeqCst);
        }
    }
}

#[derive(Clone, Debug)]
enum Step {
    /// Try the members in this bit set, all of one client, or of the two clients in turns.
    Try(u8, Option<bool>),
    /// Release or drop the n-th guard.
    Release(usize, bool),
    /// Release a name by force.
    Force(usize),
    LoseAReply,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => (1_u8..32, any::<Option<bool>>()).prop_map(|(set, client)| Step::Try(set, client)),
        6 => (0_usize..6, any::<bool>()).prop_map(|(n, drops)| Step::Release(n, drops)),
        1 => (0_usize..5).prop_map(Step::Force),
        2 => Just(Step::LoseAReply),
    ]
}

const NAMES: [&str; 5] = ["a", "b", "c", "d", "e"];

async fn run(steps: Vec<Step>) {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    // The guard that holds each name.
    let mut model: BTreeMap<&str, usize> = BTreeMap::new();
    let mut guards: Vec<(usize, MultiGuard)> = Vec::new();
    for (n, step) in steps.into_iter().enumerate() {
        match step {
            Step::Try(set, client) => {
                let picked: Vec<&str> = (0..5)
                    .filter(|i| set >> i & 1 == 1)
                    .map(|i| NAMES[i])
                    .rev()
                    .collect();
                let of = |i: usize| match client {
                    Some(first) => first,
                    None => i.is_multiple_of(2),
                };
                let locks: Vec<Lock> = picked
                    .iter()
                    .enumerate()
                    .map(|(i, name)| lock(if of(i) { &ours } else { &theirs }, name))
                    .collect();
                let multi = MultiLock::new(locks.iter().map(|l| l as &dyn Lockable)).unwrap();
                let guard = multi.try_acquire().await.unwrap();
                let free = picked.iter().all(|name| !model.contains_key(name));
                assert_eq!(guard.is_some(), free, "step {n}");
                if let Some(guard) = guard {
                    model.extend(picked.iter().map(|name| (*name, n)));
                    guards.push((n, guard));
                }
            }
            Step::Release(i, drops) if i < guards.len() => {
                let (id, guard) = guards.remove(i);
                // The guard may have lost members by force without knowing it yet. Then its release fails.
                let whole =
                    model.values().filter(|holder| **holder == id).count() == guard.names().len();
                model.retain(|_, holder| *holder != id);
                if drops {
                    drop(guard);
                } else {
                    assert_eq!(guard.release().await.is_ok(), whole, "step {n}");
                }
            }
            Step::Release(..) => {}
            Step::Force(i) => {
                let forced = lock(&ours, NAMES[i]).danger().force_release().await;
                assert_eq!(forced.unwrap(), model.remove(NAMES[i]).is_some());
            }
            Step::LoseAReply => {
                // The client does not resend a forced release, so the lost reply must not be that of one. The spare lock uses the fault up.
                world.as_engine().faults().lose_replies("EVALSHA", 1);
                let spare = multi(&ours, &["x", "y"]);
                spare.acquire().await.unwrap().release().await.unwrap();
            }
        }
        let held: Vec<&str> = model.keys().copied().collect();
        eventually("the server agrees with the model", || world.keys() == held).await;
    }
    drop(guards);
    // The members that were released by force are free already. The drop releases all others.
    world.at_rest().await;
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    #[test]
    fn a_multi_lock_agrees_with_its_model(steps in prop::collection::vec(step(), 1..40)) {
        tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .start_paused(true)
            .build()
            .unwrap()
            .block_on(run(steps));
    }
}
