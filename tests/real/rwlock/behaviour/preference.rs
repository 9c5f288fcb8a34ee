//! Tests `Preference::Writer`: readers and writers acquire in order of arrival, so a waiting writer blocks new readers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use stanchion::rwlock::Preference;
use stanchion::{AcquireError, Client, RwLock};
use stanchion_testkit::eventually_async;
use stanchion_tests::World;

use super::rwlock;

const LINE: &str = "stanchion_rwlock_line:{job}";

suite! {
    by_default_readers_join_readers_while_a_writer_waits,
    a_waiting_writer_blocks_new_readers,
    a_holder_may_re_enter_and_renew_while_a_writer_waits,
    a_writer_that_stops_waiting_unblocks_readers,
    try_write_does_not_block_readers,
    a_killed_writer_blocks_no_reader,
    a_writer_blocks_readers_for_as_long_as_it_waits,
    writers_of_several_processes_take_turns_with_readers,
    a_writer_with_preference_acquires_despite_a_stream_of_readers,
    alternating_writers_let_a_reader_acquire,
    a_reader_that_stops_waiting_does_not_block_writers,
    a_killed_reader_blocks_no_writer,
}

fn preferring(client: &Client) -> RwLock {
    rwlock(client).preference(Preference::Writer)
}

/// Waits until `count` processes are queued, and subscribed: the queue passes a process that receives no messages yet.
async fn queued(world: &World, count: usize) {
    eventually_async("the processes are queued", async || {
        world.admin(&["ZCARD", LINE]) == count.to_string()
    })
    .await;
    world.quiet().await;
}

/// A queue entry of a process that was killed, before all others. `side` is that of the entry.
fn add_killed(world: &World, side: &str) {
    let entry = format!("00000000-0000-8000-8000-000000000001:1{side}");
    let _ = world.admin(&["ZADD", LINE, "1", &entry]);
    let _ = world.admin(&["PEXPIRE", LINE, "150000"]);
}

async fn by_default_readers_join_readers_while_a_writer_waits(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = rwlock(&ours).read().await.unwrap();
    let writer = tokio::spawn({
        let lock = rwlock(&theirs);
        async move { lock.write().await.unwrap() }
    });
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
    let writer = tokio::spawn({
        let lock = preferring(&theirs);
        async move { lock.write().await.unwrap() }
    });
    queued(world, 1).await;
    assert!(preferring(&ours).status().await.unwrap().readers_held_off);
    assert!(preferring(&ours).try_read().await.unwrap().is_none());
    let late = tokio::spawn({
        let lock = preferring(&ours);
        async move { lock.read().await.unwrap() }
    });
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
    let writer = tokio::spawn({
        let lock = preferring(&theirs);
        async move { lock.write().await.unwrap() }
    });
    queued(world, 1).await;
    let again = reading.reenter().await.unwrap();
    reading.renew().await.unwrap();
    again.release().await.unwrap();
    reading.release().await.unwrap();
    let writing = writer.await.unwrap();
    // While a second writer waits, the first may read inside its own hold.
    let second = tokio::spawn({
        let lock = preferring(&ours);
        async move { lock.write().await.unwrap() }
    });
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
                "timeout" => lock.write_timeout(Duration::from_millis(1000)).await,
                _ => lock.write().await,
            }
        });
        queued(world, 1).await;
        let late = tokio::spawn({
            let lock = preferring(&ours);
            async move { lock.read().await.unwrap() }
        });
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
        let joined = tokio::time::timeout(Duration::from_millis(1500), late).await;
        drop(joined.expect(way).unwrap());
        queued(world, 0).await;
    }
    drop(reading);
    world.at_rest().await;
}

async fn try_write_does_not_block_readers(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = preferring(&ours).read().await.unwrap();
    assert!(preferring(&theirs).try_write().await.unwrap().is_none());
    assert_eq!(world.admin(&["EXISTS", LINE]), "0");
    drop(
        preferring(&ours)
            .try_read()
            .await
            .unwrap()
            .expect("free to read"),
    );
    drop(reading);
    world.at_rest().await;
}

async fn a_killed_writer_blocks_no_reader(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = preferring(&ours).read().await.unwrap();
    add_killed(world, "");
    let joined = tokio::time::timeout(Duration::from_millis(1500), preferring(&theirs).read());
    drop((reading, joined.await.unwrap().unwrap()));
    world.at_rest().await;
}

async fn a_writer_blocks_readers_for_as_long_as_it_waits(world: &World) {
    let clients = [
        world.client().await,
        world.client().await,
        world.client().await,
    ];
    let reading = preferring(&clients[0]).read().await.unwrap();
    let writer = tokio::spawn({
        let lock = preferring(&clients[1]);
        async move { lock.write().await.unwrap() }
    });
    queued(world, 1).await;
    let late = tokio::spawn({
        let lock = preferring(&clients[2]);
        async move { lock.read().await.unwrap() }
    });
    queued(world, 2).await;
    for _ in 0..15 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        let joined = preferring(&clients[0]).try_read().await.unwrap();
        assert!(joined.is_none() && !late.is_finished());
    }
    drop(reading);
    drop(writer.await.unwrap());
    drop(late.await.unwrap());
    world.at_rest().await;
}

async fn writers_of_several_processes_take_turns_with_readers(world: &World) {
    let clients = [
        world.client().await,
        world.client().await,
        world.client().await,
    ];
    let tasks: Vec<_> = (0..24)
        .map(|i| {
            let lock = preferring(&clients[i % 3]);
            tokio::spawn(async move {
                for round in 0..4 {
                    if (i + round) % 2 == 0 {
                        lock.write().await.unwrap().release().await.unwrap();
                    } else {
                        lock.read().await.unwrap().release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    let all = async {
        for task in tasks {
            task.await.unwrap();
        }
    };
    tokio::time::timeout(Duration::from_secs(30), all)
        .await
        .expect("no task starves");
    world.at_rest().await;
}

async fn a_writer_with_preference_acquires_despite_a_stream_of_readers(world: &World) {
    for preference in [Preference::Writer, Preference::Redisson] {
        let writer_client = world.client().await;
        let done = Arc::new(AtomicBool::new(false));
        let (reads, mut tasks) = (Arc::new(AtomicU32::new(0)), Vec::new());
        for _ in 0..3 {
            // Each reader is in a separate process, so that no local queue orders them. Their holds overlap.
            let lock = rwlock(&world.client().await).preference(preference);
            let (done, reads) = (Arc::clone(&done), Arc::clone(&reads));
            tasks.push(tokio::spawn(async move {
                let mut held = Vec::new();
                while !done.load(SeqCst) {
                    if let Some(reading) = lock.try_read().await.unwrap() {
                        reads.fetch_add(1, SeqCst);
                        held.push(reading);
                    }
                    tokio::time::sleep(Duration::from_millis(20)).await;
                    if held.len() > 3 {
                        held.remove(0).release().await.unwrap();
                    }
                    if preference == Preference::Writer && lock.try_read().await.unwrap().is_none()
                    {
                        // Blocked: the reader's holds come to an end.
                        if !held.is_empty() {
                            held.remove(0).release().await.unwrap();
                        }
                    }
                }
            }));
        }
        stanchion_testkit::eventually("the readers read", || reads.load(SeqCst) > 12).await;
        let lock = rwlock(&writer_client).preference(preference);
        let patience = Duration::from_millis(1500);
        let got_in = lock.write_timeout(patience).await;
        assert_eq!(
            got_in.is_ok(),
            preference == Preference::Writer,
            "{preference:?}: {got_in:?}"
        );
        drop(got_in);
        done.store(true, SeqCst);
        for task in tasks {
            task.await.unwrap();
        }
        world.at_rest().await;
    }
}

async fn alternating_writers_let_a_reader_acquire(world: &World) {
    let done = Arc::new(AtomicBool::new(false));
    let (writes, mut tasks) = (Arc::new(AtomicU32::new(0)), Vec::new());
    for _ in 0..2 {
        let lock = preferring(&world.client().await);
        let (done, writes) = (Arc::clone(&done), Arc::clone(&writes));
        tasks.push(tokio::spawn(async move {
            while !done.load(SeqCst) {
                let writing = lock.write().await.unwrap();
                writes.fetch_add(1, SeqCst);
                // Long enough for the other writer to wait.
                tokio::time::sleep(Duration::from_millis(30)).await;
                writing.release().await.unwrap();
            }
        }));
    }
    stanchion_testkit::eventually("the writers alternate", || writes.load(SeqCst) > 6).await;
    let readers = [world.client().await, world.client().await];
    for round in 0..6 {
        let before = writes.load(SeqCst);
        let lock = preferring(&readers[round % 2]);
        let reading = lock
            .read_timeout(Duration::from_secs(10))
            .await
            .expect("a reader has its turn");
        let passed = writes.load(SeqCst) - before;
        assert!(passed <= 4, "{passed} writers overtook the reader");
        reading.release().await.unwrap();
    }
    // Each is released at once: a writer may come between the two.
    let [one, other] = readers.each_ref().map(preferring);
    let pass = async |lock: RwLock| lock.read().await.unwrap().release().await.unwrap();
    tokio::join!(pass(one), pass(other));
    done.store(true, SeqCst);
    for task in tasks {
        task.await.unwrap();
    }
    world.at_rest().await;
}

async fn a_reader_that_stops_waiting_does_not_block_writers(world: &World) {
    let clients = [
        world.client().await,
        world.client().await,
        world.client().await,
    ];
    let first = preferring(&clients[0]).write().await.unwrap();
    let reader = tokio::spawn({
        let lock = preferring(&clients[1]);
        async move { lock.read().await }
    });
    queued(world, 1).await;
    reader.abort();
    queued(world, 0).await;
    let second = tokio::spawn({
        let lock = preferring(&clients[2]);
        async move { lock.write().await.unwrap() }
    });
    first.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn a_killed_reader_blocks_no_writer(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let first = preferring(&ours).write().await.unwrap();
    let second = tokio::spawn({
        let lock = preferring(&theirs);
        async move { lock.write().await.unwrap() }
    });
    queued(world, 1).await;
    add_killed(world, "R");
    first.release().await.unwrap();
    let second = tokio::time::timeout(Duration::from_millis(1000), second).await;
    second.unwrap().unwrap().release().await.unwrap();
    world.at_rest().await;
}
