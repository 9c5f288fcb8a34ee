//! Tests the read-write lock: many readers or one writer, and an owner that holds both sides.

mod downgrade;
mod expiry;
mod input;
mod java;
mod preference;
mod waiting;

use stanchion::{AcquireError, AcquireOptions, Client, Rejection, RwLock};
use stanchion_tests::{World, secs, spawn_ok};

const CHANNEL: &str = "redisson_rwlock:{job}";

suite! {
    readers_hold_together_and_leave_nothing,
    a_writer_acquires_a_nested_read_hold_at_once,
    a_writer_that_releases_its_write_hold_keeps_its_read_hold,
    a_writer_that_reads_may_re_enter_its_write_hold,
    a_reader_that_acquires_a_write_hold_is_refused_at_once,
    status_shows_the_holders,
    status_lists_a_thousand_readers_at_most,
}

fn rwlock(client: &Client) -> RwLock {
    RwLock::new(client, "job").unwrap()
}

async fn readers_hold_together_and_leave_nothing(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = rwlock(&ours);
    let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
    let third = rwlock(&theirs).try_read().await.unwrap().unwrap();
    assert!(rwlock(&theirs).try_write().await.unwrap().is_none());
    assert_ne!(first.owner(), second.owner());
    assert_eq!(lock.status().await.unwrap().reader_count, 3);
    first.release().await.unwrap();
    third.release().await.unwrap();
    assert!(rwlock(&theirs).try_write().await.unwrap().is_none());
    second.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn a_writer_acquires_a_nested_read_hold_at_once(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = rwlock(&ours);
    let owner = ours.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let writing = lock.write_with(options()).await.unwrap();
    // Another writer of the same process waits. The nested read must not queue behind it, which would be a deadlock.
    let acquire = lock.write();
    let rival = tokio::spawn(async move { acquire.await.unwrap().release().await.unwrap() });
    stanchion_testkit::eventually("the rival waits", || ours.waiters() == 1).await;
    let reading = lock.read_with(options().timeout(secs(2))).await.unwrap();
    let again = lock.try_read_with(options()).await.unwrap().unwrap();
    let status = lock.status().await.unwrap();
    assert_eq!(status.writer.as_ref().map(|w| w.hold_count), Some(1));
    assert_eq!(status.readers.len(), 1);
    assert_eq!(status.readers[0].hold_count, 2);
    assert!(rwlock(&theirs).try_read().await.unwrap().is_none());
    drop(again);
    reading.release().await.unwrap();
    assert!(writing.is_held());
    writing.renew().await.unwrap();
    assert!(rwlock(&theirs).try_read().await.unwrap().is_none());
    writing.release().await.unwrap();
    rival.await.unwrap();
    world.at_rest().await;
}

async fn a_writer_that_releases_its_write_hold_keeps_its_read_hold(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = rwlock(&ours);
    let writing = lock.write().await.unwrap();
    let options = AcquireOptions::new().owner(writing.owner());
    let reading = lock.read_with(options).await.unwrap();
    let waiting = spawn_ok(rwlock(&theirs).read());
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    writing.release().await.unwrap();
    // Redisson publishes nothing here. Our release must, or the waiting reader sleeps until its poll.
    let other = tokio::time::timeout(secs(2), waiting)
        .await
        .expect("the reader is woken")
        .unwrap();
    assert!(reading.is_held());
    reading.renew().await.unwrap();
    assert!(rwlock(&theirs).try_write().await.unwrap().is_none());
    reading.release().await.unwrap();
    other.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn a_writer_that_reads_may_re_enter_its_write_hold(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let owner = client.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let writing = lock.write_with(options()).await.unwrap();
    let reading = lock.read_with(options()).await.unwrap();
    let again = lock.write_with(options()).await.unwrap();
    assert_eq!(lock.status().await.unwrap().writer.unwrap().hold_count, 2);
    drop((writing, reading, again));
    world.at_rest().await;
}

async fn a_reader_that_acquires_a_write_hold_is_refused_at_once(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let reading = lock.read().await.unwrap();
    let before = world.scripts_run();
    let owner = reading.owner().clone();
    let options = || AcquireOptions::new().owner(&owner);
    for refused in [
        lock.write_with(options()).await.map(drop),
        lock.try_write_with(options()).await.map(drop),
    ] {
        let error = refused.unwrap_err();
        let AcquireError::Rejected { rejection, .. } = &error else {
            panic!("{error}");
        };
        assert!(
            matches!(rejection, Rejection::AlreadyHeld { .. }),
            "{error}"
        );
        let text = error.to_string();
        assert!(text.contains("would wait for itself"), "{text}");
        assert!(text.contains("release the read hold first"), "{text}");
    }
    // A client on a server may write its record meanwhile.
    if let World::Engine(_) = world {
        assert_eq!(world.scripts_run(), before, "nothing was sent");
    }
    reading.release().await.unwrap();
    // The refusal has no later effect.
    let writing = lock.write_with(options()).await.unwrap();
    writing.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn status_shows_the_holders(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let free = lock.status().await.unwrap();
    assert!(!free.is_held() && free.remaining.is_none());
    let reading = lock.read().await.unwrap();
    let status = lock.status().await.unwrap();
    assert_eq!(status.writer, None);
    assert_eq!(status.readers[0].owner, reading.owner().to_string());
    assert!(status.remaining.unwrap() > secs(20));
    reading.release().await.unwrap();
    let writing = lock.write().await.unwrap();
    let status = lock.status().await.unwrap();
    assert_eq!(
        status.writer.as_ref().map(|writer| writer.owner.clone()),
        Some(writing.owner().to_string())
    );
    assert_eq!((status.reader_count, status.readers.len()), (0, 0));
    assert!(status.last_token.is_some() && status.last_token == writing.fencing_token());
    writing.release().await.unwrap();
    let unfenced = lock.fencing(stanchion::Fencing::Off).write().await.unwrap();
    assert_eq!(unfenced.fencing_token(), None);
    unfenced.release().await.unwrap();
    world.at_rest().await;
}

async fn status_lists_a_thousand_readers_at_most(world: &World) {
    let lock = rwlock(&world.client().await);
    let mut command = vec![
        "HSET".to_owned(),
        "job".into(),
        "mode".into(),
        "read".into(),
    ];
    for n in 0..1500 {
        command.extend([format!("u:{n}"), "1".into()]);
    }
    let command: Vec<&str> = command.iter().map(String::as_str).collect();
    let _ = world.admin(&command);
    let _ = world.admin(&["PEXPIRE", "job", "30000"]);
    let status = lock.status().await.unwrap();
    assert_eq!((status.reader_count, status.readers.len()), (1500, 1000));
    let _ = world.admin(&["DEL", "job"]);
}
