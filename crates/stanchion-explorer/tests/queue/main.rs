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
use stanchion_explorer::{Configuration, Faults, Report, START, World, explore, walk};

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
    /// The number of entries that a queue may have. The pause between the polls of a process grows with it.
    entries: u64,
    /// The keys that stay without a client.
    stay: &'static [&'static str],
    /// The keys that a client which was killed or stopped may leave until the next request, or for an operator.
    of_ended: &'static [&'static str],
}

impl<K: Kind> Rules<K> {
    /// The rules of most kinds, whose holder is in `orders`.
    const fn of(
        always: fn(&World<Client<K>>) -> Result<(), String>,
        starves: fn(&World<Client<K>>) -> bool,
    ) -> Self {
        Self {
            always,
            starves,
            ends: |world| world.server.ttl(b"orders").map_or(0, i64::unsigned_abs),
            held_up: |_| 0,
            grant: 1_510,
            shares: false,
            holds_as_head: false,
            entries: UUIDS.len() as u64,
            stay: &[],
            of_ended: &[],
        }
    }
}

/// The number of running clients that hold.
fn held_by<K: Kind>(world: &World<Client<K>>) -> usize {
    let now = world.client_now();
    world.running().filter(|client| client.holds(now)).count()
}

/// P1, P6: `holders` clients of an exclusive kind hold what the server has in `key`.
fn one_holder<K: Kind>(world: &World<Client<K>>, holders: usize, key: &str) -> Result<(), String> {
    if holders > 1 {
        return Err(format!("P1: {holders} clients hold {key}"));
    }
    let held = world.server.content(key.as_bytes());
    if holders > held.len() {
        return Err(format!(
            "P1: a client holds {key}, and the server has no holder"
        ));
    }
    if held.len() > 1 || held.iter().any(|(_, count)| count != "1") {
        return Err(format!("P6: the server has {held:?} in {key}"));
    }
    Ok(())
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
        faults: Faults::default(),
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

/// The task of one waiter of the first process is not polled any more at some time (P10).
fn with_a_sleeper<K: Kind>(
    mut configuration: Configuration<Client<K>>,
) -> Configuration<Client<K>> {
    let first = &mut configuration.processes[0];
    *first = first.clone().that_sleeps();
    configuration
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
        .filter(|it| it.is_in_use())
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
    if !world.running().any(|it| it.is_in_use() || it.holds(now)) {
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
    let sleeps = world.running().any(Client::has_a_sleeper);
    // A hold that its task does not take moves on.
    let held_up = (rules.held_up)(world) + if sleeps { 1_010 } else { 0 };
    let known = (rules.ends)(world) + rules.grant + held_up;
    match (ended, lost, world.client_now() == START) {
        // For a moment a free lock is left to a process that was told to try.
        (0, 0, true) => 30 + held_up,
        (1, 0, true) if !rules.holds_as_head => known,
        // A lost message costs a poll of the head.
        (0, 1, true) if !rules.shares => known + 5_000,
        // A poll of a process that is not the head, as far as it knows.
        _ => known + 7_500 * rules.entries,
    }
}

/// One fault of each kind.
const FAULTS: [&str; 6] = [
    "a lost message",
    "a message twice",
    "a kill",
    "a stop",
    "a cut",
    "a lost request or reply",
];

/// Faults of the walks.
const MANY: [&str; 4] = [
    "",
    "a kill",
    "a cut, a lost message",
    "a lost request or reply, a stop",
];

/// Reads faults, and jumps of the clock, such as `two kills, a jump`.
fn bounds(text: &str) -> (Faults, u8) {
    let (mut faults, mut jumps) = (Faults::default(), 0);
    for part in text.split(", ").filter(|it| !it.is_empty()) {
        let (number, what) = part.split_once(' ').unwrap_or_default();
        let count = match what {
            "lost request or reply" => &mut faults.replies,
            "lost message" => &mut faults.messages,
            "message twice" => &mut faults.duplicates,
            "kill" | "kills" => &mut faults.kills,
            "stop" => &mut faults.stops,
            "cut" => &mut faults.cuts,
            "jump" | "jumps" => &mut jumps,
            _ => panic!("unknown: {part}"),
        };
        *count = if number == "two" { 2 } else { 1 };
    }
    (faults, jumps)
}

/// Explores with these faults and jumps, and prints the size and the trace.
fn run<K: Kind>(what: &str, configuration: &Configuration<Client<K>>, faults: &str) -> Report {
    run_by(what, configuration, faults, explore)
}

fn run_by<K: Kind>(
    what: &str,
    configuration: &Configuration<Client<K>>,
    faults: &str,
    search: impl Fn(&Configuration<Client<K>>) -> Report,
) -> Report {
    let (faults, deadlines) = bounds(faults);
    let configuration = Configuration {
        faults,
        deadlines,
        ..configuration.clone()
    };
    #[expect(clippy::disallowed_methods, reason = "measures the explorer")]
    let began = std::time::Instant::now();
    let report = search(&configuration);
    println!("{what}: {report}; {:?}", began.elapsed());
    report
}

/// Walks at random through a configuration that is too large to be visited whole, with each of these faults. `STANCHION_WALKS` is the number of
/// walks, and `STANCHION_SEED` selects others.
#[track_caller]
fn walks<K: Kind>(name: &str, configuration: &Configuration<Client<K>>, all: &[&str]) {
    let setting = |name: &str| {
        let value = std::env::var(name).ok()?;
        let number = value.parse::<u64>();
        Some(number.unwrap_or_else(|_| panic!("{name}={value} is not a number")))
    };
    let count = setting("STANCHION_WALKS").unwrap_or(300);
    let seed = setting("STANCHION_SEED").unwrap_or_default();
    for faults in all {
        let what = format!("{count} walks from seed {seed}: {name}; {faults}");
        let report = run_by(&what, configuration, faults, |it| walk(it, count, seed));
        assert!(report.violation.is_none(), "{what}: {report}");
    }
}

/// Explores with each of these faults. Expects that all states are visited, and that no state breaks a rule.
#[track_caller]
fn finds_nothing<K: Kind>(name: &str, configuration: &Configuration<Client<K>>, all: &[&str]) {
    for faults in all {
        let comma = if faults.is_empty() { "" } else { ", " };
        let what = format!("{name}{comma}{faults}");
        let report = run(&what, configuration, faults);
        assert!(report.violation.is_none(), "{what}: {report}");
        assert!(report.is_complete, "{what}: {report}");
    }
}

/// Expects that the explorer finds each of these planted errors: its name, a colon and the faults; lines of a script after `-`; and after `+`
/// their replacement.
#[track_caller]
fn finds<K: Kind>(configuration: impl Fn(&str) -> Configuration<Client<K>>, planted: &str) {
    for error in planted.trim().split("\n\n") {
        let mut lines = error.lines().map(str::trim_start);
        let title = lines.next().unwrap_or_default();
        let (what, faults) = title.split_once(": ").unwrap_or((title, ""));
        let [mut old, mut new] = [const { Vec::new() }; 2];
        for line in lines {
            match line.split_at(2) {
                ("- ", text) => old.push(text),
                ("+ ", text) => new.push(text),
                _ => panic!("{line}"),
            }
        }
        let (old, new) = (old.join("\n"), new.join("\n"));
        let mut configuration = configuration(faults);
        let mut places = 0;
        for (_, text) in &mut configuration.scripts {
            places += text.matches(&old).count();
            *text = text.replace(&old, &new);
        }
        assert!(places > 0, "no script has the text {old}");
        let report = run(what, &configuration, faults);
        assert!(report.violation.is_some(), "{what}: {report}");
    }
}
