//! Deterministic simulation: several clients and a server on a network that fails in every way, from a seed.
//!
//! Each seed simulates minutes in some seconds: the real client library, the real scripts on the embedded engine,
//! and turmoil's network between them. Storms, in which links break, messages come late, hosts are killed and the server
//! misbehaves, take turns with calms. What the clients saw is checked against the promises (P1 to P9). What is simulated is a
//! [`kinds::Play`]: what its users do, and a judge of what they saw. `docs/testing-simulation.md` tells which there are.
//!
//! * `STANCHION_SEEDS=500` simulates more seeds, `STANCHION_SEED=17` only that one.
//! * A seed that fails is printed with what happened around the violation, and how to run it again.
//!
//! A checker that finds nothing proves little, so bugs are planted, and each must be found within a few seeds. The
//! library is not touched for that; see [`scenario::Reckoning`], [`filter::Mutation`] and [`planted`].
#![expect(
    clippy::print_stdout,
    reason = "a simulation tells what it has covered"
)]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod chaos;
mod client;
mod deeds;
mod family;
mod filter;
mod held;
mod judge;
mod kinds;
mod ledger;
mod network;
mod planted;
mod scenario;
mod simulate;
mod time;
mod work;

use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use filter::Mutation;
use judge::{Verdict, judge};
use scenario::{Reckoning, Scenario};
use simulate::simulate;

/// Simulates one scenario and prints what it covered.
fn verdict_on(scenario: Scenario) -> Verdict {
    let seed = scenario.seed;
    let run = simulate(scenario);
    let verdict = judge(&run);
    let notes = run.ledger.notes();
    let (events, faults) = (run.ledger.history.len(), notes.faults.len());
    println!(
        "seed {seed}: {events} events, {} commands, {faults} faults, {:?}, longest wait {:?}, slowest connect {:?}",
        run.commands, notes.counts, verdict.summary.longest_wait, notes.slowest_connect
    );
    verdict
}

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok()?.parse().ok()
}

/// Simulates many scenarios, on as many threads as there are processors.
fn all_keep_the_promises(test: &str, scenario: fn(u64) -> Scenario, default: u64) {
    let (first, last) = match number("STANCHION_SEED") {
        Some(seed) => (seed, seed),
        None => (1, number("STANCHION_SEEDS").unwrap_or(default)),
    };
    let next = AtomicU64::new(first);
    let report = Mutex::new(String::new());
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed > last {
                        return;
                    }
                    let verdict = verdict_on(scenario(seed));
                    if verdict.faults.is_empty() {
                        continue;
                    }
                    let mut report = report.lock().unwrap();
                    let replay = format!("STANCHION_SEED={seed} cargo test -p stanchion-tests --test simulation {test}");
                    writeln!(report, "\nseed {seed}: {} problems; replay with {replay}", verdict.faults.len()).unwrap();
                    for fault in verdict.faults.iter().take(12) {
                        writeln!(report, "    {fault}").unwrap();
                    }
                }
            });
        }
    });
    let report = report.into_inner().unwrap();
    assert!(report.is_empty(), "{report}");
}

#[test]
fn crowds_in_storms() {
    all_keep_the_promises("crowds_in_storms", Scenario::crowd, 10);
}

#[test]
fn fair_queues_in_storms() {
    all_keep_the_promises("fair_queues_in_storms", Scenario::queue, 8);
}

#[test]
fn readers_and_writers_in_storms() {
    all_keep_the_promises("readers_and_writers_in_storms", Scenario::library, 4);
}

#[test]
fn permits_in_storms() {
    all_keep_the_promises("permits_in_storms", Scenario::pool, 4);
}

#[test]
fn elections_in_storms() {
    all_keep_the_promises("elections_in_storms", Scenario::election, 1);
}

#[test]
fn tickets_in_storms() {
    all_keep_the_promises("tickets_in_storms", Scenario::tickets, 1);
}

#[test]
fn jobs_in_storms() {
    all_keep_the_promises("jobs_in_storms", Scenario::job, 3);
}

#[test]
fn limiters_in_storms() {
    all_keep_the_promises("limiters_in_storms", Scenario::limiter, 1);
}

#[test]
fn buckets_in_storms() {
    all_keep_the_promises("buckets_in_storms", Scenario::bucket, 1);
}

#[test]
fn barriers_in_storms() {
    all_keep_the_promises("barriers_in_storms", Scenario::barrier, 2);
}

#[test]
fn double_barriers_in_storms() {
    all_keep_the_promises("double_barriers_in_storms", Scenario::double, 2);
}

#[test]
fn idle_latches_in_storms() {
    all_keep_the_promises("idle_latches_in_storms", Scenario::latch, 2);
}

#[test]
fn encounters_in_fair_weather() {
    all_keep_the_promises("encounters_in_fair_weather", Scenario::encounters, 2);
}

#[test]
fn laggards_on_slow_links() {
    all_keep_the_promises("laggards_on_slow_links", Scenario::laggards, 2);
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let events = || {
        simulate(Scenario::crowd(number("STANCHION_SEED").unwrap_or(2)))
            .ledger
            .history
            .events()
    };
    let (first, second) = (events(), events());
    let differs = first.iter().zip(&second).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!("event {at} differs: {:?} and {:?}", first[at], second[at]);
    }
    assert_eq!(first.len(), second.len());
}

#[test]
fn the_same_seed_gives_the_same_calls() {
    let deeds = || {
        let run = simulate(Scenario::double(number("STANCHION_SEED").unwrap_or(2)));
        let mut deeds = run.ledger.deeds().clone();
        // In the end all give up at one moment, and the runtime drops their calls in an order of its own.
        let busy_until = time::Time::at(run.scenario.busy_for);
        deeds.retain(|deed| deed.ended() < busy_until);
        deeds
    };
    let (first, second) = (deeds(), deeds());
    let differs = first.iter().zip(&second).position(|(a, b)| a != b);
    if let Some(at) = differs {
        panic!("call {at} differs: {:?} and {:?}", first[at], second[at]);
    }
    assert_eq!(first.len(), second.len());
}

/// Simulates seeds with a planted bug until the checker finds it, by one of these rules.
fn is_caught(bug: &str, first: u64, scenario: impl Fn(u64) -> Scenario, rules: &[&str]) {
    let mut others = Vec::new();
    for seed in first..first + 5 {
        let faults = verdict_on(scenario(seed)).faults;
        let by = |rule: &&&str| faults.iter().any(|fault| fault.starts_with(**rule));
        if let Some(rule) = rules.iter().find(by) {
            println!(
                "{bug}: caught in seed {seed} by {rule}, {} faults",
                faults.len()
            );
            return;
        }
        others.extend(faults);
    }
    panic!("{bug} has not been noticed as {rules:?}; others: {others:#?}");
}

#[test]
fn a_lease_counted_from_the_reply_is_caught() {
    let scenario = |seed| Scenario {
        reckoning: Reckoning::FromReply,
        ..Scenario::laggards(seed)
    };
    is_caught("lease from the reply", 1, scenario, &["Exclusion"]);
}

#[test]
fn a_release_without_owner_check_is_caught() {
    let scenario = |seed| Scenario {
        mutation: Some(Mutation::UncheckedRelease),
        ..Scenario::crowd(seed)
    };
    is_caught("release without owner check", 1, scenario, &["Exclusion"]);
}

#[test]
fn waiters_that_do_not_ask_after_subscribing_are_caught() {
    let scenario = |seed| Scenario {
        mutation: Some(Mutation::NoRetryAfterSubscribe),
        ..Scenario::encounters(seed)
    };
    is_caught("no retry after subscribe", 1, scenario, &["Liveness"]);
}
