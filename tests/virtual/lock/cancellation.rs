//! P3 at every await point of a detach and an adoption. `virtual/dropped` has the operations of all kinds.

use stanchion::{Client, Lock};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::{World, alive_tasks, secs};

/// Asserts that the client has left no key and no waiter, and that it has no more tasks than at rest.
async fn assert_no_leak(world: &World, client: &Client, tasks_at_rest: usize, polls: usize) {
    world.at_rest().await;
    assert_eq!(client.waiters(), 0, "after {polls} polls");
    eventually(&format!("no task is left after {polls} polls"), || {
        alive_tasks() <= tasks_at_rest
    })
    .await;
}

async fn settled_tasks() -> usize {
    // Time for handshakes and first subscriptions to finish.
    tokio::time::sleep(secs(10)).await;
    alive_tasks()
}

#[tokio::test(start_paused = true)]
async fn a_detach_or_adopt_dropped_anywhere_leaves_a_valid_ticket_or_nothing() {
    let (world, client) = World::slow_engine().with_client().await;
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
