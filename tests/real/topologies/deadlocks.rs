//! `OnDeadlock::Fail` in a cluster: records and holders are read from several slots and nodes.

use std::collections::BTreeSet;
use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Client, FairLock, OnDeadlock};
use stanchion_testkit::{Cluster, eventually};
use stanchion_tests::{cluster, ms, secs};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::support::*;

/// The limit for a waiter to fail, with an allowance for checks that a loaded machine delays.
const GIVES_UP: Duration = secs(90);

/// The time from the first wait in which only one waiter fails. The second waiter in the order checks after 5 s, and then 4 times at
/// intervals of 11.5 s. If all checks of the first waiter have failed by then, both may fail.
const ONE_ALONE: Duration = secs(51);

/// Returns the deadlock errors of `tasks`, whose first wait begins after `before`: one error, or more if that was longer than
/// [`ONE_ALONE`] ago.
async fn given_up(
    tasks: Vec<JoinHandle<Result<(), AcquireError>>>,
    before: Instant,
) -> Vec<AcquireError> {
    let mut errors = Vec::new();
    for task in tasks {
        errors.extend(soon(GIVES_UP, task).await.unwrap().err());
    }
    let deadlock = |it: &AcquireError| matches!(it, AcquireError::Deadlock { .. });
    assert!(
        !errors.is_empty() && errors.iter().all(deadlock),
        "{errors:?}"
    );
    assert!(
        errors.len() == 1 || before.elapsed() > ONE_ALONE,
        "{errors:?}"
    );
    errors
}

fn failing() -> AcquireOptions {
    AcquireOptions::new().on_deadlock(OnDeadlock::Fail)
}

/// Holds one name and waits for another as one actor; then releases both.
fn entangled(client: &Client, holds: &str, waits: &str) -> JoinHandle<Result<(), AcquireError>> {
    let (holds, waits) = (lock(client, holds, LONG), lock(client, waits, LONG));
    let work = async move {
        let _held = holds.acquire().await?;
        tokio::time::sleep(ms(1_000)).await;
        waits.acquire_with(failing()).await.map(drop)
    };
    tokio::spawn(client.actor("transfer").scope(work))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_of_three_waiters_on_three_nodes_fails() {
    let Some(cluster) = cluster() else { return };
    // A name on each node.
    let names = ["a", "b", "c"];
    let nodes: BTreeSet<usize> = names.iter().map(|it| cluster.master_of_key(it)).collect();
    assert_eq!(nodes.len(), 3);
    let mut clients = Vec::new();
    for _ in names {
        clients.push(connect(cluster.url()).await);
    }
    let began = Instant::now();
    let tasks = (0..3).map(|at| entangled(&clients[at], names[at], names[(at + 1) % 3]));
    let errors = given_up(tasks.collect(), began).await;
    let AcquireError::Deadlock {
        cycle,
        free_by: None,
        ..
    } = &errors[0]
    else {
        panic!("{errors:?}");
    };
    let reported: BTreeSet<String> = cycle.iter().map(|edge| edge.name.to_string()).collect();
    assert_eq!(reported, names.map(str::to_owned).into());
    // P3: no node keeps a key.
    eventually("nothing is left", || leftovers(cluster.keys()).is_empty()).await;
}

/// The queue of the fair lock is on another node than the plain lock.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deadlock_with_a_fair_lock_on_another_node_is_found() {
    let Some(cluster) = Cluster::or_skip("a_deadlock_with_a_fair_lock_on_another_node_is_found")
    else {
        return;
    };
    let (a, b) = (connect(cluster.url()).await, connect(cluster.url()).await);
    assert_ne!(cluster.master_of_key("a"), cluster.master_of_key("b"));
    let fair = |client: &Client| FairLock::new(client, "b").unwrap();
    let began = Instant::now();
    let (plain, queue) = (lock(&a, "a", LONG), fair(&a));
    let first = tokio::spawn(a.actor("first").scope(async move {
        let _held = plain.acquire().await?;
        tokio::time::sleep(ms(1_000)).await;
        queue.acquire_with(failing()).await.map(drop)
    }));
    let (plain, queue) = (lock(&b, "a", LONG), fair(&b));
    let second = tokio::spawn(b.actor("second").scope(async move {
        let _held = queue.acquire().await?;
        tokio::time::sleep(ms(1_000)).await;
        plain.acquire_with(failing()).await.map(drop)
    }));
    given_up(vec![first, second], began).await;
    eventually("nothing is left", || leftovers(cluster.keys()).is_empty()).await;
}
