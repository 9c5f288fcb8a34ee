//! Tests both kinds of semaphore: operations whose replies are lost, the memory limit, dead processes, and the queue on the server. The tables
//! in `virtual` have the faults of all kinds.
//!
//! Long: all tests share one set-up.

use std::time::Duration;

use futures_util::future::join_all;
use stanchion::embedded::Switch;
use stanchion::{AcquireError, Client, LeasedSemaphore, Semaphore};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{
    CHANNEL, KINDS, Kind, NAME, Seat, Seats, TOTAL, at_rest, free, keys,
};
use stanchion_tests::{
    LostReply, World, assert_is, assert_within, lease, ms, secs, spawn_ok, together,
};
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
    spawn_ok(seats.acquire(permits))
}

fn each_way() -> impl Iterator<Item = (Kind, LostReply)> {
    let ways = |kind| LostReply::WAYS.map(|way| (kind, way));
    KINDS.into_iter().flat_map(ways)
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
        client.shutdown(secs(60)).await;
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
    tokio::time::sleep(secs(10)).await;
    assert_eq!(world.keys(), [NAME, TOTAL]);
    let days = world.admin(&["PTTL", TOTAL]).parse::<i64>().unwrap() / 86_400_000;
    assert_eq!(days, 29, "30 days, and the first has begun");
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
        world.faults().delay(None, ms(10));
        let (_clients, held, waiting) = all_wait(&world, kind, 3).await;
        let took = serve_all(held, waiting).await;
        // A message of 10 ms, and a request of 10 ms for each plain permit and for each other leased permit.
        assert!(took <= ms(45), "{kind:?} {took:?}");
        at_rest(&world, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_plain_permit_outlives_any_outage() {
    let world = World::engine();
    let client = world.named("ours").await;
    let seats = Semaphore::new(&client, NAME).unwrap();
    seats.init(1).await.unwrap();
    let permit = seats.acquire().await.unwrap();
    world.faults().freeze(Some("ours"));
    tokio::time::sleep(secs(3600)).await;
    let other = Semaphore::new(&world.client().await, NAME).unwrap();
    assert!(other.try_acquire().await.unwrap().is_none());
    // The release also survives an outage.
    drop(permit);
    tokio::time::sleep(secs(3600)).await;
    assert_eq!(free(&world), 0);
    world.faults().thaw(Some("ours"));
    at_rest(&world, 1).await;
}

#[tokio::test(start_paused = true)]
async fn leased_permits_of_a_dead_process_expire_and_plain_ones_are_listed() {
    let world = World::engine();
    let dead = world.named("dead").await;
    let alive = world.client().await;
    let lease = lease(secs(3));
    let leased = LeasedSemaphore::new(&dead, "leased").unwrap().lease(lease);
    let plain = Semaphore::new(&dead, "plain").unwrap();
    leased.init(2).await.unwrap();
    plain.init(2).await.unwrap();
    let (leased, plain) = (
        leased.acquire_many(2).await.unwrap(),
        plain.acquire_many(2).await.unwrap(),
    );
    let owner = plain.owner().to_string();
    world.faults().freeze(Some("dead"));
    let started = Instant::now();
    let again = LeasedSemaphore::new(&alive, "leased")
        .unwrap()
        .acquire_many(2)
        .await
        .unwrap();
    assert!(started.elapsed() < secs(4));
    assert!(!leased.is_held());
    drop(again);
    let survivor = Semaphore::new(&alive, "plain").unwrap();
    let error = survivor.acquire_timeout(secs(60)).await.unwrap_err();
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
        world.faults().freeze(Some("dying"));
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
        tokio::time::sleep(secs(20)).await;
        assert_eq!(kind.queued(&world), 20, "{kind:?}");
        let started = Instant::now();
        held.release().await.unwrap();
        // In any order.
        let served = waiting
            .into_iter()
            .map(async |waiter| waiter.await.unwrap().release().await.unwrap());
        join_all(served).await;
        assert_within(started, secs(6), kind);
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
    tokio::time::sleep(secs(1)).await;
    let faults = world.faults();
    faults.refuse_connections(Switch::On);
    faults.kill_connections();
    let began = Instant::now();
    tokio::time::sleep(secs(20)).await;
    let new_waiter = wanting(1);
    let error = big.await.unwrap().unwrap_err();
    assert_is!(
        error,
        AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. }
    );
    assert_within(began, secs(36), ());
    assert!(!new_waiter.is_finished());
    new_waiter.abort();
}
