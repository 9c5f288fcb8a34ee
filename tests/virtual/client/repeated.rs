//! Tests with messages that arrive twice, as they do when a client is subscribed on two nodes during a failover.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stanchion::{Client, CountDownLatch, CyclicBarrier, DoubleBarrier, Election, RwLock};
use stanchion_testkit::eventually;
use stanchion_tests::kinds::{Case, kinds};
use stanchion_tests::permits::Kind;
use stanchion_tests::{World, ms, spawn_ok};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

/// The second copy of a grant arrives while the first grant is still held, while it is handed on inside the process, or later.
const DELAYS: [u64; 5] = [0, 1, 2, 7, 150];

const PROCESSES: usize = 3;

/// The length of a run in virtual time.
const RUN: Duration = ms(150);

fn repeating(delay: u64) -> World {
    let world = World::engine();
    world.faults().repeat_messages(Some(ms(delay)));
    world
}

/// Holders at one time.
#[derive(Debug, Default)]
struct Inside {
    now: AtomicUsize,
    grants: AtomicUsize,
}

impl Inside {
    /// Holds for `time`, with at most `capacity` holders at one time.
    async fn hold(&self, capacity: usize, time: Duration, what: &str) {
        let inside = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(inside <= capacity, "{what}: {inside} hold at once");
        self.grants.fetch_add(1, Ordering::SeqCst);
        sleep(time).await;
        self.now.fetch_sub(1, Ordering::SeqCst);
    }
}

async fn joined(mut tasks: JoinSet<()>) {
    while let Some(task) = tasks.join_next().await {
        task.unwrap();
    }
}

/// P1, P3. Tasks of each process acquire in turns. The read sides have a test of their own.
#[tokio::test(start_paused = true)]
async fn a_second_copy_of_a_message_lets_no_second_owner_hold() {
    for kind in kinds().into_iter().filter(|kind| !kind.0.contains("read")) {
        for (delay, tasks) in DELAYS.map(|delay| [(delay, 1), (delay, 2)]).concat() {
            let world = repeating(delay);
            let clients = world.fleet(PROCESSES).await;
            let first = [clients[0].clone(), clients[1].clone()];
            let case = Case::of(kind, world, first).await;
            let what = format!("{}, {tasks} tasks, copies after {delay} ms", case.label);
            let is_one_permit = ["plain permit", "leased permit"].contains(&case.label);
            let capacity = if is_one_permit { 2 } else { 1 };
            let inside = Arc::new(Inside::default());
            let mut all = JoinSet::new();
            let end = Instant::now() + RUN;
            for (n, client) in clients.iter().enumerate() {
                for task in 0..tasks {
                    let wanted = (kind.1)(client, client);
                    let (inside, what) = (Arc::clone(&inside), what.clone());
                    let time = ms(1 + ((n + task) % 3) as u64);
                    all.spawn(async move {
                        while Instant::now() < end {
                            let held = wanted.acquire().await.unwrap();
                            assert!(held.is_held(), "{what}");
                            inside.hold(capacity, time, &what).await;
                            held.release().await.unwrap();
                        }
                    });
                }
            }
            joined(all).await;
            let grants = inside.grants.load(Ordering::SeqCst);
            assert!(grants > 15, "{what}: {grants} grants");
            case.soon_at_rest().await;
        }
    }
}

/// P1: the second copy arrives when no call waits any more. Returning its permit would free the permit of the first copy.
#[tokio::test(start_paused = true)]
async fn a_second_copy_without_a_waiter_frees_nothing() {
    // After 20 s the client has forgotten the first copy.
    for delay in [0, 2, 500, 1600, 9000, 20_000] {
        let world = repeating(delay);
        let [holder, waiter] = [world.named("holder").await, world.named("waiter").await];
        let seats = Kind::Leased.on(&holder);
        seats.init(1).await.unwrap();
        let held = seats.acquire(1).await.unwrap();
        let waiting = spawn_ok(Kind::Leased.on(&waiter).acquire(1));
        eventually("it waits", || waiter.waiters() == 1).await;
        world.quiet().await;
        held.release().await.unwrap();
        let granted = waiting.await.unwrap();
        sleep(ms(delay) + ms(1000)).await;
        assert!(granted.is_held(), "{delay}");
        assert_eq!(Kind::Leased.held(&world), 1, "{delay}");
        granted.release().await.unwrap();
        Kind::Leased.at_rest(&world, 1).await;
    }
}

/// Readers hold together, writers alone.
#[tokio::test(start_paused = true)]
async fn a_second_copy_of_a_message_lets_no_reader_in_next_to_a_writer() {
    for delay in DELAYS {
        let world = repeating(delay);
        let (readers, writers) = (Arc::new(Inside::default()), Arc::new(Inside::default()));
        let mut all = JoinSet::new();
        let end = Instant::now() + RUN;
        for (n, client) in world.fleet(PROCESSES).await.iter().enumerate() {
            for task in 0..3 {
                let lock = RwLock::new(client, "job").unwrap();
                let (readers, writers) = (Arc::clone(&readers), Arc::clone(&writers));
                all.spawn(async move {
                    while Instant::now() < end {
                        if task == n {
                            let guard = lock.write().await.unwrap();
                            assert_eq!(readers.now.load(Ordering::SeqCst), 0, "{delay}");
                            writers.hold(1, ms(1), "writers").await;
                            guard.release().await.unwrap();
                        } else {
                            let guard = lock.read().await.unwrap();
                            assert_eq!(writers.now.load(Ordering::SeqCst), 0, "{delay}");
                            readers.hold(usize::MAX, ms(2), "readers").await;
                            guard.release().await.unwrap();
                        }
                        sleep(ms(1)).await;
                    }
                });
            }
        }
        joined(all).await;
        for inside in [readers, writers] {
            assert!(inside.grants.load(Ordering::SeqCst) > 10, "{delay}");
        }
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_copy_of_a_final_event_ends_no_later_round() {
    for delay in DELAYS {
        let world = repeating(delay);
        let arrived = Arc::new(AtomicUsize::new(0));
        let inside = Arc::new(Inside::default());
        let mut all = JoinSet::new();
        for (n, client) in world.fleet(PROCESSES).await.iter().enumerate() {
            let parties = u32::try_from(PROCESSES).unwrap();
            let cyclic = CyclicBarrier::new(client, "round", parties).unwrap();
            let double = DoubleBarrier::new(client, "phase", parties).unwrap();
            let (arrived, inside) = (Arc::clone(&arrived), Arc::clone(&inside));
            all.spawn(async move {
                for round in 1..=15 {
                    // At different times, so that copies reach clients that wait already.
                    sleep(ms((n as u64 * 3 + round) % 7)).await;
                    arrived.fetch_add(1, Ordering::SeqCst);
                    cyclic.wait().await.unwrap();
                    let seen = arrived.load(Ordering::SeqCst);
                    let round = usize::try_from(round).unwrap();
                    assert!(
                        seen >= round * PROCESSES,
                        "{delay}: {seen} in round {round}"
                    );
                    let place = double.enter().await.unwrap();
                    inside.hold(PROCESSES, ms(n as u64), "double").await;
                    place.leave().await.unwrap();
                    let passed = inside.grants.load(Ordering::SeqCst);
                    assert!(passed >= round * PROCESSES, "{delay}: {passed}");
                }
            });
        }
        joined(all).await;
    }
}

/// Latches and elections only use messages as hints.
#[tokio::test(start_paused = true)]
async fn a_second_copy_of_a_hint_changes_nothing() {
    for delay in DELAYS {
        let world = repeating(delay);
        let clients = world.fleet(PROCESSES).await;
        let leading = Arc::new(Inside::default());
        let mut all = JoinSet::new();
        for (n, client) in clients.iter().enumerate() {
            let election = Election::new(client, "office").unwrap();
            let leading = Arc::clone(&leading);
            all.spawn(async move {
                for term in 0..8 {
                    let won = election.campaign(format!("{n}")).await.unwrap();
                    leading.hold(1, ms(1 + term % 3), "leaders").await;
                    won.step_down().await.unwrap();
                    sleep(ms(1)).await;
                }
            });
        }
        joined(all).await;
        let latch = |client: &Client| CountDownLatch::new(client, "gate").unwrap();
        latch(&clients[0]).arm(2).await.unwrap();
        let gate = latch(&clients[1]);
        let waiting = tokio::spawn(async move { gate.wait().await });
        eventually("it waits", || clients[1].waiters() == 1).await;
        latch(&clients[0]).count_down().await.unwrap();
        sleep(ms(delay + 100)).await;
        assert!(!waiting.is_finished(), "{delay}");
        latch(&clients[2]).count_down().await.unwrap();
        waiting.await.unwrap().unwrap();
    }
}
