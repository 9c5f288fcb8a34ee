//! Tests messages to holders: a hold was released by force, or another client requests a release.

use std::time::Duration;

use stanchion::{
    Acquire as _, Client, FairLock, Guard, LeasedSemaphore, Lock, Lockable, LostReason, MultiLock,
    ReleaseError, RwLock,
};
use stanchion_tests::{JAVA, World, kept, ms};

suite! {
    force_release_frees_the_lock_and_the_old_holder_cannot_release_it,
    force_release_notifies_the_holders_of_each_primitive,
    reclaim_and_delete_notify_the_holders_of_permits,
    a_false_message_loses_no_hold,
    a_release_request_reaches_the_holder_and_takes_nothing,
    a_release_request_reports_how_many_holders_it_reached,
    a_bad_reason_is_refused_before_anything_is_sent,
}

/// Much less than a third of the lease, after which a renewal would detect the loss.
const AT_ONCE: Duration = ms(100);

fn own_channel(client: &Client) -> String {
    format!("stanchion_notice:{}", client.id())
}

/// Asserts that the guard is lost by message, before a renewal could detect the loss.
async fn lost_by_message(world: &World, what: &str, guard: &Guard) {
    let lost = tokio::time::timeout(world.limit(AT_ONCE), guard.lost()).await;
    assert_eq!(lost, Ok(LostReason::Gone), "{what}");
}

/// A hold of `client`, which is subscribed to the messages to holders.
async fn subscribed_holder(world: &World, client: &Client, name: &str) -> Guard {
    let guard = Lock::new(client, name).unwrap().acquire().await.unwrap();
    // A client subscribes once it has held for a second. The subscription serves its later holds, too.
    world.subscribed(&own_channel(client)).await;
    guard.into()
}

/// P1, P2. The waiters are of another client and of the client that releases.
async fn force_release_frees_the_lock_and_the_old_holder_cannot_release_it(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let lock = Lock::new(&ours, "job").unwrap();
    assert!(!lock.danger().force_release().await.unwrap());
    let mut held = lock.acquire().await.unwrap();
    for waiter in [&theirs, &ours] {
        let waiting = tokio::spawn(Lock::new(waiter, "job").unwrap().acquire());
        world
            .waiting(waiter, 1, "redisson_lock__channel:{job}")
            .await;
        assert!(lock.danger().force_release().await.unwrap());
        let next = waiting.await.unwrap().unwrap();
        assert!(next.fencing_token() > held.fencing_token());
        let error = held.release().await.unwrap_err();
        assert!(matches!(error, ReleaseError::Lost(_)), "{error}");
        let holder = lock.status().await.unwrap().holder.unwrap();
        assert_eq!(holder.owner, next.owner().to_string());
        held = next;
    }
    held.release().await.unwrap();
}

/// Another hold of each client is not lost.
async fn force_release_notifies_the_holders_of_each_primitive(world: &World) {
    let (holder, reader) = (world.client().await, world.client().await);
    let other = world.client().await;
    let kept = [
        subscribed_holder(world, &holder, "kept").await,
        subscribed_holder(world, &reader, "kept too").await,
    ];
    let lock = Lock::new(&holder, "lock").unwrap();
    let fair = FairLock::new(&holder, "fair").unwrap();
    let written = RwLock::new(&holder, "written").unwrap();
    let read = [&holder, &holder, &reader].map(|it| RwLock::new(it, "read").unwrap().read_side());
    let members = ["m1", "m2"].map(|name| Lock::new(&holder, name).unwrap());
    let many = MultiLock::new(members.each_ref().map(|it| it as &dyn Lockable)).unwrap();
    let mut readers: Vec<Guard> = Vec::new();
    for side in &read {
        readers.push(side.acquire().await.unwrap());
    }
    let held: [(&str, Vec<Guard>); 5] = [
        ("lock", vec![lock.acquire().await.unwrap().into()]),
        ("fair", vec![fair.acquire().await.unwrap().into()]),
        ("written", vec![written.write().await.unwrap().into()]),
        ("read", readers),
        ("m2", vec![many.acquire().await.unwrap().into()]),
    ];
    for (name, guards) in held {
        let fair = FairLock::new(&other, name).unwrap();
        let rwlock = RwLock::new(&other, name).unwrap();
        let lock = Lock::new(&other, name).unwrap();
        let done = match name {
            "fair" => fair.danger().force_release().await,
            "written" | "read" => rwlock.danger().force_release().await,
            _ => lock.danger().force_release().await,
        };
        assert!(done.unwrap(), "{name} was held");
        for guard in guards {
            lost_by_message(world, name, &guard).await;
            let error = guard.release().await.unwrap_err();
            assert!(matches!(error, ReleaseError::Lost(_)), "{name}: {error}");
        }
    }
    for guard in kept {
        assert!(guard.is_held());
        guard.release().await.unwrap();
    }
}

async fn reclaim_and_delete_notify_the_holders_of_permits(world: &World) {
    let (holder, other) = (world.client().await, world.client().await);
    let permits = LeasedSemaphore::new(&holder, "permits").unwrap();
    let permits = permits.lease(kept());
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

/// P5. The message causes a check at most, and no renewal.
async fn a_false_message_loses_no_hold(world: &World) {
    let client = world.client().await;
    let guard = subscribed_holder(world, &client, "job").await;
    let first = "return redis.call('HKEYS', KEYS[1])[1]";
    let owner = world.admin(&["EVAL", first, "1", "job"]);
    let gone = format!("gone {}", owner.rsplit(':').next().unwrap());
    let until = guard.valid_until();
    let left = || world.admin(&["PTTL", "job"]).parse::<u64>().unwrap();
    let before = left();
    for text in [gone.as_str(), "gone", "gone x", "ask", "", "ask 99 x"] {
        assert_eq!(world.admin(&["PUBLISH", &own_channel(&client), text]), "1");
    }
    world.quiet().await;
    assert!(guard.is_held());
    assert_eq!(guard.request(), None);
    assert_eq!(guard.valid_until(), until);
    assert!(left() <= before);
    guard.release().await.unwrap();
}

async fn a_release_request_reaches_the_holder_and_takes_nothing(world: &World) {
    let (holder, other) = (world.client().await, world.client().await);
    let guard = subscribed_holder(world, &holder, "job").await;
    let (early, late) = (guard.requested(), guard.requested());
    assert_eq!(guard.request(), None);
    let theirs = Lock::new(&other, "job").unwrap();
    let reached = theirs.request_release("a migration waits").await.unwrap();
    assert_eq!((reached.holders, reached.heard), (1, 1));
    let request = tokio::time::timeout(world.limit(AT_ONCE), early).await;
    for request in [
        request.unwrap(),
        late.await,
        guard.requested().await,
        guard.request().unwrap(),
    ] {
        assert_eq!(request.reason, "a migration waits");
    }
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let rwlock = RwLock::new(&holder, "prices").unwrap();
    let fair = FairLock::new(&holder, "fair").unwrap();
    for sides in ["write", "read read", "fair"] {
        let mut guards: Vec<Guard> = Vec::new();
        for side in sides.split(' ') {
            guards.push(match side {
                "write" => rwlock.write().await.unwrap().into(),
                "read" => rwlock.read().await.unwrap().into(),
                _ => fair.acquire().await.unwrap().into(),
            });
        }
        let fair = FairLock::new(&other, "fair").unwrap();
        let rwlock = RwLock::new(&other, "prices").unwrap();
        let reached = match sides {
            "fair" => fair.request_release("").await.unwrap(),
            _ => rwlock.request_release("").await.unwrap(),
        };
        assert_eq!((reached.holders as usize, reached.heard), (guards.len(), 1));
        for guard in guards {
            assert_eq!(guard.requested().await.reason, "");
            guard.release().await.unwrap();
        }
    }
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
