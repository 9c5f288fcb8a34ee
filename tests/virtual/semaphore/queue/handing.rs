//! Tests hand-offs of permits: one script passes a permit to the next task of the same process, while no other process waits.

use std::pin::Pin;

use stanchion::ReleaseError;
use stanchion_tests::permits::{Seats, free};
use stanchion_tests::{assert_within, ms, secs};
use tokio::time::timeout;

use super::*;

/// Holds the only permit, and lets tasks of the same client wait for it in order. The scripts are cached on the server.
async fn with_waiting_tasks(
    kind: Kind,
    size: usize,
) -> (World, Client, Seat, Vec<JoinHandle<Seat>>) {
    let world = World::engine();
    let client = world.named("only").await;
    let seats = kind.on(&client);
    seats.init(1).await.unwrap();
    let held = seats.acquire(1).await.unwrap();
    let first = taking(kind, &client, 1);
    processes_wait(&world, kind, 1).await;
    held.release().await.unwrap();
    let held = first.await.unwrap();
    let mut waiters = Vec::new();
    for n in 0..size {
        waiters.push(taking(kind, &client, 1));
        eventually("the waiter is queued", || client.waiters() == n + 1).await;
    }
    processes_wait(&world, kind, size.min(1)).await;
    (world, client, held, waiters)
}

/// An acquire that was polled until it waits, and is not polled after that.
type Stalled<'a> = Pin<Box<dyn Future<Output = Result<Seat, AcquireError>> + 'a>>;

async fn stalled<'a>(world: &World, kind: Kind, seats: &'a Seats) -> Stalled<'a> {
    let mut acquire: Stalled<'a> = Box::pin(seats.acquire(1));
    while kind.queued(world) == 0 {
        assert!(timeout(ms(5), &mut acquire).await.is_err());
    }
    world.quiet().await;
    assert!(timeout(ms(5), &mut acquire).await.is_err());
    acquire
}

#[tokio::test(start_paused = true)]
async fn one_script_hands_a_permit_to_the_next_task() {
    for kind in KINDS {
        let (world, _client, mut held, waiters) = with_waiting_tasks(kind, 5).await;
        let faults = world.faults();
        faults.delay(None, ms(10));
        let scripts = world.scripts_run();
        for waiter in waiters {
            let began = Instant::now();
            let release = tokio::spawn(held.release());
            let next = waiter.await.unwrap();
            assert!(began.elapsed() < ms(15), "{kind:?}: {:?}", began.elapsed());
            assert!(next.is_held());
            assert_eq!((kind.held(&world), free(&world)), (1, 0), "{kind:?}");
            release.await.unwrap().unwrap();
            held = next;
        }
        faults.delay(None, Duration::ZERO);
        // Five hand-offs, and the process leaves the queue.
        eventually("the process has left", || kind.queued(&world) == 0).await;
        assert_eq!(world.scripts_run() - scripts, 6, "{kind:?}");
        held.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// The entry of a process stays in the queue while it hands its permits over.
#[tokio::test(start_paused = true)]
async fn a_process_stays_queued_after_a_hand_off() {
    for kind in KINDS {
        let (world, _client, held, waiters) = with_waiting_tasks(kind, 3).await;
        held.release().await.unwrap();
        let mut waiters = waiters.into_iter();
        let first = waiters.next().unwrap().await.unwrap();
        assert_eq!(kind.queued(&world), 1, "{kind:?}");
        // Redisson releases a permit.
        let _ = world.admin(&["INCRBY", NAME, "1"]);
        let released = Instant::now();
        let _ = world.admin(&["PUBLISH", CHANNEL, "1"]);
        let second = waiters.next().unwrap().await.unwrap();
        assert_within(released, ms(20), kind);
        first.release().await.unwrap();
        let third = waiters.next().unwrap().await.unwrap();
        second.release().await.unwrap();
        third.release().await.unwrap();
        kind.at_rest(&world, 2).await;
    }
}

/// The hand-off reports no further waiter of the process, and one joins before the reply arrives.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_joins_during_a_hand_off_is_registered() {
    for kind in KINDS {
        let (world, client, held, mut waiters) = with_waiting_tasks(kind, 1).await;
        let faults = world.faults();
        faults.delay(None, ms(10));
        let release = tokio::spawn(held.release());
        eventually("the hand-off has run", || kind.queued(&world) == 0).await;
        let new_waiter = taking(kind, &client, 1);
        let held = waiters.pop().unwrap().await.unwrap();
        release.await.unwrap().unwrap();
        let joined = Instant::now();
        eventually("the new waiter is registered", || kind.queued(&world) == 1).await;
        assert_within(joined, ms(100), kind);
        faults.delay(None, Duration::ZERO);
        held.release().await.unwrap();
        new_waiter.await.unwrap().release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// A waiter that received a permit and is not polled sends no request, so the new waiter must send one.
#[tokio::test(start_paused = true)]
async fn a_waiter_that_joins_after_a_hand_off_is_registered() {
    for kind in KINDS {
        let (world, client, held, _) = with_waiting_tasks(kind, 0).await;
        let seats = kind.on(&client);
        let handed = stalled(&world, kind, &seats).await;
        held.release().await.unwrap();
        let joined = Instant::now();
        let new_waiter = taking(kind, &client, 1);
        eventually("the new waiter is registered", || kind.queued(&world) == 1).await;
        assert_within(joined, ms(100), kind);
        let released = Instant::now();
        handed.await.unwrap().release().await.unwrap();
        new_waiter.await.unwrap().release().await.unwrap();
        assert_within(released, ms(20), kind);
        kind.at_rest(&world, 1).await;
    }
}

/// Invariant 2 of the queue.
#[tokio::test(start_paused = true)]
async fn a_permit_freed_during_a_hand_off_goes_to_another_waiter() {
    for kind in KINDS {
        let (world, _client, held, waiters) = with_waiting_tasks(kind, 2).await;
        let other = world.named("other").await;
        let faults = world.faults();
        faults.delay(Some("only"), ms(50));
        let release = tokio::spawn(held.release());
        tokio::time::sleep(ms(5)).await;
        kind.on(&other).add(1).await.unwrap();
        for waiter in together(waiters, ms(400)).await {
            waiter.release().await.unwrap();
        }
        release.await.unwrap().unwrap();
        faults.delay(Some("only"), Duration::ZERO);
        kind.at_rest(&world, 2).await;
    }
}

async fn served(waiter: JoinHandle<Seat>, within: Duration) {
    for seat in together(vec![waiter], within).await {
        seat.release().await.unwrap();
    }
}

async fn together(waiters: Vec<JoinHandle<Seat>>, within: Duration) -> Vec<Seat> {
    let mut seats = Vec::new();
    for waiter in waiters {
        let Ok(seat) = timeout(within, waiter).await else {
            panic!("the waiter got no permit in time");
        };
        seats.push(seat.unwrap());
    }
    seats
}

#[tokio::test(start_paused = true)]
async fn a_permit_for_a_cancelled_waiter_goes_to_the_next() {
    for kind in KINDS {
        let (world, _client, held, mut waiters) = with_waiting_tasks(kind, 3).await;
        let faults = world.faults();
        faults.delay(None, ms(50));
        let release = tokio::spawn(held.release());
        tokio::time::sleep(ms(5)).await;
        for leaving in waiters.drain(..2) {
            leaving.abort();
        }
        for seat in together(waiters, ms(400)).await {
            faults.delay(None, Duration::ZERO);
            seat.release().await.unwrap();
        }
        release.await.unwrap().unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// Invariant 5 of the queue.
#[tokio::test(start_paused = true)]
async fn a_permit_for_an_unpolled_future_goes_to_the_next_after_a_second() {
    for kind in KINDS {
        let (world, client, held, waiters) = with_waiting_tasks(kind, 0).await;
        assert!(waiters.is_empty());
        let seats = kind.on(&client);
        let forgotten = stalled(&world, kind, &seats).await;
        held.release().await.unwrap();
        let began = Instant::now();
        let behind = taking(kind, &client, 1);
        let behind = timeout(ms(1200), behind).await;
        let behind = behind.expect("kept for longer").unwrap();
        assert!(began.elapsed() >= ms(990), "{kind:?}");
        behind.release().await.unwrap();
        let late = timeout(ms(500), forgotten).await;
        late.expect("the stalled acquire sends a new request")
            .unwrap()
            .release()
            .await
            .unwrap();
        kind.at_rest(&world, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_permit_that_its_waiter_received_is_kept() {
    for kind in KINDS {
        let (world, _client, held, mut waiters) = with_waiting_tasks(kind, 1).await;
        held.release().await.unwrap();
        let seat = waiters.remove(0).await.unwrap();
        tokio::time::sleep(secs(200)).await;
        assert!(seat.is_held(), "{kind:?}");
        assert_eq!(kind.held(&world), 1, "{kind:?}");
        seat.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// P3, P8: the connection fails, so the client cannot know whether the hand-off ran, or whether the server has granted to its entry. The
/// waiter gives up as after a request of its own.
#[tokio::test(start_paused = true)]
async fn an_outage_during_a_hand_off_ends_the_waits_in_time() {
    for kind in KINDS {
        let (world, client, held, _) = with_waiting_tasks(kind, 0).await;
        let waiter = tokio::spawn(kind.on(&client).acquire(1));
        processes_wait(&world, kind, 1).await;
        let faults = world.faults();
        faults.freeze(None);
        let began = Instant::now();
        let release = tokio::spawn(held.release());
        let outcome = timeout(secs(60), waiter).await;
        let outcome = outcome.expect("the waiter never gives up").unwrap();
        assert!(
            matches!(outcome, Err(AcquireError::Ambiguous { .. })),
            "{kind:?}: {outcome:?}"
        );
        // The outage tolerance, and the time until the client detects the outage.
        let waited = began.elapsed().as_secs();
        assert!((30..33).contains(&waited), "{kind:?}: {waited} s");
        faults.thaw(None);
        let released = release.await.unwrap();
        assert!(
            matches!(released, Err(ReleaseError::Ambiguous { .. })),
            "{kind:?}: {released:?}"
        );
        // The request that was under way came too late, and did nothing. A lease that has ended is found by the next request.
        let seat = timeout(ms(1500), kind.on(&client).acquire(1)).await;
        let seat = seat.expect("the permit was lost").unwrap();
        seat.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn permits_above_a_lowered_total_are_not_handed_over() {
    for kind in KINDS {
        let (world, client, held, mut waiters) = with_waiting_tasks(kind, 1).await;
        kind.on(&client).reduce(1).await.unwrap();
        held.release().await.unwrap();
        world.quiet().await;
        assert_eq!((kind.held(&world), free(&world)), (0, 0), "{kind:?}");
        kind.on(&client).add(1).await.unwrap();
        served(waiters.remove(0), ms(400)).await;
        kind.at_rest(&world, 1).await;
    }
}

/// P3: a hand-off that runs after its deadline hands nothing over.
#[tokio::test(start_paused = true)]
async fn a_late_hand_off_releases_the_permit() {
    for kind in KINDS {
        let (world, _client, held, mut waiters) = with_waiting_tasks(kind, 1).await;
        world.faults().step_clock(10_000);
        held.release().await.unwrap();
        let seat = timeout(ms(1500), waiters.remove(0)).await;
        let seat = seat.expect("the waiter got no permit in time").unwrap();
        assert!(seat.is_held());
        seat.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_that_the_server_rejects_loses_no_permit() {
    for kind in KINDS {
        for error in ["NOPERM no right to this command", "OOM not enough memory"] {
            let (world, _client, held, waiters) = with_waiting_tasks(kind, 2).await;
            world.faults().fail_next("EVALSHA", error, 1);
            held.release().await.unwrap();
            for waiter in waiters {
                served(waiter, ms(1500)).await;
            }
            kind.at_rest(&world, 1).await;
        }
    }
}

/// The waiters of a deleted semaphore wait until it is initialised again.
#[tokio::test(start_paused = true)]
async fn a_deleted_semaphore_hands_over_no_permit() {
    let (world, client, held, mut waiters) = with_waiting_tasks(Kind::Plain, 1).await;
    let _ = world.admin(&["DEL", NAME]);
    held.release().await.unwrap_err();
    world.quiet().await;
    assert_eq!(Kind::Plain.held(&world), 0);
    Kind::Plain.on(&client).init(1).await.unwrap();
    served(waiters.remove(0), ms(400)).await;
    at_rest(&world, 1).await;
}

/// P3: the client shuts down at several moments of the hand-off.
#[tokio::test(start_paused = true)]
async fn a_shutdown_during_a_hand_off_leaves_nothing() {
    let moments = [0, 3, 5, 7, 9, 10, 11, 15];
    for (kind, after) in KINDS
        .into_iter()
        .flat_map(|kind| moments.map(|after| (kind, after)))
    {
        let (world, client, held, _) = with_waiting_tasks(kind, 0).await;
        let mut waiters = JoinSet::new();
        for _ in 0..2 {
            let seats = kind.on(&client);
            waiters.spawn(async move { drop(seats.acquire(1).await) });
        }
        processes_wait(&world, kind, 1).await;
        world.faults().delay(None, ms(5));
        let release = tokio::spawn(held.release());
        tokio::time::sleep(ms(after)).await;
        client.shutdown(secs(5)).await;
        drop(release.await);
        while waiters.join_next().await.is_some() {}
        kind.at_rest(&world, 1).await;
    }
}
