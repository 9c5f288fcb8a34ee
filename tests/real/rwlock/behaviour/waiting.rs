//! Tests wake-ups of the read-write lock (P4): readers together, writers one at a time, and the local queue.

use std::sync::Arc;

use futures_util::FutureExt as _;
use stanchion::{Client, RwLock};
use stanchion_testkit::eventually;
use stanchion_tests::{World, lease, secs, spawn_ok, together};

use super::{CHANNEL, rwlock};

suite! {
    waiters_of_one_process_are_served_in_order,
    readers_never_overtake_a_waiting_writer_of_their_process,
    a_dropped_writer_does_not_block_the_readers_behind_it,
    releases_of_other_readers_cause_no_retry_of_a_writer,
}

/// A client whose polls and renewals are so rare that commands can be counted.
async fn calm_client(world: &World) -> Client {
    let config = world.config("calm").poll_interval(secs(300));
    Client::connect_with(config).await.unwrap()
}

fn calm(client: &Client) -> RwLock {
    rwlock(client).lease(lease(secs(900)))
}

async fn waiting(client: &Client, n: usize) {
    eventually("the calls wait", || client.waiters() == n).await;
}

async fn waiters_of_one_process_are_served_in_order(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let held = lock.write().await.unwrap();
    let order = Arc::new(std::sync::Mutex::new(Vec::new()));
    let mut tasks = Vec::new();
    for i in 0..30 {
        let (lock, order) = (lock.clone(), Arc::clone(&order));
        tasks.push(tokio::spawn(async move {
            if i % 3 == 0 {
                let writing = lock.write().await.unwrap();
                order.lock().unwrap().push(i);
                tokio::task::yield_now().await;
                writing.release().await.unwrap();
            } else {
                let reading = lock.read().await.unwrap();
                order.lock().unwrap().push(i);
                tokio::task::yield_now().await;
                reading.release().await.unwrap();
            }
        }));
        waiting(&client, i + 1).await;
    }
    held.release().await.unwrap();
    together(tasks).await;
    let order = order.lock().unwrap().clone();
    // Adjacent readers may overtake each other, but never a writer.
    let rank = |i: &usize| 2 * (i / 3) + usize::from(!i.is_multiple_of(3));
    assert!(order.iter().map(rank).is_sorted(), "{order:?}");
}

async fn readers_never_overtake_a_waiting_writer_of_their_process(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let reading = lock.read().await.unwrap();
    let mut writer = Box::pin(lock.write());
    assert!((&mut writer).now_or_never().is_none());
    let late = spawn_ok(lock.read());
    waiting(&client, 2).await;
    // `try_read` does not queue behind the writer, as in Redisson.
    drop(lock.try_read().await.unwrap().unwrap());
    world.quiet().await;
    assert!(!late.is_finished());
    // Re-entry does not queue either.
    let again = reading.reenter().await.unwrap();
    drop((reading, again));
    let writing = writer.await.unwrap();
    assert!(!late.is_finished());
    writing.release().await.unwrap();
    late.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn a_dropped_writer_does_not_block_the_readers_behind_it(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = rwlock(&ours).read().await.unwrap();
    let lock = rwlock(&theirs);
    let mut writer = Box::pin(lock.write());
    assert!((&mut writer).now_or_never().is_none());
    let readers: Vec<_> = (0..3).map(|_| spawn_ok(lock.read())).collect();
    waiting(&theirs, 4).await;
    world.quiet().await;
    drop(writer);
    // The server publishes nothing, so the dropped waiter must wake the readers behind it.
    for reader in readers {
        let reading = tokio::time::timeout(secs(2), reader).await;
        drop(reading.expect("woken, not polling").unwrap());
    }
    reading.release().await.unwrap();
    assert_eq!(theirs.waiters(), 0);
    world.at_rest().await;
}

async fn releases_of_other_readers_cause_no_retry_of_a_writer(world: &World) {
    let client = calm_client(world).await;
    let lock = calm(&client);
    let staying = lock.read().await.unwrap();
    lock.read().await.unwrap().release().await.unwrap();
    let writer = spawn_ok(lock.write());
    waiting(&client, 1).await;
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    let mut others = Vec::new();
    for _ in 0..10 {
        others.push(lock.try_read().await.unwrap().unwrap());
    }
    let before = world.scripts_run();
    for other in others {
        other.release().await.unwrap();
    }
    // The writer does not retry while another reader holds.
    assert_eq!(world.scripts_run() - before, 10);
    staying.release().await.unwrap();
    drop(writer.await.unwrap());
    world.at_rest().await;
}
