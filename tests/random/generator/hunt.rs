//! Runs one program for each seed, and shrinks the programs that fail.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use proptest::strategy::{Strategy as _, ValueTree as _};
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::generator::profiles::Profile;
use crate::generator::program::{Program, Step};
use crate::generator::run::run;
use crate::generator::state::Finding;

/// A program that breaks a promise.
#[derive(Clone, Debug)]
pub(crate) struct Failure {
    pub(crate) profile: &'static str,
    pub(crate) seed: u64,
    pub(crate) finding: Finding,
    pub(crate) program: Program,
    /// The number of steps before the program was shrunk.
    pub(crate) before: usize,
}

/// The budget for shrinking one program, in runs of usual length.
const PATIENCE: usize = 500;

/// The program of a seed, and proptest's tree that simplifies its values.
struct Source {
    program: Program,
    tree: Box<dyn proptest::strategy::ValueTree<Value = Vec<Step>>>,
}

fn source(profile: &Profile, seed: u64) -> Source {
    let world = profile.world(seed);
    let mut bytes = [0; 32];
    bytes[..8].copy_from_slice(&seed.to_le_bytes());
    bytes[8..].fill(u8::try_from(profile.name.len()).unwrap_or_default());
    let rng = TestRng::from_seed(RngAlgorithm::ChaCha, &bytes);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let tree = profile.steps(&world).new_tree(&mut runner);
    // OK: the strategies filter nothing, so they reject nothing.
    let tree = tree.unwrap();
    let steps = tree.current();
    Source {
        program: Program { world, steps },
        tree: Box::new(tree),
    }
}

/// The program of one seed.
pub(crate) fn program(profile: &Profile, seed: u64) -> Program {
    source(profile, seed).program
}

/// Runs the program of one seed, and shrinks it if it fails.
pub(crate) fn try_seed(
    profile: &'static Profile,
    seed: u64,
    ignored: &'static [&'static str],
) -> Option<Failure> {
    let Source { program, mut tree } = source(profile, seed);
    let finding = run(&program, ignored).finding?;
    let before = program.steps.len();
    let mut shortest = (program.clone(), finding.clone());
    let mut left = PATIENCE;
    let mut fails = |candidate: &Program, left: &mut usize| {
        let report = run(candidate, ignored);
        // A run with many events costs more of the budget, so that long programs are run less often.
        let cost = 1 + usize::try_from(report.digest.0 / 500).unwrap_or_default();
        *left = left.saturating_sub(cost);
        report.finding.filter(|found| found.rule == finding.rule)
    };
    without_steps(&mut shortest, &mut left, &mut fails);
    // Proptest can simplify single values, but only in the whole program: this helps only if no step could be removed.
    if shortest.0.steps.len() == before {
        let mut failed = true;
        while left > 0
            && if failed {
                tree.simplify()
            } else {
                tree.complicate()
            }
        {
            let candidate = Program {
                world: program.world.clone(),
                steps: tree.current(),
            };
            let found = fails(&candidate, &mut left);
            failed = found.is_some();
            if let Some(found) = found {
                shortest = (candidate, found);
            }
        }
    }
    crate::generator::shrink::simpler_values(&mut shortest, &mut left, &mut fails);
    without_steps(&mut shortest, &mut left, &mut fails);
    let (program, finding) = shortest;
    Some(Failure {
        profile: profile.name,
        seed,
        finding,
        program,
        before,
    })
}

/// Removes steps: many at once first, then fewer.
fn without_steps(
    shortest: &mut (Program, Finding),
    left: &mut usize,
    fails: &mut impl FnMut(&Program, &mut usize) -> Option<Finding>,
) {
    let mut chunk = shortest.0.steps.len().div_ceil(2);
    while chunk > 0 && *left > 0 {
        let mut at = 0;
        let mut changed = false;
        while at < shortest.0.steps.len() && *left > 0 {
            let mut candidate = shortest.0.clone();
            let end = (at + chunk).min(candidate.steps.len());
            candidate.steps.drain(at..end);
            match fails(&candidate, left) {
                Some(found) => {
                    *shortest = (candidate, found);
                    changed = true;
                }
                None => at += chunk,
            }
        }
        if chunk == 1 && !changed {
            return;
        }
        chunk = if chunk == 1 { 1 } else { chunk.div_ceil(2) };
    }
}

impl Failure {
    /// The program as a Rust test for `regressions.rs`.
    pub(crate) fn as_test(&self) -> String {
        let name = format!("{}_{}", self.profile, self.seed);
        as_test(&name, &self.program)
    }

    pub(crate) fn describe(&self) -> String {
        let Self {
            profile,
            seed,
            finding,
            program,
            before,
        } = self;
        let history = run(program, &[]).history;
        format!(
            "{profile}:{seed} breaks {rule}: {text}\n  {steps} of {before} steps are left. Their history:\n{history}\n  \
             To run it again: STANCHION_PROGRAM={profile}:{seed} cargo test -p stanchion-tests --test random one_program\n  \
             As a test for tests/random/generator/regressions.rs:\n\n{test}",
            rule = finding.rule,
            text = finding.text,
            steps = program.steps.len(),
            test = self.as_test(),
        )
    }
}

pub(crate) fn as_test(name: &str, program: &Program) -> String {
    let world = &program.world;
    let mut text = String::new();
    // OK: writing to a String cannot fail.
    let _ = writeln!(text, "#[test]\nfn {name}() {{");
    let _ = writeln!(
        text,
        "    keeps_the_promises(\n        World {{ servers: {}, latency: {}, clients: vec![",
        world.servers, world.latency
    );
    for spec in &world.clients {
        let _ = writeln!(text, "            {spec:?},");
    }
    let _ = writeln!(text, "        ] }},\n        vec![");
    for step in &program.steps {
        let step = format!("{step:?}").replace("Multi([", "Multi(vec![");
        let _ = writeln!(text, "            {step},");
    }
    let _ = writeln!(text, "        ],\n    );\n}}");
    text
}

/// The outcome of a hunt.
pub(crate) struct HuntResult {
    pub(crate) programs: u64,
    pub(crate) failures: Vec<Failure>,
    pub(crate) took: Duration,
}

/// Runs the programs of `seeds` of all `profiles` on all processors. With `all`, continues after a failure.
pub(crate) fn hunt(
    profiles: &[&'static Profile],
    seeds: std::ops::Range<u64>,
    ignored: &'static [&'static str],
    all: bool,
) -> HuntResult {
    let each = seeds.end - seeds.start;
    let total = each * profiles.len() as u64;
    let next = AtomicU64::new(0);
    let failures = Mutex::new(Vec::new());
    let began = std::time::SystemTime::UNIX_EPOCH;
    let now = || began.elapsed().unwrap_or_default();
    let started = now();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= total || (!all && !failures.lock().unwrap().is_empty()) {
                        return;
                    }
                    // Seed by seed, so that an early end has covered all profiles.
                    let at = usize::try_from(number % profiles.len() as u64).unwrap_or_default();
                    let seed = seeds.start + number / profiles.len() as u64;
                    if number > 0 && number.is_multiple_of((total / 10).clamp(1, 2_000)) {
                        let rate = f64::from(u32::try_from(number).unwrap_or(u32::MAX))
                            / (now() - started).as_secs_f64();
                        println!("{number} of {total} programs, {rate:.0} a second");
                    }
                    if let Some(failure) = try_seed(profiles[at], seed, ignored) {
                        if all {
                            println!("=== program {number}\n{}", failure.describe());
                        }
                        failures.lock().unwrap().push(failure);
                    }
                }
            });
        }
    });
    let failures = failures.into_inner().unwrap();
    HuntResult {
        programs: next.load(Ordering::Relaxed).min(total),
        failures,
        took: now() - started,
    }
}

/// The seeds that broke each rule, by profile.
pub(crate) fn by_rule(failures: &[Failure]) -> BTreeMap<(&'static str, &'static str), Vec<u64>> {
    let mut rules: BTreeMap<_, Vec<u64>> = BTreeMap::new();
    for failure in failures {
        rules
            .entry((failure.finding.rule, failure.profile))
            .or_default()
            .push(failure.seed);
    }
    rules
}
