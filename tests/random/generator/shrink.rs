//! Simplifies the values in the steps of a failing program.

use crate::generator::program::{CallOptions, Polled, Program, Step, Target, Verb, WakeMode};
use crate::generator::state::Finding;

/// Tries simpler values one after the other, as long as the program breaks the same rule.
pub(crate) fn simpler_values(
    shortest: &mut (Program, Finding),
    left: &mut usize,
    fails: &mut impl FnMut(&Program, &mut usize) -> Option<Finding>,
) {
    let mut changed = true;
    while changed && *left > 0 {
        changed = false;
        for candidate in simpler(&shortest.0) {
            if *left == 0 {
                return;
            }
            if let Some(found) = fails(&candidate, left) {
                *shortest = (candidate, found);
                changed = true;
                break;
            }
        }
    }
}

/// Programs with one simpler value.
fn simpler(program: &Program) -> Vec<Program> {
    let mut all = Vec::new();
    let mut world = |change: &dyn Fn(&mut Program) -> bool| {
        let mut candidate = program.clone();
        if change(&mut candidate) {
            all.push(candidate);
        }
    };
    world(&|p| std::mem::replace(&mut p.world.latency, 0) != 0);
    for n in 0..program.world.clients.len() {
        world(&|p| {
            std::mem::replace(&mut p.world.clients[n].wake_mode, WakeMode::Messages)
                == WakeMode::Polls
        });
    }
    // The last client, unless a server needs it.
    if program.world.clients.len() > usize::from(program.world.servers) {
        world(&|p| p.world.clients.pop().is_some());
    }
    for (at, step) in program.steps.iter().enumerate() {
        for simpler in simpler_step(step) {
            let mut candidate = program.clone();
            candidate.steps[at] = simpler;
            all.push(candidate);
        }
    }
    all
}

/// The number of a step that can be smaller.
fn number(step: &mut Step) -> Option<&mut u16> {
    match step {
        Step::Pass(n) | Step::Suspend(n) | Step::Stall(n) => Some(n),
        Step::Shutdown(_, n) | Step::Use(_, Verb::Run(n)) => Some(n),
        Step::Worker { rounds: n, .. } => Some(n),
        _ => None,
    }
}

/// Steps with one simpler value.
fn simpler_step(step: &Step) -> Vec<Step> {
    let mut all = Vec::new();
    let mut with = |change: &dyn Fn(&mut Step)| {
        let mut simpler = step.clone();
        change(&mut simpler);
        all.push(simpler);
    };
    for less in number(&mut step.clone()).map_or_else(Vec::new, |n| fewer(*n)) {
        with(&|step| {
            if let Some(n) = number(step) {
                *n = less;
            }
        });
    }
    match step {
        Step::KillGroup { processes, .. } => {
            for less in fewer((*processes).into()) {
                with(&|step| {
                    if let Step::KillGroup { processes, .. } = step {
                        *processes = u8::try_from(less).unwrap_or(u8::MAX);
                    }
                });
            }
        }
        Step::Take { target, opts, .. } => {
            for simpler in simpler_options(*opts) {
                with(&|step| {
                    if let Step::Take { opts, .. } = step {
                        *opts = simpler;
                    }
                });
            }
            with(&|step| {
                if let Step::Take { polled, .. } = step {
                    *polled = Polled::Always;
                }
            });
            for simpler in simpler_target(target) {
                with(&|step| {
                    if let Step::Take { target, .. } = step {
                        *target = simpler.clone();
                    }
                });
            }
        }
        _ => {}
    }
    all.retain(|simpler| simpler != step);
    all
}

/// Smaller numbers: zero, half, and rounded down.
fn fewer(n: u16) -> Vec<u16> {
    let mut all = vec![0, n / 2];
    for unit in [1_000, 100, 10] {
        all.push(n / unit * unit);
    }
    all.retain(|less| *less < n);
    all.dedup();
    all
}

fn simpler_options(opts: CallOptions) -> Vec<CallOptions> {
    let mut all = [opts; 10];
    all[0] = CallOptions::default();
    all[1].owner = None;
    all[2].lease = None;
    all[3].manual = false;
    all[4].max_hold = None;
    all[5].timeout = None;
    all[6].rest = None;
    all[7].fails = false;
    all[8].refuses_reentry = false;
    all[9].tries = false;
    let mut all = all.to_vec();
    all.retain(|simpler| *simpler != opts);
    all
}

fn simpler_target(target: &Target) -> Vec<Target> {
    match target {
        Target::Multi(members) if members.len() > 1 => (0..members.len())
            .map(|at| {
                let mut fewer = members.clone();
                fewer.remove(at);
                Target::Multi(fewer)
            })
            .collect(),
        Target::Unfenced(n) | Target::NameFenced(n) => vec![Target::Lock(n)],
        Target::Barrier(n, parties, true) => vec![Target::Barrier(n, *parties, false)],
        _ => Vec::new(),
    }
}
