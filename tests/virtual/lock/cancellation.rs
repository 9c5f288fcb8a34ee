//! Tests P3 at every await point: a dropped operation leaves no key, waiter or task, and the other waiters still get the lock.

use std::time::Duration;

use stanchion::{Client, Lock};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::World;

/// Asserts that the client has left no key and no waiter, and that it has no more tasks than at rest.
async fn assert_no_leak(world: &World, client: &Client, tasks_at_rest: usize, polls: usize) {
    world.at_rest().await;
    assert_eq!(client.waiters(), 0, "after {polls} polls");
    eventually(&format!("no task is left after {polls} polls"), || {
        alive_tasks() <= tasks_at_rest
    })
    .await;
}

fn alive_tasks() -> usize {
    tokio::runtime::Handle::current()
        .metrics()
        .num_alive_tasks()
}

async fn settled_tasks() -> usize {
    // Time for handshakes and first subscriptions to finish.
    tokio::time::sleep(Duration::from_secs(10)).await;
    alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_renewal_dropped_anywhere_changes_nothing() {
    let world = World::slow_engine();
    let client = world.client().await;
    let tasks = settled_tasks().await;
    for_each_await_point(async |polls| {
        let guard = Lock::new(&client, "job").unwrap().acquire().await.unwrap();
        let done = cancel_after(guard.renew(), polls).await.is_some();
        assert!(guard.is_held());
        guard.release().await.unwrap();
        assert_no_leak(&world, &client, tasks, polls).await;
        done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn random_cancellations_starve_no_waiter() {
    let world = World::engine();
    world
        .as_engine()
        .faults()
        .delay(None, Duration::from_millis(1));
    let clients = [world.client().await, world.client().await];
    let mut rng = fastrand::Rng::with_seed(11);
    for round in 0..30 {
        let mut tasks = Vec::new();
        for i in 0..100 {
            let lock = Lock::new(&clients[i % 2], "job").unwrap();
            let patience = Duration::from_micros(rng.u64(0..60_000));
            let doomed = rng.bool();
            tasks.push(tokio::spawn(async move {
                if doomed {
                    // Dropped at a random time, often while it holds the lock.
                    let _ = tokio::time::timeout(patience, async {
                        let _guard = lock.acquire().await.unwrap();
                        tokio::time::sleep(Duration::from_millis(1)).await;
                    })
                    .await;
                } else {
                    let guard = lock
                        .acquire_timeout(Duration::from_secs(20))
                        .await
                        .expect("a live waiter gets the lock");
                    guard.release().await.unwrap();
                }
            }));
        }
        for task in tasks {
            task.await.unwrap_or_else(|e| panic!("round {round}: {e}"));
        }
        world.at_rest().await;
        assert_eq!(clients.iter().map(Client::waiters).sum::<usize>(), 0);
    }
}

#[tokio::test(start_paused = true)]
async fn a_detach_or_adopt_dropped_anywhere_leaves_a_valid_ticket_or_nothing() {
    let world = World::slow_engine();
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let tasks = settled_tasks().await;
    for_each_await_point(async |polls| {
        let guard = lock.acquire().await.unwrap();
        let ticket = cancel_after(guard.detach(), polls).await;
        let done = ticket.is_some();
        if let Some(ticket) = ticket {
            lock.adopt(&ticket.unwrap())
                .await
                .unwrap()
                .release()
                .await
                .unwrap();
        }
        assert_no_leak(&world, &client, tasks, polls).await;
        done
    })
    .await;
    for_each_await_point(async |polls| {
        let ticket = lock.acquire().await.unwrap().detach().await.unwrap();
        let done = cancel_after(lock.adopt(&ticket), polls).await.is_some();
        if let Ok(guard) = lock.adopt(&ticket).await {
            guard.release().await.unwrap();
        }
        assert_no_leak(&world, &client, tasks, polls).await;
        done
    })
    .await;
}
