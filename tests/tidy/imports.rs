//! Checks that code that users read or copy imports only public crates: the facade, or the crate of one primitive.

use crate::tree::{Tree, code};
use crate::{Complaint, found, kept, needed};

/// The crates that users do not depend on directly.
const INTERNAL: [&str; 7] = [
    "stanchion_client",
    "stanchion_core",
    "stanchion_events",
    "stanchion_explorer",
    "stanchion_metrics",
    "stanchion_survey",
    "stanchion_transport",
];

/// Folders of crates that are built on the internal crates. The rule applies to their documentation, not to their code.
const OVER_THE_CORE: [&str; 13] = [
    "stanchion/",
    "stanchion-barrier/",
    "stanchion-election/",
    "stanchion-fair/",
    "stanchion-jobs/",
    "stanchion-latch/",
    "stanchion-limiter/",
    "stanchion-lock/",
    "stanchion-multilock/",
    "stanchion-redlock/",
    "stanchion-rwlock/",
    "stanchion-semaphore/",
    "stanchion-tower/",
];

/// The files that may name an internal crate, with the reasons.
const EXCUSED: [(&str, &str); 4] = [
    ("ARCHITECTURE.md", "for contributors, not for users"),
    (
        "crates/stanchion-cli/src/run/estate.rs",
        "ends the hold of a process that was killed, which no program of a user should do",
    ),
    (
        "crates/stanchion-cli/src/similar.rs",
        "runs its own script, for which there is no public API",
    ),
    (
        "tests/virtual/toy/baton.rs",
        "represents the crate of a new primitive, as its author writes it",
    ),
];

/// The macros that assemble a script. Tests and benchmarks that send a script directly need them for its text.
const WEAVING: [&str; 6] = [
    "::minting!",
    "::mint_function!",
    "::in_line!",
    "::line!",
    "::woven!",
    "::primitive::LuaPart",
];

/// Returns whether `text` names an item of an internal crate. A log filter, such as `stanchion_core::hold=error`, does not count.
fn reaches_inside(text: &str) -> bool {
    INTERNAL.iter().any(|name| {
        text.match_indices(name).any(|(at, _)| {
            let rest = &text[at + name.len()..];
            let path = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
            rest.starts_with("::")
                && !WEAVING.iter().any(|weaving| rest.starts_with(weaving))
                && !rest.trim_start_matches(path).starts_with('=')
        })
    })
}

/// Returns every line that names an item of an internal crate, of the texts that users may copy and of code that is written as
/// theirs.
fn reaches(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    let mut judge = |path: &str, n: usize, line: &str| {
        if reaches_inside(line) {
            let what = "names an internal crate";
            complaints.push(Complaint::new(format!("{path}:{n}"), what));
        }
    };
    for (path, text) in tree.below("", ".md") {
        for (line, n) in text.lines().zip(1..) {
            judge(path, n, line);
        }
    }
    for (path, text) in tree.below("", ".rs") {
        let of_crate = path.strip_prefix("crates/").unwrap_or_default();
        if path.starts_with("tests/tidy/")
            || INTERNAL
                .iter()
                .any(|name| of_crate.starts_with(&name.replace('_', "-")))
        {
            continue;
        }
        let over = OVER_THE_CORE.iter().any(|name| of_crate.starts_with(name));
        if over && of_crate.contains("/src/") {
            // Links in their documentation have to name internal crates. Example programs must not.
            for (line, n) in text.lines().map(str::trim_start).zip(1..) {
                let program = line.starts_with("//") && line.contains("use stanchion_");
                judge(path, n, if program { line } else { "" });
            }
        } else {
            for (n, line) in code(text) {
                judge(path, n, line);
            }
        }
    }
    complaints
}

fn users_import_public_crates_only(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = reaches(tree);
    complaints.retain(|complaint| !EXCUSED.iter().any(|(path, _)| complaint.is_in(path)));
    complaints
}

#[test]
fn public_code_imports_no_internal_crate() {
    kept(users_import_public_crates_only);
    needed(reaches, &EXCUSED);
    let import = "use stanchion_client::Client;";
    for path in [
        "README.md",
        "docs/primitives/lock.md",
        "crates/stanchion-lock/README.md",
        "crates/stanchion/examples/first.rs",
        "crates/stanchion-cli/src/status.rs",
        "tests/virtual/redlock.rs",
        "benches/src/fair.rs",
    ] {
        found(
            users_import_public_crates_only,
            &[
                ("crates/stanchion-lock/src/lock.rs", import),
                ("crates/stanchion-core/src/any.rs", import),
                (
                    "docs/cli/serve.md",
                    "STANCHION_LOG=stanchion_core::hold=error",
                ),
                (path, import),
            ],
            &format!("{path}:1"),
        );
    }
    found(
        users_import_public_crates_only,
        &[(
            "crates/stanchion-lock/src/lock.rs",
            "/// [x](stanchion_client::Client)\n    /// # use stanchion_client::Client;\n",
        )],
        "crates/stanchion-lock/src/lock.rs:2",
    );
}
