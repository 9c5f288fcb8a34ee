//! The lock.

use std::fmt::{self, Debug};

use stanchion_client::primitive::Sharing;
use stanchion_explorer::{Call, Configuration};
use stanchion_lock::scripts::{ACQUIRE, HAND_OFF, RELEASE, TEND};

use super::client::{Ask, Client, Kind, LEASE, call};
use super::{
    FAULTS, MANY, RENEW, Rules, Text, finds, finds_nothing, held_by, one_holder, with_a_sleeper,
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
    // A client that polls finds its grant at its next request.
    held_up: |world| 130 * u64::from(world.running().any(|it| it.polls)),
    stay: &["fence"],
    ..Rules::of(
        |world| one_holder(world, held_by(world), "orders"),
        |world| {
            // After a fault Redisson's clients wait for as long as their own rules say.
            let counts = |it: &Client<Lock>| !it.is_redissons() || world.is_undisturbed();
            held_by(world) == 0 && world.running().any(|it| it.waits() && counts(it))
        },
    )
};

#[test]
fn without_faults() {
    finds_nothing("lock, 2 processes, 2 acquires", &lock(2, 2, 0), &[""]);
    finds_nothing("lock, 3 processes, drops", &lock(3, 1, 1), &[""]);
    finds_nothing("lock, 2 processes, drops", &lock(2, 1, 1), &["a jump"]);
    let name = "lock, 2 processes, drops, tokens";
    finds_nothing(name, &with_tokens(), &["a jump"]);
}

#[test]
fn with_one_fault() {
    let with_a_jump = ["a lost message, a jump", "a kill, a jump", "a stop, a jump"];
    let without = ["a message twice", "a cut", "a lost request or reply"];
    let name = "lock, 2 processes, drops";
    finds_nothing(name, &lock(2, 1, 1), &[with_a_jump, without].concat());
    finds_nothing("lock, 3 processes", &lock(3, 1, 0), &FAULTS);
}

fn with_tokens() -> Configuration<Client<Lock>> {
    let mut lock = lock(2, 1, 1);
    for process in &mut lock.processes {
        process.kind.fence = "fence";
    }
    lock
}

/// The last process polls.
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
    finds_nothing(name, &with_tasks(0), &["", "a kill"]);
}

#[test]
fn a_task_that_is_not_polled() {
    finds_nothing(
        "lock, 3 processes, a sleeper",
        &with_a_sleeper(lock(3, 1, 0)),
        &[""],
    );
}

#[test]
fn two_tasks_in_a_process_with_a_sleeper() {
    let mut lock = lock(2, 2, 0);
    lock.processes[0] = lock.processes[0].clone().with_tasks(2);
    let name = "lock, 2 processes, 2 tasks and a sleeper";
    finds_nothing(name, &with_a_sleeper(lock), &[""]);
}

#[test]
fn a_process_that_polls() {
    let name = "lock, 3 processes, one polls";
    finds_nothing(&format!("{name}, drops"), &with_polls(3, 1), &[""]);
    let faults = ["a kill", "a stop", "a lost message", "a kill, a stop"];
    finds_nothing(name, &with_polls(3, 0), &faults);
    let name = "lock, 2 processes, one polls";
    finds_nothing(name, &with_polls(2, 0), &["a jump"]);
}

#[test]
fn planted_errors_are_found() {
    finds(
        |faults| lock(3, 1, u8::from(faults.is_empty())),
        r"
        a head that did not receive its grant keeps it: a kill
        - leave(head)
        -         if told
        + if told

        a granted head stays in the queue: a kill
        - enter(head, us, ms)
        -       call('ZREM', line, head)
        + enter(head, us, ms)

        the new head gets no message N: a kill
        - for i = 0, sweep - 1 do
        + for i = 1, 0 do

        a process that leaves keeps its entry
        - return remove(entry) or
        + return call('ZSCORE', line, entry) and true or

        a refused process gets no entry, and a queue that is not short, in which polls would hide it
        - local entries = put(entry, arrived)
        + local entries = 4

        a release grants to no process
        - local told, _, more = pass(us)
        + local told, more = 0

        an acquire takes a held lock
        - if ttl == -2 and not window or held then
        + if true then
        ",
    );
    // The holder dies, and the head is stopped.
    finds(
        |faults| with_polls(3, u8::from(faults.is_empty())),
        r"
        a process that polls and leaves keeps its entry
        - or remove(entry .. '?')

        a process that polls takes a free lock only as the head: a kill, a stop
        - ask == 'ask' and poll ~= ''
        + poll ~= ''
        ",
    );
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    let faults = ["two jumps", "a lost request or reply, a jump"];
    finds_nothing("lock, 2 processes, drops", &lock(2, 1, 1), &faults);
    let faults = ["a lost message", "a message twice", "a stop"];
    let name = "lock, 2 processes with 2 tasks";
    finds_nothing(name, &with_tasks(0), &faults);
    let name = "lock, 3 processes, one polls";
    finds_nothing(name, &with_polls(3, 0), &["a lost request or reply"]);
    let faults = [
        "two kills",
        "a lost message, a kill",
        "a lost request or reply, a kill",
        "a cut, a kill",
        "a lost request or reply, a lost message",
    ];
    finds_nothing("lock, 3 processes", &lock(3, 1, 0), &faults);
}

#[test]
fn walks() {
    super::walks(
        "lock, 3 processes, 2 acquires, drops",
        &lock(3, 2, 2),
        &MANY,
    );
    let name = "lock, 2 processes with 2 tasks, drops";
    super::walks(name, &with_tasks(2), &MANY);
    super::walks("lock, 3 processes, one polls", &with_polls(3, 2), &MANY);
}
