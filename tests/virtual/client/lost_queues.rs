//! Tests P4 for waiting processes whose queue vanishes on the server while their connections live, as after FLUSHALL, DEL or an eviction.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::Client;
use stanchion_testkit::eventually;
use stanchion_tests::kinds::{Case, Kind, Target, kinds};
use stanchion_tests::{World, ms, secs};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Loss {
    /// All data, so that the name is free.
    All,
    /// The keys of the queue, while another process holds.
    Queue,
}

/// Acquires, holds for `hold`, and releases. Returns the moment of the grant.
async fn turn(target: Target, hold: Duration) -> Instant {
    let held = target.acquire().await.unwrap();
    let granted = Instant::now();
    sleep(hold).await;
    // The server may have lost the hold.
    let _ = held.release().await;
    granted
}

async fn fleet(kind: Kind, size: usize) -> (Case, Vec<Client>) {
    let (world, clients) = World::engine().with_fleet(size).await;
    let first = [clients[0].clone(), clients[1].clone()];
    (Case::of(kind, world, first).await, clients)
}

async fn lose(case: &Case, loss: Loss) {
    if loss == Loss::All {
        case.world.faults().flush_all();
        return case.init().await;
    }
    let of_queue = ["_line", "_wake", "stanchion_fair", "redisson_lock_"];
    for key in case.world.keys() {
        if of_queue.iter().any(|part| key.contains(part)) {
            let _ = case.world.admin(&["DEL", &key]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn all_are_served_after_the_queue_was_lost() {
    for kind in kinds() {
        for (size, loss) in [(48, Loss::All), (16, Loss::Queue)] {
            let (case, clients) = fleet(kind, size + 1).await;
            let hold = secs(8);
            let rival = (kind.2)(&clients[0], &clients[0]);
            let holder = tokio::spawn(turn(rival, hold));
            sleep(secs(1)).await;
            let waits = |client| turn((kind.1)(client, client), ms(20));
            let waiters: Vec<_> = clients[1..]
                .iter()
                .map(|it| tokio::spawn(waits(it)))
                .collect();
            eventually("all wait", || {
                clients[1..].iter().all(|it| it.waiters() == 1)
            })
            .await;
            case.world.quiet().await;
            sleep(secs(1)).await;
            lose(&case, loss).await;
            let mut lost = Instant::now();
            if loss == Loss::Queue {
                // The name is free from here on.
                lost = holder.await.unwrap() + hold;
            }
            for (n, waiter) in waiters.into_iter().enumerate() {
                let waited = waiter.await.unwrap().saturating_duration_since(lost);
                assert!(
                    waited <= secs(10),
                    "{}, {loss:?}, {size} processes: the {n}th waited for {waited:?}",
                    case.label
                );
            }
        }
    }
}

/// Each of four processes gets at least half of its share of the grants.
#[tokio::test(start_paused = true)]
async fn no_process_starves_after_the_queue_was_lost() {
    let exclusive = ["lock", "fair lock", "write side", "leased permits"];
    for kind in kinds()
        .into_iter()
        .filter(|kind| exclusive.contains(&kind.0))
    {
        let (case, clients) = fleet(kind, 4).await;
        let counts: [Arc<AtomicU64>; 4] = Default::default();
        let mut tasks = JoinSet::new();
        for (client, count) in clients.into_iter().zip(counts.clone()) {
            tasks.spawn(async move {
                loop {
                    turn((kind.1)(&client, &client), ms(3)).await;
                    count.fetch_add(1, Ordering::Relaxed);
                    sleep(ms(1)).await;
                }
            });
        }
        sleep(secs(1)).await;
        lose(&case, Loss::All).await;
        sleep(secs(6)).await;
        counts.iter().for_each(|it| it.store(0, Ordering::Relaxed));
        sleep(secs(4)).await;
        let grants = counts.map(|it| it.load(Ordering::Relaxed));
        tasks.shutdown().await;
        let all: u64 = grants.iter().sum();
        assert!(all > 100, "{}: {grants:?}", case.label);
        let is_fair = grants.iter().all(|count| count * 8 >= all);
        assert!(is_fair, "{}: {grants:?}", case.label);
    }
}
