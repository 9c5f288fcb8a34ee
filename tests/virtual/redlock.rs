//! Tests of RedLock: silent and dead nodes, nodes that lose their data, dropped futures, and random faults.
//!
//! Long: one suite over one set-up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::embedded::{Data, Faults, Switch};
use stanchion::redlock::NodeOutcome;
use stanchion::{AcquireOptions, Client, LostReason, RedGuard, RedLock, RedLockError, Renewal};
use stanchion_testkit::{cancel_after, eventually, for_each_await_point};
use stanchion_tests::{World, assert_within, lease, manual, ms, secs};
use tokio::time::Instant;

/// The default node timeout.
const NODE_TIMEOUT: Duration = ms(100);

struct Nodes(Vec<World>);

impl Nodes {
    fn new(n: usize) -> Self {
        Self((0..n).map(|_| World::engine()).collect())
    }

    async fn clients(&self, name: &str) -> Vec<Client> {
        let mut clients = Vec::new();
        for node in &self.0 {
            clients.push(node.named(name).await);
        }
        clients
    }

    async fn lock(&self, name: &str) -> RedLock {
        let lock = RedLock::new(&self.clients(name).await, "job").unwrap();
        // Loads the scripts on every node, so that each request is one round trip and one EVALSHA.
        lock.acquire().await.unwrap().release().await.unwrap();
        self.at_rest().await;
        lock
    }

    fn faults(&self, node: usize) -> Faults {
        self.0[node].faults()
    }

    fn each(&self, n: usize, change: impl Fn(Faults)) {
        for node in 0..n {
            change(self.faults(node));
        }
    }

    async fn at_rest(&self) {
        for node in &self.0 {
            node.at_rest().await;
        }
    }

    fn held_on(&self) -> usize {
        self.0.iter().filter(|node| node.keys() == ["job"]).count()
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_minority_delays_no_call_and_is_released_later() {
    for n in [3, 5] {
        let nodes = Nodes::new(n);
        let lock = nodes.lock("ours").await;
        nodes.each(n, |f| f.delay(None, ms(3)));
        let silent = n / 2;
        nodes.each(silent, |f| f.freeze(None));
        for _ in 0..3 {
            let started = Instant::now();
            let guard = lock.acquire().await.unwrap();
            assert!(
                started.elapsed() <= ms(10),
                "a silent minority delayed the acquire: {:?}",
                started.elapsed()
            );
            assert_eq!(guard.nodes_held(), lock.quorum());
            let started = Instant::now();
            guard.renew().await.unwrap();
            guard.release().await.unwrap();
            assert!(started.elapsed() <= ms(10), "{:?}", started.elapsed());
        }
        // The requests to the silent nodes arrive now.
        nodes.each(silent, |f| f.thaw(None));
        let started = Instant::now();
        nodes.at_rest().await;
        assert_within(started, secs(10), "released, not expired");
    }
}

#[tokio::test(start_paused = true)]
async fn a_silent_majority_is_reported_in_time_with_the_outcome_of_each_node() {
    let nodes = Nodes::new(3);
    let lock = nodes.lock("ours").await;
    nodes.each(2, |f| f.freeze(None));
    let started = Instant::now();
    let error = lock.try_acquire().await.unwrap_err();
    assert!(
        started.elapsed() <= NODE_TIMEOUT + ms(5),
        "{:?}",
        started.elapsed()
    );
    let RedLockError::NoQuorum {
        needed: 2,
        nodes: said,
        ..
    } = &error
    else {
        panic!("{error}");
    };
    assert!(
        matches!(
            [&said[0].outcome, &said[1].outcome, &said[2].outcome],
            [
                NodeOutcome::Failed(_),
                NodeOutcome::Failed(_),
                NodeOutcome::Granted
            ]
        ),
        "{error}"
    );
    eventually("the third is rolled back", || nodes.held_on() == 0).await;
    for timeout in [Duration::ZERO, secs(2)] {
        let started = Instant::now();
        let error = lock.acquire_timeout(timeout).await.unwrap_err();
        assert!(matches!(error, RedLockError::NoQuorum { .. }), "{error}");
        assert!(
            started.elapsed() <= timeout + ms(50),
            "{timeout:?}: {:?}",
            started.elapsed()
        );
    }
    nodes.each(2, |f| f.thaw(None));
    nodes.at_rest().await;
    lock.acquire().await.unwrap().release().await.unwrap();
    nodes.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_waits_for_a_majority_and_gives_up_after_thirty_seconds() {
    let nodes = Nodes::new(3);
    let lock = nodes.lock("ours").await;
    let gone = |f: Faults| {
        f.refuse_connections(Switch::On);
        f.kill_connections();
    };
    nodes.each(2, gone);
    let started = Instant::now();
    let waiter = tokio::spawn(lock.acquire());
    tokio::time::sleep(secs(5)).await;
    assert!(!waiter.is_finished());
    nodes.each(1, |f| f.refuse_connections(Switch::Off));
    waiter.await.unwrap().unwrap().release().await.unwrap();
    assert!(started.elapsed() < secs(9));
    nodes.each(2, gone);
    let started = Instant::now();
    let error = lock.acquire().await.unwrap_err();
    assert!(matches!(error, RedLockError::NoQuorum { .. }), "{error}");
    let waited = started.elapsed();
    assert!((secs(30)..secs(31)).contains(&waited), "{waited:?}");
    nodes.each(2, |f| f.refuse_connections(Switch::Off));
    nodes.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_lost_reply_of_a_minority_leaves_nothing_behind() {
    for silent in [false, true] {
        let nodes = Nodes::new(3);
        let lock = nodes.lock("ours").await;
        for node in 0..3 {
            let lose = |f: Faults| {
                if silent {
                    f.lose_replies_silently("EVALSHA", 1);
                } else {
                    f.lose_replies("EVALSHA", 1);
                }
            };
            lose(nodes.faults(node));
            let guard = lock.acquire().await.unwrap();
            assert!(guard.is_held());
            lose(nodes.faults(node));
            guard.release().await.unwrap();
            let started = Instant::now();
            nodes.at_rest().await;
            assert_within(started, secs(15), ());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_quorum_stays_held_while_a_minority_is_silent() {
    let nodes = Nodes::new(5);
    let lock = nodes.lock("ours").await.lease(lease(ms(3_000)));
    let guard = lock.acquire().await.unwrap();
    nodes.each(2, |f| f.freeze(None));
    let deadline = Instant::now() + secs(60);
    while Instant::now() < deadline {
        assert!(guard.is_held());
        tokio::time::sleep(ms(500)).await;
    }
    assert_eq!(guard.nodes_held(), 3);
    nodes.each(2, |f| f.thaw(None));
    guard.release().await.unwrap();
    nodes.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_hold_is_lost_before_another_client_gets_a_quorum() {
    let nodes = Nodes::new(3);
    let lock = nodes.lock("ours").await.lease(lease(ms(3_000)));
    let theirs = nodes.lock("theirs").await;
    let guard = lock.acquire().await.unwrap();
    nodes.each(2, |f| f.freeze(Some("ours")));
    let left = guard.remaining();
    let started = Instant::now();
    let waiter = tokio::spawn(async move {
        let guard = theirs.acquire().await.unwrap();
        (Instant::now(), guard)
    });
    assert_eq!(guard.lost().await, LostReason::Expired);
    let lost = Instant::now();
    assert!(lost.duration_since(started) <= left);
    assert!(!guard.is_held());
    let (granted, next) = waiter.await.unwrap();
    assert!(granted > lost, "P1");
    assert!(next.is_held());
    drop(guard);
    nodes.each(2, |f| f.thaw(None));
    next.release().await.unwrap();
    nodes.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn the_next_client_acquires_after_a_hold_expires() {
    let nodes = Nodes::new(3);
    let (ours, theirs) = (nodes.lock("ours").await, nodes.lock("theirs").await);
    let options = manual(ms(1_000));
    let guard = ours.acquire_with(options).await.unwrap();
    let started = Instant::now();
    let next = theirs.acquire().await.unwrap();
    assert!(!guard.is_held());
    let waited = started.elapsed();
    assert!((ms(990)..ms(1_300)).contains(&waited), "{waited:?}");
    next.release().await.unwrap();
    drop(guard);
    nodes.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_node_that_loses_its_data_causes_no_second_holder() {
    let nodes = Nodes::new(3);
    let lock = nodes.lock("ours").await.lease(lease(ms(3_000)));
    let theirs = nodes.lock("theirs").await;
    let guard = lock.acquire().await.unwrap();
    nodes.faults(0).restart(Data::Lost);
    assert!(theirs.try_acquire().await.unwrap().is_none());
    let end = guard.valid_until();
    eventually("a quorum is renewed", || guard.valid_until() > end).await;
    assert_eq!(guard.nodes_held(), 2);
    assert!(theirs.try_acquire().await.unwrap().is_none());
    guard.release().await.unwrap();
    nodes.at_rest().await;
}

/// The documentation warns of this: two clients hold when a majority loses its data within a lease. The first one notices.
#[tokio::test(start_paused = true)]
async fn the_next_renewal_notices_that_a_majority_lost_its_data() {
    let nodes = Nodes::new(3);
    let lock = nodes.lock("ours").await.lease(lease(ms(3_000)));
    let theirs = nodes.lock("theirs").await;
    let guard = lock.acquire().await.unwrap();
    nodes.each(2, |f| f.restart(Data::Lost));
    let next = theirs.acquire().await.unwrap();
    let started = Instant::now();
    assert_eq!(guard.lost().await, LostReason::Gone);
    assert!(started.elapsed() <= ms(1_100));
    assert!(guard.release().await.is_err());
    assert!(next.is_held(), "the second hold is unaffected");
    next.release().await.unwrap();
    nodes.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_stepped_clock_of_one_node_causes_no_second_holder() {
    let nodes = Nodes::new(3);
    let (ours, theirs) = (nodes.lock("ours").await, nodes.lock("theirs").await);
    let options = AcquireOptions::new().renewal(Renewal::Manual);
    let guard = ours.acquire_with(options).await.unwrap();
    // The lease has ended on that node.
    nodes.faults(1).step_clock(60_000);
    for _ in 0..5 {
        assert!(theirs.try_acquire().await.unwrap().is_none());
        assert!(guard.is_held());
    }
    guard.release().await.unwrap();
    nodes.at_rest().await;
    theirs.acquire().await.unwrap().release().await.unwrap();
    nodes.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn an_acquire_dropped_anywhere_leaves_nothing_on_any_node() {
    for contended in [false, true] {
        let nodes = Nodes::new(3);
        let (ours, theirs) = (nodes.lock("ours").await, nodes.lock("theirs").await);
        // Nodes reply one after the other, so that a future can be dropped between any two replies.
        for node in 0..3_u32 {
            let delay = ms(3 + 4 * u64::from(node));
            nodes.faults(node as usize).delay(None, delay);
        }
        let polls = for_each_await_point(async |polls| {
            let held = if contended {
                Some(theirs.acquire().await.unwrap())
            } else {
                None
            };
            let releasing = tokio::spawn(async move {
                tokio::time::sleep(ms(60)).await;
                if let Some(held) = held {
                    held.release().await.unwrap();
                }
            });
            let covered = cancel_after(ours.acquire(), polls).await.is_some();
            releasing.await.unwrap();
            let started = Instant::now();
            nodes.at_rest().await;
            assert_within(started, secs(1), (contended, polls));
            covered
        })
        .await;
        assert!(polls > 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_dropped_anywhere_releases_every_node() {
    let nodes = Nodes::new(3);
    let lock = nodes.lock("ours").await;
    nodes.each(3, |f| f.delay(None, ms(5)));
    for_each_await_point(async |polls| {
        let guard = lock.acquire().await.unwrap();
        let done = cancel_after(guard.release(), polls).await.is_some();
        let started = Instant::now();
        nodes.at_rest().await;
        assert!(started.elapsed() < secs(1), "{polls} polls");
        done
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn replies_that_arrive_after_the_lease_are_no_quorum() {
    let nodes = Nodes::new(3);
    let lock = nodes
        .lock("ours")
        .await
        .lease(lease(ms(40)))
        .node_timeout(ms(500));
    nodes.each(2, |f| f.delay(None, ms(100)));
    let error = lock.try_acquire().await.unwrap_err();
    assert!(matches!(error, RedLockError::NoQuorum { .. }), "{error}");
    nodes.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn a_quorum_that_expires_before_the_round_ends_does_not_count() {
    let nodes = Nodes::new(3);
    let lock = nodes.lock("ours").await;
    // Two nodes grant in time. The round then waits for the silent third node, until the leases of 40 ms have ended.
    nodes.faults(0).delay(None, ms(5));
    nodes.faults(1).delay(None, ms(30));
    nodes.faults(2).freeze(None);
    let options = manual(ms(40));
    let error = lock.try_acquire_with(options).await.unwrap_err();
    assert!(matches!(error, RedLockError::NoQuorum { .. }), "{error}");
    nodes.faults(2).thaw(None);
    nodes.at_rest().await;
}

/// One minority after another fails. The clients still acquire, and never two at once.
#[tokio::test(start_paused = true)]
async fn random_faults_on_a_minority_cause_no_overlap_and_no_orphan() {
    for seed in 0..4 {
        let nodes = Arc::new(Nodes::new(3));
        let locks = [
            nodes.lock("one").await.lease(lease(ms(2_000))),
            nodes.lock("two").await.lease(lease(ms(2_000))),
            nodes.lock("three").await.lease(lease(ms(2_000))),
        ];
        let mut rng = fastrand::Rng::with_seed(seed);
        let done = Arc::new(AtomicU64::new(0));
        let holders = Arc::new(AtomicU64::new(0));
        let until = Instant::now() + secs(12);
        let tasks: Vec<_> = (0..6)
            .map(|task| {
                let lock = locks[task % 3].clone();
                let (done, holders) = (Arc::clone(&done), Arc::clone(&holders));
                let mut rng = rng.fork();
                tokio::spawn(async move {
                    while Instant::now() < until {
                        let Ok(guard) = lock.acquire().await else {
                            continue;
                        };
                        let work = Work::begin(&holders);
                        let pause = ms(rng.u64(0..30));
                        let outcome = guard.run(tokio::time::sleep(pause)).await;
                        drop(work);
                        if outcome.is_ok() {
                            done.fetch_add(1, Ordering::SeqCst);
                        }
                        finish(guard, rng.bool()).await;
                    }
                })
            })
            .collect();
        let storm = tokio::spawn({
            let (nodes, mut rng) = (Arc::clone(&nodes), rng.fork());
            async move {
                while Instant::now() < until {
                    let faults = nodes.faults(rng.usize(0..3));
                    match rng.u8(0..7) {
                        0 => faults.freeze(None),
                        5 => faults.restart(Data::Kept),
                        1 => faults.kill_connections(),
                        2 => faults.lose_replies("EVALSHA", 2),
                        3 => faults.lose_replies_silently("EVALSHA", 2),
                        4 => faults.lose_messages(2),
                        _ => faults.delay(None, ms(rng.u64(0..150))),
                    }
                    tokio::time::sleep(ms(rng.u64(1..1_500))).await;
                    faults.clear();
                }
            }
        });
        for task in tasks {
            tokio::time::timeout(secs(600), task)
                .await
                .unwrap_or_else(|_| panic!("seed {seed}: a task does not end"))
                .unwrap();
        }
        storm.await.unwrap();
        nodes.at_rest().await;
        let done = done.load(Ordering::SeqCst);
        assert!(done >= 150, "seed {seed}: {done}");
    }
}

async fn finish(guard: RedGuard, awaited: bool) {
    if awaited {
        // A failed release goes on in the background.
        let _ = guard.release().await;
    }
}

/// Protected work: never two at once.
struct Work<'a>(&'a AtomicU64);

impl<'a> Work<'a> {
    fn begin(holders: &'a AtomicU64) -> Self {
        assert_eq!(holders.fetch_add(1, Ordering::SeqCst), 0, "two holders");
        Self(holders)
    }
}

impl Drop for Work<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::SeqCst);
    }
}

#[tokio::test(start_paused = true)]
async fn an_acquire_without_a_quorum_gives_up_after_the_longest_outage_tolerance() {
    let nodes = Nodes::new(3);
    let mut clients = Vec::new();
    for (node, tolerance) in nodes.0.iter().zip([2, 5, 3]) {
        let config = node.config("ours");
        let config = config.outage_tolerance(secs(tolerance));
        clients.push(Client::connect_with(config).await.unwrap());
    }
    let lock = RedLock::new(&clients, "job").unwrap();
    nodes.each(2, |f| {
        f.refuse_connections(Switch::On);
        f.kill_connections();
    });
    let started = Instant::now();
    let error = lock.acquire().await.unwrap_err();
    assert!(matches!(error, RedLockError::NoQuorum { .. }), "{error}");
    let elapsed = started.elapsed();
    assert!((5_000..7_000).contains(&elapsed.as_millis()), "{elapsed:?}");
}
