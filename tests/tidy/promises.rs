//! The promises: one table, cited by code and by tests.

use std::collections::BTreeSet;

use crate::tree::Tree;
use crate::{Complaint, found, kept};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const BOOK: &str = "docs/guarantees.md";

/// The promises that a page's table names, as `P1 exclusion`: rows that begin with `| P1 ` or `| **P1** `.
fn titles(tree: &Tree, page: &str) -> BTreeSet<String> {
    tree.get(page)
        .unwrap_or_default()
        .lines()
        .filter_map(|line| line.strip_prefix("| ")?.split(" |").next())
        .map(|title| title.replace("**", ""))
        .filter(|title| {
            let first = cited(title).into_iter().next();
            first.is_some_and(|id| title.starts_with(&id))
        })
        .collect()
}

/// Their ids alone.
fn table(tree: &Tree, page: &str) -> BTreeSet<String> {
    titles(tree, page)
        .iter()
        .flat_map(|title| cited(title))
        .collect()
}

/// Every `P<number>` that stands by itself in `text`.
fn cited(text: &str) -> BTreeSet<String> {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(|word| {
            word.strip_prefix('P').is_some_and(|n| {
                !n.is_empty() && n.len() <= 2 && n.bytes().all(|b| b.is_ascii_digit())
            })
        })
        .map(str::to_owned)
        .collect()
}

/// Code cites nothing that is not in the table, and every promise of the table is cited by code and by a test.
fn promises_are_cited(tree: &Tree) -> Vec<Complaint> {
    let promised = table(tree, ARCHITECTURE);
    let mut complaints = Vec::new();
    let (mut by_code, mut by_tests) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in tree.below("", ".rs").chain(tree.below("", ".lua")) {
        // This rule's own examples are no citations.
        if path.starts_with("tests/tidy/") {
            continue;
        }
        let ids = cited(text);
        for id in ids.difference(&promised) {
            complaints.push(Complaint::new(
                path,
                format!("cites {id}, which nobody promised"),
            ));
        }
        if path.starts_with("tests/") || path.split('/').nth(2) == Some("tests") {
            by_tests.extend(ids);
        } else {
            by_code.extend(ids);
        }
    }
    for (who, ids) in [("code", by_code), ("a test", by_tests)] {
        for id in promised.difference(&ids) {
            complaints.push(Complaint::new(
                ARCHITECTURE,
                format!("{id} is not cited by {who}"),
            ));
        }
    }
    complaints
}

/// The promises of the book are those whose tests ARCHITECTURE names. The words of a promise stand in the book only.
fn tables_name_the_same_promises(tree: &Tree) -> Vec<Complaint> {
    let (here, there) = (titles(tree, ARCHITECTURE), titles(tree, BOOK));
    here.symmetric_difference(&there)
        .map(|title| {
            Complaint::new(
                BOOK,
                format!("{title} stands in one of the two tables only"),
            )
        })
        .collect()
}

#[test]
fn citations() {
    kept(promises_are_cited);
    let table = "| P1 exclusion | x |\n";
    found(
        promises_are_cited,
        &[
            (ARCHITECTURE, table),
            ("crates/a/src/lib.rs", "// P1: yes\n"),
            ("tests/x/main.rs", "// P1, P77\n"),
        ],
        "tests/x/main.rs",
    );
    found(
        promises_are_cited,
        &[
            (ARCHITECTURE, table),
            ("crates/a/src/lib.rs", "// P1: yes\n"),
        ],
        ARCHITECTURE,
    );
}

#[test]
fn tables() {
    kept(tables_name_the_same_promises);
    assert!(table(&Tree::of_project(), BOOK).len() >= 11);
    found(
        tables_name_the_same_promises,
        &[
            (ARCHITECTURE, "| P1 a | x |\n| P2 b | y |\n"),
            (BOOK, "| **P1** a | x |\n"),
        ],
        BOOK,
    );
    found(
        tables_name_the_same_promises,
        &[
            (ARCHITECTURE, "| P1 a | x |\n| P2 b | y |\n"),
            (BOOK, "| **P1** a | x |\n| P2 b | y |\n| P3 c | z |\n"),
        ],
        BOOK,
    );
}
