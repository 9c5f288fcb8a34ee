//! The statements of ARCHITECTURE.md about the code, executed: each rule reads the project's own files and names what breaks it.
//!
//! A rule is a function from a [`Tree`] to complaints. It is run on the project, which must give it none, and on a small
//! tree with one breakage planted, which must give it one: a rule that cannot fail is no rule.

#![allow(
    clippy::expect_used,
    reason = "a test that cannot read the project may panic"
)]

mod book;
mod bounds;
mod imports;
mod keys;
mod layers;
mod promises;
mod tree;
mod words;

use tree::Tree;

/// A place, and what is wrong there.
#[derive(Debug, PartialEq, Eq)]
struct Complaint {
    at: String,
    what: String,
}

impl Complaint {
    fn new(at: impl Into<String>, what: impl Into<String>) -> Self {
        Self {
            at: at.into(),
            what: what.into(),
        }
    }

    /// Returns whether it is about the file at `path`.
    fn is_in(&self, path: &str) -> bool {
        self.at.split(':').next() == Some(path)
    }
}

type Rule = fn(&Tree) -> Vec<Complaint>;

/// The project keeps `rule`.
#[track_caller]
fn kept(rule: Rule) {
    let complaints = rule(&Tree::of_project());
    let lines: Vec<String> = complaints
        .iter()
        .map(|c| format!("{}: {}", c.at, c.what))
        .collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

/// `rule` finds what was planted, at `at` and nowhere else.
#[track_caller]
fn found(rule: Rule, files: &[(&str, &str)], at: &str) {
    let complaints = rule(&Tree::planted(files));
    let places: Vec<&str> = complaints.iter().map(|c| c.at.as_str()).collect();
    assert_eq!(places, [at], "{complaints:?}");
}

/// Each excuse has its use: without them `rule` complains of every file on the list.
#[track_caller]
fn needed(rule: Rule, excuses: &[(&str, &str)]) {
    let complaints = rule(&Tree::of_project());
    for (path, _) in excuses {
        let used = complaints.iter().any(|complaint| complaint.is_in(path));
        assert!(used, "{path} is excused and does nothing that needs it");
    }
}
