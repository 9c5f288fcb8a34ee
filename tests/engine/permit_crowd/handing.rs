//! A permit goes from task to task of a process in one script, while no other process waits.

use std::pin::Pin;

use stanchion::Lease;
use stanchion_tests::LostReply;
use stanchion_tests::permits::{Seats, free};
use tokio::time::timeout;

use super::*;

/// One permit, held, and the tasks of the same client that wait for it, in this order. The server knows the scripts.
async fn waited(
    world: &World,
    kind: Kind,
    client: &Client,
    size: usize,
) -> (Seat, Vec<JoinHandle<Seat>>) {
    let seats = kind.on(client);
    seats.init(1).await.unwrap();
    let held = seats.acquire(1).await.unwrap();
    let first = taking(kind, client, 1);
    gathered(world, 1).await;
    held.release().await.unwrap();
    let held = first.await.unwrap();
    let mut waiters = Vec::new();
    for n in 0..size {
        waiters.push(taking(kind, client, 1));
        eventually("it waits", || client.waiters() == n + 1).await;
    }
    gathered(world, size.min(1)).await;
    (held, waiters)
}

/// Polled until it waits, and then left.
type Left<'a> = Pin<Box<dyn Future<Output = Result<Seat, AcquireError>> + 'a>>;

async fn left<'a>(world: &World, seats: &'a Seats) -> Left<'a> {
    let mut acquire: Left<'a> = Box::pin(seats.acquire(1));
    while world.admin(&["ZCARD", CROWD]) == "0" {
        assert!(timeout(ms(5), &mut acquire).await.is_err());
    }
    world.quiet().await;
    assert!(timeout(ms(5), &mut acquire).await.is_err());
    acquire
}

#[tokio::test(start_paused = true)]
async fn a_permit_goes_to_the_next_task_by_one_script() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (mut held, waiters) = waited(&world, kind, &client, 5).await;
        let faults = world.as_engine().faults();
        faults.delay(None, ms(10));
        for waiter in waiters {
            let (scripts, began) = (world.scripts_run(), Instant::now());
            let release = tokio::spawn(held.release());
            let next = waiter.await.unwrap();
            assert!(began.elapsed() < ms(15), "{kind:?}: {:?}", began.elapsed());
            assert_eq!(world.scripts_run() - scripts, 1, "{kind:?}");
            assert!(next.is_held());
            assert_eq!((kind.held(&world), free(&world)), (1, 0), "{kind:?}");
            release.await.unwrap().unwrap();
            held = next;
        }
        faults.delay(None, Duration::ZERO);
        // The last was told as the last.
        assert_eq!(world.admin(&["ZCARD", CROWD]), "0", "{kind:?}");
        held.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// Redisson's clients hear of releases alone.
#[tokio::test(start_paused = true)]
async fn every_ninth_release_is_announced() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (mut held, waiters) = waited(&world, kind, &client, 20).await;
        let mut java = world.listen(CHANNEL).await;
        let mut by_script = Vec::new();
        for waiter in waiters {
            let scripts = world.scripts_run();
            held.release().await.unwrap();
            held = waiter.await.unwrap();
            by_script.push(world.scripts_run() - scripts);
        }
        // A release, and the request of the next: the turn that began before the listener came, and each after it.
        let asked: Vec<_> = by_script.iter().filter(|&&scripts| scripts > 1).collect();
        assert_eq!(asked.len(), 2, "{kind:?}: {by_script:?}");
        for _ in asked {
            let told = timeout(ms(100), java.next()).await;
            assert_eq!(told.expect("nobody was told"), "01", "{kind:?}");
        }
        held.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// A hand-off to the last that is known to wait takes the process out of the crowd. Whoever comes meanwhile waits behind a later one, and
/// has sent nothing.
#[tokio::test(start_paused = true)]
async fn those_who_wait_behind_a_hand_off_are_known_to_the_server() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = waited(&world, kind, &client, 3).await;
        let _ = world.admin(&["DEL", CROWD, WAKE]);
        held.release().await.unwrap();
        let mut waiters = waiters.into_iter();
        let first = waiters.next().unwrap().await.unwrap();
        assert_eq!(world.admin(&["ZCARD", CROWD]), "1", "{kind:?}");
        // Redisson gives one back.
        let _ = world.admin(&["INCRBY", NAME, "1"]);
        let released = Instant::now();
        let _ = world.admin(&["PUBLISH", CHANNEL, "1"]);
        let second = waiters.next().unwrap().await.unwrap();
        assert!(
            released.elapsed() < ms(20),
            "{kind:?}: {:?}",
            released.elapsed()
        );
        first.release().await.unwrap();
        let third = waiters.next().unwrap().await.unwrap();
        second.release().await.unwrap();
        third.release().await.unwrap();
        kind.at_rest(&world, 2).await;
    }
}

/// The hand-off says that nobody else of the process waits, and somebody comes before its answer.
#[tokio::test(start_paused = true)]
async fn who_comes_during_a_hand_off_makes_itself_known() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, mut waiters) = waited(&world, kind, &client, 1).await;
        let faults = world.as_engine().faults();
        faults.delay(None, ms(10));
        let release = tokio::spawn(held.release());
        eventually("it is passed on", || world.admin(&["ZCARD", CROWD]) == "0").await;
        let newcomer = taking(kind, &client, 1);
        let held = waiters.pop().unwrap().await.unwrap();
        release.await.unwrap().unwrap();
        let came = Instant::now();
        eventually("it is known", || world.admin(&["ZCARD", CROWD]) == "1").await;
        assert!(came.elapsed() < ms(100), "{kind:?}: {:?}", came.elapsed());
        faults.delay(None, Duration::ZERO);
        held.release().await.unwrap();
        newcomer.await.unwrap().release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// A waiter that was handed a permit and is not polled asks no more, so a newcomer does not wait behind it.
#[tokio::test(start_paused = true)]
async fn who_comes_after_a_hand_off_makes_itself_known() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, _) = waited(&world, kind, &client, 0).await;
        let seats = kind.on(&client);
        let handed = left(&world, &seats).await;
        held.release().await.unwrap();
        assert_eq!(world.admin(&["ZCARD", CROWD]), "0", "{kind:?}");
        let came = Instant::now();
        let newcomer = taking(kind, &client, 1);
        eventually("it is known", || world.admin(&["ZCARD", CROWD]) == "1").await;
        assert!(came.elapsed() < ms(100), "{kind:?}: {:?}", came.elapsed());
        let released = Instant::now();
        handed.await.unwrap().release().await.unwrap();
        newcomer.await.unwrap().release().await.unwrap();
        assert!(
            released.elapsed() < ms(20),
            "{kind:?}: {:?}",
            released.elapsed()
        );
        kind.at_rest(&world, 1).await;
    }
}

/// Invariant 2 of the queue: what becomes free meanwhile is for the next.
#[tokio::test(start_paused = true)]
async fn a_wake_during_a_hand_off_is_for_another_waiter() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = waited(&world, kind, &client, 2).await;
        let other = world.named("other").await;
        let faults = world.as_engine().faults();
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

async fn together(waiters: Vec<JoinHandle<Seat>>, within: Duration) -> Vec<Seat> {
    let mut seats = Vec::new();
    for waiter in waiters {
        let Ok(seat) = timeout(within, waiter).await else {
            panic!("nobody told it");
        };
        seats.push(seat.unwrap());
    }
    seats
}

#[tokio::test(start_paused = true)]
async fn a_permit_for_a_waiter_that_leaves_meanwhile_goes_on() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, mut waiters) = waited(&world, kind, &client, 3).await;
        let faults = world.as_engine().faults();
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

/// Invariant 5 of the queue. A plain permit has no lease, and is kept for as long as a default one.
#[tokio::test(start_paused = true)]
async fn a_permit_for_a_future_that_nobody_polls_goes_on_after_one_lease() {
    for (kind, lease) in [(Kind::Plain, 30), (Kind::Leased, 3)] {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = waited(&world, kind, &client, 0).await;
        assert!(waiters.is_empty());
        let lease = Duration::from_secs(lease);
        let seats = kind.on(&client).with_lease(Lease::new(lease).unwrap());
        let forgotten = left(&world, &seats).await;
        held.release().await.unwrap();
        let began = Instant::now();
        let behind = taking(kind, &client, 1);
        let behind = timeout(lease + ms(1000), behind).await;
        let behind = behind.expect("kept for longer than a lease").unwrap();
        assert!(began.elapsed() >= lease - ms(200), "{kind:?}");
        behind.release().await.unwrap();
        let late = timeout(ms(500), forgotten).await;
        late.expect("it starts anew")
            .unwrap()
            .release()
            .await
            .unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// A plain permit has no lease: one that was handed over and taken stays.
#[tokio::test(start_paused = true)]
async fn a_permit_that_was_handed_over_and_taken_is_kept() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, mut waiters) = waited(&world, kind, &client, 1).await;
        held.release().await.unwrap();
        let seat = waiters.remove(0).await.unwrap();
        tokio::time::sleep(Duration::from_secs(200)).await;
        assert!(seat.is_held(), "{kind:?}");
        assert_eq!(kind.held(&world), 1, "{kind:?}");
        seat.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// P3, P6: whatever answer is lost, each permit is held or free once.
#[tokio::test(start_paused = true)]
async fn a_hand_off_whose_answer_is_lost_loses_no_permit() {
    for (kind, way) in KINDS
        .into_iter()
        .flat_map(|kind| LostReply::WAYS.map(|way| (kind, way)))
    {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = waited(&world, kind, &client, 2).await;
        world.lose_next_reply(way);
        held.release().await.unwrap();
        for waiter in waiters {
            let seat = timeout(Duration::from_secs(20), waiter).await;
            let seat = seat.expect("lost").unwrap();
            assert!(seat.is_held());
            seat.release().await.unwrap();
        }
        kind.at_rest(&world, 1).await;
    }
}

/// P3: it ran, or did not, when the connection was lost. Nobody waits longer for it than for a request of its own.
#[tokio::test(start_paused = true)]
async fn an_outage_during_a_hand_off_ends_the_waits_in_time() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, mut waiters) = waited(&world, kind, &client, 1).await;
        let faults = world.as_engine().faults();
        faults.freeze(None);
        let release = tokio::spawn(held.release());
        let waited = timeout(Duration::from_secs(60), waiters.remove(0)).await;
        let error = waited.expect("it waits for ever").unwrap_err();
        assert!(error.is_panic(), "{kind:?}: it acquired without a server");
        faults.thaw(None);
        drop(release.await.unwrap());
        kind.at_rest(&world, 1).await;
    }
}

/// What is held beyond a total that was lowered is given back, not passed on.
#[tokio::test(start_paused = true)]
async fn permits_beyond_a_lowered_total_are_not_passed_on() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, mut waiters) = waited(&world, kind, &client, 1).await;
        kind.on(&client).reduce(1).await.unwrap();
        held.release().await.unwrap();
        world.quiet().await;
        assert_eq!((kind.held(&world), free(&world)), (0, 0), "{kind:?}");
        kind.on(&client).add(1).await.unwrap();
        let seat = timeout(ms(400), waiters.remove(0)).await;
        let seat = seat.expect("nobody told it").unwrap();
        seat.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// P3: a request that outlived its caller passes nothing on, but releases.
#[tokio::test(start_paused = true)]
async fn a_hand_off_that_comes_too_late_is_a_release() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, mut waiters) = waited(&world, kind, &client, 1).await;
        let mut java = world.listen(CHANNEL).await;
        world.as_engine().faults().step_clock(10_000);
        held.release().await.ok();
        let told = timeout(ms(100), java.next()).await;
        assert_eq!(told.expect("it was handed over"), "01", "{kind:?}");
        let seat = timeout(ms(1500), waiters.remove(0)).await;
        let seat = seat.expect("nobody told it").unwrap();
        assert!(seat.is_held());
        seat.release().await.unwrap();
        kind.at_rest(&world, 1).await;
    }
}

/// The permit is free, or still held, but never gone.
#[tokio::test(start_paused = true)]
async fn a_hand_off_that_the_server_refuses_releases() {
    for kind in KINDS {
        for error in ["NOPERM no right to this command", "OOM not enough memory"] {
            let world = World::engine();
            let client = world.named("only").await;
            let (held, waiters) = waited(&world, kind, &client, 2).await;
            world.as_engine().faults().fail_next("EVALSHA", error, 1);
            held.release().await.unwrap();
            for waiter in waiters {
                let seat = timeout(ms(1500), waiter).await;
                seat.expect("lost").unwrap().release().await.unwrap();
            }
            kind.at_rest(&world, 1).await;
        }
    }
}

/// A semaphore that was deleted has no holders, and its waiters wait for one that is made anew.
#[tokio::test(start_paused = true)]
async fn nothing_is_passed_on_of_a_semaphore_that_was_deleted() {
    let world = World::engine();
    let client = world.named("only").await;
    let (held, mut waiters) = waited(&world, Kind::Plain, &client, 1).await;
    let _ = world.admin(&["DEL", NAME]);
    held.release().await.unwrap_err();
    world.quiet().await;
    assert_eq!(Kind::Plain.held(&world), 0);
    Kind::Plain.on(&client).init(1).await.unwrap();
    let seat = timeout(ms(400), waiters.remove(0)).await;
    let seat = seat.expect("nobody told it").unwrap();
    seat.release().await.unwrap();
    at_rest(&world, 1).await;
}

/// P3: nothing is left by a client that shuts down while a permit changes hands.
#[tokio::test(start_paused = true)]
async fn a_shutdown_during_a_hand_off_leaves_nothing() {
    let moments = [0, 3, 5, 7, 9, 10, 11, 15];
    for (kind, after) in KINDS
        .into_iter()
        .flat_map(|kind| moments.map(|after| (kind, after)))
    {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, _) = waited(&world, kind, &client, 0).await;
        let mut waiters = JoinSet::new();
        for _ in 0..2 {
            let seats = kind.on(&client);
            waiters.spawn(async move { drop(seats.acquire(1).await) });
        }
        gathered(&world, 1).await;
        world.as_engine().faults().delay(None, ms(5));
        let release = tokio::spawn(held.release());
        tokio::time::sleep(ms(after)).await;
        client.shutdown(Duration::from_secs(5)).await;
        drop(release.await);
        while waiters.join_next().await.is_some() {}
        kind.at_rest(&world, 1).await;
    }
}
