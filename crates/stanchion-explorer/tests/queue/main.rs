//! The queue of waiting processes, explored: the scripts of each kind of synchronizer, and one model of their client.
#![expect(
    clippy::print_stdout,
    reason = "`--nocapture` shows the size of each exploration"
)]

mod client;
mod fair;
mod lock;
mod multilock;
mod permits;
mod redisson;
mod rwlock;

use std::sync::Arc;

use client::{Client, Kind};
use stanchion_explorer::{Configuration, Faults, Report, START, World, explore};

const UUIDS: [&str; 3] = [
    "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa",
    "bbbbbbbb-bbbb-8bbb-8bbb-bbbbbbbbbbbb",
    "cccccccc-cccc-8ccc-8ccc-cccccccccccc",
];

/// The rules of a kind. Each function gets a state.
struct Rules<K: Kind> {
    /// P1, P6: what the clients and the server have.
    always: fn(&World<Client<K>>) -> Result<(), String>,
    /// True if a waiting client fits next to the clients that hold.
    starves: fn(&World<Client<K>>) -> bool,
    /// The milliseconds until all that clients that were killed or stopped have is free.
    ends: fn(&World<Client<K>>) -> u64,
    /// The milliseconds for which the queue may hold up a waiting client that fits.
    held_up: fn(&World<Client<K>>) -> u64,
    /// The milliseconds for which others may wait for a grant by message that its process does not take.
    grant: u64,
    /// True if several clients may hold. A lost grant may then be known to a process alone that is not the head.
    shares: bool,
    /// True if a process may hold, and be the head of the queue. If it is killed, another process may have to poll.
    holds_as_head: bool,
    /// The keys that stay without a client.
    stay: &'static [&'static str],
    /// The keys that a client which was killed or stopped may leave until the next request, or for an operator.
    of_ended: &'static [&'static str],
}

/// The name of a script in calls, and its text.
type Text = (&'static str, &'static str);

const RENEW: &str = include_str!("../../../stanchion-core/lua/renew.lua");

/// A configuration in which each process acquires `acquires` times, and drops `drops` acquires while they wait.
fn configuration<K: Kind + 'static>(
    scripts: &[Text],
    kinds: &[K],
    [acquires, drops]: [u8; 2],
    rules: Rules<K>,
) -> Configuration<Client<K>> {
    let (processes, always) = (UUIDS.iter().zip(kinds), rules.always);
    let alias = |(uuid, name): (&&str, &str)| ((*uuid).to_owned(), name.to_owned());
    Configuration {
        scripts: scripts
            .iter()
            .map(|(name, text)| (*name, (*text).to_owned()))
            .collect(),
        setup: Vec::new(),
        processes: processes
            .map(|(uuid, kind)| Client::new(uuid, *kind, acquires, drops))
            .collect(),
        interchangeable: true,
        faults: NONE,
        deadlines: 0,
        always: Arc::new(move |world| {
            if let Some(client) = world.running().find(|it| !it.is_attended()) {
                return Err(format!("P4, invariant 3: {client:?} waits for nothing"));
            }
            always(world)
        }),
        change: Arc::new(|_, _| Ok(())),
        quiet: Arc::new(move |world, later| quiet(&rules, world, later)),
        most_states: 1_000_000,
        aliases: UUIDS.iter().zip(["A", "B", "C"]).map(alias).collect(),
    }
}

/// P3, P4.
fn quiet<K: Kind>(
    rules: &Rules<K>,
    world: &World<Client<K>>,
    later: &mut dyn FnMut(u64) -> World<Client<K>>,
) -> Result<(), String> {
    let now = world.client_now();
    let left = |world: &World<Client<K>>| {
        let keys = world.server.keys().into_iter();
        let text = keys.map(|key| String::from_utf8_lossy(key).into_owned());
        text.filter(|key| !rules.stay.contains(&&**key))
            .collect::<Vec<_>>()
    };
    let faultless = world.is_undisturbed();
    let ended =
        world.faults.kills < world.allowed.kills || world.faults.stops < world.allowed.stops;
    let waiting: Vec<_> = world
        .running()
        .filter(|it| it.waits())
        .flat_map(Client::waiting_owners)
        .collect();
    if faultless {
        let lines = left(world)
            .into_iter()
            .filter(|key| key.starts_with("line"));
        for (member, element) in lines.flat_map(|key| world.server.content(key.as_bytes())) {
            let entry = if member.is_empty() { element } else { member };
            let owner = entry.trim_end_matches(|c: char| "rR+?".contains(c));
            let owner = owner.split('=').next().unwrap_or_default();
            if !waiting.iter().any(|it| it == owner) {
                return Err(format!("P3: the entry {entry} has no waiter"));
            }
        }
    }
    if !world.running().any(|it| it.waits() || it.holds(now)) {
        // The notes about the queue may stay for a minute.
        let keys = left(world);
        if faultless && keys.iter().any(|key| !key.starts_with("wake")) {
            return Err(format!(
                "P3: no client wants anything, but {keys:?} are left"
            ));
        }
        let mut keys = left(&later(155_000));
        keys.retain(|key| !ended || !rules.of_ended.contains(&key.as_str()));
        if !keys.is_empty() {
            return Err(format!("P3: after 155 s {keys:?} are left"));
        }
    }
    if (rules.starves)(world) {
        let limit = patience(world, rules);
        if later(limit).grants == world.grants {
            return Err(format!(
                "P4: a client waits, and has nothing after {limit} ms"
            ));
        }
    }
    Ok(())
}

/// P4: the time in milliseconds after which a waiting client must have what no live client holds.
fn patience<K: Kind>(world: &World<Client<K>>, rules: &Rules<K>) -> u64 {
    let (left, allowed) = (world.faults, world.allowed);
    let ended = allowed.kills - left.kills + allowed.stops - left.stops;
    let lost = (allowed.replies - left.replies)
        + (allowed.messages - left.messages)
        + (allowed.duplicates - left.duplicates)
        + (allowed.cuts - left.cuts);
    // After a kill or a stop the next client costs the time of a grant.
    let held_up = (rules.held_up)(world);
    let known = (rules.ends)(world) + rules.grant + held_up;
    match (ended, lost, world.client_now() == START) {
        // For a moment a free lock is left to a process that was told to try.
        (0, 0, true) => 30 + held_up,
        (1, 0, true) if !rules.holds_as_head => known,
        // A lost message costs a poll of the head.
        (0, 1, true) if !rules.shares => known + 5_000,
        // A poll of a process that is not the head, as far as it knows.
        _ => known + 7_500 * UUIDS.len() as u64,
    }
}

/// Explores, and prints the size and the trace.
fn run<K: Kind>(
    what: &str,
    mut configuration: Configuration<Client<K>>,
    faults: Faults,
    jumps: u8,
) -> Report {
    (configuration.faults, configuration.deadlines) = (faults, jumps);
    #[expect(clippy::disallowed_methods, reason = "measures the explorer")]
    let began = std::time::Instant::now();
    let report = explore(&configuration);
    println!("{what}: {report}; {:?}", began.elapsed());
    report
}

const NONE: Faults = Faults {
    replies: 0,
    messages: 0,
    duplicates: 0,
    kills: 0,
    stops: 0,
    cuts: 0,
};
const REPLY: Faults = Faults { replies: 1, ..NONE };
const MESSAGE: Faults = Faults {
    messages: 1,
    ..NONE
};
const TWICE: Faults = Faults {
    duplicates: 1,
    ..NONE
};
const KILL: Faults = Faults { kills: 1, ..NONE };
const STOP: Faults = Faults { stops: 1, ..NONE };
const CUT: Faults = Faults { cuts: 1, ..NONE };

/// Explores with these faults and jumps of the clock. Expects that all states are visited, and that none breaks a rule.
#[track_caller]
fn finds_nothing<K: Kind>(
    what: &str,
    configuration: Configuration<Client<K>>,
    faults: Faults,
    jumps: u8,
) {
    let report = run(what, configuration, faults, jumps);
    assert!(report.violation.is_none(), "{what}: {report}");
    assert!(report.is_complete, "{what}: {report}");
}

/// Explores a configuration without jumps of the clock that may have more than the largest number of states. Expects that no state so far breaks a rule.
#[track_caller]
fn finds_nothing_so_far<K: Kind>(
    what: &str,
    configuration: Configuration<Client<K>>,
    faults: Faults,
) {
    let report = run(what, configuration, faults, 0);
    assert!(report.violation.is_none(), "{what}: {report}");
}

/// A part of a script, and its replacement.
type Edit = (&'static str, &'static str);

fn edited<K: Kind>(
    mut configuration: Configuration<Client<K>>,
    edits: &[Edit],
) -> Configuration<Client<K>> {
    for (old, new) in edits {
        let mut places = 0;
        for (_, text) in &mut configuration.scripts {
            places += text.matches(old).count();
            *text = text.replace(old, new);
        }
        assert!(places > 0, "no script has the text {old}");
    }
    configuration
}

/// Expects that the explorer finds the error that `edits` plant.
#[track_caller]
fn finds<K: Kind>(
    what: &str,
    configuration: Configuration<Client<K>>,
    (faults, jumps): (Faults, u8),
    edits: &[Edit],
) {
    let report = run(what, edited(configuration, edits), faults, jumps);
    assert!(report.violation.is_some(), "{what}: {report}");
}
