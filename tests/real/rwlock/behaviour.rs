//! Tests the read-write lock: many readers or one writer, and an owner that holds both sides.

mod downgrade;
mod expiry;
mod input;
mod java;
mod preference;
mod waiting;

use std::time::Duration;

use stanchion::{
    AcquireError, AcquireOptions, Client, Lease, Rejection, ReleaseError, RenewError, RwLock,
};
use stanchion_tests::World;

const CHANNEL: &str = "redisson_rwlock:{job}";

suite! {
    readers_hold_together_and_leave_nothing,
    a_writer_excludes_readers_and_writers,
    dropped_guards_are_released,
    a_timeout_leaves_nothing,
    a_zero_timeout_tries_once,
    tokens_of_writers_grow,
    re_entry_counts_on_both_sides,
    a_writer_acquires_a_nested_read_hold_at_once,
    a_writer_that_releases_its_write_hold_keeps_its_read_hold,
    a_writer_that_reads_may_re_enter_its_write_hold,
    a_reader_that_acquires_a_write_hold_is_refused_at_once,
    different_owners_exclude_each_other,
    status_shows_the_holders,
    status_lists_a_thousand_readers_at_most,
    force_release_frees_the_lock_and_old_holders_cannot_release_it,
    sixty_four_tasks_never_overlap,
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

async fn a_writer_excludes_readers_and_writers(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let writing = rwlock(&ours).write().await.unwrap();
    for lock in [rwlock(&ours), rwlock(&theirs)] {
        assert!(lock.try_read().await.unwrap().is_none());
        assert!(lock.try_write().await.unwrap().is_none());
    }
    writing.release().await.unwrap();
    assert!(world.keys().is_empty());
    assert!(rwlock(&theirs).try_write().await.unwrap().is_some());
}

async fn dropped_guards_are_released(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    drop((lock.read().await.unwrap(), lock.read().await.unwrap()));
    drop(lock.write().await.unwrap());
    world.at_rest().await;
    assert_eq!(client.shutdown(Duration::from_secs(5)).await.unfinished, 0);
}

async fn a_timeout_leaves_nothing(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let patience = Duration::from_millis(100);
    let reading = rwlock(&ours).read().await.unwrap();
    let error = rwlock(&theirs).write_timeout(patience).await.unwrap_err();
    let is_clean =
        |error: &AcquireError| matches!(error, AcquireError::TimedOut { free_by: None, .. });
    assert!(is_clean(&error), "{error}");
    reading.release().await.unwrap();
    let writing = rwlock(&ours).write().await.unwrap();
    let error = rwlock(&theirs).read_timeout(patience).await.unwrap_err();
    assert!(is_clean(&error), "{error}");
    assert_eq!(theirs.waiters(), 0);
    writing.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn a_zero_timeout_tries_once(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = rwlock(&theirs);
    lock.write_timeout(Duration::ZERO)
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    let reading = rwlock(&ours).read().await.unwrap();
    drop(lock.read_timeout(Duration::ZERO).await.unwrap());
    let error = lock.write_timeout(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
    drop(reading);
    world.at_rest().await;
}

async fn tokens_of_writers_grow(world: &World) {
    let lock = rwlock(&world.client().await);
    let mut last = None;
    for round in 0..6 {
        let writing = lock.write().await.unwrap();
        assert!(writing.fencing_token() > last);
        last = writing.fencing_token();
        let again = writing.reenter().await.unwrap();
        assert_eq!(again.fencing_token(), last);
        drop(again);
        writing.release().await.unwrap();
        if round == 2 {
            let _ = world.admin(&["FLUSHALL"]);
            // Without its counter the next token is the server's time, which must advance.
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
        lock.read().await.unwrap().release().await.unwrap();
    }
    assert_eq!(lock.status().await.unwrap().last_token, last);
    let unfenced = lock.fencing(stanchion::Fencing::Off);
    assert_eq!(unfenced.write().await.unwrap().fencing_token(), None);
    world.at_rest().await;
}

async fn re_entry_counts_on_both_sides(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let owner = client.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let first = lock.read_with(options()).await.unwrap();
    let second = first.reenter().await.unwrap();
    let third = lock.try_read_with(options()).await.unwrap().unwrap();
    let count = async || lock.status().await.unwrap().readers[0].hold_count;
    assert_eq!(count().await, 3);
    first.release().await.unwrap();
    assert_eq!(count().await, 2);
    drop((second, third));
    world.at_rest().await;

    let first = lock.write_with(options()).await.unwrap();
    let second = lock.write_with(options()).await.unwrap();
    let third = second.reenter().await.unwrap();
    let count = async || lock.status().await.unwrap().writer.unwrap().hold_count;
    assert_eq!(count().await, 3);
    third.release().await.unwrap();
    first.release().await.unwrap();
    assert_eq!(count().await, 1);
    assert!(lock.try_read().await.unwrap().is_none());
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
    let rival = tokio::spawn({
        let lock = lock.clone();
        async move { lock.write().await.unwrap().release().await.unwrap() }
    });
    stanchion_testkit::eventually("the rival waits", || ours.waiters() == 1).await;
    let reading = lock
        .read_with(options().timeout(Duration::from_secs(2)))
        .await
        .unwrap();
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
    let waiting = tokio::spawn({
        let lock = rwlock(&theirs);
        async move { lock.read().await.unwrap() }
    });
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    writing.release().await.unwrap();
    // Redisson publishes nothing here. Our release must, or the waiting reader sleeps until its poll.
    let other = tokio::time::timeout(Duration::from_secs(2), waiting)
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
    assert_eq!(world.scripts_run(), before, "nothing was sent");
    reading.release().await.unwrap();
    // The refusal has no later effect.
    let writing = lock.write_with(options()).await.unwrap();
    writing.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn different_owners_exclude_each_other(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client);
    let (ours, theirs) = (client.owner(), client.owner());
    let as_owner = |owner| AcquireOptions::new().owner(owner);
    let writing = lock.write_with(as_owner(&ours)).await.unwrap();
    assert!(
        lock.try_read_with(as_owner(&theirs))
            .await
            .unwrap()
            .is_none()
    );
    assert!(
        lock.try_write_with(as_owner(&theirs))
            .await
            .unwrap()
            .is_none()
    );
    // A read hold on another name is independent.
    let elsewhere = RwLock::new(&client, "elsewhere").unwrap();
    let reading = elsewhere.read_with(as_owner(&ours)).await.unwrap();
    drop((reading, writing));
    world.at_rest().await;
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
    assert!(status.remaining.unwrap() > Duration::from_secs(20));
    reading.release().await.unwrap();
    let writing = lock.write().await.unwrap();
    let status = lock.status().await.unwrap();
    assert_eq!(
        status.writer.as_ref().map(|writer| writer.owner.clone()),
        Some(writing.owner().to_string())
    );
    assert_eq!((status.reader_count, status.readers.len()), (0, 0));
    assert_eq!(status.last_token, writing.fencing_token());
    writing.release().await.unwrap();
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

async fn force_release_frees_the_lock_and_old_holders_cannot_release_it(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = rwlock(&ours);
    assert!(!lock.danger().force_release().await.unwrap());
    // A forced release leaves the reader's other keys, which end with its lease.
    let lease = Lease::new(Duration::from_secs(2)).unwrap();
    let reading = lock.clone().lease(lease).read().await.unwrap();
    let waiting = tokio::spawn({
        let lock = rwlock(&theirs);
        async move { lock.write().await.unwrap() }
    });
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    assert!(lock.danger().force_release().await.unwrap());
    let writing = waiting.await.unwrap();
    let error = reading.reenter().await.unwrap_err();
    assert!(matches!(error, RenewError::Lost(_)), "{error}");
    assert!(matches!(
        reading.release().await,
        Err(ReleaseError::Lost(_))
    ));
    let owner = writing.owner().to_string();
    assert_eq!(lock.status().await.unwrap().writer.unwrap().owner, owner);
    assert!(lock.danger().force_release().await.unwrap());
    assert!(matches!(
        writing.release().await,
        Err(ReleaseError::Lost(_))
    ));
    world.at_rest().await;
}

async fn sixty_four_tasks_never_overlap(world: &World) {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::SeqCst};
    /// The increment of a writer; a reader adds one.
    const WRITER: u32 = 1000;
    let clients = [world.client().await, world.client().await];
    let inside = Arc::new(AtomicU32::new(0));
    let together = Arc::new(AtomicU32::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|i| {
            let lock = rwlock(&clients[i % 2]);
            let (inside, together) = (Arc::clone(&inside), Arc::clone(&together));
            tokio::spawn(async move {
                for round in 0..4 {
                    if (i / 2 + round) % 4 == 0 {
                        let writing = lock.write().await.unwrap();
                        assert_eq!(inside.fetch_add(WRITER, SeqCst), 0);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(WRITER, SeqCst);
                        writing.release().await.unwrap();
                    } else {
                        let reading = lock.read().await.unwrap();
                        let others = inside.fetch_add(1, SeqCst);
                        assert!(others < WRITER);
                        together.fetch_max(others + 1, SeqCst);
                        tokio::task::yield_now().await;
                        inside.fetch_sub(1, SeqCst);
                        reading.release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }
    assert!(together.load(SeqCst) > 1, "no two readers held at once");
    world.at_rest().await;
}
