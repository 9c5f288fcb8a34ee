//! Tests RedLock, which holds a lock on a majority of independent servers.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use stanchion::redlock::{InvalidNodes, NodeOutcome};
use stanchion::{
    AcquireError, AcquireOptions, Client, Lock, LostReason, RedGuard, RedLock, RedLockError,
    Rejection, ReleaseError,
};
use stanchion_testkit::eventually;
use stanchion_tests::{World, kept, lease, ms, secs, spawn_ok};

suite! {
    a_hold_is_on_every_counted_node_and_its_release_leaves_no_keys,
    only_one_owner_holds_the_quorum,
    a_release_wakes_a_waiter_of_another_process,
    locks_on_a_majority_of_nodes_block_a_redlock_and_on_a_minority_do_not,
    a_timeout_error_reports_the_outcome_of_each_node,
    the_loss_of_a_majority_loses_the_hold,
    the_validity_is_the_lease_minus_elapsed_time_and_drift,
    bad_nodes_are_refused_before_anything_is_sent,
    foreign_keys_on_a_majority_are_an_error,
    many_contenders_never_hold_at_once,
}

/// Acquires until all nodes are held: on a busy machine the last node's reply may be too late to be counted.
async fn everywhere(lock: &RedLock) -> RedGuard {
    loop {
        let guard = lock.acquire().await.unwrap();
        if guard.nodes_held() == lock.nodes() {
            return guard;
        }
        guard.release().await.unwrap();
    }
}

/// Starts `n` servers of the same kind as `like`.
fn nodes(like: &World, n: usize) -> Vec<World> {
    let node = || match like {
        World::Engine(_) => World::engine(),
        World::Server(_) => World::server("a node").unwrap(),
    };
    (0..n).map(|_| node()).collect()
}

/// Connects a client to each node, as another process would.
async fn clients(nodes: &[World]) -> Vec<Client> {
    let mut clients = Vec::new();
    for node in nodes {
        clients.push(node.client().await);
    }
    clients
}

async fn redlock(nodes: &[World]) -> RedLock {
    let lock = RedLock::new(&clients(nodes).await, "job").unwrap();
    match &nodes[0] {
        World::Engine(_) => lock,
        // A server of a busy machine may need longer than the usual timeout.
        World::Server(_) => lock.node_timeout(secs(2)),
    }
}

async fn at_rest(nodes: &[World]) {
    for node in nodes {
        node.at_rest().await;
    }
}

fn held_on(nodes: &[World]) -> usize {
    let held = |node: &&World| node.keys().contains(&"job".to_owned());
    nodes.iter().filter(held).count()
}

async fn a_hold_is_on_every_counted_node_and_its_release_leaves_no_keys(world: &World) {
    for n in [3, 5] {
        let nodes = nodes(world, n);
        let lock = redlock(&nodes).await;
        assert_eq!((lock.nodes(), lock.quorum()), (n, n / 2 + 1));
        for verb in 0..3 {
            let guard = match verb {
                0 => lock.acquire().await.unwrap(),
                1 => lock.try_acquire().await.unwrap().unwrap(),
                _ => lock.acquire_timeout(secs(5)).await.unwrap(),
            };
            assert!(guard.is_held());
            assert_eq!(guard.name().to_string(), "job");
            eventually("the held nodes are the counted ones", || {
                held_on(&nodes) == guard.nodes_held()
            })
            .await;
            assert!(guard.nodes_held() >= lock.quorum());
            guard.renew().await.unwrap();
            if verb == 0 {
                drop(guard);
            } else {
                guard.release().await.unwrap();
            }
            at_rest(&nodes).await;
            for node in &nodes {
                // Tokens of different nodes are not comparable, so none is minted.
                assert_eq!(node.admin(&["DBSIZE"]), "0");
            }
        }
    }
}

async fn only_one_owner_holds_the_quorum(world: &World) {
    let nodes = nodes(world, 3);
    let (ours, theirs) = (redlock(&nodes).await, redlock(&nodes).await);
    let guard = ours.acquire().await.unwrap();
    assert!(theirs.try_acquire().await.unwrap().is_none());
    assert!(ours.try_acquire().await.unwrap().is_none(), "a new owner");
    let error = theirs.acquire_timeout(Duration::ZERO).await.unwrap_err();
    assert!(matches!(error, RedLockError::TimedOut { .. }), "{error}");
    assert!(guard.is_held());
    guard.release().await.unwrap();
    let guard = theirs.try_acquire().await.unwrap().unwrap();
    guard.release().await.unwrap();
    at_rest(&nodes).await;
}

async fn a_release_wakes_a_waiter_of_another_process(world: &World) {
    let nodes = nodes(world, 3);
    let (ours, theirs) = (redlock(&nodes).await, clients(&nodes).await);
    let waiting = RedLock::new(&theirs, "job").unwrap();
    for _ in 0..3 {
        let guard = everywhere(&ours).await;
        let waiter = spawn_ok(waiting.acquire());
        eventually("the call waits at one node", || {
            theirs.iter().map(Client::waiters).sum::<usize>() == 1
        })
        .await;
        for node in &nodes {
            node.quiet().await;
        }
        assert_eq!(held_on(&nodes), 3);
        let started = tokio::time::Instant::now();
        guard.release().await.unwrap();
        let guard = waiter.await.unwrap();
        assert!(
            started.elapsed() < world.limit(ms(100)),
            "{:?}",
            started.elapsed()
        );
        guard.release().await.unwrap();
    }
    at_rest(&nodes).await;
}

async fn locks_on_a_majority_of_nodes_block_a_redlock_and_on_a_minority_do_not(world: &World) {
    let nodes = nodes(world, 5);
    let (lock, others) = (redlock(&nodes).await, clients(&nodes).await);
    let mut singles = Vec::new();
    for (i, other) in others.iter().enumerate() {
        let single = Lock::new(other, "job").unwrap();
        singles.push(single.acquire().await.unwrap());
        let guard = lock.try_acquire().await.unwrap();
        assert_eq!(guard.is_some(), i < 2, "{} nodes are held", i + 1);
        if let Some(guard) = guard {
            assert!(guard.nodes_held() >= lock.quorum());
            guard.release().await.unwrap();
        }
        eventually("the others are rolled back", || held_on(&nodes) == i + 1).await;
    }
    drop(singles);
    at_rest(&nodes).await;
}

async fn a_timeout_error_reports_the_outcome_of_each_node(world: &World) {
    let nodes = nodes(world, 3);
    let (lock, others) = (redlock(&nodes).await, clients(&nodes).await);
    let held = [
        Lock::new(&others[0], "job")
            .unwrap()
            .acquire()
            .await
            .unwrap(),
        Lock::new(&others[2], "job")
            .unwrap()
            .acquire()
            .await
            .unwrap(),
    ];
    for timeout in [Duration::ZERO, ms(150)].map(|it| world.limit(it)) {
        let started = tokio::time::Instant::now();
        let error = lock.acquire_timeout(timeout).await.unwrap_err();
        assert!(
            started.elapsed() <= world.limit(timeout + ms(50)),
            "{:?} for {timeout:?}",
            started.elapsed()
        );
        let outcomes: Vec<_> = error.nodes().iter().map(|report| &report.outcome).collect();
        assert!(
            matches!(
                outcomes[..],
                [
                    NodeOutcome::Busy,
                    NodeOutcome::Granted | NodeOutcome::Unanswered,
                    NodeOutcome::Busy
                ]
            ),
            "{error}"
        );
        let text = error.to_string();
        assert!(
            text.starts_with("timed out after ")
                && text.contains("waiting for job: node 0: held by somebody else; node 1: "),
            "{text}"
        );
        let as_acquire: AcquireError = error.into();
        assert!(matches!(as_acquire, AcquireError::TimedOut { .. }));
        eventually("the third is rolled back", || held_on(&nodes) == 2).await;
    }
    drop(held);
    at_rest(&nodes).await;
}

async fn the_loss_of_a_majority_loses_the_hold(world: &World) {
    let nodes = nodes(world, 3);
    let (lock, others) = (redlock(&nodes).await, clients(&nodes).await);
    let lock = lock.lease(kept());
    let guard = everywhere(&lock).await;
    let take = async |i: usize| {
        let single = Lock::new(&others[i], "job").unwrap();
        assert!(single.danger().force_release().await.unwrap());
    };
    take(1).await;
    eventually("one loss is noticed", || guard.nodes_held() == 2).await;
    assert!(guard.is_held());
    let end = guard.valid_until();
    eventually("a quorum is renewed", || guard.valid_until() > end).await;
    take(0).await;
    let lost = guard.run(std::future::pending::<()>()).await.unwrap_err();
    assert_eq!(lost.reason, LostReason::Gone);
    assert!(!guard.is_held());
    assert_eq!(guard.remaining(), Duration::ZERO);
    assert!(matches!(
        guard.release().await.unwrap_err(),
        ReleaseError::Lost(_)
    ));
    at_rest(&nodes).await;
}

async fn the_validity_is_the_lease_minus_elapsed_time_and_drift(world: &World) {
    let nodes = nodes(world, 3);
    let lock = redlock(&nodes).await;
    let lease = lease(secs(10));
    let options = AcquireOptions::new().lease(lease);
    let guard = lock.acquire_with(options).await.unwrap();
    // The lease minus the elapsed time and the clock drift, which is 1 % of the lease.
    assert!(guard.remaining() <= ms(9_900));
    assert!(guard.remaining() > ms(9_000));
    for node in &nodes {
        let ttl: u64 = node.admin(&["PTTL", "job"]).parse().unwrap();
        assert!((9_000..=10_000).contains(&ttl), "{ttl}");
    }
    guard.release().await.unwrap();
    at_rest(&nodes).await;
}

async fn bad_nodes_are_refused_before_anything_is_sent(world: &World) {
    let nodes = nodes(world, 4);
    let clients = clients(&nodes).await;
    let refused = |clients: &[&Client]| RedLock::new(clients.iter().copied(), "job").unwrap_err();
    let [a, b, c, d] = &clients[..] else {
        unreachable!()
    };
    assert_eq!(refused(&[]), InvalidNodes::TooFew { nodes: 0 });
    assert_eq!(refused(&[a, b]), InvalidNodes::TooFew { nodes: 2 });
    assert_eq!(refused(&[a, b, c, d]), InvalidNodes::Even { nodes: 4 });
    let twice = InvalidNodes::SameServer {
        first: 0,
        second: 2,
    };
    assert_eq!(refused(&[a, b, a]), twice);
    let again = nodes[0].client().await;
    assert_eq!(
        refused(&[a, b, &again]),
        twice,
        "another client of a server"
    );
    assert_eq!(
        twice.to_string(),
        "nodes 0 and 2 are the same server: a quorum is one of independent servers"
    );
    assert!(matches!(
        RedLock::new([a, b, c], "").unwrap_err(),
        InvalidNodes::Name(_)
    ));
    let options = AcquireOptions::new().owner(&a.owner());
    let error = RedLock::new([a, b, c], "job")
        .unwrap()
        .acquire_with(options)
        .await
        .unwrap_err();
    assert!(
        matches!(&error, RedLockError::InvalidOption { rule, .. } if rule.contains("owner")),
        "{error}"
    );
    for node in &nodes {
        assert_eq!(node.scripts_run(), 0);
    }
}

async fn foreign_keys_on_a_majority_are_an_error(world: &World) {
    let nodes = nodes(world, 3);
    let lock = redlock(&nodes).await;
    let _ = nodes[0].admin(&["SET", "job", "precious"]);
    let guard = lock.acquire().await.unwrap();
    guard.release().await.unwrap();
    let _ = nodes[1].admin(&["SET", "job", "precious"]);
    for error in [
        lock.acquire().await.unwrap_err(),
        lock.try_acquire().await.unwrap_err(),
    ] {
        assert!(
            matches!(&error, RedLockError::Rejected { nodes, .. } if matches!(
                &nodes[1].outcome,
                NodeOutcome::Failed(AcquireError::Rejected { rejection: Rejection::WrongType { .. }, .. })
            )),
            "{error}"
        );
    }
    nodes[2].at_rest().await;
    for node in &nodes[..2] {
        assert_eq!(node.admin(&["GET", "job"]), "precious");
    }
}

async fn many_contenders_never_hold_at_once(world: &World) {
    let nodes = nodes(world, 3);
    let inside = Arc::new(AtomicU64::new(0));
    let mut tasks = Vec::new();
    let mut rng = fastrand::Rng::with_seed(3);
    let started = tokio::time::Instant::now();
    for _ in 0..4 {
        // Each process lists the nodes in a different order.
        let mut clients = clients(&nodes).await;
        rng.shuffle(&mut clients);
        let lock = RedLock::new(&clients, "job").unwrap();
        for _ in 0..2 {
            let (lock, inside, mut rng) = (lock.clone(), Arc::clone(&inside), rng.fork());
            tasks.push(tokio::spawn(async move {
                for _ in 0..10 {
                    let guard = lock.acquire().await.unwrap();
                    assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two holders");
                    tokio::time::sleep(Duration::from_micros(rng.u64(0..1_500))).await;
                    inside.fetch_sub(1, Ordering::SeqCst);
                    if rng.bool() {
                        guard.release().await.unwrap();
                    }
                }
            }));
        }
    }
    for task in tasks {
        tokio::time::timeout(secs(60), task)
            .await
            .expect("every task acquires")
            .unwrap();
    }
    if let World::Engine(_) = world {
        // The processes queue at the same node. If each queued at a different one, they would split the nodes, which takes seconds.
        let took = started.elapsed();
        assert!(took < secs(1), "{took:?}");
    }
    at_rest(&nodes).await;
}
