//! Tests of a release that also acquires for another waiter of its client, in one script.

use std::future::Future;
use std::pin::Pin;

use futures_util::poll;
use stanchion::Fencing;
use stanchion_tests::{LostReply, assert_is, assert_within, ms, secs, spawn_ok, together};

use super::*;

type Acquire = Pin<Box<dyn Future<Output = Result<FairLockGuard, AcquireError>> + Send>>;

/// An acquire that was polled once. It is about to send its request, and lets a release of its client go first.
async fn about_to_request(lock: FairLock) -> Acquire {
    let mut acquire: Acquire = Box::pin(async move { lock.acquire().await });
    assert!(poll!(&mut acquire).is_pending());
    acquire
}

/// A world whose server knows the script.
async fn ready() -> (World, Client, Client) {
    let (world, ours, theirs) = slow().await;
    let held = fair(&ours).acquire().await.unwrap();
    let next = about_to_request(fair(&ours)).await;
    held.release().await.unwrap();
    next.await.unwrap().release().await.unwrap();
    world.at_rest().await;
    (world, ours, theirs)
}

#[tokio::test(start_paused = true)]
async fn tasks_that_take_turns_cost_one_command_for_each_grant() {
    for tasks in [2, 3, 16] {
        let (world, ours, _theirs) = ready().await;
        let before = world.scripts_run();
        let published = || world.as_engine().stats().published;
        let messages = published();
        let turns: u64 = 40;
        let running: Vec<_> = (0..tasks)
            .map(|_| {
                let lock = fair(&ours);
                tokio::spawn(async move {
                    for _ in 0..turns {
                        lock.acquire().await.unwrap().release().await.unwrap();
                    }
                })
            })
            .collect();
        together(running).await;
        let (cost, grants) = (world.scripts_run() - before, turns * tasks);
        // The first acquire and the last release of each task are scripts of their own. The rest of the allowance is for polls.
        assert!(cost <= grants + 2 * tasks + 16, "{cost} for {grants}");
        // Each grant is in the reply.
        assert!(published() - messages <= 2 * tasks, "{tasks}");
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_in_a_release_is_queued_behind_the_others() {
    let (world, ours, theirs) = ready().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&ours)).await;
    let before = world.scripts_run();
    let third = about_to_request(fair(&ours)).await;
    held.release().await.unwrap();
    let third = tokio::spawn(third);
    let guard = granted(first).await;
    assert_eq!(world.scripts_run() - before, 1);
    assert_eq!(queued(&world), 2);
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    third.await.unwrap().unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_only_waiter_is_granted_the_lock_in_the_reply() {
    let (world, ours, _theirs) = ready().await;
    let held = fair(&ours).acquire().await.unwrap();
    let before = world.scripts_run();
    let next = about_to_request(fair(&ours)).await;
    let last = held.fencing_token();
    held.release().await.unwrap();
    let guard = next.await.unwrap();
    assert_eq!(world.scripts_run() - before, 1);
    // A lease of its own, not the short one of a grant by message.
    assert!(guard.remaining() > secs(29));
    assert!(guard.fencing_token() > last, "P2");
    guard.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_leaves_one_hold() {
    for way in LostReply::WAYS {
        for others in [0, 1] {
            let (world, ours, theirs) = ready().await;
            let held = fair(&ours).acquire().await.unwrap();
            let mut first = Vec::new();
            for _ in 0..others {
                first.push(waiting(&world, &fair(&theirs)).await);
            }
            let next = about_to_request(fair(&ours)).await;
            world.lose_next_reply(way);
            let releasing = tokio::spawn(held.release());
            let next = tokio::spawn(next);
            for waiter in first {
                granted(waiter).await.release().await.unwrap();
            }
            let guard = next.await.unwrap().unwrap();
            releasing.await.unwrap().unwrap();
            assert!(guard.is_held());
            assert_eq!(queued(&world), 0);
            guard.release().await.unwrap();
            world.at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    for others in [0, 1] {
        let (world, ours, theirs) = ready().await;
        for_each_await_point(async |polls| {
            let held = fair(&ours).acquire().await.unwrap();
            let mut waiters = Vec::new();
            for _ in 0..others {
                waiters.push(waiting(&world, &fair(&theirs)).await);
            }
            let lock = fair(&ours);
            let doomed =
                tokio::spawn(async move { cancel_after(lock.acquire(), polls).await.is_some() });
            tokio::task::yield_now().await;
            held.release().await.unwrap();
            all_served(waiters).await;
            let done = doomed.await.unwrap();
            world.at_rest().await;
            let started = Instant::now();
            let guard = fair(&theirs).acquire().await.unwrap();
            assert!(started.elapsed() < ms(100), "after {polls} polls");
            guard.release().await.unwrap();
            assert_eq!(ours.waiters(), 0, "after {polls} polls");
            done
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_anywhere_serves_the_waiter() {
    let (world, ours, theirs) = ready().await;
    for_each_await_point(async |polls| {
        let held = fair(&ours).acquire().await.unwrap();
        let first = waiting(&world, &fair(&theirs)).await;
        let next = about_to_request(fair(&ours)).await;
        let done = cancel_after(held.release(), polls).await.is_some();
        let next = tokio::spawn(next);
        granted(first).await.release().await.unwrap();
        next.await.unwrap().unwrap().release().await.unwrap();
        world.at_rest().await;
        done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_fencing_mints_no_token() {
    let (world, ours, _theirs) = ready().await;
    let held = fair(&ours).acquire().await.unwrap();
    let minted = held.fencing_token();
    let before = world.scripts_run();
    let next = about_to_request(fair(&ours).fencing(Fencing::Off)).await;
    held.release().await.unwrap();
    let guard = next.await.unwrap();
    // P2: the waiter sent its own request, because the script of the holder would have minted a token for it.
    assert_eq!(world.scripts_run() - before, 2);
    assert_eq!(guard.fencing_token(), None);
    guard.release().await.unwrap();
    assert_eq!(fair(&ours).status().await.unwrap().last_token, minted);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_that_shuts_down_acquires_for_no_waiter() {
    let (world, ours, theirs) = ready().await;
    let held = fair(&ours).acquire().await.unwrap();
    let next = about_to_request(fair(&ours)).await;
    let mut closing = Box::pin(ours.shutdown(secs(1)));
    assert!(poll!(&mut closing).is_pending());
    held.release().await.unwrap();
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    assert!(matches!(next.await, Err(AcquireError::Shutdown { .. })));
    let _report = closing.await;
    fair(&theirs)
        .acquire()
        .await
        .unwrap()
        .release()
        .await
        .unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_release_of_a_lost_hold_reports_the_loss() {
    let (world, ours, _theirs) = ready().await;
    let held = fair(&ours).acquire().await.unwrap();
    let _ = world.admin(&["DEL", "job"]);
    let next = about_to_request(fair(&ours)).await;
    assert!(matches!(held.release().await, Err(ReleaseError::Lost(_))));
    next.await.unwrap().release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_cannot_be_queued_gets_the_error() {
    let (world, ours, theirs) = ready().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let next = about_to_request(fair(&ours)).await;
    let _ = world.admin(&["SET", QUEUE, "x"]);
    held.release().await.unwrap();
    let refused = next.await;
    assert_is!(refused, Err(AcquireError::Rejected { .. }));
    let _ = world.admin(&["DEL", QUEUE]);
    granted(first).await.release().await.unwrap();
    world.at_rest().await;
}

/// A future that was polled once is queued like any waiter, and keeps the lock for one lease.
#[tokio::test(start_paused = true)]
async fn an_unpolled_waiter_delays_the_next_by_one_lease() {
    let (world, ours, _theirs) = ready().await;
    let held = fair(&ours).acquire().await.unwrap();
    let left = about_to_request(fair(&ours)).await;
    let next = spawn_ok(fair(&ours).acquire());
    eventually("the next one has queued both", || queued(&world) == 2).await;
    held.release().await.unwrap();
    let started = Instant::now();
    let guard = granted(next).await;
    assert_within(started, secs(31), ());
    guard.release().await.unwrap();
    drop(left);
    world.at_rest().await;
}

/// A world in which the script is still in flight, although other requests did its release and its acquire. The lock is free.
async fn held_back() -> World {
    let (world, ours, _theirs) = ready().await;
    let held = fair(&ours).acquire().await.unwrap();
    let next = about_to_request(fair(&ours)).await;
    world.faults().hold_requests("EVALSHA", 1);
    // The release goes first. Both requests are resent on a new connection.
    let releasing = tokio::spawn(held.release());
    let guard = tokio::spawn(next).await.unwrap().unwrap();
    releasing.await.unwrap().unwrap();
    guard.release().await.unwrap();
    // Time for the first sweep.
    sleep(ms(100)).await;
    world
}

#[tokio::test(start_paused = true)]
async fn a_script_that_runs_late_takes_nothing() {
    let world = held_back().await;
    sleep(secs(60)).await;
    world.faults().deliver();
    sleep(ms(100)).await;
    assert_eq!(world.admin(&["EXISTS", "job", QUEUE]), "0");
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_sweep_undoes_an_unanswered_script_that_runs_later() {
    let world = held_back().await;
    // The script may run for up to twice the response timeout. The last sweep comes after that.
    world.faults().deliver();
    world.until(&["EXISTS", "job"], "1").await;
    sleep(secs(10)).await;
    assert_eq!(world.admin(&["EXISTS", "job", QUEUE]), "0", "P3");
    world.at_rest().await;
}
