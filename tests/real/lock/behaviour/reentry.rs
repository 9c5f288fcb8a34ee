//! Tests re-entry: an owner acquires its own hold again, and the count is where Redisson reads it.

use futures_util::future::join_all;
use stanchion::{AcquireError, AcquireOptions, Lock, Reentry, Rejection};
use stanchion_tests::World;

suite! {
    an_owner_re_enters_its_own_hold,
    tasks_that_share_an_owner_re_enter_one_hold,
    re_entry_can_be_refused,
}

async fn count(lock: &Lock) -> u32 {
    lock.status().await.unwrap().holder.unwrap().hold_count
}

/// P1, P2.
async fn an_owner_re_enters_its_own_hold(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let (owner, other) = (client.owner(), client.owner());
    let mut last = None;
    for _ in 0..2 {
        let options = || AcquireOptions::new().owner(&owner);
        let outer = lock.acquire_with(options()).await.unwrap();
        assert!(
            outer.fencing_token() > last,
            "each outermost hold has its own token"
        );
        // R1: each hold has a new wire owner, so a late request of an old hold cannot affect a new one.
        assert_eq!(count(&lock).await, 1);
        last = outer.fencing_token();
        let of_guard = AcquireOptions::new().owner(outer.owner());
        let inner = lock.acquire_with(of_guard).await.unwrap();
        let tried = lock.try_acquire_with(options()).await.unwrap().unwrap();
        assert_eq!(count(&lock).await, 3);
        assert_eq!(outer.owner(), &owner);
        let theirs = AcquireOptions::new().owner(&other);
        assert!(lock.try_acquire_with(theirs).await.unwrap().is_none());
        outer.release().await.unwrap();
        tried.release().await.unwrap();
        assert_eq!(count(&lock).await, 1);
        inner.release().await.unwrap();
        assert!(world.keys().is_empty());
    }
}

async fn tasks_that_share_an_owner_re_enter_one_hold(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let owner = client.owner();
    let acquires = || tokio::spawn(lock.acquire_with(AcquireOptions::new().owner(&owner)));
    let guards = join_all((0..16).map(|_| acquires())).await;
    assert_eq!(count(&lock).await, 16);
    drop(guards);
    world.at_rest().await;
}

async fn re_entry_can_be_refused(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let owner = client.owner();
    let options = || {
        let options = AcquireOptions::new().owner(&owner);
        options.reentry(Reentry::Refused)
    };
    let held = lock.acquire_with(options()).await.unwrap();
    let before = world.scripts_run();
    for error in [
        lock.acquire_with(options()).await.unwrap_err(),
        lock.try_acquire_with(options()).await.unwrap_err(),
    ] {
        let AcquireError::Rejected {
            rejection: Rejection::AlreadyHeld { .. },
            ..
        } = &error
        else {
            panic!("{error}")
        };
        let text = error.to_string();
        assert!(text.contains(&held.owner().to_string()[..36]), "{text}");
    }
    // In real time the client may begin to listen for messages to holders.
    if let World::Engine(_) = world {
        assert_eq!(world.scripts_run(), before, "nothing is sent");
    }
    assert_eq!(count(&lock).await, 1);
    // After the release the same owner may acquire.
    held.release().await.unwrap();
    drop(lock.acquire_with(options()).await.unwrap());
    world.at_rest().await;
}
