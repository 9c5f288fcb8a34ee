//! Tests `Preference::Writer`: a waiting writer blocks new readers, and readers and writers take turns.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering::SeqCst};
use std::time::Duration;

use stanchion::rwlock::Preference;
use stanchion::{AcquireError, Client, RwLock};
use stanchion_testkit::eventually_async;
use stanchion_tests::World;

use super::{CHANNEL, rwlock};

const MARK: &str = "stanchion_rwlock_writer:{job}";
const TURN: &str = "stanchion_rwlock_turn:{job}";

suite! {
    by_default_a_waiting_writer_leaves_no_mark_and_readers_acquire,
    by_default_a_reader_ignores_a_mark,
    a_waiting_writer_blocks_new_readers,
    a_holder_may_re_enter_and_renew_while_a_writer_waits,
    a_writer_that_stops_waiting_unblocks_readers,
    try_write_does_not_block_readers,
    a_dead_writer_blocks_readers_for_its_grace_at_most,
    a_mark_lasts_as_long_as_its_writer_waits,
    writers_of_several_processes_take_turns_with_readers,
    a_writer_with_preference_acquires_despite_a_stream_of_readers,
    alternating_writers_let_a_reader_acquire,
    a_reader_that_stops_waiting_does_not_block_writers,
    a_dead_reader_blocks_writers_for_its_grace_at_most,
}

fn preferring(client: &Client) -> RwLock {
    rwlock(client).with_preference(Preference::Writer)
}

async fn marked(world: &World) {
    eventually_async("a writer blocks readers", async || {
        world.admin(&["EXISTS", MARK]) == "1"
    })
    .await;
}

async fn by_default_a_waiting_writer_leaves_no_mark_and_readers_acquire(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = rwlock(&ours).read().await.unwrap();
    let writer = tokio::spawn({
        let lock = rwlock(&theirs);
        async move { lock.write().await.unwrap() }
    });
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    assert_eq!(world.admin(&["EXISTS", MARK]), "0");
    assert!(!rwlock(&ours).status().await.unwrap().readers_held_off);
    let joined = rwlock(&ours).read().await.unwrap();
    drop((reading, joined));
    drop(writer.await.unwrap());
    world.at_rest().await;
}

async fn by_default_a_reader_ignores_a_mark(world: &World) {
    let client = world.client().await;
    let _ = world.admin(&["SET", MARK, "elsewhere:1:write", "PX", "60000"]);
    assert!(preferring(&client).try_read().await.unwrap().is_none());
    let reading = rwlock(&client).try_read().await.unwrap().unwrap();
    reading.release().await.unwrap();
    // A mark does not block a writer with preference, and a writer does not remove another writer's mark.
    let writing = preferring(&client).write().await.unwrap();
    assert_eq!(world.admin(&["GET", MARK]), "elsewhere:1:write");
    writing.release().await.unwrap();
    let _ = world.admin(&["DEL", MARK]);
    world.at_rest().await;
}

async fn a_waiting_writer_blocks_new_readers(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = preferring(&ours).read().await.unwrap();
    let writer = tokio::spawn({
        let lock = preferring(&theirs);
        async move { lock.write().await.unwrap() }
    });
    marked(world).await;
    assert!(preferring(&ours).status().await.unwrap().readers_held_off);
    assert!(preferring(&ours).try_read().await.unwrap().is_none());
    let late = tokio::spawn({
        let lock = preferring(&ours);
        async move { lock.read().await.unwrap() }
    });
    world.quiet().await;
    reading.release().await.unwrap();
    let writing = writer.await.unwrap();
    assert_eq!(
        world.admin(&["EXISTS", MARK]),
        "0",
        "a granted writer removes its mark"
    );
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
    marked(world).await;
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
    marked(world).await;
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
                "timeout" => lock.write_timeout(Duration::from_millis(400)).await,
                _ => lock.write().await,
            }
        });
        marked(world).await;
        let late = tokio::spawn({
            let lock = preferring(&ours);
            async move { lock.read().await.unwrap() }
        });
        world.quiet().await;
        match way {
            "timeout" => {
                let error = writer.await.unwrap().unwrap_err();
                assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
            }
            _ => {
                assert!(!late.is_finished(), "the writer does not block the reader");
                writer.abort();
            }
        }
        // Woken by message: before the grace of 2 s, which began with the writer's request, and before the poll interval of 5 s.
        let joined = tokio::time::timeout(Duration::from_millis(1500), late).await;
        drop(joined.expect(way).unwrap());
        assert_eq!(world.admin(&["EXISTS", MARK]), "0", "{way}");
    }
    drop(reading);
    world.at_rest().await;
}

async fn try_write_does_not_block_readers(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = preferring(&ours).read().await.unwrap();
    assert!(preferring(&theirs).try_write().await.unwrap().is_none());
    assert_eq!(world.admin(&["EXISTS", MARK]), "0");
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

async fn a_dead_writer_blocks_readers_for_its_grace_at_most(world: &World) {
    let client = world.client().await;
    // The mark of a writer whose process was killed while it waited.
    let _ = world.admin(&["SET", MARK, "dead:1:write", "PX", "2000"]);
    let started = client.now();
    drop(preferring(&client).read().await.unwrap());
    let waited = client.now().since(started);
    assert!(waited > Duration::from_millis(1500), "{waited:?}");
    assert!(waited < Duration::from_millis(4500), "{waited:?}");
    world.at_rest().await;
}

async fn a_mark_lasts_as_long_as_its_writer_waits(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let reading = preferring(&ours).read().await.unwrap();
    let writer = tokio::spawn({
        let lock = preferring(&theirs);
        async move { lock.write().await.unwrap() }
    });
    marked(world).await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(400)).await;
        assert_eq!(world.admin(&["EXISTS", MARK]), "1");
    }
    drop(reading);
    drop(writer.await.unwrap());
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
            let lock = rwlock(&world.client().await).with_preference(preference);
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
        let lock = rwlock(&writer_client).with_preference(preference);
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
    // Readers of two processes hold together.
    let [one, other] = readers.each_ref().map(preferring);
    let (one, other) = tokio::join!(one.read(), other.read());
    drop((one.unwrap(), other.unwrap()));
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
    eventually_async("the call waits", async || {
        world.admin(&["GET", TURN]).starts_with('.')
    })
    .await;
    // The mark of another writer blocks the reader in its turn.
    let _ = world.admin(&["SET", MARK, "elsewhere:1:write", "PX", "60000"]);
    reader.abort();
    eventually_async("the reader removes its turn", async || {
        world.admin(&["EXISTS", TURN]) == "0"
    })
    .await;
    let _ = world.admin(&["DEL", MARK]);
    let second = tokio::spawn({
        let lock = preferring(&clients[2]);
        async move { lock.write().await.unwrap() }
    });
    first.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

async fn a_dead_reader_blocks_writers_for_its_grace_at_most(world: &World) {
    let client = world.client().await;
    // The turn of a reader that was killed before it acquired.
    let _ = world.admin(&["SET", TURN, "!dead:1", "PX", "2000"]);
    assert!(preferring(&client).try_write().await.unwrap().is_none());
    let started = client.now();
    let writing = preferring(&client).write().await.unwrap();
    let waited = client.now().since(started);
    assert!(waited > Duration::from_millis(1500), "{waited:?}");
    assert!(waited < Duration::from_millis(4500), "{waited:?}");
    writing.release().await.unwrap();
    // By default the turn is ignored.
    let _ = world.admin(&["SET", TURN, "!dead:1", "PX", "60000"]);
    rwlock(&client)
        .write()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let _ = world.admin(&["DEL", TURN]);
    world.at_rest().await;
}
