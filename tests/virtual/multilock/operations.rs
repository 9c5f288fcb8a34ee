//! Tests of the multi-lock: futures dropped while members become free, resends that find a member taken, and lost leases.

use stanchion::{Client, Lock, Lockable, LostReason, MultiLock};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::{World, assert_within, lease, ms, secs, spawn_ok};
use tokio::time::Instant;

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

fn multi(client: &Client, names: &[&str]) -> MultiLock {
    let locks: Vec<Lock> = names.iter().map(|name| lock(client, name)).collect();
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

/// The way in which the members are acquired.
#[derive(Clone, Copy, Debug)]
enum Way {
    Together,
    InOrder,
}

const WAYS: [Way; 2] = [Way::Together, Way::InOrder];

/// Three members of `ours`; in order, the middle one is of `theirs`.
fn three(way: Way, ours: &Client, theirs: &Client) -> MultiLock {
    let middle = match way {
        Way::Together => ours,
        Way::InOrder => theirs,
    };
    let locks = [lock(ours, "a"), lock(middle, "b"), lock(ours, "c")];
    MultiLock::new(locks.iter().map(|lock| lock as &dyn Lockable)).unwrap()
}

async fn clients(world: &World) -> (Client, Client) {
    let ours = world.named("ours").await;
    let theirs = world.named("theirs").await;
    // The server knows the scripts, so that each request is one round trip and one EVALSHA.
    for way in WAYS {
        let multi = three(way, &ours, &theirs);
        multi.acquire().await.unwrap().release().await.unwrap();
    }
    (ours, theirs)
}

/// Replies take 5 ms, so that requests are in flight when their futures are dropped.
async fn slow() -> (World, Client, Client) {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    let faults = world.faults();
    faults.delay(None, ms(5));
    (world, ours, theirs)
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_leaves_nothing_and_passes_its_wake_on() {
    for way in WAYS {
        let (world, ours, theirs) = slow().await;
        let multi = three(way, &ours, &theirs);
        let polls = for_each_await_point(async |polls| {
            // Two members are held at first, and are released while the doomed waiter is at any point of its wait.
            let b = lock(&theirs, "b").acquire().await.unwrap();
            let c = lock(&theirs, "c").acquire().await.unwrap();
            let releasing = tokio::spawn(async move {
                tokio::time::sleep(ms(40)).await;
                b.release().await.unwrap();
                tokio::time::sleep(ms(40)).await;
                c.release().await.unwrap();
            });
            let doomed = tokio::spawn({
                let multi = multi.clone();
                async move { cancel_after(multi.acquire(), polls).await.is_some() }
            });
            tokio::task::yield_now().await;
            let started = Instant::now();
            let survivor = multi.acquire().await.unwrap();
            assert_within(started, secs(1), (way, polls));
            survivor.release().await.unwrap();
            releasing.await.unwrap();
            let covered = doomed.await.unwrap();
            world.at_rest().await;
            assert_eq!(ours.waiters() + theirs.waiters(), 0, "after {polls} polls");
            covered
        })
        .await;
        assert!(polls > 3);
    }
}

/// R12: the first run acquires all members, and its reply is lost. Another client has one member when the request is resent.
#[tokio::test(start_paused = true)]
async fn a_resent_acquire_that_finds_a_member_taken_keeps_nothing() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    world.faults().lose_replies_silently("EVALSHA", 1);
    let waiter = spawn_ok(three(Way::Together, &ours, &theirs).acquire());
    eventually("it has run", || world.keys() == ["a", "b", "c"]).await;
    assert!(lock(&theirs, "b").danger().force_release().await.unwrap());
    let taken = lock(&theirs, "b").acquire().await.unwrap();
    // Another task waits for a member that the first run still holds.
    let next = spawn_ok(lock(&theirs, "a").acquire());
    let started = Instant::now();
    next.await.unwrap().release().await.unwrap();
    assert_within(
        started,
        secs(2),
        "the resend, after a second, releases the member and wakes its waiter",
    );
    world.quiet().await;
    assert_eq!(world.keys(), ["b", "stanchion_line:{b}"]);
    assert!(!waiter.is_finished());
    taken.release().await.unwrap();
    waiter.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_is_lost_in_time_when_its_server_falls_silent() {
    for way in WAYS {
        let world = World::engine();
        let (ours, theirs) = clients(&world).await;
        let lease = lease(secs(3));
        let multi = three(way, &ours, &theirs).lease(lease);
        let guard = multi.acquire().await.unwrap();
        tokio::time::sleep(secs(10)).await;
        assert!(guard.is_held(), "the watchdog renews every member");
        // In order, only one of the two clients falls silent. That is enough.
        world.faults().freeze(Some("ours"));
        let left = guard.remaining();
        let started = Instant::now();
        assert_eq!(guard.lost().await, LostReason::Expired);
        assert!(started.elapsed() <= left, "{:?}", started.elapsed());
        assert!(!guard.is_held());
        world.faults().thaw(None);
        drop(guard);
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_multi_lock_that_moves_to_another_queue_wakes_the_waiter_behind_it() {
    let world = World::engine();
    let (ours, theirs) = clients(&world).await;
    // The first in the local queue of `a` is a multi-lock that finds `b` held and moves to its queue.
    let a = lock(&theirs, "a").acquire().await.unwrap();
    let b = lock(&theirs, "b").acquire().await.unwrap();
    let first = spawn_ok(multi(&ours, &["a", "b"]).acquire());
    eventually("it waits", || ours.waiters() == 1).await;
    let second = spawn_ok(lock(&ours, "a").acquire());
    eventually("both wait", || ours.waiters() == 2).await;
    world.quiet().await;
    let started = Instant::now();
    a.release().await.unwrap();
    let second = second.await.unwrap();
    assert_within(started, secs(1), ());
    b.release().await.unwrap();
    world.quiet().await;
    assert!(!first.is_finished());
    let started = Instant::now();
    second.release().await.unwrap();
    first.await.unwrap().release().await.unwrap();
    assert_within(started, secs(1), ());
    world.at_rest().await;
}
