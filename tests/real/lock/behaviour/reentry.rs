//! Tests re-entry: an owner acquires its own hold again, and the count is where Redisson reads it.

use stanchion::{AcquireError, AcquireOptions, Lock, Reentry, Rejection};
use stanchion_tests::World;

suite! {
    an_owner_re_enters_its_own_hold,
    the_owner_of_a_guard_re_enters,
    another_owner_is_excluded,
    an_owner_acquires_a_new_hold_after_the_last_one_ended,
    tasks_that_share_an_owner_re_enter_one_hold,
    re_entry_can_be_refused,
    a_late_duplicate_request_does_not_change_the_count,
}

fn count(world: &World, owner: &str) -> String {
    world.admin(&["HGET", "job", owner])
}

async fn an_owner_re_enters_its_own_hold(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let owner = client.owner();
    let options = || AcquireOptions::new().owner(&owner);
    let outer = lock.acquire_with(options()).await.unwrap();
    let inner = lock.acquire_with(options()).await.unwrap();
    let tried = lock
        .try_acquire_with(options())
        .await
        .unwrap()
        .expect("the owner holds the lock");
    assert_eq!(lock.status().await.unwrap().holder.unwrap().hold_count, 3);
    assert_eq!(outer.owner(), &owner);
    drop((outer, inner, tried));
    world.at_rest().await;
}

async fn the_owner_of_a_guard_re_enters(world: &World) {
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let outer = lock.acquire().await.unwrap();
    let inner = lock
        .acquire_with(AcquireOptions::new().owner(outer.owner()))
        .await
        .unwrap();
    assert_eq!(lock.status().await.unwrap().holder.unwrap().hold_count, 2);
    outer.release().await.unwrap();
    inner.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn another_owner_is_excluded(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let (ours, theirs) = (client.owner(), client.owner());
    let _held = lock
        .acquire_with(AcquireOptions::new().owner(&ours))
        .await
        .unwrap();
    assert!(
        lock.try_acquire_with(AcquireOptions::new().owner(&theirs))
            .await
            .unwrap()
            .is_none()
    );
}

async fn an_owner_acquires_a_new_hold_after_the_last_one_ended(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let owner = client.owner();
    let mut last = None;
    for _ in 0..3 {
        let guard = lock
            .acquire_with(AcquireOptions::new().owner(&owner))
            .await
            .unwrap();
        assert!(
            guard.fencing_token() > last,
            "each outermost hold has its own token"
        );
        // R1: each hold has a new wire owner, so a late request of an old hold cannot affect a new one.
        let holder = lock.status().await.unwrap().holder.unwrap();
        assert_eq!(holder.hold_count, 1);
        last = guard.fencing_token();
        guard.release().await.unwrap();
    }
}

async fn tasks_that_share_an_owner_re_enter_one_hold(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let owner = client.owner();
    let tasks: Vec<_> = (0..16)
        .map(|_| {
            let (lock, owner) = (lock.clone(), owner.clone());
            tokio::spawn(async move {
                lock.acquire_with(AcquireOptions::new().owner(&owner))
                    .await
                    .unwrap()
            })
        })
        .collect();
    let mut guards = Vec::new();
    for task in tasks {
        guards.push(task.await.unwrap());
    }
    assert_eq!(lock.status().await.unwrap().holder.unwrap().hold_count, 16);
    drop(guards);
    world.at_rest().await;
}

async fn re_entry_can_be_refused(world: &World) {
    let client = world.client().await;
    let lock = Lock::new(&client, "job").unwrap();
    let owner = client.owner();
    let options = || {
        AcquireOptions::new()
            .owner(&owner)
            .reentry(Reentry::Refused)
    };
    let held = lock.acquire_with(options()).await.unwrap();
    let before = world.scripts_run();
    for error in [
        lock.acquire_with(options()).await.unwrap_err(),
        lock.try_acquire_with(options()).await.unwrap_err(),
    ] {
        assert!(
            matches!(
                &error,
                AcquireError::Rejected {
                    rejection: Rejection::AlreadyHeld { .. },
                    ..
                }
            ),
            "{error}"
        );
        assert!(
            error.to_string().contains(&held.owner().to_string()[..36]),
            "{error}"
        );
    }
    assert_eq!(world.scripts_run(), before, "nothing is sent");
    assert_eq!(lock.status().await.unwrap().holder.unwrap().hold_count, 1);
    // After the release the same owner may acquire.
    held.release().await.unwrap();
    drop(lock.acquire_with(options()).await.unwrap());
    world.at_rest().await;
}

async fn a_late_duplicate_request_does_not_change_the_count(world: &World) {
    const ACQUIRE: &str = stanchion_client::in_line!(stanchion_client::minting!(include_str!(
        "../../../../crates/stanchion-lock/lua/acquire.lua"
    )));
    const HAND_OFF: &str = stanchion_client::in_line!(stanchion_client::minting!(include_str!(
        "../../../../crates/stanchion-lock/lua/hand_off.lua"
    )));
    let lock = Lock::new(&world.client().await, "job").unwrap();
    let outer = lock.acquire().await.unwrap();
    let owner = lock.status().await.unwrap().holder.unwrap().owner;
    let inner = outer.reenter().await.unwrap();
    let late = i64::MAX.to_string();
    // Sends the scripts again, like duplicates that the network delayed. Without tokens, so that the reply is 0.
    let keys = ["4", "job", "job", "line", "wake"];
    let acquire = [&owner, "30000", &late, "new", "PUBLISH", "channel"];
    let acquire = [&["EVAL", ACQUIRE], &keys[..], &acquire].concat();
    assert_eq!(world.admin(&acquire), "0");
    assert_eq!(count(world, &owner), "2");
    let hand_off = [
        "channel",
        "PUBLISH",
        "somebody:1",
        &owner,
        "30000",
        &late,
        "1",
    ];
    let hand_off = [&["EVAL", HAND_OFF], &keys[..], &hand_off].concat();
    assert_eq!(world.admin(&hand_off), "0");
    assert_eq!(count(world, &owner), "2");
    inner.release().await.unwrap();
    assert!(lock.try_acquire().await.unwrap().is_none());
    outer.release().await.unwrap();
    assert!(world.keys().is_empty());
}
