//! Tests P4 for waiting processes whose queue vanishes on the server while their connections live, as after FLUSHALL, DEL or an eviction.

use std::time::Duration;

use stanchion::{Client, FairLock, LeasedSemaphore, Lock, Lockable, MultiLock, RwLock, Semaphore};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Lock,
    Fair,
    Writers,
    Readers,
    Plain,
    Leased,
    Multi,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// All data, so that the name is free.
    All,
    /// The keys of the queue, while another process holds.
    Queue,
}

/// Acquires, holds for `hold`, and releases. Returns the moment of the grant.
async fn turn(kind: Kind, client: &Client, hold: Duration) -> Instant {
    macro_rules! held {
        ($acquire:expr) => {{
            let guard = $acquire.await.unwrap();
            let granted = Instant::now();
            sleep(hold).await;
            // The server may have lost the hold.
            let _ = guard.release().await;
            granted
        }};
    }
    match kind {
        Kind::Lock => held!(Lock::new(client, "job").unwrap().acquire()),
        Kind::Fair => held!(FairLock::new(client, "job").unwrap().acquire()),
        Kind::Writers => held!(RwLock::new(client, "job").unwrap().write()),
        Kind::Readers => held!(RwLock::new(client, "job").unwrap().read()),
        Kind::Plain => held!(Semaphore::new(client, "job").unwrap().acquire()),
        Kind::Leased => held!(LeasedSemaphore::new(client, "job").unwrap().acquire()),
        Kind::Multi => {
            let locks = ["job", "task"].map(|name| Lock::new(client, name).unwrap());
            let all = MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap();
            held!(all.acquire())
        }
    }
}

async fn init(kind: Kind, client: &Client) {
    match kind {
        Kind::Plain => drop(
            Semaphore::new(client, "job")
                .unwrap()
                .init(1)
                .await
                .unwrap(),
        ),
        Kind::Leased => {
            let semaphore = LeasedSemaphore::new(client, "job").unwrap();
            let _ = semaphore.init(1).await.unwrap();
        }
        _ => {}
    }
}

fn lose(world: &World, loss: Loss) {
    if loss == Loss::All {
        return world.as_engine().faults().flush_all();
    }
    let of_queue = ["_line", "_wake", "stanchion_fair", "redisson_lock_"];
    for key in world.keys() {
        if of_queue.iter().any(|part| key.contains(part)) {
            let _ = world.admin(&["DEL", &key]);
        }
    }
}

async fn all_are_served(kind: Kind) {
    for size in [16, 48] {
        for loss in [Loss::All, Loss::Queue] {
            let world = World::engine();
            let clients = world.fleet(size + 1).await;
            init(kind, &clients[0]).await;
            let hold = Duration::from_secs(8);
            let (first, holds) = (clients[0].clone(), kind);
            // Readers wait for a writer.
            let holds = if holds == Kind::Readers {
                Kind::Writers
            } else {
                holds
            };
            let holder = tokio::spawn(async move { turn(holds, &first, hold).await });
            sleep(Duration::from_secs(1)).await;
            let waiters: Vec<JoinHandle<Instant>> = clients[1..]
                .iter()
                .map(|client| {
                    let client = client.clone();
                    tokio::spawn(
                        async move { turn(kind, &client, Duration::from_millis(20)).await },
                    )
                })
                .collect();
            eventually("all wait", || {
                clients[1..].iter().all(|client| client.waiters() == 1)
            })
            .await;
            world.quiet().await;
            sleep(Duration::from_secs(1)).await;
            lose(&world, loss);
            let mut lost = Instant::now();
            match loss {
                Loss::All => init(kind, &clients[0]).await,
                // The name is free from here on.
                Loss::Queue => lost = holder.await.unwrap() + hold,
            }
            for (n, waiter) in waiters.into_iter().enumerate() {
                let granted = waiter.await.unwrap();
                let waited = granted.saturating_duration_since(lost);
                assert!(
                    waited <= Duration::from_secs(10),
                    "{kind:?}, {loss:?}, {size} processes: the {n}th waited for {waited:?}"
                );
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_are_served_after_the_queue_of_a_lock_was_lost() {
    all_are_served(Kind::Lock).await;
}

#[tokio::test(start_paused = true)]
async fn all_are_served_after_the_queue_of_a_fair_lock_was_lost() {
    all_are_served(Kind::Fair).await;
}

#[tokio::test(start_paused = true)]
async fn all_are_served_after_the_queue_of_a_read_write_lock_was_lost() {
    all_are_served(Kind::Writers).await;
    all_are_served(Kind::Readers).await;
}

#[tokio::test(start_paused = true)]
async fn all_are_served_after_the_queue_of_a_semaphore_was_lost() {
    all_are_served(Kind::Plain).await;
    all_are_served(Kind::Leased).await;
}

#[tokio::test(start_paused = true)]
async fn all_are_served_after_the_queues_of_a_multi_lock_were_lost() {
    all_are_served(Kind::Multi).await;
}

/// Each of four processes gets at least half of its share of the grants.
#[tokio::test(start_paused = true)]
async fn no_process_starves_after_the_queue_was_lost() {
    for kind in [Kind::Lock, Kind::Fair, Kind::Writers, Kind::Leased] {
        let world = World::engine();
        let clients = world.fleet(4).await;
        init(kind, &clients[0]).await;
        let counts: [std::sync::Arc<std::sync::atomic::AtomicU64>; 4] = Default::default();
        let mut tasks = tokio::task::JoinSet::new();
        for (client, count) in clients.iter().cloned().zip(counts.clone()) {
            tasks.spawn(async move {
                loop {
                    turn(kind, &client, Duration::from_millis(3)).await;
                    count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    sleep(Duration::from_millis(1)).await;
                }
            });
        }
        sleep(Duration::from_secs(1)).await;
        lose(&world, Loss::All);
        init(kind, &clients[0]).await;
        sleep(Duration::from_secs(6)).await;
        let read = || {
            counts
                .clone()
                .map(|it| it.load(std::sync::atomic::Ordering::Relaxed))
        };
        let before = read();
        sleep(Duration::from_secs(4)).await;
        let after = read();
        let grants: Vec<u64> = after
            .iter()
            .zip(before)
            .map(|(after, before)| after - before)
            .collect();
        tasks.shutdown().await;
        let all: u64 = grants.iter().sum();
        assert!(all > 100, "{kind:?}: {grants:?}");
        for count in &grants {
            assert!(count * 8 >= all, "{kind:?}: {grants:?}");
        }
    }
}
