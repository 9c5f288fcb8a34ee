//! Tests a semaphore with a single waiting process: the reply to a release wakes its waiters, without a message.

use stanchion::Lock;
use stanchion_tests::{ms, spawn_ok};

use super::*;

/// Holds `permits` permits one by one, and lets as many tasks of `client` wait for one each.
async fn full(world: &World, kind: Kind, client: &Client, permits: u32) -> (Vec<Seat>, Waiters) {
    let seats = kind.on(client);
    seats.init(1).await.unwrap();
    warm(kind, client).await;
    seats.add(permits - 1).await.unwrap();
    let mut held = Vec::new();
    for _ in 0..permits {
        held.push(seats.acquire(1).await.unwrap());
    }
    let waiters = (0..permits).map(|_| taking(kind, client, 1)).collect();
    eventually("the process waits", || kind.queued(world) == 1).await;
    world.quiet().await;
    (held, waiters)
}

type Waiters = Vec<JoinHandle<Seat>>;

/// Caches the scripts on the server: the first call of a script takes two round trips.
async fn warm(kind: Kind, client: &Client) {
    let seats = kind.on(client);
    let held = seats.acquire(1).await.unwrap();
    let waiter = taking(kind, client, 1);
    eventually("the process waits", || client.waiters() == 1).await;
    held.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

/// Releases all permits concurrently, and returns the time until each waiter holds one.
async fn release_all(held: Vec<Seat>, waiters: Waiters) -> Duration {
    let released = Instant::now();
    let releases: Vec<_> = held
        .into_iter()
        .map(|seat| tokio::spawn(seat.release()))
        .collect();
    let mut next = Vec::new();
    for waiter in waiters {
        next.push(waiter.await.unwrap());
    }
    let elapsed = released.elapsed();
    for release in releases {
        release.await.unwrap().unwrap();
    }
    for seat in next {
        seat.release().await.unwrap();
    }
    elapsed
}

#[tokio::test(start_paused = true)]
async fn concurrent_releases_serve_all_waiters_in_one_round_trip() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = full(&world, kind, &client, 8).await;
        let faults = world.faults();
        faults.delay(None, ms(10));
        let scripts = world.scripts_run();
        let elapsed = release_all(held, waiters).await;
        // A round trip takes 10 ms.
        assert!(elapsed <= ms(15), "{kind:?}: {elapsed:?}");
        // Eight releases hand their permits to the waiters, which release them again, and the process leaves the queue.
        assert_eq!(world.scripts_run() - scripts, 17, "{kind:?}");
        faults.delay(None, Duration::ZERO);
        at_rest(&world, 8).await;
    }
}

/// A release of several permits serves the first waiter of its process, and each grant lets the next one ask.
#[tokio::test(start_paused = true)]
async fn a_release_of_several_permits_serves_all_waiters() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let seats = kind.on(&client);
        seats.init(4).await.unwrap();
        seats.acquire(4).await.unwrap().release().await.unwrap();
        let held = seats.acquire(4).await.unwrap();
        let waiters: Waiters = (0..4).map(|_| taking(kind, &client, 1)).collect();
        processes_wait(&world, kind, 1).await;
        let faults = world.faults();
        faults.delay(None, ms(10));
        let scripts = world.scripts_run();
        let elapsed = release_all(vec![held], waiters).await;
        // A round trip for the release, and one for each request.
        assert!(elapsed <= ms(55), "{kind:?}: {elapsed:?}");
        // A plain grant by message is confirmed.
        let most = if kind == Kind::Plain { 9 } else { 8 };
        assert_eq!(world.scripts_run() - scripts, most, "{kind:?}");
        faults.delay(None, Duration::ZERO);
        kind.at_rest(&world, 4).await;
    }
}

/// P4: every message is lost.
#[tokio::test(start_paused = true)]
async fn a_release_serves_its_own_process_without_messages() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = full(&world, kind, &client, 3).await;
        world.faults().lose_messages(1000);
        let elapsed = release_all(held, waiters).await;
        assert!(elapsed <= ms(25), "{kind:?}: {elapsed:?}");
    }
}

/// A client keeps the local queues of 256 idle names. After 300 other names, the waiter gets a queue that is newer than the held permit.
#[tokio::test(start_paused = true)]
async fn a_release_wakes_the_waiter_of_a_recreated_queue() {
    for (kind, lost) in KINDS
        .into_iter()
        .flat_map(|kind| [(kind, false), (kind, true)])
    {
        let world = World::engine();
        let client = world.named("only").await;
        let seats = kind.on(&client);
        seats.init(1).await.unwrap();
        seats.acquire(1).await.unwrap().release().await.unwrap();
        let held = seats.acquire(1).await.unwrap();
        for name in 0..300 {
            let lock = Lock::new(&client, format!("other:{name}")).unwrap();
            lock.acquire().await.unwrap().release().await.unwrap();
        }
        let waiter = taking(kind, &client, 1);
        eventually("the process waits", || kind.queued(&world) == 1).await;
        world.quiet().await;
        if lost {
            // The resend of the release finds nothing to release. The waiter must send a request all the same.
            world.faults().lose_replies("EVALSHA", 1);
        }
        let elapsed = release_all(vec![held], vec![waiter]).await;
        assert!(elapsed <= ms(500), "{kind:?}, {lost}: {elapsed:?}");
    }
}

/// A process hands a permit over eight times in a row at most while another one waits.
#[tokio::test(start_paused = true)]
async fn the_ninth_release_serves_another_process() {
    for kind in KINDS {
        let (world, [client, other]) = World::engine().with_named(["one", "other"]).await;
        let seats = kind.on(&client);
        seats.init(1).await.unwrap();
        let held = seats.acquire(1).await.unwrap();
        let theirs = taking(kind, &other, 1);
        eventually("the process waits", || kind.queued(&world) == 1).await;
        let mut ours: Vec<_> = (0..9).map(|_| taking(kind, &client, 1)).collect();
        eventually("all wait", || client.waiters() == 9).await;
        world.quiet().await;
        let last = ours.pop().unwrap();
        let mut held = held;
        for next in ours {
            held.release().await.unwrap();
            held = next.await.unwrap();
        }
        held.release().await.unwrap();
        let theirs = tokio::time::timeout(ms(500), theirs).await;
        let theirs = theirs.expect("the other process was skipped").unwrap();
        assert!(!last.is_finished(), "{kind:?}");
        theirs.release().await.unwrap();
        last.await.unwrap().release().await.unwrap();
    }
}

/// A polling client is queued, and does not return. It counts as dead one second after its last request.
#[tokio::test(start_paused = true)]
async fn a_polling_client_that_does_not_return_delays_others_by_a_second_at_most() {
    for kind in KINDS {
        let world = World::engine();
        let polling = kind.on(&world.polling().await);
        let client = world.named("only").await;
        kind.on(&client).init(1).await.unwrap();
        let held = kind.on(&client).acquire(1).await.unwrap();
        let silent = spawn_ok(polling.acquire(1));
        processes_wait(&world, kind, 1).await;
        world.faults().freeze(Some("polling"));
        let other = world.named("other").await;
        let waiter = taking(kind, &other, 1);
        eventually("both are queued", || kind.queued(&world) == 2).await;
        let elapsed = release_all(vec![held], vec![waiter]).await;
        // The grant is reclaimed when it is not confirmed.
        assert!(elapsed <= ms(2000), "{kind:?}: {elapsed:?}");
        world.faults().thaw(None);
        silent.await.unwrap().release().await.unwrap();
    }
}
