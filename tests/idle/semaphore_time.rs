//! Semaphores that end when nobody uses them, where virtual time and the engine's faults make it exact.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{AcquireError, Client, LeasedSemaphore};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{KINDS, Kind, LEASES, NAME, Seat, Seats, free};
use stanchion_tests::{LostReply, World};
use tokio::time::{Instant, sleep};

use crate::support::*;

#[tokio::test(start_paused = true)]
async fn one_that_somebody_waits_for_does_not_end() {
    for kind in KINDS {
        for (poll, waits) in [(5, 600), (600, 3000)] {
            let world = World::engine();
            let ours = world.client().await;
            let config = world.config("rare");
            let config = config.poll_interval(Duration::from_secs(poll));
            let rare = Client::connect_with(config).await.unwrap();
            assert!(ephemeral(kind, &ours, 1000).init(3).await.unwrap());
            let waiter = waiting(&kind.on(&rare), 4);
            sleep(Duration::from_secs(waits)).await;
            assert!(!waiter.is_finished());
            assert_eq!(kind.on(&ours).available().await.unwrap(), 3);
            assert_eq!(kind.on(&ours).add(1).await.unwrap(), 4);
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

/// Longer than the idle time and a lease together, many times.
#[tokio::test(start_paused = true)]
async fn one_that_is_held_does_not_end() {
    for kind in KINDS {
        let world = World::engine();
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, 1000);
        let held = seats.acquire(2).await.unwrap();
        for _ in 0..20 {
            sleep(Duration::from_secs(47)).await;
            assert!(held.is_held());
            // P1: no lease outlasts it.
            if let Seat::Leased(permit) = &held {
                let lives = Duration::from_millis(ttl(&world, NAME).unsigned_abs());
                assert!(lives >= permit.remaining() + Duration::from_secs(1));
            }
            assert_eq!((free(&world), kind.held(&world)), (1, 2));
        }
        held.release().await.unwrap();
        assert_eq!(free(&world), 3);
        sleep(Duration::from_secs(32)).await;
        world.at_rest().await;
    }
}

/// From task to task of a process, before any lease is renewed.
#[tokio::test(start_paused = true)]
async fn one_whose_permit_is_handed_on_does_not_end() {
    for kind in KINDS {
        let world = World::engine();
        let ours = world.client().await;
        let seats = match kind.on(&ours).ephemeral(1, after(1000)) {
            // Longer than a waiter keeps it.
            Seats::Leased(seats) => {
                Seats::Leased(seats.with_lease(Duration::from_secs(600).try_into().unwrap()))
            }
            plain @ Seats::Plain(_) => plain,
        };
        let mut held = seats.acquire(1).await.unwrap();
        let waiters: Vec<_> = (0..6).map(|_| waiting(&seats, 1)).collect();
        eventually("all wait", || ours.waiters() == 6).await;
        for waiter in waiters {
            sleep(Duration::from_secs(3)).await;
            let next = tokio::spawn(held.release());
            held = waiter.await.unwrap().unwrap();
            next.await.unwrap().unwrap();
            assert_eq!((free(&world), kind.held(&world)), (0, 1), "{kind:?}");
            if kind == Kind::Leased {
                // P1: no lease outlasts it.
                let beyond = "local time = redis.call('TIME')
                    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
                    return redis.call('PTTL', KEYS[1]) - (last - math.floor((time[1] * 1000000 + time[2]) / 1000))";
                let beyond = world.admin(&["EVAL", beyond, "2", NAME, LEASES]);
                assert!(beyond.parse::<i64>().unwrap() >= 1000, "{beyond}");
            }
        }
        held.release().await.unwrap();
        sleep(Duration::from_secs(602)).await;
        world.at_rest().await;
    }
}

/// Exactly: to the millisecond, and nothing is left.
#[tokio::test(start_paused = true)]
async fn it_ends_when_its_time_has_passed_and_not_before() {
    for kind in KINDS {
        let world = World::engine();
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, 3_600_000);
        let tick = Duration::from_millis(1);
        let hour = Duration::from_secs(3600);
        let until = match kind {
            Kind::Plain => hour,
            Kind::Leased => hour + Duration::from_millis(LEASE.cast_unsigned()),
        };
        for _ in 0..3 {
            seats.acquire(1).await.unwrap().release().await.unwrap();
            sleep(until - tick).await;
            assert_eq!(kind.on(&ours).available().await.unwrap(), 3);
        }
        sleep(2 * tick).await;
        assert_eq!(kind.on(&ours).available().await.unwrap(), 0);
        world.at_rest().await;
    }
}

/// Their leases end, and with them everything.
#[tokio::test(start_paused = true)]
async fn a_thousand_of_dead_processes_leave_nothing() {
    let world = World::engine();
    let ours = world.client().await;
    let mut held = Vec::new();
    for n in 0..1000 {
        let seats = LeasedSemaphore::new(&ours, format!("customer\n:{n}")).unwrap();
        let seats = seats.ephemeral(3, after(60_000));
        held.push(seats.acquire().await.unwrap());
    }
    sleep(Duration::from_secs(100)).await;
    assert!(held.iter().all(stanchion::LeasedPermit::is_held));
    ours.shutdown(Duration::ZERO).await;
    sleep(Duration::from_secs(60 + 31)).await;
    world.at_rest().await;
    drop(held);
}

/// P6: a repeated acquire takes one permit of one semaphore.
#[tokio::test(start_paused = true)]
async fn an_acquire_whose_reply_is_lost_makes_it_once() {
    for kind in KINDS {
        for way in LostReply::WAYS {
            let world = World::engine();
            let ours = world.client().await;
            let seats = ephemeral(kind, &ours, LONG);
            // The server knows the script.
            seats.acquire(1).await.unwrap().release().await.unwrap();
            clear(&world);
            world.lose_next_reply(way);
            let held = seats.acquire(1).await.unwrap();
            assert_eq!((free(&world), kind.held(&world)), (2, 1));
            held.release().await.unwrap();
            world.lose_next_reply(way);
            assert_eq!(seats.add(1).await.unwrap(), 4);
            assert_eq!(free(&world), 4);
        }
    }
}

/// P3: an acquire that is dropped while its request is under way leaves a semaphore that ends.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_dropped_leaves_one_that_ends() {
    for kind in KINDS {
        let world = World::engine();
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, 1000);
        let mut acquire = Box::pin(seats.acquire(1));
        assert!(futures_util::poll!(&mut acquire).is_pending());
        drop(acquire);
        world.quiet().await;
        assert_eq!((free(&world), kind.held(&world)), (3, 0));
        sleep(Duration::from_secs(32)).await;
        is_gone(&world).await;
    }
}

/// R8: what is refused at maxmemory has written nothing, and what is in use goes on.
#[tokio::test(start_paused = true)]
async fn a_full_server_keeps_what_is_used() {
    for kind in KINDS {
        let world = World::engine();
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, 60_000);
        let faults = world.as_engine().faults();
        faults.out_of_memory(Switch::On);
        let refused = seats.acquire(1).await;
        assert!(
            matches!(refused, Err(AcquireError::Rejected { .. })),
            "{refused:?}"
        );
        assert!(world.keys().is_empty(), "{:?}", world.keys());
        faults.out_of_memory(Switch::Off);
        let held = seats.acquire(1).await.unwrap();
        faults.out_of_memory(Switch::On);
        sleep(Duration::from_secs(600)).await;
        assert!(held.is_held());
        assert_eq!(free(&world), 2);
        held.release().await.unwrap();
        assert_eq!(free(&world), 3);
        sleep(Duration::from_secs(91)).await;
        assert_eq!(free(&world), 0);
    }
}

/// In one process, behind a waiter whose handle makes nothing: only the first asks. A call that does not wait makes it.
#[tokio::test(start_paused = true)]
async fn who_waits_behind_another_handle_is_served_when_it_is_made() {
    for kind in KINDS {
        let world = World::engine();
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, LONG);
        let first = waiting(&kind.on(&ours), 1);
        sleep(Duration::from_secs(1)).await;
        let second = waiting(&seats, 1);
        sleep(Duration::from_secs(60)).await;
        assert!(!first.is_finished() && !second.is_finished());
        assert!(seats.try_acquire(1).await.unwrap().is_some());
        for waiter in [first, second] {
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

/// What makes it is refused itself: those who wait for fewer are told.
#[tokio::test(start_paused = true)]
async fn what_is_made_in_vain_wakes_those_who_waited_for_it() {
    for kind in KINDS {
        let world = World::engine();
        let (ours, theirs) = (world.client().await, world.client().await);
        let waiter = waiting(&kind.on(&theirs), 1);
        eventually("it waits", || theirs.waiters() == 1).await;
        world.quiet().await;
        let began = Instant::now();
        assert!(
            ephemeral(kind, &ours, LONG)
                .try_acquire(4)
                .await
                .unwrap()
                .is_none()
        );
        waiter.await.unwrap().unwrap().release().await.unwrap();
        assert!(
            began.elapsed() < Duration::from_millis(10),
            "P4: by message: {:?}",
            began.elapsed()
        );
    }
}

/// P3: a request that reaches the server too late makes nothing.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_comes_late_makes_nothing() {
    for kind in KINDS {
        let world = World::engine();
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, 1000);
        seats.acquire(1).await.unwrap().release().await.unwrap();
        clear(&world);
        let faults = world.as_engine().faults();
        faults.freeze(Some("client"));
        let late = seats.acquire_timeout(1, Duration::from_millis(100)).await;
        assert!(late.is_err());
        sleep(Duration::from_secs(20)).await;
        faults.thaw(Some("client"));
        // Whatever ran, ran in this instant.
        assert!(world.keys().is_empty(), "{:?}", world.keys());
    }
}

/// P3: what is swept is given back, and the semaphore ends.
#[tokio::test(start_paused = true)]
async fn an_acquire_that_is_swept_leaves_one_that_ends() {
    for kind in KINDS {
        let world = World::engine();
        let ours = world.client().await;
        let seats = ephemeral(kind, &ours, 1000);
        seats.acquire(1).await.unwrap().release().await.unwrap();
        world.lose_next_reply(LostReply::Silent);
        let late = seats.acquire_timeout(1, Duration::from_millis(100)).await;
        assert!(late.is_err());
        sleep(Duration::from_secs(100)).await;
        world.at_rest().await;
    }
}
