//! A release grants a leased permit to the first process that waits, by message, for a short time.

use stanchion::{IdleExpiry, LeasedPermit};
use stanchion_tests::permits::LEASES;

use super::*;

const LEASED: Kind = Kind::Leased;

/// The longest that a grant by message lasts without renewal, and a little.
const SILENT: Duration = ms(1700);

/// The ms that the only lease has left.
fn lease_left(world: &World) -> i64 {
    let script = "local t = redis.call('TIME') \
        return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] - math.floor((t[1] * 1000000 + t[2]) / 1000)";
    world.admin(&["EVAL", script, "1", LEASES]).parse().unwrap()
}

/// Each releases as soon as it has its permit, in whichever order that is.
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
async fn the_release_grants_and_the_first_renewal_makes_a_lease_of_it() {
    let world = World::engine();
    let (_clients, held, mut waiters) = waited_for(&world, LEASED, 1, 3).await;
    let before = world.scripts_run();
    held.release().await.unwrap();
    let first = waiters.remove(0).await.unwrap();
    // The first use of a script is sent twice.
    assert!(world.scripts_run() - before <= 2);
    assert_eq!((LEASED.held(&world), free(&world)), (1, 0));
    let left = lease_left(&world);
    assert!((1400..=1500).contains(&left), "{left}");
    assert!(leased(&first).remaining() < ms(1500));
    // P10.
    tokio::time::sleep(ms(600)).await;
    assert!(first.is_held());
    assert!(lease_left(&world) > 29_000);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(first.is_held());
    // It is an owner as any other: what it releases is granted on.
    first.release().await.unwrap();
    serve(waiters).await;
    at_rest(&world, 1).await;
}

/// P1, P4: who is granted a permit and says nothing keeps it for as long as it may count on it, and not longer.
#[tokio::test(start_paused = true)]
async fn a_silent_grantee_costs_the_others_its_short_lease() {
    let world = World::engine();
    let (_clients, held, mut waiters) = waited_for(&world, LEASED, 1, 3).await;
    let faults = world.as_engine().faults();
    faults.freeze(Some("p0"));
    let released = Instant::now();
    held.release().await.unwrap();
    let last = waiters.pop().unwrap();
    let second = waiters.pop().unwrap().await.unwrap();
    let elapsed = released.elapsed();
    assert!(elapsed > ms(1400) && elapsed < SILENT, "{elapsed:?}");
    // It reads the grant when it is over, and waits on.
    faults.thaw(None);
    tokio::time::sleep(ms(200)).await;
    assert!(!waiters[0].is_finished());
    assert_eq!(LEASED.held(&world), 1);
    second.release().await.unwrap();
    waiters.push(last);
    serve(waiters).await;
    at_rest(&world, 1).await;
}

#[tokio::test(start_paused = true)]
async fn a_grant_whose_message_is_lost_ends_by_itself() {
    let world = World::engine();
    let (_clients, held, waiters) = waited_for(&world, LEASED, 1, 2).await;
    world.as_engine().faults().lose_messages(1);
    let released = Instant::now();
    held.release().await.unwrap();
    serve(waiters).await;
    assert!(released.elapsed() < SILENT, "{:?}", released.elapsed());
    at_rest(&world, 1).await;
}

/// P3: at each moment of the grant.
#[tokio::test(start_paused = true)]
async fn a_grant_to_one_that_leaves_goes_on_at_once() {
    for others in [0, 1] {
        for steps in 0..24 {
            let world = World::engine();
            let (_clients, held, mut waiters) = waited_for(&world, LEASED, 1, 1 + others).await;
            let released = tokio::spawn(held.release());
            for _ in 0..steps {
                tokio::task::yield_now().await;
            }
            let began = Instant::now();
            waiters.remove(0).abort();
            released.await.unwrap().unwrap();
            serve(waiters).await;
            at_rest(&world, 1).await;
            let elapsed = began.elapsed();
            assert!(elapsed < ms(100), "{others}, {steps}: {elapsed:?}");
        }
    }
}

/// P3: the message is read when nobody waits any more.
#[tokio::test(start_paused = true)]
async fn a_grant_that_crosses_the_last_waiter_is_given_back() {
    let world = World::engine();
    let (clients, held, waiters) = waited_for(&world, LEASED, 1, 1).await;
    let faults = world.as_engine().faults();
    faults.delay(Some("p0"), ms(10));
    held.release().await.unwrap();
    waiters[0].abort();
    eventually("it has left", || clients[0].waiters() == 0).await;
    assert_eq!(free(&world), 0, "granted");
    let began = Instant::now();
    at_rest(&world, 1).await;
    assert!(began.elapsed() < ms(60), "{:?}", began.elapsed());
    // Who comes then asks, as always.
    faults.delay(None, Duration::ZERO);
    let next = LEASED.on(&clients[0]).acquire(1).await.unwrap();
    next.release().await.unwrap();
}

/// Redisson's waiters would never find a permit free.
#[tokio::test(start_paused = true)]
async fn beside_redissons_waiters_nobody_is_granted_a_permit() {
    let world = World::engine();
    let (clients, held, waiters) = waited_for(&world, LEASED, 1, 2).await;
    let mut java = world.listen(CHANNEL).await;
    // Told, and silent: the permit is free for Redisson.
    world.as_engine().faults().freeze(Some("p0"));
    held.release().await.unwrap();
    assert_eq!(java.next().await, "01");
    assert_eq!((LEASED.held(&world), free(&world)), (0, 1));
    world.as_engine().faults().thaw(None);
    drop(java);
    serve(waiters).await;
    drop(clients);
}

/// A process that wants several permits asks for them; one that it cannot use is not kept from the others.
#[tokio::test(start_paused = true)]
async fn one_permit_is_not_kept_for_a_process_that_needs_two() {
    let world = World::engine();
    let (clients, held, mut waiters) = waited_for(&world, LEASED, 3, 1).await;
    // The server knows this process by its first waiter, which leaves; the next wants two.
    let second = taking(LEASED, &clients[0], 2);
    eventually("both wait", || clients[0].waiters() == 2).await;
    world.quiet().await;
    let third = world.named("third").await;
    let seats = LEASED.on(&third);
    let other = tokio::spawn(async move { seats.acquire(1).await.unwrap() });
    gathered(&world, 2).await;
    waiters.pop().unwrap().abort();
    tokio::task::yield_now().await;
    let released = Instant::now();
    held.release().await.unwrap();
    second.await.unwrap().release().await.unwrap();
    other.await.unwrap().release().await.unwrap();
    assert!(released.elapsed() < ms(100), "{:?}", released.elapsed());
    at_rest(&world, 3).await;
}

/// A granted lease ends with its semaphore, where the user has set a TTL.
#[tokio::test(start_paused = true)]
async fn a_granted_lease_has_the_ttl_of_the_semaphore() {
    let world = World::engine();
    let (_clients, held, waiters) = waited_for(&world, LEASED, 1, 1).await;
    let _ = world.admin(&["PEXPIRE", NAME, "60000"]);
    world.as_engine().faults().freeze(Some("p0"));
    held.release().await.unwrap();
    assert_eq!((LEASED.held(&world), free(&world)), (1, 0));
    assert_eq!(world.admin(&["PTTL", LEASES]), world.admin(&["PTTL", NAME]));
    world.as_engine().faults().thaw(None);
    serve(waiters).await;
}

/// P4: a grant has taken the process out of the crowd, and others of it wait.
#[tokio::test(start_paused = true)]
async fn the_others_of_a_process_that_was_granted_a_permit_are_served() {
    let world = World::engine();
    let (holder, client) = (world.named("holder").await, world.named("p").await);
    let seats = LEASED.on(&holder);
    seats.init(2).await.unwrap();
    let held = seats.acquire(1).await.unwrap();
    let other = seats.acquire(1).await.unwrap();
    let first = taking(LEASED, &client, 1);
    gathered(&world, 1).await;
    // It does not ask, so the server does not know of it.
    let second = taking(LEASED, &client, 1);
    eventually("both wait", || client.waiters() == 2).await;
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

/// No lease outlasts a semaphore that ends: who asks keeps it.
#[tokio::test(start_paused = true)]
async fn permits_of_a_semaphore_that_ends_are_asked_for() {
    let world = World::engine();
    let expiry = IdleExpiry::after(Duration::from_secs(5)).unwrap();
    let (first, second) = (world.named("first").await, world.named("second").await);
    let on = |client: &Client| LEASED.on(client).ephemeral(1, expiry);
    let held = on(&first).acquire(1).await.unwrap();
    let seats = on(&second);
    let waiter = tokio::spawn(async move { seats.acquire(1).await.unwrap() });
    gathered(&world, 1).await;
    held.release().await.unwrap();
    let next = waiter.await.unwrap();
    assert!(lease_left(&world) > 29_000);
    next.release().await.unwrap();
}

/// A grant that comes while a holder of the same process hands its permit to the only waiter: one of the two goes on, and whoever comes then
/// finds the queue as it should be.
#[tokio::test(start_paused = true)]
async fn a_grant_beside_a_hand_off_leaves_a_queue_that_works() {
    for pause in 0..12 {
        let world = World::engine();
        let clients = world.fleet(2).await;
        let [ours, theirs] = [&clients[0], &clients[1]].map(|client| LEASED.on(client));
        ours.init(2).await.unwrap();
        let mine = ours.acquire(1).await.unwrap();
        let yours = theirs.acquire(1).await.unwrap();
        let waiter = taking(LEASED, &clients[0], 1);
        gathered(&world, 1).await;
        world.as_engine().faults().delay(Some("p0"), ms(5));
        let handing = tokio::spawn(mine.release());
        tokio::time::sleep(ms(pause)).await;
        yours.release().await.unwrap();
        let got = waiter.await.unwrap();
        handing.await.unwrap().unwrap();
        tokio::time::sleep(ms(100)).await;
        assert_eq!((LEASED.held(&world), free(&world)), (1, 1), "{pause}");
        let began = Instant::now();
        let another = ours.acquire(1).await.unwrap();
        assert!(began.elapsed() < ms(50), "{pause}: {:?}", began.elapsed());
        another.release().await.unwrap();
        got.release().await.unwrap();
        at_rest(&world, 2).await;
    }
}

/// Two processes share a semaphore of one permit, which the first holds, and the second waits for.
async fn one_waits(world: &World, name: &[u8]) -> (Vec<Client>, Seat, JoinHandle<Seat>) {
    let clients = world.fleet(2).await;
    let seats = LEASED.named(&clients[0], name);
    seats.init(1).await.unwrap();
    let held = seats.acquire(1).await.unwrap();
    let seats = LEASED.named(&clients[1], name);
    let waiter = tokio::spawn(async move { seats.acquire(1).await.unwrap() });
    eventually("it waits", || clients[1].waiters() == 1).await;
    world.quiet().await;
    (clients, held, waiter)
}

/// Messages are text, and Lua's formats end with a zero: where the name is none, who waits is told to ask.
#[tokio::test(start_paused = true)]
async fn a_name_of_any_bytes_is_served_at_once() {
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
        let elapsed = released.elapsed();
        assert!(elapsed < ms(50), "{name:?}: {elapsed:?}");
    }
}

/// P1: names that differ by braces share the channel of a process.
#[tokio::test(start_paused = true)]
async fn a_grant_is_for_its_own_semaphore() {
    for (name, other) in [("seats", "{seats}"), ("{seats}", "seats")] {
        let world = World::engine();
        let (clients, held, waiter) = one_waits(&world, name.as_bytes()).await;
        let others = [&clients[0], &clients[1]].map(|client| LEASED.named(client, other));
        others[0].init(1).await.unwrap();
        let other_held = others[0].acquire(1).await.unwrap();
        let [_, seats] = others;
        let other = tokio::spawn(async move { seats.acquire(1).await.unwrap() });
        eventually("both wait", || clients[1].waiters() == 2).await;
        world.quiet().await;
        let released = Instant::now();
        held.release().await.unwrap();
        waiter.await.unwrap().release().await.unwrap();
        tokio::time::sleep(ms(10)).await;
        assert!(!other.is_finished(), "{name}");
        other_held.release().await.unwrap();
        other.await.unwrap().release().await.unwrap();
        let elapsed = released.elapsed();
        assert!(elapsed < ms(60), "{name}: {elapsed:?}");
    }
}

/// P1: both kinds of one name have the same permits, one channel of a process, and one place of it in the crowd.
#[tokio::test(start_paused = true)]
async fn a_grant_of_a_lease_is_not_for_a_plain_waiter() {
    for plain_first in [true, false] {
        let world = World::engine();
        let clients = world.fleet(2).await;
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
            eventually("they wait", || clients[1].waiters() == waiters.len()).await;
            world.quiet().await;
        }
        let released = Instant::now();
        held.release().await.unwrap();
        serve(waiters).await;
        let elapsed = released.elapsed();
        assert!(elapsed < ms(60), "{plain_first}: {elapsed:?}");
        assert_eq!(free(&world), 1);
    }
}
