//! Tests both kinds of semaphore: cancellation at every await point, lost replies and messages, refusals, and the queue on the server.
//!
//! Long: all tests share one set-up.

use std::time::Duration;

use futures_util::future::join_all;
use stanchion::embedded::Switch;
use stanchion::{AcquireError, Client, Lease, LeasedSemaphore, Rejection, Semaphore};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::permits::{
    CHANNEL, KINDS, Kind, NAME, Seat, Seats, TOTAL, at_rest, free, keys,
};
use stanchion_tests::{LostReply, World, assert_swept_later, together};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// A client and its semaphore. The server has cached all scripts, so that a fault on the next EVALSHA hits the operation under test.
async fn warm(world: &World, kind: Kind, permits: u32) -> (Client, Seats) {
    let client = world.client().await;
    let seats = kind.on(&client);
    seats.init(permits).await.unwrap();
    seats.add(1).await.unwrap();
    seats.reduce(1).await.unwrap();
    let all = seats.acquire(permits).await.unwrap();
    seats.drain().await.unwrap();
    if let Seat::Leased(leased) = &all {
        leased.renew().await.unwrap();
    }
    let waiting = spawn_acquire(&seats, permits);
    eventually("the request is queued", || kind.queued(world) > 0).await;
    waiting.abort();
    all.release().await.unwrap();
    at_rest(world, i64::from(permits)).await;
    world.quiet().await;
    (client, seats)
}

fn spawn_acquire(seats: &Seats, permits: u32) -> JoinHandle<Seat> {
    let seats = seats.clone();
    tokio::spawn(async move { seats.acquire(permits).await.unwrap() })
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_passes_its_wake_up_on() {
    for kind in KINDS {
        for wanted in [1, 2] {
            let world = World::slow_engine();
            let (client, other) = (world.client().await, world.client().await);
            let seats = kind.on(&client);
            seats.init(2).await.unwrap();
            let polls = for_each_await_point(async |polls| {
                let held = kind.on(&other).acquire(2).await.unwrap();
                // The release falls into any stage of the doomed waiter's wait.
                let releasing = tokio::spawn(async move {
                    tokio::time::sleep(Duration::from_millis(40)).await;
                    held.release().await.unwrap();
                });
                let doomed = tokio::spawn({
                    let seats = seats.clone();
                    async move { cancel_after(seats.acquire(wanted), polls).await.is_some() }
                });
                tokio::task::yield_now().await;
                let started = Instant::now();
                let survivor = seats.acquire(2).await.unwrap();
                assert!(
                    started.elapsed() < Duration::from_secs(1),
                    "{kind:?} {wanted}: the survivor missed its wake-up after {polls} polls"
                );
                survivor.release().await.unwrap();
                releasing.await.unwrap();
                let covered = doomed.await.unwrap();
                at_rest(&world, 2).await;
                assert_eq!(client.waiters(), 0, "after {polls} polls");
                covered
            })
            .await;
            assert!(polls > 2);
        }
    }
}

fn each_way() -> impl Iterator<Item = (Kind, LostReply)> {
    let ways = |kind| LostReply::WAYS.map(|way| (kind, way));
    KINDS.into_iter().flat_map(ways)
}

#[tokio::test(start_paused = true)]
async fn an_acquire_with_a_lost_reply_takes_permits_once() {
    for (kind, way) in each_way() {
        let world = World::engine();
        let (_client, seats) = warm(&world, kind, 5).await;
        world.lose_next_reply(way);
        let two = seats.acquire(2).await.unwrap();
        assert_eq!(
            (free(&world), kind.held(&world)),
            (3, 2),
            "{kind:?} {way:?}"
        );
        world.lose_next_reply(way);
        // The last permits: a second run would find too few.
        let three = seats
            .try_acquire(3)
            .await
            .unwrap()
            .expect("three permits are free");
        assert_eq!(
            (free(&world), kind.held(&world)),
            (0, 5),
            "{kind:?} {way:?}"
        );
        assert!(two.is_held() && three.is_held());
        world.lose_next_reply(way);
        two.release().await.unwrap();
        assert_eq!(
            (free(&world), kind.held(&world)),
            (2, 3),
            "{kind:?} {way:?}"
        );
        world.lose_next_reply(way);
        drop(three);
        at_rest(&world, 5).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_operation_with_a_lost_reply_takes_effect_once_and_returns_its_result() {
    for (kind, way) in each_way() {
        let world = World::engine();
        let (client, seats) = warm(&world, kind, 5).await;
        let lose = || world.lose_next_reply(way);
        lose();
        assert_eq!(seats.add(3).await.unwrap(), 8, "{kind:?} {way:?}");
        lose();
        assert_eq!(seats.reduce(2).await.unwrap(), 6, "{kind:?} {way:?}");
        lose();
        assert_eq!(seats.drain().await.unwrap(), 6, "{kind:?} {way:?}");
        assert_eq!(free(&world), 0);
        let _ = world.admin(&["DEL", NAME]);
        lose();
        assert!(
            seats.init(4).await.unwrap(),
            "this call initialises the semaphore"
        );
        if let Seats::Leased(leased) = &seats {
            leased.set_total(9).await.unwrap();
            lose();
            assert_eq!(leased.set_total(4).await.unwrap(), 9);
        }
        // Reclaiming two permits of a dead holder counts each of them once.
        let dead = seats.acquire(2).await.unwrap();
        match (&seats, &dead) {
            (Seats::Plain(plain), Seat::Plain(dead)) => {
                plain.danger().reclaim("nobody").await.unwrap();
                lose();
                let owner = dead.owner().as_str();
                assert_eq!(plain.danger().reclaim(owner).await.unwrap(), 2);
            }
            (Seats::Leased(leased), Seat::Leased(dead)) => {
                let ids = dead.ids();
                assert!(leased.danger().reclaim(&ids[0]).await.unwrap());
                lose();
                assert!(leased.danger().reclaim(&ids[1]).await.unwrap());
            }
            other => panic!("{other:?}"),
        }
        at_rest(&world, 4).await;
        drop(dead);
        client.shutdown(Duration::from_secs(60)).await;
        at_rest(&world, 4).await;
    }
}

#[tokio::test(start_paused = true)]
async fn remembered_results_expire() {
    let world = World::engine();
    let seats = Kind::Plain.on(&world.client().await);
    seats.init(1).await.unwrap();
    seats.add(1).await.unwrap();
    assert_eq!(world.keys().len(), 4);
    // Results are kept for the operation timeout plus twice the response timeout.
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(world.keys(), [NAME, TOTAL]);
    let days = world.admin(&["PTTL", TOTAL]).parse::<i64>().unwrap() / 86_400_000;
    assert_eq!(days, 29, "30 days, and the first has begun");
}

#[tokio::test(start_paused = true)]
async fn an_acquire_that_gives_up_after_a_lost_reply_is_swept() {
    for kind in KINDS {
        let world = World::engine();
        let (_client, seats) = warm(&world, kind, 2).await;
        world.lose_next_reply(LostReply::Silent);
        let error = seats
            .acquire_timeout(2, Duration::from_millis(50))
            .await
            .unwrap_err();
        assert_swept_later(&error);
        let started = Instant::now();
        at_rest(&world, 2).await;
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "swept, not expired"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_runs_after_its_caller_gave_up_acquires_nothing() {
    for kind in KINDS {
        for held in [0, 1] {
            let world = World::engine();
            let (_client, seats) = warm(&world, kind, 2).await;
            // With one of two permits held, a late request would join the queue instead.
            let other = kind.on(&world.named("other").await);
            let held = match held {
                0 => None,
                n => Some(other.acquire(n).await.unwrap()),
            };
            let faults = world.as_engine().faults();
            faults.freeze(Some("client"));
            let error = seats.acquire_timeout(2, Duration::from_millis(100)).await;
            assert!(error.is_err());
            tokio::time::sleep(Duration::from_secs(20)).await;
            faults.thaw(Some("client"));
            // `thaw` has run the late request.
            let left = if held.is_some() { (1, 1) } else { (2, 0) };
            assert_eq!((free(&world), kind.held(&world)), left, "{kind:?}");
            assert_eq!(kind.queued(&world), 0, "{kind:?}");
            drop(held);
            at_rest(&world, 2).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_request_that_is_resent_is_queued_once() {
    for kind in KINDS {
        let world = World::engine();
        let (_client, seats) = warm(&world, kind, 2).await;
        let held = seats.acquire(1).await.unwrap();
        world.lose_next_reply(LostReply::Closed);
        let waiting = spawn_acquire(&seats, 2);
        tokio::time::sleep(Duration::from_secs(2)).await;
        assert_eq!(kind.queued(&world), 1, "{kind:?}");
        held.release().await.unwrap();
        waiting.await.unwrap().release().await.unwrap();
        at_rest(&world, 2).await;
    }
}

/// One client holds all permits, and as many waiters of another client wait for one each. The clients must outlive the waiters.
async fn all_wait(
    world: &World,
    kind: Kind,
    permits: u32,
) -> ([Client; 2], Seat, Vec<JoinHandle<Seat>>) {
    let (ours, seats) = warm(world, kind, permits).await;
    let held = seats.acquire(permits).await.unwrap();
    let theirs = world.client().await;
    let waiting = (0..permits)
        .map(|_| spawn_acquire(&kind.on(&theirs), 1))
        .collect();
    world.subscribed(CHANNEL).await;
    world.quiet().await;
    ([ours, theirs], held, waiting)
}

/// Releases the permits, and returns the time until every waiter holds one.
async fn serve_all(held: Seat, waiting: Vec<JoinHandle<Seat>>) -> Duration {
    let started = Instant::now();
    held.release().await.unwrap();
    let granted = together(waiting).await;
    let took = started.elapsed();
    drop(granted);
    took
}

#[tokio::test(start_paused = true)]
async fn waiters_of_a_process_are_served_one_round_trip_after_the_other() {
    for kind in KINDS {
        let world = World::engine();
        world
            .as_engine()
            .faults()
            .delay(None, Duration::from_millis(10));
        let (_clients, held, waiting) = all_wait(&world, kind, 3).await;
        let took = serve_all(held, waiting).await;
        // A message of 10 ms, and a request of 10 ms for each plain permit and for each other leased permit.
        assert!(took <= Duration::from_millis(45), "{kind:?} {took:?}");
        at_rest(&world, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lost_message_delays_all_its_waiters_by_one_poll_interval() {
    for kind in KINDS {
        let world = World::engine();
        let (_clients, held, waiting) = all_wait(&world, kind, 3).await;
        world.as_engine().faults().lose_messages(1);
        let took = serve_all(held, waiting).await;
        assert!(took <= Duration::from_millis(5_100), "{kind:?} {took:?}");
        at_rest(&world, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_polls_after_the_one_in_front_was_served_by_a_poll() {
    for kind in KINDS {
        let world = World::engine();
        let (_ours, seats) = warm(&world, kind, 1).await;
        let held = seats.acquire(1).await.unwrap();
        let theirs = kind.on(&world.client().await);
        let waiting = [1, 1].map(|n| {
            let seats = theirs.clone();
            tokio::spawn(async move {
                let seat = seats.acquire(n).await.unwrap();
                seat.release().await.unwrap();
            })
        });
        world.subscribed(CHANNEL).await;
        world.quiet().await;
        world.as_engine().faults().lose_messages(100);
        let started = Instant::now();
        held.release().await.unwrap();
        for waiter in waiting {
            let served = tokio::time::timeout(Duration::from_secs(60), waiter).await;
            served.unwrap().unwrap();
        }
        let waited = started.elapsed();
        assert!(
            waited <= Duration::from_millis(10_200),
            "{kind:?} {waited:?}"
        );
        at_rest(&world, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_are_served_when_their_lost_subscription_is_restored() {
    for kind in KINDS {
        let world = World::engine();
        let (_clients, held, waiting) = all_wait(&world, kind, 2).await;
        world.as_engine().faults().kill_subscribers();
        let took = serve_all(held, waiting).await;
        assert!(took < Duration::from_secs(1), "{kind:?} {took:?}");
        at_rest(&world, 2).await;
    }
}

#[tokio::test(start_paused = true)]
async fn at_maxmemory_acquires_fail_and_holds_are_renewed_and_released() {
    for kind in KINDS {
        let world = World::engine();
        let (client, seats) = warm(&world, kind, 3).await;
        let seats = seats.lease(Lease::new(Duration::from_secs(3)).unwrap());
        let two = seats.acquire(2).await.unwrap();
        let faults = world.as_engine().faults();
        faults.out_of_memory(Switch::On);
        match seats.acquire(1).await.unwrap_err() {
            AcquireError::Rejected {
                rejection: Rejection::OutOfMemory { .. },
                ..
            } => {}
            other => panic!("{kind:?}: {other}"),
        }
        assert!(seats.add(1).await.is_err());
        assert_eq!(
            (free(&world), kind.held(&world)),
            (1, 2),
            "nothing was written"
        );
        // A request that is refused for lack of permits waits without a queue entry.
        let waiting = spawn_acquire(&seats, 2);
        eventually("the client waits", || client.waiters() == 1).await;
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert!(two.is_held(), "{kind:?}: the watchdog renews");
        assert_eq!(kind.queued(&world), 0);
        waiting.abort();
        two.release().await.unwrap();
        faults.out_of_memory(Switch::Off);
        at_rest(&world, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_flushed_script_cache_is_filled_again_without_an_error() {
    for kind in KINDS {
        let world = World::engine();
        let (_client, seats) = warm(&world, kind, 3).await;
        let flush = || world.as_engine().faults().flush_scripts();
        flush();
        let two = seats.acquire(2).await.unwrap();
        flush();
        assert_eq!(seats.available().await.unwrap(), 1);
        flush();
        assert_eq!(seats.add(1).await.unwrap(), 2);
        flush();
        two.release().await.unwrap();
        at_rest(&world, 4).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_step_of_the_server_clock_costs_one_refusal() {
    for kind in KINDS {
        let world = World::engine();
        let (_client, seats) = warm(&world, kind, 2).await;
        // After a step back no request is late.
        for (step, refusals) in [(3_600_000, 1), (-1_800_000, 0)] {
            world.as_engine().faults().step_clock(step);
            let started = Instant::now();
            let before = world.scripts_run();
            let permit = seats.acquire(1).await.unwrap();
            assert!(started.elapsed() < Duration::from_secs(1));
            let scripts = world.scripts_run() - before;
            assert_eq!(scripts, 1 + refusals, "{kind:?}: {step}");
            permit.release().await.unwrap();
            at_rest(&world, 2).await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_permit_outlives_any_outage() {
    let world = World::engine();
    let client = world.named("ours").await;
    let seats = Semaphore::new(&client, NAME).unwrap();
    seats.init(1).await.unwrap();
    let permit = seats.acquire().await.unwrap();
    world.as_engine().faults().freeze(Some("ours"));
    tokio::time::sleep(Duration::from_secs(3600)).await;
    let other = Semaphore::new(&world.client().await, NAME).unwrap();
    assert!(other.try_acquire().await.unwrap().is_none());
    // The release also survives an outage.
    drop(permit);
    tokio::time::sleep(Duration::from_secs(3600)).await;
    assert_eq!(free(&world), 0);
    world.as_engine().faults().thaw(Some("ours"));
    at_rest(&world, 1).await;
}

#[tokio::test(start_paused = true)]
async fn leased_permits_of_a_dead_process_expire_and_plain_ones_are_listed() {
    let world = World::engine();
    let dead = world.named("dead").await;
    let alive = world.client().await;
    let lease = Lease::new(Duration::from_secs(3)).unwrap();
    let leased = LeasedSemaphore::new(&dead, "leased").unwrap().lease(lease);
    let plain = Semaphore::new(&dead, "plain").unwrap();
    leased.init(2).await.unwrap();
    plain.init(2).await.unwrap();
    let (leased, plain) = (
        leased.acquire_many(2).await.unwrap(),
        plain.acquire_many(2).await.unwrap(),
    );
    let owner = plain.owner().to_string();
    world.as_engine().faults().freeze(Some("dead"));
    let started = Instant::now();
    let again = LeasedSemaphore::new(&alive, "leased")
        .unwrap()
        .acquire_many(2)
        .await
        .unwrap();
    assert!(started.elapsed() < Duration::from_secs(4));
    assert!(!leased.is_held());
    drop(again);
    let survivor = Semaphore::new(&alive, "plain").unwrap();
    let error = survivor
        .acquire_timeout(Duration::from_secs(60))
        .await
        .unwrap_err();
    assert!(matches!(
        error,
        AcquireError::TimedOut { free_by: None, .. }
    ));
    let holders = survivor.status().await.unwrap().holders;
    assert_eq!(
        (holders[0].owner.as_str(), holders[0].permits),
        (owner.as_str(), 2)
    );
    assert_eq!(survivor.danger().reclaim(&owner).await.unwrap(), 2);
    drop(survivor.acquire_many(2).await.unwrap());
    drop((leased, plain));
}

#[tokio::test(start_paused = true)]
async fn a_dead_process_at_the_head_of_the_queue_costs_at_most_three_seconds() {
    for kind in KINDS {
        let world = World::engine();
        let (_ours, seats) = warm(&world, kind, 3).await;
        let held = seats.acquire(2).await.unwrap();
        let mut dying = Vec::new();
        for wanted in [3, 2] {
            let client = world.named("dying").await;
            let seats = kind.on(&client);
            tokio::spawn(async move { drop(seats.acquire(wanted).await) });
            dying.push(client);
        }
        eventually("both requests are queued", || kind.queued(&world) == 2).await;
        world.as_engine().faults().freeze(Some("dying"));
        let started = Instant::now();
        let one = seats.acquire(1).await.unwrap();
        let waited = started.elapsed();
        assert!(
            (1_000..=3_100).contains(&waited.as_millis()),
            "{kind:?}: {waited:?}"
        );
        one.release().await.unwrap();
        held.release().await.unwrap();
        assert_eq!(keys(&world), [NAME]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_in_the_queue_gets_the_next_released_permits() {
    for kind in KINDS {
        let world = World::engine();
        let (_ours, seats) = warm(&world, kind, 4).await;
        let held = [
            seats.acquire(1).await.unwrap(),
            seats.acquire(1).await.unwrap(),
            seats.acquire(1).await.unwrap(),
        ];
        let theirs = world.client().await;
        let big = spawn_acquire(&kind.on(&theirs), 3);
        eventually("the request is queued", || kind.queued(&world) == 1).await;
        // During the turn of the big request, small requests get no permit.
        let third = world.client().await;
        let small: Vec<_> = (0..20)
            .map(|_| spawn_acquire(&kind.on(&third), 1))
            .collect();
        tokio::time::sleep(Duration::from_millis(2_500)).await;
        assert!(small.iter().all(|task| !task.is_finished()), "{kind:?}");
        let mut left = 1;
        for permit in held {
            assert!(!big.is_finished());
            permit.release().await.unwrap();
            world.quiet().await;
            left += 1;
            if left == 3 {
                break;
            }
        }
        let big = big.await.unwrap();
        drop(big);
        for task in small {
            drop(task.await.unwrap());
        }
        at_rest(&world, 4).await;
    }
}

#[tokio::test(start_paused = true)]
async fn requests_for_several_permits_stay_queued_after_their_turns() {
    for kind in KINDS {
        let world = World::engine();
        let (_ours, seats) = warm(&world, kind, 2).await;
        let held = seats.acquire(2).await.unwrap();
        let mut clients = Vec::new();
        let mut waiting = Vec::new();
        for _ in 0..20 {
            let client = world.client().await;
            waiting.push(spawn_acquire(&kind.on(&client), 2));
            clients.push(client);
        }
        eventually("all are queued", || kind.queued(&world) == 20).await;
        tokio::time::sleep(Duration::from_secs(20)).await;
        assert_eq!(kind.queued(&world), 20, "{kind:?}");
        let started = Instant::now();
        held.release().await.unwrap();
        // In any order.
        let served = waiting
            .into_iter()
            .map(async |waiter| waiter.await.unwrap().release().await.unwrap());
        join_all(served).await;
        assert!(
            started.elapsed() < Duration::from_secs(6),
            "{kind:?}: {:?}",
            started.elapsed()
        );
        at_rest(&world, 2).await;
    }
}

/// Each waiter gives up after the outage tolerance, also one that new waiters overtake.
#[tokio::test(start_paused = true)]
async fn a_skipped_request_gives_up_in_time_behind_a_new_waiter() {
    let world = World::engine();
    let semaphore = Semaphore::new(&world.client().await, "seats").unwrap();
    semaphore.init(6).await.unwrap();
    let _all = semaphore.acquire_many(6).await.unwrap();
    let wanting = |permits| {
        let semaphore = semaphore.clone();
        tokio::spawn(async move { semaphore.acquire_many(permits).await.map(drop) })
    };
    // More permits than exist, so the requests behind skip this one.
    let big = wanting(10);
    tokio::time::sleep(Duration::from_secs(1)).await;
    let faults = world.as_engine().faults();
    faults.refuse_connections(Switch::On);
    faults.kill_connections();
    let began = Instant::now();
    tokio::time::sleep(Duration::from_secs(20)).await;
    let new_waiter = wanting(1);
    let error = big.await.unwrap().unwrap_err();
    assert!(
        matches!(
            error,
            AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. }
        ),
        "{error}"
    );
    let elapsed = began.elapsed();
    assert!(elapsed < Duration::from_secs(36), "{elapsed:?}");
    assert!(!new_waiter.is_finished());
    new_waiter.abort();
}
