//! P3 for every kind of hold: a future that is dropped at any of its await points leaves no key, no waiter and no task, and the other waiters
//! are served. What only one kind has (a downgrade, a ticket, an order of members) is tested with that kind.

use std::time::Duration;

use stanchion::Client;
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::kinds::{self, Held, SOON, Target, kinds, served};
use stanchion_tests::{World, alive_tasks, assert_within, ms, secs, spawn_ok};
use tokio::time::{Instant, sleep};

/// A kind on a server whose replies take 5 ms, so that requests are in flight when their futures are dropped.
struct Case {
    it: kinds::Case,
    tasks: usize,
}

impl std::ops::Deref for Case {
    type Target = kinds::Case;

    fn deref(&self) -> &Self::Target {
        &self.it
    }
}

impl Case {
    async fn all() -> Vec<Self> {
        let mut cases = Vec::new();
        for kind in kinds() {
            let it = kinds::Case::new(kind, World::slow_engine()).await;
            // Each client has sent each request once, and its first subscriptions have ended.
            for target in [it.ours(), it.rival_of_ours(), it.theirs()] {
                target.acquire().await.unwrap().release().await.unwrap();
            }
            cases.push(Self { it, tasks: 0 });
        }
        // The time after which a subscription that is not used ends.
        sleep(secs(40)).await;
        let tasks = alive_tasks();
        for case in &mut cases {
            case.tasks = tasks;
        }
        cases
    }

    /// Asserts that nothing is left: no key but counters and free permits, no waiter, no task.
    async fn is_at_rest(&self, polls: usize) {
        let started = Instant::now();
        self.at_rest().await;
        assert_within(started, secs(1), (self.label, polls));
        let waiters = self.clients.each_ref().map(Client::waiters);
        assert_eq!(waiters, [0, 0], "{} after {polls} polls", self.label);
        let what = format!("{}: no task is left after {polls} polls", self.label);
        eventually(&what, || alive_tasks() <= self.tasks).await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_anywhere_leaves_nothing() {
    for case in Case::all().await {
        let polls = for_each_await_point(async |polls| {
            let done = cancel_after(case.ours().acquire(), polls).await;
            let done = done.map(Result::unwrap).is_some();
            case.is_at_rest(polls).await;
            let took = served(case.theirs()).await.unwrap();
            assert!(took < SOON, "{} after {polls} polls", case.label);
            case.is_at_rest(polls).await;
            done
        })
        .await;
        assert!(polls > 1, "{}", case.label);
    }
}

#[tokio::test(start_paused = true)]
async fn a_try_dropped_anywhere_leaves_nothing() {
    for case in Case::all().await {
        for_each_await_point(async |polls| {
            let done = cancel_after(case.ours().try_acquire(), polls).await;
            let done = done.map(Result::unwrap).is_some();
            case.is_at_rest(polls).await;
            done
        })
        .await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiting_acquire_dropped_anywhere_passes_its_wake_up_on() {
    for case in Case::all().await {
        let long = Some(secs(60));
        let ours: fn(&kinds::Case) -> Target = kinds::Case::ours;
        for (timeout, survivor) in [
            (None, ours),
            (long, ours),
            (None, kinds::Case::rival_of_ours),
        ] {
            let polls = for_each_await_point(async |polls| {
                let held = case.theirs().acquire().await.unwrap();
                // The release falls into any stage of the doomed waiter's wait.
                let releasing = tokio::spawn(async move {
                    sleep(ms(40)).await;
                    held.release().await.unwrap();
                });
                let ours = case.ours();
                let doomed = tokio::spawn(async move {
                    let done = match timeout {
                        None => cancel_after(ours.acquire(), polls).await,
                        Some(timeout) => cancel_after(ours.acquire_timeout(timeout), polls).await,
                    };
                    done.map(Result::unwrap).is_some()
                });
                sleep(ms(1)).await;
                let took = served(survivor(&case)).await.unwrap();
                assert!(took < SOON, "{} after {polls} polls: {took:?}", case.label);
                releasing.await.unwrap();
                let done = doomed.await.unwrap();
                case.is_at_rest(polls).await;
                done
            })
            .await;
            assert!(polls > 2, "{}", case.label);
        }
    }
}

/// A release, and a hand-off in the process, take 5 ms. The first waiter is dropped at every millisecond around them.
#[tokio::test(start_paused = true)]
async fn a_waiter_dropped_while_it_is_granted_passes_the_grant_on() {
    for case in Case::all().await {
        for survivor_is_ours in [true, false] {
            for after in 0..16 {
                let held = case.rival_of_ours().acquire().await.unwrap();
                let doomed = spawn_ok(case.ours().acquire());
                eventually("the doomed one waits", || case.clients[0].waiters() > 0).await;
                sleep(ms(50)).await;
                let survivor = served(if survivor_is_ours {
                    case.ours()
                } else {
                    case.theirs()
                });
                sleep(ms(50)).await;
                let releasing = tokio::spawn(held.release());
                sleep(ms(after)).await;
                doomed.abort();
                // Drops the guard, too, if the waiter has it already.
                drop(doomed);
                let started = Instant::now();
                survivor.await.unwrap();
                assert!(started.elapsed() < SOON, "{} after {after} ms", case.label);
                releasing.await.unwrap().unwrap();
                case.is_at_rest(0).await;
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_anywhere_releases() {
    for case in Case::all().await {
        for waiter in [
            None,
            Some(kinds::Case::rival_of_ours as fn(&kinds::Case) -> Target),
            Some(kinds::Case::theirs),
        ] {
            for_each_await_point(async |polls| {
                let held = case.ours().acquire().await.unwrap();
                let waiting = waiter.map(|of| served(of(&case)));
                sleep(ms(50)).await;
                let done = cancel_after(held.release(), polls).await;
                let done = done.map(Result::unwrap).is_some();
                let started = Instant::now();
                if let Some(waiting) = waiting {
                    waiting.await.unwrap();
                }
                assert_within(started, SOON, (case.label, polls));
                case.is_at_rest(polls).await;
                done
            })
            .await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_renewal_dropped_anywhere_changes_nothing() {
    for case in Case::all().await {
        for_each_await_point(async |polls| {
            let held = case.ours().acquire().await.unwrap();
            let done = cancel_after(held.renew(), polls).await;
            let done = done.map(Result::unwrap).is_some();
            assert!(held.is_held(), "{}", case.label);
            held.release().await.unwrap();
            case.is_at_rest(polls).await;
            done
        })
        .await;
    }
}

/// P3, P4: half of the calls are dropped at random times, often while they hold.
#[tokio::test(start_paused = true)]
async fn random_drops_among_a_hundred_calls_starve_none() {
    let mut rng = fastrand::Rng::with_seed(11);
    for kind in kinds() {
        let case = kinds::Case::new(kind, World::engine()).await;
        let faults = case.world.faults();
        faults.delay(None, ms(1));
        for round in 0..5 {
            let calls: Vec<_> = (0..100)
                .map(|i| {
                    let target = match i % 4 {
                        0 => case.theirs(),
                        1 => case.rival_of_ours(),
                        _ => case.ours(),
                    };
                    let doomed = rng.bool();
                    let limit = if doomed {
                        Duration::from_micros(rng.u64(0..60_000))
                    } else {
                        secs(60)
                    };
                    tokio::spawn(async move {
                        let call = async {
                            let _held = target.acquire().await.unwrap();
                            sleep(ms(1)).await;
                        };
                        let done = tokio::time::timeout(limit, call).await;
                        assert!(done.is_ok() || doomed, "a waiter was starved");
                    })
                })
                .collect();
            for call in calls {
                let label = case.label;
                call.await
                    .unwrap_or_else(|e| panic!("{label}, round {round}: {e}"));
            }
            case.at_rest().await;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_panicking_holder_releases() {
    for case in Case::all().await {
        let ours = case.ours();
        let task = tokio::spawn(async move {
            let _held = ours.acquire().await.unwrap();
            panic!("on purpose");
        });
        assert!(task.await.unwrap_err().is_panic());
        case.is_at_rest(0).await;
    }
}

/// One release frees the name, so the count is as before.
#[tokio::test(start_paused = true)]
async fn a_re_entry_dropped_anywhere_does_not_change_the_count() {
    for case in Case::all().await {
        for_each_await_point(async |polls| {
            let Held::Any(guard) = case.ours().acquire().await.unwrap() else {
                return true;
            };
            let again = cancel_after(guard.reenter(), polls).await;
            if matches!(again, Some(Err(_))) {
                // One owner cannot hold this kind twice.
                return true;
            }
            let done = again.is_some();
            drop(again);
            assert!(guard.is_held(), "{}", case.label);
            guard.release().await.unwrap();
            case.is_at_rest(polls).await;
            done
        })
        .await;
    }
}
