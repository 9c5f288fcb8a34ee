//! `OnDeadlock::Fail` where names are in several slots, on several nodes: records and holders are read from wherever they are.

use std::collections::BTreeSet;
use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Client, FairLock, OnDeadlock};
use stanchion_testkit::{Cluster, eventually};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use crate::support::*;

/// Some look later than others, on a machine that does other things.
const GIVES_UP: Duration = Duration::from_secs(90);

/// The time from the first wait on in which only one gives up: the second in the order looks after 5 s, and 4 times more each 11.5 s.
/// Where the looks of the first have failed until then, both may give up.
const ONE_ALONE: Duration = Duration::from_secs(51);

/// Returns the deadlocks for which `tasks`, of which the first wait begins after `before`, gave up: one, or on a machine that has
/// stood still for long one or two.
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
async fn one_of_three_on_three_nodes_gives_up() {
    let Some(cluster) = Cluster::or_skip("one_of_three_on_three_nodes_gives_up") else {
        return;
    };
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
    let told: BTreeSet<String> = cycle.iter().map(|edge| edge.name.to_string()).collect();
    assert_eq!(told, names.map(str::to_owned).into());
    // P3: nothing stays, on no node.
    eventually("nothing is left", || leftovers(cluster.keys()).is_empty()).await;
}

/// A fair lock's queue is on its own node, and who is ahead in it is in the way.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_fair_lock_on_another_node_is_seen() {
    let Some(cluster) = Cluster::or_skip("a_fair_lock_on_another_node_is_seen") else {
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
