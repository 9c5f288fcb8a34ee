//! Deterministic simulation: several clients and a server on a network that fails in every way, from a seed.
//!
//! Each seed simulates minutes in some seconds: the real client library, the real scripts on the embedded engine, and turmoil's
//! network between them. Phases with faults alternate with calm phases. Faults break or delay links, kill hosts and make the server
//! misbehave. The results that clients record are checked against the promises (P1 to P9). A [`kinds::Workload`] defines the calls of
//! the clients and the checks of one kind of primitive. `docs/testing-simulation.md` lists the kinds.
//!
//! * `STANCHION_SEEDS=500` simulates more seeds, `STANCHION_SEED=17` only that one.
//! * A seed that fails is printed with the events around the violation, and the command that runs it again.
//!
//! A checker that finds nothing proves little, so bugs are planted, and each must be found within a few seeds. The planted bugs do
//! not change the library; see [`scenario::Reckoning`], [`filter::Mutation`] and [`planted`].

mod chaos;
mod client;
mod filter;
mod held;
mod judge;
mod kinds;
mod ledger;
mod network;
mod operations;
mod planted;
mod primitives;
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
                    let replay = format!(
                        "STANCHION_SEED={seed} cargo test -p stanchion-tests --test random {test}"
                    );
                    writeln!(
                        report,
                        "\nseed {seed}: {} problems; replay with {replay}",
                        verdict.faults.len()
                    )
                    .unwrap();
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
fn exclusive_locks_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "exclusive_locks_keep_the_promises_under_faults",
        Scenario::exclusive_locks,
        10,
    );
}

#[test]
fn fair_locks_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "fair_locks_keep_the_promises_under_faults",
        Scenario::fair_locks,
        8,
    );
}

#[test]
fn read_write_locks_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "read_write_locks_keep_the_promises_under_faults",
        Scenario::read_write_locks,
        4,
    );
}

#[test]
fn leased_permits_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "leased_permits_keep_the_promises_under_faults",
        Scenario::leased_permits,
        4,
    );
}

#[test]
fn elections_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "elections_keep_the_promises_under_faults",
        Scenario::election,
        1,
    );
}

#[test]
fn tickets_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "tickets_keep_the_promises_under_faults",
        Scenario::tickets,
        1,
    );
}

#[test]
fn jobs_keep_the_promises_under_faults() {
    all_keep_the_promises("jobs_keep_the_promises_under_faults", Scenario::job, 3);
}

#[test]
fn limiters_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "limiters_keep_the_promises_under_faults",
        Scenario::limiter,
        1,
    );
}

#[test]
fn buckets_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "buckets_keep_the_promises_under_faults",
        Scenario::bucket,
        1,
    );
}

#[test]
fn barriers_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "barriers_keep_the_promises_under_faults",
        Scenario::barrier,
        2,
    );
}

#[test]
fn double_barriers_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "double_barriers_keep_the_promises_under_faults",
        Scenario::double,
        2,
    );
}

#[test]
fn idle_latches_keep_the_promises_under_faults() {
    all_keep_the_promises(
        "idle_latches_keep_the_promises_under_faults",
        Scenario::latch,
        2,
    );
}

#[test]
fn exclusive_locks_keep_the_promises_without_faults() {
    all_keep_the_promises(
        "exclusive_locks_keep_the_promises_without_faults",
        Scenario::without_faults,
        2,
    );
}

#[test]
fn exclusive_locks_keep_the_promises_on_slow_links() {
    all_keep_the_promises(
        "exclusive_locks_keep_the_promises_on_slow_links",
        Scenario::on_slow_links,
        2,
    );
}

#[test]
fn the_same_seed_gives_the_same_history() {
    let events = || {
        simulate(Scenario::exclusive_locks(
            number("STANCHION_SEED").unwrap_or(2),
        ))
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
    let operations = || {
        let run = simulate(Scenario::double(number("STANCHION_SEED").unwrap_or(2)));
        let mut operations = run.ledger.operations().clone();
        // At the end all tasks drop their calls at the same time, in an order that the runtime chooses.
        let busy_until = time::Time::at(run.scenario.busy_for);
        operations.retain(|operation| operation.ended() < busy_until);
        operations
    };
    let (first, second) = (operations(), operations());
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
    panic!("{bug} was not found by {rules:?}; other violations: {others:#?}");
}

#[test]
fn a_lease_counted_from_the_reply_is_caught() {
    let scenario = |seed| Scenario {
        reckoning: Reckoning::FromReply,
        ..Scenario::on_slow_links(seed)
    };
    is_caught("lease from the reply", 1, scenario, &["Exclusion"]);
}

#[test]
fn a_release_without_owner_check_is_caught() {
    let scenario = |seed| Scenario {
        mutation: Some(Mutation::UncheckedRelease),
        ..Scenario::exclusive_locks(seed)
    };
    is_caught("release without owner check", 1, scenario, &["Exclusion"]);
}

#[test]
fn waiters_without_a_retry_after_subscribing_are_caught() {
    let scenario = |seed| Scenario {
        mutation: Some(Mutation::NoRetryAfterSubscribe),
        ..Scenario::without_faults(seed)
    };
    is_caught("no retry after subscribe", 1, scenario, &["Liveness"]);
}
