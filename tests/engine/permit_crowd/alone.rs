//! One process alone: its release tells its waiters by the reply, for as long as no other process waits.

use stanchion::Lock;

use super::*;

/// Lets `waiting` tasks of `client` wait, while `held` permits are held.
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
    eventually("it waits", || world.admin(&["ZCARD", CROWD]) == "1").await;
    world.quiet().await;
    (held, waiters)
}

type Waiters = Vec<JoinHandle<Seat>>;

/// The first call of a script takes two round trips.
async fn warm(kind: Kind, client: &Client) {
    let seats = kind.on(client);
    let held = seats.acquire(1).await.unwrap();
    let waiter = taking(kind, client, 1);
    eventually("it waits", || client.waiters() == 1).await;
    held.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
}

/// Releases all at once, and returns the time after which all waiters hold.
async fn pass_on(held: Vec<Seat>, waiters: Waiters) -> Duration {
    let released = Instant::now();
    let releases: Vec<_> = held
        .into_iter()
        .map(|seat| tokio::spawn(async move { seat.release().await }))
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
async fn permits_given_back_together_are_taken_together() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = full(&world, kind, &client, 8).await;
        let faults = world.as_engine().faults();
        faults.delay(None, ms(10));
        let scripts = world.scripts_run();
        let elapsed = pass_on(held, waiters).await;
        // Each goes to a waiter.
        assert!(elapsed <= ms(15), "{kind:?}: {elapsed:?}");
        // And the releases of those.
        assert_eq!(world.scripts_run() - scripts, 16, "{kind:?}");
        faults.delay(None, Duration::ZERO);
        at_rest(&world, 8).await;
    }
}

/// A holder of several permits hands none of them on: its release tells how many are free.
#[tokio::test(start_paused = true)]
async fn permits_of_one_holder_are_asked_for_together() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let seats = kind.on(&client);
        seats.init(4).await.unwrap();
        seats.acquire(4).await.unwrap().release().await.unwrap();
        let held = seats.acquire(4).await.unwrap();
        let waiters: Waiters = (0..4).map(|_| taking(kind, &client, 1)).collect();
        gathered(&world, 1).await;
        let faults = world.as_engine().faults();
        faults.delay(None, ms(10));
        let scripts = world.scripts_run();
        let elapsed = pass_on(vec![held], waiters).await;
        // A round trip for the release, and one for the requests.
        assert!(elapsed <= ms(25), "{kind:?}: {elapsed:?}");
        assert_eq!(world.scripts_run() - scripts, 9, "{kind:?}");
        faults.delay(None, Duration::ZERO);
        kind.at_rest(&world, 4).await;
    }
}

/// P4: no message is needed, so none can be missed.
#[tokio::test(start_paused = true)]
async fn a_process_alone_needs_no_message() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = full(&world, kind, &client, 3).await;
        world.as_engine().faults().lose_messages(1000);
        let elapsed = pass_on(held, waiters).await;
        assert!(elapsed <= ms(25), "{kind:?}: {elapsed:?}");
    }
}

/// A client keeps the queues of 256 idle names. Whoever waits then has a queue that the holder has never seen.
#[tokio::test(start_paused = true)]
async fn a_holder_finds_the_waiters_of_a_queue_that_was_made_anew() {
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
        eventually("it waits", || world.admin(&["ZCARD", CROWD]) == "1").await;
        world.quiet().await;
        if lost {
            // The release has run, and its second run finds nothing: the waiter asks all the same.
            world.as_engine().faults().lose_replies("EVALSHA", 1);
        }
        let elapsed = pass_on(vec![held], vec![waiter]).await;
        assert!(elapsed <= ms(500), "{kind:?}, {lost}: {elapsed:?}");
    }
}

/// S1: with another process in the crowd the permit belongs to whoever came first.
#[tokio::test(start_paused = true)]
async fn another_process_that_waits_is_told_first() {
    for kind in KINDS {
        let world = World::engine();
        let (client, other) = (world.named("one").await, world.named("other").await);
        let seats = kind.on(&client);
        seats.init(1).await.unwrap();
        let held = seats.acquire(1).await.unwrap();
        let theirs = taking(kind, &other, 1);
        eventually("it waits", || world.admin(&["ZCARD", CROWD]) == "1").await;
        let ours = taking(kind, &client, 1);
        eventually("both wait", || world.admin(&["ZCARD", CROWD]) == "2").await;
        world.quiet().await;
        held.release().await.unwrap();
        let theirs = tokio::time::timeout(ms(500), theirs).await;
        let theirs = theirs.expect("passed over").unwrap();
        assert!(!ours.is_finished(), "{kind:?}");
        theirs.release().await.unwrap();
        ours.await.unwrap().release().await.unwrap();
    }
}

/// S8: the permit that is kept for a client that polls is not lost when that one does not come.
#[tokio::test(start_paused = true)]
async fn a_permit_kept_for_a_client_that_has_gone_is_taken_soon() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        let (held, waiters) = full(&world, kind, &client, 1).await;
        // As if a client that polls had been refused 15 ms ago.
        let note = "local time = redis.call('TIME') \
            redis.call('HSET', KEYS[1], 'polled', string.format('%.0f', time[1] * 1000000 + time[2] - 15000)) \
            return redis.call('PEXPIRE', KEYS[1], 10000)";
        assert_eq!(world.admin(&["EVAL", note, "1", WAKE]), "1");
        let elapsed = pass_on(held, waiters).await;
        assert!(elapsed <= ms(300), "{kind:?}: {elapsed:?}");
    }
}
