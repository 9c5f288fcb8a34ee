//! `RReadWriteLock` and `RwLock`: many readers of both languages, or one writer of either.
//!
//! Long: one suite over one set-up.

use serde_json::json;
use stanchion::{
    AcquireOptions, Client, LostReason, ReadGuard, Rejection, Renewal, RwLock, WriteGuard,
};
use stanchion_testkit::{Signal, eventually, machine_clock};
use tokio::task::JoinHandle;

use crate::java::{Jvm, Kind};
use crate::support::*;

const CHANNEL: &str = "redisson_rwlock:{book}";
const TTL: u64 = 1500;

fn book(client: &Client) -> RwLock {
    RwLock::new(client, "book").unwrap().with_lease(lease(LONG))
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
async fn a_java_writer_lets_all_our_readers_in_at_once() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
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
async fn our_writer_lets_all_java_readers_in_at_once() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
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
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let lock = book(&fleet.rust().await);
    let (reader, writer) = (
        fleet.java("reader", Kind::Read, "book"),
        fleet.java("writer", Kind::Write, "book"),
    );

    // Ours outlives a Java reader's unlock: that one looks for our hold key.
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

    // And a Java reader outlives our release.
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
async fn hold_counts_are_read_by_the_other_side() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
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
    // Redisson looks for a hold key of each of our two holds; there is one, and it is enough.
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

    let writer = fleet.java("writer", Kind::Write, "book");
    writer.done("lock").await;
    writer.done("lock").await;
    assert_eq!(lock.status().await.unwrap().writer.unwrap().hold_count, 2);
    writer.done("unlock").await;
    assert!(lock.try_read().await.unwrap().is_none());
    writer.done("unlock").await;
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_downgrade_lets_java_readers_in_and_no_writer() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
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

/// Redisson tells nobody when a writer becomes a reader: our readers find out by looking, as they do once a second beside a holder of
/// Redisson's (L9).
#[tokio::test]
async fn a_java_downgrade_is_noticed_by_a_look() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
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
    let Some(fleet) = Fleet::start().await else {
        return;
    };
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

#[tokio::test]
async fn nobody_releases_what_the_other_holds() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let lock = book(&fleet.rust().await);
    let sides = [Kind::Read, Kind::Write].map(|kind| fleet.java("stranger", kind, "book"));
    let refused = async || {
        for side in &sides {
            let reply = side.call("unlock").await;
            assert_eq!(reply.error(), "IllegalMonitorStateException");
        }
    };
    let read = lock.read().await.unwrap();
    refused().await;
    assert!(!sides[1].done("forceUnlock").await.bool(), "nobody writes");
    read.renew().await.unwrap();
    read.release().await.unwrap();
    let write = lock.write().await.unwrap();
    refused().await;
    assert!(!sides[0].done("forceUnlock").await.bool(), "nobody reads");
    write.renew().await.unwrap();
    write.release().await.unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn force_frees_the_other_side_and_wakes() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let lock = book(&fleet.rust().await);
    let hasty = lock.clone().with_lease(lease(ms(900)));
    let (reader, writer) = (
        fleet.java("reader", Kind::Read, "book"),
        fleet.java("writer", Kind::Write, "book"),
    );
    let ours = hasty.write().await.unwrap();
    let waiter = reader.start("lock", json!({}));
    fleet.waiting(CHANNEL, 1).await;
    assert!(
        fleet
            .java("admin", Kind::Write, "book")
            .done("forceUnlock")
            .await
            .bool()
    );
    java_granted(waiter, SOON).await;
    assert_eq!(within(SOON, ours.lost()).await, LostReason::Gone);
    drop(ours);
    let waiter = writing(&lock);
    fleet.waiting(CHANNEL, 1).await;
    assert!(lock.danger().force_release().await.unwrap());
    let next = granted(waiter, SOON).await;
    assert_eq!(
        reader.call("unlock").await.error(),
        "IllegalMonitorStateException"
    );
    assert!(next.is_held());
    let waiter = writer.start("lock", json!({}));
    fleet.quiet().await;
    next.release().await.unwrap();
    java_granted(waiter, SOON).await;
    assert!(lock.danger().force_release().await.unwrap());
    assert_eq!(
        writer.call("unlock").await.error(),
        "IllegalMonitorStateException"
    );
    // Hold keys of readers taken by force run out by themselves.
    fleet.server.flush();
}

#[tokio::test]
async fn killed_writers_and_readers_free_at_their_ttl() {
    let Some(jvm) = Jvm::start() else { return };
    let Some(server) = server() else { return };
    let java = connect(&jvm, &server, json!({"watchdog": TTL})).await;
    let mut fleet = Fleet { java, server };
    let lock = book(&fleet.rust().await);
    fleet.java("reader", Kind::Read, "book").done("lock").await;
    let waiter = writing(&lock);
    fleet.waiting(CHANNEL, 1).await;
    jvm.kill();
    granted(waiter, ms(TTL) + SLACK)
        .await
        .release()
        .await
        .unwrap();
    fleet.at_rest().await;

    let Some(jvm) = Jvm::start() else { return };
    fleet.java = connect(&jvm, &fleet.server, json!({"watchdog": TTL})).await;
    fleet.java("writer", Kind::Write, "book").done("lock").await;
    let waiter = reading(&lock);
    fleet.waiting(CHANNEL, 1).await;
    jvm.kill();
    granted(waiter, ms(TTL) + SLACK)
        .await
        .release()
        .await
        .unwrap();
    fleet.at_rest().await;
}

#[tokio::test]
async fn our_killed_writers_and_readers_free_at_their_ttl() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    for (ours, theirs) in [("read", Kind::Write), ("write", Kind::Read)] {
        let holder = holding(&fleet, ours, "book", ms(TTL));
        let java = fleet.java("waiter", theirs, "book");
        let waiter = java.start("lock", json!({}));
        fleet.waiting(CHANNEL, 1).await;
        holder.signal(Signal::Kill);
        java_granted(waiter, ms(TTL) + SLACK).await;
        java.done("unlock").await;
        fleet.at_rest().await;
    }
}

/// A dead Java reader's field stays in the hash while others keep it alive. Our release does not count it.
#[tokio::test]
async fn a_dead_java_reader_does_not_outlive_our_release() {
    let Some(jvm) = Jvm::start() else { return };
    let Some(server) = server() else { return };
    let java = connect(&jvm, &server, json!({"watchdog": TTL})).await;
    let fleet = Fleet { java, server };
    let lock = book(&fleet.rust().await);
    let reader = fleet.java("reader", Kind::Read, "book");
    let owner = fleet.java.owner(&reader.done("lock").await);
    // No longer than Redisson's own: its renewal cuts a longer lease of ours, and the lock could end with its reader.
    let ours = lock.with_lease(lease(ms(TTL))).read().await.unwrap();
    let waiter = writing(&book(&fleet.rust().await));
    fleet.waiting(CHANNEL, 1).await;
    jvm.kill();
    let key = format!("{{book}}:{owner}:rwlock_timeout:1");
    eventually("the dead reader's lease runs out", || {
        fleet.int(&["EXISTS", &key]) == 0
    })
    .await;
    assert_eq!(fleet.int(&["HEXISTS", "book", &owner]), 1);
    assert!(!waiter.is_finished(), "we still read");
    ours.release().await.unwrap();
    granted(waiter, SOON).await.release().await.unwrap();
    fleet.at_rest().await;
}

/// Redisson renews by setting the TTL of the whole lock, whoever else reads: a longer lease of ours is cut to that.
/// Java's own unlock mends it. With leases up to Redisson's watchdog timeout, the default of both, nothing is cut.
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
    assert!(fleet.int(&["PTTL", "book"]) > 15_000, "mended");
    long.release().await.unwrap();

    java.done("lock").await;
    let short = lock.with_lease(lease(ms(TTL))).read().await.unwrap();
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

/// A Java writer that has read inside its write is no longer renewed by Redisson. At its TTL the lock is ours, and Java
/// hears of it when it unlocks.
#[tokio::test]
async fn a_java_writer_that_redisson_stopped_renewing_is_waited_out() {
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

/// A reader that asks to write waits for itself in Redisson; ours is told.
#[tokio::test]
async fn upgrades_are_refused_by_us_and_hang_in_redisson() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let client = fleet.rust().await;
    let (lock, owner) = (book(&client), client.owner());
    let as_owner = || AcquireOptions::new().owner(&owner);
    let read = lock.read_with(as_owner()).await.unwrap();
    let refused = lock.write_with(as_owner()).await.unwrap_err();
    assert!(
        matches!(
            refused,
            stanchion::AcquireError::Rejected {
                rejection: Rejection::AlreadyHeld { .. },
                ..
            }
        ),
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

/// Leases without a watchdog end for the other side, too.
#[tokio::test]
async fn leases_run_out_for_the_other_side() {
    let Some(fleet) = Fleet::start().await else {
        return;
    };
    let lock = book(&fleet.rust().await);
    let options = AcquireOptions::new()
        .lease(lease(ms(700)))
        .renewal(Renewal::Manual);
    let ours = lock.read_with(options).await.unwrap();
    let writer = fleet.java("writer", Kind::Write, "book");
    let waiter = writer.start("lock", json!({"lease": 700}));
    java_granted(waiter, ms(700) + SLACK).await;
    assert!(!ours.is_held(), "P5");
    drop(ours);
    let guard = within(ms(700) + SLACK, lock.read()).await.unwrap();
    assert_eq!(
        writer.call("unlock").await.error(),
        "IllegalMonitorStateException"
    );
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    fleet.at_rest().await;
}
