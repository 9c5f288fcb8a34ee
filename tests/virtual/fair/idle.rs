//! Tests of the requests that waiting costs, and of processes that die, stop or are cut off while they wait.

use super::*;
use stanchion_tests::{lease, ms, secs, together};

/// Cuts a process off, and lets the server notice. For the others it is dead.
fn kill(world: &World, name: &str) {
    world.faults().freeze(Some(name));
    world.faults().kill_label(name);
}

/// Clients with one waiter each, in this order.
async fn processes(world: &World, names: &[&str]) -> (Vec<Client>, Vec<JoinHandle<FairLockGuard>>) {
    let (mut clients, mut waiters) = (Vec::new(), Vec::new());
    for name in names {
        let (client, mut waiter) = queued_client(world, name, 1).await;
        clients.push(client);
        waiters.append(&mut waiter);
    }
    // Each is subscribed by now, and its first request is no longer recent.
    sleep(ms(1100)).await;
    (clients, waiters)
}

#[tokio::test(start_paused = true)]
async fn waiting_processes_rarely_send_requests() {
    // The limits are requests in 100 s.
    for (count, waiters, most) in [
        (1, 1, 25),
        (4, 1, 50),
        (64, 1, 120),
        (4, 100, 450),
        (1, 100, 130),
    ] {
        let (world, ours, _theirs) = warm().await;
        let lease = lease(secs(600));
        let held = fair(&ours).lease(lease).acquire().await.unwrap();
        let (mut clients, mut queue) = (Vec::new(), Vec::new());
        for i in 0..count {
            let name = format!("waiter{i}");
            // With the same seed, all would poll at the same moments.
            let client = world.configured(&name, |it| it.seed(i as u64)).await;
            for _ in 0..waiters {
                queue.push(waiting(&world, &fair(&client)).await);
            }
            clients.push(client);
        }
        sleep(ms(100)).await;
        let before = world.scripts_run();
        sleep(secs(100)).await;
        let sent = world.scripts_run() - before;
        assert!(
            sent <= most,
            "{count} processes of {waiters} waiters: {sent}"
        );
        assert_eq!(queued(&world), count * waiters);
        held.release().await.unwrap();
        all_served(queue).await;
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_was_cut_off_takes_its_places_again() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let (_first, mut waiters) = queued_client(&world, "first", 1).await;
    let (_cut, cut) = queued_client(&world, "cut", 3).await;
    waiters.extend(cut);
    for _ in 0..3 {
        waiters.push(waiting(&world, &fair(&theirs)).await);
    }
    let order = entries(&world);
    sleep(ms(1100)).await;
    kill(&world, "cut");
    // A grant removes its places: that to the first waiter does not, that to the next one does.
    held.release().await.unwrap();
    let guard = granted(waiters.remove(0)).await;
    guard.release().await.unwrap();
    let guard = granted(waiters.remove(3)).await;
    assert_eq!(entries(&world), order[5..]);
    world.faults().thaw(None);
    eventually("it is back", || queued(&world) == 5).await;
    assert_eq!(entries(&world), [&order[1..4], &order[5..]].concat(), "P7");
    guard.release().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.release().await.unwrap();
    }
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn killed_processes_in_front_cost_nothing() {
    let names: Vec<String> = (0..100).map(|i| format!("dead{i}")).collect();
    for count in [1, 100] {
        let names: Vec<&str> = names[..count].iter().map(String::as_str).collect();
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let (_clients, dead) = processes(&world, &names).await;
        let next = waiting(&world, &fair(&theirs)).await;
        for name in &names {
            kill(&world, name);
        }
        let started = Instant::now();
        held.release().await.unwrap();
        let guard = granted(next).await;
        assert!(started.elapsed() <= ms(10), "{:?}", started.elapsed());
        guard.release().await.unwrap();
        world.faults().thaw(None);
        all_served(dead).await;
        world.at_rest().await;
        let before = world.scripts_run();
        sleep(secs(60)).await;
        assert_eq!(world.scripts_run(), before, "the work is finished");
    }
}

#[tokio::test(start_paused = true)]
async fn stopped_processes_in_front_cost_one_grant_by_message() {
    for count in [1, 3] {
        for releaser_dies in [false, true] {
            let (world, _ours, theirs) = warm().await;
            let (releaser, _) = queued_client(&world, "releaser", 0).await;
            let held = fair(&releaser).acquire().await.unwrap();
            let (_clients, stopped) = processes(&world, &["a", "b", "c"][..count]).await;
            let next = waiting(&world, &fair(&theirs)).await;
            let later = waiting(&world, &fair(&theirs)).await;
            for name in &["a", "b", "c"][..count] {
                world.faults().freeze(Some(name));
            }
            let started = Instant::now();
            held.release().await.unwrap();
            if releaser_dies {
                kill(&world, "releaser");
            }
            let guard = granted(next).await;
            let waited = started.elapsed();
            assert!(waited >= GRANTED, "{waited:?}");
            assert!(waited <= GRANTED + ms(170), "{count}: {waited:?}");
            guard.release().await.unwrap();
            let released = Instant::now();
            granted(later).await.release().await.unwrap();
            assert!(released.elapsed() <= ms(10), "once");
            world.faults().thaw(None);
            all_served(stopped).await;
            world.at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_process_dies_leaves_no_dead_waiters_in_front() {
    let names: Vec<String> = (0..150).map(|i| format!("dead{i}")).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let (world, _ours, theirs) = warm().await;
    let (releaser, _) = queued_client(&world, "releaser", 0).await;
    let held = fair(&releaser).acquire().await.unwrap();
    let (_clients, dead) = processes(&world, &names).await;
    let next = waiting(&world, &fair(&theirs)).await;
    for name in &names {
        kill(&world, name);
    }
    // The script removes some of the dead waiters. Its process does not live to finish.
    world.faults().lose_replies_silently("EVALSHA", 1);
    let releasing = tokio::spawn(held.release());
    sleep(ms(1)).await;
    kill(&world, "releaser");
    let started = Instant::now();
    let guard = granted(next).await;
    assert!(started.elapsed() <= ms(200), "{:?}", started.elapsed());
    guard.release().await.unwrap();
    world.faults().thaw(None);
    drop(releasing.await);
    all_served(dead).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_granted_before_its_process_has_subscribed() {
    let (world, ours, theirs) = warm().await;
    let new = client(&world, "new").await;
    world.faults().delay(Some("new"), ms(100));
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&new)).await;
    let second = waiting(&world, &fair(&theirs)).await;
    held.release().await.unwrap();
    let started = Instant::now();
    let guard = granted(first).await;
    assert!(started.elapsed() < ms(1000), "{:?}", started.elapsed());
    assert!(!second.is_finished(), "P7");
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn many_processes_that_start_together_take_turns_at_two_commands_a_grant() {
    // With two tasks a process, a poll that was planned for the first of them must not stay for the other.
    for (processes, tasks, rounds) in [(256, 1, 10), (200, 2, 5)] {
        let world = World::engine();
        let mut clients = Vec::new();
        for i in 0..processes {
            let config = world.config(&format!("client{i}")).seed(i);
            clients.push(Client::connect_with(config).await.unwrap());
        }
        let before = world.scripts_run();
        let mut running = Vec::new();
        for client in &clients {
            for _ in 0..tasks {
                let lock = fair(client);
                running.push(tokio::spawn(async move {
                    for _ in 0..rounds {
                        let guard = lock.acquire().await.unwrap();
                        sleep(ms(10)).await;
                        guard.release().await.unwrap();
                    }
                }));
            }
        }
        together(running).await;
        let (sent, grants) = (world.scripts_run() - before, processes * tasks * rounds);
        // At the start each process loads the scripts, and sends one more request after its subscription.
        assert!(
            sent <= grants * 21 / 10 + 3 * processes,
            "{sent} scripts for {grants} grants"
        );
        world.at_rest().await;
    }
}
