//! Readers and writers that take turns, where writers are preferred.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::{Client, Preference, ReadGuard, RwLock};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::{Instant, sleep};

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn polite(client: &Client) -> RwLock {
    RwLock::new(client, "job")
        .unwrap()
        .with_preference(Preference::Writer)
}

/// The turn of the readers is for those that waited: who comes anew does not lengthen it.
#[tokio::test(start_paused = true)]
async fn readers_that_come_and_go_do_not_keep_writers_waiting() {
    for size in [16, 64] {
        let world = World::slow_engine();
        let clients = world.fleet(size).await;
        let longest = Arc::new(AtomicU64::new(0));
        let writes = Arc::new(AtomicU64::new(0));
        let mut tasks = JoinSet::new();
        for (n, client) in clients.iter().enumerate() {
            let (lock, longest, writes) =
                (polite(client), Arc::clone(&longest), Arc::clone(&writes));
            tasks.spawn(async move {
                // So that the readers do not all come and go at one moment.
                sleep(ms(u64::try_from(n).unwrap() * 7)).await;
                loop {
                    let began = Instant::now();
                    if n % 8 == 0 {
                        let guard = lock.write().await.unwrap();
                        writes.fetch_add(1, Ordering::Relaxed);
                        let waited = u64::try_from(began.elapsed().as_millis()).unwrap();
                        longest.fetch_max(waited, Ordering::Relaxed);
                        sleep(ms(1)).await;
                        guard.release().await.unwrap();
                    } else {
                        let guard = lock.read().await.unwrap();
                        let waited = u64::try_from(began.elapsed().as_millis()).unwrap();
                        longest.fetch_max(waited, Ordering::Relaxed);
                        sleep(ms(40)).await;
                        guard.release().await.unwrap();
                    }
                    sleep(ms(1)).await;
                }
            });
        }
        sleep(ms(3000)).await;
        tasks.shutdown().await;
        let (longest, writes) = (
            longest.load(Ordering::Relaxed),
            writes.load(Ordering::Relaxed),
        );
        // One writer and one turn of readers take some 60 ms, and more where others wait.
        let writers = u64::try_from(size).unwrap() / 8;
        assert!(longest <= 150 + 30 * writers, "{size}: {longest} ms");
        assert!(writes >= 60, "{size}: {writes} writes");
    }
}

/// L5: a writer that is told to ask in a moment, while it asks, does not ask at once: the readers have that moment. All come and go in step here.
#[tokio::test(start_paused = true)]
async fn writers_in_step_with_readers_do_not_pass_them() {
    let world = World::engine();
    let clients = world.fleet(16).await;
    let longest = Arc::new(AtomicU64::new(0));
    let mut tasks = JoinSet::new();
    for (n, client) in clients.iter().enumerate() {
        let (lock, longest) = (polite(client), Arc::clone(&longest));
        tasks.spawn(async move {
            sleep(Duration::from_micros(u64::try_from(n).unwrap() * 137)).await;
            loop {
                let began = Instant::now();
                if n % 8 == 0 {
                    let guard = lock.write().await.unwrap();
                    sleep(ms(1)).await;
                    guard.release().await.unwrap();
                } else {
                    let guard = lock.read().await.unwrap();
                    let waited = u64::try_from(began.elapsed().as_millis()).unwrap();
                    longest.fetch_max(waited, Ordering::Relaxed);
                    sleep(ms(1)).await;
                    guard.release().await.unwrap();
                }
                sleep(ms(1)).await;
            }
        });
    }
    sleep(ms(3000)).await;
    tasks.shutdown().await;
    let longest = longest.load(Ordering::Relaxed);
    assert!(longest <= 10, "{longest} ms");
}

/// All that waited are served in one turn, also those of one process, while another writer waits.
#[tokio::test(start_paused = true)]
async fn all_readers_that_waited_have_their_turn_together() {
    let world = World::engine();
    let clients = world.fleet(4).await;
    let held = polite(&clients[0]).write().await.unwrap();
    let mut readers: Vec<JoinHandle<ReadGuard>> = Vec::new();
    for (client, many) in [(&clients[1], 5), (&clients[2], 2)] {
        for n in 1..=many {
            let lock = polite(client);
            readers.push(tokio::spawn(async move { lock.read().await.unwrap() }));
            eventually("it waits", || client.waiters() == n).await;
        }
    }
    world.quiet().await;
    let lock = polite(&clients[3]);
    let writer = tokio::spawn(async move { lock.write().await.unwrap() });
    eventually("it waits", || clients[3].waiters() == 1).await;
    world.quiet().await;
    let released = Instant::now();
    held.release().await.unwrap();
    let mut guards = Vec::new();
    for reader in readers {
        let guard = tokio::time::timeout(ms(50), reader).await;
        guards.push(guard.expect("passed over by the writer").unwrap());
    }
    assert!(!writer.is_finished());
    for guard in guards {
        guard.release().await.unwrap();
    }
    writer.await.unwrap().release().await.unwrap();
    assert!(released.elapsed() < ms(60), "{:?}", released.elapsed());
    world.at_rest().await;
}
