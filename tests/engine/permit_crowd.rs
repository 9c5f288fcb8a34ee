//! The processes that wait for permits: what a grant costs, who is told of a free permit, and what the dead and the others cost.

mod alone;
mod granting;
mod handing;
mod hearing;
mod leaving;
mod overtaken;
mod replays;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::embedded::Switch;
use stanchion::{AcquireError, Client, Wake};
use stanchion_testkit::eventually;
use stanchion_tests::World;
use stanchion_tests::permits::{CHANNEL, CROWD, KINDS, Kind, NAME, Seat, WAKE, at_rest, free};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Grants, and the longest wait in µs.
#[derive(Debug, Default)]
struct Tally {
    grants: AtomicU64,
    longest: AtomicU64,
}

fn work(kind: Kind, clients: &[Client], tally: &Arc<Tally>) -> JoinSet<()> {
    let mut tasks = JoinSet::new();
    for client in clients {
        let (seats, tally) = (kind.on(client), Arc::clone(tally));
        tasks.spawn(async move {
            loop {
                let began = Instant::now();
                let permit = seats.acquire(1).await.unwrap();
                let waited = u64::try_from(began.elapsed().as_micros()).unwrap();
                tally.longest.fetch_max(waited, Ordering::Relaxed);
                tally.grants.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(ms(2)).await;
                permit.release().await.unwrap();
                tokio::time::sleep(ms(2)).await;
            }
        });
    }
    tasks
}

/// P11: leased permits are granted by the release, plain ones are asked for by who is told.
#[tokio::test(start_paused = true)]
async fn a_grant_costs_the_same_however_many_processes_wait() {
    for (kind, tenths) in [(Kind::Plain, 32), (Kind::Leased, 21)] {
        for size in [16, 64] {
            let world = World::engine();
            let clients = world.fleet(size).await;
            kind.on(&clients[0]).init(4).await.unwrap();
            let tally = Arc::new(Tally::default());
            let mut tasks = work(kind, &clients, &tally);
            tokio::time::sleep(ms(1000)).await;
            let (scripts, grants) = (world.scripts_run(), tally.grants.load(Ordering::Relaxed));
            tally.longest.store(0, Ordering::Relaxed);
            tokio::time::sleep(ms(1000)).await;
            let scripts = world.scripts_run() - scripts;
            let grants = tally.grants.load(Ordering::Relaxed) - grants;
            tasks.shutdown().await;
            assert!(grants > 500, "{kind:?}, {size}: {grants} grants");
            assert!(
                scripts * 10 <= grants * tenths,
                "{kind:?}, {size}: {scripts} scripts for {grants} grants"
            );
            // In their turns: a fair share of a second is 64 of 4 ms, four at a time.
            let longest = ms(tally.longest.load(Ordering::Relaxed) / 1000);
            assert!(longest < ms(150), "{kind:?}, {size}: {longest:?}");
        }
    }
}

fn taking(kind: Kind, client: &Client, permits: u32) -> JoinHandle<Seat> {
    let seats = kind.on(client);
    tokio::spawn(async move { seats.acquire(permits).await.unwrap() })
}

async fn gathered(world: &World, processes: usize) {
    eventually("they wait", || {
        world.admin(&["ZCARD", CROWD]) == processes.to_string()
    })
    .await;
    world.quiet().await;
}

/// All permits are held, and a fleet waits for one each, in its order.
async fn waited_for(
    world: &World,
    kind: Kind,
    permits: u32,
    size: usize,
) -> (Vec<Client>, Seat, Vec<JoinHandle<Seat>>) {
    let holder = world.named("holder").await;
    let seats = kind.on(&holder);
    seats.init(permits).await.unwrap();
    // The server knows the scripts from here on.
    seats.acquire(1).await.unwrap().release().await.unwrap();
    let held = seats.acquire(permits).await.unwrap();
    let mut clients = world.fleet(size).await;
    let mut waiters = Vec::new();
    for (n, client) in clients.iter().enumerate() {
        waiters.push(taking(kind, client, 1));
        gathered(world, n + 1).await;
    }
    clients.push(holder);
    (clients, held, waiters)
}

#[tokio::test(start_paused = true)]
async fn as_many_are_told_as_permits_are_free() {
    for kind in KINDS {
        let world = World::engine();
        let (_clients, held, waiters) = waited_for(&world, kind, 3, 12).await;
        let before = world.scripts_run();
        let released = Instant::now();
        held.release().await.unwrap();
        eventually("three have theirs", || {
            waiters.iter().filter(|waiter| waiter.is_finished()).count() == 3
        })
        .await;
        assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
        let scripts = world.scripts_run() - before;
        // The first use of a script that tells somebody is sent twice.
        assert!(scripts <= 5, "{kind:?}: {scripts} scripts");
        assert!(waiters[..3].iter().all(JoinHandle::is_finished), "in order");
        for waiter in waiters {
            waiter.await.unwrap().release().await.unwrap();
        }
        at_rest(&world, 3).await;
    }
}

#[tokio::test(start_paused = true)]
async fn processes_whose_connections_are_gone_are_passed_over_at_once() {
    for kind in KINDS {
        let world = World::engine();
        let (_clients, held, mut waiters) = waited_for(&world, kind, 1, 5).await;
        let faults = world.as_engine().faults();
        faults.refuse_connections(Switch::On);
        for dead in ["p0", "p1", "p2", "p3"] {
            faults.kill_label(dead);
        }
        let released = Instant::now();
        held.release().await.unwrap();
        let last = waiters.pop().unwrap().await.unwrap();
        assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
        assert_eq!((kind.held(&world), free(&world)), (1, 0), "{kind:?}");
        drop(last);
    }
}

/// Those who were told say nothing: the next asks a moment later, and lets the others know. Who was granted has it until its short lease ends.
#[tokio::test(start_paused = true)]
async fn silent_processes_delay_the_living_by_little() {
    for (kind, delay) in [(Kind::Plain, 400), (Kind::Leased, 1700)] {
        let world = World::engine();
        let (_clients, held, waiters) = waited_for(&world, kind, 4, 10).await;
        for silent in 0..4 {
            world
                .as_engine()
                .faults()
                .freeze(Some(&format!("p{silent}")));
        }
        let released = Instant::now();
        held.release().await.unwrap();
        for living in waiters.into_iter().skip(4) {
            living.await.unwrap().release().await.unwrap();
        }
        assert!(
            released.elapsed() < ms(delay),
            "{kind:?}: {:?}",
            released.elapsed()
        );
    }
}

/// Redisson's waiters hear every release, also while processes of ours wait.
#[tokio::test(start_paused = true)]
async fn redissons_waiters_hear_releases_beside_a_crowd() {
    for kind in KINDS {
        let world = World::engine();
        let mut java = world.listen(CHANNEL).await;
        let (_clients, held, waiters) = waited_for(&world, kind, 2, 4).await;
        // Of `waited_for`, when nobody waited yet: two of `init`, and a release.
        for _ in 0..2 {
            assert_eq!(java.next().await, "2");
        }
        held.release().await.unwrap();
        // Redisson reads it as the same.
        assert_eq!(java.next().await, "02");
        for waiter in waiters {
            waiter.await.unwrap().release().await.unwrap();
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_polls_gets_permits_beside_a_crowd() {
    for kind in KINDS {
        let world = World::engine();
        let config = world.config("polling").wake(Wake::Poll);
        let polling = kind.on(&Client::connect_with(config).await.unwrap());
        polling.init(2).await.unwrap();
        let clients = world.fleet(8).await;
        let mut tasks = work(kind, &clients, &Arc::default());
        tokio::time::sleep(ms(500)).await;
        let started = Instant::now();
        for _ in 0..5 {
            polling.acquire(1).await.unwrap().release().await.unwrap();
        }
        assert!(
            started.elapsed() < Duration::from_secs(10),
            "{:?}",
            started.elapsed()
        );
        tasks.shutdown().await;
    }
}

/// A crowd of the dead leaves nothing that lasts, and keeps nobody waiting.
#[tokio::test(start_paused = true)]
async fn a_crowd_of_the_dead_ends_by_itself() {
    for kind in KINDS {
        let world = World::engine();
        let (_clients, held, waiters) = waited_for(&world, kind, 2, 2).await;
        for n in 0..1000 {
            let dead = format!("00000000-0000-8000-8000-{n:012}");
            let _ = world.admin(&["ZADD", CROWD, &n.to_string(), &dead]);
        }
        let released = Instant::now();
        held.release().await.unwrap();
        for waiter in waiters {
            waiter.await.unwrap().release().await.unwrap();
        }
        assert!(released.elapsed() < ms(6000), "{:?}", released.elapsed());
        at_rest(&world, 2).await;
    }
}

/// A process of the wait set sends a request before its place there ends, however long its poll interval is.
#[tokio::test(start_paused = true)]
async fn a_long_poll_interval_loses_no_place_in_the_wait_set() {
    for kind in KINDS {
        let world = World::engine();
        let config = |name| world.config(name).poll_interval(Duration::from_secs(60));
        let holder = Client::connect_with(config("holder")).await.unwrap();
        let other = Client::connect_with(config("other")).await.unwrap();
        kind.on(&holder).init(1).await.unwrap();
        let held = kind.on(&holder).acquire(1).await.unwrap();
        let seats = kind.on(&other);
        let waiter = tokio::spawn(async move { seats.acquire(1).await.unwrap() });
        for _ in 0..12 {
            tokio::time::sleep(Duration::from_secs(10)).await;
            assert_eq!(world.admin(&["ZCARD", CROWD]), "1", "{kind:?}");
        }
        let released = Instant::now();
        held.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
        assert!(released.elapsed() < ms(20), "{:?}", released.elapsed());
    }
}

/// R15, R16: keys of the same names that hold something else stay as they are, and no release fails by them.
#[tokio::test(start_paused = true)]
async fn foreign_keys_in_place_of_the_crowd_stop_no_release() {
    for kind in KINDS {
        for key in [CROWD, WAKE] {
            let world = World::engine();
            let (clients, held, waiters) = waited_for(&world, kind, 2, 2).await;
            waiters.iter().for_each(JoinHandle::abort);
            eventually("they have left", || {
                clients[..2].iter().all(|client| client.waiters() == 0)
            })
            .await;
            let _ = world.admin(&["DEL", key]);
            let _ = world.admin(&["SET", key, "theirs"]);
            let patient = kind.on(&clients[0]);
            let wait = Duration::from_millis(100);
            let error = patient.acquire_timeout(1, wait).await.unwrap_err();
            match (key, error) {
                // Nobody can tell it, so it polls.
                (CROWD, AcquireError::TimedOut { .. }) | (WAKE, AcquireError::Rejected { .. }) => {}
                (_, error) => panic!("{kind:?}, {key}: {error}"),
            }
            let waiting = (key == CROWD).then(|| taking(kind, &clients[1], 1));
            held.release().await.unwrap();
            if let Some(waiting) = waiting {
                waiting.await.unwrap().release().await.unwrap();
            }
            assert_eq!(patient.available().await.unwrap(), 2, "{kind:?}, {key}");
            assert_eq!(world.admin(&["GET", key]), "theirs", "{kind:?}");
        }
    }
}

/// S2: what was announced to those who wait is not for who comes anew, for a moment; a try takes it.
#[tokio::test(start_paused = true)]
async fn newcomers_do_not_take_what_is_promised() {
    for kind in KINDS {
        let world = World::engine();
        // Beside Redisson's clients nobody is granted a permit, but told of it.
        let _java = world.listen(CHANNEL).await;
        let (clients, held, _waiters) = waited_for(&world, kind, 1, 1).await;
        // It is told, and says nothing.
        world.as_engine().faults().freeze(Some("p0"));
        held.release().await.unwrap();
        let newcomer = kind.on(clients.last().unwrap());
        let error = newcomer.acquire_timeout(1, ms(15)).await.unwrap_err();
        assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
        assert!(newcomer.try_acquire(1).await.unwrap().is_some());
        world.as_engine().faults().thaw(None);
    }
}

/// S4: a process is told once for all its waiters, and again when some are left; many cost no more than one.
#[tokio::test(start_paused = true)]
async fn many_waiters_of_two_processes_are_all_served_at_two_commands_each() {
    for kind in KINDS {
        let world = World::engine();
        let clients = world.fleet(3).await;
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
        gathered(&world, 2).await;
        let (before, released) = (world.scripts_run(), Instant::now());
        held.release().await.unwrap();
        tasks.join_all().await;
        let scripts = world.scripts_run() - before;
        assert!(scripts < 460, "{kind:?}: {scripts} scripts for 200 grants");
        // 100 turns of 1 ms, and what the messages take.
        assert!(released.elapsed() < ms(400), "{:?}", released.elapsed());
        at_rest(&world, 2).await;
    }
}

/// S5: the end of a lease sends no message. One process asks then, and lets the others know.
#[tokio::test(start_paused = true)]
async fn one_process_asks_when_a_lease_ends() {
    for size in [1, 20] {
        let world = World::engine();
        let (_clients, held, waiters) = waited_for(&world, Kind::Leased, 2, size).await;
        let Seat::Leased(permits) = &held else {
            panic!("{held:?}")
        };
        world.as_engine().faults().freeze(Some("holder"));
        // The renewal that is under way may have run.
        tokio::time::sleep(ms(100)).await;
        let before = world.scripts_run();
        let ends = Instant::now() + permits.remaining();
        eventually("some have theirs", || {
            let seated = waiters.iter().filter(|waiter| waiter.is_finished());
            seated.count() == size.min(2)
        })
        .await;
        let late = Instant::now().saturating_duration_since(ends);
        // By its own clock the holder's lease ends 300 ms before the server's. The others are told, and none waits for its next poll.
        assert!(late < ms(320), "{size}: {late:?}");
        let scripts = world.scripts_run() - before;
        // Each asks every five seconds as well, so that a lost message costs no more.
        assert!(scripts < 6 * size as u64 + 6, "{size}: {scripts} scripts");
    }
}

/// The two names share channels, but no key: nothing of the one is kept back or announced for the other.
#[tokio::test(start_paused = true)]
async fn a_name_in_braces_has_a_crowd_of_its_own() {
    for kind in KINDS {
        let world = World::engine();
        let (ours, theirs) = (world.client().await, world.client().await);
        let braced = format!("{{{NAME}}}");
        let of = |client: &Client, name: &str| kind.named(client, name);
        let mut held = Vec::new();
        for name in [&braced, NAME] {
            // Without permits of its own it has no holders either, and forgets those that it finds.
            assert!(of(&ours, name).try_acquire(1).await.unwrap().is_none());
            let seats = of(&ours, name);
            seats.init(2).await.unwrap();
            held.push(seats.acquire(2).await.unwrap());
        }
        // One waits for both permits of the name in braces, and one behind it.
        let mut waits = Vec::new();
        for permits in [2, 1] {
            let seats = of(&theirs, &braced);
            waits.push(tokio::spawn(async move {
                seats.acquire(permits).await.unwrap()
            }));
            eventually("it waits", || theirs.waiters() == waits.len()).await;
            world.quiet().await;
        }
        held.remove(1).release().await.unwrap();
        world.quiet().await;
        assert!(waits.iter().all(|waiter| !waiter.is_finished()));
        // Nothing of the plain name is kept back for a waiter of the other one.
        let plain = of(&ours, NAME).try_acquire(1).await.unwrap();
        drop(plain.expect("two are free"));
        held.remove(0).release().await.unwrap();
        for waiter in waits {
            waiter.await.unwrap().release().await.unwrap();
        }
    }
}

/// S3: who was told in vain has not lost its turn.
#[tokio::test(start_paused = true)]
async fn who_is_told_in_vain_is_the_first_again() {
    for kind in KINDS {
        let world = World::engine();
        // Beside Redisson's clients nobody is granted a permit, but told of it.
        let _java = world.listen(CHANNEL).await;
        let (clients, held, mut waiters) = waited_for(&world, kind, 1, 3).await;
        let quick = kind.on(clients.last().unwrap());
        // A try takes the permit while the message is under way.
        world.as_engine().faults().delay(Some("p0"), ms(5));
        held.release().await.unwrap();
        let taken = quick.try_acquire(1).await.unwrap().unwrap();
        tokio::time::sleep(ms(100)).await;
        world.as_engine().faults().delay(Some("p0"), ms(0));
        taken.release().await.unwrap();
        let last = waiters.split_off(1);
        let first = waiters.pop().unwrap().await.unwrap();
        assert!(last.iter().all(|waiter| !waiter.is_finished()), "{kind:?}");
        first.release().await.unwrap();
        for waiter in last {
            waiter.await.unwrap().release().await.unwrap();
        }
    }
}
