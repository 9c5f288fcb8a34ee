//! Programs that broke a promise once, as the generator prints them.

use crate::program::Polled::{Always, Once};
use crate::program::Step::{Pass, Shutdown, Take, Use, Weather, Worker};
use crate::program::Verb::{Let, Reenter, Release};
use crate::program::What::{
    Fair, Free, Inside, Leader, Lock, Meet, PoliteRead, PoliteWrite, Read, Write,
};
use crate::program::{Ask, Hears, Hears::Messages, Manage, Program, Seat, Step, What, World, ask};
use crate::run::run;
use crate::weather::Weather::{Delayed, Delivered, Frozen, RepliesSilent};

fn keeps_the_promises(world: World, steps: Vec<Step>) {
    let report = run(&Program { world, steps }, &[]);
    if let Some(finding) = report.finding {
        panic!("{}: {}\n{}", finding.rule, finding.text, report.history);
    }
}

/// A server that answers after `latency` ms, and so many clients.
fn one_server(latency: u8, clients: usize) -> World {
    World {
        servers: 1,
        latency,
        clients: vec![seat(); clients],
    }
}

fn seat() -> Seat {
    Seat {
        server: 0,
        database: 0,
        hears: Messages,
    }
}

fn take(hand: u8, client: u8, what: What, ask: Ask) -> Step {
    Take {
        hand,
        client,
        what,
        ask,
        polled: Always,
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
    keeps_the_promises(
        one_server(5, 5),
        vec![
            take(4, 2, Fair("x"), ask()),
            Pass(10),
            take(4, 4, Fair("y"), ask()),
            take(4, 1, Fair("y"), ask().timeout(0)),
        ],
    );
}

/// P8: a writer that reads without patience was given no time at all to ask.
#[test]
fn a_timeout_of_nothing_still_asks_once() {
    keeps_the_promises(
        one_server(0, 1),
        vec![
            take(4, 0, Write("r"), ask().owner(1)),
            take(1, 0, Read("r"), ask().owner(1).timeout(0)),
            take(2, 0, Write("r"), ask().owner(1).timeout(0)),
        ],
    );
}

/// P3: the sweep of a place in a queue gave up after a lease, and the place has none.
#[test]
fn a_place_is_given_up_when_the_server_was_away_for_more_than_a_lease() {
    keeps_the_promises(
        one_server(0, 2),
        vec![
            take(3, 0, Lock("x"), ask()),
            take(2, 1, Fair("x"), ask()),
            Weather(0, Frozen),
            Pass(15_000),
        ],
    );
}

/// P8: a reader that released granted to the place of a writer whose time was over, after the writer had said that nothing was left.
#[test]
fn a_place_in_a_line_is_something() {
    keeps_the_promises(
        one_server(5, 2),
        vec![
            Worker {
                client: 0,
                what: PoliteRead("q"),
                ask: ask(),
                rounds: 1,
                hold: 22,
                pause: 0,
            },
            take(0, 1, PoliteWrite("q"), ask().timeout(41)),
        ],
    );
}

/// P9, P10: a re-entry through another client that nobody polled kept its owner's next one waiting.
#[test]
fn a_re_entry_that_nobody_polls_delays_nobody() {
    keeps_the_promises(
        one_server(0, 2),
        vec![
            take(1, 0, Lock("z"), ask().owner(1)),
            Take {
                hand: 0,
                client: 1,
                what: Lock("z"),
                ask: ask().owner(1),
                polled: Once,
            },
            Use(1, Reenter(2)),
            Pass(5_000),
        ],
    );
}

/// P10: a hold that was given to a re-entry that nobody polls was renewed for as long as its client lived.
#[test]
fn a_re_entry_that_nobody_polls_keeps_nothing() {
    keeps_the_promises(
        one_server(0, 3),
        vec![
            take(0, 2, Lock("z"), ask().owner(1)),
            take(1, 0, Lock("z"), ask()),
            Take {
                hand: 3,
                client: 1,
                what: Lock("z"),
                ask: ask().owner(1),
                polled: Once,
            },
        ],
    );
}

/// P4: force through a handle without preference left the mark of a writer that it granted to.
#[test]
fn a_mark_ends_with_a_forced_release() {
    let worker = |what, rounds, hold, pause| Worker {
        client: 0,
        what,
        ask: ask(),
        rounds,
        hold,
        pause,
    };
    keeps_the_promises(
        one_server(0, 2),
        vec![
            worker(PoliteRead("q"), 3, 10, 8),
            worker(PoliteWrite("q"), 1, 4, 4),
            Step::Manage(1, Manage::ForceRelease(PoliteRead("q"))),
        ],
    );
}

/// P8: a shutdown without time left the record of what its client waited for, and said that nothing was left.
#[test]
fn a_record_is_something() {
    keeps_the_promises(
        one_server(0, 2),
        vec![
            take(3, 0, Lock("x"), ask()),
            take(4, 1, Free("x"), ask()),
            Pass(1_900),
            Shutdown(1, 0),
        ],
    );
}

/// P8: so was a hold that had been lost at its end, and that the server kept for its rest.
#[test]
fn a_lost_hold_may_be_there() {
    let held = ask().max_hold(671).rest(3_473);
    keeps_the_promises(
        one_server(0, 1),
        vec![
            take(2, 0, Leader("{x}", 0), held),
            Pass(1_000),
            Shutdown(0, 0),
            Use(2, Let),
            Shutdown(0, 0),
        ],
    );
}

/// Seldom drawn: who dies holds, and somebody waits for the end of the rest.
#[test]
fn a_name_rests_after_a_crash() {
    keeps_the_promises(
        one_server(1, 2),
        vec![
            take(0, 0, Lock("x"), ask().rest(6_000)),
            Pass(2_500),
            Step::Kill(0),
            take(1, 1, Lock("x"), ask()),
            Pass(20_000),
        ],
    );
}

/// Seldom drawn: two owners that wait for each other, and would give up.
#[test]
fn one_of_a_deadlock_gives_up() {
    keeps_the_promises(
        one_server(1, 2),
        vec![
            take(0, 0, Lock("x"), ask().owner(0)),
            take(1, 1, Lock("y"), ask().owner(1)),
            Pass(50),
            take(2, 0, Lock("y"), ask().owner(0).fails()),
            take(3, 1, Lock("x"), ask().owner(1).fails()),
            Pass(30_000),
            Pass(30_000),
        ],
    );
}

/// Every answer is a fact, and none of them is news: who polls asks less and less often all the same.
#[test]
fn who_polls_at_a_barrier_asks_less_and_less_often() {
    let polls = Seat {
        hears: Hears::Polls,
        ..seat()
    };
    keeps_the_promises(
        World {
            servers: 1,
            latency: 1,
            clients: vec![polls],
        },
        vec![take(0, 0, Meet("x", 2, false), ask())],
    );
}

/// Two of two: a second place, for the time in which the first is given back, would be the other party.
#[test]
fn an_answer_slower_than_its_lease_gives_one_place() {
    for what in [Meet("x", 2, false), Inside("x", 2)] {
        keeps_the_promises(
            World {
                servers: 1,
                latency: 5,
                clients: vec![seat(), seat()],
            },
            vec![
                take(0, 0, what.clone(), ask()),
                take(1, 1, what.clone(), ask()),
                Pass(50),
                Use(0, Release),
                Use(1, Release),
                Pass(50),
                Weather(0, Delayed(1)),
                take(0, 0, what, ask().lease(600)),
                Pass(640),
                Weather(0, Delivered),
                Pass(500),
            ],
        );
    }
}

/// The last question has taken some of the time that P9 allows, and giving the place back takes no more than the rest.
#[test]
fn a_wait_of_20_ms_ends_in_time_when_nothing_is_answered() {
    keeps_the_promises(
        World {
            servers: 1,
            latency: 1,
            clients: vec![seat(), seat()],
        },
        vec![
            take(2, 1, Meet("y", 2, false), ask().timeout(20)),
            Weather(0, RepliesSilent(2)),
            Pass(0),
        ],
    );
}

/// The round that it completed is the one that it took part in.
#[test]
fn who_completed_a_round_learns_so_however_late() {
    keeps_the_promises(
        World {
            servers: 1,
            latency: 5,
            clients: vec![seat(), seat()],
        },
        vec![
            take(0, 0, Meet("x", 2, true), ask()),
            Pass(50),
            Weather(0, Delayed(1)),
            take(1, 1, Meet("x", 2, true), ask().lease(600)),
            Pass(640),
            Weather(0, Delivered),
            Pass(500),
        ],
    );
}
