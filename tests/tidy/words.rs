//! Checks that comments and pages use field terms. The rule counts words of the project's old private language, per 1,000 words of a room.
//!
//! A room is `src` or `lua` of a crate, a folder of `src` of the core, a folder of tests, a page, or all decisions. A low count does not make a
//! good sentence.

use std::collections::BTreeMap;
use std::sync::LazyLock;

use regex::Regex;

use crate::tree::Tree;
use crate::{Complaint, found, kept};

/// The limit: so many of these words per 1,000 words.
const LIMIT: usize = 4;

/// The same for tests, and for decisions, which quote what was there before.
const LIMIT_OF_RECORDS: usize = 8;

/// The rule skips rooms with fewer words, because a single hit exceeds the limit there.
const SHORTEST: usize = 200;

/// The words. A word is plain if the text after it matches the second pattern.
static WORDS: LazyLock<Vec<(Regex, Option<Regex>)>> = LazyLock::new(|| {
    let words = [
        (r"(?i)\bwho(?:ever|m|se)?\b", None),
        (r"(?i)\b(?:nobody|somebody|everybody|nothing of)\b", None),
        (r"(?i)\b(?:tells?|told|telling)\b", None),
        (r"(?i)\b(?:asks?|asked|asking)\b", None),
        (r"(?i)\b(?:hears?|heard|hearing)\b", None),
        (
            r"(?i)\b(?:anew|beside|meanwhile|of ours|of its own accord|in vain|by itself|for ever)\b",
            None,
        ),
        (
            r"(?i)\b(?:stands?|stood)\b",
            Some(r"^ (?:for|alone|up|out)"),
        ),
        // At the start of a sentence that is not a question.
        (
            r"(?:^|[.:;] )(?:What|Whether|How|So|It|That which|Where)\b",
            Some(r"^[^.]*\?"),
        ),
        (r"\bof what\b|\bwhat (?:is|was|it|they|the)\b", None),
    ];
    let regex = |text: &str| Regex::new(text).expect("the pattern is correct");
    let both = |(word, plain): (&str, Option<&str>)| (regex(word), plain.map(regex));
    words.into_iter().map(both).collect()
});

static QUOTED: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"`[^`]*`|\([^)]*\.md[^)]*\)").expect("the pattern is correct"));

/// Returns how often the words are in `line`.
fn hits(line: &str) -> usize {
    let of = |(word, plain): &(Regex, Option<Regex>)| {
        word.find_iter(line)
            .filter(|hit| {
                !plain
                    .as_ref()
                    .is_some_and(|it| it.is_match(&line[hit.end()..]))
            })
            .count()
    };
    WORDS.iter().map(of).sum()
}

/// Returns the comments of a file, without code blocks and without words in backticks.
fn comments<'a>(path: &str, text: &'a str) -> impl Iterator<Item = String> + 'a {
    let sign = if path.ends_with(".lua") { "--" } else { "//" };
    let mut code = false;
    text.lines().filter_map(move |line| {
        let (before, comment) = line.split_once(sign)?;
        // Not `https://`.
        if !before.is_empty() && !before.ends_with([' ', '\t']) {
            return None;
        }
        let comment = comment.trim_start_matches(['/', '!']).trim();
        if comment.starts_with("```") {
            code = !code;
            return None;
        }
        (!code).then(|| QUOTED.replace_all(comment, " ").into_owned())
    })
}

/// Returns the lines of a page, without code blocks, words in backticks, and links.
fn prose(page: &str) -> impl Iterator<Item = String> {
    let mut code = false;
    page.lines().filter_map(move |line| {
        let line = line.trim();
        if line.starts_with("```") {
            code = !code;
            return None;
        }
        (!code).then(|| QUOTED.replace_all(line, " ").into_owned())
    })
}

fn room(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').collect();
    match parts.as_slice() {
        ["crates", "stanchion-core", "src", folder, _, ..] => {
            Some(format!("crates/stanchion-core/src/{folder}"))
        }
        ["crates", name, place @ ("src" | "lua"), ..] => Some(format!("crates/{name}/{place}")),
        ["tests", name, ..] => Some(format!("tests/{name}")),
        ["docs", "decisions", ..] => Some("docs/decisions".to_owned()),
        [.., page] if page.ends_with(".md") => Some(path.to_owned()),
        _ => None,
    }
}

/// Returns the rooms with too many of the words.
fn rooms_in_dialect(tree: &Tree) -> Vec<Complaint> {
    let mut rooms: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    let files = tree
        .below("crates/", ".rs")
        .chain(tree.below("crates/", ".lua"))
        .chain(tree.below("tests/", ".rs"))
        .chain(tree.below("", ".md"));
    for (path, text) in files {
        let Some(room) = room(path) else { continue };
        let (words, found) = rooms.entry(room).or_default();
        let lines: Vec<String> = match path.ends_with(".md") {
            true => prose(text).collect(),
            false => comments(path, text).collect(),
        };
        for line in lines {
            *words += line.split_whitespace().count();
            *found += hits(&line);
        }
    }
    let complaint = |(room, (words, found)): (String, (usize, usize))| {
        let limit = match room.starts_with("tests/") || room == "docs/decisions" {
            true => LIMIT_OF_RECORDS,
            false => LIMIT,
        };
        (words >= SHORTEST && found * 1000 > limit * words).then(|| {
            let rate = found * 1000 / words;
            let what = format!(
                "{rate} words of the old language per 1,000; the rules are in CONTRIBUTING.md"
            );
            Complaint::new(room, what)
        })
    };
    rooms.into_iter().filter_map(complaint).collect()
}

#[test]
fn comments_and_pages_use_field_terms() {
    kept(rooms_in_dialect);
    let plain = "// A request stands for the queue; is it what? `who` is code.\nlet url = \"https://who.example\";\n".repeat(40);
    let planted = format!("{plain}// Whoever asks is told, and nobody hears.\n");
    found(
        rooms_in_dialect,
        &[
            ("crates/stanchion-lock/src/lock.rs", &plain),
            ("crates/stanchion-fair/src/lock.rs", &planted),
        ],
        "crates/stanchion-fair/src",
    );
    let plain =
        "A request stands for the queue, see [the rules](who-asks.md). `who`\n```\nwho asks\n```\n"
            .repeat(40);
    let planted = format!("{plain}Whoever asks is told, and nobody hears.\n");
    found(
        rooms_in_dialect,
        &[("docs/a.md", &plain), ("docs/b.md", &planted)],
        "docs/b.md",
    );
}
