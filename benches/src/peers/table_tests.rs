//! Made-up runs.

use super::*;

/// A block of one second.
fn block(grants: usize, handoffs: usize) -> Figures {
    Figures {
        grants,
        handoffs,
        seconds: 1.0,
        commands: 2.0,
        client_cpu: Some(0.5),
        server_cpu: 0.25,
        gap: (handoffs > 0).then(|| 1e6 / handoffs as f64),
        ..Figures::default()
    }
}

fn contender(name: &str, role: Role, beside: &str, blocks: &[(usize, usize)]) -> Contender {
    Contender {
        name: name.into(),
        role,
        beside: beside.into(),
        blocks: blocks
            .iter()
            .map(|(grants, handoffs)| block(*grants, *handoffs))
            .collect(),
    }
}

fn cell(unit: Unit, contenders: Vec<Contender>) -> Measured {
    Measured {
        name: "hand2".into(),
        title: "two tasks".into(),
        unit,
        contenders,
        others: vec![0.0],
    }
}

fn duel(unit: Unit, ours: &[(usize, usize)], theirs: &[(usize, usize)]) -> Measured {
    cell(
        unit,
        vec![
            contender("stanchion", Role::Ours, "stanchion", ours),
            contender("rslock", Role::Peer, "stanchion", theirs),
        ],
    )
}

fn line<'a>(text: &'a str, name: &str) -> &'a str {
    let mut lines = text.lines();
    lines
        .find(|line| line.contains(&format!("`{name}`")) && line.starts_with("| "))
        .unwrap()
}

#[test]
fn a_peer_that_is_ahead_is_in_bold_and_in_words() {
    let text = table(&duel(
        Unit::Grants,
        &[(100, 0), (100, 0), (100, 0)],
        &[(120, 0), (150, 0), (90, 0)],
    ));
    let row = line(&text, "rslock");
    assert!(
        row.starts_with("| **`rslock`** | **120 [90..150]** | **0.833 [0.667..1.111]** |"),
        "{row}"
    );
    assert!(row.ends_with("| **ahead of `stanchion`** |"), "{row}");
    assert!(!line(&text, "stanchion").contains("**"), "{text}");
}

#[test]
fn a_peer_that_is_behind_has_only_its_better_numbers_in_bold() {
    // As many commands, less CPU per grant.
    let text = table(&duel(Unit::Handoffs, &[(100, 100)], &[(500, 4)]));
    let row = line(&text, "rslock");
    assert!(
        row.starts_with("| `rslock` | 4 [4..4] | 25 [25..25] | **500** | 2 |"),
        "{row}"
    );
    assert!(row.ends_with("| **1000** | **500** | |"), "{row}");
}

#[test]
fn ratios_are_taken_within_a_round() {
    let cell = duel(
        Unit::Handoffs,
        &[(10, 10), (80, 80), (30, 30)],
        &[(5, 5), (20, 20), (10, 10)],
    );
    let ratio = cell
        .ratio(&cell.contenders[0], &cell.contenders[1])
        .unwrap();
    assert_eq!((ratio.min, ratio.median, ratio.max), (2.0, 3.0, 4.0));
}

#[test]
fn a_smaller_gap_is_ahead_and_none_is_behind() {
    // 10 ms against 5 ms.
    let cell = duel(Unit::Gap, &[(100, 100)], &[(200, 200)]);
    let row = row(&cell, &cell.contenders[1], &columns(Unit::Gap));
    assert_eq!(row[2], "**0.500 [0.500..0.500]**");
    let mut both = duel(Unit::Gap, &[(100, 100)], &[(200, 200)]);
    let slow = contender("rlock", Role::Peer, "stanchion", &[(50, 50)]);
    both.contenders.push(slow);
    assert_eq!(
        both.best_peer().map(|best| best.name.as_str()),
        Some("rslock")
    );
    let cell = duel(Unit::Gap, &[(100, 100)], &[(200, 0)]);
    let text = table(&cell);
    assert!(
        line(&text, "rslock").starts_with("| `rslock` | - | ∞ [∞..∞] |"),
        "{text}"
    );
    assert_eq!(cell.best_peer().map(|best| best.name.as_str()), None);
}

#[test]
fn the_bare_scripts_are_no_peer() {
    let cell = cell(
        Unit::Handoffs,
        vec![
            contender("raw", Role::Raw, "stanchion", &[(300, 0)]),
            contender("stanchion", Role::Ours, "stanchion", &[(100, 100)]),
            contender("redisson-4.7.0", Role::Peer, "stanchion", &[(70, 50)]),
            contender("redsync", Role::Peer, "stanchion", &[(60, 60)]),
        ],
    );
    let text = table(&cell);
    // Its cycles count, because it has no hand-offs.
    assert!(
        line(&text, "raw").starts_with("| `raw` | 300 [300..300] | 0.333 [0.333..0.333] |"),
        "{text}"
    );
    assert!(!line(&text, "raw").contains("**"), "{text}");
    let summary = summary(&[cell]);
    let row = line(&summary, "stanchion");
    let wanted = "| 0.333 [0.333..0.333] | 2 [2..2] | 1.667 [1.667..1.667] | `redsync` |";
    assert!(row.ends_with(wanted), "{row}");
}

#[test]
fn two_holders_at_once_are_told() {
    let mut cell = duel(Unit::Handoffs, &[(100, 100)], &[(50, 50)]);
    assert!(!table(&cell).contains("two holders"));
    cell.contenders[1].blocks[0].overlaps = 3;
    assert!(line(&table(&cell), "rslock").ends_with("| **two holders at once, 3 times** |"));
}

#[test]
fn a_missing_contender_is_named() {
    let run = Peers {
        day: "2026-11-22".into(),
        server: "redis 7.0.15".into(),
        cores: 2,
        warm_up_millis: 10_000,
        jvm_flags: String::new(),
        about: vec!["stanchion 0.1.0".into()],
        skipped: vec!["redsync (Go)".into()],
        cells: Vec::new(),
    };
    let text = run.text();
    assert!(text.contains("**Missing: redsync (Go).**"), "{text}");
}
