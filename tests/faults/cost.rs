//! P11, P10: work that must not grow with what merely waits. Counted in processor time of one thread, as a ratio within one run.

use std::time::Duration;

use stanchion::{Background, Client, LockGuard};
use tokio::runtime::Builder;

use crate::support::*;

/// A time so long that nothing is renewed and nobody polls while the test runs.
const AGES: Duration = Duration::from_secs(3_600);

/// Holds `names`, with one waiter at each.
async fn park(client: &Client, names: std::ops::Range<usize>) -> Vec<LockGuard> {
    let mut held = Vec::new();
    for i in names {
        let lock = lock(client, &format!("parked-{i}"), AGES);
        held.push(lock.acquire().await.unwrap());
        tokio::spawn(async move { drop(lock.acquire().await) });
    }
    held
}

/// Contends for names of their own, one after the other: each channel is wanted once and forgotten once.
async fn churn(client: &Client, run: &str) {
    for i in 0..600 {
        let lock = lock(client, &format!("{run}-{i}"), AGES);
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

#[test]
#[cfg_attr(
    not(target_os = "linux"),
    ignore = "the processor time of a thread is read from /proc"
)]
fn what_a_wait_costs_does_not_grow_with_the_names_that_others_wait_for() {
    let Some(server) = server() else { return };
    let runtime = Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let config = config(server.url())
            .background(Background::CurrentRuntime)
            .poll_interval(AGES);
        let client = Client::connect_with(config).await.unwrap();
        let mut held = park(&client, 0..100).await;
        churn(&client, "warm").await;
        let before = used();
        churn(&client, "few").await;
        let few = used() - before;
        held.extend(park(&client, 100..6_000).await);
        churn(&client, "settle").await;
        let before = used();
        churn(&client, "many").await;
        let many = used() - before;
        let ratio = u32::try_from(many * 100 / few).unwrap();
        assert!(
            ratio < 400,
            "{ratio} % of the time that it takes beside 100 names"
        );
        drop(held);
    });
}
