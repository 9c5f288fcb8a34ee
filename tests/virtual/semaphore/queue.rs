//! Tests the queue of a semaphore: the processes that a release serves, and foreign keys. `virtual/fleets` has the cost of a grant.

mod alone;
mod granting;
mod handing;
mod hearing;
mod leaving;
mod overtaken;
mod replays;

use std::time::Duration;

use stanchion::{AcquireError, Client};
use stanchion_testkit::eventually;
use stanchion_tests::permits::{CHANNEL, KINDS, Kind, NAME, Seat, at_rest, free};
use stanchion_tests::{World, ms, secs, spawn_ok};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

fn taking(kind: Kind, client: &Client, permits: u32) -> JoinHandle<Seat> {
    let seats = kind.on(client);
    spawn_ok(seats.acquire(permits))
}

async fn processes_wait(world: &World, kind: Kind, processes: usize) {
    eventually("the processes are queued", || {
        kind.queued(world) == processes
    })
    .await;
    world.quiet().await;
}

/// One client holds all permits, and each process of a fleet waits for one permit, in the order of the fleet.
async fn with_waiting_processes(
    kind: Kind,
    permits: u32,
    size: usize,
) -> (World, Vec<Client>, Seat, Vec<JoinHandle<Seat>>) {
    let world = World::engine();
    let holder = world.named("holder").await;
    let seats = kind.on(&holder);
    seats.init(permits).await.unwrap();
    // Caches the scripts on the server.
    seats.acquire(1).await.unwrap().release().await.unwrap();
    let held = seats.acquire(permits).await.unwrap();
    let mut clients = world.fleet(size).await;
    let mut waiters = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        waiters.push(taking(kind, client, 1));
        processes_wait(&world, kind, n + 1).await;
    }
    clients.push(holder);
    (world, clients, held, waiters)
}

#[tokio::test(start_paused = true)]
async fn a_release_serves_one_process_for_each_free_permit() {
    for kind in KINDS {
        let (world, _clients, held, waiters) = with_waiting_processes(kind, 3, 12).await;
        let before = world.scripts_run();
        let released = Instant::now();
        held.release().await.unwrap();
        eventually("three waiters have a permit", || {
            waiters.iter().filter(|waiter| waiter.is_finished()).count() == 3
        })
        .await;
        assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
        let scripts = world.scripts_run() - before;
        // A release and three requests; one script is not cached yet and is sent twice.
        assert!(scripts <= 5, "{kind:?}: {scripts} scripts");
        assert!(
            waiters[..3].iter().all(JoinHandle::is_finished),
            "granted out of order"
        );
        for waiter in waiters {
            waiter.await.unwrap().release().await.unwrap();
        }
        at_rest(&world, 3).await;
    }
}

/// A process renews its entry before the queue expires, however long its poll interval is.
#[tokio::test(start_paused = true)]
async fn a_process_with_a_long_poll_interval_stays_queued() {
    for kind in KINDS {
        let world = World::engine();
        let config = |name| world.config(name).poll_interval(secs(60));
        let holder = Client::connect_with(config("holder")).await.unwrap();
        let other = Client::connect_with(config("other")).await.unwrap();
        kind.on(&holder).init(1).await.unwrap();
        let held = kind.on(&holder).acquire(1).await.unwrap();
        let waiter = spawn_ok(kind.on(&other).acquire(1));
        for _ in 0..12 {
            tokio::time::sleep(secs(10)).await;
            assert_eq!(kind.queued(&world), 1, "{kind:?}");
        }
        let released = Instant::now();
        held.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
        assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn many_waiters_of_two_processes_are_all_served_at_two_commands_each() {
    for kind in KINDS {
        let (world, clients) = World::engine().with_fleet(3).await;
        let seats = kind.on(&clients[2]);
        seats.init(2).await.unwrap();
        let held = seats.acquire(2).await.unwrap();
        let mut tasks = JoinSet::new();
        for n in 0..200 {
            let seats = kind.on(&clients[n % 2]);
            tasks.spawn(async move {
                let permit = seats.acquire(1).await.unwrap();
                tokio::time::sleep(ms(1)).await;
                permit.release().await.unwrap();
            });
        }
        processes_wait(&world, kind, 2).await;
        let (before, released) = (world.scripts_run(), Instant::now());
        held.release().await.unwrap();
        tasks.join_all().await;
        let scripts = world.scripts_run() - before;
        assert!(scripts < 460, "{kind:?}: {scripts} scripts for 200 grants");
        // 100 rounds of 1 ms, plus the messages.
        assert!(released.elapsed() < ms(400), "{:?}", released.elapsed());
        at_rest(&world, 2).await;
    }
}

/// No message announces the end of a lease. One process sends a request at that time, and the others are notified.
#[tokio::test(start_paused = true)]
async fn one_process_sends_a_request_when_a_lease_ends() {
    for size in [1, 20] {
        let (world, _clients, held, waiters) = with_waiting_processes(Kind::Leased, 2, size).await;
        let Seat::Leased(permits) = &held else {
            panic!("{held:?}")
        };
        world.faults().freeze(Some("holder"));
        // Lets a renewal that is already in flight run.
        tokio::time::sleep(ms(100)).await;
        let before = world.scripts_run();
        let ends = Instant::now() + permits.remaining();
        eventually("waiters have a permit", || {
            let granted = waiters.iter().filter(|waiter| waiter.is_finished());
            granted.count() == size.min(2)
        })
        .await;
        let late = Instant::now().saturating_duration_since(ends);
        // The holder ends its lease 300 ms before the server does. The other waiter is notified and does not wait for its next poll.
        assert!(late < ms(320), "{size}: {late:?}");
        let scripts = world.scripts_run() - before;
        // Each process also polls every 5 s, in case a message is lost.
        assert!(scripts < 6 * size as u64 + 6, "{size}: {scripts} scripts");
    }
}

/// `x` and `{x}` share channels, but no keys: each has its own queue.
#[tokio::test(start_paused = true)]
async fn a_name_in_braces_has_its_own_queue() {
    for kind in KINDS {
        let (world, [ours, theirs]) = World::engine().with_clients().await;
        let braced = format!("{{{NAME}}}");
        let of = |client: &Client, name: &str| kind.named(client, name);
        let mut held = Vec::new();
        for name in [&braced, NAME] {
            // A semaphore without permits has no holders, so this request deletes the holders that it finds.
            assert!(of(&ours, name).try_acquire(1).await.unwrap().is_none());
            let seats = of(&ours, name);
            seats.init(2).await.unwrap();
            held.push(seats.acquire(2).await.unwrap());
        }
        // For the name in braces: a waiter for both permits, and a waiter for one behind it.
        let mut waits = Vec::new();
        for permits in [2, 1] {
            let seats = of(&theirs, &braced);
            waits.push(spawn_ok(seats.acquire(permits)));
            eventually("the waiter is queued", || theirs.waiters() == waits.len()).await;
            world.quiet().await;
        }
        held.remove(1).release().await.unwrap();
        world.quiet().await;
        assert!(waits.iter().all(|waiter| !waiter.is_finished()));
        // No permit of the plain name is reserved for a waiter of the other name.
        let plain = of(&ours, NAME).try_acquire(1).await.unwrap();
        drop(plain.expect("two are free"));
        held.remove(0).release().await.unwrap();
        for waiter in waits {
            waiter.await.unwrap().release().await.unwrap();
        }
    }
}

/// Redisson's clients get one of as many turns as processes wait, plus one, and hear of the permit.
#[tokio::test(start_paused = true)]
async fn redisson_gets_its_turn_while_processes_wait() {
    for kind in KINDS {
        let (world, clients, mut held, waiters) = with_waiting_processes(kind, 1, 4).await;
        let mut java = world.listen(CHANNEL).await;
        let mut granted = 0;
        for waiter in waiters {
            held.release().await.unwrap();
            held = waiter.await.unwrap();
            granted += 1;
        }
        // No process waits, so the last release is published, too. Redisson parses `01` as 1.
        held.release().await.unwrap();
        let heard = [java.next().await, java.next().await];
        assert_eq!(heard, ["01", "01"], "{kind:?}, {granted} grants");
        assert_eq!(granted, 4, "{kind:?}");
        drop(clients);
    }
}

/// R15, R16: keys of another type under the names of the queue stay unchanged, and releases succeed.
#[tokio::test(start_paused = true)]
async fn foreign_keys_in_place_of_the_queue_stop_no_release() {
    for kind in KINDS {
        for key in [kind.line(), kind.wake()] {
            for quits in [false, true] {
                let (world, clients, held, waiters) = with_waiting_processes(kind, 2, 1).await;
                if !quits {
                    waiters[0].abort();
                    eventually("the waiter has left", || kind.queued(&world) == 0).await;
                }
                let _ = world.admin(&["DEL", key]);
                let _ = world.admin(&["SET", key, "theirs"]);
                if quits {
                    waiters[0].abort();
                    eventually("the waiter has left", || clients[0].waiters() == 0).await;
                    world.quiet().await;
                }
                let patient = kind.on(&clients[0]);
                let error = patient.acquire_timeout(1, ms(100)).await.unwrap_err();
                let AcquireError::Rejected { .. } = error else {
                    panic!("{kind:?}, {key}: {error}")
                };
                held.release().await.unwrap();
                assert_eq!(patient.available().await.unwrap(), 2, "{kind:?}, {key}");
                assert_eq!(kind.held(&world), 0, "{kind:?}, {key}");
                assert_eq!(world.admin(&["GET", key]), "theirs", "{kind:?}");
            }
        }
    }
}
