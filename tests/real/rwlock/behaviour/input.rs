//! Tests names and options of the read-write lock, and locks of its name.

use stanchion::{AcquireError, AcquireOptions, Client, Lease, Reentry, Rejection, RwLock};
use stanchion_tests::{World, ms, rejection_of};

use super::rwlock;

suite! {
    bad_names_and_options_are_refused_before_anything_is_sent,
    the_key_prefix_is_part_of_every_key,
    odd_names_work_and_leave_nothing,
    re_entry_can_be_refused,
}

async fn bad_names_and_options_are_refused_before_anything_is_sent(world: &World) {
    let client = world.client().await;
    let before = world.scripts_run();
    assert!(RwLock::new(&client, "").is_err());
    assert!(RwLock::new(&client, vec![b'x'; 513]).is_err());
    let lock = RwLock::new(&client, vec![b'x'; 512]).unwrap();
    let options = || AcquireOptions::new().max_hold(ms(1));
    for refused in [
        lock.read_with(options()).await.map(drop),
        lock.write_with(options()).await.map(drop),
    ] {
        let Err(AcquireError::Rejected { rejection, .. }) = refused else {
            panic!("{refused:?}");
        };
        assert!(matches!(rejection, Rejection::InvalidOption { .. }));
    }
    assert_eq!(world.scripts_run(), before);
}

async fn the_key_prefix_is_part_of_every_key(world: &World) {
    let client = Client::connect_with(world.config("prefixed").key_prefix("app:"))
        .await
        .unwrap();
    let reading = rwlock(&client).read().await.unwrap();
    let hold_key = format!("{{app:job}}:{}:rwlock_timeout:1", reading.owner());
    let mut expected = [
        "app:job".to_owned(),
        hold_key,
        "stanchion_rwlock_readers:{app:job}".to_owned(),
    ];
    expected.sort();
    assert_eq!(world.keys(), expected);
    let unprefixed = RwLock::new(&world.client().await, "app:job").unwrap();
    assert!(unprefixed.try_write().await.unwrap().is_none());
    reading.release().await.unwrap();
    assert!(world.keys().is_empty());
}

async fn odd_names_work_and_leave_nothing(world: &World) {
    let client = world.client().await;
    let odd: [&[u8]; 6] = [
        b"a{b",
        b"{t}:x",
        b"a}b",
        "ümläut ∞".as_bytes(),
        b"\0\xff",
        b"mode",
    ];
    for name in odd {
        let lock = RwLock::new(&client, name)
            .unwrap()
            .preference(stanchion::rwlock::Preference::Writer);
        let (first, second) = (lock.read().await.unwrap(), lock.read().await.unwrap());
        first.reenter().await.unwrap().release().await.unwrap();
        assert!(lock.try_write().await.unwrap().is_none());
        first.renew().await.unwrap();
        first.release().await.unwrap();
        second.release().await.unwrap();
        let writing = lock.write().await.unwrap();
        let reading = writing.downgrade().await.unwrap();
        reading.release().await.unwrap();
        world.at_rest().await;
    }
}

async fn re_entry_can_be_refused(world: &World) {
    let client = world.client().await;
    let lock = rwlock(&client).lease(Lease::default());
    let owner = client.owner();
    let options = || {
        AcquireOptions::new()
            .owner(&owner)
            .reentry(Reentry::Refused)
    };
    let refused = |error: AcquireError| {
        assert!(
            matches!(rejection_of(&error), Rejection::AlreadyHeld { .. }),
            "{error}"
        );
    };
    let writing = lock.write_with(options()).await.unwrap();
    refused(lock.write_with(options()).await.unwrap_err());
    // A read hold inside a write hold is not a re-entry.
    let reading = lock.read_with(options()).await.unwrap();
    refused(lock.read_with(options()).await.unwrap_err());
    drop((writing, reading));
    world.at_rest().await;
}
