//! P6, for operations that only the read-write lock has. `virtual/lost_replies` has those of all kinds.

use std::time::Duration;

use stanchion::{AcquireOptions, Client};
use stanchion_tests::{LostReply, World};

use super::{rwlock, warm};

async fn world() -> (World, Client) {
    let world = World::engine();
    let client = world.client().await;
    warm(&client).await;
    world.at_rest().await;
    world.quiet().await;
    (world, client)
}

#[tokio::test(start_paused = true)]
async fn a_nested_read_with_a_lost_reply_holds_once() {
    for way in LostReply::WAYS {
        let (world, client) = world().await;
        let lock = rwlock(&client);
        let writing = lock.write().await.unwrap();
        world.lose_next_reply(way);
        let options = AcquireOptions::new().owner(writing.owner());
        let nested = lock.read_with(options).await.unwrap();
        assert_eq!(lock.status().await.unwrap().readers[0].hold_count, 1);
        writing.release().await.unwrap();
        nested.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_downgrade_with_a_lost_reply_takes_effect_once() {
    for way in LostReply::WAYS {
        let (world, client) = world().await;
        let lock = rwlock(&client);
        let writing = lock.write().await.unwrap();
        world.lose_next_reply(way);
        let reading = writing.downgrade().await.unwrap();
        let status = lock.status().await.unwrap();
        assert_eq!((status.writer, status.reader_count), (None, 1), "{way:?}");
        assert!(reading.is_held());
        // P5: the guard's lease starts with the second request, so the server's must, too.
        let key = format!("{{job}}:{}:rwlock_timeout:1", status.readers[0].owner);
        for key in ["job", &key] {
            let left: u64 = world.admin(&["PTTL", key]).parse().unwrap();
            assert!(Duration::from_millis(left) > reading.remaining(), "{way:?}");
        }
        let joined = lock.read().await.unwrap();
        reading.release().await.unwrap();
        joined.release().await.unwrap();
        world.at_rest().await;
    }
}
