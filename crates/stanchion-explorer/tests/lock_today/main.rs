//! Today's lock, explored: the scripts of the lock, and a model of its client.
#![expect(
    clippy::print_stdout,
    reason = "`--nocapture` shows the size of each exploration"
)]

mod client;

use std::sync::Arc;

use client::Client;
use stanchion_embedded::explore::ExploredServer;
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
        quiet: Arc::new(no_client_is_forgotten),
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
fn no_client_is_forgotten(
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

/// Explores, and prints the size and the story.
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

/// Explores with these faults and jumps of the clock, and expects no violation.
#[track_caller]
fn finds_nothing(what: &str, configuration: Configuration<Client>, faults: Faults, jumps: u8) {
    let report = run(what, configuration, faults, jumps);
    assert!(report.violation.is_none(), "{report}");
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

/// Prints how often a second a state is restored, a refused acquire runs, and the new state is saved and written in canonical form.
#[test]
#[ignore = "a measurement"]
#[expect(clippy::disallowed_methods, reason = "measures the engine")]
fn cost_of_a_script() {
    let server = ExploredServer::new(START);
    let sha = server.load(ACQUIRE);
    let run = |owner: &str, ask: &str| {
        let keys = ["EVALSHA", &sha, "4", "orders", "fence", "line", "wake"];
        let args = [owner, "30000", "9800000000000000", ask, "PUBLISH", "base"];
        server.run(&[&keys[..], &args[..]].concat())
    };
    run("holder:1", "new");
    run("waiter:1", "new");
    let state = server.save();
    let mut text = Vec::new();
    let began = std::time::Instant::now();
    let times = 100_000_u32;
    for _ in 0..times {
        server.restore(&state);
        run("another:1", "new");
        text.clear();
        server.save().canonical(&|number| number, &mut text);
    }
    let each = began.elapsed() / times;
    println!("{each:?} for each of {times}, {} bytes", text.len());
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

/// Larger bounds, for a long run.
#[test]
#[ignore = "takes minutes"]
fn with_larger_bounds() {
    let two = |first: Faults, second: Faults| Faults {
        replies: first.replies + second.replies,
        messages: first.messages + second.messages,
        duplicates: first.duplicates + second.duplicates,
        kills: first.kills + second.kills,
        stops: first.stops + second.stops,
        cuts: first.cuts + second.cuts,
    };
    let (reply, message, cut) = (
        Faults { replies: 1, ..NONE },
        Faults {
            messages: 1,
            ..NONE
        },
        Faults { cuts: 1, ..NONE },
    );
    for (what, faults, jumps) in [
        ("two kills", two(KILL, KILL), 0),
        ("a message and a kill", two(message, KILL), 1),
        ("a reply and a kill", two(reply, KILL), 0),
        ("a reply and a message", two(reply, message), 0),
        ("a cut and a kill", two(cut, KILL), 0),
        ("a cut and a jump", cut, 1),
    ] {
        let name = format!("3 processes, {what}, {jumps} jumps");
        let mut configuration = edited(lock(3, 1, 0), &[LONG_LINE]);
        configuration.most_states = 400_000;
        run(&name, configuration, faults, jumps);
    }
    run("2 processes, 2 acquires, drops", lock(2, 2, 1), NONE, 0);
    run("2 processes, 2 acquires, a jump", lock(2, 2, 0), NONE, 1);
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
