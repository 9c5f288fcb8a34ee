//! Tests of the hand-off of a multi-lock between the tasks of a process, in one script.

use std::pin::Pin;

use stanchion::{AcquireError, Client, Lock, Lockable, MultiGuard, MultiLock};
use stanchion_testkit::eventually;
use stanchion_tests::{World, assert_within, lease, ms, secs, spawn_ok, together};
use tokio::task::JoinHandle;
use tokio::time::{Instant, timeout};

fn multi(client: &Client, names: &[&str]) -> MultiLock {
    let lock = |name: &&str| Lock::new(client, *name).unwrap();
    let locks: Vec<Lock> = names.iter().map(lock).collect();
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

type Left = Pin<Box<dyn Future<Output = Result<MultiGuard, AcquireError>>>>;

/// A task that waits for `names`.
async fn joined(client: &Client, names: &[&str]) -> JoinHandle<MultiGuard> {
    let (waiters, multi) = (client.waiters(), multi(client, names));
    let task = spawn_ok(multi.acquire());
    eventually("it waits", || client.waiters() == waiters + 1).await;
    task
}

/// A task that waits for `names` and has sent its requests.
async fn waiting(world: &World, client: &Client, names: &[&str]) -> JoinHandle<MultiGuard> {
    let task = joined(client, names).await;
    world.quiet().await;
    task
}

/// A client whose server knows the scripts.
async fn warm(world: &World) -> Client {
    let client = world.client().await;
    let both = multi(&client, &["a", "b"]);
    let guard = both.acquire().await.unwrap();
    let next = waiting(world, &client, &["a", "b"]).await;
    guard.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    world.at_rest().await;
    client
}

/// One owner holds all of `names`, once.
fn assert_held(world: &World, guard: &MultiGuard, names: &[&str]) {
    assert!(guard.is_held());
    let owner = world.admin(&["HRANDFIELD", names[0]]);
    for name in names {
        assert_eq!(world.admin(&["HGET", name, &owner]), "1", "{name}");
        assert_eq!(world.admin(&["HLEN", name]), "1", "{name}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_hands_the_locks_to_the_next_task_in_one_script() {
    let world = World::engine();
    let client = warm(&world).await;
    let mut guard = multi(&client, &["a", "b"]).acquire().await.unwrap();
    let mut tasks = Vec::new();
    for _ in 0..4 {
        tasks.push(waiting(&world, &client, &["b", "a"]).await);
    }
    for task in tasks {
        let scripts = world.scripts_run();
        let token = guard.fencing_token("b");
        guard.release().await.unwrap();
        guard = task.await.unwrap();
        assert_eq!(world.scripts_run() - scripts, 1);
        assert!(guard.fencing_token("b") > token);
        assert_held(&world, &guard, &["a", "b"]);
    }
    guard.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn another_process_gets_its_turn_after_eight_hand_offs() {
    let world = World::engine();
    let client = warm(&world).await;
    let other = world.client().await;
    let guard = multi(&client, &["a", "b"]).acquire().await.unwrap();
    let theirs = waiting(&world, &other, &["b"]).await;
    let mut tasks = Vec::new();
    for _ in 0..12 {
        tasks.push(waiting(&world, &client, &["a", "b"]).await);
    }
    guard.release().await.unwrap();
    let (mut grants, mut tasks) = (0, tasks.into_iter());
    while !theirs.is_finished() {
        let guard = tasks.next().unwrap().await.unwrap();
        guard.release().await.unwrap();
        world.quiet().await;
        grants += 1;
    }
    assert_eq!(grants, 8);
    theirs.await.unwrap().release().await.unwrap();
    for task in tasks {
        task.await.unwrap().release().await.unwrap();
    }
    world.at_rest().await;
}

/// A waiter for the same locks is served before a waiter for overlapping locks, but only once.
#[tokio::test(start_paused = true)]
async fn one_hand_off_may_skip_a_waiter_for_overlapping_locks() {
    let world = World::engine();
    let client = warm(&world).await;
    let guard = multi(&client, &["a", "b"]).acquire().await.unwrap();
    let crossing = waiting(&world, &client, &["a", "c"]).await;
    let same = waiting(&world, &client, &["a", "b"]).await;
    let last = waiting(&world, &client, &["a", "b"]).await;
    let scripts = world.scripts_run();
    guard.release().await.unwrap();
    let same = same.await.unwrap();
    assert_eq!(world.scripts_run() - scripts, 1);
    assert_held(&world, &same, &["a", "b"]);
    same.release().await.unwrap();
    let crossing = timeout(ms(100), crossing).await;
    let crossing = crossing.expect("skipped twice").unwrap();
    assert_held(&world, &crossing, &["a", "c"]);
    assert!(!last.is_finished());
    crossing.release().await.unwrap();
    last.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_is_handed_only_the_locks_it_wants() {
    for names in [&["a", "b", "c"] as &[&str], &["a"], &["a", "c"]] {
        let world = World::engine();
        let client = warm(&world).await;
        let guard = multi(&client, &["a", "b"]).acquire().await.unwrap();
        let next = waiting(&world, &client, names).await;
        guard.release().await.unwrap();
        let next = next.await.unwrap();
        assert_held(&world, &next, names);
        let held = ["a", "b", "c"].map(|name| world.admin(&["EXISTS", name]) == "1");
        assert_eq!(held, ["a", "b", "c"].map(|name| names.contains(&name)));
        next.release().await.unwrap();
        world.at_rest().await;
    }
}

/// Lets a waiter join the queue of `b` while another client holds `b` alone, and then acquires `a` and `b`. So the waiter is in the queue
/// of another name than the one that the hold was granted in. Calls `waits` to make it wait. Returns the hold of both, and that of the
/// other client, which the server has lost.
async fn queued_elsewhere(
    world: &World,
    client: &Client,
    waits: impl AsyncFnOnce(MultiLock),
) -> (MultiGuard, MultiGuard) {
    let other = world.client().await;
    let elsewhere = multi(&other, &["b"]).acquire().await.unwrap();
    let lease = lease(secs(3));
    let both = multi(client, &["a", "b"]).lease(lease);
    waits(both.clone()).await;
    // No process gets a message about this.
    let _ = world.admin(&["DEL", "b", "stanchion_line:{b}", "stanchion_wake:{b}"]);
    let guard = both.acquire().await.unwrap();
    (guard, elsewhere)
}

#[tokio::test(start_paused = true)]
async fn a_waiter_in_the_queue_of_another_member_is_handed_the_locks() {
    let world = World::engine();
    let client = warm(&world).await;
    let mut next = None;
    let waits = async |_| next = Some(waiting(&world, &client, &["a", "b"]).await);
    let (guard, elsewhere) = queued_elsewhere(&world, &client, waits).await;
    let mut behind = Vec::new();
    for names in [&["a"] as &[&str], &["b"], &["a", "b"]] {
        let task = joined(&client, names).await;
        behind.push(tokio::spawn(async move {
            task.await.unwrap().release().await.unwrap();
        }));
    }
    let scripts = world.scripts_run();
    guard.release().await.unwrap();
    let next = next.unwrap().await.unwrap();
    assert_held(&world, &next, &["a", "b"]);
    // The second script is the request of the waiter for `a` alone, which has no queue entry on the server.
    assert_eq!(world.scripts_run() - scripts, 2);
    next.release().await.unwrap();
    let began = Instant::now();
    together(behind).await;
    // P4: the queue entry for `b` is lost, so the waiters there acquire after a poll interval.
    assert_within(began, secs(6), ());
    drop(elsewhere);
    world.at_rest().await;
}

/// R12: the lock that the script removed goes to the head of its queue, even if no task of this process takes it.
#[tokio::test(start_paused = true)]
async fn a_hand_off_that_finds_a_lock_missing_serves_the_queues_of_the_others() {
    let world = World::engine();
    let client = warm(&world).await;
    let mut next = None;
    let waits = async |_| next = Some(waiting(&world, &client, &["a", "b"]).await);
    let (guard, elsewhere) = queued_elsewhere(&world, &client, waits).await;
    let theirs = joined(&world.client().await, &["a"]).await;
    tokio::time::sleep(ms(5)).await;
    let _ = world.admin(&["DEL", "b"]);
    guard.release().await.unwrap_err();
    // The next task may take the locks first.
    let next = tokio::spawn(async { next.unwrap().await.unwrap().release().await.unwrap() });
    let theirs = timeout(ms(100), theirs).await;
    let theirs = theirs.expect("the queue of `a` was not served").unwrap();
    theirs.release().await.unwrap();
    next.await.unwrap();
    drop(elsewhere);
    world.at_rest().await;
}

/// R12, R15: a lock that the script removed is free, and its waiter is notified.
#[tokio::test(start_paused = true)]
async fn a_lock_that_is_missing_or_cannot_mint_leaves_the_others_free() {
    for command in [
        &["DEL", "b"] as &[&str],
        &["SET", "stanchion_fence:{b}", "x"],
    ] {
        let world = World::engine();
        let client = warm(&world).await;
        let guard = multi(&client, &["a", "b"]).acquire().await.unwrap();
        let next = tokio::spawn(multi(&client, &["a", "b"]).acquire());
        eventually("it waits", || client.waiters() == 1).await;
        let alone = waiting(&world, &client, &["a"]).await;
        let _ = world.admin(command);
        let began = Instant::now();
        let released = guard.release().await;
        assert_eq!(released.is_err(), command[0] == "DEL");
        match next.await.unwrap() {
            Ok(guard) => guard.release().await.unwrap(),
            Err(_) => assert_eq!(command[0], "SET"),
        }
        alone.await.unwrap().release().await.unwrap();
        assert!(began.elapsed() < secs(1));
        let _ = world.admin(&["DEL", "stanchion_fence:{b}"]);
        world.at_rest().await;
    }
}

/// Invariant 5 of the queue, for a waiter in the queue of the hold and for one in the queue of another name.
#[tokio::test(start_paused = true)]
async fn locks_handed_to_an_unpolled_future_are_passed_on_after_a_second() {
    for elsewhere in [false, true] {
        let world = World::engine();
        let client = warm(&world).await;
        let lease = lease(secs(3));
        let both = multi(&client, &["a", "b"]).lease(lease);
        let mut left = None;
        // Polls the future until it waits, and then leaves it unpolled.
        let mut waits = async |both: MultiLock| {
            let mut acquire: Left = Box::pin(both.acquire());
            while client.waiters() == 0 {
                let once = timeout(ms(1), &mut acquire).await;
                assert!(once.is_err());
            }
            left = Some(acquire);
        };
        let (guard, _other) = if elsewhere {
            let (guard, other) = queued_elsewhere(&world, &client, waits).await;
            (guard, Some(other))
        } else {
            let guard = both.acquire().await.unwrap();
            waits(both.clone()).await;
            (guard, None)
        };
        let began = Instant::now();
        guard.release().await.unwrap();
        let behind = joined(&client, &["a", "b"]).await;
        let third = joined(&client, &["b"]).await;
        let behind = timeout(ms(1200), behind).await;
        let behind = behind.expect("kept for longer").unwrap();
        let elapsed = began.elapsed();
        assert!(elapsed >= ms(990), "{elapsed:?}");
        behind.release().await.unwrap();
        let third = timeout(secs(1), third).await;
        let third = third.expect("its queue was not served").unwrap();
        third.release().await.unwrap();
        left.unwrap().await.unwrap().release().await.unwrap();
        drop(_other);
        world.at_rest().await;
    }
}
