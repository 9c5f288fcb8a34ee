//! Measures the time from a release to the grant of a waiter, within and across the libraries. Nothing is asserted.
//!
//! ```text
//! cargo test --release -p stanchion-tests --test java -- --ignored --nocapture latency
//! ```

use std::time::Duration;

use serde_json::json;
use stanchion::{FairLock, FairLockGuard, Lock, LockGuard};
use stanchion_testkit::machine_clock;
use stanchion_tests::interop::*;
use stanchion_tests::java::{Jvm, Kind, Object, Redisson};

const WARM_UP: usize = 500;
const ROUNDS: usize = 1000;
/// The pairs are measured in turns, so that changes of the machine's load affect all of them.
const TURNS: usize = 4;

/// One side of a hand-over.
enum Side {
    Java(Object),
    Lock(Lock),
    Fair(FairLock),
}

enum Held {
    Java,
    Lock(LockGuard),
    Fair(FairLockGuard),
}

fn now() -> u64 {
    machine_clock().as_nanos().try_into().unwrap()
}

impl Side {
    /// Waits for the lock. Returns the hold and the time of the grant in ns.
    async fn acquire(&self) -> (Held, u64) {
        match self {
            Self::Java(java) => {
                let granted = java_granted(java.start("lock", json!({})), SOON).await.to;
                (Held::Java, granted)
            }
            Self::Lock(lock) => {
                let guard = lock.acquire().await.unwrap();
                (Held::Lock(guard), now())
            }
            Self::Fair(lock) => {
                let guard = lock.acquire().await.unwrap();
                (Held::Fair(guard), now())
            }
        }
    }

    /// Releases the hold. Returns the time at which the call began, in ns.
    async fn release(&self, held: Held) -> u64 {
        let began = now();
        match (self, held) {
            (Self::Java(java), _) => return java.done("unlock").await.from,
            (_, Held::Lock(guard)) => guard.release().await.unwrap(),
            (_, Held::Fair(guard)) => guard.release().await.unwrap(),
            (_, Held::Java) => unreachable!("held by the other side"),
        }
        began
    }
}

/// The time from the call of the release in `from` to the return of the acquire in `to`, in ns.
async fn hand_over(fleet: &Fleet, from: &Side, to: &Side) -> u64 {
    let (held, _) = from.acquire().await;
    let before = fleet.scripts_run();
    let waiting = to.acquire();
    let releasing = async {
        // The waiter has sent its first request. It then subscribes, unless it still is subscribed, and retries. The end of that is not
        // visible from outside, so the waiter gets far more time than needed.
        while fleet.scripts_run() == before {
            tokio::time::sleep(ms(1)).await;
        }
        tokio::time::sleep(ms(6)).await;
        from.release(held).await
    };
    let ((held, granted), released) =
        within(SOON, futures_util::future::join(waiting, releasing)).await;
    to.release(held).await;
    granted - released
}

#[derive(Default)]
struct Figures(Vec<u64>);

impl Figures {
    /// The value that `percent` percent of the samples do not exceed.
    fn at(&mut self, percent: usize) -> Duration {
        self.0.sort_unstable();
        Duration::from_nanos(self.0[(self.0.len() - 1) * percent / 100])
    }
}

#[expect(clippy::print_stdout, reason = "its purpose")]
async fn measure(fleet: &Fleet, what: &str, java: [&Side; 2], rust: [&Side; 2]) {
    let pairs = [
        ("Redisson wakes Redisson", java[0], java[1]),
        ("Redisson wakes stanchion", java[0], rust[0]),
        ("stanchion wakes Redisson", rust[0], java[0]),
        ("stanchion wakes stanchion", rust[0], rust[1]),
    ];
    for (_, from, to) in pairs {
        for _ in 0..WARM_UP {
            hand_over(fleet, from, to).await;
        }
    }
    let mut figures: [Figures; 4] = Default::default();
    for _ in 0..TURNS {
        for ((_, from, to), figures) in pairs.iter().zip(&mut figures) {
            for _ in 0..ROUNDS / TURNS {
                figures.0.push(hand_over(fleet, from, to).await);
            }
        }
    }
    let base = figures[0].at(50).as_secs_f64();
    println!("{what:28}{:>12}{:>12}{:>12}", "p50", "p99", "ratio");
    for ((what, ..), figures) in pairs.iter().zip(&mut figures) {
        let (p50, p99) = (figures.at(50), figures.at(99));
        let ratio = p50.as_secs_f64() / base;
        println!("{what:28}{p50:>12.2?}{p99:>12.2?}{ratio:>12.2}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "a measurement: nothing is asserted"]
async fn latency_from_release_to_wake() {
    // Two JVMs, like two services, with the optimising compiler.
    let (Some(one), Some(two)) = (Jvm::start_with(&[]), Jvm::start_with(&[])) else {
        return;
    };
    let Some(fleet) = Fleet::start_in(one).await else {
        return;
    };
    let second = connect(&two, &fleet.server, json!({})).await;
    let java = |instance: &Redisson, kind, name| Side::Java(instance.object("a", kind, name));
    let (a, b) = (fleet.rust().await, fleet.rust().await);

    let theirs = [&fleet.java, &second].map(|instance| java(instance, Kind::Lock, "plain"));
    let ours = [&a, &b].map(|client| Side::Lock(lock(client, "plain")));
    measure(&fleet, "Lock", theirs.each_ref(), ours.each_ref()).await;

    let theirs = [&fleet.java, &second].map(|instance| java(instance, Kind::Fair, "fair"));
    let ours = [&a, &b].map(|client| Side::Fair(FairLock::new(client, "fair").unwrap()));
    measure(&fleet, "FairLock", theirs.each_ref(), ours.each_ref()).await;
}
