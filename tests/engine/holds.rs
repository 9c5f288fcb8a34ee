//! Properties of the whole life of a hold: re-entry, detach and adopt, `max_hold`. In virtual time.

use std::time::Duration;

use stanchion::{FairLock, Lock, RwLock};
use stanchion_tests::World;
use tokio::time::sleep;

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// P6: a re-entry is sent again, and its first request arrives after the next re-entry. The count on the server, which Redisson reads, is
/// not lowered by it.
#[tokio::test(start_paused = true)]
async fn a_late_re_entry_does_not_lower_the_count() {
    let world = World::engine();
    let client = world.client().await;
    let counts = |key: &str| {
        let script = "return table.concat(redis.call('HVALS', KEYS[1]), ' ')";
        world
            .admin(&["EVAL", script, "1", key])
            .replace("read ", "")
            .replace("write ", "")
    };
    macro_rules! check {
        ($key:literal, $guard:expr) => {{
            let guard = $guard.await.unwrap();
            // Now the server knows the script.
            guard.reenter().await.unwrap().release().await.unwrap();
            world.as_engine().faults().hold_requests("EVALSHA", 1);
            let second = guard.reenter().await.unwrap();
            let third = guard.reenter().await.unwrap();
            assert_eq!(counts($key), "3", "{}", $key);
            world.as_engine().faults().deliver();
            sleep(ms(10)).await;
            assert_eq!(counts($key), "3", "{}", $key);
            for guard in [third, second, guard] {
                guard.release().await.unwrap();
            }
        }};
    }
    check!("lock", Lock::new(&client, "lock").unwrap().acquire());
    check!("fair", FairLock::new(&client, "fair").unwrap().acquire());
    check!("read", RwLock::new(&client, "read").unwrap().read());
    check!("write", RwLock::new(&client, "write").unwrap().write());
    world.at_rest().await;
}
