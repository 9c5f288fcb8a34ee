//! Programs that once broke a promise, or that random programs seldom contain.

use crate::generator::fault::Fault::{Delayed, Delivered, Frozen, RepliesSilent};
use crate::generator::program::Polled::{Always, Once};
use crate::generator::program::Step::{Fault, KillGroup, Pass, Shutdown, Take, Use, Worker};
use crate::generator::program::Target::{
    Barrier, DoubleBarrier, Fair, Leader, Lock, Read, WaitFree, Write, WriterFirstRead,
    WriterFirstWrite,
};
use crate::generator::program::Verb::{Discard, Reenter, Release};
use crate::generator::program::{
    CallOptions, ClientSpec, Manage, Polled, Program, Step, Target, WakeMode, World, opts,
};
use crate::generator::run::run;

fn keeps_the_promises(world: World, steps: Vec<Step>) {
    let report = run(&Program { world, steps }, &[]);
    if let Some(finding) = report.finding {
        panic!("{}: {}\n{}", finding.rule, finding.text, report.history);
    }
}

/// A world of one server that answers after `latency` ms, and so many clients.
fn one_server(latency: u8, clients: usize) -> World {
    let spec = ClientSpec {
        server: 0,
        database: 0,
        wake_mode: WakeMode::Messages,
    };
    World {
        servers: 1,
        latency,
        clients: vec![spec; clients],
    }
}

fn take(slot: u8, client: u8, target: Target, opts: CallOptions) -> Step {
    polled(Always, slot, client, target, opts)
}

fn polled(polled: Polled, slot: u8, client: u8, target: Target, opts: CallOptions) -> Step {
    Take {
        slot,
        client,
        target,
        opts,
        polled,
    }
}

/// A worker of client 0.
fn worker(target: Target, rounds: u16, hold: u8, pause: u8) -> Step {
    Worker {
        client: 0,
        target,
        opts: opts(),
        rounds,
        hold,
        pause,
    }
}

/// P8: the queue entry was granted before it was removed, and the error reported that nothing is left.
#[test]
fn a_fair_timeout_reports_a_queue_entry_that_may_be_granted() {
    keeps_the_promises(
        one_server(5, 5),
        vec![
            take(4, 2, Fair("x"), opts()),
            Pass(10),
            take(4, 4, Fair("y"), opts()),
            take(4, 1, Fair("y"), opts().timeout(0)),
        ],
    );
}

/// P8: a writer that read with a timeout of 0 had no time to send a request.
#[test]
fn a_timeout_of_zero_still_sends_one_request() {
    keeps_the_promises(
        one_server(0, 1),
        vec![
            take(4, 0, Write("r"), opts().owner(1)),
            take(1, 0, Read("r"), opts().owner(1).timeout(0)),
            take(2, 0, Write("r"), opts().owner(1).timeout(0)),
        ],
    );
}

/// P3: the clean-up of a queue entry gave up after a lease, but the entry has no lease.
#[test]
fn a_queue_entry_is_removed_after_an_outage_longer_than_the_lease() {
    keeps_the_promises(
        one_server(0, 2),
        vec![
            take(3, 0, Lock("x"), opts()),
            take(2, 1, Fair("x"), opts()),
            Fault(0, Frozen),
            Pass(15_000),
        ],
    );
}

/// P8: the writer's timeout reported that nothing is left. Then the release of the reader granted the lock to the writer's queue entry.
#[test]
fn a_writer_timeout_reports_a_queue_entry_that_may_be_granted() {
    keeps_the_promises(
        one_server(5, 2),
        vec![
            worker(WriterFirstRead("q"), 1, 22, 0),
            take(0, 1, WriterFirstWrite("q"), opts().timeout(41)),
        ],
    );
}

/// P9, P10: a re-entry through another client that was not polled delayed the owner's next re-entry.
#[test]
fn an_unpolled_re_entry_does_not_delay_another_re_entry() {
    keeps_the_promises(
        one_server(0, 2),
        vec![
            take(1, 0, Lock("z"), opts().owner(1)),
            polled(Once, 0, 1, Lock("z"), opts().owner(1)),
            Use(1, Reenter(2)),
            Pass(5_000),
        ],
    );
}

/// P10: the hold of a re-entry that was not polled was renewed for as long as its client lived.
#[test]
fn an_unpolled_re_entry_does_not_renew_its_hold() {
    keeps_the_promises(
        one_server(0, 3),
        vec![
            take(0, 2, Lock("z"), opts().owner(1)),
            take(1, 0, Lock("z"), opts()),
            polled(Once, 3, 1, Lock("z"), opts().owner(1)),
        ],
    );
}

/// P4: a forced release through a handle without writer preference left the mark of the writer that it granted the lock to.
#[test]
fn a_forced_release_removes_the_mark_of_the_granted_writer() {
    keeps_the_promises(
        one_server(0, 2),
        vec![
            worker(WriterFirstRead("q"), 3, 10, 8),
            worker(WriterFirstWrite("q"), 1, 4, 4),
            Step::Manage(1, Manage::ForceRelease(WriterFirstRead("q"))),
        ],
    );
}

/// P8: a shutdown without time left the record of its client's wait, and reported that nothing is left.
#[test]
fn a_shutdown_reports_the_wait_record_that_it_leaves() {
    keeps_the_promises(
        one_server(0, 2),
        vec![
            take(3, 0, Lock("x"), opts()),
            take(4, 1, WaitFree("x"), opts()),
            Pass(1_900),
            Shutdown(1, 0),
        ],
    );
}

/// P8: a shutdown reported that nothing is left. The server kept a hold, which `max_hold` had ended, for its rest.
#[test]
fn a_shutdown_reports_a_lost_hold_that_rests() {
    let held = opts().max_hold(671).rest(3_473);
    keeps_the_promises(
        one_server(0, 1),
        vec![
            take(2, 0, Leader("{x}", 0), held),
            Pass(1_000),
            Shutdown(0, 0),
            Use(2, Discard),
            Shutdown(0, 0),
        ],
    );
}

/// Random programs seldom kill a holder while another client waits for the end of the rest.
#[test]
fn a_name_rests_after_a_crash() {
    keeps_the_promises(
        one_server(1, 2),
        vec![
            take(0, 0, Lock("x"), opts().rest(6_000)),
            Pass(2_500),
            Step::Kill(0),
            take(1, 1, Lock("x"), opts()),
            Pass(20_000),
        ],
    );
}

/// Random programs seldom have two owners that wait for each other and fail in a deadlock.
#[test]
fn one_of_a_deadlock_gives_up() {
    keeps_the_promises(
        one_server(1, 2),
        vec![
            take(0, 0, Lock("x"), opts().owner(0)),
            take(1, 1, Lock("y"), opts().owner(1)),
            Pass(50),
            take(2, 0, Lock("y"), opts().owner(0).fails()),
            take(3, 1, Lock("x"), opts().owner(1).fails()),
            Pass(30_000),
            Pass(30_000),
        ],
    );
}

/// P11: each reply was final, so the client did not increase its poll interval, although the replies brought no news.
#[test]
fn a_polling_client_at_a_barrier_polls_less_and_less_often() {
    let mut world = one_server(1, 1);
    world.clients[0].wake_mode = WakeMode::Polls;
    keeps_the_promises(world, vec![take(0, 0, Barrier("x", 2, false), opts())]);
}

/// If the party got a second place while its first one was given back, it would count as both parties.
#[test]
fn a_reply_slower_than_the_lease_leaves_one_place() {
    for target in [Barrier("x", 2, false), DoubleBarrier("x", 2)] {
        keeps_the_promises(
            one_server(5, 2),
            vec![
                take(0, 0, target.clone(), opts()),
                take(1, 1, target.clone(), opts()),
                Pass(50),
                Use(0, Release),
                Use(1, Release),
                Pass(50),
                Fault(0, Delayed(1)),
                take(0, 0, target, opts().lease(600)),
                Pass(640),
                Fault(0, Delivered),
                Pass(500),
            ],
        );
    }
}

/// P9: the last request has used some of the time after the deadline. Giving the place back must not take longer than the rest.
#[test]
fn a_wait_of_20_ms_ends_in_time_without_replies() {
    keeps_the_promises(
        one_server(1, 2),
        vec![
            take(2, 1, Barrier("y", 2, false), opts().timeout(20)),
            Fault(0, RepliesSilent(2)),
            Pass(0),
        ],
    );
}

/// The round that the party reports must be the one that it took part in.
#[test]
fn a_late_party_learns_that_it_completed_the_round() {
    keeps_the_promises(
        one_server(5, 2),
        vec![
            take(0, 0, Barrier("x", 2, true), opts()),
            Pass(50),
            Fault(0, Delayed(1)),
            take(1, 1, Barrier("x", 2, true), opts().lease(600)),
            Pass(640),
            Fault(0, Delivered),
            Pass(500),
        ],
    );
}

/// P4: the holder and all that wait are killed. A process that comes then must poll as the head.
#[test]
fn a_process_behind_killed_ones_gets_the_lock_in_time() {
    keeps_the_promises(
        one_server(0, 2),
        vec![
            KillGroup {
                client: 0,
                processes: 40,
                target: WriterFirstWrite("q"),
                live: 1286,
            },
            take(1, 1, WriterFirstRead("q"), opts()),
        ],
    );
}
