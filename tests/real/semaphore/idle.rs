//! Tests semaphores with idle expiry (`ephemeral`).

use std::time::Duration;

use stanchion::{AcquireError, Event, Lease, LeasedSemaphore, QueryError, Rejection, Semaphore};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use stanchion_tests::permits::{IDLE, KINDS, Kind, LEASES, LEDGER, NAME, Seats, free};
use tokio::time::sleep;

use stanchion_tests::idle::*;

suite! {
    an_acquire_creates_the_semaphore,
    an_unused_semaphore_expires_and_leaves_nothing,
    every_use_restarts_the_idle_time,
    the_call_that_creates_the_semaphore_sets_its_idle_time,
    a_held_permit_keeps_the_semaphore_until_the_last_release,
    a_waiter_keeps_the_semaphore,
    a_change_of_the_number_creates_the_semaphore,
    the_creation_of_a_semaphore_wakes_its_waiters,
    redissons_permits_keep_the_semaphore_once_a_request_finds_them,
    a_semaphore_that_redisson_creates_or_changes_does_not_expire,
    permits_of_a_closed_client_keep_the_semaphore_until_they_are_reclaimed,
    a_delete_removes_all_keys_of_the_semaphore,
    a_semaphore_without_the_option_does_not_expire,
    a_foreign_idle_key_refuses_acquires_and_allows_releases,
    an_expiry_is_reported_as_an_event,
    semaphores_with_unusual_names_expire,
    a_request_of_the_other_kind_does_not_extend_the_ttl,
}

async fn an_acquire_creates_the_semaphore(world: &World) {
    for kind in KINDS {
        clear(world);
        let (ours, theirs) = (world.client().await, world.client().await);
        let seats = ephemeral(kind, &ours, LONG);
        assert_eq!(seats.available().await.unwrap(), 3);
        assert_eq!(kind.on(&theirs).available().await.unwrap(), 0);
        assert!(world.keys().is_empty(), "reading is not a use");
        // Loads the scripts, so that the acquire below is one command.
        seats.acquire(2).await.unwrap().release().await.unwrap();
        clear(world);
        let before = world.scripts_run();
        let two = seats.acquire(2).await.unwrap();
        assert_eq!(world.scripts_run() - before, 1);
        assert_eq!((free(world), kind.held(world)), (1, 2));
        assert!(seats.try_acquire(2).await.unwrap().is_none());
        assert!(!seats.init(9).await.unwrap());
        assert_eq!(kind.on(&theirs).available().await.unwrap(), 1);
        two.release().await.unwrap();
        assert_eq!(free(world), 3);
    }
}

async fn an_unused_semaphore_expires_and_leaves_nothing(world: &World) {
    for kind in KINDS {
        let ours = world.client().await;
        let brief = Lease::new(Duration::from_secs(1)).unwrap();
        let seats = ephemeral(kind, &ours, 1000).lease(brief);
        let held = seats.acquire(3).await.unwrap();
        sleep(Duration::from_millis(2500)).await;
        assert_eq!(free(world), 0, "the held semaphore exists");
        held.release().await.unwrap();
        let left = ttl(world, NAME);
        assert!(left > 0 && left <= 2000, "{left}");
        is_gone(world).await;
        // For handles without the option the semaphore does not exist.
        assert!(kind.on(&ours).try_acquire(1).await.unwrap().is_none());
        assert!(kind.on(&ours).init(1).await.unwrap());
        stays(world);
        clear(world);
    }
}

async fn every_use_restarts_the_idle_time(world: &World) {
    for kind in KINDS {
        clear(world);
        let (ours, theirs) = (world.client().await, world.client().await);
        assert!(ephemeral(kind, &ours, LONG).init(3).await.unwrap());
        ends_in(world, LONG);
        // A handle without the option is a use, too.
        let theirs = kind.on(&theirs);
        let use_once = async |seats: &Seats| {
            let more = seats.acquire(1).await.unwrap();
            more.release().await.unwrap();
        };
        let lease = if kind == Kind::Leased { LEASE } else { 0 };
        age(world, 10_000);
        use_once(&theirs).await;
        ends_in(world, LONG + lease);
        age(world, 10_000);
        assert!(theirs.try_acquire(9).await.unwrap().is_none());
        ends_in(world, LONG + lease);
        for n in 0..5 {
            age(world, 10_000);
            match n {
                0 => assert!(!theirs.init(9).await.unwrap()),
                1 => assert_eq!(theirs.add(2).await.unwrap(), 5),
                2 => assert_eq!(theirs.reduce(1).await.unwrap(), 4),
                3 => assert_eq!(theirs.drain().await.unwrap(), 4),
                _ => assert_eq!(theirs.drain().await.unwrap(), 0),
            }
            ends_in(world, LONG);
        }
        if let Seats::Leased(leased) = &theirs {
            age(world, 10_000);
            assert_eq!(leased.set_total(2).await.unwrap(), 0);
            ends_in(world, LONG);
        }
        age(world, 10_000);
        assert!(theirs.available().await.unwrap() >= 0);
        ends_in(world, 10_000);
    }
}

async fn the_call_that_creates_the_semaphore_sets_its_idle_time(world: &World) {
    for kind in KINDS {
        clear(world);
        let ours = world.client().await;
        let other = kind.on(&ours).ephemeral(7, after(2 * LONG));
        assert!(ephemeral(kind, &ours, LONG).init(3).await.unwrap());
        assert!(!other.init(7).await.unwrap());
        ends_in(world, LONG);
        assert_eq!(other.available().await.unwrap(), 3);
        clear(world);
        assert!(kind.on(&ours).init(2).await.unwrap());
        let held = other.acquire(1).await.unwrap();
        stays(world);
        held.release().await.unwrap();
        assert_eq!(other.add(1).await.unwrap(), 3);
        assert_eq!(other.drain().await.unwrap(), 3);
        stays(world);
    }
}

async fn a_held_permit_keeps_the_semaphore_until_the_last_release(world: &World) {
    clear(world);
    let (ours, theirs) = (world.client().await, world.client().await);
    let seats = ephemeral(Kind::Plain, &ours, LONG);
    let first = seats.acquire(1).await.unwrap();
    let second = Kind::Plain.on(&theirs).acquire(2).await.unwrap();
    assert!(ttl(world, NAME) > YEARS && ttl(world, IDLE) > YEARS);
    second.release().await.unwrap();
    assert!(ttl(world, NAME) > YEARS && ttl(world, IDLE) > YEARS);
    drop(first);
    eventually("the dropped permit is returned", || free(world) == 3).await;
    ends_in(world, LONG);
    clear(world);
    let seats = ephemeral(Kind::Leased, &ours, LONG);
    let long = Lease::new(Duration::from_secs(3600)).unwrap();
    let first = seats.clone().lease(long).acquire(1).await.unwrap();
    ends_in(world, LONG + 3_600_000);
    let left = ttl(world, LEASES);
    assert!(left >= ttl(world, NAME), "{left}");
    // R3: a shorter lease does not shorten the TTL.
    let second = seats.acquire(1).await.unwrap();
    ends_in(world, LONG + 3_600_000);
    first.release().await.unwrap();
    second.release().await.unwrap();
    assert_eq!(free(world), 3);
}

async fn a_waiter_keeps_the_semaphore(world: &World) {
    for kind in KINDS {
        clear(world);
        let ours = world.client().await;
        let brief = Lease::new(Duration::from_secs(1)).unwrap();
        let seats = ephemeral(kind, &ours, 1000).lease(brief);
        assert!(seats.init(1).await.unwrap());
        // The request exceeds the number of permits, so it waits.
        let waiter = waiting(&kind.on(&ours).lease(brief), 2);
        eventually("the waiter's request extends the TTL", || {
            ttl(world, NAME) > 60_000
        })
        .await;
        ends_in(world, KEPT);
        let held = seats.acquire(1).await.unwrap();
        held.release().await.unwrap();
        ends_in(world, KEPT);
        assert_eq!(seats.add(1).await.unwrap(), 2);
        waiter.await.unwrap().unwrap().release().await.unwrap();
        ends_in(world, KEPT);
    }
}

async fn a_change_of_the_number_creates_the_semaphore(world: &World) {
    for kind in KINDS {
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, LONG);
        clear(world);
        assert_eq!(seats.add(2).await.unwrap(), 5);
        ends_in(world, LONG);
        clear(world);
        assert_eq!(seats.reduce(1).await.unwrap(), 2);
        ends_in(world, LONG);
        clear(world);
        assert_eq!(seats.drain().await.unwrap(), 3);
        ends_in(world, LONG);
        assert_eq!(seats.available().await.unwrap(), 0);
        clear(world);
        assert!(seats.init(5).await.unwrap());
        ends_in(world, LONG);
        assert_eq!(seats.available().await.unwrap(), 5);
        if let Seats::Leased(leased) = &seats {
            clear(world);
            assert_eq!(leased.set_total(4).await.unwrap(), 3);
            ends_in(world, LONG);
            assert_eq!(leased.total().await.unwrap(), 4);
        }
        clear(world);
        let many = kind.on(&ours).ephemeral(u32::MAX, after(LONG));
        let refused = many.add(1).await;
        assert!(
            matches!(
                refused,
                Err(QueryError::Rejected {
                    rejection: Rejection::InvalidOption { .. }
                })
            ),
            "{refused:?}"
        );
        let refused = many.acquire(1).await;
        assert!(
            matches!(
                refused,
                Err(AcquireError::Rejected {
                    rejection: Rejection::InvalidOption { .. },
                    ..
                })
            ),
            "{refused:?}"
        );
        assert!(world.keys().is_empty());
    }
}

async fn the_creation_of_a_semaphore_wakes_its_waiters(world: &World) {
    for kind in KINDS {
        clear(world);
        let (ours, theirs) = (world.client().await, world.client().await);
        let waiters: Vec<_> = (0..2).map(|_| waiting(&kind.on(&theirs), 1)).collect();
        eventually("the calls wait", || kind.queued(world) == 1).await;
        world.quiet().await;
        let held = ephemeral(kind, &ours, LONG).acquire(1).await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
        held.release().await.unwrap();
        assert_eq!(free(world), 3);
    }
}

async fn redissons_permits_keep_the_semaphore_once_a_request_finds_them(world: &World) {
    let ours = world.client().await;
    let seats = ephemeral(Kind::Plain, &ours, LONG);
    assert!(seats.init(3).await.unwrap());
    // Redisson's `acquire`: its DECRBY does not change the TTL.
    let _ = world.admin(&["DECRBY", NAME, "1"]);
    ends_in(world, LONG);
    assert!(seats.try_acquire(9).await.unwrap().is_none());
    assert!(ttl(world, NAME) > YEARS);
    let held = seats.acquire(1).await.unwrap();
    held.release().await.unwrap();
    assert!(ttl(world, NAME) > YEARS);
    let _ = world.admin(&["INCRBY", NAME, "1"]);
    assert!(seats.try_acquire(9).await.unwrap().is_none());
    ends_in(world, LONG);
    // Redisson returns a permit that it did not take. The number then hides our held permit, but the ledger does not.
    let held = seats.acquire(1).await.unwrap();
    let _ = world.admin(&["INCRBY", NAME, "1"]);
    assert!(seats.try_acquire(9).await.unwrap().is_none());
    assert!(ttl(world, NAME) > YEARS);
    let _ = world.admin(&["DECRBY", NAME, "1"]);
    held.release().await.unwrap();
    ends_in(world, LONG);
    // `reduce` and `add` change the total with the number.
    assert_eq!(seats.reduce(2).await.unwrap(), 1);
    ends_in(world, LONG);
    assert_eq!(seats.add(3).await.unwrap(), 4);
    let _ = world.admin(&["DECRBY", NAME, "1"]);
    assert_eq!(seats.drain().await.unwrap(), 3);
    assert!(ttl(world, NAME) > YEARS);

    clear(world);
    let seats = ephemeral(Kind::Leased, &ours, LONG);
    assert!(seats.init(3).await.unwrap());
    let _ = world.admin(&["DECRBY", NAME, "1"]);
    let time: i64 = world
        .admin(&[
            "EVAL",
            "return (redis.call('TIME')[1] .. '000') + 100000000",
            "0",
        ])
        .parse()
        .unwrap();
    let _ = world.admin(&["ZADD", LEASES, &time.to_string(), "0123456789abcdef"]);
    assert!(seats.try_acquire(9).await.unwrap().is_none());
    ends_in(world, LONG + 100_000_000);
    // Redisson's score of a permit without a lease.
    let _ = world.admin(&["ZADD", LEASES, "922337203685477", "0123456789abcdef"]);
    assert!(seats.try_acquire(9).await.unwrap().is_none());
    assert!(ttl(world, NAME) > YEARS);
}

async fn a_semaphore_that_redisson_creates_or_changes_does_not_expire(world: &World) {
    for kind in KINDS {
        clear(world);
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, LONG);
        let held = seats.acquire(1).await.unwrap();
        // Redisson's `addPermits`.
        let _ = world.admin(&["SET", NAME, "4"]);
        held.release().await.unwrap();
        let another = seats.acquire(1).await.unwrap();
        stays(world);
        another.release().await.unwrap();
        // Redisson's `delete` and `trySetPermits`.
        clear(world);
        assert!(seats.init(3).await.unwrap());
        let _ = world.admin(&["DEL", NAME, LEASES]);
        let _ = world.admin(&["SET", NAME, "2"]);
        assert!(ttl(world, IDLE) > 0);
        let held = seats.acquire(2).await.unwrap();
        stays(world);
        held.release().await.unwrap();
        assert_eq!(free(world), 2);
        // After a deletion our handle with the option creates a semaphore without the old holds.
        clear(world);
        let former = seats.acquire(1).await.unwrap();
        let _ = world.admin(&["DEL", NAME]);
        let held = seats.acquire(1).await.unwrap();
        assert_eq!((free(world), kind.held(world)), (2, 1));
        assert!(former.release().await.is_err());
        held.release().await.unwrap();
        assert_eq!(free(world), 3);
        ends_in(
            world,
            if kind == Kind::Leased {
                LONG + LEASE
            } else {
                LONG
            },
        );
        // Our handle without the option creates a semaphore that does not expire.
        clear(world);
        assert!(seats.init(3).await.unwrap());
        let _ = world.admin(&["DEL", NAME, LEASES]);
        assert!(kind.on(&ours).init(2).await.unwrap());
        stays(world);
    }
}

async fn permits_of_a_closed_client_keep_the_semaphore_until_they_are_reclaimed(world: &World) {
    let (ours, theirs) = (world.client().await, world.client().await);
    let seats = Semaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(LONG));
    let lost = Semaphore::new(&theirs, NAME).unwrap();
    assert!(seats.init(3).await.unwrap());
    let permit = lost.acquire_many(2).await.unwrap();
    let owner = permit.owner().as_str().to_owned();
    theirs.shutdown(Duration::from_secs(1)).await;
    drop(permit);
    assert_eq!(free(world), 1);
    assert!(ttl(world, NAME) > YEARS);
    assert_eq!(seats.danger().reclaim(&owner).await.unwrap(), 2);
    assert_eq!(free(world), 3);
    ends_in(world, LONG);
    // `reclaim` adds no permits beyond the total.
    let _ = world.admin(&["HSET", LEDGER, "gone:1", "2"]);
    assert_eq!(seats.danger().reclaim("gone:1").await.unwrap(), 0);
    assert_eq!(free(world), 3);
    ends_in(world, LONG);
}

async fn a_delete_removes_all_keys_of_the_semaphore(world: &World) {
    let ours = world.client().await;
    let seats = Semaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(LONG));
    let held = seats.acquire().await.unwrap();
    assert!(seats.danger().delete().await.unwrap());
    is_gone(world).await;
    // The next acquire creates a new semaphore.
    let another = seats.acquire().await.unwrap();
    assert!(held.release().await.is_err());
    another.release().await.unwrap();
    assert_eq!(free(world), 3);
    clear(world);
    let seats = LeasedSemaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(LONG));
    let held = seats.acquire().await.unwrap();
    assert!(seats.danger().delete().await.unwrap());
    is_gone(world).await;
    drop(held);
}

async fn a_semaphore_without_the_option_does_not_expire(world: &World) {
    for kind in KINDS {
        clear(world);
        let ours = world.client().await;
        let seats = kind.on(&ours);
        assert!(seats.init(2).await.unwrap());
        seats.acquire(1).await.unwrap().release().await.unwrap();
        let before = world.scripts_run();
        let held = seats.acquire(2).await.unwrap();
        held.release().await.unwrap();
        assert_eq!(world.scripts_run() - before, 2);
        stays(world);
        let held = seats.acquire(2).await.unwrap();
        let waiter = waiting(&seats, 1);
        world.quiet().await;
        held.release().await.unwrap();
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert_eq!(seats.reduce(1).await.unwrap(), 1);
        stays(world);
        assert_eq!(ttl(world, LEASES), -2);
    }
}

async fn a_foreign_idle_key_refuses_acquires_and_allows_releases(world: &World) {
    for kind in KINDS {
        clear(world);
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, LONG);
        let held = seats.acquire(1).await.unwrap();
        let _ = world.admin(&["DEL", IDLE]);
        let _ = world.admin(&["RPUSH", IDLE, "foreign"]);
        let refused = seats.acquire(1).await;
        assert!(
            matches!(
                refused,
                Err(AcquireError::Rejected {
                    rejection: Rejection::WrongType { .. },
                    ..
                })
            ),
            "{refused:?}"
        );
        assert_eq!(free(world), 2);
        // R15: a held permit is still returned.
        held.release().await.unwrap();
        assert_eq!((free(world), kind.held(world)), (3, 0));
        let _ = world.admin(&["DEL", IDLE]);
    }
}

async fn an_expiry_is_reported_as_an_event(world: &World) {
    let ours = world.client().await;
    let seats = LeasedSemaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(1000));
    let mut events = seats.events();
    assert!(
        matches!(events.next().await, Some(Event::Now(state)) if state.available.is_none()),
        "the semaphore does not exist yet"
    );
    assert!(seats.init(3).await.unwrap());
    assert_eq!(events.next().await, Some(Event::Available(3)));
    assert_eq!(events.next().await, Some(Event::Deleted));
}

async fn semaphores_with_unusual_names_expire(world: &World) {
    let ours = world.client().await;
    for name in ["{seats}", "a{7}b", "with\nnewline", "}{", "sch\u{f6}n"] {
        for kind in KINDS {
            let brief = Lease::new(Duration::from_secs(1)).unwrap();
            let seats = kind.named(&ours, name).lease(brief);
            let seats = seats.ephemeral(2, after(1000));
            let held = seats.acquire(1).await.unwrap();
            assert_eq!(seats.available().await.unwrap(), 1);
            held.release().await.unwrap();
            is_gone(world).await;
        }
    }
}

/// Each kind ignores the idle key of the other.
async fn a_request_of_the_other_kind_does_not_extend_the_ttl(world: &World) {
    let ours = world.client().await;
    for (kind, other) in [(Kind::Plain, Kind::Leased), (Kind::Leased, Kind::Plain)] {
        clear(world);
        assert!(ephemeral(kind, &ours, LONG).init(3).await.unwrap());
        let before = world.admin(&["GET", IDLE]);
        age(world, 10_000);
        assert!(other.on(&ours).try_acquire(9).await.unwrap().is_none());
        ends_in(world, 10_000);
        assert_eq!(world.admin(&["GET", IDLE]), before);
    }
}
