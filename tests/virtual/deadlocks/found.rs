//! `Client::deadlocks` finds and confirms deadlocks across names and processes, and reports none where there is none.

use stanchion::rwlock::Preference;
use stanchion::survey::{Actor, Certainty, Deadlock, InTheWay};
use stanchion::{AcquireOptions, Client, FairLock, Lock, LockGuard, Owner, RwLock, Semaphore};
use stanchion_tests::{JAVA, World, ms, secs};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

/// Spawns a task that holds one lock and waits for another.
fn holds_and_waits(
    client: &Client,
    holds: &str,
    waits: &str,
    options: AcquireOptions,
) -> JoinHandle<()> {
    let lock = |name: &str| Lock::new(client, name).unwrap();
    let (holds, waits) = (lock(holds), lock(waits));
    tokio::spawn(async move {
        let _held = holds.acquire_with(options.clone()).await.unwrap();
        sleep(secs(1)).await;
        let _both = waits.acquire_with(options).await;
        sleep(secs(600)).await;
    })
}

fn of(owner: &Owner) -> AcquireOptions {
    AcquireOptions::new().owner(owner)
}

async fn found(observer: &Client) -> Vec<Deadlock> {
    observer.deadlocks().await.unwrap()
}

/// The names that are waited for in a deadlock.
fn names(deadlock: &Deadlock) -> Vec<String> {
    let mut names: Vec<String> = (deadlock.edges.iter())
        .map(|edge| edge.name.to_string())
        .collect();
    names.sort();
    names
}

#[tokio::test(start_paused = true)]
async fn two_owners_that_wait_for_each_other_are_found_within_25_seconds() {
    let (world, [a, b]) = World::engine().with_named(["orders", "ledger"]).await;
    let observer = world.client().await;
    let started = Instant::now();
    let _a = holds_and_waits(&a, "x", "y", of(&a.owner()));
    let _b = holds_and_waits(&b, "y", "x", of(&b.owner()));
    let deadlocks = loop {
        let deadlocks = found(&observer).await;
        if !deadlocks.is_empty() {
            break deadlocks;
        }
        sleep(secs(1)).await;
    };
    assert!(started.elapsed() <= secs(25), "{:?}", started.elapsed());
    let [deadlock] = &deadlocks[..] else {
        panic!("{deadlocks:?}");
    };
    assert_eq!(
        (deadlock.certainty, deadlock.until),
        (Certainty::Certain, None)
    );
    assert_eq!(names(deadlock), ["x", "y"]);
    for edge in &deadlock.edges {
        let is_a = edge.waiter.client() == Some(a.id());
        assert_eq!(edge.name.to_string(), if is_a { "y" } else { "x" });
        assert_eq!(edge.way, InTheWay::Holds);
        assert_ne!(edge.waiter.client(), edge.blocker.client());
        assert!(edge.blocker.token.is_some() && edge.waiter.since > Some(secs(1)));
        assert_eq!(edge.waiter.app.as_deref() == Some("orders"), is_a);
    }
}

#[tokio::test(start_paused = true)]
async fn a_cycle_of_three_tasks_is_suspected_without_the_waiter_behind_it() {
    let world = World::engine();
    let mut clients = world.fleet(4).await;
    let behind = clients.pop().unwrap();
    let options = AcquireOptions::new;
    let _held = [("x", "y"), ("y", "z"), ("z", "x")]
        .iter()
        .zip(&clients)
        .map(|((holds, waits), client)| holds_and_waits(client, holds, waits, options()))
        .collect::<Vec<_>>();
    let _behind = holds_and_waits(&behind, "other", "x", options());
    sleep(secs(12)).await;
    let deadlocks = found(&behind).await;
    let [deadlock] = &deadlocks[..] else {
        panic!("{deadlocks:?}");
    };
    assert_eq!(deadlock.certainty, Certainty::Suspected);
    assert_eq!(names(deadlock), ["x", "y", "z"]);
    assert!(
        deadlock
            .edges
            .iter()
            .all(|edge| edge.waiter.client() != Some(behind.id()))
    );
}

#[tokio::test(start_paused = true)]
async fn a_deadlock_with_a_timeout_reports_when_it_ends() {
    let (_world, [a, b]) = World::engine().with_clients().await;
    let _a = holds_and_waits(&a, "x", "y", of(&a.owner()).timeout(secs(120)));
    let _b = holds_and_waits(&b, "y", "x", of(&b.owner()));
    sleep(secs(12)).await;
    let deadlocks = found(&a).await;
    let until = deadlocks[0].until.unwrap();
    assert!((secs(90)..secs(110)).contains(&until), "{until:?}");
}

#[tokio::test(start_paused = true)]
async fn a_chain_and_an_ended_deadlock_are_not_reported() {
    let (_world, [a, b]) = World::engine().with_clients().await;
    let _a = holds_and_waits(&a, "x", "y", of(&a.owner()));
    let held = Lock::new(&b, "y").unwrap().acquire().await.unwrap();
    sleep(secs(12)).await;
    assert_eq!(found(&b).await, []);
    held.release().await.unwrap();
    sleep(secs(12)).await;
    // A real deadlock, which ends before `deadlocks` has confirmed it.
    let owner = b.owner();
    let holding = holds_and_waits(&b, "z", "x", of(&owner));
    let waiting = tokio::spawn(Lock::new(&a, "z").unwrap().acquire());
    sleep(secs(12)).await;
    let looking = tokio::spawn({
        let b = b.clone();
        async move { found(&b).await }
    });
    sleep(secs(2)).await;
    waiting.abort();
    holding.abort();
    assert_eq!(looking.await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_guard_that_moved_to_another_task_is_only_suspected() {
    let (_world, [a, b]) = World::engine().with_clients().await;
    let (give, take) = oneshot::channel::<LockGuard>();
    let (x, y) = (Lock::new(&a, "x").unwrap(), Lock::new(&a, "y").unwrap());
    // The first task gives its guard to the second task and then waits. The second task could release the guard at any time.
    let _giver = tokio::spawn(async move {
        let held = x.acquire().await.unwrap();
        give.send(held).unwrap();
        sleep(secs(1)).await;
        let _y = y.acquire().await;
    });
    let _taker = tokio::spawn(async move {
        let _held = take.await.unwrap();
        sleep(secs(600)).await;
    });
    let _b = holds_and_waits(&b, "y", "x", AcquireOptions::new());
    sleep(secs(12)).await;
    let [deadlock] = &found(&b).await[..] else {
        panic!("one deadlock is suspected");
    };
    assert_eq!(deadlock.certainty, Certainty::Suspected);
}

#[tokio::test(start_paused = true)]
async fn a_reader_and_a_writer_form_a_deadlock_and_readers_alone_do_not() {
    let (_world, [a, b]) = World::engine().with_clients().await;
    let reader = |client: &Client| RwLock::new(client, "prices").unwrap();
    // `a` reads `prices` and waits for `x`. `b` holds `x` and waits to write `prices`.
    let (prices, x) = (reader(&a), Lock::new(&a, "x").unwrap());
    let owner = a.owner();
    let _a = tokio::spawn(async move {
        let _reads = prices.read_with(of(&owner)).await.unwrap();
        sleep(secs(1)).await;
        let _x = x.acquire_with(of(&owner)).await;
    });
    let (prices, x) = (reader(&b), Lock::new(&b, "x").unwrap());
    let owner = b.owner();
    let _b = tokio::spawn(async move {
        let _x = x.acquire_with(of(&owner)).await.unwrap();
        sleep(secs(1)).await;
        let _writes = prices.write_with(of(&owner)).await;
    });
    sleep(secs(12)).await;
    let deadlocks = found(&a).await;
    let [deadlock] = &deadlocks[..] else {
        panic!("{deadlocks:?}");
    };
    assert_eq!(deadlock.certainty, Certainty::Certain);
    assert_eq!(names(deadlock), ["prices", "x"]);
    let (_world, [a, b]) = World::engine().with_clients().await;
    let _reads = (
        reader(&a).read().await.unwrap(),
        reader(&b).read().await.unwrap(),
    );
    sleep(secs(12)).await;
    assert_eq!(found(&a).await, []);
}

#[tokio::test(start_paused = true)]
async fn a_holder_of_a_permit_that_can_proceed_prevents_a_deadlock() {
    for (permits, stuck) in [(3, false), (2, true)] {
        let (_world, clients) = World::engine().with_fleet(4).await;
        let pool = |client: &Client| Semaphore::new(client, "pool").unwrap();
        let gate = |client: &Client| Lock::new(client, "gate").unwrap();
        pool(&clients[0]).init(permits).await.unwrap();
        // Two clients hold a permit and wait for the gate. The holder of the gate waits for a permit.
        for client in &clients[..2] {
            let (pool, gate) = (pool(client), gate(client));
            tokio::spawn(async move {
                let _permit = pool.acquire().await.unwrap();
                sleep(secs(2)).await;
                let _gate = gate.acquire().await;
            });
        }
        let (last, gate) = (pool(&clients[2]), gate(&clients[2]));
        tokio::spawn(async move {
            let _gate = gate.acquire().await.unwrap();
            sleep(secs(2)).await;
            let _permit = last.acquire().await;
        });
        sleep(secs(1)).await;
        // With three permits, the third holder waits for nothing.
        let _third = pool(&clients[3]).try_acquire().await.unwrap();
        sleep(secs(12)).await;
        let deadlocks = found(&clients[3]).await;
        assert_eq!(deadlocks.len(), usize::from(stuck), "{deadlocks:?}");
        assert!(
            deadlocks
                .iter()
                .all(|it| it.certainty == Certainty::Suspected)
        );
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_record_of_a_dead_process_confirms_no_deadlock() {
    let (world, [a, b]) = World::engine().with_named(["a", "b"]).await;
    let observer = world.named("observer").await;
    let _a = holds_and_waits(&a, "x", "y", of(&a.owner()));
    let _b = holds_and_waits(&b, "y", "x", of(&b.owner()));
    sleep(secs(12)).await;
    assert_eq!(observer.survey().await.unwrap().deadlocks().len(), 1);
    let looking = tokio::spawn({
        let observer = observer.clone();
        async move { found(&observer).await }
    });
    sleep(ms(100)).await;
    // The record of `b` lasts for 30 s after its last update.
    let faults = world.faults();
    faults.freeze(Some("b"));
    faults.kill_label("b");
    sleep(secs(11)).await;
    assert_eq!(observer.survey().await.unwrap().deadlocks().len(), 1);
    assert_eq!(looking.await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_scope_is_one_actor_and_includes_a_spawned_task_only_if_passed_on() {
    for passed_on in [true, false] {
        let (_world, [a, b]) = World::engine().with_named(["a", "b"]).await;
        let mut tasks = Vec::new();
        for (client, holds, waits) in [(&a, "x", "y"), (&b, "y", "x")] {
            let lock = |name| Lock::new(client, name).unwrap();
            let (holds, waits) = (lock(holds), lock(waits));
            let transfer = client.actor(format!("transfer\n{}", client.id()));
            let work = async move {
                let _held = holds.acquire().await.unwrap();
                sleep(secs(1)).await;
                let waiting = async move { drop(waits.acquire().await) };
                let waiting = match Actor::current().filter(|_| passed_on) {
                    Some(actor) => tokio::spawn(actor.scope(waiting)),
                    None => tokio::spawn(waiting),
                };
                waiting.await.unwrap();
            };
            tasks.push(tokio::spawn(transfer.scope(work)));
        }
        sleep(secs(12)).await;
        let deadlocks = found(&a).await;
        assert_eq!(deadlocks.len(), usize::from(passed_on), "{deadlocks:?}");
        for deadlock in deadlocks {
            assert_eq!(deadlock.certainty, Certainty::Certain);
            let label = deadlock.edges[0].waiter.label.clone().unwrap();
            assert!(label.starts_with("transfer "), "{label}");
        }
        tasks.iter().for_each(JoinHandle::abort);
    }
}

#[tokio::test(start_paused = true)]
async fn a_waiter_ahead_in_a_fair_queue_is_a_blocker() {
    let (_world, clients) = World::engine().with_fleet(3).await;
    let fair = |client: &Client| FairLock::new(client, "tickets").unwrap();
    // Client 0 holds `tickets` and waits for `gate`. Client 1 holds nothing and queues for `tickets`. Client 2 holds `gate` and queues
    // behind client 1.
    let (tickets, gate) = (fair(&clients[0]), Lock::new(&clients[0], "gate").unwrap());
    let owner = clients[0].owner();
    tokio::spawn(async move {
        let _held = tickets.acquire_with(of(&owner)).await.unwrap();
        sleep(secs(3)).await;
        drop(gate.acquire_with(of(&owner)).await);
    });
    let (tickets, owner) = (fair(&clients[1]), clients[1].owner());
    tokio::spawn(async move {
        sleep(secs(1)).await;
        drop(tickets.acquire_with(of(&owner)).await);
    });
    let (tickets, gate) = (fair(&clients[2]), Lock::new(&clients[2], "gate").unwrap());
    let owner = clients[2].owner();
    tokio::spawn(async move {
        let _held = gate.acquire_with(of(&owner)).await.unwrap();
        sleep(secs(2)).await;
        drop(tickets.acquire_with(of(&owner)).await);
    });
    sleep(secs(14)).await;
    let deadlocks = found(&clients[0]).await;
    let [deadlock] = &deadlocks[..] else {
        panic!("{deadlocks:?}");
    };
    assert_eq!(deadlock.certainty, Certainty::Certain);
    let mut ahead = deadlock
        .edges
        .iter()
        .filter(|edge| edge.way == InTheWay::Ahead);
    let edge = ahead.next().unwrap();
    assert_eq!(edge.waiter.client(), Some(clients[2].id()));
    assert_eq!(edge.blocker.client(), Some(clients[1].id()));
    assert_eq!(ahead.next(), None);
}

#[tokio::test(start_paused = true)]
async fn a_waiting_writer_that_blocks_readers_is_a_blocker() {
    let (_world, clients) = World::engine().with_fleet(3).await;
    let prices = |client: &Client| {
        let prices = RwLock::new(client, "prices").unwrap();
        prices.preference(Preference::Writer)
    };
    // Client 0 reads and waits for `gate`. Client 1 waits to write. Client 2 holds `gate` and waits to read behind the writer.
    let (reads, gate) = (prices(&clients[0]), Lock::new(&clients[0], "gate").unwrap());
    let owner = clients[0].owner();
    let first = tokio::spawn(async move {
        let _reads = reads.read_with(of(&owner)).await.unwrap();
        sleep(secs(3)).await;
        drop(gate.acquire_with(of(&owner)).await);
    });
    let (writes, owner) = (prices(&clients[1]), clients[1].owner());
    let writing = tokio::spawn(async move {
        sleep(secs(1)).await;
        drop(writes.write_with(of(&owner)).await);
    });
    let (reads, gate) = (prices(&clients[2]), Lock::new(&clients[2], "gate").unwrap());
    let owner = clients[2].owner();
    tokio::spawn(async move {
        let _gate = gate.acquire_with(of(&owner)).await.unwrap();
        sleep(secs(2)).await;
        drop(reads.read_with(of(&owner)).await);
    });
    sleep(secs(14)).await;
    let deadlocks = found(&clients[1]).await;
    let [deadlock] = &deadlocks[..] else {
        panic!("{deadlocks:?}");
    };
    assert_eq!(deadlock.edges.len(), 3, "{deadlock:?}");
    assert_eq!(deadlock.certainty, Certainty::Certain);
    writing.abort();
    sleep(secs(12)).await;
    assert!(first.is_finished(), "without the writer all can proceed");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_can_proceed_does_not_resolve_the_deadlock_of_a_writer() {
    for stuck in [true, false] {
        let (_world, clients) = World::engine().with_fleet(3).await;
        let prices = |client: &Client| RwLock::new(client, "prices").unwrap();
        let (reads, gate) = (prices(&clients[0]), Lock::new(&clients[0], "gate").unwrap());
        let owner = clients[0].owner();
        tokio::spawn(async move {
            let _reads = reads.read_with(of(&owner)).await.unwrap();
            sleep(secs(2)).await;
            if stuck {
                drop(gate.acquire_with(of(&owner)).await);
            }
            sleep(secs(600)).await;
        });
        let _reads = prices(&clients[1]).read().await.unwrap();
        let (writes, gate) = (prices(&clients[2]), Lock::new(&clients[2], "gate").unwrap());
        let owner = clients[2].owner();
        tokio::spawn(async move {
            let _gate = gate.acquire_with(of(&owner)).await.unwrap();
            sleep(secs(1)).await;
            drop(writes.write_with(of(&owner)).await);
        });
        sleep(secs(14)).await;
        let deadlocks = found(&clients[1]).await;
        assert_eq!(deadlocks.len(), usize::from(stuck), "{deadlocks:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn redisson_threads_are_found_through_the_state_of_the_locks() {
    let (world, client) = World::engine().with_client().await;
    let fair = |name: &str| FairLock::new(&client, name).unwrap();
    // Redisson holds `x` and queues for `y`. This client holds `y` and waits for `x`.
    let _ = world.admin(&["HSET", "x", JAVA, "1"]);
    let _ = world.admin(&["PEXPIRE", "x", "600000"]);
    let _own = holds_and_waits_fairly(&client, &fair("y"), &fair("x"));
    sleep(secs(2)).await;
    let _ = world.admin(&["RPUSH", "redisson_lock_queue:{y}", JAVA]);
    let until = "9999999999999";
    let _ = world.admin(&["ZADD", "redisson_lock_timeout:{y}", until, JAVA]);
    sleep(secs(12)).await;
    let deadlocks = found(&client).await;
    let [deadlock] = &deadlocks[..] else {
        panic!("{deadlocks:?}");
    };
    assert_eq!(
        (deadlock.certainty, names(deadlock)),
        (Certainty::Certain, vec!["x".into(), "y".into()])
    );
    let java = deadlock
        .edges
        .iter()
        .filter(|edge| edge.waiter.owner == JAVA);
    assert!(
        java.clone()
            .all(|edge| edge.waiter.app.is_none() && edge.waiter.since.is_none())
    );
    assert_eq!(java.count(), 1);
}

fn holds_and_waits_fairly(client: &Client, holds: &FairLock, waits: &FairLock) -> JoinHandle<()> {
    let (owner, holds, waits) = (client.owner(), holds.clone(), waits.clone());
    tokio::spawn(async move {
        let _held = holds.acquire_with(of(&owner)).await.unwrap();
        drop(waits.acquire_with(of(&owner)).await);
    })
}
