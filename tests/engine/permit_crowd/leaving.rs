//! Processes whose waiters leave, and come again: the server knows of each that waits, and of no other.

use stanchion_testkit::eventually;
use stanchion_tests::permits::{CROWD, KINDS, WAKE, at_rest};
use stanchion_tests::{LostReply, World};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{ms, taking, waited_for};

/// S6: permits are not announced to a process in which nobody waits any more.
#[tokio::test(start_paused = true)]
async fn who_gives_up_leaves_the_crowd() {
    for kind in KINDS {
        let world = World::engine();
        let (clients, held, waiters) = waited_for(&world, kind, 1, 2).await;
        let patient = kind.on(&clients[2]);
        assert!(patient.acquire_timeout(1, ms(50)).await.is_err());
        waiters.iter().for_each(JoinHandle::abort);
        let gone = Instant::now();
        eventually("they have left", || {
            world.admin(&["EXISTS", CROWD, WAKE]) == "0"
        })
        .await;
        assert!(gone.elapsed() < ms(1000), "{:?}", gone.elapsed());
        held.release().await.unwrap();
    }
}

/// P3: a refusal that is never answered puts its process into the crowd all the same.
#[tokio::test(start_paused = true)]
async fn who_gives_up_unanswered_leaves_the_crowd() {
    for kind in KINDS {
        let world = World::engine();
        let (clients, held, waiters) = waited_for(&world, kind, 1, 1).await;
        waiters[0].abort();
        eventually("it has left", || world.admin(&["EXISTS", CROWD]) == "0").await;
        world.quiet().await;
        world.lose_next_reply(LostReply::Silent);
        let waiter = taking(kind, &clients[0], 1);
        eventually("its request has run", || {
            world.admin(&["EXISTS", CROWD]) == "1"
        })
        .await;
        let gone = Instant::now();
        waiter.abort();
        eventually("it has left again", || {
            world.admin(&["EXISTS", CROWD]) == "0"
        })
        .await;
        // A crowd in which nobody asks ends by itself after 20 s.
        assert!(gone.elapsed() < ms(15_000), "{:?}", gone.elapsed());
        held.release().await.unwrap();
    }
}

/// A waiter that comes while the only other one of its process asks is told as well: at each moment of that request.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_comes_during_a_request_is_known_to_the_server() {
    for kind in KINDS {
        for steps in 0..16 {
            let world = World::engine();
            let (clients, held, mut waiters) = waited_for(&world, kind, 1, 1).await;
            held.release().await.unwrap();
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            let second = taking(kind, &clients[0], 1);
            let first = waiters.pop().unwrap().await.unwrap();
            tokio::time::sleep(ms(100)).await;
            let released = Instant::now();
            first.release().await.unwrap();
            second.await.unwrap().release().await.unwrap();
            assert!(
                released.elapsed() < ms(50),
                "{kind:?}, {steps}: {:?}",
                released.elapsed()
            );
            at_rest(&world, 1).await;
        }
    }
}

/// The last waiter leaves, and the next one of its process comes: the server may hear of these two in the other order.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_comes_while_its_process_leaves_is_known_to_the_server() {
    for kind in KINDS {
        let world = World::engine();
        let (clients, held, waiters) = waited_for(&world, kind, 1, 1).await;
        waiters[0].abort();
        let next = taking(kind, &clients[0], 1);
        eventually("it waits", || clients[0].waiters() == 1).await;
        world.quiet().await;
        let released = Instant::now();
        held.release().await.unwrap();
        next.await.unwrap().release().await.unwrap();
        assert!(released.elapsed() < ms(50), "{:?}", released.elapsed());
    }
}
