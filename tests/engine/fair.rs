//! The fair lock when callers go, replies and messages are lost, processes fall silent and the server forgets.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use stanchion::embedded::{Data, Reply, Switch};
use stanchion::{
    AcquireError, AcquireOptions, Client, FairLock, FairLockGuard, Lease, Rejection, Renewal, Wake,
};
use stanchion_testkit::{cancel_after, eventually};
use stanchion_tests::World;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

mod model;
mod silence;

const QUEUE: &str = "redisson_lock_queue:{job}";
const TIMEOUTS: &str = "redisson_lock_timeout:{job}";
const WAITERS: &str = "stanchion_fair_waiters:{job}";
const BEAT: Duration = Duration::from_millis(500);
/// More await points than any operation has; a loop that gets here does not cover what it claims.
const TOO_MANY: usize = 60;

const fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

fn fair(client: &Client) -> FairLock {
    FairLock::new(client, "job").unwrap()
}

async fn client(world: &World, name: &str) -> Client {
    Client::connect_with(world.config(name)).await.unwrap()
}

fn queued(world: &World) -> usize {
    world.admin(&["LLEN", QUEUE]).parse().unwrap()
}

/// The guard of a waiter, which must get it.
async fn granted(waiter: JoinHandle<FairLockGuard>) -> FairLockGuard {
    tokio::time::timeout(Duration::from_secs(60), waiter)
        .await
        .unwrap()
        .unwrap()
}

/// An acquire that has its place in the queue.
async fn waiting(world: &World, lock: &FairLock) -> JoinHandle<FairLockGuard> {
    let before = queued(world);
    let lock = lock.clone();
    let waiter = tokio::spawn(async move { lock.acquire().await.unwrap() });
    eventually("it is in the queue", || queued(world) == before + 1).await;
    waiter
}

/// Waits until all have had the lock, in whatever order.
async fn all_served(waiters: Vec<JoinHandle<FairLockGuard>>) {
    let serving = waiters
        .into_iter()
        .map(async |waiter| granted(waiter).await.release().await.unwrap());
    // Virtual time: not reached but by a waiter that nobody grants to.
    tokio::time::timeout(
        Duration::from_secs(120),
        futures_util::future::join_all(serving),
    )
    .await
    .unwrap();
}

/// A world in which both clients have subscribed and the server knows all scripts.
async fn warm() -> (World, Client, Client) {
    let world = World::engine();
    let (ours, theirs) = (client(&world, "ours").await, client(&world, "theirs").await);
    let held = fair(&ours).acquire().await.unwrap();
    held.reenter().await.unwrap().release().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&ours)).await;
    let gone = waiting(&world, &fair(&ours)).await;
    sleep(BEAT * 2).await;
    gone.abort();
    eventually("it has left", || queued(&world) == 2).await;
    held.release().await.unwrap();
    granted(first).await.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.at_rest().await;
    (world, ours, theirs)
}

/// With a slow server, requests are under way when their callers go.
async fn slow() -> (World, Client, Client) {
    let (world, ours, theirs) = warm().await;
    world.as_engine().faults().delay(None, ms(5));
    (world, ours, theirs)
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    let (world, ours, theirs) = slow().await;
    for polls in 0..TOO_MANY {
        let done = cancel_after(fair(&ours).acquire(), polls).await.is_some();
        world.at_rest().await;
        assert_eq!(ours.waiters(), 0, "after {polls} polls");
        let started = Instant::now();
        let guard = fair(&theirs).acquire().await.unwrap();
        assert!(started.elapsed() < ms(100), "after {polls} polls");
        guard.release().await.unwrap();
        if done {
            assert!(polls > 1);
            return;
        }
    }
    panic!("more than {TOO_MANY} await points");
}

#[tokio::test(start_paused = true)]
async fn a_try_dropped_anywhere_leaves_nothing() {
    let (world, ours, _theirs) = slow().await;
    for polls in 0..TOO_MANY {
        let done = cancel_after(fair(&ours).try_acquire(), polls)
            .await
            .is_some();
        world.at_rest().await;
        if done {
            return;
        }
    }
    panic!("more than {TOO_MANY} await points");
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_hands_the_baton_on() {
    for timeout in [None, Some(Duration::from_secs(60))] {
        let (world, ours, theirs) = slow().await;
        let mut covered = false;
        for polls in 0..TOO_MANY {
            let held = fair(&theirs).acquire().await.unwrap();
            let options =
                timeout.map_or_else(AcquireOptions::new, |t| AcquireOptions::new().timeout(t));
            let doomed = tokio::spawn({
                let lock = fair(&ours);
                async move {
                    cancel_after(lock.acquire_with(options), polls)
                        .await
                        .is_some()
                }
            });
            // The grant comes while the doomed waiter is at any point of its wait.
            let releasing = tokio::spawn(async move {
                sleep(ms(40)).await;
                held.release().await.unwrap();
            });
            sleep(ms(1)).await;
            let started = Instant::now();
            let survivor = fair(&ours).acquire().await.unwrap();
            assert!(started.elapsed() < ms(200), "after {polls} polls");
            survivor.release().await.unwrap();
            releasing.await.unwrap();
            covered = doomed.await.unwrap();
            world.at_rest().await;
            assert_eq!(ours.waiters(), 0, "after {polls} polls");
            if covered {
                assert!(polls > 2);
                break;
            }
        }
        assert!(covered, "more than {TOO_MANY} await points");
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_that_crosses_a_departure_goes_on() {
    let (world, ours, theirs) = slow().await;
    for after in 0..16 {
        let held = fair(&theirs).acquire().await.unwrap();
        let doomed = waiting(&world, &fair(&ours)).await;
        let survivor = waiting(&world, &fair(&theirs)).await;
        sleep(ms(50)).await;
        let releasing = tokio::spawn(held.release());
        sleep(ms(after)).await;
        doomed.abort();
        drop(doomed);
        let started = Instant::now();
        let guard = granted(survivor).await;
        assert!(started.elapsed() < ms(100), "gone after {after} ms");
        guard.release().await.unwrap();
        releasing.await.unwrap().unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_anywhere_grants() {
    for waiters in [0, 1] {
        let (world, ours, theirs) = slow().await;
        let mut covered = false;
        for polls in 0..TOO_MANY {
            let guard = fair(&ours).acquire().await.unwrap();
            let mut next = Vec::new();
            for _ in 0..waiters {
                next.push(waiting(&world, &fair(&theirs)).await);
            }
            sleep(ms(50)).await;
            covered = cancel_after(guard.release(), polls).await.is_some();
            let started = Instant::now();
            for next in next {
                granted(next).await.release().await.unwrap();
            }
            world.at_rest().await;
            assert!(started.elapsed() < ms(100), "after {polls} polls");
            if covered {
                break;
            }
        }
        assert!(covered, "more than {TOO_MANY} await points");
    }
}

#[tokio::test(start_paused = true)]
async fn a_re_entry_dropped_anywhere_leaves_the_count_as_it_was() {
    let (world, ours, _theirs) = slow().await;
    let guard = fair(&ours).acquire().await.unwrap();
    let owner = guard.owner().to_string();
    for polls in 0..TOO_MANY {
        let done = cancel_after(guard.reenter(), polls).await.is_some();
        sleep(ms(100)).await;
        assert_eq!(
            world.admin(&["HGET", "job", &owner]),
            "1",
            "after {polls} polls"
        );
        if done {
            guard.release().await.unwrap();
            return world.at_rest().await;
        }
    }
    panic!("more than {TOO_MANY} await points");
}

/// Loses the reply to the next script; the connection dies with it, or goes silent.
fn lose_next_reply(world: &World, silently: bool) {
    let faults = world.as_engine().faults();
    if silently {
        faults.lose_replies_silently("EVALSHA", 1);
    } else {
        faults.lose_replies("EVALSHA", 1);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_whose_reply_is_lost_holds_once() {
    for silently in [false, true] {
        let (world, ours, _theirs) = warm().await;
        lose_next_reply(&world, silently);
        let guard = fair(&ours).acquire().await.unwrap();
        let status = fair(&ours).status().await.unwrap();
        assert_eq!(status.holder.unwrap().hold_count, 1);
        assert_eq!(status.last_token, guard.fencing_token());
        guard.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_reply_is_lost_has_one_place() {
    for silently in [false, true] {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        lose_next_reply(&world, silently);
        let first = waiting(&world, &fair(&theirs)).await;
        let second = waiting(&world, &fair(&ours)).await;
        sleep(Duration::from_secs(4)).await;
        assert_eq!(queued(&world), 2);
        assert_eq!(world.admin(&["ZCARD", WAITERS]), "2");
        held.release().await.unwrap();
        let guard = granted(first).await;
        assert!(!second.is_finished());
        guard.release().await.unwrap();
        granted(second).await.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_whose_reply_is_lost_grants_once() {
    for silently in [false, true] {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let first = waiting(&world, &fair(&theirs)).await;
        let second = waiting(&world, &fair(&theirs)).await;
        sleep(ms(10)).await;
        lose_next_reply(&world, silently);
        held.release().await.unwrap();
        let guard = granted(first).await;
        // The resend has run by now. It released nothing of the next holder.
        assert!(!second.is_finished());
        assert!(guard.is_held());
        guard.release().await.unwrap();
        granted(second).await.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_departure_whose_reply_is_lost_is_final() {
    for silently in [false, true] {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let doomed = waiting(&world, &fair(&theirs)).await;
        let survivor = waiting(&world, &fair(&ours)).await;
        lose_next_reply(&world, silently);
        doomed.abort();
        eventually("it has left", || queued(&world) == 1).await;
        held.release().await.unwrap();
        granted(survivor).await.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_grant_arrives_in_one_round_trip() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let next = waiting(&world, &fair(&theirs)).await;
    sleep(ms(10)).await;
    world.as_engine().faults().delay(None, ms(10));
    let (started, before) = (Instant::now(), world.scripts_run());
    let releasing = tokio::spawn(held.release());
    let guard = granted(next).await;
    assert!(started.elapsed() <= ms(12), "{:?}", started.elapsed());
    assert_eq!(world.scripts_run() - before, 1, "the release is all");
    releasing.await.unwrap().unwrap();
    // Counted from the server's time of the grant, not from the message's arrival.
    let counted = guard.remaining() + started.elapsed();
    assert!(counted <= ms(1500), "{counted:?}");
    assert!(counted > ms(1400), "{counted:?}");
    drop(guard);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_grant_is_found_by_the_next_sign_of_life() {
    let (world, ours, theirs) = warm().await;
    for _ in 0..5 {
        let held = fair(&ours).acquire().await.unwrap();
        // The one that asks for its process is not the one whose grant is lost.
        let first = waiting(&world, &fair(&theirs)).await;
        let second = waiting(&world, &fair(&theirs)).await;
        held.release().await.unwrap();
        let guard = granted(first).await;
        let third = waiting(&world, &fair(&theirs)).await;
        world.as_engine().faults().lose_messages(1);
        let started = Instant::now();
        guard.release().await.unwrap();
        let guard = granted(second).await;
        assert!(
            started.elapsed() <= BEAT + ms(10),
            "{:?}",
            started.elapsed()
        );
        guard.release().await.unwrap();
        granted(third).await.release().await.unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn grants_of_a_process_that_cannot_listen_are_found() {
    let (world, ours, theirs) = warm().await;
    // The linger of the warm-up ends.
    sleep(Duration::from_secs(10)).await;
    let denied = "NOPERM this user has no permissions to access one of the channels";
    world
        .as_engine()
        .faults()
        .fail_next("SUBSCRIBE", denied, 1000);
    let held = fair(&ours).acquire().await.unwrap();
    let mut waiters = Vec::new();
    for _ in 0..4 {
        waiters.push(waiting(&world, &fair(&theirs)).await);
    }
    held.release().await.unwrap();
    for waiter in waiters {
        let started = Instant::now();
        let guard = granted(waiter).await;
        assert!(
            started.elapsed() <= BEAT + ms(10),
            "{:?}",
            started.elapsed()
        );
        guard.release().await.unwrap();
    }
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_client_without_messages_finds_its_grants_by_its_signs_of_life() {
    let (world, ours, _theirs) = warm().await;
    let config = world.config("polling").wake(Wake::Poll);
    let polling = Client::connect_with(config).await.unwrap();
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&polling)).await;
    let second = waiting(&world, &fair(&polling)).await;
    held.release().await.unwrap();
    for waiter in [first, second] {
        let started = Instant::now();
        let guard = granted(waiter).await;
        assert!(
            started.elapsed() <= BEAT + ms(10),
            "{:?}",
            started.elapsed()
        );
        guard.release().await.unwrap();
    }
    let channel = format!("redisson_lock__channel:{{job}}:{}", polling.id());
    assert_eq!(world.subscribers(&channel), 0);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_subscriber_that_is_cut_off_misses_nothing() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&theirs)).await;
    world.as_engine().faults().kill_subscribers();
    let started = Instant::now();
    held.release().await.unwrap();
    granted(first).await.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    assert!(started.elapsed() < ms(1100), "{:?}", started.elapsed());
    world.at_rest().await;
}

/// `count` waiters of a client of its own.
async fn crowd(
    world: &World,
    name: &str,
    count: usize,
) -> (Client, Vec<JoinHandle<FairLockGuard>>) {
    let client = client(world, name).await;
    let mut waiters = Vec::new();
    for _ in 0..count {
        waiters.push(waiting(world, &fair(&client)).await);
    }
    (client, waiters)
}

#[tokio::test(start_paused = true)]
async fn all_processes_that_fall_silent_delay_the_others_once() {
    for dead in [1, 4] {
        // At every point of their beat, and of a hold that was granted to one of them.
        for after in [0, 120, 260, 499, 900, 1300, 1600, 2500] {
            let (world, ours, theirs) = warm().await;
            let held = fair(&ours).acquire().await.unwrap();
            let mut silent = Vec::new();
            for i in 0..dead {
                silent.push(crowd(&world, &format!("silent{i}"), 50 / dead).await);
            }
            let next = waiting(&world, &fair(&theirs)).await;
            sleep(ms(333)).await;
            for i in 0..dead {
                world
                    .as_engine()
                    .faults()
                    .freeze(Some(&format!("silent{i}")));
            }
            sleep(ms(after)).await;
            let started = Instant::now();
            held.release().await.unwrap();
            let guard = granted(next).await;
            assert!(
                started.elapsed() <= FairLock::GRACE + ms(50),
                "{dead} silent for {after} ms: {:?}",
                started.elapsed()
            );
            // They come back, at the tail, and are served.
            world.as_engine().faults().thaw(None);
            guard.release().await.unwrap();
            let (_clients, waiters): (Vec<_>, Vec<_>) = silent.into_iter().unzip();
            all_served(waiters.into_iter().flatten().collect()).await;
            world.at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_that_is_silent_for_less_keeps_its_places() {
    for silence in [400, 800, 1400] {
        for before in [0, 170, 330, 480] {
            let (world, ours, theirs) = warm().await;
            let held = fair(&ours).acquire().await.unwrap();
            let (_silent, waiters) = crowd(&world, "silent", 3).await;
            let last = waiting(&world, &fair(&theirs)).await;
            sleep(BEAT * 2 + ms(before)).await;
            world.as_engine().faults().freeze(Some("silent"));
            sleep(ms(20)).await;
            held.release().await.unwrap();
            sleep(ms(silence)).await;
            world.as_engine().faults().thaw(None);
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
async fn a_server_that_stood_still_evicts_nobody() {
    // To the server, a jump of its clock and a stop are the same: every mark is stale at the first look.
    for jump in [1_600, 2_500, 10_000] {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for i in 0..10 {
            waiters.push(waiting(&world, &fair([&ours, &theirs][i % 2])).await);
        }
        sleep(BEAT).await;
        let order = world.as_engine().execute(&["LRANGE", QUEUE, "0", "-1"]);
        world.as_engine().faults().step_clock(jump);
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
async fn a_waiter_that_falls_silent_with_a_grant_costs_no_more() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let (_silent, waiters) = crowd(&world, "silent", 3).await;
    let next = waiting(&world, &fair(&theirs)).await;
    sleep(BEAT).await;
    world.as_engine().faults().freeze(Some("silent"));
    let started = Instant::now();
    held.release().await.unwrap();
    let guard = granted(next).await;
    assert!(
        started.elapsed() <= FairLock::GRACE + ms(50),
        "{:?}",
        started.elapsed()
    );
    guard.release().await.unwrap();
    world.as_engine().faults().thaw(None);
    all_served(waiters).await;
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_releaser_looks_after_a_queue_that_nobody_else_looks_after() {
    let (world, ours, _theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let (_silent, waiters) = crowd(&world, "silent", 3).await;
    // Behind them only a Redisson client.
    let far = "local t = redis.call('TIME') redis.call('ZADD', KEYS[1], t[1] * 1000 + 300000, 'java:1') redis.call('RPUSH', KEYS[2], 'java:1') return 1";
    let _ = world.admin(&["EVAL", far, "2", TIMEOUTS, QUEUE]);
    sleep(BEAT).await;
    world.as_engine().faults().freeze(Some("silent"));
    sleep(Duration::from_secs(3)).await;
    held.release().await.unwrap();
    // Nobody could see that they were silent, until it looked.
    sleep(FairLock::GRACE + ms(50)).await;
    assert_eq!(world.admin(&["LINDEX", QUEUE, "0"]), "java:1");
    // And that was all: a Redisson client that does not come is nobody's to watch.
    let before = world.scripts_run();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(world.scripts_run(), before);
    for waiter in waiters {
        waiter.abort();
    }
}

#[tokio::test(start_paused = true)]
async fn a_holder_that_falls_silent_is_succeeded_when_its_lease_ends() {
    let (world, _ours, theirs) = warm().await;
    let silent = client(&world, "silent").await;
    let lock = fair(&silent).with_lease(Lease::new(Duration::from_secs(3)).unwrap());
    let held = lock.acquire().await.unwrap();
    let next = waiting(&world, &fair(&theirs)).await;
    world.as_engine().faults().freeze(Some("silent"));
    let started = Instant::now();
    let guard = granted(next).await;
    assert!(!held.is_held());
    assert!(
        (ms(2900)..ms(3020)).contains(&started.elapsed()),
        "expiry sends no message: {:?}",
        started.elapsed()
    );
    world.as_engine().faults().thaw(None);
    assert!(held.release().await.is_err());
    assert!(guard.is_held());
    guard.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_newcomer_that_finds_the_lock_expired_takes_its_turn() {
    let (world, ours, theirs) = warm().await;
    let options = AcquireOptions::new()
        .lease(Lease::new(ms(200)).unwrap())
        .renewal(Renewal::Manual);
    let abandoned = fair(&ours).acquire_with(options).await.unwrap();
    let (_slow, mut waiters) = crowd(&world, "slow", 1).await;
    // The one that waits cannot look at once.
    world.as_engine().faults().freeze(Some("slow"));
    sleep(ms(300)).await;
    assert_eq!(world.admin(&["EXISTS", "job"]), "0");
    assert!(fair(&theirs).try_acquire().await.unwrap().is_none());
    let newcomer = tokio::spawn({
        let lock = fair(&theirs);
        async move { lock.acquire().await.unwrap() }
    });
    sleep(ms(50)).await;
    assert!(!newcomer.is_finished());
    world.as_engine().faults().thaw(None);
    let guard = granted(waiters.pop().unwrap()).await;
    assert!(!newcomer.is_finished());
    guard.release().await.unwrap();
    granted(newcomer).await.release().await.unwrap();
    drop(abandoned);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_manual_hold_that_was_granted_by_message_has_its_whole_lease() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let lock = fair(&theirs);
    let options = AcquireOptions::new()
        .lease(Lease::new(Duration::from_secs(10)).unwrap())
        .renewal(Renewal::Manual);
    let next = tokio::spawn(async move { lock.acquire_with(options).await.unwrap() });
    eventually("it waits", || queued(&world) == 1).await;
    held.release().await.unwrap();
    let guard = granted(next).await;
    sleep(Duration::from_secs(9)).await;
    assert!(guard.is_held(), "renewed once, from the grant to the lease");
    sleep(Duration::from_secs(2)).await;
    assert!(!guard.is_held(), "and never again");
    drop(guard);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_server_that_forgets_everything_gets_the_queue_back() {
    for data in [Data::Kept, Data::Lost] {
        let (world, ours, theirs) = warm().await;
        let held = fair(&ours).acquire().await.unwrap();
        let mut waiters = Vec::new();
        for i in 0..6 {
            waiters.push(waiting(&world, &fair([&ours, &theirs][i % 2])).await);
        }
        world.as_engine().faults().restart(data);
        drop(held);
        all_served(waiters).await;
        world.at_rest().await;
    }
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&theirs)).await;
    world.as_engine().faults().flush_all();
    let started = Instant::now();
    let guard = granted(first).await;
    assert!(
        started.elapsed() <= BEAT + ms(20),
        "{:?}",
        started.elapsed()
    );
    assert!(held.release().await.is_err());
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_full_server_still_grants_to_those_that_wait() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let first = waiting(&world, &fair(&theirs)).await;
    let second = waiting(&world, &fair(&ours)).await;
    let doomed = waiting(&world, &fair(&ours)).await;
    world.as_engine().faults().out_of_memory(Switch::On);
    // Several beats: nobody that waits is refused.
    sleep(BEAT * 4).await;
    match fair(&theirs).acquire().await {
        Err(AcquireError::Rejected {
            rejection: Rejection::OutOfMemory { .. },
            ..
        }) => {}
        other => panic!("a newcomer needs memory: {other:?}"),
    }
    let inner = held.reenter().await.unwrap();
    inner.release().await.unwrap();
    doomed.abort();
    held.release().await.unwrap();
    let guard = granted(first).await;
    guard.renew().await.unwrap();
    guard.release().await.unwrap();
    granted(second).await.release().await.unwrap();
    world.as_engine().faults().out_of_memory(Switch::Off);
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_value_that_is_overwritten_is_told_to_those_that_wait() {
    let (world, ours, theirs) = warm().await;
    let _held = fair(&ours).acquire().await.unwrap();
    let lock = fair(&theirs);
    let waiter = tokio::spawn(async move { lock.acquire().await });
    eventually("it waits", || queued(&world) == 1).await;
    let _ = world.admin(&["SET", "job", "precious"]);
    let started = Instant::now();
    let error = waiter.await.unwrap().unwrap_err();
    assert!(
        matches!(
            &error,
            AcquireError::Rejected {
                rejection: Rejection::WrongType { .. },
                ..
            }
        ),
        "{error}"
    );
    assert!(
        started.elapsed() <= BEAT + ms(20),
        "{:?}",
        started.elapsed()
    );
    assert_eq!(world.admin(&["GET", "job"]), "precious");
}

#[tokio::test(start_paused = true)]
async fn a_deadline_in_the_queue_is_kept_to_the_millisecond() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    for patience in [1, 77, 1234, 5000] {
        let started = Instant::now();
        let error = fair(&theirs)
            .acquire_timeout(ms(patience))
            .await
            .unwrap_err();
        assert!(matches!(error, AcquireError::TimedOut { .. }), "{error}");
        let late = started.elapsed().saturating_sub(ms(patience));
        assert!(late <= ms(50), "P9: {late:?} after {patience} ms");
        eventually("its place is given up", || queued(&world) == 0).await;
    }
    held.release().await.unwrap();
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_long_wait_is_stamped_anew() {
    let (world, ours, theirs) = warm().await;
    let held = fair(&ours).acquire().await.unwrap();
    let waiters = [
        waiting(&world, &fair(&theirs)).await,
        waiting(&world, &fair(&theirs)).await,
    ];
    // Redisson would purge a waiter whose deadline passes; ours is 10 minutes away at first.
    sleep(Duration::from_secs(1000)).await;
    let script = "local t = redis.call('TIME') return redis.call('ZRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] - t[1] * 1000";
    let left: i64 = world
        .admin(&["EVAL", script, "1", TIMEOUTS])
        .parse()
        .unwrap();
    assert!(left > 500_000, "{left} ms left");
    held.release().await.unwrap();
    for waiter in waiters {
        granted(waiter).await.release().await.unwrap();
    }
    world.at_rest().await;
}

/// Those in the queue, in order.
fn places(world: &World) -> Vec<String> {
    let Reply::Array(items) = world.as_engine().execute(&["LRANGE", QUEUE, "0", "-1"]) else {
        panic!("an array");
    };
    items
        .into_iter()
        .map(|item| match item {
            Reply::Bulk(bytes) => String::from_utf8(bytes).unwrap(),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// P7 as seen from outside: whoever is granted came to the queue before all that are still there.
#[derive(Default)]
struct Referee {
    came: Mutex<HashMap<String, usize>>,
}

impl Referee {
    fn look(&self, world: &World) {
        let mut came = self.came.lock().unwrap();
        for waiter in places(world) {
            let next = came.len();
            came.entry(waiter).or_insert(next);
        }
    }

    fn judge(&self, world: &World, granted: &str) {
        self.look(world);
        let came = self.came.lock().unwrap();
        // Some hold without ever having been seen in the queue.
        let Some(mine) = came.get(granted) else {
            return;
        };
        for waiter in places(world) {
            assert!(came[&waiter] > *mine, "{granted} overtook {waiter}");
        }
    }
}

async fn storm(seed: u64) {
    const TASKS: u64 = 40;
    const ROUNDS: u64 = 12;
    let world = Arc::new(World::engine());
    let faults = world.as_engine().faults();
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut clients = Vec::new();
    for i in 0..4 {
        let name = format!("client{i}");
        clients.push(client(&world, &name).await);
        faults.delay(Some(&name), ms(rng.u64(0..4)));
    }
    let referee = Arc::new(Referee::default());
    let observer = tokio::spawn({
        let (world, referee) = (Arc::clone(&world), Arc::clone(&referee));
        async move {
            loop {
                referee.look(&world);
                sleep(ms(5)).await;
            }
        }
    });
    let granted = Arc::new(Mutex::new(BTreeMap::<u64, u64>::new()));
    let tasks: Vec<_> = (0..TASKS)
        .map(|task| {
            let (world, referee, granted) = (
                Arc::clone(&world),
                Arc::clone(&referee),
                Arc::clone(&granted),
            );
            let lock = fair(&clients[usize::try_from(task % 4).unwrap()]);
            let mut rng = rng.fork();
            tokio::spawn(async move {
                for _ in 0..ROUNDS {
                    sleep(Duration::from_micros(rng.u64(0..40_000))).await;
                    let patience = if rng.u8(0..4) == 0 {
                        Duration::from_micros(rng.u64(0..200_000))
                    } else {
                        Duration::from_secs(300)
                    };
                    // Some are dropped, some time out.
                    let guard = if rng.bool() {
                        tokio::time::timeout(patience, lock.acquire())
                            .await
                            .ok()
                            .map(Result::unwrap)
                    } else {
                        lock.acquire_timeout(patience).await.ok()
                    };
                    let Some(guard) = guard else { continue };
                    referee.judge(&world, guard.owner().to_string().as_str());
                    let token = guard.fencing_token().unwrap().get();
                    let earlier = granted.lock().unwrap().insert(token, task);
                    assert_eq!(earlier, None, "P2");
                    assert_eq!(
                        granted.lock().unwrap().keys().next_back(),
                        Some(&token),
                        "P2"
                    );
                    sleep(Duration::from_micros(rng.u64(0..3_000))).await;
                    assert!(guard.is_held());
                    if rng.bool() {
                        guard.release().await.unwrap();
                    }
                }
            })
        })
        .collect();
    let mut noise = rng.fork();
    let trouble = tokio::spawn({
        let faults = world.as_engine().faults();
        async move {
            loop {
                sleep(ms(noise.u64(20..400))).await;
                match noise.u8(0..4) {
                    0 => faults.lose_messages(1),
                    1 => faults.lose_replies("EVALSHA", 1),
                    2 => faults.kill_subscribers(),
                    _ => faults.kill_label(&format!("client{}", noise.u8(0..4))),
                }
            }
        }
    });
    for task in tasks {
        task.await.unwrap_or_else(|e| panic!("seed {seed}: {e}"));
    }
    trouble.abort();
    observer.abort();
    faults.clear();
    world.at_rest().await;
    assert_eq!(clients.iter().map(Client::waiters).sum::<usize>(), 0);
    assert!(granted.lock().unwrap().len() > 200, "seed {seed}");
}

#[tokio::test(start_paused = true)]
async fn a_storm_keeps_the_order() {
    for seed in 0..4 {
        storm(seed).await;
    }
}
