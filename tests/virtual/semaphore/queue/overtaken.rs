//! Tests acquires with an unprocessed reply: a message that arrives first serves the other waiters, and a later permit serves the acquire.

use stanchion_tests::{assert_within, ms, secs};
use std::pin::pin;

use futures_util::poll;

use stanchion_tests::permits::Seats;

use super::*;

/// Another client holds `permits` permits, and one more, which are all.
async fn with_two_holds(kind: Kind, permits: u32) -> (World, Seats, Seat, Seat) {
    let (world, holder, held, _) = with_waiting_processes(kind, permits, 0).await;
    let other = kind.on(&holder[0]);
    other.add(1).await.unwrap();
    let last = other.acquire(1).await.unwrap();
    (world, other, held, last)
}

/// The first future of a process sends a request and is then not polled; `count` other tasks of the process wait. A release of `permits`
/// permits serves the other tasks after a second at the latest, and a later release of one permit serves the first.
async fn with_stalled_request(kind: Kind, permits: u32, count: usize) {
    let (world, _other, held, last) = with_two_holds(kind, permits).await;
    let client = world.named("p").await;
    let seats = kind.on(&client);
    let mut first = pin!(seats.acquire(1));
    let before = world.scripts_run();
    assert!(poll!(first.as_mut()).is_pending());
    eventually("the request has run", || world.scripts_run() > before).await;
    let mut others = Vec::new();
    for n in 0..count {
        others.push(taking(kind, &client, 1));
        eventually("the waiter is queued", || client.waiters() == n + 2).await;
    }
    processes_wait(&world, kind, 1).await;
    let released = Instant::now();
    held.release().await.unwrap();
    // P10: a leased permit that was granted to the stalled one stays with it for its lease. Plain permits go on after 0.5 s.
    let mut last = Some(last);
    if kind == Kind::Leased {
        last.take().unwrap().release().await.unwrap();
    }
    let mut taken = Vec::new();
    for other in others {
        let other = tokio::time::timeout(ms(1100), other).await;
        taken.push(other.unwrap().unwrap());
    }
    assert_within(released, ms(1100), kind);
    if let Some(last) = last {
        // Now the first future processes its refusal.
        assert!(poll!(first.as_mut()).is_pending());
        world.quiet().await;
        last.release().await.unwrap();
    }
    let first = tokio::time::timeout(ms(20), first).await;
    let first = first.unwrap().unwrap();
    first.release().await.unwrap();
    for other in taken {
        other.release().await.unwrap();
    }
    at_rest(&world, i64::from(permits) + 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_stalled_request_does_not_delay_other_waiters() {
    for kind in KINDS {
        with_stalled_request(kind, 1, 1).await;
    }
}

/// P4: the request is older than the message.
#[tokio::test(start_paused = true)]
async fn a_stalled_request_takes_no_permits_of_a_later_message() {
    for kind in KINDS {
        with_stalled_request(kind, 2, 2).await;
    }
}

/// The server refuses a request and then grants another one of the same process, which removes the process from the queue. The process
/// handles the refusal after the grant, so it must register again.
#[tokio::test(start_paused = true)]
async fn a_waiter_registers_again_if_its_refusal_is_processed_after_a_grant() {
    for kind in KINDS {
        let (world, other, held, last) = with_two_holds(kind, 2).await;
        // The process is subscribed from here on, so no confirmed subscription causes a request.
        let client = world.named("p").await;
        let before = taking(kind, &client, 1);
        processes_wait(&world, kind, 1).await;
        last.release().await.unwrap();
        before.await.unwrap().release().await.unwrap();
        let last = other.acquire(1).await.unwrap();
        // `sentry` is the relay, so the other process is subscribed only to its own channel.
        let sentry = world.named("sentry").await;
        let early = taking(kind, &sentry, 1);
        processes_wait(&world, kind, 1).await;
        let seats = kind.on(&client);
        let mut first = pin!(seats.acquire(1));
        assert!(poll!(first.as_mut()).is_pending());
        processes_wait(&world, kind, 2).await;
        let second = taking(kind, &client, 1);
        eventually("the waiter is queued", || client.waiters() == 2).await;
        world.quiet().await;
        held.release().await.unwrap();
        let taken = [early.await.unwrap(), second.await.unwrap()];
        assert!(poll!(first.as_mut()).is_pending());
        world.quiet().await;
        let given_back = Instant::now();
        last.release().await.unwrap();
        let first = first.await.unwrap();
        assert_within(given_back, ms(20), kind);
        first.release().await.unwrap();
        for seat in taken {
            seat.release().await.unwrap();
        }
        at_rest(&world, 3).await;
    }
}

/// Polls the future until its request and one retry are sent, and then no more.
macro_rules! poll_until_retry {
    ($world:ident, $waiter:ident) => {
        let before = $world.scripts_run();
        while $world.scripts_run() < before + 2 {
            assert!(poll!($waiter.as_mut()).is_pending());
            tokio::time::sleep(ms(100)).await;
        }
        $world.quiet().await;
    };
}

/// The stalled waiter was refused before, so new waiters queue behind it. A grant has removed the process from the queue.
#[tokio::test(start_paused = true)]
async fn a_new_waiter_behind_a_stalled_request_is_woken() {
    for kind in KINDS {
        let (world, _other, held, last) = with_two_holds(kind, 1).await;
        let client = world.named("p").await;
        let seats = kind.on(&client);
        let mut first = pin!(seats.acquire(1));
        poll_until_retry!(world, first);
        let second = taking(kind, &client, 1);
        eventually("the waiter is queued", || client.waiters() == 2).await;
        held.release().await.unwrap();
        let second = second.await.unwrap();
        let new_waiter = taking(kind, &client, 1);
        world.quiet().await;
        let released = Instant::now();
        last.release().await.unwrap();
        let new_waiter = new_waiter.await.unwrap();
        assert_within(released, ms(700), kind);
        second.release().await.unwrap();
        new_waiter.release().await.unwrap();
        first.await.unwrap().release().await.unwrap();
        at_rest(&world, 2).await;
    }
}

/// P4, invariant 3: the poll is granted for the first waiter, which does not take the permit.
#[tokio::test(start_paused = true)]
async fn a_poll_recovers_a_lost_message_behind_a_stalled_request() {
    for kind in KINDS {
        let (world, _holder, held, _) = with_waiting_processes(kind, 1, 0).await;
        let client = world.named("p").await;
        let seats = kind.on(&client);
        let mut first = pin!(seats.acquire(1));
        poll_until_retry!(world, first);
        let next = taking(kind, &client, 1);
        eventually("the waiter is queued", || client.waiters() == 2).await;
        world.quiet().await;
        world.faults().lose_messages(10);
        let released = Instant::now();
        held.release().await.unwrap();
        let next = tokio::time::timeout(secs(60), next).await;
        let next = next.unwrap().unwrap();
        assert_within(released, secs(7), ());
        world.faults().lose_messages(0);
        next.release().await.unwrap();
        first.await.unwrap().release().await.unwrap();
        at_rest(&world, 1).await;
    }
}

/// The waiter is dropped after the message, before it sends a request.
#[tokio::test(start_paused = true)]
async fn a_permit_announced_to_a_dropped_waiter_goes_to_the_next() {
    for kind in KINDS {
        let (world, _holder, held, _) = with_waiting_processes(kind, 1, 0).await;
        let client = world.named("p").await;
        let seats = kind.on(&client);
        let mut first = Box::pin(seats.acquire(1));
        while kind.queued(&world) == 0 {
            let waits = tokio::time::timeout(ms(5), &mut first).await;
            assert!(waits.is_err());
        }
        let next = taking(kind, &client, 1);
        eventually("the waiter is queued", || client.waiters() == 2).await;
        world.quiet().await;
        let released = Instant::now();
        held.release().await.unwrap();
        // The message arrives.
        tokio::time::sleep(ms(2)).await;
        drop(first);
        let next = next.await.unwrap();
        assert_within(released, ms(20), kind);
        next.release().await.unwrap();
        at_rest(&world, 1).await;
    }
}

/// P4: all permits become free, and the message overtakes the reply to a refused request of the first waiter.
#[tokio::test(start_paused = true)]
async fn a_message_that_overtakes_the_refusal_of_the_first_waiter_serves_it() {
    for kind in KINDS {
        let world = World::engine();
        let [holder, here] = [world.named("holder").await, world.named("here").await];
        kind.on(&holder).init(10).await.unwrap();
        let held = kind.on(&holder).acquire(10).await.unwrap();
        let big = taking(kind, &here, 10);
        processes_wait(&world, kind, 1).await;
        world.quiet().await;
        // The next poll of `here` is refused, and the reply takes 20 ms.
        let (before, faults) = (world.scripts_run(), world.faults());
        faults.delay(Some("here"), ms(20));
        eventually("`here` polls", || world.scripts_run() > before).await;
        faults.delay(Some("here"), ms(0));
        let released = Instant::now();
        held.release().await.unwrap();
        let big = big.await.unwrap();
        assert_within(released, ms(60), kind);
        big.release().await.unwrap();
        at_rest(&world, 10).await;
    }
}
