//! Tests a polling reader after a writer that was killed. `virtual/fleets` has polling clients of all kinds.

use stanchion::RwLock;
use stanchion::rwlock::Preference;
use stanchion_tests::{World, assert_within, ms};
use tokio::time::Instant;

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
            let polling = world.polling().await;
            let began = Instant::now();
            let lock = RwLock::new(&polling, "job").unwrap();
            let reading = lock.preference(preference).read_timeout(ms(30_000));
            let guard = reading.await.unwrap();
            assert_within(began, ms(3_500), (preference, queued));
            guard.release().await.unwrap();
        }
    }
}
