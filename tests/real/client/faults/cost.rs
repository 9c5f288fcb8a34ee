//! Tests that the cost of a wait does not grow with the number of other waiting names (P10, P11).
//!
//! The cost is the processor time of one thread. The test compares two measurements of one run.

use std::time::Duration;

use stanchion::{Background, Client, LockGuard};
use stanchion_tests::faults::*;
use tokio::runtime::Builder;

/// A lease and a poll interval that are too long for a renewal or a poll during the test.
const HOUR: Duration = secs(3_600);

/// Acquires `names`, and starts one waiter for each.
async fn park(client: &Client, names: std::ops::Range<usize>) -> Vec<LockGuard> {
    let mut held = Vec::new();
    for i in names {
        let lock = lock(client, &format!("parked-{i}"), HOUR);
        held.push(lock.acquire().await.unwrap());
        tokio::spawn(async move { drop(lock.acquire().await) });
    }
    held
}

/// Contends for 600 new names, one after the other: the client subscribes to each channel once and unsubscribes once.
async fn churn(client: &Client, run: &str) {
    for i in 0..600 {
        let lock = lock(client, &format!("{run}-{i}"), HOUR);
        let first = lock.acquire().await.unwrap();
        let second = tokio::spawn(lock.acquire());
        tokio::task::yield_now().await;
        first.release().await.unwrap();
        second.await.unwrap().unwrap().release().await.unwrap();
    }
}

/// The processor time of this thread so far, in ns.
fn used() -> u64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap();
    text.split(' ').next().unwrap().parse().unwrap()
}

/// The least processor time of three runs, in ns: a machine with too much work may cut a connection during one, and then all waiters subscribe again.
async fn least(client: &Client, run: &str) -> u64 {
    let mut least = u64::MAX;
    for n in 0..3 {
        let before = used();
        churn(client, &format!("{run}-{n}")).await;
        least = least.min(used() - before);
    }
    least
}

#[test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "the processor time of a thread is read from /proc"
)]
fn the_cost_of_a_wait_does_not_grow_with_the_number_of_other_waiting_names() {
    let Some(server) = server() else { return };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = config(server.url())
            .background(Background::CurrentRuntime)
            .poll_interval(HOUR);
        let client = Client::connect_with(config).await.unwrap();
        let mut held = park(&client, 0..100).await;
        churn(&client, "warm").await;
        let few = least(&client, "few").await;
        held.extend(park(&client, 100..6_000).await);
        churn(&client, "settle").await;
        let many = least(&client, "many").await;
        let ratio = u32::try_from(many * 100 / few).unwrap();
        assert!(ratio < 400, "{ratio} % of the time with 100 waiting names");
        drop(held);
    });
}
