//! Tests of silent processes in the fair queue: dead ones and disconnected ones, one or hundreds, also with restarts and clock steps.

use super::*;
use stanchion_tests::{lease, ms, secs, spawn_ok};

/// A client with its own seed, so that its reconnect pauses differ from those of others.
async fn seeded(world: &World, name: &str, seed: u64) -> Client {
    Client::connect_with(world.config(name).seed(seed))
        .await
        .unwrap()
}

/// Releases `held`, and asserts that the live waiter `next` acquires within the grace and `slack` ms.
async fn succeeded(
    held: FairLockGuard,
    next: JoinHandle<FairLockGuard>,
    slack: u64,
    case: &str,
) -> FairLockGuard {
    let started = Instant::now();
    held.release().await.unwrap();
    let guard = granted(next).await;
    let took = started.elapsed();
    assert!(took <= FairLock::GRACE + ms(slack), "P7: {case}: {took:?}");
    guard
}

#[tokio::test(start_paused = true)]
async fn all_processes_that_fall_silent_delay_the_others_once() {
    for dead in [1, 4] {
        // At every phase of a hold that was granted to one of them.
        for after in [0, 120, 260, 499, 900, 1300, 1600, 2500] {
            let (world, ours, theirs) = warm().await;
            let held = fair(&ours).acquire().await.unwrap();
            let mut silent = Vec::new();
            for i in 0..dead {
                silent.push(queued_client(&world, &format!("silent{i}"), 50 / dead).await);
            }
            let next = waiting(&world, &fair(&theirs)).await;
            sleep(ms(333)).await;
            for i in 0..dead {
                world.faults().freeze(Some(&format!("silent{i}")));
            }
            sleep(ms(after)).await;
            let case = format!("{dead} silent for {after} ms");
            let guard = succeeded(held, next, 50, &case).await;
            // The silent processes come back at the tail of the queue, and are served.
            world.faults().thaw(None);
            guard.release().await.unwrap();
            let (_clients, waiters): (Vec<_>, Vec<_>) = silent.into_iter().unzip();
            all_served(waiters.into_iter().flatten().collect()).await;
            world.at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_silent_for_less_than_the_grace_keeps_its_queue_entries() {
    for silence in [400, 800, 1400] {
        for before in [0, 170, 330, 480] {
            let (world, ours, theirs) = warm().await;
            let held = fair(&ours).acquire().await.unwrap();
            let (_silent, waiters) = queued_client(&world, "silent", 3).await;
            let last = waiting(&world, &fair(&theirs)).await;
            sleep(BEAT * 2 + ms(before)).await;
            world.faults().freeze(Some("silent"));
            sleep(ms(20)).await;
            held.release().await.unwrap();
            sleep(ms(silence)).await;
            world.faults().thaw(None);
            for waiter in waiters {
                let guard = granted(waiter).await;
                assert!(!last.is_finished(), "silent for {silence} ms");
                guard.release().await.unwrap();
            }
            granted(last).await.release().await.unwrap();
            world.at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_stopped_for_a_while_evicts_no_waiter() {
    // A step of its clock looks to the server like a stop.
    for jump in [1_600, 2_500, 10_000] {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for i in 0..10 {
            waiters.push(waiting(&world, &fair([&ours, &theirs][i % 2])).await);
        }
        sleep(BEAT).await;
        let order = world.as_engine().execute(&["LRANGE", QUEUE, "0", "-1"]);
        world.faults().step_clock(jump);
        sleep(ms(20)).await;
        assert_eq!(
            world.as_engine().execute(&["LRANGE", QUEUE, "0", "-1"]),
            order
        );
        held.release().await.unwrap();
        for (i, waiter) in waiters.into_iter().enumerate() {
            let guard = granted(waiter).await;
            assert_eq!(queued(&world), 9 - i, "in order after {jump} ms");
            guard.release().await.unwrap();
        }
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_releasing_client_removes_silent_waiters_when_no_other_client_waits() {
    let (world, ours, _theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let (_silent, waiters) = queued_client(&world, "silent", 3).await;
    // Only a Redisson client is queued behind them.
    let far = "local t = redis.call('TIME') redis.call('ZADD', KEYS[1], t[1] * 1000 + 300000, 'java:1') redis.call('RPUSH', KEYS[2], 'java:1') return 1";
    let _ = world.admin(&["EVAL", far, "2", TIMEOUTS, QUEUE]);
    sleep(BEAT).await;
    world.faults().freeze(Some("silent"));
    sleep(secs(3)).await;
    held.release().await.unwrap();
    // No client could notice the silence before the release.
    sleep(FairLock::GRACE + ms(50)).await;
    assert_eq!(world.admin(&["LINDEX", QUEUE, "0"]), "java:1");
    // The releasing client sends no more: it does not watch Redisson's waiters.
    let before = world.scripts_run();
    sleep(secs(60)).await;
    assert_eq!(world.scripts_run(), before);
    for waiter in waiters {
        waiter.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn hundreds_of_processes_that_fall_silent_together_delay_the_others_once() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let mut silent = Vec::new();
    for i in 0..250 {
        let (client, mut waiters) = queued_client(&world, "silent", 1).await;
        silent.push((client, waiters.pop().unwrap()));
        if i % 25 == 0 {
            // They are queued at different times.
            sleep(ms(20)).await;
        }
    }
    let next = waiting(&world, &fair(&theirs)).await;
    sleep(BEAT).await;
    world.faults().freeze(Some("silent"));
    let guard = succeeded(held, next, 100, "hundreds").await;
    guard.release().await.unwrap();
    world.faults().thaw(None);
    let (_clients, waiters): (Vec<_>, Vec<_>) = silent.into_iter().unzip();
    all_served(waiters).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn notes_of_finished_processes_do_not_accumulate() {
    let (world, ours, theirs) = warm().await;
    let mut held = fair(&ours).acquire().await.unwrap();
    for round in 0..400 {
        // The queue is never empty, so its keys are never deleted as a whole.
        let brief = client(&world, "brief").await;
        let passing = waiting(&world, &fair(&brief)).await;
        let next = waiting(&world, &fair([&ours, &theirs][round % 2])).await;
        held.release().await.unwrap();
        granted(passing).await.release().await.unwrap();
        brief.shutdown(ms(100)).await;
        held = granted(next).await;
        sleep(ms(50)).await;
        let notes = world.admin(&["ZCARD", "stanchion_fair_wake:{job}"]);
        // Those of 10 s.
        assert!(
            notes.parse::<u64>().unwrap() <= 210,
            "{notes} after {round}"
        );
    }
    held.release().await.unwrap();
    world.at_rest().await;
}

/// Waiters of eight processes, in this order, behind a holder of a ninth.
async fn queue_of_eight(
    world: &World,
) -> (Vec<Client>, FairLockGuard, Vec<JoinHandle<FairLockGuard>>) {
    let mut clients = vec![seeded(world, "holder", 99).await];
    let lease = lease(secs(120));
    let held = fair(&clients[0]).lease(lease).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for i in 0..8 {
        let client = seeded(world, &format!("waiter{i}"), i).await;
        waiters.push(waiting(world, &fair(&client)).await);
        clients.push(client);
        sleep(ms(70)).await;
    }
    (clients, held, waiters)
}

async fn served_in_order(
    world: &World,
    held: FairLockGuard,
    waiters: Vec<JoinHandle<FairLockGuard>>,
) {
    held.release().await.unwrap();
    for (i, waiter) in waiters.into_iter().enumerate() {
        let guard = granted(waiter).await;
        assert_eq!(queued(world), 7 - i, "in order");
        guard.release().await.unwrap();
    }
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_restart_that_keeps_the_data_keeps_the_order() {
    for away in [0, 300, 700, 1_000, 1_500, 2_200, 4_000, 9_000] {
        let world = World::engine();
        let (_clients, held, waiters) = queue_of_eight(&world).await;
        let order = entries(&world);
        let faults = world.faults();
        faults.refuse_connections(Switch::On);
        faults.restart(Data::Kept);
        sleep(ms(away)).await;
        faults.refuse_connections(Switch::Off);
        // Time for each client to reconnect after its pause.
        sleep(secs(6)).await;
        assert_eq!(entries(&world), order, "P7: away for {away} ms");
        served_in_order(&world, held, waiters).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_freed_while_waiters_reconnect_goes_to_one_that_is_back() {
    for away in [700, 2_200, 4_000] {
        let world = World::engine();
        let (_clients, held, waiters) = queue_of_eight(&world).await;
        let faults = world.faults();
        faults.refuse_connections(Switch::On);
        faults.restart(Data::Kept);
        sleep(ms(away)).await;
        faults.refuse_connections(Switch::Off);
        held.release().await.unwrap();
        let started = Instant::now();
        all_served(waiters).await;
        // The pause before a client connects again may be as long as the outage, 2 s at most.
        assert!(started.elapsed() <= ms(4_000), "{:?}", started.elapsed());
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn waiters_keep_their_order_after_an_outage_of_all_of_them() {
    let world = World::engine();
    let (_clients, held, waiters) = queue_of_eight(&world).await;
    let order = entries(&world);
    let faults = world.faults();
    for i in 0..8 {
        faults.freeze(Some(&format!("waiter{i}")));
    }
    sleep(ms(2_500)).await;
    for i in (0..8).rev() {
        faults.thaw(Some(&format!("waiter{i}")));
        sleep(ms(450)).await;
    }
    assert_eq!(entries(&world), order, "P7");
    served_in_order(&world, held, waiters).await;
}

#[tokio::test(start_paused = true)]
async fn a_flapping_process_does_not_keep_dead_waiters_queued() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let (_silent, dead) = queued_client(&world, "silent", 2).await;
    let next = waiting(&world, &fair(&theirs)).await;
    let (_flapping, back) = queued_client(&world, "flapping", 1).await;
    sleep(BEAT).await;
    let faults = world.faults();
    faults.freeze(Some("silent"));
    let flapping = tokio::spawn({
        let faults = world.faults();
        async move {
            loop {
                faults.freeze(Some("flapping"));
                sleep(ms(1_300)).await;
                faults.thaw(Some("flapping"));
                sleep(ms(300)).await;
            }
        }
    });
    let started = Instant::now();
    held.release().await.unwrap();
    let first = granted(next).await;
    assert!(
        started.elapsed() <= 2 * FairLock::GRACE + ms(100),
        "{:?}",
        started.elapsed()
    );
    flapping.abort();
    faults.thaw(None);
    first.release().await.unwrap();
    all_served(dead.into_iter().chain(back).collect()).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_clock_stepped_back_evicts_dead_waiters_only() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let (_silent, dead) = queued_client(&world, "silent", 2).await;
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&ours)).await;
    sleep(BEAT).await;
    world.faults().freeze(Some("silent"));
    world.faults().step_clock(-60_000);
    let started = Instant::now();
    held.release().await.unwrap();
    let guard = granted(first).await;
    assert!(
        started.elapsed() <= FairLock::GRACE + BEAT + ms(100),
        "{:?}",
        started.elapsed()
    );
    assert!(!second.is_finished());
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.faults().thaw(None);
    all_served(dead).await;
    world.at_rest().await;
}

/// A waiter whose process is not connected, as an older version may have left it.
#[tokio::test(start_paused = true)]
async fn a_waiter_without_a_process_does_not_block_the_queue() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let elsewhere = "01234567-89ab-8def-8123-456789abcdef:1";
    let script = "local t = redis.call('TIME') local now = t[1] * 1000 \
        redis.call('RPUSH', KEYS[1], ARGV[1]) redis.call('ZADD', KEYS[2], now + 600000, ARGV[1]) \
        redis.call('ZADD', KEYS[3], now * 1000, ARGV[1]) return 1";
    let _ = world.admin(&["EVAL", script, "3", QUEUE, TIMEOUTS, WAITERS, elsewhere]);
    let next = spawn_ok(fair(&theirs).acquire());
    eventually("the next waiter removes it", || {
        !entries(&world).contains(&elsewhere.to_owned()) && queued(&world) == 1
    })
    .await;
    let _ = world.admin(&["EVAL", script, "3", QUEUE, TIMEOUTS, WAITERS, elsewhere]);
    let started = Instant::now();
    held.release().await.unwrap();
    granted(next).await.release().await.unwrap();
    assert!(started.elapsed() < ms(10), "{:?}", started.elapsed());
    world.at_rest().await;
}
