//! Checks that only the listed files build keys and channels, so that each format is defined in one place.

use crate::tree::{Tree, code};
use crate::{Complaint, found, kept, needed};

/// The files that build or classify keys and channels, with the reasons.
const PLACES: [(&str, &str); 21] = [
    ("crates/stanchion-barrier/src/keys.rs", "both barriers'"),
    (
        "crates/stanchion-cli/src/beside.rs",
        "the derived keys of every kind, for inspection of a server",
    ),
    (
        "crates/stanchion-core/src/name.rs",
        "the common rules, and the default counter of tokens",
    ),
    (
        "crates/stanchion-core/src/wire.rs",
        "the channels that notify holders",
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
        "crates/stanchion-rwlock/lua/line_of_rwlock.lua",
        "the key of the first hold of a reader that is granted by message",
    ),
    (
        "crates/stanchion-rwlock/lua/status.lua",
        "the same keys, without the rest of `dead.lua`",
    ),
    (
        "crates/stanchion-rwlock/src/layout.rs",
        "the read-write lock's",
    ),
    ("crates/stanchion-semaphore/src/keys.rs", "both semaphores'"),
    (
        "crates/stanchion-cli/src/exporter/page.rs",
        "names of metrics",
    ),
    (
        "crates/stanchion-tower/src/record.rs",
        "the stored response of an idempotency key",
    ),
];

/// Signs of a derived key: the functions of `Name` that build keys, and parts of keys.
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

/// Returns whether a line of code builds a key. A log filter, such as `"stanchion_core=debug"`, does not count.
fn builds_a_key(line: &str) -> bool {
    SIGNS.iter().any(|sign| line.contains(sign))
        || line
            .match_indices("\"stanchion_")
            .any(|(at, sign)| !line[at + sign.len()..].starts_with("core"))
}

/// Returns every line that builds a key or a channel.
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
fn only_listed_files_build_keys() {
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
