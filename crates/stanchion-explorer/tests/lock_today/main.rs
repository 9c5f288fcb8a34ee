//! Today's lock, explored: the scripts of the lock, and a model of its client.
#![expect(
    clippy::print_stdout,
    reason = "`--nocapture` shows the size of each exploration"
)]

mod client;

use std::sync::Arc;

use client::Client;
use stanchion_explorer::{Configuration, Faults, Report, START, World, explore};

const UUIDS: [&str; 3] = [
    "aaaaaaaa-aaaa-8aaa-8aaa-aaaaaaaaaaaa",
    "bbbbbbbb-bbbb-8bbb-8bbb-bbbbbbbbbbbb",
    "cccccccc-cccc-8ccc-8ccc-cccccccccccc",
];

const ACQUIRE: &str = stanchion_client::in_line!(stanchion_client::minting!(include_str!(
    "../../../stanchion-lock/lua/acquire.lua"
)));
const RELEASE: &str =
    stanchion_client::in_line!(include_str!("../../../stanchion-lock/lua/release.lua"));
const TEND: &str = stanchion_client::in_line!(include_str!("../../../stanchion-lock/lua/tend.lua"));
const RENEW: &str = include_str!("../../../stanchion-core/lua/renew.lua");

/// The lock with this many processes. Each acquires `acquires` times, and drops `drops` acquires while they wait.
fn lock(processes: usize, acquires: u8, drops: u8) -> Configuration<Client> {
    let client = |uuid: &&'static str| Client::new(uuid, acquires, drops);
    let alias = |(uuid, name): (&&str, &str)| ((*uuid).to_owned(), name.to_owned());
    Configuration {
        scripts: [
            ("acquire", ACQUIRE),
            ("release", RELEASE),
            ("tend", TEND),
            ("renew", RENEW),
        ]
        .map(|(name, text)| (name, text.to_owned()))
        .into(),
        setup: Vec::new(),
        processes: UUIDS[..processes].iter().map(client).collect(),
        interchangeable: true,
        faults: NONE,
        deadlines: 0,
        always: Arc::new(one_holder),
        quiet: Arc::new(waiters_progress_and_keys_end),
        most_states: 1_000_000,
        aliases: UUIDS.iter().zip(["A", "B", "C"]).map(alias).collect(),
    }
}

/// P1, P6.
fn one_holder(world: &World<Client>) -> Result<(), String> {
    let now = world.client_now();
    let holders = world.running().filter(|client| client.holds(now)).count();
    if holders > 1 {
        return Err(format!("P1: {holders} clients hold"));
    }
    let held = world.server.content(b"orders");
    if held.len() > 1 || held.iter().any(|(_, count)| count != "1") {
        return Err(format!("P6: the server has {held:?}"));
    }
    Ok(())
}

/// P3, P4.
fn waiters_progress_and_keys_end(
    world: &World<Client>,
    later: &mut dyn FnMut(u64) -> World<Client>,
) -> Result<(), String> {
    let now = world.client_now();
    let waits = world.running().any(Client::waits);
    let holds = world.running().any(|client| client.holds(now));
    let faultless = world.is_undisturbed();
    let keys = |world: &World<Client>| {
        let keys = world.server.keys().into_iter();
        let text = keys.map(|key| String::from_utf8_lossy(key).into_owned());
        text.filter(|key| key != "fence").collect::<Vec<_>>()
    };
    if !waits && !holds {
        // The notes about clients outside the line may stay for a minute.
        let left = keys(world);
        if faultless && left.iter().any(|key| key != "wake") {
            return Err(format!(
                "P3: no client wants anything, but {left:?} are left"
            ));
        }
        let left = keys(&later(65_000));
        if !left.is_empty() {
            return Err(format!("P3: after a minute {left:?} are left"));
        }
    }
    if waits && !holds {
        let after = later(patience(world));
        if after.grants == world.grants {
            let limit = patience(world);
            return Err(format!(
                "P4: a client waits, and has nothing after {limit} ms"
            ));
        }
    }
    Ok(())
}

/// P4: the time in milliseconds after which a waiting client must have the lock, if no live client holds it.
fn patience(world: &World<Client>) -> u64 {
    let (now, allowed) = (world.faults, world.allowed);
    // A client that was killed or stopped has the lock for the rest of its lease, and the next one costs the time of a grant.
    let ends = world.server.ttl(b"orders").unwrap_or_default();
    let known = u64::try_from(ends).unwrap_or_default() + 1_510;
    // A lost or late message or reply costs a poll, or the lease of the holder that a late one described.
    let only_ends = Faults {
        kills: now.kills,
        stops: now.stops,
        ..allowed
    };
    if now == only_ends && world.client_now() == START {
        known
    } else {
        known + 36_500
    }
}

/// Explores, and prints the size and the trace.
fn run(what: &str, mut configuration: Configuration<Client>, faults: Faults, jumps: u8) -> Report {
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

const KILL: Faults = Faults { kills: 1, ..NONE };

/// Explores with these faults and jumps of the clock. Expects that all states are visited, and that none breaks a rule.
#[track_caller]
fn finds_nothing(what: &str, configuration: Configuration<Client>, faults: Faults, jumps: u8) {
    let report = run(what, configuration, faults, jumps);
    assert!(report.violation.is_none(), "{what}: {report}");
    assert!(report.is_complete, "{what}: {report}");
}

#[test]
fn without_faults() {
    finds_nothing("2 processes, 2 acquires", lock(2, 2, 0), NONE, 0);
    finds_nothing("3 processes, drops", lock(3, 1, 1), NONE, 0);
    finds_nothing("2 processes, drops, 2 jumps", lock(2, 1, 1), NONE, 2);
    let mut tokens = lock(2, 1, 1);
    for process in &mut tokens.processes {
        *process = process.clone().with_tokens();
    }
    finds_nothing("2 processes, drops, tokens, a jump", tokens, NONE, 1);
}

#[test]
fn with_one_fault() {
    let faults = [
        ("a lost request or reply", Faults { replies: 1, ..NONE }),
        (
            "a lost message",
            Faults {
                messages: 1,
                ..NONE
            },
        ),
        (
            "a message twice",
            Faults {
                duplicates: 1,
                ..NONE
            },
        ),
        ("a kill", KILL),
        ("a stop", Faults { stops: 1, ..NONE }),
        ("a cut", Faults { cuts: 1, ..NONE }),
    ];
    for (what, faults) in faults {
        let jumps = u8::from(faults.cuts + faults.replies == 0);
        let name = format!("2 processes, drops, {what}, {jumps} jumps");
        finds_nothing(&name, lock(2, 1, 1), faults, jumps);
        let name = format!("3 processes, {what}");
        finds_nothing(&name, lock(3, 1, 0), faults, 0);
    }
}

/// A part of a script, and what takes its place.
type Edit = (&'static str, &'static str);

/// The pauses between polls in a line of ten processes. With three processes polls are so frequent that they hide lost wake-ups.
const LONG_LINE: Edit = ("5000, 500, 2, 25", "5000, 5000, 2, 25");

fn edited(mut configuration: Configuration<Client>, edits: &[Edit]) -> Configuration<Client> {
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

#[test]
fn with_a_kill_in_a_long_line() {
    let long = edited(lock(3, 1, 0), &[LONG_LINE]);
    finds_nothing("3 processes, a kill, rare polls", long, KILL, 0);
}

/// Two kills, of the holder and of the head: the third process learns nothing until its own poll. A known limit of this line.
#[test]
fn two_kills_delay_the_third_process_until_its_poll() {
    let long = edited(lock(3, 1, 0), &[LONG_LINE]);
    let report = run(
        "3 processes, two kills, rare polls",
        long,
        Faults { kills: 2, ..NONE },
        0,
    );
    let violation = report.violation.expect("a process waits for its poll");
    assert!(violation.rule.starts_with("P4"), "{}", violation.rule);
}

#[test]
#[ignore = "takes two minutes; docs/testing-explorer.md has the command"]
fn with_larger_bounds() {
    let reply = Faults { replies: 1, ..NONE };
    finds_nothing(
        "2 processes, drops, a reply, a jump",
        lock(2, 1, 1),
        reply,
        1,
    );
    for (what, faults, jumps) in [
        (
            "a message and a kill",
            Faults {
                messages: 1,
                ..KILL
            },
            1,
        ),
        ("a reply and a kill", Faults { replies: 1, ..KILL }, 0),
        (
            "a reply and a message",
            Faults {
                replies: 1,
                messages: 1,
                ..NONE
            },
            0,
        ),
        ("a cut and a kill", Faults { cuts: 1, ..KILL }, 0),
    ] {
        let name = format!("3 processes, {what}, {jumps} jumps, rare polls");
        finds_nothing(&name, edited(lock(3, 1, 0), &[LONG_LINE]), faults, jumps);
    }
}

/// Each planted error must be found.
#[test]
fn planted_errors_are_found() {
    let planted: [(&str, Faults, &[Edit]); 7] = [
        (
            "a head that did not receive its grant keeps it",
            KILL,
            &[("leave(head)\n      if told", "if told")],
        ),
        (
            "a granted head stays in the line",
            KILL,
            &[("call('ZREM', line, head)\n    if asks", "if asks")],
        ),
        (
            "the new head gets no message N",
            KILL,
            &[("if head then tell", "if false then tell"), LONG_LINE],
        ),
        (
            "a process that leaves keeps its place",
            NONE,
            &[(
                "stood = call('ZREM', line, ARGV[3]) == 1",
                "stood = call('ZSCORE', line, ARGV[3]) ~= false",
            )],
        ),
        (
            "a refused process gets no place",
            NONE,
            &[
                ("local added = put(place, arrived)", "local added = 0"),
                LONG_LINE,
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
        let configuration = edited(lock(3, 1, u8::from(faults == NONE)), edits);
        let report = run(what, configuration, faults, 0);
        assert!(report.violation.is_some(), "{what}: {report}");
    }
}
