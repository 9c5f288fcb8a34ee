//! Programs that broke a promise once, as the generator prints them.

use crate::program::Polled::Always;
use crate::program::Step::{Pass, Take, Use};
use crate::program::Verb::{Let, Release};
use crate::program::What::{Fair, Lock};
use crate::program::{Hears::Messages, Program, Seat, Step, World, ask};
use crate::run::run;

fn keeps_the_promises(world: World, steps: Vec<Step>) {
    let report = run(&Program { world, steps }, &[]);
    if let Some(finding) = report.finding {
        panic!("{}: {}\n{}", finding.rule, finding.text, report.history);
    }
}

/// The form in which finds are printed.
#[test]
fn a_hand_off_and_a_queue() {
    keeps_the_promises(
        World {
            servers: 1,
            latency: 5,
            clients: vec![
                Seat {
                    server: 0,
                    database: 0,
                    hears: Messages,
                },
                Seat {
                    server: 0,
                    database: 0,
                    hears: Messages,
                },
            ],
        },
        vec![
            Take {
                hand: 0,
                client: 0,
                what: Lock("x"),
                ask: ask(),
                polled: Always,
            },
            Pass(50),
            Take {
                hand: 1,
                client: 1,
                what: Lock("x"),
                ask: ask().timeout(900),
                polled: Always,
            },
            Take {
                hand: 2,
                client: 0,
                what: Fair("f"),
                ask: ask().lease(900),
                polled: Always,
            },
            Use(0, Release),
            Use(2, Let),
        ],
    );
}

/// P8: a place in a queue was granted before it was given up, and the error said that nothing was left.
#[test]
fn a_place_in_a_queue_is_something() {
    let seat = || Seat {
        server: 0,
        database: 0,
        hears: Messages,
    };
    keeps_the_promises(
        World {
            servers: 1,
            latency: 5,
            clients: vec![seat(), seat(), seat(), seat(), seat()],
        },
        vec![
            Take {
                hand: 4,
                client: 2,
                what: Fair("x"),
                ask: ask(),
                polled: Always,
            },
            Pass(10),
            Take {
                hand: 4,
                client: 4,
                what: Fair("y"),
                ask: ask(),
                polled: Always,
            },
            Take {
                hand: 4,
                client: 1,
                what: Fair("y"),
                ask: ask().timeout(0),
                polled: Always,
            },
        ],
    );
}
