//! The fair lock.

use stanchion_client::primitive::Sharing;
use stanchion_explorer::{Call, Configuration, World};
use stanchion_fair::scripts::{ABANDON, ACQUIRE, RELEASE, RELEASE_AND_ACQUIRE, TEND};

use super::client::{Ask, Client, Kind, LEASE, call};
use super::{
    CUT, Edit, Faults, KILL, MESSAGE, NONE, RENEW, REPLY, Rules, STOP, TWICE, Text, finds,
    finds_nothing, finds_nothing_so_far,
};

fn scripts() -> Vec<Text> {
    vec![
        ("acquire", ACQUIRE.text()),
        ("release", RELEASE.text()),
        ("release_and_acquire", RELEASE_AND_ACQUIRE.text()),
        ("abandon", ABANDON.text()),
        ("tend", TEND.text()),
        ("renew", RENEW),
    ]
}

/// A fair lock without tokens.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Fair;

const KEYS: [&str; 6] = ["orders", "line", "timeouts", "waiters", "wake", "orders"];

/// Calls a script with the arguments that all have, and `args`.
fn with_queue(script: &'static str, args: &[&str]) -> Call {
    let common = ["base", "PUBLISH", "300000"];
    call(script, &KEYS, &[&common, args].concat())
}

impl Kind for Fair {
    fn sharing(&self) -> Sharing {
        Sharing::Queued
    }

    fn acquire(&self, ask: &Ask) -> Call {
        let Ask {
            owner, not_after, ..
        } = ask;
        let (arrived, hears) = (ask.arrived.to_string(), u8::from(ask.hears).to_string());
        with_queue("acquire", &[owner, LEASE, not_after, &arrived, &hears])
    }

    fn release(&self, owner: &str, leaves: &str) -> Call {
        match leaves {
            "1" => with_queue("abandon", &[owner]),
            _ => with_queue("release", &[owner, "1", LEASE]),
        }
    }

    fn renew(&self, owner: &str, not_after: &str) -> Call {
        call("renew", &["orders"], &[not_after, owner, LEASE])
    }

    fn tend(&self, _sentry: &str) -> Call {
        with_queue("tend", &[])
    }

    fn release_and_acquire(&self, from: &str, ask: &Ask) -> Option<Call> {
        let hears = u8::from(ask.hears).to_string();
        let args = [from, &ask.owner, LEASE, &ask.not_after, &hears];
        Some(with_queue("release_and_acquire", &args))
    }
}

const RULES: Rules<Fair> = Rules {
    always: one_holder_and_one_queue,
    starves: |world| held_by(world) == 0 && world.running().any(Client::waits),
    ends: |world| world.server.ttl(b"orders").map_or(0, i64::unsigned_abs),
    held_up: |_| 0,
    // The grant, the poll after it, and the time in which processes answer a call.
    grant: 1_700,
    shares: false,
    holds_as_head: false,
    stay: &[],
    of_ended: &["line", "timeouts"],
};

fn fair(processes: usize, acquires: u8, drops: u8) -> Configuration<Client<Fair>> {
    with_rules(processes, acquires, drops, RULES)
}

fn with_rules(
    processes: usize,
    acquires: u8,
    drops: u8,
    rules: Rules<Fair>,
) -> Configuration<Client<Fair>> {
    let kinds = &[Fair; 3][..processes];
    let mut fair = super::configuration(&scripts(), kinds, [acquires, drops], rules);
    fair.change = std::sync::Arc::new(in_order);
    fair
}

/// Two processes. The first has two tasks, which acquire twice together; the second has `others` tasks.
fn with_tasks(others: usize) -> Configuration<Client<Fair>> {
    // One task may hold while the other is the head of the queue. The poll of a single other waiter is soon enough.
    let rules = Rules {
        holds_as_head: others > 1,
        ..RULES
    };
    let mut fair = with_rules(2, 2, 0, rules);
    for (process, tasks) in fair.processes.iter_mut().zip([2, others]) {
        *process = process.clone().with_tasks(tasks);
        process.acquires = u8::try_from(tasks).unwrap_or(u8::MAX);
    }
    fair
}

fn held_by(world: &World<Client<Fair>>) -> usize {
    let now = world.client_now();
    world.running().filter(|client| client.holds(now)).count()
}

/// P1, P6: the arrivals of the waiters rise along the queue, each waiter has a deadline, and one that has left has none.
fn one_holder_and_one_queue(world: &World<Client<Fair>>) -> Result<(), String> {
    let holders = held_by(world);
    if holders > 1 {
        return Err(format!("P1: {holders} clients hold"));
    }
    let [held, queue, timeouts, waiters] =
        [&b"orders"[..], b"line", b"timeouts", b"waiters"].map(|key| world.server.content(key));
    if holders > held.len() {
        return Err("P1: a client holds, and the server has no holder".to_owned());
    }
    if held.len() > 1 || held.iter().any(|(_, count)| count != "1") {
        return Err(format!("P6: the server has {held:?}"));
    }
    let queue: Vec<_> = queue.into_iter().map(|(_, owner)| owner).collect();
    let mut deadlines: Vec<_> = timeouts.iter().map(|(owner, _)| owner.clone()).collect();
    let mut arrived = waiters.iter().map(|(owner, _)| owner);
    let in_order = queue
        .iter()
        .all(|owner| arrived.any(|arrived| arrived == owner));
    let mut sorted = queue.clone();
    sorted.sort_unstable();
    deadlines.sort_unstable();
    if sorted != deadlines || !in_order {
        return Err(format!(
            "P6: the queue is {queue:?}, with {timeouts:?} and {waiters:?}"
        ));
    }
    Ok(())
}

/// P7: no waiter of a connected process is passed over. A process that was cut off may be, and a late message may be too late.
fn in_order(before: &World<Client<Fair>>, after: &World<Client<Fair>>) -> Result<(), String> {
    let holder = |world: &World<Client<Fair>>| world.server.content(b"orders").pop();
    let Some((next, _)) = holder(after).filter(|it| holder(before).as_ref() != Some(it)) else {
        return Ok(());
    };
    if after.has_jumped() {
        return Ok(());
    }
    let known = before.running().flat_map(Client::arrivals);
    let queued = before.server.content(b"waiters").into_iter();
    let queued = queued.map(|(owner, arrived)| (owner, arrived.parse().unwrap_or_default()));
    let found = known.chain(queued).find(|(owner, _)| *owner == next);
    let arrival = found.map_or(u64::MAX, |(_, arrived)| arrived);
    let is_connected =
        |it: &&Client<Fair>| !it.was_cut && before.server.listeners(it.channel().as_bytes()) > 0;
    for client in before.running().filter(is_connected) {
        if let Some((owner, _)) = client
            .arrivals()
            .find(|(owner, at)| *at < arrival && *owner != next)
        {
            return Err(format!("P7: {next} is granted the lock before {owner}"));
        }
    }
    Ok(())
}

const FAULTS: [(&str, Faults); 6] = [
    ("a lost message", MESSAGE),
    ("a message twice", TWICE),
    ("a kill", KILL),
    ("a stop", STOP),
    ("a cut", CUT),
    ("a lost request or reply", REPLY),
];

#[test]
fn without_faults() {
    finds_nothing("fair lock, 3 processes, drops", fair(3, 1, 1), NONE, 0);
    let name = "fair lock, 2 processes, drops, a jump";
    finds_nothing(name, fair(2, 1, 1), NONE, 1);
}

#[test]
fn with_one_fault() {
    for (what, faults) in &FAULTS[..5] {
        let name = format!("fair lock, 3 processes, {what}");
        finds_nothing(&name, fair(3, 1, 0), *faults, 0);
    }
    let name = "fair lock, 2 processes, drops, a lost request or reply";
    finds_nothing(name, fair(2, 1, 1), REPLY, 0);
}

#[test]
fn two_tasks_in_a_process() {
    let name = "fair lock, 2 processes with 2 tasks and 1";
    finds_nothing(name, with_tasks(1), NONE, 0);
    for (what, faults) in [("a lost message", MESSAGE), ("a kill", KILL)] {
        finds_nothing(&format!("{name}, {what}"), with_tasks(1), faults, 0);
    }
}

#[test]
fn planted_errors_are_found() {
    let three = || fair(3, 1, 0);
    type Planted = (
        &'static str,
        Configuration<Client<Fair>>,
        (Faults, u8),
        Edit,
    );
    let planted: [Planted; 8] = [
        (
            "a release grants to no waiter",
            three(),
            (NONE, 0),
            ("return settle(nil, nil, freed)", "return 0"),
        ),
        (
            "a new waiter joins in front of the queue",
            three(),
            (NONE, 0),
            ("call('RPUSH', queue, owner)", "call('LPUSH', queue, owner)"),
        ),
        (
            "a granted waiter stays in the queue",
            three(),
            (NONE, 0),
            (
                "  call('LPOP', queue)\n  call('ZREM', timeouts, head)\n  enter",
                "  enter",
            ),
        ),
        (
            "a waiter that gives up keeps its place",
            fair(3, 1, 1),
            (NONE, 0),
            (
                "  call('LREM', KEYS[2], behind * 2 < call('ZCARD', KEYS[3]) and -1 or 1, ARGV[4])\n",
                "",
            ),
        ),
        (
            "a waiter whose grant was lost is not waited for",
            three(),
            (MESSAGE, 0),
            ("if left == -2 and called < call_ms then", "if false then"),
        ),
        (
            "no waiter watches a grant by message",
            three(),
            (STOP, 0),
            ("    watch(ms)\n", ""),
        ),
        (
            "a grant to a dead process stays",
            three(),
            (KILL, 1),
            ("  call('HDEL', lock, head)\n", ""),
        ),
        (
            "a reply does not contain the grant to a waiter of its process",
            with_tasks(1),
            (NONE, 0),
            (
                "return own == '' and code or { code, us, own }",
                "return code",
            ),
        ),
    ];
    for (what, fair, bounds, edit) in planted {
        finds(what, fair, bounds, &[edit]);
    }
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    finds_nothing("fair lock, 2 processes, 2 acquires", fair(2, 2, 0), NONE, 0);
    let name = "fair lock, 3 processes, a lost request or reply";
    finds_nothing(name, fair(3, 1, 0), REPLY, 0);
    for (what, processes, faults) in [
        ("a lost message", 3, MESSAGE),
        ("a kill", 3, KILL),
        ("a cut", 2, CUT),
    ] {
        let name = format!("fair lock, {processes} processes, {what}, a jump");
        finds_nothing(&name, fair(processes, 1, 0), faults, 1);
    }
    let name = "fair lock, 2 processes with 2 tasks and 1";
    for (what, faults) in &FAULTS {
        if ![MESSAGE, KILL].contains(faults) {
            finds_nothing(&format!("{name}, {what}"), with_tasks(1), *faults, 0);
        }
    }
}

#[test]
#[ignore = "takes many minutes; docs/testing-explorer.md has the command"]
fn with_much_larger_bounds() {
    let name = "fair lock, 2 processes with 2 tasks";
    finds_nothing_so_far(name, with_tasks(2), NONE);
    for (what, faults) in &FAULTS[..5] {
        finds_nothing_so_far(&format!("{name}, {what}"), with_tasks(2), *faults);
    }
}
