//! `RReadWriteLock` and `RwLock`: many readers of both libraries, or one writer of either.
//!
//! Long: one suite over one set-up.

use serde_json::json;
use stanchion::{AcquireOptions, Client, ReadGuard, Rejection, RwLock, WriteGuard};
use stanchion_testkit::{eventually, machine_clock};
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind};
use stanchion_tests::rejection_of;
use tokio::task::JoinHandle;

const CHANNEL: &str = "redisson_rwlock:{book}";
const TTL: u64 = 1500;

fn book(client: &Client) -> RwLock {
    RwLock::new(client, "book").unwrap().lease(lease(LONG))
}

fn reading(lock: &RwLock) -> JoinHandle<Result<ReadGuard, stanchion::AcquireError>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.read().await })
}

fn writing(lock: &RwLock) -> JoinHandle<Result<WriteGuard, stanchion::AcquireError>> {
    let lock = lock.clone();
    tokio::spawn(async move { lock.write().await })
}

#[tokio::test]
async fn a_java_writer_wakes_all_our_readers_at_once() {
    let Some(fleet) = fleet().await else { return };
    let java = fleet.java("writer", Kind::Write, "book");
    java.done("lock").await;
    let (here, there) = (book(&fleet.rust().await), book(&fleet.rust().await));
    let waiters = [reading(&here), reading(&here), reading(&there)];
    fleet.waiting(CHANNEL, 2).await;
    java.done("unlock").await;
    let mut together = Vec::new();
    for waiter in waiters {
        together.push(granted(waiter, SOON).await);
    }
    assert_eq!(
        fleet.int(&["HLEN", "book"]),
        4,
        "three readers and the mode"
    );
    for guard in together {
        guard.release().await.unwrap();
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_writer_wakes_all_java_readers_at_once() {
    let Some(fleet) = fleet().await else { return };
    let guard = book(&fleet.rust().await).write().await.unwrap();
    let readers = ["one", "two", "three"].map(|actor| fleet.java(actor, Kind::Read, "book"));
    let waiters = readers.each_ref().map(|java| java.start("lock", json!({})));
    fleet.waiting(CHANNEL, 1).await;
    guard.release().await.unwrap();
    for waiter in waiters {
        java_granted(waiter, SOON).await;
    }
    assert_eq!(
        fleet.int(&["HLEN", "book"]),
        4,
        "three readers and the mode"
    );
    for java in readers {
        java.done("unlock").await;
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn writers_wait_for_the_last_reader_of_either_language() {
    let Some(fleet) = fleet().await else { return };
    let lock = book(&fleet.rust().await);
    let (reader, writer) = (
        fleet.java("reader", Kind::Read, "book"),
        fleet.java("writer", Kind::Write, "book"),
    );

    // Our reader keeps its hold when a Java reader unlocks, because Redisson checks our hold key.
    reader.done("lock").await;
    let ours = lock.read().await.unwrap();
    let mut waiter = writer.start("lock", json!({}));
    fleet.waiting(CHANNEL, 1).await;
    reader.done("unlock").await;
    assert!(
        fleet.int(&["PTTL", "book"]) > 20_000,
        "as long as our lease"
    );
    fleet.quiet().await;
    assert!(waiter.is_waiting());
    assert!(ours.is_held());
    ours.release().await.unwrap();
    java_granted(waiter, SOON).await;
    writer.done("unlock").await;

    // A Java reader keeps its hold when our reader releases.
    reader.done("lock").await;
    reader.done("lock").await;
    let ours = lock.read().await.unwrap();
    let waiter = writing(&lock);
    fleet.waiting(CHANNEL, 1).await;
    ours.release().await.unwrap();
    reader.done("unlock").await;
    assert!(
        fleet.int(&["PTTL", "book"]) > 20_000,
        "as long as Java's lease"
    );
    fleet.quiet().await;
    assert!(!waiter.is_finished());
    assert_eq!(reader.done("holdCount").await.int(), 1);
    reader.done("unlock").await;
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn one_hold_key_keeps_two_of_our_read_holds() {
    let Some(fleet) = fleet().await else { return };
    let lock = book(&fleet.rust().await);
    let reader = fleet.java("reader", Kind::Read, "book");
    for _ in 0..3 {
        reader.done("lock").await;
    }
    let first = lock.read().await.unwrap();
    let second = first.reenter().await.unwrap();
    let mut counts: Vec<u32> = lock
        .status()
        .await
        .unwrap()
        .readers
        .iter()
        .map(|h| h.hold_count)
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [2, 3]);
    // Redisson checks for one hold key per hold. Our two holds have one key, which suffices.
    for _ in 0..3 {
        reader.done("unlock").await;
    }
    assert!(
        fleet
            .java("writer", Kind::Write, "book")
            .done("try")
            .await
            .value()
            == false
    );
    first.release().await.unwrap();
    assert!(second.is_held());
    assert!(
        fleet
            .java("onlooker", Kind::Read, "book")
            .done("isLocked")
            .await
            .bool()
    );
    second.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_downgrade_admits_java_readers_and_no_writer() {
    let Some(fleet) = fleet().await else { return };
    let guard = book(&fleet.rust().await).write().await.unwrap();
    let reader = fleet.java("reader", Kind::Read, "book");
    let waiter = reader.start("lock", json!({}));
    fleet.waiting(CHANNEL, 1).await;
    let ours = guard.downgrade().await.unwrap();
    java_granted(waiter, SOON).await;
    let writer = fleet.java("writer", Kind::Write, "book");
    assert!(!writer.done("try").await.bool());
    ours.release().await.unwrap();
    assert!(!writer.done("try").await.bool(), "Java still reads");
    reader.done("unlock").await;
    assert!(writer.done("try").await.bool());
    writer.done("unlock").await;
    fleet.at_rest().await;
}

/// Redisson publishes nothing when a writer becomes a reader. Behind a holder of Redisson our readers poll once a second (L9).
#[tokio::test]
async fn a_poll_finds_a_java_downgrade() {
    let Some(fleet) = fleet().await else { return };
    let actor = fleet.java.actor("java");
    let (write, read) = (
        actor.object(Kind::Write, "book"),
        actor.object(Kind::Read, "book"),
    );
    write.done("lock").await;
    read.done("lock").await;
    let waiters = [
        reading(&book(&fleet.rust_polling(ms(200)).await)),
        reading(&book(&fleet.rust().await)),
    ];
    fleet.waiting(CHANNEL, 2).await;
    write.done("unlock").await;
    let mut ours = Vec::new();
    for waiter in waiters {
        ours.push(granted(waiter, SOON).await);
    }
    assert_eq!(read.done("holdCount").await.int(), 1);
    read.done("unlock").await;
    for guard in ours {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_writer_may_read_and_java_sees_both() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let (lock, owner) = (book(&client), client.owner());
    let as_owner = || AcquireOptions::new().owner(&owner);
    let write = lock.write_with(as_owner()).await.unwrap();
    let read = lock.read_with(as_owner()).await.unwrap();
    let (reader, writer) = (
        fleet.java("reader", Kind::Read, "book"),
        fleet.java("writer", Kind::Write, "book"),
    );
    assert!(writer.done("isLocked").await.bool());
    assert!(
        reader.done("isLocked").await.bool(),
        "a read inside the write"
    );
    assert!(!reader.done("try").await.bool());
    write.release().await.unwrap();
    assert!(
        reader.done("try").await.bool(),
        "it reads on, and so may Java"
    );
    assert!(!writer.done("try").await.bool());
    reader.done("unlock").await;
    assert!(
        !writer.done("try").await.bool(),
        "Java's unlock left our hold"
    );
    read.release().await.unwrap();
    fleet.at_rest().await;
}

/// The field of a dead Java reader stays in the hash while others renew the lock. Our release does not count it.
#[tokio::test]
async fn a_dead_java_reader_does_not_outlive_our_release() {
    let Some(jvm) = Jvm::start() else { return };
    let Some(server) = server() else { return };
    let java = connect(&jvm, &server, json!({"watchdog": TTL})).await;
    let fleet = Fleet { java, server };
    let lock = book(&fleet.rust().await);
    let reader = fleet.java("reader", Kind::Read, "book");
    let owner = fleet.java.owner(&reader.done("lock").await);
    // Our lease is not longer than Redisson's: its renewal would cut a longer one, and the lock could expire with the Java reader.
    let ours = lock.lease(lease(ms(TTL))).read().await.unwrap();
    let waiter = writing(&book(&fleet.rust().await));
    fleet.waiting(CHANNEL, 1).await;
    jvm.kill();
    let key = format!("{{book}}:{owner}:rwlock_timeout:1");
    eventually("the dead reader's lease runs out", || {
        fleet.int(&["EXISTS", &key]) == 0
    })
    .await;
    assert!(!waiter.is_finished(), "we still read");
    ours.release().await.unwrap();
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

/// Redisson renews by setting the TTL of the whole lock, which cuts a longer lease of our reader. Java's unlock restores it. Leases up to
/// Redisson's watchdog timeout, the default of both libraries, are not cut.
#[tokio::test]
async fn a_java_watchdog_cuts_longer_read_leases_and_spares_shorter_ones() {
    let Some(jvm) = Jvm::start() else { return };
    let Some(server) = server() else { return };
    let java = connect(&jvm, &server, json!({"watchdog": TTL})).await;
    let fleet = Fleet { java, server };
    let lock = book(&fleet.rust().await);
    let java = fleet.java("reader", Kind::Read, "book");
    java.done("lock").await;
    let long = lock.read().await.unwrap();
    assert!(fleet.int(&["PTTL", "book"]) > 20_000);
    eventually("Redisson's renewal cuts the lease", || {
        fleet.int(&["PTTL", "book"]) <= i64::try_from(TTL).unwrap()
    })
    .await;
    java.done("unlock").await;
    assert!(fleet.int(&["PTTL", "book"]) > 15_000, "restored");
    long.release().await.unwrap();

    java.done("lock").await;
    let short = lock.lease(lease(ms(TTL))).read().await.unwrap();
    fleet.quiet().await;
    jvm.kill();
    let killed = machine_clock();
    let other = book(&fleet.rust().await);
    while machine_clock() - killed < ms(2 * TTL) {
        assert!(other.try_write().await.unwrap().is_none(), "P1");
        assert!(short.is_held());
        tokio::time::sleep(ms(20)).await;
    }
    short.release().await.unwrap();
    fleet.at_rest().await;
}

/// Redisson stops renewing a writer that has read inside its write. At its TTL our waiter is granted, and Java's unlock fails.
#[tokio::test]
async fn our_waiter_outwaits_a_java_writer_that_is_no_longer_renewed() {
    let Some(jvm) = Jvm::shared() else { return };
    let Some(server) = server() else { return };
    let java = connect(&jvm, &server, json!({"watchdog": TTL})).await;
    let fleet = Fleet { java, server };
    let actor = fleet.java.actor("java");
    let (write, read) = (
        actor.object(Kind::Write, "book"),
        actor.object(Kind::Read, "book"),
    );
    write.done("lock").await;
    read.done("lock").await;
    read.done("unlock").await;
    let waiter = writing(&book(&fleet.rust().await));
    let guard = granted(waiter, ms(2 * TTL) + SLACK).await;
    assert_eq!(
        write.call("unlock").await.error(),
        "IllegalMonitorStateException"
    );
    assert!(guard.is_held());
    guard.release().await.unwrap();
    fleet.at_rest().await;
}

/// In Redisson a reader that upgrades waits for itself. In this library the call is rejected.
#[tokio::test]
async fn upgrades_are_rejected_here_and_hang_in_redisson() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    let (lock, owner) = (book(&client), client.owner());
    let as_owner = || AcquireOptions::new().owner(&owner);
    let read = lock.read_with(as_owner()).await.unwrap();
    let refused = lock.write_with(as_owner()).await.unwrap_err();
    assert!(
        matches!(rejection_of(&refused), Rejection::AlreadyHeld { .. }),
        "{refused}"
    );
    read.release().await.unwrap();
    let actor = fleet.java.actor("java");
    let reader = actor.object(Kind::Read, "book");
    reader.done("lock").await;
    let upgrade = actor
        .object(Kind::Write, "book")
        .with("try", json!({"wait": 300}))
        .await;
    assert!(!upgrade.bool());
    reader.done("unlock").await;
    fleet.at_rest().await;
}
