//! Tests semaphores with idle expiry in virtual time, with exact times and the engine's faults.

use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{AcquireError, Client, LeasedSemaphore};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{KINDS, Kind, LEASES, NAME, Seat, Seats, free};
use stanchion_tests::{LostReply, World, assert_is, assert_within, ms, secs};
use tokio::time::{Instant, sleep};

use stanchion_tests::idle::*;

#[tokio::test(start_paused = true)]
async fn a_semaphore_with_a_waiter_does_not_expire() {
    for kind in KINDS {
        for (poll, waits) in [(5, 600), (600, 3000)] {
            let (world, ours) = World::engine().with_client().await;
            let config = world.config("rare");
            let config = config.poll_interval(secs(poll));
            let rare = Client::connect_with(config).await.unwrap();
            assert!(ephemeral(kind, &ours, 1000).init(3).await.unwrap());
            let waiter = waiting(&kind.on(&rare), 4);
            sleep(secs(waits)).await;
            assert!(!waiter.is_finished());
            assert_eq!(kind.on(&ours).available().await.unwrap(), 3);
            assert_eq!(kind.on(&ours).add(1).await.unwrap(), 4);
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

/// Held for many times the sum of the idle time and a lease.
#[tokio::test(start_paused = true)]
async fn a_held_semaphore_does_not_expire() {
    for kind in KINDS {
        let (world, ours) = World::engine().with_client().await;
        let seats = ephemeral(kind, &ours, 1000);
        let held = seats.acquire(2).await.unwrap();
        for _ in 0..20 {
            sleep(secs(47)).await;
            assert!(held.is_held());
            // P1: no lease outlasts the semaphore.
            if let Seat::Leased(permit) = &held {
                let lives = ms(ttl(&world, NAME).unsigned_abs());
                assert!(lives >= permit.remaining() + secs(1));
            }
            assert_eq!((free(&world), kind.held(&world)), (1, 2));
        }
        held.release().await.unwrap();
        assert_eq!(free(&world), 3);
        sleep(secs(32)).await;
        world.at_rest().await;
    }
}

/// The hand-offs are between tasks of one process, before a renewal of a lease.
#[tokio::test(start_paused = true)]
async fn a_semaphore_whose_permit_is_handed_off_does_not_expire() {
    for kind in KINDS {
        let (world, ours) = World::engine().with_client().await;
        let seats = match kind.on(&ours).ephemeral(1, after(1000)) {
            // Longer than the TTL of 70 s that a waiter's request gives.
            Seats::Leased(seats) => Seats::Leased(seats.lease(secs(600))),
            plain @ Seats::Plain(_) => plain,
        };
        let mut held = seats.acquire(1).await.unwrap();
        let waiters: Vec<_> = (0..6).map(|_| waiting(&seats, 1)).collect();
        eventually("all calls wait", || ours.waiters() == 6).await;
        for waiter in waiters {
            sleep(secs(3)).await;
            let next = tokio::spawn(held.release());
            held = waiter.await.unwrap().unwrap();
            next.await.unwrap().unwrap();
            assert_eq!((free(&world), kind.held(&world)), (0, 1), "{kind:?}");
            if kind == Kind::Leased {
                // P1: no lease outlasts the semaphore.
                let beyond = "local time = redis.call('TIME')
                    local last = redis.call('ZRANGE', KEYS[2], -1, -1, 'WITHSCORES')[2]
                    return redis.call('PTTL', KEYS[1]) - (last - math.floor((time[1] * 1000000 + time[2]) / 1000))";
                let beyond = world.admin(&["EVAL", beyond, "2", NAME, LEASES]);
                assert!(beyond.parse::<i64>().unwrap() >= 1000, "{beyond}");
            }
        }
        held.release().await.unwrap();
        sleep(secs(602)).await;
        world.at_rest().await;
    }
}

/// Exact to the millisecond, and no key is left.
#[tokio::test(start_paused = true)]
async fn a_semaphore_expires_exactly_after_its_idle_time() {
    for kind in KINDS {
        let (world, ours) = World::engine().with_client().await;
        let seats = ephemeral(kind, &ours, 3_600_000);
        let tick = ms(1);
        let hour = secs(3600);
        let until = match kind {
            Kind::Plain => hour,
            Kind::Leased => hour + ms(LEASE.cast_unsigned()),
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

/// The leases end, and then all keys expire.
#[tokio::test(start_paused = true)]
async fn a_thousand_semaphores_of_a_closed_client_leave_nothing() {
    let (world, ours) = World::engine().with_client().await;
    let mut held = Vec::new();
    for n in 0..1000 {
        let seats = LeasedSemaphore::new(&ours, format!("customer\n:{n}")).unwrap();
        let seats = seats.ephemeral(3, after(60_000));
        held.push(seats.acquire().await.unwrap());
    }
    sleep(secs(100)).await;
    assert!(held.iter().all(stanchion::LeasedPermit::is_held));
    ours.shutdown(Duration::ZERO).await;
    sleep(secs(60 + 31)).await;
    world.at_rest().await;
    drop(held);
}

/// P6: a repeated acquire takes one permit of one semaphore.
#[tokio::test(start_paused = true)]
async fn an_acquire_whose_reply_is_lost_takes_effect_once() {
    for kind in KINDS {
        for way in LostReply::WAYS {
            let (world, ours) = World::engine().with_client().await;
            let seats = ephemeral(kind, &ours, LONG);
            // Loads the script, so that the next reply is that of the script.
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

/// P3: the acquire is dropped while its request is in flight.
#[tokio::test(start_paused = true)]
async fn a_dropped_acquire_leaves_a_semaphore_that_expires() {
    for kind in KINDS {
        let (world, ours) = World::engine().with_client().await;
        let seats = ephemeral(kind, &ours, 1000);
        let mut acquire = Box::pin(seats.acquire(1));
        assert!(futures_util::poll!(&mut acquire).is_pending());
        drop(acquire);
        world.quiet().await;
        assert_eq!((free(&world), kind.held(&world)), (3, 0));
        sleep(secs(32)).await;
        is_gone(&world).await;
    }
}

/// R8: a call that is refused at maxmemory writes nothing, and a held permit is kept.
#[tokio::test(start_paused = true)]
async fn without_memory_an_acquire_is_refused_and_a_held_semaphore_is_kept() {
    for kind in KINDS {
        let (world, ours) = World::engine().with_client().await;
        let seats = ephemeral(kind, &ours, 60_000);
        let faults = world.faults();
        faults.out_of_memory(Switch::On);
        let refused = seats.acquire(1).await;
        assert_is!(refused, Err(AcquireError::Rejected { .. }));
        assert!(world.keys().is_empty(), "{:?}", world.keys());
        faults.out_of_memory(Switch::Off);
        let held = seats.acquire(1).await.unwrap();
        faults.out_of_memory(Switch::On);
        sleep(secs(600)).await;
        assert!(held.is_held());
        assert_eq!(free(&world), 2);
        held.release().await.unwrap();
        assert_eq!(free(&world), 3);
        sleep(secs(91)).await;
        assert_eq!(free(&world), 0);
    }
}

/// Only the first waiter of a process sends requests, and its handle creates no semaphore. A later try does.
#[tokio::test(start_paused = true)]
async fn a_waiter_behind_another_handle_acquires_when_the_semaphore_is_created() {
    for kind in KINDS {
        let (_world, ours) = World::engine().with_client().await;
        let seats = ephemeral(kind, &ours, LONG);
        let first = waiting(&kind.on(&ours), 1);
        sleep(secs(1)).await;
        let second = waiting(&seats, 1);
        sleep(secs(60)).await;
        assert!(!first.is_finished() && !second.is_finished());
        assert!(seats.try_acquire(1).await.unwrap().is_some());
        for waiter in [first, second] {
            waiter.await.unwrap().unwrap().release().await.unwrap();
        }
    }
}

/// The request for 4 of 3 permits fails, but creates the semaphore. The waiter for 1 permit must be woken.
#[tokio::test(start_paused = true)]
async fn a_failed_request_that_creates_the_semaphore_wakes_its_waiters() {
    for kind in KINDS {
        let (world, [ours, theirs]) = World::engine().with_clients().await;
        let waiter = waiting(&kind.on(&theirs), 1);
        eventually("the call waits", || theirs.waiters() == 1).await;
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
        assert_within(began, ms(10), "P4: by message");
    }
}

/// P3: the request reaches the server after its deadline.
#[tokio::test(start_paused = true)]
async fn a_late_acquire_creates_nothing() {
    for kind in KINDS {
        let (world, ours) = World::engine().with_client().await;
        let seats = ephemeral(kind, &ours, 1000);
        seats.acquire(1).await.unwrap().release().await.unwrap();
        clear(&world);
        let faults = world.faults();
        faults.freeze(Some("client"));
        let late = seats.acquire_timeout(1, ms(100)).await;
        assert!(late.is_err());
        sleep(secs(20)).await;
        faults.thaw(Some("client"));
        // In virtual time a request that runs has run by now.
        assert!(world.keys().is_empty(), "{:?}", world.keys());
    }
}

/// P3: the sweep returns the permit of an acquire whose reply was lost.
#[tokio::test(start_paused = true)]
async fn a_swept_acquire_leaves_a_semaphore_that_expires() {
    for kind in KINDS {
        let (world, ours) = World::engine().with_client().await;
        let seats = ephemeral(kind, &ours, 1000);
        seats.acquire(1).await.unwrap().release().await.unwrap();
        world.lose_next_reply(LostReply::Silent);
        let late = seats.acquire_timeout(1, ms(100)).await;
        assert!(late.is_err());
        sleep(secs(100)).await;
        world.at_rest().await;
    }
}
