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

fn simpler_step(step: &Step) -> Vec<Step> {
    match step {
        Step::Pass(millis) => fewer(*millis).into_iter().map(Step::Pass).collect(),
        Step::Suspend(millis) => fewer(*millis).into_iter().map(Step::Suspend).collect(),
        Step::Stall(millis) => fewer(*millis).into_iter().map(Step::Stall).collect(),
        Step::Shutdown(client, grace) => fewer(*grace)
            .into_iter()
            .map(|grace| Step::Shutdown(*client, grace))
            .collect(),
        Step::Use(slot, Verb::Run(millis)) => fewer(*millis)
            .into_iter()
            .map(|millis| Step::Use(*slot, Verb::Run(millis)))
            .collect(),
        Step::Take {
            slot,
            client,
            target,
            opts,
            polled,
        } => {
            let take = |target: Target, opts: CallOptions, polled: Polled| Step::Take {
                slot: *slot,
                client: *client,
                target,
                opts,
                polled,
            };
            let mut all: Vec<Step> = simpler_options(*opts)
                .into_iter()
                .map(|opts| take(target.clone(), opts, *polled))
                .collect();
            if *polled != Polled::Always {
                all.push(take(target.clone(), *opts, Polled::Always));
            }
            all.extend(
                simpler_target(target)
                    .into_iter()
                    .map(|target| take(target, *opts, *polled)),
            );
            all
        }
        Step::Worker {
            client,
            target,
            opts,
            rounds,
            hold,
            pause,
        } => fewer(*rounds)
            .into_iter()
            .filter(|rounds| *rounds > 0)
            .map(|rounds| Step::Worker {
                client: *client,
                target: target.clone(),
                opts: *opts,
                rounds,
                hold: *hold,
                pause: *pause,
            })
            .collect(),
        Step::KillGroup {
            client,
            processes,
            target,
            live,
        } => fewer((*processes).into())
            .into_iter()
            .filter_map(|processes| u8::try_from(processes).ok())
            .map(|processes| Step::KillGroup {
                client: *client,
                processes,
                target: target.clone(),
                live: *live,
            })
            .collect(),
        _ => Vec::new(),
    }
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
    let plain = CallOptions::default();
    let mut all = vec![
        plain,
        CallOptions {
            owner: None,
            ..opts
        },
        CallOptions {
            lease: None,
            ..opts
        },
        CallOptions {
            manual: false,
            ..opts
        },
        CallOptions {
            max_hold: None,
            ..opts
        },
        CallOptions {
            timeout: None,
            ..opts
        },
        CallOptions { rest: None, ..opts },
        CallOptions {
            fails: false,
            ..opts
        },
        CallOptions {
            refuses_reentry: false,
            ..opts
        },
        CallOptions {
            tries: false,
            ..opts
        },
    ];
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
