//! Tests a polling reader next to queued writers with preference, and after a writer that was killed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::client::Wake;
use stanchion::rwlock::Preference;
use stanchion::{Client, RwLock};
use stanchion_tests::World;
use tokio::task::JoinSet;
use tokio::time::Instant;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn rwlock(client: &Client) -> RwLock {
    RwLock::new(client, "job")
        .unwrap()
        .preference(Preference::Writer)
}

/// Three processes that write repeatedly, and the number of their grants.
async fn writers(world: &World) -> (JoinSet<()>, Arc<AtomicU64>) {
    let (mut tasks, writes) = (JoinSet::new(), Arc::new(AtomicU64::new(0)));
    for client in world.fleet(3).await {
        let writes = Arc::clone(&writes);
        tasks.spawn(async move {
            loop {
                let guard = rwlock(&client).write().await.unwrap();
                tokio::time::sleep(ms(20)).await;
                guard.release().await.unwrap();
                writes.fetch_add(1, Ordering::Relaxed);
            }
        });
    }
    (tasks, writes)
}

#[tokio::test(start_paused = true)]
async fn a_polling_reader_has_its_turns_between_queued_writers() {
    let world = World::engine();
    let (mut tasks, writes) = writers(&world).await;
    let polling = Client::connect_with(world.config("polling").wake(Wake::Poll))
        .await
        .unwrap();
    tokio::time::sleep(ms(500)).await;
    let (before, mut longest) = (writes.load(Ordering::Relaxed), Duration::ZERO);
    for _ in 0..100 {
        let began = Instant::now();
        let guard = rwlock(&polling).read().await.unwrap();
        longest = longest.max(began.elapsed());
        guard.release().await.unwrap();
    }
    let writes = writes.load(Ordering::Relaxed) - before;
    assert!(writes <= 1000, "{writes} writes for 100 reads");
    assert!(longest < ms(1000), "the reader waited for {longest:?}");
    tasks.shutdown().await;
}

/// P4: no release serves the queue of this lock, and no other client sends requests.
#[tokio::test(start_paused = true)]
async fn a_polling_reader_acquires_when_the_lease_of_a_dead_writer_ends() {
    const DEAD: &str = "00000000-0000-8000-8000-000000000000:1";
    for preference in [Preference::Redisson, Preference::Writer] {
        for queued in [false, true] {
            let world = World::engine();
            let field = format!("{DEAD}:write");
            let mut state = vec![
                vec!["HSET", "job", "mode", "write", &field, "1"],
                vec!["PEXPIRE", "job", "3000"],
            ];
            if queued {
                state.push(vec!["ZADD", "stanchion_rwlock_line:{job}", "1", DEAD]);
            }
            for command in state {
                assert_ne!(world.admin(&command), "0", "{command:?}");
            }
            let polling = Client::connect_with(world.config("polling").wake(Wake::Poll))
                .await
                .unwrap();
            let began = Instant::now();
            let lock = RwLock::new(&polling, "job").unwrap();
            let reading = lock.preference(preference).read_timeout(ms(30_000));
            let guard = reading.await.unwrap();
            let waited = began.elapsed();
            assert!(
                waited < ms(3_500),
                "{preference:?}, behind a dead waiter {queued}: {waited:?}"
            );
            guard.release().await.unwrap();
        }
    }
}
