//! Random programs against the whole public API, on the embedded engine in virtual time, judged by a model.
//!
//! See `docs/testing-generator.md`.
//!
//! * `STANCHION_PROGRAMS=5000` runs 5000 programs of each profile.
//! * `STANCHION_PROGRAM=permits:17` runs one program, and shrinks it if it fails; with `STANCHION_WHOLE=1` it is only run and printed.
//! * `STANCHION_PROFILES=permits,locks` selects profiles; `STANCHION_FIRST=1000` sets the first seed.
//! * `STANCHION_HUNT=1` continues after a failure; `STANCHION_IGNORE=Asleep,Late` ignores these rules.

mod barriers;
mod calls;
mod draws;
mod fault;
mod guards;
mod history;
mod hunt;
mod java;
mod judge;
mod keys;
mod manage;
mod planted;
mod process;
mod profiles;
mod program;
mod regressions;
mod resource;
mod role_steps;
mod roles;
mod run;
mod settle;
mod shrink;
mod state;
mod steps;
mod tracking;

use std::time::Duration;

use profiles::{PROFILES, Profile};

/// A duration of so many milliseconds.
fn span(millis: u16) -> Duration {
    Duration::from_millis(millis.into())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name)?.parse().ok()
}

fn named(name: &str) -> &'static Profile {
    Profile::named(name).unwrap_or_else(|| panic!("no profile has the name {name}"))
}

/// The default number of programs of each profile.
const PROGRAMS: u64 = 40;

fn ignored() -> &'static [&'static str] {
    let names = variable("STANCHION_IGNORE").unwrap_or_default();
    let names: Vec<&'static str> = names
        .split(',')
        .map(|name| &*Box::leak(name.to_owned().into_boxed_str()))
        .collect();
    Box::leak(names.into_boxed_slice())
}

#[test]
fn programs_keep_the_promises() {
    let profiles: Vec<&'static Profile> = match variable("STANCHION_PROFILES") {
        None => PROFILES.iter().collect(),
        Some(chosen) => chosen.split(',').map(named).collect(),
    };
    let first = number("STANCHION_FIRST").unwrap_or(1);
    let programs = number("STANCHION_PROGRAMS").unwrap_or(PROGRAMS);
    let all = number("STANCHION_HUNT").is_some();
    let hunted = hunt::hunt(&profiles, first..first + programs, ignored(), all);
    let rate =
        f64::from(u32::try_from(hunted.programs).unwrap_or(u32::MAX)) / hunted.took.as_secs_f64();
    println!(
        "{} programs in {:.1?}, {rate:.0} a second; failures: {:?}",
        hunted.programs,
        hunted.took,
        hunt::by_rule(&hunted.failures)
    );
    if let Some(failure) = hunted.failures.first() {
        panic!("{}", failure.describe());
    }
}

#[test]
fn one_program() {
    let Some(chosen) = variable("STANCHION_PROGRAM") else {
        return;
    };
    let (profile, seed) = chosen.split_once(':').expect("profile:seed");
    let profile = named(profile);
    let seed = seed.parse().unwrap();
    if number("STANCHION_WHOLE").is_some() {
        let program = hunt::program(profile, seed);
        println!("{}", hunt::as_test("whole", &program));
        let report = run::run(&program, ignored());
        println!("{}\n{:?}", report.history, report.finding);
        return;
    }
    match hunt::try_seed(profile, seed, ignored()) {
        Some(failure) => panic!("{}", failure.describe()),
        None => println!("{chosen} keeps the promises"),
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for profile in PROFILES.iter() {
        for seed in 1..4 {
            let program = hunt::program(profile, seed);
            let (first, second) = (run::run(&program, &[]), run::run(&program, &[]));
            assert_eq!(
                first.digest, second.digest,
                "{}:{seed}\n{}\nand\n{}",
                profile.name, first.history, second.history
            );
        }
    }
}
