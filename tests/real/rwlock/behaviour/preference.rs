//! Tests `Preference::Writer`: readers and writers acquire in order of arrival, so a waiting writer blocks new readers.

use stanchion::rwlock::Preference;
use stanchion::{AcquireError, Client, RwLock};
use stanchion_tests::{World, ms, spawn_ok};

use super::rwlock;

const LINE: &str = "stanchion_rwlock_line:{job}";

suite! {
    by_default_readers_join_readers_while_a_writer_waits,
    a_waiting_writer_blocks_new_readers,
    a_holder_may_re_enter_and_renew_while_a_writer_waits,
    a_writer_that_stops_waiting_unblocks_readers,
}

fn preferring(client: &Client) -> RwLock {
    rwlock(client).preference(Preference::Writer)
}

/// Waits until `count` processes are queued, and subscribed: the queue passes a process that receives no messages yet.
async fn queued(world: &World, count: usize) {
    world.until(&["ZCARD", LINE], count).await;
    world.quiet().await;
}

async fn by_default_readers_join_readers_while_a_writer_waits(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = rwlock(&ours).read().await.unwrap();
    let writer = spawn_ok(rwlock(&theirs).write());
    queued(world, 1).await;
    assert!(!rwlock(&ours).status().await.unwrap().readers_held_off);
    let joined = rwlock(&ours).read().await.unwrap();
    drop((reading, joined));
    drop(writer.await.unwrap());
    world.at_rest().await;
}

async fn a_waiting_writer_blocks_new_readers(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = preferring(&ours).read().await.unwrap();
    let writer = spawn_ok(preferring(&theirs).write());
    queued(world, 1).await;
    assert!(preferring(&ours).status().await.unwrap().readers_held_off);
    assert!(preferring(&ours).try_read().await.unwrap().is_none());
    let late = spawn_ok(preferring(&ours).read());
    world.quiet().await;
    reading.release().await.unwrap();
    let writing = writer.await.unwrap();
    assert!(!late.is_finished());
    writing.release().await.unwrap();
    drop(late.await.unwrap());
    world.at_rest().await;
}

async fn a_holder_may_re_enter_and_renew_while_a_writer_waits(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = preferring(&ours);
    let reading = lock.read().await.unwrap();
    let writer = spawn_ok(preferring(&theirs).write());
    queued(world, 1).await;
    let again = reading.reenter().await.unwrap();
    reading.renew().await.unwrap();
    again.release().await.unwrap();
    reading.release().await.unwrap();
    let writing = writer.await.unwrap();
    // While a second writer waits, the first may read inside its own hold.
    let second = spawn_ok(preferring(&ours).write());
    queued(world, 1).await;
    let options = stanchion::AcquireOptions::new().owner(writing.owner());
    let nested = preferring(&theirs).try_read_with(options).await.unwrap();
    assert!(nested.is_some());
    drop((nested, writing));
    drop(second.await.unwrap());
    world.at_rest().await;
}

async fn a_writer_that_stops_waiting_unblocks_readers(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = preferring(&ours).read().await.unwrap();
    for way in ["timeout", "cancelled"] {
        let lock = preferring(&theirs);
        let writer = tokio::spawn(async move {
            match way {
                "timeout" => lock.write_timeout(ms(1000)).await,
                _ => lock.write().await,
            }
        });
        queued(world, 1).await;
        let late = spawn_ok(preferring(&ours).read());
        match way {
            "timeout" => {
                let error = writer.await.unwrap().unwrap_err();
                assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
            }
            _ => {
                queued(world, 2).await;
                assert!(!late.is_finished(), "the writer does not block the reader");
                writer.abort();
            }
        }
        // Woken by message: before the 2 s after which the writer would count as stopped, and the poll interval of 5 s.
        let joined = tokio::time::timeout(ms(1500), late).await;
        drop(joined.expect(way).unwrap());
        queued(world, 0).await;
    }
    drop(reading);
    world.at_rest().await;
}
