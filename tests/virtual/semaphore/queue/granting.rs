//! Tests grants by message: a release gives a leased permit to the first waiting process, with a short lease.

use stanchion::LeasedPermit;
use stanchion_tests::permits::LEASES;
use stanchion_tests::{assert_within, ms, secs, spawn_ok};

use super::*;

const LEASED: Kind = Kind::Leased;

/// The lease of a grant by message (1.5 s), plus a tolerance.
const SILENT: Duration = ms(1700);

/// The remaining time of the only lease, in ms.
fn lease_left(world: &World) -> i64 {
    let script = "local t = redis.call('TIME') \
        return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] - math.floor((t[1] * 1000000 + t[2]) / 1000)";
    world.admin(&["EVAL", script, "1", LEASES]).parse().unwrap()
}

/// Releases each permit as soon as its waiter is granted, in any order.
async fn serve(waiters: Vec<JoinHandle<Seat>>) {
    let mut tasks = JoinSet::new();
    for waiter in waiters {
        tasks.spawn(async move { waiter.await.unwrap().release().await.unwrap() });
    }
    tasks.join_all().await;
}

fn leased(seat: &Seat) -> &LeasedPermit {
    match seat {
        Seat::Leased(permit) => permit,
        Seat::Plain(_) => panic!("no lease"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_grants_a_short_lease_and_the_first_renewal_extends_it() {
    let (world, _clients, held, mut waiters) = with_waiting_processes(LEASED, 1, 3).await;
    let before = world.scripts_run();
    held.release().await.unwrap();
    let first = waiters.remove(0).await.unwrap();
    // A script that the server has not cached is sent twice.
    assert!(world.scripts_run() - before <= 2);
    assert_eq!((LEASED.held(&world), free(&world)), (1, 0));
    let left = lease_left(&world);
    assert!((1400..=1500).contains(&left), "{left}");
    assert!(leased(&first).remaining() < ms(1500));
    // P10: the first renewal comes at a third of the short lease.
    tokio::time::sleep(ms(600)).await;
    assert!(first.is_held());
    assert!(lease_left(&world) > 29_000);
    tokio::time::sleep(secs(60)).await;
    assert!(first.is_held());
    // The release of a permit from a grant serves the next process.
    first.release().await.unwrap();
    serve(waiters).await;
    at_rest(&world, 1).await;
}

/// P1, P4: a process that does not respond to a grant keeps the permit for the short lease, and no longer.
#[tokio::test(start_paused = true)]
async fn a_frozen_process_delays_the_next_waiter_by_its_short_lease() {
    let (world, _clients, held, mut waiters) = with_waiting_processes(LEASED, 1, 3).await;
    let faults = world.faults();
    faults.freeze(Some("p0"));
    let released = Instant::now();
    held.release().await.unwrap();
    let last = waiters.pop().unwrap();
    let second = waiters.pop().unwrap().await.unwrap();
    let elapsed = released.elapsed();
    assert!(elapsed > ms(1400) && elapsed < SILENT, "{elapsed:?}");
    // The frozen process reads the grant after the lease has ended, and continues to wait.
    faults.thaw(None);
    tokio::time::sleep(ms(200)).await;
    assert!(!waiters[0].is_finished());
    assert_eq!(LEASED.held(&world), 1);
    second.release().await.unwrap();
    waiters.push(last);
    serve(waiters).await;
    at_rest(&world, 1).await;
}

/// P3: the waiter is cancelled at each step of the grant.
#[tokio::test(start_paused = true)]
async fn a_grant_to_a_cancelled_waiter_goes_to_the_next_immediately() {
    for others in [0, 1] {
        for steps in 0..24 {
            let (world, _clients, held, mut waiters) =
                with_waiting_processes(LEASED, 1, 1 + others).await;
            let released = tokio::spawn(held.release());
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            let began = Instant::now();
            waiters.remove(0).abort();
            released.await.unwrap().unwrap();
            serve(waiters).await;
            at_rest(&world, 1).await;
            assert_within(began, ms(100), (others, steps));
        }
    }
}

/// P3: the message arrives when the process has no waiter left.
#[tokio::test(start_paused = true)]
async fn a_grant_that_arrives_after_the_last_waiter_left_is_released() {
    let (world, clients, held, waiters) = with_waiting_processes(LEASED, 1, 1).await;
    let faults = world.faults();
    faults.delay(Some("p0"), ms(10));
    held.release().await.unwrap();
    waiters[0].abort();
    eventually("the waiter has left", || clients[0].waiters() == 0).await;
    let began = Instant::now();
    at_rest(&world, 1).await;
    assert!(began.elapsed() < ms(60), "{:?}", began.elapsed());
    faults.delay(None, Duration::ZERO);
    let next = LEASED.on(&clients[0]).acquire(1).await.unwrap();
    next.release().await.unwrap();
}

/// A process that needs several permits requests them. A single permit that it cannot use is left for other processes.
#[tokio::test(start_paused = true)]
async fn one_permit_is_not_reserved_for_a_process_that_needs_two() {
    let (world, clients, held, mut waiters) = with_waiting_processes(LEASED, 3, 1).await;
    // The server knows the first waiter's request for one permit. That waiter leaves, and the second needs two.
    let second = taking(LEASED, &clients[0], 2);
    eventually("both waiters are queued", || clients[0].waiters() == 2).await;
    world.quiet().await;
    let third = world.named("third").await;
    let other = spawn_ok(LEASED.on(&third).acquire(1));
    processes_wait(&world, LEASED, 2).await;
    waiters.pop().unwrap().abort();
    tokio::task::yield_now().await;
    let released = Instant::now();
    held.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    other.await.unwrap().release().await.unwrap();
    assert!(released.elapsed() < ms(100), "{:?}", released.elapsed());
    at_rest(&world, 3).await;
}

/// P4: a grant removes its process from the queue, while another waiter of the process remains.
#[tokio::test(start_paused = true)]
async fn a_process_serves_its_other_waiters_after_a_grant() {
    let (world, [holder, client]) = World::engine().with_named(["holder", "p"]).await;
    let seats = LEASED.on(&holder);
    seats.init(2).await.unwrap();
    let held = seats.acquire(1).await.unwrap();
    let other = seats.acquire(1).await.unwrap();
    let first = taking(LEASED, &client, 1);
    processes_wait(&world, LEASED, 1).await;
    // The second waiter sends no request, so the server does not know it.
    let second = taking(LEASED, &client, 1);
    eventually("both waiters are queued", || client.waiters() == 2).await;
    held.release().await.unwrap();
    let first = first.await.unwrap();
    world.quiet().await;
    let released = Instant::now();
    other.release().await.unwrap();
    let second = second.await.unwrap();
    assert!(released.elapsed() < ms(50), "{:?}", released.elapsed());
    first.release().await.unwrap();
    second.release().await.unwrap();
}

/// A grant arrives while a holder of the same process hands its permit to the only waiter. One of the two permits becomes free again.
#[tokio::test(start_paused = true)]
async fn a_grant_during_a_hand_off_leaves_the_queue_consistent() {
    for pause in 0..12 {
        let (world, clients) = World::engine().with_fleet(2).await;
        let [ours, theirs] = [&clients[0], &clients[1]].map(|client| LEASED.on(client));
        ours.init(2).await.unwrap();
        let mine = ours.acquire(1).await.unwrap();
        let yours = theirs.acquire(1).await.unwrap();
        let waiter = taking(LEASED, &clients[0], 1);
        processes_wait(&world, LEASED, 1).await;
        world.faults().delay(Some("p0"), ms(5));
        let handing = tokio::spawn(mine.release());
        tokio::time::sleep(ms(pause)).await;
        yours.release().await.unwrap();
        let granted = waiter.await.unwrap();
        handing.await.unwrap().unwrap();
        tokio::time::sleep(ms(100)).await;
        assert_eq!((LEASED.held(&world), free(&world)), (1, 1), "{pause}");
        let began = Instant::now();
        let another = ours.acquire(1).await.unwrap();
        assert!(began.elapsed() < ms(50), "{pause}: {:?}", began.elapsed());
        another.release().await.unwrap();
        granted.release().await.unwrap();
        at_rest(&world, 2).await;
    }
}

/// The first of two processes holds the only permit, and the second waits for it.
async fn one_waits(world: &World, name: &[u8]) -> (Vec<Client>, Seat, JoinHandle<Seat>) {
    let clients = world.fleet(2).await;
    let seats = LEASED.named(&clients[0], name);
    seats.init(1).await.unwrap();
    let held = seats.acquire(1).await.unwrap();
    let waiter = spawn_ok(LEASED.named(&clients[1], name).acquire(1));
    eventually("the second process waits", || clients[1].waiters() == 1).await;
    world.quiet().await;
    (clients, held, waiter)
}

/// Messages are text, and Lua's `string.format` stops at a zero byte. For other names the waiter is notified instead of granted.
#[tokio::test(start_paused = true)]
async fn waiters_of_a_name_of_any_bytes_are_served_immediately() {
    let text = [
        "two words",
        "%s %d",
        "a{b}",
        "{b}",
        "pl\u{e4}tze",
        "se\0ats",
    ]
    .map(str::as_bytes);
    for name in text.into_iter().chain([b"\xff\xfe".as_slice()]) {
        let world = World::engine();
        let (_clients, held, waiter) = one_waits(&world, name).await;
        let released = Instant::now();
        held.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
        assert_within(released, ms(50), name);
    }
}

/// P1: names that differ only in braces share a process's channel.
#[tokio::test(start_paused = true)]
async fn a_grant_serves_only_waiters_of_its_own_semaphore() {
    for (name, other) in [("seats", "{seats}"), ("{seats}", "seats")] {
        let world = World::engine();
        let (clients, held, waiter) = one_waits(&world, name.as_bytes()).await;
        let others = [&clients[0], &clients[1]].map(|client| LEASED.named(client, other));
        others[0].init(1).await.unwrap();
        let other_held = others[0].acquire(1).await.unwrap();
        let [_, seats] = others;
        let other = spawn_ok(seats.acquire(1));
        eventually("both waiters are queued", || clients[1].waiters() == 2).await;
        world.quiet().await;
        let released = Instant::now();
        held.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
        tokio::time::sleep(ms(10)).await;
        assert!(!other.is_finished(), "{name}");
        other_held.release().await.unwrap();
        other.await.unwrap().release().await.unwrap();
        assert_within(released, ms(60), name);
    }
}

/// P1: both kinds of one name share the permits, a process's channel, and its entry queued.
#[tokio::test(start_paused = true)]
async fn a_plain_waiter_does_not_take_the_grant_of_a_lease() {
    for plain_first in [true, false] {
        let (world, clients) = World::engine().with_fleet(2).await;
        let seats = LEASED.on(&clients[0]);
        seats.init(1).await.unwrap();
        let held = seats.acquire(1).await.unwrap();
        let kinds = if plain_first {
            KINDS
        } else {
            [Kind::Leased, Kind::Plain]
        };
        let mut waiters = Vec::new();
        for kind in kinds {
            waiters.push(taking(kind, &clients[1], 1));
            eventually("the waiters are queued", || {
                clients[1].waiters() == waiters.len()
            })
            .await;
            world.quiet().await;
        }
        let released = Instant::now();
        held.release().await.unwrap();
        serve(waiters).await;
        assert_within(released, ms(60), plain_first);
        assert_eq!(free(&world), 1);
    }
}
