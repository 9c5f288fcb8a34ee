//! Lost replies (P6), late requests and re-entries of operations that only the read-write lock has. `virtual/lost_replies` and
//! `virtual/refusals` have those of all kinds.

use stanchion::{AcquireError, AcquireOptions, Client, Rejection};
use stanchion_testkit::cancel_after;
use stanchion_tests::{LostReply, World, assert_within, lease, ms, secs};

use super::{rwlock, warm};

async fn world() -> (World, Client) {
    let (world, client) = World::engine().with_client().await;
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
            assert!(ms(left) > reading.remaining(), "{way:?}");
        }
        let joined = lock.read().await.unwrap();
        reading.release().await.unwrap();
        joined.release().await.unwrap();
        world.at_rest().await;
    }
}

/// P9: the first request is late.
#[tokio::test(start_paused = true)]
async fn a_downgrade_after_a_step_of_the_server_clock_is_sent_twice() {
    let (world, client) = world().await;
    let lease = lease(secs(7200));
    let writing = rwlock(&client).lease(lease).write().await.unwrap();
    world.faults().step_clock(60_000);
    let before = world.scripts_run();
    let reading = writing.downgrade().await.unwrap();
    assert_eq!(world.scripts_run() - before, 2);
    assert!(reading.is_held());
    reading.release().await.unwrap();
    world.at_rest().await;
}

/// P9: a downgrade and a re-entry by one owner run one after the other, without a deadlock.
#[tokio::test(start_paused = true)]
async fn a_downgrade_and_a_re_entry_of_one_owner_do_not_wait_for_each_other() {
    let (world, client) = World::slow_engine().with_client().await;
    warm(&client).await;
    let (lock, owner) = (rwlock(&client), client.owner());
    let options = || AcquireOptions::new().owner(&owner);
    let writing = lock.write_with(options()).await.unwrap();
    // Both operations wait for a renewal in flight.
    assert!(cancel_after(writing.renew(), 1).await.is_none());
    let started = tokio::time::Instant::now();
    let downgrading = tokio::spawn(writing.downgrade());
    tokio::time::sleep(ms(1)).await;
    let again = lock.write_with(options()).await;
    let reading = downgrading.await.unwrap().unwrap();
    assert_within(started, secs(1), ());
    // The re-entry came second: a reader that requests the write lock would wait for itself.
    assert!(matches!(
        again.unwrap_err(),
        AcquireError::Rejected {
            rejection: Rejection::AlreadyHeld { .. },
            ..
        }
    ));
    reading.release().await.unwrap();
    world.at_rest().await;
}
