//! Checks that the facade's test of bounds covers every public type, and the future of every public method.

use std::collections::BTreeSet;

use crate::tree::{Tree, code, has_word};
use crate::{Complaint, found, kept};

const FACADE: &str = "crates/stanchion/src/lib.rs";
const ENGINE: &str = "crates/stanchion-embedded/src/lib.rs";
const BOUNDS: &str = "crates/stanchion/tests/bounds.rs";

/// Returns the types and traits that a crate re-exports, outside its modules.
fn exported(tree: &Tree, lib: &str) -> BTreeSet<String> {
    let text = tree.get(lib).unwrap_or_default();
    text.split("\npub use ")
        .skip(1)
        .filter_map(|rest| rest.split(';').next())
        .flat_map(|names| names.split(|c: char| !c.is_alphanumeric() && c != '_'))
        .filter(|name| name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase))
        .map(str::to_owned)
        .collect()
}

/// The test of bounds covers every public type of the facade.
fn types_have_their_bounds(tree: &Tree) -> Vec<Complaint> {
    let bounds = tree.get(BOUNDS).unwrap_or_default();
    let asserted: Vec<&str> = code(bounds)
        .map(|(_, line)| line.trim())
        .filter(|line| {
            ["shared::<", "sent::<", "fn "]
                .iter()
                .any(|begin| line.starts_with(begin))
        })
        .collect();
    [FACADE, ENGINE]
        .iter()
        .flat_map(|lib| exported(tree, lib))
        .filter(|name| !asserted.iter().any(|line| has_word(line, name)))
        .map(|name| Complaint::new(BOUNDS, format!("no bounds of {name}")))
        .collect()
}

/// Returns the public methods that return futures: the file, and `Type::method`, or `macro!::method` for a method that a macro
/// defines for several types.
fn verbs(tree: &Tree) -> Vec<(String, String)> {
    let mut verbs = Vec::new();
    for (path, text) in tree.sources() {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let (mut owner, mut summary) = (String::new(), "");
        let mut defined = "";
        for (n, line) in lines.iter().enumerate() {
            if let Some(rest) = line.strip_prefix("impl") {
                let generic = rest.strip_prefix('<').and_then(|r| r.split_once("> "));
                let rest = generic.map_or(rest, |(_, rest)| rest);
                let inherent = !rest.contains(" for ");
                let name = rest.split_whitespace().next().unwrap_or_default();
                let of = name
                    .split('<')
                    .next()
                    .filter(|_| inherent)
                    .unwrap_or_default();
                owner = if of.starts_with('$') {
                    format!("{defined}!")
                } else {
                    of.to_owned()
                };
            }
            if let Some(rest) = line.strip_prefix("macro_rules! ") {
                defined = rest.trim_end_matches([' ', '{']);
            }
            let documented = n > 0 && lines[n - 1].starts_with("///");
            if line.starts_with("///") && !documented {
                summary = line;
            }
            let Some(rest) = line.strip_prefix("pub ") else {
                continue;
            };
            let signature = lines[n..]
                .iter()
                .take_while(|line| **line != "}")
                .scan(false, |over, line| {
                    let take = !*over;
                    *over |= line.ends_with('{');
                    take.then_some(*line)
                })
                .collect::<String>();
            let waits = rest.starts_with("async fn ") || signature.contains("Future<");
            let Some((_, rest)) = rest.split_once("fn ").filter(|_| waits) else {
                continue;
            };
            let verb = rest.split(['(', '<']).next().unwrap_or_default();
            // `Client` has methods that only primitives can call: their arguments are not exported.
            if !summary.contains("For primitives:") {
                verbs.push((path.to_owned(), format!("{owner}::{verb}")));
            }
        }
    }
    verbs
}

/// Returns the types that the calls of a macro define. The first `pub struct X` or `impl X` in a call names the type.
fn made_by(tree: &Tree, name: &str) -> BTreeSet<String> {
    let call = format!("\n{name} {{");
    tree.sources()
        .flat_map(|(_, text)| text.split(&call).skip(1))
        .filter_map(|rest| {
            let lines = rest.lines().map(str::trim_start);
            lines
                .filter_map(|line| {
                    line.strip_prefix("pub struct ")
                        .or_else(|| line.strip_prefix("impl "))
                })
                .next()
        })
        .filter_map(|rest| rest.split(|c: char| !c.is_alphanumeric()).next())
        .map(str::to_owned)
        .collect()
}

/// The test of bounds covers the future of every public method of the facade's types.
fn verbs_have_their_bounds(tree: &Tree) -> Vec<Complaint> {
    let bounds: String = code(tree.get(BOUNDS).unwrap_or_default())
        .map(|(_, line)| line)
        .collect();
    let mut types = exported(tree, FACADE);
    types.extend(exported(tree, ENGINE));
    let mut complaints = Vec::new();
    for (path, verb) in verbs(tree) {
        let (owner, name) = verb.split_once("::").unwrap_or_default();
        let owners = if owner.ends_with('!') {
            made_by(tree, owner)
        } else {
            types.get(owner).cloned().into_iter().collect()
        };
        if owner.ends_with('!') && owners.is_empty() {
            complaints.push(Complaint::new(
                &path,
                format!("no type has the verbs of {owner}"),
            ));
        }
        for owner in owners {
            if !bounds.contains(&format!("({owner}::{name}(")) {
                let what = format!("{owner}::{name} is not in {BOUNDS}");
                complaints.push(Complaint::new(&path, what));
            }
        }
    }
    complaints
}

#[test]
fn bounds_test_covers_every_type() {
    kept(types_have_their_bounds);
    let facade = "pub use stanchion_client::{Client, MAX_NAME_BYTES};\npub use stanchion_lock::{\n    Lock, LockGuard,\n};\n";
    let bounds = "use stanchion::{Lock, LockGuard};\nfn a<T: Client>() {}\n    shared::<LockGuard>();\n    spawned(Lock::acquire());\n";
    found(
        types_have_their_bounds,
        &[(FACADE, facade), (BOUNDS, bounds)],
        BOUNDS,
    );
}

#[test]
fn bounds_test_covers_every_method() {
    kept(verbs_have_their_bounds);
    let of_project = verbs(&Tree::of_project());
    assert!(
        of_project.len() > 80,
        "only {} verbs found",
        of_project.len()
    );
    let facade = "\npub use a::{Lock, LockGuard};\n";
    let guard = "macro_rules! define_guard {\n    /// A guard.\n    impl $guard {\n    pub async fn renew(&self) {\n";
    let defined = "\ndefine_guard! {\n    /// Held.\n    pub struct LockGuard;\n}\n";
    let lock = "impl Lock {\n    /// For primitives: x.\n    pub async fn query() {\n    }\n\n    /// Waits.\n    pub fn acquire(\n        &self,\n    ) -> impl Future<Output = ()> {\n";
    let files = |bounds| {
        [
            (FACADE, facade),
            ("crates/a/src/guard.rs", guard),
            ("crates/b/src/guard.rs", defined),
            ("crates/c/src/lock.rs", lock),
            (BOUNDS, bounds),
        ]
    };
    found(
        verbs_have_their_bounds,
        &files("sent(LockGuard::renew(&any()));"),
        "crates/c/src/lock.rs",
    );
    found(
        verbs_have_their_bounds,
        &files("sent(Lock::acquire(&any()));"),
        "crates/a/src/guard.rs",
    );
    found(
        verbs_have_their_bounds,
        &[("crates/a/src/guard.rs", guard)],
        "crates/a/src/guard.rs",
    );
}
