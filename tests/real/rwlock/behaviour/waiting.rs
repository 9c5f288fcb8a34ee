//! Tests wake-ups of the read-write lock (P4): readers together, writers one at a time, and the local queue.

use std::sync::Arc;
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::Barrier;

use stanchion::{Client, Lease, RwLock};
use stanchion_testkit::eventually;
use stanchion_tests::World;

use super::{CHANNEL, rwlock};

suite! {
    waiting_readers_of_a_process_acquire_together,
    waiters_of_one_process_are_served_in_order,
    readers_never_overtake_a_waiting_writer_of_their_process,
    a_dropped_writer_does_not_block_the_readers_behind_it,
    releases_of_other_readers_cause_no_retry_of_a_writer,
}

/// A client whose polls and renewals are so rare that commands can be counted.
async fn calm_client(world: &World) -> Client {
    let config = world.config("calm").poll_interval(Duration::from_secs(300));
    Client::connect_with(config).await.unwrap()
}

fn calm(client: &Client) -> RwLock {
    rwlock(client).lease(Lease::new(Duration::from_secs(900)).unwrap())
}

async fn waiting(client: &Client, n: usize) {
    eventually("the calls wait", || client.waiters() == n).await;
}

async fn waiting_readers_of_a_process_acquire_together(world: &World) {
    const READERS: usize = 20;
    let (ours, theirs) = (calm_client(world).await, calm_client(world).await);
    // Loads the scripts, so that each request is one command.
    // Released, not dropped: a call that waits for a release in flight subscribes, and stays subscribed for a while.
    let reading = calm(&ours).read().await.unwrap();
    reading.release().await.unwrap();
    let writing = calm(&ours).write().await.unwrap();
    writing.release().await.unwrap();
    world.at_rest().await;
    let writing = calm(&ours).write().await.unwrap();
    let all_in = Arc::new(Barrier::new(READERS));
    let readers: Vec<_> = (0..READERS)
        .map(|_| {
            let (lock, all_in) = (calm(&theirs), Arc::clone(&all_in));
            tokio::spawn(async move {
                let reading = lock.read().await.unwrap();
                // The barrier opens only when all readers hold at once.
                all_in.wait().await;
                reading
            })
        })
        .collect();
    waiting(&theirs, READERS).await;
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    let before = world.scripts_run();
    writing.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        guards.push(reader.await.unwrap());
    }
    // One release, which grants to the first reader, and one acquire of each other reader.
    assert_eq!(world.scripts_run() - before, READERS as u64);
    assert_eq!(world.subscribers(CHANNEL), 1);
    drop(guards);
    world.at_rest().await;
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
    for task in tasks {
        task.await.unwrap();
    }
    let order = order.lock().unwrap().clone();
    // Adjacent readers may overtake each other, but never a writer.
    let rank = |i: usize| (i.div_ceil(3), usize::from(!i.is_multiple_of(3)));
    let ranks: Vec<_> = order.iter().map(|i| rank(*i)).collect();
    let writers_in_order = order.iter().filter(|i| *i % 3 == 0).is_sorted();
    assert!(writers_in_order, "{order:?}");
    for (at, i) in order.iter().enumerate() {
        if !i.is_multiple_of(3) {
            let writer_before = order.iter().position(|w| *w == i / 3 * 3).unwrap();
            assert!(writer_before < at, "{order:?} {ranks:?}");
            if let Some(writer_after) = order.iter().position(|w| *w == (i / 3 + 1) * 3) {
                assert!(at < writer_after, "{order:?}");
            }
        }
    }
}

async fn readers_never_overtake_a_waiting_writer_of_their_process(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let reading = lock.read().await.unwrap();
    let mut writer = Box::pin(lock.write());
    assert!((&mut writer).now_or_never().is_none());
    let late = tokio::spawn({
        let lock = lock.clone();
        async move { lock.read().await.unwrap() }
    });
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
    let readers: Vec<_> = (0..3)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move { lock.read().await.unwrap() })
        })
        .collect();
    waiting(&theirs, 4).await;
    world.quiet().await;
    drop(writer);
    // The server publishes nothing, so the dropped waiter must wake the readers behind it.
    for reader in readers {
        let reading = tokio::time::timeout(Duration::from_secs(2), reader).await;
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
    let writer = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap() }
    });
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
