//! A client of Redisson's beside two processes, at a lock.

use stanchion_explorer::Configuration;

use super::client::{Client, REDISSONS_SCRIPTS};
use super::lock::{BESIDE_REDISSON, Lock, RULES, scripts};
use super::{
    CUT, Edit, Faults, KILL, MESSAGE, NONE, STOP, TWICE, finds, finds_nothing, finds_nothing_so_far,
};

/// Of version 4, as Redisson's are.
const REDISSON: &str = "cccccccc-cccc-4ccc-8ccc-cccccccccccc";

/// So many processes, the last of which is Redisson's.
fn beside_redisson(processes: usize, acquires: u8, drops: u8) -> Configuration<Client<Lock>> {
    let scripts = [&scripts()[..], &REDISSONS_SCRIPTS].concat();
    let kinds = [BESIDE_REDISSON; 3];
    let last = processes - 1;
    let mut lock = super::configuration(&scripts, &kinds[..=last], [acquires, drops], RULES);
    lock.processes[last] = Client::of_redisson(REDISSON, BESIDE_REDISSON, acquires);
    lock.aliases[last].0 = REDISSON.to_owned();
    lock
}

const FAULTS: [(&str, Faults); 5] = [
    ("a lost message", MESSAGE),
    ("a message twice", TWICE),
    ("a kill", KILL),
    ("a stop", STOP),
    ("a cut", CUT),
];

#[test]
fn one_process() {
    let name = "lock, a process beside Redisson";
    finds_nothing(&format!("{name}, drops"), beside_redisson(2, 1, 1), NONE, 0);
    for (what, faults) in FAULTS {
        finds_nothing(
            &format!("{name}, {what}"),
            beside_redisson(2, 1, 0),
            faults,
            0,
        );
    }
}

#[test]
fn planted_errors_are_found() {
    let planted: [(&str, Edit); 3] = [
        (
            "no process becomes the relay",
            (
                "if not hears then return good and 0 or 1 end",
                "if not hears then return 0 end",
            ),
        ),
        (
            "the relay serves no queue",
            (
                "local _, _, more = serve(us)\nreturn unless_unfinished(-1",
                "local more\nreturn unless_unfinished(-1",
            ),
        ),
        (
            "an acquire takes the lock of Redisson's client",
            ("if ttl == -2 and not window or held then", "if true then"),
        ),
    ];
    for (what, edit) in planted {
        finds(what, beside_redisson(2, 1, 0), (NONE, 0), &[edit]);
    }
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    let name = "lock, a process beside Redisson, 2 acquires";
    finds_nothing(name, beside_redisson(2, 2, 0), NONE, 0);
    let edit = ("tell_first(yield_ms)", "0");
    let what = "the head does not poll after a turn of Redisson's clients";
    finds(what, beside_redisson(3, 1, 0), (STOP, 0), &[edit]);
}

#[test]
#[ignore = "takes many minutes; docs/testing-explorer.md has the command"]
fn with_much_larger_bounds() {
    let name = "lock, 2 processes beside Redisson";
    finds_nothing_so_far(name, beside_redisson(3, 1, 0), NONE);
    for (what, faults) in FAULTS {
        let name = format!("{name}, {what}");
        finds_nothing_so_far(&name, beside_redisson(3, 1, 0), faults);
    }
}
