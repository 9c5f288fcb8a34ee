//! The fair lock.

use stanchion_client::primitive::Sharing;
use stanchion_explorer::{Call, Configuration, World};
use stanchion_fair::scripts::{ABANDON, ACQUIRE, RELEASE, RELEASE_AND_ACQUIRE, TEND};

use super::client::{Ask, Client, Kind, LEASE, call};
use super::{
    FAULTS, MANY, RENEW, Rules, Text, finds, finds_nothing, held_by, one_holder, with_a_sleeper,
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
    // The grant, the poll after it, and the time in which processes answer a call.
    grant: 1_700,
    of_ended: &["line", "timeouts"],
    ..Rules::of(one_holder_and_one_queue, |world| {
        held_by(world) == 0 && world.running().any(Client::waits)
    })
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

/// P1, P6: the arrivals of the waiters rise along the queue, each waiter has a deadline, and one that has left has none.
fn one_holder_and_one_queue(world: &World<Client<Fair>>) -> Result<(), String> {
    one_holder(world, held_by(world), "orders")?;
    let [queue, timeouts, waiters] =
        [&b"line"[..], b"timeouts", b"waiters"].map(|key| world.server.content(key));
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

#[test]
fn without_faults() {
    finds_nothing("fair lock, 3 processes, drops", &fair(3, 1, 1), &[""]);
    let faults = ["a jump", "a lost request or reply"];
    finds_nothing("fair lock, 2 processes, drops", &fair(2, 1, 1), &faults);
}

#[test]
fn with_one_fault() {
    finds_nothing("fair lock, 3 processes", &fair(3, 1, 0), &FAULTS[..5]);
}

#[test]
fn a_task_that_is_not_polled() {
    finds_nothing(
        "fair lock, 3 processes, a sleeper",
        &with_a_sleeper(fair(3, 1, 0)),
        &[""],
    );
}

#[test]
fn two_tasks_in_a_process() {
    let name = "fair lock, 2 processes with 2 tasks and 1";
    finds_nothing(name, &with_tasks(1), &["", "a lost message", "a kill"]);
}

#[test]
fn planted_errors_are_found() {
    finds(
        |_| fair(3, 1, 0),
        r"
        a release grants to no waiter
        - return settle(nil, nil, freed)
        + return 0

        a new waiter joins in front of the queue
        - call('RPUSH', queue, owner)
        + call('LPUSH', queue, owner)

        a granted waiter stays in the queue
        -   call('LPOP', queue)
        -   call('ZREM', timeouts, head)
        -   enter
        +   enter

        a waiter whose grant was lost is not waited for: a lost message
        - if left == -2 and called < call_ms then
        + if false then

        no waiter watches a grant by message: a stop
        -     watch(ms)

        a grant to a dead process stays: a kill, a jump
        -   call('HDEL', lock, head)
        ",
    );
    finds(
        |_| fair(3, 1, 1),
        r"
        a waiter that gives up keeps its place
        -   call('LREM', KEYS[2], behind * 2 < call('ZCARD', KEYS[3]) and -1 or 1, ARGV[4])
        ",
    );
    finds(
        |_| with_tasks(1),
        r"
        a reply does not contain the grant to a waiter of its process
        - return own == '' and code or { code, us, own }
        + return code
        ",
    );
}

#[test]
#[ignore = "takes minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    finds_nothing("fair lock, 2 processes, 2 acquires", &fair(2, 2, 0), &[""]);
    let faults = [
        "a lost request or reply",
        "a lost message, a jump",
        "a kill, a jump",
    ];
    finds_nothing("fair lock, 3 processes", &fair(3, 1, 0), &faults);
    finds_nothing("fair lock, 2 processes", &fair(2, 1, 0), &["a cut, a jump"]);
    let name = "fair lock, 2 processes with 2 tasks and 1";
    let faults = [
        "a message twice",
        "a stop",
        "a cut",
        "a lost request or reply",
    ];
    finds_nothing(name, &with_tasks(1), &faults);
}

#[test]
fn walks() {
    super::walks("fair lock, 2 processes with 2 tasks", &with_tasks(2), &MANY);
    // A process that dies may have the hold and the head of the queue.
    let rules = Rules {
        holds_as_head: true,
        entries: 6,
        ..RULES
    };
    let name = "fair lock, 3 processes, drops";
    // The model does not receive a call of all processes (F3), which keeps the order after two faults.
    super::walks(name, &with_rules(3, 2, 2, rules), &MANY[..3]);
}
