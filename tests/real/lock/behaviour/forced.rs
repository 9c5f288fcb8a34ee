//! Tests messages to holders: a hold was released by force, or another client requests a release.

use std::time::Duration;

use stanchion::{
    Client, FairLock, Guard, LeasedSemaphore, Lock, Lockable, LostReason, MultiLock, QueryError,
    Rejection, ReleaseError, RwLock,
};
use stanchion_tests::{JAVA, World};

suite! {
    force_release_frees_the_lock_and_the_old_holder_cannot_release_it,
    force_release_notifies_the_holders_of_each_primitive,
    reclaim_and_delete_notify_the_holders_of_permits,
    force_release_loses_no_other_hold,
    a_false_message_loses_no_hold,
    a_release_request_reaches_the_holder_and_takes_nothing,
    a_release_request_reports_how_many_holders_it_reached,
    a_bad_reason_is_refused_before_anything_is_sent,
}

/// Much less than a third of the lease, after which a renewal would detect the loss.
const AT_ONCE: Duration = Duration::from_millis(100);

fn own_channel(client: &Client) -> String {
    format!("stanchion_notice:{}", client.id())
}

/// Asserts that the guard is lost by message, before a renewal could detect the loss.
async fn lost_by_message(world: &World, what: &str, guard: &Guard) {
    let lost = tokio::time::timeout(world.limit(AT_ONCE), guard.lost()).await;
    assert_eq!(lost, Ok(LostReason::Gone), "{what}");
}

async fn force_release_notifies_the_holders_of_each_primitive(world: &World) {
    let (holder, other) = (world.client().await, world.client().await);
    let lock = Lock::new(&holder, "lock").unwrap().acquire().await.unwrap();
    // A client subscribes once it has held for a second. The subscription serves its later holds, too.
    world.subscribed(&own_channel(&holder)).await;
    let fair = FairLock::new(&holder, "fair").unwrap();
    let fair = fair.acquire().await.unwrap();
    let written = RwLock::new(&holder, "written").unwrap();
    let written = written.write().await.unwrap();
    let read = RwLock::new(&holder, "read").unwrap();
    let (one, two) = (read.read().await.unwrap(), read.read().await.unwrap());
    let members = [
        Lock::new(&holder, "m1").unwrap(),
        Lock::new(&holder, "m2").unwrap(),
    ];
    let many = MultiLock::new([&members[0] as &dyn Lockable, &members[1]]).unwrap();
    let many = many.acquire().await.unwrap();
    let held: [(&str, Vec<Guard>); 5] = [
        ("lock", vec![lock.into()]),
        ("fair", vec![fair.into()]),
        ("written", vec![written.into()]),
        ("read", vec![one.into(), two.into()]),
        ("m2", vec![many.into()]),
    ];
    for (name, guards) in &held {
        let done = match *name {
            "fair" => {
                let fair = FairLock::new(&other, name).unwrap();
                fair.danger().force_release().await
            }
            "written" | "read" => {
                let rwlock = RwLock::new(&other, name).unwrap();
                rwlock.danger().force_release().await
            }
            _ => {
                let lock = Lock::new(&other, name).unwrap();
                lock.danger().force_release().await
            }
        };
        assert!(done.unwrap(), "{name} was held");
        for guard in guards {
            lost_by_message(world, name, guard).await;
        }
    }
}

async fn reclaim_and_delete_notify_the_holders_of_permits(world: &World) {
    let (holder, other) = (world.client().await, world.client().await);
    let permits = LeasedSemaphore::new(&holder, "permits")
        .unwrap()
        .lease(stanchion_tests::kept());
    permits.init(3).await.unwrap();
    // The id of a permit does not name its client. Therefore all holders subscribe, from their first renewal on.
    let held = permits.acquire().await.unwrap();
    let kept = permits.acquire().await.unwrap();
    world.subscribed("redisson_sc:{permits}:held").await;
    let theirs = LeasedSemaphore::new(&other, "permits").unwrap();
    let id = held.ids()[0];
    assert!(theirs.danger().reclaim(&id).await.unwrap());
    lost_by_message(world, "permit", &held.into()).await;
    assert!(kept.is_held());
    kept.renew().await.unwrap();
    assert!(theirs.danger().delete().await.unwrap());
    lost_by_message(world, "the other permit", &kept.into()).await;
}

async fn force_release_loses_no_other_hold(world: &World) {
    let (holder, reader) = (world.client().await, world.client().await);
    let keep = Lock::new(&holder, "keep").unwrap().acquire().await.unwrap();
    world.subscribed(&own_channel(&holder)).await;
    let lock = Lock::new(&holder, "job").unwrap();
    let guard = lock.acquire().await.unwrap();
    let shared = (
        RwLock::new(&holder, "prices").unwrap(),
        RwLock::new(&reader, "prices").unwrap(),
    );
    let read = (
        shared.0.read().await.unwrap(),
        shared.1.read().await.unwrap(),
    );
    world.subscribed(&own_channel(&reader)).await;
    assert!(lock.danger().force_release().await.unwrap());
    lost_by_message(world, "the lock", &guard.into()).await;
    assert!(read.0.is_held() && keep.is_held());
    assert!(shared.0.danger().force_release().await.unwrap());
    lost_by_message(world, "a reader", &read.0.into()).await;
    lost_by_message(world, "a reader elsewhere", &read.1.into()).await;
    assert!(keep.is_held());
    keep.release().await.unwrap();
}

async fn a_false_message_loses_no_hold(world: &World) {
    let client = world.client().await;
    let guard = Lock::new(&client, "job").unwrap().acquire().await.unwrap();
    let channel = own_channel(&client);
    world.subscribed(&channel).await;
    let number = guard.owner().to_string();
    let number = number.rsplit(':').next().unwrap();
    let gone = format!("gone {number}");
    let until = guard.valid_until();
    let left = || world.admin(&["PTTL", "job"]).parse::<u64>().unwrap();
    let before = left();
    for text in [gone.as_str(), "gone", "gone x", "ask", "", "ask 99 x"] {
        assert_eq!(world.admin(&["PUBLISH", &channel, text]), "1");
    }
    world.quiet().await;
    assert!(guard.is_held());
    assert_eq!(guard.request(), None);
    // The message causes a check at most, and no renewal.
    assert_eq!(guard.valid_until(), until);
    assert!(left() <= before);
    guard.release().await.unwrap();
}

async fn a_release_request_reaches_the_holder_and_takes_nothing(world: &World) {
    let (holder, other) = (world.client().await, world.client().await);
    let guard = Lock::new(&holder, "job").unwrap().acquire().await.unwrap();
    let (early, late) = (guard.requested(), guard.requested());
    world.subscribed(&own_channel(&holder)).await;
    assert_eq!(guard.request(), None);
    let theirs = Lock::new(&other, "job").unwrap();
    let reached = theirs.request_release("a migration waits").await.unwrap();
    assert_eq!((reached.holders, reached.heard), (1, 1));
    let request = tokio::time::timeout(world.limit(AT_ONCE), early).await;
    assert_eq!(request.unwrap().reason, "a migration waits");
    assert_eq!(late.await.reason, "a migration waits");
    assert_eq!(guard.requested().await.reason, "a migration waits");
    assert_eq!(guard.request().unwrap().reason, "a migration waits");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let rwlock = RwLock::new(&holder, "prices").unwrap();
    let theirs = RwLock::new(&other, "prices").unwrap();
    for writes in [true, false] {
        let guards: Vec<Guard> = match writes {
            true => vec![rwlock.write().await.unwrap().into()],
            false => vec![
                rwlock.read().await.unwrap().into(),
                rwlock.read().await.unwrap().into(),
            ],
        };
        let reached = theirs.request_release("").await.unwrap();
        let holders = guards.len().try_into().unwrap();
        assert_eq!((reached.holders, reached.heard), (holders, 1));
        for guard in guards {
            assert_eq!(guard.requested().await.reason, "");
            guard.release().await.unwrap();
        }
    }
    let fair = FairLock::new(&holder, "fair").unwrap();
    let guard = fair.acquire().await.unwrap();
    let theirs = FairLock::new(&other, "fair").unwrap();
    assert_eq!(theirs.request_release("x").await.unwrap().heard, 1);
    assert_eq!(guard.requested().await.reason, "x");
}

async fn a_release_request_reports_how_many_holders_it_reached(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let free = lock.request_release("x").await.unwrap();
    assert_eq!((free.holders, free.heard), (0, 0));
    // A Redisson holder is not subscribed, and keeps its hold.
    assert_eq!(world.admin(&["HSET", "job", JAVA, "1"]), "1");
    assert_eq!(world.admin(&["PEXPIRE", "job", "60000"]), "1");
    let java = lock.request_release("x").await.unwrap();
    assert_eq!((java.holders, java.heard), (1, 0));
    assert!(lock.status().await.unwrap().is_held());
    let rwlock = RwLock::new(&client, "job").unwrap();
    let wrong = rwlock.request_release("x").await.unwrap_err();
    assert!(matches!(
        wrong,
        QueryError::Rejected {
            rejection: Rejection::WrongType { .. }
        }
    ));
    assert!(lock.danger().force_release().await.unwrap());
    // At the start of its hold a holder is not subscribed yet.
    let guard = lock.acquire().await.unwrap();
    let early = lock.request_release("x").await.unwrap();
    assert_eq!((early.holders, early.heard), (1, 0));
    guard.release().await.unwrap();
}

async fn a_bad_reason_is_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let before = world.scripts_run();
    for bad in ["x".repeat(201), "a\nb".into(), "\u{1b}[2J".into()] {
        let error = lock.request_release(&bad).await.unwrap_err().to_string();
        assert!(error.contains("at most 200 bytes"), "{error}");
    }
    assert_eq!(world.scripts_run(), before);
    lock.request_release(&"é".repeat(100)).await.unwrap();
}

async fn force_release_frees_the_lock_and_the_old_holder_cannot_release_it(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = Lock::new(&ours, "job").unwrap();
    assert!(!lock.danger().force_release().await.unwrap());
    let first = lock.acquire().await.unwrap();
    assert!(
        Lock::new(&theirs, "job")
            .unwrap()
            .danger()
            .force_release()
            .await
            .unwrap()
    );
    let second = Lock::new(&theirs, "job").unwrap().acquire().await.unwrap();
    assert!(second.fencing_token() > first.fencing_token());
    let error = first.release().await.unwrap_err();
    assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
    assert_eq!(
        lock.status().await.unwrap().holder.unwrap().owner,
        second.owner().to_string()
    );
    second.release().await.unwrap();
}
