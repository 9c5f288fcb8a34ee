//! Semaphores that end when nobody uses them.

use std::time::Duration;

use stanchion::{AcquireError, Event, Lease, LeasedSemaphore, QueryError, Rejection, Semaphore};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use stanchion_tests::permits::{IDLE, KINDS, Kind, LEASES, LEDGER, NAME, Seats, free};
use tokio::time::sleep;

use crate::support::*;

suite! {
    an_acquire_makes_it,
    one_that_nobody_uses_ends_and_leaves_nothing,
    every_use_begins_its_time_anew,
    the_call_that_makes_it_decides,
    a_permit_keeps_it_until_the_last_is_given_back,
    who_waits_keeps_it,
    a_change_of_the_number_makes_it_too,
    what_is_made_wakes_those_who_waited_for_it,
    redissons_permits_keep_it_where_we_see_them,
    one_that_redisson_makes_or_changes_does_not_end,
    permits_of_the_dead_keep_it_until_they_are_given_back,
    a_delete_removes_all_of_it,
    without_the_option_nothing_has_changed,
    a_foreign_key_in_its_place_takes_nothing,
    listeners_are_told,
    names_of_any_bytes_end,
    one_of_the_other_kind_is_left_alone,
}

async fn an_acquire_makes_it(world: &World) {
    for kind in KINDS {
        clear(world);
        let (ours, theirs) = (world.client().await, world.client().await);
        let seats = ephemeral(kind, &ours, LONG);
        assert_eq!(seats.available().await.unwrap(), 3);
        assert_eq!(kind.on(&theirs).available().await.unwrap(), 0);
        assert!(world.keys().is_empty(), "to look is not to use");
        // The scripts are known to the server after a first time.
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

async fn one_that_nobody_uses_ends_and_leaves_nothing(world: &World) {
    for kind in KINDS {
        let ours = world.client().await;
        let brief = Lease::new(Duration::from_secs(1)).unwrap();
        let seats = ephemeral(kind, &ours, 1000).with_lease(brief);
        let held = seats.acquire(3).await.unwrap();
        sleep(Duration::from_millis(2500)).await;
        assert_eq!(free(world), 0, "it is held, and still there");
        held.release().await.unwrap();
        let left = ttl(world, NAME);
        assert!(left > 0 && left <= 2000, "{left}");
        is_gone(world).await;
        // To other handles it is one that nobody has made.
        assert!(kind.on(&ours).try_acquire(1).await.unwrap().is_none());
        assert!(kind.on(&ours).init(1).await.unwrap());
        stays(world);
        clear(world);
    }
}

async fn every_use_begins_its_time_anew(world: &World) {
    for kind in KINDS {
        clear(world);
        let (ours, theirs) = (world.client().await, world.client().await);
        assert!(ephemeral(kind, &ours, LONG).init(3).await.unwrap());
        ends_in(world, LONG);
        // By a handle that knows nothing of it.
        let theirs = kind.on(&theirs);
        let anew = async |seats: &Seats| {
            let more = seats.acquire(1).await.unwrap();
            more.release().await.unwrap();
        };
        let lease = if kind == Kind::Leased { LEASE } else { 0 };
        age(world, 10_000);
        anew(&theirs).await;
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

async fn the_call_that_makes_it_decides(world: &World) {
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

async fn a_permit_keeps_it_until_the_last_is_given_back(world: &World) {
    clear(world);
    let (ours, theirs) = (world.client().await, world.client().await);
    let seats = ephemeral(Kind::Plain, &ours, LONG);
    let first = seats.acquire(1).await.unwrap();
    let second = Kind::Plain.on(&theirs).acquire(2).await.unwrap();
    assert!(ttl(world, NAME) > YEARS && ttl(world, IDLE) > YEARS);
    second.release().await.unwrap();
    assert!(ttl(world, NAME) > YEARS && ttl(world, IDLE) > YEARS);
    drop(first);
    eventually("a dropped one is given back", || free(world) == 3).await;
    ends_in(world, LONG);
    clear(world);
    let seats = ephemeral(Kind::Leased, &ours, LONG);
    let long = Lease::new(Duration::from_secs(3600)).unwrap();
    let first = seats.clone().with_lease(long).acquire(1).await.unwrap();
    ends_in(world, LONG + 3_600_000);
    let left = ttl(world, LEASES);
    assert!(left >= ttl(world, NAME), "{left}");
    // R3: a shorter lease does not shorten it.
    let second = seats.acquire(1).await.unwrap();
    ends_in(world, LONG + 3_600_000);
    first.release().await.unwrap();
    second.release().await.unwrap();
    assert_eq!(free(world), 3);
}

async fn who_waits_keeps_it(world: &World) {
    for kind in KINDS {
        clear(world);
        let ours = world.client().await;
        let brief = Lease::new(Duration::from_secs(1)).unwrap();
        let seats = ephemeral(kind, &ours, 1000).with_lease(brief);
        assert!(seats.init(1).await.unwrap());
        // More than there are.
        let waiter = waiting(&kind.on(&ours).with_lease(brief), 2);
        eventually("it asks", || ttl(world, NAME) > 60_000).await;
        ends_in(world, KEPT);
        let held = seats.acquire(1).await.unwrap();
        held.release().await.unwrap();
        ends_in(world, KEPT);
        assert_eq!(seats.add(1).await.unwrap(), 2);
        waiter.await.unwrap().unwrap().release().await.unwrap();
        ends_in(world, KEPT);
    }
}

async fn a_change_of_the_number_makes_it_too(world: &World) {
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

async fn what_is_made_wakes_those_who_waited_for_it(world: &World) {
    for kind in KINDS {
        clear(world);
        let (ours, theirs) = (world.client().await, world.client().await);
        let waiters: Vec<_> = (0..2).map(|_| waiting(&kind.on(&theirs), 1)).collect();
        eventually("they wait", || {
            world.keys().iter().any(|key| key.contains("crowd"))
        })
        .await;
        world.quiet().await;
        let held = ephemeral(kind, &ours, LONG).acquire(1).await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
        held.release().await.unwrap();
        assert_eq!(free(world), 3);
    }
}

async fn redissons_permits_keep_it_where_we_see_them(world: &World) {
    let ours = world.client().await;
    let seats = ephemeral(Kind::Plain, &ours, LONG);
    assert!(seats.init(3).await.unwrap());
    // Redisson's `acquire`: its DECRBY leaves the TTL alone.
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
    // One that it gives back without having taken it hides ours in the number, not in the ledger.
    let held = seats.acquire(1).await.unwrap();
    let _ = world.admin(&["INCRBY", NAME, "1"]);
    assert!(seats.try_acquire(9).await.unwrap().is_none());
    assert!(ttl(world, NAME) > YEARS);
    let _ = world.admin(&["DECRBY", NAME, "1"]);
    held.release().await.unwrap();
    ends_in(world, LONG);
    // The total goes with the number.
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
    // Redisson's "no lease".
    let _ = world.admin(&["ZADD", LEASES, "922337203685477", "0123456789abcdef"]);
    assert!(seats.try_acquire(9).await.unwrap().is_none());
    assert!(ttl(world, NAME) > YEARS);
}

async fn one_that_redisson_makes_or_changes_does_not_end(world: &World) {
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
        // And ours, with the option: of the former one nothing is held.
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
        // And without.
        clear(world);
        assert!(seats.init(3).await.unwrap());
        let _ = world.admin(&["DEL", NAME, LEASES]);
        assert!(kind.on(&ours).init(2).await.unwrap());
        stays(world);
    }
}

async fn permits_of_the_dead_keep_it_until_they_are_given_back(world: &World) {
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
    // It makes no permits that there are not.
    let _ = world.admin(&["HSET", LEDGER, "gone:1", "2"]);
    assert_eq!(seats.danger().reclaim("gone:1").await.unwrap(), 0);
    assert_eq!(free(world), 3);
    ends_in(world, LONG);
}

async fn a_delete_removes_all_of_it(world: &World) {
    let ours = world.client().await;
    let seats = Semaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(LONG));
    let held = seats.acquire().await.unwrap();
    assert!(seats.danger().delete().await.unwrap());
    is_gone(world).await;
    // It is another from the next acquire on.
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

async fn without_the_option_nothing_has_changed(world: &World) {
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

async fn a_foreign_key_in_its_place_takes_nothing(world: &World) {
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
        // R15: what is held is given back all the same.
        held.release().await.unwrap();
        assert_eq!((free(world), kind.held(world)), (3, 0));
        let _ = world.admin(&["DEL", IDLE]);
    }
}

async fn listeners_are_told(world: &World) {
    let ours = world.client().await;
    let seats = LeasedSemaphore::new(&ours, NAME)
        .unwrap()
        .ephemeral(3, after(1000));
    let mut events = seats.events();
    assert!(
        matches!(events.next().await, Some(Event::Now(state)) if state.available.is_none()),
        "it is not there yet"
    );
    assert!(seats.init(3).await.unwrap());
    assert_eq!(events.next().await, Some(Event::Available(3)));
    assert_eq!(events.next().await, Some(Event::Deleted));
}

async fn names_of_any_bytes_end(world: &World) {
    let ours = world.client().await;
    for name in ["{seats}", "a{7}b", "with\nnewline", "}{", "sch\u{f6}n"] {
        for kind in KINDS {
            let brief = Lease::new(Duration::from_secs(1)).unwrap();
            let seats = kind.named(&ours, name).with_lease(brief);
            let seats = seats.ephemeral(2, after(1000));
            let held = seats.acquire(1).await.unwrap();
            assert_eq!(seats.available().await.unwrap(), 1);
            held.release().await.unwrap();
            is_gone(world).await;
        }
    }
}

/// Neither kind knows what keeps the other.
async fn one_of_the_other_kind_is_left_alone(world: &World) {
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
