//! A multi-lock in the line of a lock that it cannot take: others are not kept waiting.

use std::time::Duration;

use stanchion::{Lock, Lockable, MultiLock};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use tokio::time::Instant;

/// L4: an expiry sends no message, so whoever looks after it and cannot take the lock tells the next.
#[tokio::test(start_paused = true)]
async fn a_head_that_looks_in_vain_passes_the_free_lock_on() {
    for lease in [2600, 3000, 3400] {
        let world = World::engine();
        let clients = world.fleet(3).await;
        let lock = |client: usize, name: &str| Lock::new(&clients[client], name).unwrap();
        let in_line = |places: usize| {
            let world = &world;
            async move {
                let line = ["ZCARD", "stanchion_line:{a}"];
                let places = places.to_string();
                eventually("it stands in line", || world.admin(&line) == places).await;
            }
        };
        let _other = lock(0, "b").acquire().await.unwrap();
        // A process of stanchion's that falls silent: whoever is not the head looks at some moment of a second only.
        let silent = "11111111-1111-8111-8111-111111111111:1";
        let _ = world.admin(&["HSET", "a", silent, "1"]);
        let _ = world.admin(&["PEXPIRE", "a", &lease.to_string()]);
        let held = Instant::now();
        // Another task of the same process waits there already, so the multi-lock does not ask a second time when it moves there.
        let before = lock(1, "b");
        let before = tokio::spawn(async move { before.acquire().await });
        eventually("it waits", || clients[1].waiters() == 1).await;
        world.quiet().await;
        let both = [lock(1, "a"), lock(1, "b")];
        let both = MultiLock::new(both.iter().map(|lock| lock as &dyn Lockable)).unwrap();
        let first = tokio::spawn(async move { both.acquire().await });
        in_line(1).await;
        let behind = lock(2, "a");
        let behind = tokio::spawn(async move { behind.acquire().await });
        in_line(2).await;
        let guard = behind.await.unwrap().unwrap();
        let elapsed = held.elapsed();
        assert!(elapsed < Duration::from_millis(lease + 20), "{elapsed:?}");
        guard.release().await.unwrap();
        first.abort();
        before.abort();
    }
}
