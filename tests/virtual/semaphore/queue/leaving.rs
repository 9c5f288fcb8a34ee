//! Tests the queue while waiters leave and join: it contains each waiting process, and no other.

use stanchion_testkit::eventually;
use stanchion_tests::permits::{KINDS, at_rest};
use stanchion_tests::{LostReply, assert_within, ms};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::{taking, with_waiting_processes};

/// P3: no permit is granted to a process without waiters.
#[tokio::test(start_paused = true)]
async fn a_process_leaves_the_queue_when_its_waiters_give_up() {
    for kind in KINDS {
        let (world, clients, held, waiters) = with_waiting_processes(kind, 1, 2).await;
        let patient = kind.on(&clients[2]);
        assert!(patient.acquire_timeout(1, ms(50)).await.is_err());
        waiters.iter().for_each(JoinHandle::abort);
        let gone = Instant::now();
        world
            .until(&["EXISTS", kind.line(), kind.wake()], "0")
            .await;
        assert!(gone.elapsed() < ms(1000), "{:?}", gone.elapsed());
        held.release().await.unwrap();
    }
}

/// P3: a refused request adds its process to the queue, even if the reply is lost.
#[tokio::test(start_paused = true)]
async fn a_process_leaves_the_queue_when_it_gives_up_without_a_reply() {
    for kind in KINDS {
        let (world, clients, held, waiters) = with_waiting_processes(kind, 1, 1).await;
        waiters[0].abort();
        eventually("the process has left", || kind.queued(&world) == 0).await;
        world.quiet().await;
        world.lose_next_reply(LostReply::Silent);
        let waiter = taking(kind, &clients[0], 1);
        eventually("the request has run", || kind.queued(&world) == 1).await;
        let gone = Instant::now();
        waiter.abort();
        eventually("the process has left again", || kind.queued(&world) == 0).await;
        // Without requests the queue expires after 20 s.
        assert!(gone.elapsed() < ms(15_000), "{:?}", gone.elapsed());
        held.release().await.unwrap();
    }
}

/// The waiter joins at each step of a request of the only other waiter of its process.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_joins_during_a_request_is_registered() {
    for kind in KINDS {
        for steps in 0..16 {
            let (world, clients, held, mut waiters) = with_waiting_processes(kind, 1, 1).await;
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
            assert_within(released, ms(50), (kind, steps));
            at_rest(&world, 1).await;
        }
    }
}

/// The server may receive the request of the new waiter before the request that removes the process.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_joins_while_its_process_leaves_is_registered() {
    for kind in KINDS {
        let (world, clients, held, waiters) = with_waiting_processes(kind, 1, 1).await;
        waiters[0].abort();
        let next = taking(kind, &clients[0], 1);
        eventually("the next waiter is queued", || clients[0].waiters() == 1).await;
        world.quiet().await;
        let released = Instant::now();
        held.release().await.unwrap();
        next.await.unwrap().release().await.unwrap();
        assert!(released.elapsed() < ms(50), "{:?}", released.elapsed());
    }
}
