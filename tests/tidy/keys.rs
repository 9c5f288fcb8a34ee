//! Each key and channel is put together in one place, so that what is on the wire can be read there and changed there.

use crate::tree::{Tree, code};
use crate::{Complaint, found, kept, needed};

/// The files in which keys and channels are put together, or told apart, with the reasons.
const PLACES: [(&str, &str); 19] = [
    ("crates/stanchion-barrier/src/keys.rs", "both barriers'"),
    (
        "crates/stanchion-cli/lua/scan.lua",
        "builds none: tells keys that stand beside a name from names",
    ),
    (
        "crates/stanchion-cli/src/beside.rs",
        "the keys of every kind, for those who look at a server from outside",
    ),
    (
        "crates/stanchion-core/src/name.rs",
        "the rules for all, and the default counter of tokens",
    ),
    (
        "crates/stanchion-core/src/notice.rs",
        "the channels on which holders are told",
    ),
    (
        "crates/stanchion-metrics/src/names.rs",
        "builds none: metrics begin with the same word",
    ),
    (
        "crates/stanchion-core/src/primitive/line.rs",
        "the line of a lock, which multi-locks use, too",
    ),
    (
        "crates/stanchion-survey/src/announcer.rs",
        "the records of clients, which belong to no name",
    ),
    (
        "crates/stanchion-core/src/token.rs",
        "the counter of tokens that Redisson's fenced lock has",
    ),
    ("crates/stanchion-election/src/scripts.rs", "the election's"),
    ("crates/stanchion-fair/src/scripts.rs", "the fair lock's"),
    (
        "crates/stanchion-jobs/src/scripts.rs",
        "the record of a job",
    ),
    ("crates/stanchion-latch/src/scripts.rs", "the latch's"),
    ("crates/stanchion-limiter/src/keys.rs", "both limiters'"),
    (
        "crates/stanchion-multilock/src/origin.rs",
        "the number of a keyspace; members bring their own",
    ),
    (
        "crates/stanchion-rwlock/lua/dead.lua",
        "the keys of a reader's holds, whose number only the server knows",
    ),
    (
        "crates/stanchion-rwlock/lua/status.lua",
        "the same, without the rest of that file",
    ),
    (
        "crates/stanchion-rwlock/src/layout.rs",
        "the read-write lock's",
    ),
    ("crates/stanchion-semaphore/src/keys.rs", "both semaphores'"),
];

/// The functions of `Name` that derive keys, and what derived keys are made of.
const SIGNS: [&str; 11] = [
    ".prefixed(",
    ".suffixed(",
    ".braced(",
    ".slot_key(",
    "\"redisson_",
    "'redisson_",
    "'stanchion_",
    ":rwlock_timeout",
    ":timeout\"",
    ":timeout'",
    ":{{{",
];

/// Returns whether a line of code puts a key together. Log filters name crates as keys begin: `"stanchion_core=debug"`.
fn builds_a_key(line: &str) -> bool {
    SIGNS.iter().any(|sign| line.contains(sign))
        || line
            .match_indices("\"stanchion_")
            .any(|(at, sign)| !line[at + sign.len()..].starts_with("core"))
}

/// Every line that puts a key or a channel together.
fn keys(tree: &Tree) -> Vec<Complaint> {
    let scripts = tree.below("crates/", ".lua").flat_map(|(path, text)| {
        text.lines()
            .map(|line| line.split("--").next().unwrap_or_default())
            .zip(1..)
            .map(move |(line, n)| (path, n, line))
    });
    tree.sources()
        .flat_map(|(path, text)| code(text).map(move |(n, line)| (path, n, line)))
        .chain(scripts)
        .filter(|(_, _, line)| builds_a_key(line))
        .map(|(path, n, _)| Complaint::new(format!("{path}:{n}"), "builds a key or a channel"))
        .collect()
}

fn keys_are_built_in_one_place(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = keys(tree);
    complaints.retain(|complaint| !PLACES.iter().any(|(path, _)| complaint.is_in(path)));
    complaints
}

#[test]
fn one_place() {
    kept(keys_are_built_in_one_place);
    needed(keys, &PLACES);
    let planted = [
        "let channel = format!(\"redisson_lock__channel:{{{name}}}\");",
        "let key = name.prefixed(QUEUE);",
        "let key = b\"stanchion_fair_waiters:x\".to_vec();",
        "let leases = format!(\"{name}:timeout\");",
    ];
    for line in planted {
        found(
            keys_are_built_in_one_place,
            &[
                ("crates/stanchion-fair/src/scripts.rs", line),
                (
                    "crates/stanchion-cli/src/main.rs",
                    "log(\"stanchion_core=debug\");",
                ),
                (
                    "crates/stanchion-fair/src/lock.rs",
                    &format!("// `redisson_lock`\n{line}\n"),
                ),
            ],
            "crates/stanchion-fair/src/lock.rs:2",
        );
    }
    found(
        keys_are_built_in_one_place,
        &[(
            "crates/stanchion-fair/lua/queue.lua",
            "-- 'redisson_lock_queue'\nredis.call('DEL', 'redisson_lock_queue:{' .. KEYS[1] .. '}')\n",
        )],
        "crates/stanchion-fair/lua/queue.lua:2",
    );
}
