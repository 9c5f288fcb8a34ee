//! Mutants: one after the other, each statement of the queue's scripts is removed and each condition is negated. A mutant is killed if
//! the explorer finds a broken rule. `docs/testing-explorer.md` has the figures, and the command.

use stanchion_explorer::{Configuration, Faults, explore};

use super::client::{Client, Kind};
use super::{CUT, KILL, MESSAGE, NONE, REPLY, STOP};

/// A source file of the scripts.
pub(crate) type Source = (&'static str, &'static str);

/// A change of one line of a source file.
#[derive(Debug)]
struct Mutant {
    place: String,
    old: String,
    new: String,
}

/// Words at the beginning of a line that is a statement.
const CALLS: [&str; 12] = [
    "call(",
    "redis.pcall(",
    "note(",
    "tell(",
    "remove(",
    "forget()",
    "leave(",
    "enter(",
    "watch(",
    "give_back(",
    "leaves_queue(",
    "tell_next(",
];

/// Returns whether the line is a whole statement.
fn is_statement(text: &str) -> bool {
    let opened = text.matches(['(', '{']).count();
    let closed = text.matches([')', '}']).count();
    let word = |c: char| c.is_ascii_lowercase() || c == '_';
    let target = text.split(" = ").next().unwrap_or_default();
    let assigns = text.contains(" = ")
        && target
            .split(", ")
            .all(|it| !it.is_empty() && it.chars().all(word));
    let ends = |suffix: &&str| text.ends_with(suffix);
    opened == closed
        && ![" then", " do", "(", ",", " and", " or"].iter().any(ends)
        && (assigns || CALLS.iter().any(|it| text.starts_with(it)) || text == "break")
}

/// The changes of a line.
fn changes(line: &str) -> Vec<String> {
    let text = line.trim();
    let indent = &line[..line.len() - line.trim_start().len()];
    let (word, rest) = match text.split_once(' ') {
        Some((word @ ("if" | "elseif"), rest)) => (word, rest),
        _ if is_statement(text) => return vec![String::new()],
        _ => return Vec::new(),
    };
    let Some((condition, rest)) = rest.split_once(" then") else {
        return Vec::new();
    };
    let mut changes = vec![format!("{indent}{word} not ({condition}) then{rest}")];
    if word == "if" && rest.ends_with(" end") {
        changes.push(String::new());
    }
    changes
}

fn mutants(sources: &[Source]) -> Vec<Mutant> {
    let of_line = |name: &'static str, number: usize, line: &'static str| {
        changes(line).into_iter().map(move |new| Mutant {
            place: format!("{name}:{number}"),
            old: format!("\n{line}\n"),
            new: format!("\n{new}\n"),
        })
    };
    let of_source = |(name, text): &Source| {
        let lines = text.lines().enumerate();
        lines
            .flat_map(|(number, line)| of_line(name, number + 1, line))
            .collect::<Vec<_>>()
    };
    sources.iter().flat_map(of_source).collect()
}

/// A configuration, and the faults and the jumps of the clock that it is explored with.
pub(crate) type Bounded<K> = (Configuration<Client<K>>, Faults, u8);

/// Explorations for the mutants of a kind, from the cheapest on. The function gets the numbers of acquires and drops.
pub(crate) fn bounds<K: Kind>(of: impl Fn(u8, u8) -> Configuration<Client<K>>) -> Vec<Bounded<K>> {
    vec![
        (of(1, 1), NONE, 0),
        (of(1, 0), KILL, 0),
        (of(1, 0), STOP, 0),
        (of(1, 0), MESSAGE, 1),
        (of(1, 0), CUT, 0),
        (of(1, 0), REPLY, 0),
    ]
}

/// Explores the mutants of `sources`, and expects that at least `least` in a hundred are killed.
pub(crate) fn are_killed<K: Kind>(
    what: &str,
    sources: &[Source],
    bounded: impl Fn() -> Vec<Bounded<K>>,
    least: usize,
) {
    let mutants = mutants(sources);
    let mut survivors = 0;
    for mutant in &mutants {
        let is_killed = bounded().into_iter().any(|(mut changed, faults, jumps)| {
            (changed.faults, changed.deadlines) = (faults, jumps);
            changed.most_states = 40_000;
            for (_, text) in &mut changed.scripts {
                *text = text.replace(&mutant.old, &mutant.new);
            }
            explore(&changed).violation.is_some()
        });
        if !is_killed {
            survivors += 1;
            let change = match mutant.new.trim() {
                "" => format!("without {}", mutant.old.trim()),
                new => new.to_owned(),
            };
            println!("{what}: {} survives: {change}", mutant.place);
        }
    }
    let killed = 100 * (mutants.len() - survivors) / mutants.len();
    println!("{what}: {killed} % of {} mutants are killed", mutants.len());
    assert!(killed >= least, "{killed} % are killed");
}

#[test]
fn a_line_has_its_mutants() {
    assert_eq!(changes("  call('DEL', lock)"), [""]);
    assert_eq!(changes("  free, own = a(b), { c }"), [""]);
    assert_eq!(changes("  local free = a(b)"), [""; 0]);
    assert_eq!(changes("  call('SET', lock,"), [""; 0]);
    assert_eq!(changes("  -- if it is free then"), [""; 0]);
    assert_eq!(
        changes("  elseif a and b then"),
        ["  elseif not (a and b) then"]
    );
    assert_eq!(
        changes("  if a then return b end"),
        ["  if not (a) then return b end", ""]
    );
}
