//! Checks the rules of ARCHITECTURE.md about the code. Each rule reads the project's own files and reports violations.
//!
//! A rule is a function from a [`Tree`] to complaints. The project must cause no complaint. A small tree with a planted violation
//! must cause exactly one, which shows that the rule can fail.

#![allow(
    clippy::expect_used,
    reason = "a test that cannot read the project may panic"
)]

mod book;
mod bounds;
mod imports;
mod keys;
mod layers;
mod names;
mod promises;
mod tree;
mod words;

use tree::Tree;

/// A violation: the file, with a line number if one is known, and the problem.
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

    /// Returns whether the complaint is about the file at `path`.
    fn is_in(&self, path: &str) -> bool {
        self.at.split(':').next() == Some(path)
    }
}

type Rule = fn(&Tree) -> Vec<Complaint>;

/// Asserts that the project obeys `rule`.
#[track_caller]
fn kept(rule: Rule) {
    let complaints = rule(&Tree::of_project());
    let lines: Vec<String> = complaints
        .iter()
        .map(|c| format!("{}: {}", c.at, c.what))
        .collect();
    assert!(lines.is_empty(), "\n{}\n", lines.join("\n"));
}

/// Asserts that `rule` reports the planted violation at `at`, and no other.
#[track_caller]
fn found(rule: Rule, files: &[(&str, &str)], at: &str) {
    let complaints = rule(&Tree::planted(files));
    let places: Vec<&str> = complaints.iter().map(|c| c.at.as_str()).collect();
    assert_eq!(places, [at], "{complaints:?}");
}

/// Asserts that each exception is needed: `rule`, which ignores the exceptions, reports every file in the list.
#[track_caller]
fn needed(rule: Rule, excuses: &[(&str, &str)]) {
    let complaints = rule(&Tree::of_project());
    for (path, _) in excuses {
        let used = complaints.iter().any(|complaint| complaint.is_in(path));
        assert!(used, "{path} is in the list of exceptions, but needs none");
    }
}
