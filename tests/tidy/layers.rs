//! Checks the layers: dependencies between crates and inside the core, use of the redis crate, loops and timers in primitives, headers
//! and sizes of files.

use crate::tree::{Tree, code, has_word};
use crate::{Complaint, found, kept, needed};

const PRIMITIVES: [&str; 11] = [
    "barrier",
    "election",
    "fair",
    "jobs",
    "latch",
    "limiter",
    "lock",
    "multilock",
    "redlock",
    "rwlock",
    "semaphore",
];

/// Returns whether `crate_name` may name `on`, another crate of this project, in `[dependencies]`.
fn may_depend(crate_name: &str, on: &str) -> bool {
    match crate_name {
        "stanchion-core" | "stanchion-metrics" => on == "stanchion-transport",
        "stanchion-survey" | "stanchion-events" => {
            ["stanchion-core", "stanchion-transport"].contains(&on)
        }
        "stanchion-client" => [
            "stanchion-core",
            "stanchion-events",
            "stanchion-metrics",
            "stanchion-survey",
            "stanchion-transport",
        ]
        .contains(&on),
        "stanchion-transport" => on == "stanchion-embedded",
        "stanchion-embedded" => false,
        "stanchion-redlock" | "stanchion-jobs" => {
            ["stanchion-client", "stanchion-lock"].contains(&on)
        }
        "stanchion-testkit" => false,
        "stanchion-tower" => [
            "stanchion-client",
            "stanchion-limiter",
            "stanchion-lock",
            "stanchion-semaphore",
        ]
        .contains(&on),
        "stanchion-explorer" => on == "stanchion-embedded",
        "stanchion" | "stanchion-cli" => true,
        _ => on == "stanchion-client",
    }
}

/// The transport knows no core; the core knows no survey, event or metric; the client knows no primitive. Primitives know no other one (a RedLock
/// consists of locks, and a job is a lock with a record).
fn dependencies_point_one_way(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for (path, text) in tree.below("crates/", "Cargo.toml") {
        let crate_name = path.split('/').nth(1).unwrap_or_default();
        let mut section = "";
        for line in text.lines() {
            if line.starts_with('[') {
                section = line;
            }
            let on = line.split(['.', ' ', '=']).next().unwrap_or_default();
            if section.ends_with("dependencies]")
                && section != "[dev-dependencies]"
                && on.starts_with("stanchion")
                && !may_depend(crate_name, on)
            {
                complaints.push(Complaint::new(path, format!("must not depend on {on}")));
            }
        }
    }
    complaints
}

/// The modules of the core above its lowest layer, from the bottom. All other modules are in the lowest layer: names, leases, requests,
/// replies and errors.
const CORE: [&[&str]; 4] = [
    &["agenda", "hold", "notice", "seat", "watchdog"],
    &["shared", "waiting"],
    &["acquire"],
    &["connect", "gauges", "primitive"],
];

/// The files of the core that use a higher layer, with the reasons.
const UPWARD: [(&str, &str); 1] = [(
    "crates/stanchion-core/src/owner.rs",
    "an owner has a seat for each of its names, and a seat leads to the hold",
)];

/// The layer of a module of the core; 0 is the lowest.
fn layer(module: &str) -> usize {
    let above = CORE.iter().position(|layer| layer.contains(&module));
    above.map_or(0, |n| n + 1)
}

/// The modules of the core depend one way: no module uses a higher layer.
fn the_core_is_layered(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = upward_in_the_core(tree);
    complaints.retain(|complaint| !UPWARD.iter().any(|(path, _)| complaint.is_in(path)));
    complaints
}

/// Returns every use of a higher layer in the core. The root re-exports modules of all layers.
fn upward_in_the_core(tree: &Tree) -> Vec<Complaint> {
    let (folder, mut complaints) = ("crates/stanchion-core/src/", Vec::new());
    for (path, text) in tree.below(folder, ".rs") {
        let module = path[folder.len()..].split(['/', '.']).next();
        let module = module.unwrap_or_default();
        if module == "lib" || path.ends_with("/tests.rs") {
            continue;
        }
        for (n, line) in code(text) {
            // A macro names the module at which its users find an item: `$crate::primitive::…`.
            for (at, root) in line.match_indices("crate::") {
                if line[..at].ends_with('$') {
                    continue;
                }
                let end = |c: char| !c.is_alphanumeric() && c != '_';
                let used = line[at + root.len()..]
                    .split(end)
                    .next()
                    .unwrap_or_default();
                if layer(used) > layer(module) {
                    let what = format!("{module} must not use {used}, a higher layer");
                    complaints.push(Complaint::new(format!("{path}:{n}"), what));
                }
            }
        }
    }
    complaints
}

/// What the state machine of the local queue may import: no clock, no network, no lock, and no other part of the core.
const PURE: [&str; 10] = [
    "crate::about::",
    "crate::description::",
    "crate::line::",
    "crate::token::",
    "parts::",
    "smallvec::",
    "std::",
    "stanchion_transport::Moment",
    "super::",
    "waiters::",
];

/// The local queue decides, and its shell acts: see `waiting/queue/mod.rs`. Therefore the explorer can run it.
fn the_local_queue_is_pure(tree: &Tree) -> Vec<Complaint> {
    let folder = "crates/stanchion-core/src/waiting/queue/";
    let mut complaints = Vec::new();
    for (path, text) in tree.below(folder, ".rs") {
        for (n, line) in code(text) {
            let Some(used) = line.strip_prefix("use ") else {
                continue;
            };
            let acts = ["sync::", "time::Instant", "thread", "net::"];
            if !PURE.iter().any(|pure| used.starts_with(pure))
                || acts
                    .iter()
                    .any(|act| used.starts_with(&format!("std::{act}")))
            {
                let what = format!("the local queue must not use {used}");
                complaints.push(Complaint::new(format!("{path}:{n}"), what));
            }
        }
    }
    complaints
}

#[test]
fn the_local_queue_decides_without_io() {
    kept(the_local_queue_is_pure);
    let path = "crates/stanchion-core/src/waiting/queue/mod.rs";
    for used in [
        "crate::shared::Core",
        "std::sync::Mutex",
        "tokio::time",
        "stanchion_transport::Call",
    ] {
        let text = format!("use {used};");
        found(
            the_local_queue_is_pure,
            &[(path, &text)],
            &format!("{path}:1"),
        );
    }
}

/// Only the transport uses the redis crate.
fn only_the_transport_names_redis(tree: &Tree) -> Vec<Complaint> {
    tree.sources()
        .filter(|(path, _)| !path.starts_with("crates/stanchion-transport/src/"))
        .flat_map(|(path, text)| {
            code(text)
                .filter(|(_, line)| {
                    let path = line
                        .match_indices("redis::")
                        .any(|(at, _)| !line[..at].ends_with(|c: char| c.is_alphanumeric()));
                    path || line.contains("use redis") || line.contains("extern crate redis")
                })
                .map(move |(n, _)| Complaint::new(format!("{path}:{n}"), "names the redis crate"))
        })
        .collect()
}

/// The files of primitives that may have a loop or a timer, with the reasons.
const MACHINERY: [(&str, &str); 6] = [
    (
        "crates/stanchion-election/src/lead.rs",
        "campaigns again after each term, pauses after a failed term, and bounds the end of the work",
    ),
    (
        "crates/stanchion-election/src/observe.rs",
        "reads again after each change, and during an outage",
    ),
    (
        "crates/stanchion-jobs/src/due.rs",
        "searches the due times of a schedule, and waits for none of them",
    ),
    (
        "crates/stanchion-multilock/src/multilock.rs",
        "members on several servers are taken one after the other, with a pause between rounds",
    ),
    (
        "crates/stanchion-redlock/src/redlock.rs",
        "a round that found no quorum is repeated after a pause",
    ),
    (
        "crates/stanchion-redlock/src/round.rs",
        "a round ends when enough of the nodes have answered, or at its deadline",
    ),
];

/// A primitive consists of scripts and a description. Loops, timers and tasks belong in the core.
fn primitives_have_no_machinery(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = machinery_of(tree);
    complaints.retain(|complaint| !MACHINERY.iter().any(|(path, _)| complaint.is_in(path)));
    complaints
}

/// Returns every loop, timer and spawn of a primitive.
fn machinery_of(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for primitive in PRIMITIVES {
        let folder = format!("crates/stanchion-{primitive}/src/");
        for (path, text) in tree.below(&folder, ".rs") {
            for (n, line) in code(text) {
                // The interval of a quota is not a timer.
                let line = line.replace(".interval()", "").replace("fn interval(", "");
                let line = line.as_str();
                let machinery = has_word(line, "loop {")
                    || line.trim_start().starts_with("while ")
                    || has_word(line, "spawn")
                    || ["sleep(", "tokio::time", " interval(", ":interval("]
                        .iter()
                        .any(|m| line.contains(m));
                if machinery {
                    let what = "a loop, timer or spawn, which belongs in the core";
                    complaints.push(Complaint::new(format!("{path}:{n}"), what));
                }
            }
        }
    }
    complaints
}

/// A module begins with a `//!` line that states its purpose.
fn every_module_begins_with_a_header(tree: &Tree) -> Vec<Complaint> {
    ["crates/", "tests/", "benches/"]
        .iter()
        .flat_map(|folder| tree.below(folder, ".rs"))
        .filter(|(_, text)| {
            !text
                .lines()
                .find(|line| !line.trim().is_empty() && !line.starts_with("#!["))
                .is_some_and(|line| line.starts_with("//!"))
        })
        .map(|(path, _)| Complaint::new(path, "does not begin with a `//!` line"))
        .collect()
}

/// A file with more lines states the reason in its header: `Long: …`. No file has more than [`LONGEST`] lines.
const LONG: usize = 500;
const LONGEST: usize = 800;

/// Files stay small enough for a reader to understand one as a whole.
fn files_are_small(tree: &Tree) -> Vec<Complaint> {
    ["crates/", "tests/", "benches/"]
        .iter()
        .flat_map(|folder| tree.below(folder, ".rs"))
        .filter_map(|(path, text)| {
            let lines = text.lines().count();
            let mut header = text.lines().take_while(|line| line.starts_with("//!"));
            let argued = header.any(|line| line.contains("Long: "));
            match lines {
                _ if lines > LONGEST => Some(Complaint::new(path, format!("{lines} lines"))),
                _ if lines > LONG && !argued => {
                    let what = format!("{lines} lines, and no `Long: …` in its header");
                    Some(Complaint::new(path, what))
                }
                _ => None,
            }
        })
        .collect()
}

#[test]
fn files_keep_the_size_limit() {
    kept(files_are_small);
    let lines = |n: usize, header: &str| format!("{header}\n{}", "x\n".repeat(n));
    found(
        files_are_small,
        &[
            ("crates/a/src/small.rs", &lines(499, "//! a")),
            ("crates/a/src/argued.rs", &lines(600, "//! a\n//! Long: b")),
            ("crates/a/src/long.rs", &lines(600, "//! a")),
        ],
        "crates/a/src/long.rs",
    );
    found(
        files_are_small,
        &[("tests/a/main.rs", &lines(801, "//! Long: a"))],
        "tests/a/main.rs",
    );
}

#[test]
fn dependencies_follow_the_layers() {
    kept(dependencies_point_one_way);
    found(
        dependencies_point_one_way,
        &[
            (
                "crates/stanchion-lock/Cargo.toml",
                "[dependencies]\nstanchion-client.workspace = true\n",
            ),
            (
                "crates/stanchion-fair/Cargo.toml",
                "[dependencies]\nstanchion-lock.workspace = true\n[dev-dependencies]\nstanchion = {}\n",
            ),
        ],
        "crates/stanchion-fair/Cargo.toml",
    );
    found(
        dependencies_point_one_way,
        &[(
            "crates/stanchion-core/Cargo.toml",
            "[target.'cfg(unix)'.dependencies]\nstanchion-lock.workspace = true\n",
        )],
        "crates/stanchion-core/Cargo.toml",
    );
}

#[test]
fn modules_of_the_core_follow_the_layers() {
    kept(the_core_is_layered);
    for (path, planted) in [
        ("wire.rs", "use crate::hold::state::Grant;"),
        ("line.rs", "fn of(entry: &crate::waiting::LockEntry) {}"),
        ("lease.rs", "use crate::acquire::Asking;"),
        ("hold/state.rs", "use crate::waiting::LockEntry;"),
        ("waiting/queue.rs", "use crate::primitive::Handle;"),
    ] {
        let path = format!("crates/stanchion-core/src/{path}");
        found(
            the_core_is_layered,
            &[
                (&path, &format!("//! x\n{planted}\n")),
                (
                    "crates/stanchion-core/src/acquire/mod.rs",
                    "//! x\nuse crate::hold::Hold;\nuse crate::wire::Wire;\n",
                ),
            ],
            &format!("{path}:2"),
        );
    }
    needed(upward_in_the_core, &UPWARD);
}

#[test]
fn only_the_transport_uses_the_redis_crate() {
    kept(only_the_transport_names_redis);
    found(
        only_the_transport_names_redis,
        &[
            (
                "crates/stanchion-transport/src/link/mod.rs",
                "//! x\nuse redis::Value;\n",
            ),
            (
                "crates/stanchion-core/src/hold.rs",
                "//! x\n// redis::Cmd\nuse redis::Value;\n",
            ),
        ],
        "crates/stanchion-core/src/hold.rs:3",
    );
    found(
        only_the_transport_names_redis,
        &[(
            "crates/stanchion-core/src/hold.rs",
            "//! x\nuse redis as client;\n",
        )],
        "crates/stanchion-core/src/hold.rs:2",
    );
}

#[test]
fn primitives_contain_no_loop_or_timer() {
    kept(primitives_have_no_machinery);
    for planted in ["loop {", "while x {", "tokio::spawn(x);", "sleep(x).await;"] {
        found(
            primitives_have_no_machinery,
            &[(
                "crates/stanchion-lock/src/lock.rs",
                &format!("//! x\n{planted}\n"),
            )],
            "crates/stanchion-lock/src/lock.rs:2",
        );
    }
    needed(machinery_of, &MACHINERY);
}

#[test]
fn modules_begin_with_a_header() {
    kept(every_module_begins_with_a_header);
    found(
        every_module_begins_with_a_header,
        &[
            (
                "crates/a/src/lib.rs",
                "#![forbid(unsafe_code)]\n//! What it is.\n",
            ),
            ("tests/x/main.rs", "use std::fmt;\n//! too late\n"),
        ],
        "tests/x/main.rs",
    );
}
