//! Tests requests for several permits among requests for one: the queue on the server and the local queue of each process agree on the
//! order, and a request that waits for a leaked permit does not block others.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use stanchion::Client;
use stanchion_tests::permits::{KINDS, Seats, at_rest, free};
use stanchion_tests::{World, assert_within, ms, secs, spawn_ok, together};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

/// Spawns tasks that acquire `permits` and hold them for `hold`, repeatedly.
fn work(all: &mut JoinSet<()>, seats: &Seats, tasks: u64, permits: u32, hold: Duration) {
    for _ in 0..tasks {
        let seats = seats.clone();
        all.spawn(async move {
            loop {
                let seat = seats.acquire(permits).await.unwrap();
                tokio::time::sleep(hold).await;
                seat.release().await.unwrap();
            }
        });
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_in_the_queue_acquires_as_soon_as_enough_permits_are_free() {
    for kind in KINDS {
        for own_client in [true, false] {
            for offset in 0..15 {
                let world = World::engine();
                let faults = world.faults();
                faults.delay(None, Duration::from_micros(200 + 390 * offset));
                let clients = [
                    world.client().await,
                    world.client().await,
                    world.client().await,
                ];
                kind.on(&clients[0]).init(10).await.unwrap();
                let hold = ms(5);
                let mut tasks = JoinSet::new();
                work(&mut tasks, &kind.on(&clients[0]), 3, 3, hold);
                work(&mut tasks, &kind.on(&clients[1]), 3, 3, hold);
                tokio::time::sleep(Duration::from_micros(40_000 + 2_331 * offset)).await;
                let big: &Client = &clients[if own_client { 2 } else { 0 }];
                let started = Instant::now();
                let all = kind.on(big).acquire(10).await.unwrap();
                assert_within(started, ms(500), (kind, own_client, offset));
                all.release().await.unwrap();
                tasks.shutdown().await;
                at_rest(&world, 10).await;
            }
        }
    }
}

/// A big request is served before the small ones behind it, though each of these would fit first.
#[tokio::test(start_paused = true)]
async fn waiters_of_a_process_are_served_in_order() {
    for kind in KINDS {
        let (world, client) = World::engine().with_client().await;
        let seats = kind.on(&client);
        seats.init(3).await.unwrap();
        let mut held = Vec::new();
        for _ in 0..3 {
            held.push(seats.acquire(1).await.unwrap());
        }
        let (served, mut tasks) = (Arc::new(AtomicUsize::new(0)), Vec::new());
        // No two of them fit together.
        for (n, wanted) in [3, 2, 2, 2].into_iter().enumerate() {
            let (seats, served) = (seats.clone(), Arc::clone(&served));
            tasks.push(tokio::spawn(async move {
                let seat = seats.acquire(wanted).await.unwrap();
                assert_eq!(served.fetch_add(1, Ordering::Relaxed), n);
                tokio::time::sleep(ms(20)).await;
                seat.release().await.unwrap();
            }));
            stanchion_testkit::eventually("the call waits", || client.waiters() == n + 1).await;
        }
        for seat in held {
            world.quiet().await;
            seat.release().await.unwrap();
        }
        together(tasks).await;
        at_rest(&world, 3).await;
    }
}

/// Acquires one permit repeatedly for `span`, and returns the longest wait.
async fn longest_wait(seats: &Seats, span: Duration) -> Duration {
    let (started, mut longest) = (Instant::now(), Duration::ZERO);
    while started.elapsed() < span {
        let began = Instant::now();
        let seat = seats.acquire(1).await.unwrap();
        longest = longest.max(began.elapsed());
        seat.release().await.unwrap();
        tokio::time::sleep(ms(100)).await;
    }
    longest
}

/// P4: a rest, and a turn, end after their usual time.
#[tokio::test(start_paused = true)]
async fn a_clock_that_is_stepped_back_does_not_lengthen_the_rest_of_a_big_request() {
    for kind in KINDS {
        // In the first turn, and in the rest after it.
        for begins in [1, 5] {
            let (world, [leaky, greedy]) = World::engine().with_clients().await;
            kind.on(&leaky).init(4).await.unwrap();
            let leaked = kind.on(&leaky).acquire(1).await.unwrap();
            let all = spawn_ok(kind.on(&greedy).acquire(4));
            let hold = ms(30);
            let mut small = JoinSet::new();
            work(&mut small, &kind.on(&leaky), 12, 1, hold);
            tokio::time::sleep(secs(begins)).await;
            world.faults().step_clock(-3_600_000);
            tokio::time::sleep(secs(5)).await;
            leaked.release().await.unwrap();
            let served = tokio::time::timeout(secs(60), all).await;
            let served = served.unwrap_or_else(|_| panic!("{kind:?}: {begins} s"));
            served.unwrap().release().await.unwrap();
            small.shutdown().await;
            at_rest(&world, 4).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_leaked_permit_delays_other_requests_by_one_turn_only() {
    for kind in KINDS {
        let (world, [leaky, greedy, other]) = World::engine().with_clients().await;
        kind.on(&leaky).init(8).await.unwrap();
        let leaked = kind.on(&leaky).acquire(1).await.unwrap();
        let all = spawn_ok(kind.on(&greedy).acquire(8));
        stanchion_testkit::eventually("the request is queued", || kind.queued(&world) == 1).await;
        let first = longest_wait(&kind.on(&other), secs(10)).await;
        assert!(
            (2_000..3_100).contains(&first.as_millis()),
            "{kind:?}: permits are reserved for one turn, not for {first:?}"
        );
        // After the turn, this request and a second one like it delay the requests of each process for a tenth of the time at most.
        let again = spawn_ok(kind.on(&leaky).acquire(8));
        for client in [&other, &greedy, &leaky] {
            let later = longest_wait(&kind.on(client), secs(20)).await;
            // Each turn is twice as long as the one before, and a rest of ten times its length follows.
            assert!(later < ms(6_100), "{kind:?}: {later:?}");
        }
        assert_eq!(free(&world), 7, "{kind:?}");
        // The permit is returned after all: both requests for eight are served, in any order.
        let mut small = JoinSet::new();
        work(&mut small, &kind.on(&other), 12, 1, ms(30));
        leaked.release().await.unwrap();
        let started = Instant::now();
        let served = [all, again].map(async |big| big.await.unwrap().release().await.unwrap());
        join_all(served).await;
        assert_within(started, secs(60), kind);
        small.shutdown().await;
        at_rest(&world, 8).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_big_request_is_served_although_every_holder_outlasts_its_turn() {
    for kind in KINDS {
        let (world, [busy, busier, other]) = World::engine().with_clients().await;
        kind.on(&busy).init(6).await.unwrap();
        let mut tasks = JoinSet::new();
        // Twelve tasks share six permits. Each holds its permit for three times a turn (3 s) or longer, and they are not in step.
        for (client, hold) in [(&busy, 9_100), (&busier, 10_300)] {
            for n in 0..6 {
                let hold = ms(hold + 311 * n);
                work(&mut tasks, &kind.on(client), 1, 1, hold);
                tokio::time::sleep(ms(700)).await;
            }
        }
        let started = Instant::now();
        let all = kind.on(&other).acquire(6).await.unwrap();
        assert_within(started, secs(300), kind);
        all.release().await.unwrap();
        tasks.shutdown().await;
        at_rest(&world, 6).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_for_more_permits_than_exist_does_not_block_its_process() {
    for kind in KINDS {
        let (world, client) = World::engine().with_client().await;
        let seats = kind.on(&client);
        seats.init(3).await.unwrap();
        let impossible: Vec<_> = [4, 5].map(|wanted| spawn_ok(seats.acquire(wanted))).into();
        stanchion_testkit::eventually("both requests wait", || client.waiters() == 2).await;
        // One turn of 3 s.
        tokio::time::sleep(ms(3_100)).await;
        let longest = longest_wait(&seats, secs(25)).await;
        assert!(longest < ms(50), "{kind:?}: {longest:?}");
        // Nor does it block waiters that are woken by a message.
        let held = seats.acquire(3).await.unwrap();
        let three: Vec<_> = (0..3).map(|_| spawn_ok(seats.acquire(1))).collect();
        stanchion_testkit::eventually("all five wait", || client.waiters() == 5).await;
        world.quiet().await;
        let started = Instant::now();
        held.release().await.unwrap();
        let mut seated = Vec::new();
        for waiter in three {
            seated.push(waiter.await.unwrap());
        }
        assert!(started.elapsed() < ms(50), "{kind:?}");
        for seat in seated {
            seat.release().await.unwrap();
        }
        // Now there are enough permits for each of the big requests.
        seats.add(2).await.unwrap();
        // In any order: skipped requests have no order among each other.
        let served = impossible
            .into_iter()
            .map(async |waiter| waiter.await.unwrap().release().await.unwrap());
        join_all(served).await;
        assert!(started.elapsed() < secs(11), "{kind:?}");
        at_rest(&world, 5).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_has_one_entry_for_each_number_of_permits() {
    for kind in KINDS {
        let (world, [holder, waiting]) = World::engine().with_clients().await;
        kind.on(&holder).init(4).await.unwrap();
        let held = kind.on(&holder).acquire(3).await.unwrap();
        let tasks: Vec<_> = [2, 3, 2]
            .map(|wanted| {
                let seats = kind.on(&waiting);
                tokio::spawn(async move {
                    let seat = seats.acquire(wanted).await.unwrap();
                    tokio::time::sleep(ms(100)).await;
                    seat.release().await.unwrap();
                })
            })
            .into();
        stanchion_testkit::eventually("all three wait", || waiting.waiters() == 3).await;
        world.quiet().await;
        assert_eq!(kind.queued(&world), 2, "{kind:?}");
        let released = Instant::now();
        held.release().await.unwrap();
        together(tasks).await;
        assert!(released.elapsed() < ms(310), "{kind:?}");
        at_rest(&world, 4).await;
    }
}

/// P4: a request for one permit is served although more big requests rest in front of it than one run removes entries.
#[tokio::test(start_paused = true)]
async fn many_resting_requests_do_not_hide_a_small_one() {
    for kind in KINDS {
        for count in [17, 40] {
            let (_world, clients) = World::engine().with_fleet(count + 2).await;
            kind.on(&clients[0]).init(4).await.unwrap();
            let _long = kind.on(&clients[0]).acquire(1).await.unwrap();
            let big: Vec<JoinHandle<()>> = clients[2..]
                .iter()
                .map(|client| {
                    let seats = kind.on(client);
                    tokio::spawn(async move { drop(seats.acquire(4).await) })
                })
                .collect();
            // The first turn is over, and the big requests rest.
            tokio::time::sleep(ms(3500)).await;
            let mut held = Vec::new();
            for _ in 0..3 {
                held.push(kind.on(&clients[0]).acquire(1).await.unwrap());
            }
            for seat in held {
                let small = spawn_ok(kind.on(&clients[1]).acquire(1));
                tokio::time::sleep(ms(100)).await;
                assert!(!small.is_finished(), "{kind:?}, {count}");
                let released = Instant::now();
                seat.release().await.unwrap();
                let seat = small.await.unwrap();
                assert_within(released, ms(100), (kind, count));
                // A permit that is released while no small request waits is free for the next one.
                seat.release().await.unwrap();
                std::mem::forget(kind.on(&clients[0]).acquire(1).await.unwrap());
            }
            for task in big {
                task.abort();
            }
        }
    }
}
