//! The facade's types and verbs are checked for the bounds that tasks need.

use std::collections::BTreeSet;

use crate::tree::{Tree, code, has_word};
use crate::{Complaint, found, kept};

const FACADE: &str = "crates/stanchion/src/lib.rs";
const ENGINE: &str = "crates/stanchion-embedded/src/lib.rs";
const BOUNDS: &str = "crates/stanchion/tests/facade/bounds.rs";

/// The most names that the root of the facade may have, modules included. A reader of its page reads all of them.
const ROOT_NAMES: usize = 90;

/// The words of each `pub use` of `text` that stands behind `start`, without these two.
fn re_exports<'a>(text: &'a str, start: &'a str) -> impl Iterator<Item = Vec<&'a str>> {
    text.split(start)
        .skip(1)
        .filter_map(|rest| rest.split(';').next())
        .map(|names| {
            names
                .split(|c: char| !c.is_alphanumeric() && c != '_')
                .filter(|word| !word.is_empty())
                .collect()
        })
}

/// How a line of a root begins that re-exports, and one in any module.
const IN_ROOT: &str = "\npub use ";
const ANYWHERE: &str = "pub use ";

fn is_type(name: &str) -> bool {
    name.starts_with(char::is_uppercase) && name.contains(char::is_lowercase)
}

/// The types and traits that a crate re-exports, in its root and in its modules.
fn exported(tree: &Tree, lib: &str) -> BTreeSet<String> {
    re_exports(tree.get(lib).unwrap_or_default(), ANYWHERE)
        .flatten()
        .filter(|name| is_type(name))
        .map(str::to_owned)
        .collect()
}

/// The root of the facade stays readable: names that say little without their primitive are in its module.
fn root_is_small(tree: &Tree) -> Vec<Complaint> {
    let text = tree.get(FACADE).unwrap_or_default();
    let types = re_exports(text, IN_ROOT)
        .flatten()
        .filter(|name| is_type(name));
    let modules = text.lines().filter(|line| line.starts_with("pub mod "));
    let names = types.count() + modules.count();
    if names <= ROOT_NAMES {
        return Vec::new();
    }
    let what =
        format!("{names} names in the root, more than {ROOT_NAMES}: move some into a module");
    vec![Complaint::new(FACADE, what)]
}

/// Every type of a primitive's crate is in the module of the facade that has the others.
fn modules_are_complete(tree: &Tree) -> Vec<Complaint> {
    let facade = tree.get(FACADE).unwrap_or_default();
    let mut complaints = Vec::new();
    for (lib, text) in tree.below("crates/", "/src/lib.rs") {
        let folder = lib.split('/').nth(1).unwrap_or_default();
        let name = folder.replace('-', "_");
        let of_crate: BTreeSet<&str> = re_exports(facade, ANYWHERE)
            .filter(|words| words.first() == Some(&name.as_str()))
            .flatten()
            .collect();
        if of_crate.is_empty() || lib == ENGINE {
            continue;
        }
        for words in re_exports(text, IN_ROOT) {
            let own = words
                .first()
                .is_some_and(|from| !from.starts_with("stanchion_"));
            for missing in words.iter().filter(|word| own && is_type(word)) {
                if !of_crate.contains(missing) {
                    let what = format!("no {missing} of {name}");
                    complaints.push(Complaint::new(FACADE, what));
                }
            }
        }
    }
    complaints
}

/// Every public type of the facade stands in the test of bounds.
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

/// The verbs whose futures users get: the file, the type in its `impl`, with what stands around it, and the verb.
fn verbs(tree: &Tree) -> Vec<(String, String, String)> {
    let mut verbs = Vec::new();
    // The test kit has types of the same names.
    let sources = tree.sources();
    for (path, text) in sources.filter(|(path, _)| !path.contains("testkit")) {
        let lines: Vec<&str> = text.lines().map(str::trim).collect();
        let (mut owner, mut summary) = ("", "");
        for (n, line) in lines.iter().enumerate() {
            if let Some(rest) = line.strip_prefix("impl") {
                let inherent = !rest.contains(" for ");
                owner = if inherent {
                    rest.trim_matches([' ', '{'])
                } else {
                    ""
                };
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
                verbs.push((path.to_owned(), owner.to_owned(), verb.to_owned()));
            }
        }
    }
    verbs
}

/// Splits `<K: Fenced> Held<K>` into the parameters, the type and its arguments.
fn parts(owner: &str) -> (Vec<&str>, &str, Vec<&str>) {
    let (parameters, rest) = owner
        .strip_prefix('<')
        .and_then(|rest| rest.split_once("> "))
        .unwrap_or(("", owner));
    let (name, arguments) = rest.split_once('<').unwrap_or((rest, ""));
    let list = |text| str::split(text, ", ").filter(|item| !item.is_empty());
    let arguments = list(arguments.trim_end_matches('>')).collect();
    (list(parameters).collect(), name, arguments)
}

/// The types that have the methods of `owner`, an `impl`. Of a generic type these are its aliases: `LockGuard` for `<K: Fenced> Held<K>`, if the
/// sources have `pub type LockGuard = Held<Lock>` and `impl Fenced for Lock`. An argument that one side leaves out is a default.
fn types_of(tree: &Tree, owner: &str) -> BTreeSet<String> {
    let (parameters, generic, wanted) = parts(owner);
    if wanted.is_empty() {
        return BTreeSet::from([generic.to_owned()]);
    }
    let bound_of = |argument: &str| {
        parameters.iter().find_map(|parameter| {
            let (name, bound) = parameter.split_once(": ").unwrap_or((parameter, ""));
            (name == argument).then_some(bound)
        })
    };
    let meets = |wanted: &str, given: Option<&&str>| match (bound_of(wanted), given) {
        (None, given) => given == Some(&wanted),
        (Some(""), _) | (Some(_), None) => true,
        (Some(bound), Some(given)) => {
            let line = format!("impl {bound} for {given} {{");
            tree.sources().any(|(_, text)| text.contains(&line))
        }
    };
    let aliases: Vec<(&str, Vec<&str>)> = tree
        .sources()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.strip_prefix("pub type ")?.split_once(" = "))
        .map(|(alias, of)| (alias, parts(of.trim_end_matches(';'))))
        .filter(|(_, (_, of, _))| *of == generic)
        .map(|(alias, (_, _, given))| (alias, given))
        .collect();
    if aliases.is_empty() {
        return BTreeSet::from([generic.to_owned()]);
    }
    let fits = |given: &[&str]| {
        let mut pairs = wanted.iter().enumerate().map(|(n, w)| (w, given.get(n)));
        given.len() <= wanted.len() && pairs.all(|(wanted, given)| meets(wanted, given))
    };
    let fitting = aliases.iter().filter(|(_, given)| fits(given));
    fitting.map(|(alias, _)| (*alias).to_owned()).collect()
}

/// The future of every public verb of the facade's types stands there, too.
fn verbs_have_their_bounds(tree: &Tree) -> Vec<Complaint> {
    let lines = || code(tree.get(BOUNDS).unwrap_or_default()).map(|(_, line)| line);
    let mut bounds: String = lines().collect();
    // Verbs of each guard in a list.
    for guards in lines().filter_map(|line| line.trim().strip_prefix("of_each!(")) {
        for guard in guards.trim_end_matches(");").split(", ") {
            let verbs = lines().filter(|line| line.contains("$guard::"));
            bounds.extend(verbs.map(|line| line.replace("$guard", guard)));
        }
    }
    let mut types = exported(tree, FACADE);
    types.extend(exported(tree, ENGINE));
    let mut complaints = Vec::new();
    for (path, owner, verb) in verbs(tree) {
        let owners = types_of(tree, &owner);
        // A type of a macro, or a bound that no type meets.
        if owner.contains('$') || owners.is_empty() {
            let what = format!("{verb}: no type has the verbs of impl {owner}");
            complaints.push(Complaint::new(&path, what));
        }
        for owner in owners.intersection(&types) {
            if !bounds.contains(&format!("({owner}::{verb}(")) {
                let what = format!("{owner}::{verb} is not in {BOUNDS}");
                complaints.push(Complaint::new(&path, what));
            }
        }
    }
    complaints
}

#[test]
fn types() {
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
fn root_of_the_facade() {
    kept(root_is_small);
    let names: Vec<String> = (0..ROOT_NAMES).map(|n| format!("T{n}x")).collect();
    let facade = format!(
        "\npub use lock::{{{}}};\npub mod lock {{\n",
        names.join(", ")
    );
    found(root_is_small, &[(FACADE, &facade)], FACADE);
}

#[test]
fn modules_of_the_facade() {
    kept(modules_are_complete);
    let facade = "pub mod lock {\n    pub use stanchion_lock::{Lock};\n}\n";
    let lock =
        "\npub use guard::LockGuard;\npub use lock::Lock;\npub use stanchion_client::Client;\n";
    found(
        modules_are_complete,
        &[(FACADE, facade), ("crates/stanchion-lock/src/lib.rs", lock)],
        FACADE,
    );
}

#[test]
fn verbs_of_types() {
    kept(verbs_have_their_bounds);
    let of_project = verbs(&Tree::of_project());
    assert!(
        of_project.len() > 80,
        "only {} verbs found",
        of_project.len()
    );
    let facade = "\npub use a::{Held, Lock, LockGuard, ReadGuard};\n";
    let generic = "impl<K, H: Holds> Held<K, H> {\n    /// Renews.\n    pub async fn renew(&self) {\n    }\n}\n\nimpl<K: Fenced> Held<K> {\n    /// Detaches.\n    pub async fn detach(self) {\n    }\n}\n";
    let aliases = "pub type LockGuard = Held<Lock>;\npub type ReadGuard = Held<Read>;\n\nimpl Fenced for Lock {}\n";
    let lock = "impl Lock {\n    /// For primitives: x.\n    pub async fn query() {\n    }\n\n    /// Waits.\n    pub fn acquire(\n        &self,\n    ) -> impl Future<Output = ()> {\n";
    let all = [
        "sent(Lock::acquire(&any()));",
        "of_each!(LockGuard);",
        "sent(LockGuard::detach(any()));",
        "of_each!(ReadGuard);",
    ];
    let complete = format!("{}\nsent($guard::renew(&any()));", all.join("\n"));
    let incomplete = all.map(|verb| complete.replace(verb, ""));
    let files = |bounds| {
        [
            (FACADE, facade),
            ("crates/a/src/guard.rs", generic),
            ("crates/b/src/guard.rs", aliases),
            ("crates/c/src/lock.rs", lock),
            (BOUNDS, bounds),
        ]
    };
    assert!(verbs_have_their_bounds(&Tree::planted(&files(&complete))).is_empty());
    for (n, bounds) in incomplete.iter().enumerate() {
        let place = ["crates/c/src/lock.rs", "crates/a/src/guard.rs"][n.min(1)];
        found(verbs_have_their_bounds, &files(bounds), place);
    }
    let of_macro = "macro_rules! define_guard {\n    impl $guard {\n    /// Renews.\n    pub async fn renew(&self) {\n";
    found(
        verbs_have_their_bounds,
        &[("crates/a/src/guard.rs", of_macro)],
        "crates/a/src/guard.rs",
    );
    let unmet = &generic[generic.find("impl<K: Fenced>").unwrap_or_default()..];
    found(
        verbs_have_their_bounds,
        &[
            ("crates/a/src/guard.rs", unmet),
            (
                "crates/b/src/guard.rs",
                "pub type ReadGuard = Held<Read>;\n",
            ),
        ],
        "crates/a/src/guard.rs",
    );
}
