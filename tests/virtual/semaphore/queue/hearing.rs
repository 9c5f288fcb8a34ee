//! Tests the relay: one waiting process subscribes to Redisson's channel on behalf of the others, and is not counted as a Redisson client.

use super::*;
use stanchion_tests::{assert_within, ms, secs};

#[tokio::test(start_paused = true)]
async fn a_redisson_release_wakes_one_process_for_each_freed_permit() {
    for kind in KINDS {
        let (world, clients) = World::engine().with_fleet(6).await;
        kind.on(&clients[0]).init(3).await.unwrap();
        // Redisson holds all permits.
        let _ = world.admin(&["SET", NAME, "0"]);
        let mut waiters = Vec::new();
        for (n, client) in clients.iter().enumerate() {
            waiters.push(taking(kind, client, 1));
            processes_wait(&world, kind, n + 1).await;
        }
        // Every process has polled by then (every 5 s), and the relay is still registered.
        tokio::time::sleep(secs(9)).await;
        assert_eq!(
            world.admin(&["HEXISTS", kind.wake(), "sentry"]),
            "1",
            "{kind:?}"
        );
        let before = world.scripts_run();
        let _ = world.admin(&["SET", NAME, "3"]);
        let released = Instant::now();
        let _ = world.admin(&["PUBLISH", CHANNEL, "3"]);
        eventually("three waiters have a permit", || {
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

/// When the relay is served, a process that still waits becomes the relay.
#[tokio::test(start_paused = true)]
async fn a_redisson_release_wakes_the_waiter_after_the_relay_was_served() {
    for kind in KINDS {
        for pause in [0, 100, 2000, 4000] {
            let (world, clients, held, mut waiters) = with_waiting_processes(kind, 1, 2).await;
            let last = waiters.pop().unwrap();
            held.release().await.unwrap();
            let first = waiters.remove(0).await.unwrap();
            tokio::time::sleep(ms(pause)).await;
            let _ = world.admin(&["INCR", NAME]);
            let released = Instant::now();
            let _ = world.admin(&["PUBLISH", CHANNEL, "1"]);
            let last = last.await.unwrap();
            assert_within(released, ms(300), (kind, pause));
            first.release().await.unwrap();
            last.release().await.unwrap();
            drop(clients);
        }
    }
}

/// The server relies on the relay: a process that waits again keeps its lingering subscription.
#[tokio::test(start_paused = true)]
async fn a_process_that_waits_again_still_receives_redisson_releases() {
    for kind in KINDS {
        let world = World::engine();
        let client = world.named("only").await;
        kind.on(&client).init(1).await.unwrap();
        for waits in [0, 3, 15] {
            let _ = world.admin(&["SET", NAME, "0"]);
            let waiter = taking(kind, &client, 1);
            processes_wait(&world, kind, 1).await;
            tokio::time::sleep(secs(waits)).await;
            let _ = world.admin(&["SET", NAME, "1"]);
            let _ = world.admin(&["PUBLISH", CHANNEL, "1"]);
            let released = Instant::now();
            waiter.await.unwrap().release().await.unwrap();
            assert_within(released, ms(50), (kind, waits));
        }
    }
}

/// The numbers of connections that are subscribed to Redisson's channel, and to `<channel>:stanchion`.
fn subscribers(world: &World) -> (i64, i64) {
    let count = |channel: &str| {
        let script = "return redis.call('PUBSUB', 'NUMSUB', ARGV[1])[2]";
        let reply = world.admin(&["EVAL", script, "0", channel]);
        reply.parse::<i64>().unwrap()
    };
    (count(CHANNEL), count(&format!("{CHANNEL}:stanchion")))
}

/// L7: neither a former relay with a lingering subscription nor a relay that reconnects is counted as a Redisson client.
#[tokio::test(start_paused = true)]
async fn a_relay_is_not_counted_as_a_redisson_client() {
    let (world, clients, held, mut waiters) = with_waiting_processes(Kind::Leased, 1, 1).await;
    held.release().await.unwrap();
    let held = waiters.remove(0).await.unwrap();
    let later = world.named("later").await;
    let waiter = taking(Kind::Leased, &later, 1);
    processes_wait(&world, Kind::Leased, 1).await;
    assert_eq!(
        subscribers(&world),
        (2, 2),
        "the subscription of the first process lingers"
    );
    world.faults().kill_label("later:sub");
    eventually("the relay is subscribed again", || {
        subscribers(&world) == (2, 2)
    })
    .await;
    world.quiet().await;
    world.faults().freeze(Some("later"));
    held.release().await.unwrap();
    assert_eq!((Kind::Leased.held(&world), free(&world)), (1, 0));
    world.faults().thaw(None);
    waiter.await.unwrap().release().await.unwrap();
    tokio::time::sleep(secs(10)).await;
    assert_eq!(subscribers(&world), (0, 0));
    drop(clients);
}
