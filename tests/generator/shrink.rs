//! Simpler values in the steps of a program that fails.

use crate::program::{Ask, Hears, Polled, Program, Step, Verb, What};
use crate::state::Finding;

/// Tries simpler values, one after the other, as long as the program fails in the same way.
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

/// Programs that are simpler in one place.
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
            std::mem::replace(&mut p.world.clients[n].hears, Hears::Messages) == Hears::Polls
        });
    }
    // The last client, if nobody needs it.
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
        Step::Use(hand, Verb::Run(millis)) => fewer(*millis)
            .into_iter()
            .map(|millis| Step::Use(*hand, Verb::Run(millis)))
            .collect(),
        Step::Take {
            hand,
            client,
            what,
            ask,
            polled,
        } => {
            let take = |what: What, ask: Ask, polled: Polled| Step::Take {
                hand: *hand,
                client: *client,
                what,
                ask,
                polled,
            };
            let mut all: Vec<Step> = simpler_asks(*ask)
                .into_iter()
                .map(|ask| take(what.clone(), ask, *polled))
                .collect();
            if *polled != Polled::Always {
                all.push(take(what.clone(), *ask, Polled::Always));
            }
            all.extend(
                simpler_what(what)
                    .into_iter()
                    .map(|what| take(what, *ask, *polled)),
            );
            all
        }
        Step::Worker {
            client,
            what,
            ask,
            rounds,
            hold,
            pause,
        } => fewer(*rounds)
            .into_iter()
            .filter(|rounds| *rounds > 0)
            .map(|rounds| Step::Worker {
                client: *client,
                what: what.clone(),
                ask: *ask,
                rounds,
                hold: *hold,
                pause: *pause,
            })
            .collect(),
        Step::Doomed {
            client,
            processes,
            what,
            live,
        } => fewer((*processes).into())
            .into_iter()
            .filter_map(|processes| u8::try_from(processes).ok())
            .map(|processes| Step::Doomed {
                client: *client,
                processes,
                what: what.clone(),
                live: *live,
            })
            .collect(),
        _ => Vec::new(),
    }
}

/// Round numbers below.
fn fewer(n: u16) -> Vec<u16> {
    let mut all = vec![0, n / 2];
    for unit in [1_000, 100, 10] {
        all.push(n / unit * unit);
    }
    all.retain(|less| *less < n);
    all.dedup();
    all
}

fn simpler_asks(ask: Ask) -> Vec<Ask> {
    let plain = Ask::default();
    let mut all = vec![
        plain,
        Ask { owner: None, ..ask },
        Ask { lease: None, ..ask },
        Ask {
            manual: false,
            ..ask
        },
        Ask {
            max_hold: None,
            ..ask
        },
        Ask {
            timeout: None,
            ..ask
        },
        Ask { rest: None, ..ask },
        Ask {
            fails: false,
            ..ask
        },
        Ask {
            refuses_reentry: false,
            ..ask
        },
        Ask {
            tries: false,
            ..ask
        },
    ];
    all.retain(|simpler| *simpler != ask);
    all
}

fn simpler_what(what: &What) -> Vec<What> {
    match what {
        What::Multi(members) if members.len() > 1 => (0..members.len())
            .map(|at| {
                let mut fewer = members.clone();
                fewer.remove(at);
                What::Multi(fewer)
            })
            .collect(),
        What::Bare(n) | What::Own(n) => vec![What::Lock(n)],
        What::Meet(n, parties, true) => vec![What::Meet(n, *parties, false)],
        _ => Vec::new(),
    }
}
