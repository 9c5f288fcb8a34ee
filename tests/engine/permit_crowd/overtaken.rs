//! A request whose answer is not taken yet: those beside it get what a message announces, and it is not forgotten.

use std::pin::pin;

use futures_util::poll;

use super::*;

/// Lets one task of a process wait that is not polled any more after it has asked, and `beside` others. Another process releases so many
/// permits, which these get at once; and then one more, which the first gets at once.
async fn left_alone(kind: Kind, permits: u32, beside: usize) {
    let world = World::engine();
    let (holder, held, _) = waited_for(&world, kind, permits, 0).await;
    let other = kind.on(&holder[0]);
    other.add(1).await.unwrap();
    let last = other.acquire(1).await.unwrap();
    let client = world.named("p").await;
    let seats = kind.on(&client);
    let mut first = pin!(seats.acquire(1));
    let before = world.scripts_run();
    assert!(poll!(first.as_mut()).is_pending());
    eventually("it has asked", || world.scripts_run() > before).await;
    let mut others = Vec::new();
    for n in 0..beside {
        others.push(taking(kind, &client, 1));
        eventually("it waits", || client.waiters() == n + 2).await;
    }
    gathered(&world, 1).await;
    let released = Instant::now();
    held.release().await.unwrap();
    let mut taken = Vec::new();
    for other in others {
        let other = tokio::time::timeout(ms(20), other).await;
        taken.push(other.unwrap().unwrap());
    }
    assert!(
        released.elapsed() < ms(20),
        "{kind:?}: {:?}",
        released.elapsed()
    );
    // Now it hears that it was refused.
    assert!(poll!(first.as_mut()).is_pending());
    world.quiet().await;
    let given_back = Instant::now();
    last.release().await.unwrap();
    let first = tokio::time::timeout(ms(20), first).await;
    let first = first.unwrap().unwrap();
    assert!(
        given_back.elapsed() < ms(20),
        "{kind:?}: {:?}",
        given_back.elapsed()
    );
    first.release().await.unwrap();
    for other in taken {
        other.release().await.unwrap();
    }
    at_rest(&world, i64::from(permits) + 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_left_alone_while_it_asks_delays_nobody() {
    for kind in KINDS {
        left_alone(kind, 1, 1).await;
    }
}

/// P4: its request is older than the message, so none of what that announces is its.
#[tokio::test(start_paused = true)]
async fn a_message_is_not_for_those_who_asked_before_it() {
    for kind in KINDS {
        left_alone(kind, 2, 2).await;
    }
}

/// A refusal that was executed before a grant to another of its process, and is heard after it: the grant has said that nobody waits.
#[tokio::test(start_paused = true)]
async fn a_refusal_that_is_heard_after_a_grant_is_made_good() {
    for kind in KINDS {
        let world = World::engine();
        let (holder, held, _) = waited_for(&world, kind, 2, 0).await;
        let other = kind.on(&holder[0]);
        other.add(1).await.unwrap();
        let last = other.acquire(1).await.unwrap();
        // It listens from here on, so no confirmation makes it ask.
        let client = world.named("p").await;
        let before = taking(kind, &client, 1);
        gathered(&world, 1).await;
        last.release().await.unwrap();
        before.await.unwrap().release().await.unwrap();
        let last = other.acquire(1).await.unwrap();
        // It hears Redisson's releases, so the other process hears what it is told alone.
        let sentry = world.named("sentry").await;
        let early = taking(kind, &sentry, 1);
        gathered(&world, 1).await;
        let seats = kind.on(&client);
        let mut first = pin!(seats.acquire(1));
        assert!(poll!(first.as_mut()).is_pending());
        gathered(&world, 2).await;
        let beside = taking(kind, &client, 1);
        eventually("it waits", || client.waiters() == 2).await;
        world.quiet().await;
        held.release().await.unwrap();
        let taken = [early.await.unwrap(), beside.await.unwrap()];
        assert!(poll!(first.as_mut()).is_pending());
        world.quiet().await;
        let given_back = Instant::now();
        last.release().await.unwrap();
        let first = first.await.unwrap();
        assert!(
            given_back.elapsed() < ms(20),
            "{kind:?}: {:?}",
            given_back.elapsed()
        );
        first.release().await.unwrap();
        for seat in taken {
            seat.release().await.unwrap();
        }
        at_rest(&world, 3).await;
    }
}

/// Waits until it is refused, asks again by the poll, and is then left alone.
macro_rules! asks_again {
    ($world:ident, $waiter:ident) => {
        let before = $world.scripts_run();
        while $world.scripts_run() < before + 2 {
            assert!(poll!($waiter.as_mut()).is_pending());
            tokio::time::sleep(ms(100)).await;
        }
        $world.quiet().await;
    };
}

/// It has been refused before, so newcomers wait behind it; and a grant has said that nobody does.
#[tokio::test(start_paused = true)]
async fn nobody_sleeps_behind_a_call_that_is_left_alone() {
    for kind in KINDS {
        let world = World::engine();
        let (holder, held, _) = waited_for(&world, kind, 1, 0).await;
        let other = kind.on(&holder[0]);
        other.add(1).await.unwrap();
        let last = other.acquire(1).await.unwrap();
        let client = world.named("p").await;
        let seats = kind.on(&client);
        let mut first = pin!(seats.acquire(1));
        asks_again!(world, first);
        let beside = taking(kind, &client, 1);
        eventually("it waits", || client.waiters() == 2).await;
        held.release().await.unwrap();
        let beside = beside.await.unwrap();
        let newcomer = taking(kind, &client, 1);
        world.quiet().await;
        let released = Instant::now();
        last.release().await.unwrap();
        let newcomer = newcomer.await.unwrap();
        assert!(
            released.elapsed() < ms(20),
            "{kind:?}: {:?}",
            released.elapsed()
        );
        beside.release().await.unwrap();
        newcomer.release().await.unwrap();
        first.await.unwrap().release().await.unwrap();
        at_rest(&world, 2).await;
    }
}

/// P4, invariant 3: the poll lets others ask.
#[tokio::test(start_paused = true)]
async fn a_lost_message_is_made_good_behind_a_call_that_is_left_alone() {
    for kind in KINDS {
        let world = World::engine();
        let (_holder, held, _) = waited_for(&world, kind, 1, 0).await;
        let client = world.named("p").await;
        let seats = kind.on(&client);
        let mut first = pin!(seats.acquire(1));
        asks_again!(world, first);
        let next = taking(kind, &client, 1);
        eventually("it waits", || client.waiters() == 2).await;
        world.quiet().await;
        world.as_engine().faults().lose_messages(10);
        let released = Instant::now();
        held.release().await.unwrap();
        let next = tokio::time::timeout(Duration::from_secs(60), next).await;
        let next = next.unwrap().unwrap();
        assert!(
            released.elapsed() < Duration::from_secs(6),
            "{:?}",
            released.elapsed()
        );
        world.as_engine().faults().lose_messages(0);
        next.release().await.unwrap();
        first.await.unwrap().release().await.unwrap();
        at_rest(&world, 1).await;
    }
}

/// A permit that a waiter was told of goes to the next if it leaves before it has asked.
#[tokio::test(start_paused = true)]
async fn what_a_waiter_was_told_of_is_for_the_next_if_it_leaves() {
    for kind in KINDS {
        let world = World::engine();
        let (_holder, held, _) = waited_for(&world, kind, 1, 0).await;
        let client = world.named("p").await;
        let seats = kind.on(&client);
        let mut first = Box::pin(seats.acquire(1));
        while world.admin(&["ZCARD", CROWD]) == "0" {
            let waits = tokio::time::timeout(ms(5), &mut first).await;
            assert!(waits.is_err());
        }
        let next = taking(kind, &client, 1);
        eventually("it waits", || client.waiters() == 2).await;
        world.quiet().await;
        let released = Instant::now();
        held.release().await.unwrap();
        // The message has come.
        tokio::time::sleep(ms(2)).await;
        drop(first);
        let next = next.await.unwrap();
        assert!(
            released.elapsed() < ms(20),
            "{kind:?}: {:?}",
            released.elapsed()
        );
        next.release().await.unwrap();
        at_rest(&world, 1).await;
    }
}

/// P4: all permits become free, and the message arrives while a request of the first in line is in flight, which the server has refused
/// before. The permits of the message are for the first, not for the smaller requests behind it.
#[tokio::test(start_paused = true)]
async fn a_message_that_overtakes_the_refusal_of_the_first_in_line_is_for_it() {
    for kind in KINDS {
        for small in [0, 1, 3] {
            let world = World::engine();
            let [holder, here] = [world.named("holder").await, world.named("here").await];
            kind.on(&holder).init(10).await.unwrap();
            let held = kind.on(&holder).acquire(10).await.unwrap();
            let big = taking(kind, &here, 10);
            gathered(&world, 1).await;
            let small: Vec<_> = (0..small).map(|_| taking(kind, &here, 1)).collect();
            world.quiet().await;
            // Its next poll has been refused, and the reply takes 20 ms.
            let (before, faults) = (world.scripts_run(), world.as_engine().faults());
            faults.delay(Some("here"), ms(20));
            eventually("it polls", || world.scripts_run() > before).await;
            faults.delay(Some("here"), ms(0));
            let released = Instant::now();
            held.release().await.unwrap();
            let big = big.await.unwrap();
            let elapsed = released.elapsed();
            assert!(
                elapsed < ms(60),
                "{kind:?}, {} small: {elapsed:?}",
                small.len()
            );
            big.release().await.unwrap();
            for waiter in small {
                waiter.await.unwrap().release().await.unwrap();
            }
            at_rest(&world, 10).await;
        }
    }
}

/// P4: a message announces fewer permits than the waiter wants, and overtakes the reply of a refused request. The message has removed the
/// process from the wait set, so the waiter must send one more request to receive the next message.
#[tokio::test(start_paused = true)]
async fn a_waiter_retries_after_a_message_of_too_few_permits_overtakes_its_refusal() {
    for kind in KINDS {
        let world = World::engine();
        let named = async |name| kind.on(&world.named(name).await);
        let (holder, front) = (named("holder").await, named("front").await);
        let here = world.named("here").await;
        holder.init(3).await.unwrap();
        let held = [
            holder.acquire(1).await.unwrap(),
            holder.acquire(2).await.unwrap(),
        ];
        let mut first = Box::pin(front.acquire(2));
        while world.admin(&["ZCARD", CROWD]) == "0" {
            assert!(tokio::time::timeout(ms(5), &mut first).await.is_err());
        }
        let big = taking(kind, &here, 3);
        gathered(&world, 2).await;
        world.quiet().await;
        // Its next poll has been refused, and the reply takes 20 ms.
        let (before, faults) = (world.scripts_run(), world.as_engine().faults());
        faults.delay(Some("here"), ms(20));
        eventually("it polls", || world.scripts_run() > before).await;
        faults.delay(Some("here"), ms(0));
        for permits in held {
            permits.release().await.unwrap();
        }
        // The first in line acquires two permits, and holds them until the reply has arrived.
        let first = first.await.unwrap();
        tokio::time::sleep(ms(40)).await;
        let released = Instant::now();
        first.release().await.unwrap();
        big.await.unwrap().release().await.unwrap();
        let elapsed = released.elapsed();
        assert!(elapsed < ms(20), "{kind:?}: {elapsed:?}");
        at_rest(&world, 3).await;
    }
}
