//! `OnDeadlock::Fail`: exactly one waiter of a deadlock fails.

use std::time::Duration;

use stanchion::client::Presence;
use stanchion::survey::Actor;
use stanchion::{
    AcquireError, AcquireOptions, Client, FairLock, Lock, Lockable, MultiLock, OnDeadlock, RedLock,
    RedLockError, Rejection, RwLock, Semaphore,
};
use stanchion_tests::{World, assert_is, ms, secs};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

fn failing() -> AcquireOptions {
    AcquireOptions::new().on_deadlock(OnDeadlock::Fail)
}

fn lock(client: &Client, name: &str) -> Lock {
    Lock::new(client, name).unwrap()
}

type Ended = Result<(), AcquireError>;

/// Holds one name and, after `pause`, waits for another, in the scope of an actor; then releases both.
fn entangled(
    client: &Client,
    holds: &str,
    waits: &str,
    pause: Duration,
    options: AcquireOptions,
) -> JoinHandle<Ended> {
    let (holds, waits) = (lock(client, holds), lock(client, waits));
    let work = async move {
        let _held = holds.acquire().await?;
        sleep(pause).await;
        waits.acquire_with(options).await.map(drop)
    };
    tokio::spawn(client.actor("transfer").scope(work))
}

/// Returns the errors of the tasks, each of which must end within `limit`.
async fn ends(tasks: Vec<JoinHandle<Ended>>, limit: Duration) -> Vec<AcquireError> {
    let mut failed = Vec::new();
    for task in tasks {
        let ended = timeout(limit, task).await.unwrap().unwrap();
        failed.extend(ended.err());
    }
    failed
}

#[tokio::test(start_paused = true)]
async fn one_of_two_waiters_fails_and_the_other_acquires() {
    let (world, [a, b]) = World::engine().with_named(["a", "b"]).await;
    let older = entangled(&a, "x", "y", secs(1), failing());
    let began = Instant::now();
    let younger = entangled(&b, "y", "x", secs(2), failing());
    let error = timeout(secs(40), younger)
        .await
        .unwrap()
        .unwrap()
        .unwrap_err();
    assert!(
        (secs(16)..secs(32)).contains(&began.elapsed()),
        "{:?}",
        began.elapsed()
    );
    timeout(secs(5), older).await.unwrap().unwrap().unwrap();
    let AcquireError::Deadlock {
        name,
        waited,
        free_by,
        cycle,
    } = &error
    else {
        panic!("{error}");
    };
    assert_eq!((name.to_string().as_str(), *free_by), ("x", None));
    assert!(*waited > secs(15));
    let mut names: Vec<String> = cycle.iter().map(|edge| edge.name.to_string()).collect();
    names.sort();
    assert_eq!(names, ["x", "y"]);
    for edge in cycle {
        assert_eq!(edge.waiter.pid, Some(std::process::id()));
        assert_eq!(edge.waiter.label.as_deref(), Some("transfer"));
        assert!(edge.blocker.token.is_some());
    }
    let text = error.to_string();
    assert!(
        text.contains("for x, which a (pid ") && text.contains("transfer) as "),
        "{text}"
    );
    // P3
    world.at_rest().await;
}

#[tokio::test(start_paused = true)]
async fn exactly_one_of_n_waiters_fails_in_100_runs() {
    for round in 0..100_u64 {
        let world = World::engine();
        let size = 2 + usize::try_from(round % 4).unwrap();
        let clients = world.fleet(size).await;
        let mut rng = fastrand::Rng::with_seed(round);
        let name = |at: usize| format!("n{}", at % size);
        let tasks = (0..size).map(|at| {
            // Some waits begin in the same millisecond, others seconds apart.
            let pause = ms(1000 + [0, 1, 700, 9000][rng.usize(0..4)]);
            entangled(&clients[at], &name(at), &name(at + 1), pause, failing())
        });
        let failed = ends(tasks.collect(), secs(90)).await;
        assert_eq!(failed.len(), 1, "round {round}: {failed:?}");
        assert!(
            matches!(failed[0], AcquireError::Deadlock { .. }),
            "{}",
            failed[0]
        );
    }
}

#[tokio::test(start_paused = true)]
async fn only_a_waiter_with_the_option_fails_and_only_in_a_deadlock() {
    let (_world, [a, b]) = World::engine().with_clients().await;
    // Only the older waiter has the option.
    let older = entangled(&a, "x", "y", secs(1), failing());
    let younger = entangled(&b, "y", "x", secs(4), AcquireOptions::new());
    let failed = timeout(secs(60), older).await.unwrap().unwrap();
    assert_is!(failed, Err(AcquireError::Deadlock { .. }));
    timeout(secs(5), younger).await.unwrap().unwrap().unwrap();
    // A chain without a cycle, for two minutes.
    let held = lock(&b, "z").acquire().await.unwrap();
    let waits = entangled(&a, "x", "z", secs(1), failing());
    sleep(secs(120)).await;
    assert!(!waits.is_finished());
    held.release().await.unwrap();
    timeout(secs(5), waits).await.unwrap().unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_waiter_that_is_not_polled_is_skipped() {
    let (_world, [a, b]) = World::engine().with_clients().await;
    let older = entangled(&a, "x", "y", secs(1), failing());
    let (y, x) = (lock(&b, "y"), lock(&b, "x"));
    let actor = b.actor("stalled");
    let held = actor.scope(y.acquire()).await.unwrap();
    sleep(secs(3)).await;
    // The future is polled until it waits, and then not until the other waiter has failed.
    let mut younger = Box::pin(actor.scope(x.acquire_with(failing())));
    assert!(timeout(secs(2), &mut younger).await.is_err());
    let failed = timeout(secs(120), older).await.unwrap().unwrap();
    assert_is!(failed, Err(AcquireError::Deadlock { .. }));
    // The decision that this waiter should fail is out of date by now.
    drop(timeout(secs(5), younger).await.unwrap().unwrap());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn an_outdated_decision_to_fail_is_ignored() {
    let (_world, clients) = World::engine().with_fleet(3).await;
    let older = entangled(&clients[0], "x", "y", secs(1), failing());
    let (y, x) = (lock(&clients[1], "y"), lock(&clients[1], "x"));
    let actor = clients[1].actor("stalled");
    let held = actor.scope(y.acquire()).await.unwrap();
    sleep(secs(2)).await;
    // This waiter is the first for `x` and is in no deadlock.
    let between = tokio::spawn(lock(&clients[2], "x").acquire());
    sleep(secs(1)).await;
    let mut younger = Box::pin(actor.scope(x.acquire_with(failing())));
    assert!(timeout(secs(2), &mut younger).await.is_err());
    let failed = timeout(secs(120), older).await.unwrap().unwrap();
    assert_is!(failed, Err(AcquireError::Deadlock { .. }));
    let between = timeout(secs(5), between).await.unwrap().unwrap().unwrap();
    assert!(timeout(secs(30), &mut younger).await.is_err());
    between.release().await.unwrap();
    drop(timeout(secs(5), younger).await.unwrap().unwrap());
    drop(held);
}

#[tokio::test(start_paused = true)]
async fn a_waiter_whose_failure_resolves_nothing_keeps_waiting() {
    let (_world, clients) = World::engine().with_fleet(3).await;
    let fair = |client: &Client| FairLock::new(client, "tickets").unwrap();
    let (tickets, gate) = (fair(&clients[0]), lock(&clients[0], "gate"));
    let _first = tokio::spawn(clients[0].actor("first").scope(async move {
        let _held = tickets.acquire().await.unwrap();
        sleep(secs(3)).await;
        drop(gate.acquire().await);
    }));
    // This waiter holds nothing. The two others are in a deadlock without it, too.
    let tickets = fair(&clients[1]);
    let between = tokio::spawn(clients[1].actor("between").scope(async move {
        sleep(secs(1)).await;
        tickets.acquire_with(failing()).await
    }));
    let (tickets, gate) = (fair(&clients[2]), lock(&clients[2], "gate"));
    let _last = tokio::spawn(clients[2].actor("last").scope(async move {
        let _held = gate.acquire().await.unwrap();
        sleep(secs(2)).await;
        drop(tickets.acquire().await);
    }));
    sleep(secs(90)).await;
    assert_eq!(clients[0].deadlocks().await.unwrap().len(), 1);
    assert!(!between.is_finished());
}

#[tokio::test(start_paused = true)]
async fn a_dropped_wait_leaves_nothing_at_any_moment() {
    for moment in [0, 1, 900, 4_999, 5_001, 10_000, 16_400, 16_600, 18_000] {
        let (world, [a, b]) = World::engine().with_clients().await;
        let older = entangled(&a, "x", "y", secs(1), AcquireOptions::new());
        let younger = entangled(&b, "y", "x", secs(1), failing());
        sleep(secs(1) + ms(moment)).await;
        younger.abort();
        timeout(secs(5), older).await.unwrap().unwrap().unwrap();
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn fair_locks_rwlocks_and_multi_locks_support_on_deadlock_fail() {
    for kind in 0..4 {
        let (world, [a, b]) = World::engine().with_clients().await;
        let first = a.actor("first").scope({
            let (gate, fair) = (lock(&a, "gate"), FairLock::new(&a, "n").unwrap());
            let rw = RwLock::new(&a, "n").unwrap();
            let plain = lock(&a, "n");
            async move {
                let held: Box<dyn Send> = match kind {
                    0 => Box::new(fair.acquire().await?),
                    1 => Box::new(rw.read().await?),
                    2 => Box::new(rw.write().await?),
                    _ => Box::new(plain.acquire().await?),
                };
                sleep(secs(1)).await;
                drop(gate.acquire().await?);
                drop(held);
                Ok(())
            }
        });
        let second = b.actor("second").scope({
            let (gate, fair) = (lock(&b, "gate"), FairLock::new(&b, "n").unwrap());
            let rw = RwLock::new(&b, "n").unwrap();
            let (plain, other) = (lock(&b, "n"), lock(&b, "m"));
            let both = MultiLock::new([&other as &dyn Lockable, &plain]).unwrap();
            async move {
                let _gate = gate.acquire().await?;
                sleep(secs(2)).await;
                match kind {
                    0 => drop(fair.acquire_with(failing()).await?),
                    1 => drop(rw.write_with(failing()).await?),
                    2 => drop(rw.read_with(failing()).await?),
                    _ => drop(both.acquire_with(failing()).await?),
                }
                Ok(())
            }
        });
        let failed = ends(vec![tokio::spawn(first), tokio::spawn(second)], secs(60)).await;
        let [AcquireError::Deadlock { .. }] = &failed[..] else {
            panic!("{kind}: {failed:?}");
        };
        world.at_rest().await;
    }
}

#[tokio::test(start_paused = true)]
async fn an_option_without_effect_is_rejected() {
    let (world, client) = World::engine().with_client().await;
    let rule = |ended: Result<_, AcquireError>| match ended {
        Err(AcquireError::Rejected {
            rejection: Rejection::InvalidOption { rule },
            ..
        }) => rule,
        other => panic!("{other:?}"),
    };
    let x = lock(&client, "x");
    assert!(rule(x.acquire_with(failing()).await.map(drop)).contains("needs an actor"));
    // A spawned task is in no scope.
    let task = client
        .actor("a")
        .scope(async { tokio::spawn(x.acquire_with(failing())).await });
    assert!(rule(task.await.unwrap().map(drop)).contains("needs an actor"));
    let pool = Semaphore::new(&client, "pool").unwrap();
    let owned = failing().owner(&client.owner());
    drop(x.acquire_with(owned.clone()).await.unwrap());
    let actor: Actor = client.actor("a");
    let any: &dyn stanchion::Acquire = &x;
    drop(actor.scope(any.acquire_with(failing())).await.unwrap());
    let silent = Client::connect_with(world.config("silent").presence(Presence::Off))
        .await
        .unwrap();
    let refused = lock(&silent, "x").acquire_with(owned).await.map(drop);
    assert!(rule(refused).contains("Presence::On"));
    drop(pool);
    let nodes = [World::engine(), World::engine(), World::engine()];
    let mut clients = Vec::new();
    for node in &nodes {
        clients.push(node.client().await);
    }
    let red = RedLock::new(&clients, "x").unwrap();
    let refused = red.acquire_with(failing()).await;
    assert!(matches!(refused, Err(RedLockError::InvalidOption { .. })));
}

#[tokio::test(start_paused = true)]
async fn a_waiter_without_the_right_to_read_records_keeps_waiting() {
    let (world, [a, b]) = World::engine().with_clients().await;
    let refusal = "NOPERM No permissions to access a key";
    world.faults().fail_next("GET", refusal, 1000);
    let older = entangled(&a, "x", "y", secs(1), failing());
    let younger = entangled(&b, "y", "x", secs(2), failing());
    sleep(secs(200)).await;
    assert!(!older.is_finished() && !younger.is_finished());
    world.faults().clear();
    assert_eq!(ends(vec![older, younger], secs(60)).await.len(), 1);
}
