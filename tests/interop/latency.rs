//! Measured, not asserted: how long from a release to the wake of a waiter, within and across the languages.
//!
//! ```text
//! cargo test --release -p stanchion-tests --test interop -- --ignored --nocapture latency
//! ```

use std::time::Duration;

use serde_json::json;
use stanchion::{Client, Lock};
use stanchion_testkit::machine_clock;

use crate::java::{Jvm, Kind, Object};
use crate::support::*;

const WARM_UP: usize = 600;
const ROUNDS: usize = 1000;
/// Each pair is measured in turns, so that the machine's moods meet them all.
const TURNS: usize = 4;

/// One side of a hand-over.
enum Side {
    Java(Object),
    Rust(Lock),
}

fn now() -> u64 {
    machine_clock().as_nanos().try_into().unwrap()
}

/// From the call of the release in `from` to the return of the acquire in `to`, in ns.
async fn hand_over(fleet: &Fleet, from: &Side, to: &Side) -> u64 {
    let channel = channel("orders");
    let guard = match from {
        Side::Java(java) => {
            java.done("lock").await;
            None
        }
        Side::Rust(lock) => Some(lock.acquire().await.unwrap()),
    };
    let parked = fleet.scripts_run();
    let waiter = match to {
        Side::Java(java) => Err(java.start("lock", json!({}))),
        Side::Rust(lock) => Ok({
            let lock = lock.clone();
            tokio::spawn(async move {
                let guard = lock.acquire().await.unwrap();
                (guard, now())
            })
        }),
    };
    // It has tried, subscribed and tried again; its subscription may linger from the round before.
    while fleet.scripts_run() == parked || fleet.server.subscribers(&channel) == 0 {
        tokio::time::sleep(ms(1)).await;
    }
    tokio::time::sleep(ms(4)).await;
    let released = match (from, guard) {
        (Side::Java(java), _) => java.done("unlock").await.from,
        (Side::Rust(_), guard) => {
            let released = now();
            guard.unwrap().release().await.unwrap();
            released
        }
    };
    let woken = match (to, waiter) {
        (Side::Rust(_), Ok(waiter)) => {
            let (guard, woken) = within(SOON, waiter).await.unwrap();
            guard.release().await.unwrap();
            woken
        }
        (Side::Java(java), Err(waiter)) => {
            let woken = java_granted(waiter, SOON).await.to;
            java.done("unlock").await;
            woken
        }
        _ => unreachable!("the waiter is of the kind of its side"),
    };
    woken - released
}

#[derive(Default)]
struct Figures(Vec<u64>);

impl Figures {
    fn at(&self, part: f64) -> Duration {
        let mut sorted = self.0.clone();
        sorted.sort_unstable();
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "an index into a thousand samples"
        )]
        let index = ((sorted.len() - 1) as f64 * part) as usize;
        Duration::from_nanos(sorted[index])
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: nothing is asserted"]
#[expect(clippy::print_stdout, reason = "its purpose")]
async fn latency_from_release_to_wake() {
    // Two JVMs, as two services would be, with their optimising compilers on.
    let (Some(one), Some(two)) = (Jvm::start_with(&[]), Jvm::start_with(&[])) else {
        return;
    };
    let Some(fleet) = Fleet::start_in(one).await else {
        return;
    };
    let second = connect(&two, &fleet.server, json!({})).await;
    let java_one = Side::Java(fleet.java("a", Kind::Lock, "orders"));
    let java_two = Side::Java(second.object("b", Kind::Lock, "orders"));
    let (a, b): (Client, Client) = (fleet.rust().await, fleet.rust().await);
    let (rust_one, rust_two) = (
        Side::Rust(lock(&a, "orders")),
        Side::Rust(lock(&b, "orders")),
    );
    let pairs = [
        ("Redisson wakes Redisson", &java_one, &java_two),
        ("Redisson wakes stanchion", &java_one, &rust_one),
        ("stanchion wakes Redisson", &rust_one, &java_one),
        ("stanchion wakes stanchion", &rust_one, &rust_two),
    ];
    for (_, from, to) in pairs {
        for _ in 0..WARM_UP {
            hand_over(&fleet, from, to).await;
        }
    }
    let mut figures: [Figures; 4] = Default::default();
    for _ in 0..TURNS {
        for ((_, from, to), figures) in pairs.iter().zip(&mut figures) {
            for _ in 0..ROUNDS / TURNS {
                figures.0.push(hand_over(&fleet, from, to).await);
            }
        }
    }
    let base = figures[0].at(0.5).as_secs_f64();
    println!("{:28}{:>12}{:>12}{:>12}", "", "p50", "p99", "ratio");
    for ((what, ..), figures) in pairs.iter().zip(&figures) {
        let (p50, p99) = (figures.at(0.5), figures.at(0.99));
        let ratio = p50.as_secs_f64() / base;
        println!("{what:28}{p50:>12.1?}{p99:>12.1?}{ratio:>12.2}");
    }
}
