//! Every kind of lock of both libraries: each library sees the holds of the other one, waits for their end, and is woken by their release.

use serde_json::json;
use stanchion::{
    Acquire, AcquireOptions, Client, FairLock, Lock, LostReason, ReleaseError, Renewal, RwLock,
};
use stanchion_testkit::{Signal, eventually};
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind};

const TTL: u64 = 1500;
const REFUSED: &str = "IllegalMonitorStateException";

/// A kind, and one that excludes it. The names of the locks are the kinds in `stanchion-test-holder`.
const ROWS: [(Kind, Kind, &str); 4] = [
    (Kind::Lock, Kind::Lock, "lock"),
    (Kind::Fair, Kind::Fair, "fair"),
    (Kind::Read, Kind::Write, "read"),
    (Kind::Write, Kind::Read, "write"),
];

fn ours(client: &Client, kind: Kind, name: &str) -> Box<dyn Acquire> {
    let rwlock = RwLock::new(client, name).unwrap();
    match kind {
        Kind::Lock => Box::new(Lock::new(client, name).unwrap()),
        Kind::Fair => Box::new(FairLock::new(client, name).unwrap()),
        Kind::Read => Box::new(rwlock.read_side()),
        _ => Box::new(rwlock.write_side()),
    }
}

/// The owner and the hold count that this library reads.
async fn holder(client: &Client, kind: Kind, name: &str) -> Option<(String, u32)> {
    let rwlock = RwLock::new(client, name).unwrap();
    match kind {
        Kind::Lock => {
            let status = lock(client, name).status().await.unwrap();
            status.holder.map(|it| (it.owner, it.hold_count))
        }
        Kind::Fair => {
            let fair = FairLock::new(client, name).unwrap();
            let status = fair.status().await.unwrap();
            status.holder.map(|it| (it.owner, it.hold_count))
        }
        side => {
            let mut status = rwlock.status().await.unwrap();
            let reader = status.readers.pop();
            let holder = if side == Kind::Read {
                reader
            } else {
                status.writer
            };
            holder.map(|it| (it.owner, it.hold_count))
        }
    }
}

async fn force_release(client: &Client, kind: Kind, name: &str) -> bool {
    let rwlock = RwLock::new(client, name).unwrap();
    let forced = match kind {
        Kind::Lock => lock(client, name).danger().force_release().await,
        Kind::Fair => {
            let fair = FairLock::new(client, name).unwrap();
            fair.danger().force_release().await
        }
        _ => rwlock.danger().force_release().await,
    };
    forced.unwrap()
}

/// Waits until one call waits for a release.
async fn one_waits(fleet: &Fleet, kind: Kind, name: &str) {
    match kind {
        Kind::Lock => fleet.waiting(&channel(name), 1).await,
        Kind::Fair => {
            let queue = format!("redisson_lock_queue:{{{name}}}");
            eventually("it is queued", || fleet.int(&["LLEN", &queue]) == 1).await;
            fleet.settled().await;
        }
        _ => {
            let channel = format!("redisson_rwlock:{{{name}}}");
            fleet.waiting(&channel, 1).await;
        }
    }
}

#[tokio::test]
async fn a_release_wakes_the_other_library() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    for (kind, rival, name) in ROWS {
        let (ours, java) = (ours(&client, kind, name), fleet.java("java", rival, name));
        let guard = ours.acquire().await.unwrap();
        let waiter = java.start("lock", json!({}));
        one_waits(&fleet, kind, name).await;
        guard.release().await.unwrap();
        java_granted(waiter, SOON).await;
        let waiter = tokio::spawn(ours.acquire());
        one_waits(&fleet, kind, name).await;
        java.done("unlock").await;
        let guard = granted(waiter, SOON).await;
        let waiter = java.start("try", json!({"wait": 30_000}));
        one_waits(&fleet, kind, name).await;
        drop(guard);
        assert!(waiter.within(SOON).await.bool(), "{name}");
        java.done("unlock").await;
    }
    fleet.at_rest().await;
}

/// No message announces the end of a lease, and there is no poll within 60 s.
#[tokio::test]
async fn the_end_of_a_lease_frees_the_lock_for_the_other_library() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    for (kind, rival, name) in ROWS {
        let (ours, java) = (ours(&client, kind, name), fleet.java("java", rival, name));
        let options = AcquireOptions::new().lease(lease(ms(700)));
        let guard = ours.acquire_with(options.renewal(Renewal::Manual)).await;
        let guard = guard.unwrap();
        let waiter = java.start("lock", json!({"lease": 2000}));
        java_granted(waiter, ms(1500) + SLACK).await;
        assert!(!guard.is_held(), "P5: {name}");
        let late = guard.release().await.unwrap_err();
        assert!(matches!(late, ReleaseError::Lost(_)), "{name}: {late}");
        let next = within(ms(2000) + SLACK, ours.acquire()).await.unwrap();
        assert_eq!(java.call("unlock").await.error(), REFUSED, "{name}");
        next.renew().await.unwrap();
        next.release().await.unwrap();
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn the_hold_of_a_killed_process_is_free_at_its_ttl() {
    let Some(jvm) = Jvm::start() else { return };
    let Some(server) = server() else { return };
    let java = connect(&jvm, &server, json!({"watchdog": TTL})).await;
    let fleet = Fleet { java, server };
    let (mut holders, mut waiters) = (Vec::new(), Vec::new());
    for (kind, rival, name) in ROWS {
        holders.push(holding(&fleet, name, name, ms(TTL)));
        waiters.push(fleet.java(name, rival, name).start("lock", json!({})));
        one_waits(&fleet, kind, name).await;
    }
    for holder in holders {
        holder.signal(Signal::Kill);
    }
    for waiter in waiters {
        java_granted(waiter, ms(TTL) + SLACK).await;
    }
    let client = fleet.rust().await;
    let mut waiters = Vec::new();
    for (kind, _, name) in ROWS {
        waiters.push(tokio::spawn(ours(&client, kind, name).acquire()));
        one_waits(&fleet, kind, name).await;
    }
    jvm.kill();
    for waiter in waiters {
        let guard = granted(waiter, ms(TTL) + SLACK).await;
        guard.release().await.unwrap();
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn hold_counts_are_read_by_the_other_library() {
    let Some(fleet) = fleet().await else { return };
    let client = fleet.rust().await;
    for (kind, rival, name) in ROWS {
        let java = fleet.java("java", kind, name);
        java.done("lock").await;
        let owner = fleet.java.owner(&java.done("lock").await);
        assert_eq!(holder(&client, kind, name).await, Some((owner.clone(), 2)));
        let waiter = tokio::spawn(ours(&client, rival, name).acquire());
        one_waits(&fleet, kind, name).await;
        java.done("unlock").await;
        assert_eq!(holder(&client, kind, name).await, Some((owner, 1)));
        fleet.settled().await;
        assert!(!waiter.is_finished(), "{name}");
        java.done("unlock").await;
        let first = granted(waiter, SOON).await;
        let second = first.reenter().await.unwrap();
        let mut waiter = java.start("lock", json!({}));
        one_waits(&fleet, kind, name).await;
        first.release().await.unwrap();
        fleet.settled().await;
        assert!(waiter.is_waiting(), "{name}");
        let onlooker = fleet.java("onlooker", rival, name);
        assert!(onlooker.done("isLocked").await.bool(), "{name}");
        assert!(!onlooker.done("isHeld").await.bool(), "{name}");
        second.release().await.unwrap();
        java_granted(waiter, SOON).await;
        java.done("unlock").await;
    }
    fleet.at_rest().await;
}

#[tokio::test]
async fn strangers_cannot_unlock_and_forced_releases_wake_the_other_library() {
    let Some(fleet) = fleet().await else { return };
    let (client, other) = (fleet.rust().await, fleet.rust().await);
    for (kind, rival, name) in ROWS {
        let options = AcquireOptions::new().lease(lease(ms(900)));
        let guard = ours(&client, kind, name).acquire_with(options).await;
        let guard = guard.unwrap();
        let (java, admin) = (
            fleet.java("java", kind, name),
            fleet.java("admin", kind, name),
        );
        assert_eq!(admin.call("unlock").await.error(), REFUSED, "{name}");
        guard.renew().await.unwrap();
        if kind != rival {
            let no_holder = fleet.java("admin", rival, name).done("forceUnlock").await;
            assert!(!no_holder.bool(), "{name}");
        }
        // Redisson's message wakes our waiter. The next renewal of the holder notices the loss.
        let waiter = tokio::spawn(ours(&other, rival, name).acquire());
        one_waits(&fleet, kind, name).await;
        assert!(admin.done("forceUnlock").await.bool(), "{name}");
        let next = granted(waiter, SOON).await;
        assert_eq!(within(SOON, guard.lost()).await, LostReason::Gone, "{name}");
        drop(guard);
        // Our message wakes Redisson's waiter.
        let waiter = java.start("lock", json!({}));
        one_waits(&fleet, kind, name).await;
        next.renew().await.unwrap();
        assert!(force_release(&client, kind, name).await, "{name}");
        java_granted(waiter, SOON).await;
        assert!(next.release().await.is_err(), "{name}");
        // Our waiter acquires after our forced release of Redisson's hold.
        let waiter = tokio::spawn(ours(&other, rival, name).acquire());
        one_waits(&fleet, kind, name).await;
        assert!(force_release(&client, kind, name).await, "{name}");
        let last = granted(waiter, SOON).await;
        assert_eq!(java.call("unlock").await.error(), REFUSED, "{name}");
        last.renew().await.unwrap();
        last.release().await.unwrap();
        assert!(!force_release(&client, kind, name).await, "{name}");
    }
}
