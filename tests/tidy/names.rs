//! A name has one meaning in its crate.

use std::collections::BTreeMap;

use crate::tree::Tree;
use crate::{Complaint, found, kept};

/// Returns the name of the type, or the trait, that a line of a module declares.
fn declared(line: &str) -> Option<&str> {
    let item = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.strip_prefix(' ')?,
        None => line,
    };
    let (word, rest) = item.split_once(' ')?;
    let is_type = ["struct", "enum", "trait", "type", "union"].contains(&word);
    let name = rest.split(|it: char| !it.is_alphanumeric()).next();
    name.filter(|_| is_type)
}

/// A type that has the name of another one of its crate misleads a reader. Left out: the command line, whose commands are programs of their own.
fn types_have_names_of_their_own(tree: &Tree) -> Vec<Complaint> {
    let mut first = BTreeMap::new();
    let mut complaints = Vec::new();
    for (path, text) in tree.below("crates/", ".rs") {
        let Some((of, file)) = path.split_once("/src/") else {
            continue;
        };
        if of.ends_with("-cli") || file.contains("tests") {
            continue;
        }
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        for (n, line) in code.lines().enumerate() {
            let Some(name) = declared(line) else { continue };
            if let Some(other) = first.insert((of, name), path).filter(|it| *it != path) {
                let what = format!("{name} has another meaning in {other}");
                complaints.push(Complaint::new(format!("{path}:{}", n + 1), what));
            }
        }
    }
    complaints
}

#[test]
fn a_type_name_has_one_meaning_in_its_crate() {
    kept(types_have_names_of_their_own);
    let other = "pub(crate) enum Told {\n";
    for line in ["struct Told;", "pub struct Told<'a> {", "type Told = u32;"] {
        found(
            types_have_names_of_their_own,
            &[
                ("crates/a/src/one.rs", other),
                (
                    "crates/a/src/two.rs",
                    &format!("\n{line}\n    type Told = u8;"),
                ),
                ("crates/b/src/one.rs", other),
            ],
            "crates/a/src/two.rs:2",
        );
    }
}
