//! The lock.

use std::fmt::{self, Debug};

use stanchion_client::primitive::Sharing;
use stanchion_explorer::{Call, Configuration, World};
use stanchion_lock::scripts::{ACQUIRE, HAND_OFF, RELEASE, TEND};

use super::client::{Ask, Client, Kind, LEASE, call};
use super::{
    CUT, Edit, Faults, KILL, MESSAGE, NONE, RENEW, REPLY, Rules, STOP, TWICE, Text, finds,
    finds_nothing, finds_nothing_so_far,
};

pub(crate) fn scripts() -> Vec<Text> {
    vec![
        ("acquire", ACQUIRE.text()),
        ("release", RELEASE.text()),
        ("tend", TEND.text()),
        ("hand_off", HAND_OFF.text()),
        ("renew", RENEW),
    ]
}

/// A lock with the counter of its tokens. The lock's own key: no tokens, which saves states.
#[derive(Clone, Copy, PartialEq)]
pub(crate) struct Lock {
    fence: &'static str,
    is_beside_redisson: bool,
}

/// A lock without tokens.
pub(crate) const PLAIN: Lock = Lock {
    fence: "orders",
    is_beside_redisson: false,
};

/// The same, used by a client of Redisson's, too.
pub(crate) const BESIDE_REDISSON: Lock = Lock {
    is_beside_redisson: true,
    ..PLAIN
};

impl Debug for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.fence)
    }
}

impl Lock {
    fn keys(self) -> [&'static str; 4] {
        ["orders", self.fence, "line", "wake"]
    }
}

impl Kind for Lock {
    fn sharing(&self) -> Sharing {
        Sharing::Exclusive
    }

    fn fence(&self) -> &'static str {
        if self.fence == "orders" {
            "-"
        } else {
            self.fence
        }
    }

    fn acquire(&self, ask: &Ask) -> Call {
        let args = [
            &*ask.owner,
            LEASE,
            &ask.not_after,
            &ask.word,
            "PUBLISH",
            "base",
        ];
        call("acquire", &self.keys(), &args)
    }

    fn release(&self, owner: &str, leaves: &str) -> Call {
        call("release", &self.keys(), &["base", "PUBLISH", owner, leaves])
    }

    fn renew(&self, owner: &str, not_after: &str) -> Call {
        call("renew", &["orders"], &[not_after, owner, LEASE])
    }

    fn is_beside_redisson(&self) -> bool {
        self.is_beside_redisson
    }

    fn tend(&self, sentry: &str) -> Call {
        call("tend", &self.keys(), &["base", "PUBLISH", sentry])
    }

    fn hand_off(&self, from: &str, to: &str, not_after: &str) -> Option<Call> {
        let args = ["base", "PUBLISH", from, to, LEASE, not_after, "1"];
        Some(call("hand_off", &self.keys(), &args))
    }
}

fn lock(processes: usize, acquires: u8, drops: u8) -> Configuration<Client<Lock>> {
    let kinds = [PLAIN; 3];
    super::configuration(&scripts(), &kinds[..processes], [acquires, drops], RULES)
}

pub(crate) const RULES: Rules<Lock> = Rules {
    always: one_holder,
    starves: |world| {
        // After a fault Redisson's clients wait for as long as their own rules say.
        let counts = |it: &Client<Lock>| !it.is_redissons() || world.is_undisturbed();
        held_by(world) == 0 && world.running().any(|it| it.waits() && counts(it))
    },
    ends: |world| world.server.ttl(b"orders").map_or(0, i64::unsigned_abs),
    // A client that polls finds its grant at its next request.
    held_up: |world| {
        if world.running().any(|it| it.polls) {
            130
        } else {
            0
        }
    },
    grant: 1_510,
    shares: false,
    holds_as_head: false,
    stay: &["fence"],
    of_ended: &[],
};

fn held_by(world: &World<Client<Lock>>) -> usize {
    let now = world.client_now();
    world.running().filter(|client| client.holds(now)).count()
}

fn one_holder(world: &World<Client<Lock>>) -> Result<(), String> {
    let holders = held_by(world);
    if holders > 1 {
        return Err(format!("P1: {holders} clients hold"));
    }
    let held = world.server.content(b"orders");
    if holders > held.len() {
        return Err("P1: a client holds, and the server has no holder".to_owned());
    }
    if held.len() > 1 || held.iter().any(|(_, count)| count != "1") {
        return Err(format!("P6: the server has {held:?}"));
    }
    Ok(())
}

#[test]
fn without_faults() {
    finds_nothing("lock, 2 processes, 2 acquires", lock(2, 2, 0), NONE, 0);
    finds_nothing("lock, 3 processes, drops", lock(3, 1, 1), NONE, 0);
    finds_nothing("lock, 2 processes, drops, 1 jump", lock(2, 1, 1), NONE, 1);
    let name = "lock, 2 processes, drops, tokens, a jump";
    finds_nothing(name, with_tokens(), NONE, 1);
}

#[test]
fn with_one_fault() {
    for (what, faults) in [
        ("a lost request or reply", REPLY),
        ("a lost message", MESSAGE),
        ("a message twice", TWICE),
        ("a kill", KILL),
        ("a stop", STOP),
        ("a cut", CUT),
    ] {
        let jumps = u8::from(faults.cuts + faults.replies + faults.duplicates == 0);
        let name = format!("lock, 2 processes, drops, {what}, {jumps} jumps");
        finds_nothing(&name, lock(2, 1, 1), faults, jumps);
        let name = format!("lock, 3 processes, {what}");
        finds_nothing(&name, lock(3, 1, 0), faults, 0);
    }
}

/// The last process polls.
fn with_tokens() -> Configuration<Client<Lock>> {
    let mut lock = lock(2, 1, 1);
    for process in &mut lock.processes {
        process.kind.fence = "fence";
    }
    lock
}

fn with_polls(processes: usize, drops: u8) -> Configuration<Client<Lock>> {
    let mut lock = lock(processes, 1, drops);
    let last = lock.processes.pop().map(Client::polling);
    lock.processes.extend(last);
    lock
}

/// Two tasks in each process: one hands its lock to the other.
fn with_tasks(drops: u8) -> Configuration<Client<Lock>> {
    let rules = Rules {
        holds_as_head: true,
        ..RULES
    };
    let kinds = [PLAIN; 2];
    let mut lock = super::configuration(&scripts(), &kinds, [2, drops], rules);
    for process in &mut lock.processes {
        *process = process.clone().with_tasks(2);
    }
    lock
}

#[test]
fn two_tasks_in_each_process() {
    let name = "lock, 2 processes with 2 tasks";
    finds_nothing(name, with_tasks(0), NONE, 0);
    let name = format!("{name}, a kill");
    finds_nothing(&name, with_tasks(0), KILL, 0);
}

#[test]
fn a_process_that_polls() {
    finds_nothing(
        "lock, 3 processes, one polls, drops",
        with_polls(3, 1),
        NONE,
        0,
    );
    finds_nothing(
        "lock, 2 processes, one polls, a jump",
        with_polls(2, 0),
        NONE,
        1,
    );
    for (what, faults) in [
        ("a kill", KILL),
        ("a stop", STOP),
        ("a lost message", MESSAGE),
    ] {
        let name = format!("lock, 3 processes, one polls, {what}");
        finds_nothing(&name, with_polls(3, 0), faults, 0);
    }
    let name = "lock, 3 processes, one polls, a kill and a stop";
    finds_nothing(name, with_polls(3, 0), KILL_AND_STOP, 0);
}

/// The holder dies, and the head is stopped.
const KILL_AND_STOP: Faults = Faults { stops: 1, ..KILL };

#[test]
fn errors_about_a_process_that_polls_are_found() {
    let leaves = ("or remove(entry .. '?')", "");
    let what = "a process that polls and leaves keeps its entry";
    finds(what, with_polls(3, 1), (NONE, 0), &[leaves]);
    let looks = ("ask == 'ask' and poll ~= ''", "poll ~= ''");
    let what = "a process that polls takes a free lock only as the head";
    finds(what, with_polls(3, 0), (KILL_AND_STOP, 0), &[looks]);
}

/// Each planted error must be found.
#[test]
fn planted_errors_are_found() {
    let planted: [(&str, Faults, &[Edit]); 7] = [
        (
            "a head that did not receive its grant keeps it",
            KILL,
            &[("leave(head)\n        if told", "if told")],
        ),
        (
            "a granted head stays in the queue",
            KILL,
            &[(
                "enter(head, us, ms)\n      call('ZREM', line, head)",
                "enter(head, us, ms)",
            )],
        ),
        (
            "the new head gets no message N",
            KILL,
            &[("if head and ms >= 0 then tell", "if false then tell")],
        ),
        (
            "a process that leaves keeps its entry",
            NONE,
            &[(
                "return remove(entry) or",
                "return call('ZSCORE', line, entry) and true or",
            )],
        ),
        (
            "a refused process gets no entry",
            NONE,
            &[
                // In a short queue, polls would hide it.
                ("local entries = put(entry, arrived)", "local entries = 4"),
            ],
        ),
        (
            "a release grants to no process",
            NONE,
            &[("local told, _, more = pass(us)", "local told, more = 0")],
        ),
        (
            "an acquire takes a held lock",
            NONE,
            &[("if ttl == -2 and not window or held then", "if true then")],
        ),
    ];
    for (what, faults, edits) in planted {
        let lock = lock(3, 1, u8::from(faults == NONE));
        finds(what, lock, (faults, 0), edits);
    }
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    finds_nothing("lock, 2 processes, drops, 2 jumps", lock(2, 1, 1), NONE, 2);
    let name = "lock, 2 processes with 2 tasks";
    for (what, faults) in [
        ("a lost message", MESSAGE),
        ("a message twice", TWICE),
        ("a stop", STOP),
    ] {
        finds_nothing(&format!("{name}, {what}"), with_tasks(0), faults, 0);
    }
    let name = "lock, 2 processes, drops, a lost request or reply, a jump";
    finds_nothing(name, lock(2, 1, 1), REPLY, 1);
    finds_nothing(
        "lock, 3 processes, one polls, a lost request or reply",
        with_polls(3, 0),
        REPLY,
        0,
    );
    for (what, faults) in [
        ("two kills", Faults { kills: 2, ..NONE }),
        (
            "a lost message and a kill",
            Faults {
                kills: 1,
                ..MESSAGE
            },
        ),
        (
            "a lost request or reply and a kill",
            Faults { kills: 1, ..REPLY },
        ),
        ("a cut and a kill", Faults { kills: 1, ..CUT }),
        (
            "a lost reply and a lost message",
            Faults {
                replies: 1,
                ..MESSAGE
            },
        ),
    ] {
        let name = format!("lock, 3 processes, {what}");
        finds_nothing(&name, lock(3, 1, 0), faults, 0);
    }
}

#[test]
#[ignore = "takes many minutes; docs/testing-explorer.md has the command"]
fn with_much_larger_bounds() {
    finds_nothing_so_far("lock, 3 processes, 2 acquires", lock(3, 2, 0), NONE);
    let name = "lock, 2 processes with 2 tasks";
    finds_nothing_so_far(&format!("{name}, drops"), with_tasks(1), NONE);
    for (what, faults) in [("a cut", CUT), ("a lost request or reply", REPLY)] {
        finds_nothing_so_far(&format!("{name}, {what}"), with_tasks(0), faults);
    }
    finds_nothing_so_far("lock, 3 processes, drops, a cut", lock(3, 1, 1), CUT);
}
