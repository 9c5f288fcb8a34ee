//! Random programs against the whole public API, on the embedded engine in virtual time, judged by a model.
//!
//! See `docs/testing-generator.md`.
//!
//! * `STANCHION_PROGRAMS=5000` runs so many programs of each profile.
//! * `STANCHION_PROGRAM=permits:17` runs one.
//! * `STANCHION_HUNT=1` goes on after a find; `STANCHION_IGNORE=Asleep,Late` does not judge these rules;
//!   `STANCHION_PROFILES=permits,locks` draws from these only; `STANCHION_FIRST=1000` begins at that seed.
#![expect(clippy::print_stdout, reason = "a hunt tells how far it is")]
#![expect(clippy::unwrap_used, reason = "tests fail by panicking")]

mod books;
mod calls;
mod draws;
mod history;
mod hunt;
mod java;
mod judge;
mod keys;
mod manage;
mod meetings;
mod newer;
mod offices;
mod process;
mod profiles;
mod program;
mod regressions;
mod roles;
mod run;
mod settle;
mod shrink;
mod spot;
mod state;
mod steps;
mod things;
mod weather;

use std::time::Duration;

use profiles::{PROFILES, Profile};

/// A span of this many milliseconds.
fn span(millis: u16) -> Duration {
    Duration::from_millis(millis.into())
}

fn variable(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

fn number(name: &str) -> Option<u64> {
    variable(name)?.parse().ok()
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
    let chosen = variable("STANCHION_PROFILES");
    let profiles: Vec<&'static Profile> = PROFILES
        .iter()
        .filter(|profile| {
            chosen
                .as_ref()
                .is_none_or(|chosen| chosen.split(',').any(|name| name == profile.name))
        })
        .collect();
    let first = number("STANCHION_FIRST").unwrap_or(1);
    let programs = number("STANCHION_PROGRAMS").unwrap_or(PROGRAMS);
    let all = number("STANCHION_HUNT").is_some();
    let bag = hunt::hunt(&profiles, first..first + programs, ignored(), all);
    let rate = f64::from(u32::try_from(bag.programs).unwrap_or(u32::MAX)) / bag.took.as_secs_f64();
    println!(
        "{} programs in {:.1?}, {rate:.0} a second; finds: {:?}",
        bag.programs,
        bag.took,
        hunt::by_rule(&bag.finds)
    );
    if let Some(find) = bag.finds.first() {
        panic!("{}", find.tell());
    }
}

#[test]
fn one_program() {
    let Some(chosen) = variable("STANCHION_PROGRAM") else {
        return;
    };
    let (profile, seed) = chosen.split_once(':').expect("profile:seed");
    let profile = Profile::named(profile).expect("a profile");
    let seed = seed.parse().unwrap();
    if number("STANCHION_WHOLE").is_some() {
        let program = hunt::program(profile, seed);
        println!("{}", hunt::as_test("whole", &program));
        let report = run::run(&program, ignored());
        println!("{}\n{:?}", report.history, report.finding);
        return;
    }
    match hunt::try_seed(profile, seed, ignored()) {
        Some(find) => panic!("{}", find.tell()),
        None => println!("{chosen} keeps the promises"),
    }
}

#[test]
fn the_same_seed_gives_the_same_history() {
    for profile in PROFILES {
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
