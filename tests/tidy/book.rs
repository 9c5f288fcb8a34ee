//! Checks that the metrics, enum variants and error types that the book names exist in the code, and that its examples enable
//! the features that they need.

use std::collections::BTreeSet;

use crate::tree::Tree;
use crate::{Complaint, found, kept};

const OBSERVED: &str = "crates/stanchion-metrics/src/names.rs";

/// The metrics of the command line's exporter, which are no program's own.
const EXPORTED: &str = "crates/stanchion-cli/src/exporter/page.rs";

fn metrics_of(tree: &Tree, files: &[&str]) -> BTreeSet<String> {
    let files = files.iter().filter_map(|file| tree.get(file));
    files.flat_map(quoted_metrics).collect()
}

/// The book's tables list exactly the metrics that the code emits.
fn metrics_are_documented(tree: &Tree) -> Vec<Complaint> {
    let emitted = metrics_of(tree, &[OBSERVED, EXPORTED]);
    let documented: BTreeSet<String> = tree
        .below("docs/", ".md")
        .flat_map(|(_, text)| text.lines())
        .filter(|line| line.starts_with("| `stanchion_"))
        .filter(|line| {
            ["counter", "gauge", "histogram"]
                .iter()
                .any(|kind| line.contains(kind))
        })
        .filter_map(|line| line.split('`').nth(1).map(str::to_owned))
        .collect();
    let mut complaints = Vec::new();
    for name in emitted.difference(&documented) {
        complaints.push(Complaint::new(
            OBSERVED,
            format!("{name} is not in the book"),
        ));
    }
    for name in documented.difference(&emitted) {
        complaints.push(Complaint::new("docs", format!("{name} is not emitted")));
    }
    for (path, text) in tree.below("", ".md") {
        for name in metrics_named(text).difference(&emitted) {
            if !documented.contains(name) {
                complaints.push(Complaint::new(path, format!("{name} is not emitted")));
            }
        }
    }
    complaints
}

/// The dashboards, with the file of the metrics that each shows.
const DASHBOARDS: [(&str, &str); 2] = [
    ("docs/ops/grafana.json", OBSERVED),
    ("docs/ops/exporter-grafana.json", EXPORTED),
];

/// Alerts and dashboards query only metrics that the code emits. The dashboards show all of them.
fn dashboards_show_emitted_metrics(tree: &Tree) -> Vec<Complaint> {
    let known = metrics_of(tree, &[OBSERVED, EXPORTED]);
    let mut complaints = Vec::new();
    for (path, text) in tree.below("docs/ops/", "") {
        for name in series_named(text).difference(&known) {
            complaints.push(Complaint::new(path, format!("{name} is not emitted")));
        }
    }
    for (dashboard, file) in DASHBOARDS {
        let shown = tree.get(dashboard).map(series_named).unwrap_or_default();
        for name in metrics_of(tree, &[file]).difference(&shown) {
            complaints.push(Complaint::new(dashboard, format!("{name} is not shown")));
        }
    }
    complaints
}

/// Returns the metrics of the series in a query.
fn series_named(text: &str) -> BTreeSet<String> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.split(|c| !part(c))
        .filter(|word| word.starts_with("stanchion_"))
        .map(|word| {
            ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|suffix| word.strip_suffix(suffix))
                .unwrap_or(word)
                .to_owned()
        })
        .collect()
}

/// Returns the metrics that a text names, without the suffixes of an exporter's histograms. A name before a colon is a key.
fn metrics_named(text: &str) -> BTreeSet<String> {
    let part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    text.match_indices("stanchion_")
        .filter_map(|(at, _)| {
            let rest = text[at..].trim_start_matches(part);
            let word = &text[at..text.len() - rest.len()];
            let name = ["_bucket", "_count", "_sum"]
                .iter()
                .find_map(|suffix| word.strip_suffix(suffix))
                .unwrap_or(word);
            let metric = name.ends_with("_total") || name.ends_with("_seconds");
            (metric && !rest.starts_with(':')).then(|| name.to_owned())
        })
        .collect()
}

fn quoted_metrics(text: &str) -> BTreeSet<String> {
    text.split('"')
        .skip(1)
        .step_by(2)
        .filter(|word| word.starts_with("stanchion_"))
        .map(str::to_owned)
        .collect()
}

/// Every variant of a public enum that the book names, such as `LostReason::Gone`, exists in the code.
fn variants_of_the_book_exist(tree: &Tree) -> Vec<Complaint> {
    let mut complaints = Vec::new();
    for name in public_enums(tree) {
        for (path, text) in tree.below("", ".md") {
            for variant in variants_named(text, &name) {
                let exists = tree
                    .sources()
                    .any(|(_, code)| has_variant(code, &name, &variant));
                if !exists {
                    complaints.push(Complaint::new(
                        path,
                        format!("{name}::{variant} does not exist"),
                    ));
                }
            }
        }
    }
    complaints
}

/// Every error type that the book names, such as `AcquireError`, exists in the code.
fn error_types_of_the_book_exist(tree: &Tree) -> Vec<Complaint> {
    let declared = |name: &str| {
        let lines = tree.sources().flat_map(|(_, text)| text.lines());
        let mut types = lines.filter_map(|line| line.strip_prefix("pub ")?.split_once(' '));
        types.any(|(_, rest)| rest.split([' ', '<', ';', '(']).next() == Some(name))
    };
    let mut complaints = Vec::new();
    for (path, text) in tree.below("", ".md") {
        let named: BTreeSet<&str> = text
            .split(|c: char| !c.is_alphanumeric())
            .filter(|word| word.ends_with("Error") && word.starts_with(char::is_uppercase))
            .collect();
        for name in named.into_iter().filter(|name| !declared(name)) {
            complaints.push(Complaint::new(path, format!("{name} does not exist")));
        }
    }
    complaints
}

fn public_enums(tree: &Tree) -> BTreeSet<String> {
    tree.sources()
        .flat_map(|(_, text)| text.lines())
        .filter_map(|line| line.strip_prefix("pub enum ")?.strip_suffix(" {"))
        .map(str::to_owned)
        .collect()
}

fn variants_named(text: &str, name: &str) -> BTreeSet<String> {
    let prefix = format!("{name}::");
    text.match_indices(&prefix)
        .filter(|(at, _)| !text[..*at].ends_with(char::is_alphanumeric))
        .map(|(at, _)| {
            text[at + prefix.len()..]
                .chars()
                .take_while(|c| c.is_alphanumeric())
                .collect::<String>()
        })
        .filter(|variant| variant.starts_with(char::is_uppercase))
        .collect()
}

/// Returns whether `code` declares the enum `name` with `variant`.
fn has_variant(code: &str, name: &str, variant: &str) -> bool {
    let Some(at) = code.find(&format!("pub enum {name} {{")) else {
        return false;
    };
    code[at..]
        .lines()
        .take_while(|line| *line != "}")
        .any(|line| {
            line.strip_prefix("    ").is_some_and(|line| {
                line.strip_prefix(variant)
                    .is_some_and(|rest| rest.starts_with([',', '(', ' ']))
            })
        })
}

/// A page with a program that pauses time and with a `Cargo.toml` enables tokio's `test-util` there.
fn paused_time_has_its_feature(tree: &Tree) -> Vec<Complaint> {
    let lacking = |(path, text): (&str, &str)| {
        let paused = text.contains("start_paused = true") && text.contains("```toml");
        (paused && !text.contains("\"test-util\""))
            .then(|| Complaint::new(path, "a program needs tokio's feature test-util".to_owned()))
    };
    tree.below("", ".md").filter_map(lacking).collect()
}

#[test]
fn book_documents_every_metric() {
    kept(metrics_are_documented);
    found(
        metrics_are_documented,
        &[
            (
                OBSERVED,
                "counter!(\"stanchion_lost_total\"); counter!(\"stanchion_new_total\")",
            ),
            (
                "docs/running/monitoring.md",
                "| `stanchion_lost_total` | counter | |\n",
            ),
        ],
        OBSERVED,
    );
    found(
        metrics_are_documented,
        &[
            (OBSERVED, ""),
            (
                "docs/running/monitoring.md",
                "| `stanchion_lost_total` | counter | |\n",
            ),
        ],
        "docs",
    );
    found(
        metrics_are_documented,
        &[
            (OBSERVED, "counter!(\"stanchion_lost_total\")"),
            (
                "docs/running/monitoring.md",
                "| `stanchion_lost_total` | counter | |\n",
            ),
            (
                "README.md",
                "`stanchion_lost_total`, `stanchion_waits_seconds_bucket`, `stanchion_semaphore_total:{N}`",
            ),
        ],
        "README.md",
    );
}

#[test]
fn dashboards_and_alerts_query_emitted_metrics() {
    kept(dashboards_show_emitted_metrics);
    let table = "\"stanchion_held\", \"stanchion_wait_seconds\"";
    let both = "sum(stanchion_held) / rate(stanchion_wait_seconds_bucket{kind=~\"$kind\"}[5m])";
    for (dashboard, file) in DASHBOARDS {
        found(
            dashboards_show_emitted_metrics,
            &[
                (file, table),
                (dashboard, both),
                ("docs/ops/alerts.yaml", "expr: stanchion_holds > 0"),
            ],
            "docs/ops/alerts.yaml",
        );
        found(
            dashboards_show_emitted_metrics,
            &[(file, table), (dashboard, "stanchion_held")],
            dashboard,
        );
    }
}

#[test]
fn book_names_only_existing_variants() {
    kept(variants_of_the_book_exist);
    let code = "pub enum LostReason {\n    /// x\n    Gone,\n    Other {\n    },\n}\n";
    found(
        variants_of_the_book_exist,
        &[
            ("crates/a/src/error.rs", code),
            ("docs/a.md", "`LostReason::Gone`, `LostReason::Other`"),
            ("docs/b.md", "`LostReason::Vanished`"),
        ],
        "docs/b.md",
    );
}

#[test]
fn book_names_only_existing_error_types() {
    kept(error_types_of_the_book_exist);
    found(
        error_types_of_the_book_exist,
        &[
            ("crates/a/src/error.rs", "pub enum ReadError {\n}\n"),
            ("docs/a.md", "`ReadError`"),
            ("docs/b.md", "`WriteError`"),
        ],
        "docs/b.md",
    );
}

#[test]
fn examples_with_paused_time_enable_test_util() {
    kept(paused_time_has_its_feature);
    let program = "```rust\n#[tokio::test(start_paused = true)]\n```\n";
    let without = format!("```toml\ntokio = {{ features = [\"macros\"] }}\n```\n{program}");
    found(
        paused_time_has_its_feature,
        &[("README.md", without.as_str())],
        "README.md",
    );
}
