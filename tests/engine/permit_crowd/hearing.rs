//! One process hears Redisson's releases for all that wait, and is not taken for a client of Redisson's.

use super::*;

/// A release of Redisson's is heard by one process for all.
#[tokio::test(start_paused = true)]
async fn a_release_of_redissons_reaches_as_many_as_it_frees() {
    for kind in KINDS {
        let world = World::engine();
        let clients = world.fleet(6).await;
        kind.on(&clients[0]).init(3).await.unwrap();
        // Redisson has them all.
        let _ = world.admin(&["SET", NAME, "0"]);
        let mut waiters = Vec::new();
        for (n, client) in clients.iter().enumerate() {
            waiters.push(taking(kind, client, 1));
            gathered(&world, n + 1).await;
        }
        // All have asked again meanwhile, and one still hears for the others.
        tokio::time::sleep(Duration::from_secs(9)).await;
        assert_eq!(world.admin(&["HEXISTS", WAKE, "sentry"]), "1", "{kind:?}");
        let before = world.scripts_run();
        let _ = world.admin(&["SET", NAME, "3"]);
        let released = Instant::now();
        let _ = world.admin(&["PUBLISH", CHANNEL, "3"]);
        eventually("three have theirs", || {
            waiters.iter().filter(|waiter| waiter.is_finished()).count() == 3
        })
        .await;
        assert!(released.elapsed() < ms(30), "{:?}", released.elapsed());
        let scripts = world.scripts_run() - before;
        assert!(scripts <= 6, "{kind:?}: {scripts} scripts");
        for waiter in waiters {
            waiter.await.unwrap().release().await.unwrap();
        }
    }
}

/// The part of hearing for the others passes to one that waits when its process is served.
#[tokio::test(start_paused = true)]
async fn a_release_of_redissons_is_heard_after_its_hearer_was_served() {
    for kind in KINDS {
        for pause in [0, 100, 2000, 4000] {
            let world = World::engine();
            let (clients, held, mut waiters) = waited_for(&world, kind, 1, 2).await;
            let last = waiters.pop().unwrap();
            held.release().await.unwrap();
            let first = waiters.remove(0).await.unwrap();
            tokio::time::sleep(ms(pause)).await;
            let _ = world.admin(&["INCR", NAME]);
            let released = Instant::now();
            let _ = world.admin(&["PUBLISH", CHANNEL, "1"]);
            let last = last.await.unwrap();
            let elapsed = released.elapsed();
            assert!(elapsed < ms(300), "{kind:?}, {pause}: {elapsed:?}");
            first.release().await.unwrap();
            last.release().await.unwrap();
            drop(clients);
        }
    }
}

/// The server counts on the process that hears for the others: a subscription that lingers is kept by who waits again.
#[tokio::test(start_paused = true)]
async fn who_waits_again_goes_on_hearing_redissons_releases() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        kind.on(&client).init(1).await.unwrap();
        for waits in [0, 3, 15] {
            let _ = world.admin(&["SET", NAME, "0"]);
            let waiter = taking(kind, &client, 1);
            gathered(&world, 1).await;
            tokio::time::sleep(Duration::from_secs(waits)).await;
            let _ = world.admin(&["SET", NAME, "1"]);
            let _ = world.admin(&["PUBLISH", CHANNEL, "1"]);
            let released = Instant::now();
            waiter.await.unwrap().release().await.unwrap();
            let elapsed = released.elapsed();
            assert!(elapsed < ms(50), "{kind:?}, {waits}: {elapsed:?}");
        }
    }
}

/// The number of connections that hear Redisson's channel, and of those that hear the second one of ours.
fn hearers(world: &World) -> (i64, i64) {
    let count = |channel: &str| {
        let script = "return redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2]";
        let reply = world.admin(&["EVAL", script, "0", channel]);
        reply.parse::<i64>().unwrap()
    };
    (count(CHANNEL), count(&format!("{CHANNEL}:stanchion")))
}

/// S12: who has heard Redisson's releases, and lingers, is not taken for a client of Redisson's, also after its connection was lost.
#[tokio::test(start_paused = true)]
async fn who_has_heard_redissons_releases_is_none_of_redissons() {
    let world = World::engine();
    let (clients, held, mut waiters) = waited_for(&world, Kind::Leased, 1, 1).await;
    held.release().await.unwrap();
    let held = waiters.remove(0).await.unwrap();
    let later = world.named("later").await;
    let waiter = taking(Kind::Leased, &later, 1);
    gathered(&world, 1).await;
    assert_eq!(hearers(&world), (2, 2), "the first lingers");
    world.as_engine().faults().kill_label("later:sub");
    eventually("it hears again", || hearers(&world) == (2, 2)).await;
    world.quiet().await;
    world.as_engine().faults().freeze(Some("later"));
    held.release().await.unwrap();
    assert_eq!((Kind::Leased.held(&world), free(&world)), (1, 0));
    world.as_engine().faults().thaw(None);
    waiter.await.unwrap().release().await.unwrap();
    tokio::time::sleep(Duration::from_secs(10)).await;
    assert_eq!(hearers(&world), (0, 0));
    drop(clients);
}
