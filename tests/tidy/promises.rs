//! Checks that code and tests cite every promise of the table in ARCHITECTURE.md, and that the book lists the same promises.

use std::collections::BTreeSet;

use crate::tree::Tree;
use crate::{Complaint, found, kept};

const ARCHITECTURE: &str = "ARCHITECTURE.md";
const BOOK: &str = "docs/guarantees.md";

/// Returns the promises in a page's table, such as `P1 exclusion`. Their rows begin with `| P1 ` or `| **P1** `.
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

/// Returns the ids of the promises in a page's table.
fn table(tree: &Tree, page: &str) -> BTreeSet<String> {
    titles(tree, page)
        .iter()
        .flat_map(|title| cited(title))
        .collect()
}

/// Returns every `P<number>` that is a whole word in `text`.
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

/// Code and tests cite only promises in the table. Each promise is cited by code and by a test.
fn promises_are_cited(tree: &Tree) -> Vec<Complaint> {
    let promised = table(tree, ARCHITECTURE);
    let mut complaints = Vec::new();
    let (mut by_code, mut by_tests) = (BTreeSet::new(), BTreeSet::new());
    for (path, text) in tree.below("", ".rs").chain(tree.below("", ".lua")) {
        // The examples of this rule are not citations.
        if path.starts_with("tests/tidy/") {
            continue;
        }
        let ids = cited(text);
        for id in ids.difference(&promised) {
            complaints.push(Complaint::new(
                path,
                format!("cites {id}, which is not in the table"),
            ));
        }
        if path.starts_with("tests/") || path.split('/').nth(2) == Some("tests") {
            by_tests.extend(ids);
        } else {
            by_code.extend(ids);
        }
    }
    for (source, ids) in [("code", by_code), ("a test", by_tests)] {
        for id in promised.difference(&ids) {
            complaints.push(Complaint::new(
                ARCHITECTURE,
                format!("{id} is not cited by {source}"),
            ));
        }
    }
    complaints
}

/// ARCHITECTURE.md and the book list the same promises. ARCHITECTURE.md names their tests, and only the book has their wording.
fn tables_name_the_same_promises(tree: &Tree) -> Vec<Complaint> {
    let (here, there) = (titles(tree, ARCHITECTURE), titles(tree, BOOK));
    here.symmetric_difference(&there)
        .map(|title| Complaint::new(BOOK, format!("{title} is in only one of the two tables")))
        .collect()
}

#[test]
fn code_and_tests_cite_every_promise() {
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
fn tables_list_the_same_promises() {
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
