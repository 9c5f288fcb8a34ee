//! Keys and looks in their effect on the display, and its picture.

use std::time::Duration;

use crossterm::event::{KeyCode, KeyEvent, KeyModifiers};

use super::state::{Action, Mode, Question, Sort, State};
use super::view::View;
use crate::entry::Entry;
use crate::holder::HolderSeen;
use crate::inspect::Inspected;
use crate::look::Kind;
use crate::people::People;
use crate::trouble::Trouble;

const OWNER: &str = "9f1c0000-0000-4000-8000-000000000001:7";

fn held(name: &str, waiting: u64, longest: u64, held: u64) -> Entry {
    let mut entry = Entry::at_rest(name.as_bytes(), Some(Kind::Lock));
    entry.held = true;
    entry.holders = 1;
    entry.holder = Some(HolderSeen::new(OWNER, 1, &People::default()));
    entry.owners = vec![OWNER.into()];
    entry.waiting = Some(waiting);
    entry.longest_wait_ms = (longest > 0).then_some(longest);
    entry.held_ms = Some(held);
    entry.lease_ms = Some(20_000);
    entry
}

/// By waiters: b, a, c; by the longest wait: c, b, a; by the age of the hold: a, c, b.
fn three() -> Vec<Entry> {
    vec![
        held("a", 2, 100, 9000),
        held("b", 3, 200, 1000),
        held("c", 1, 300, 5000),
    ]
}

fn press(state: &mut State, code: KeyCode) -> Option<Action> {
    state.key(&KeyEvent::new(code, KeyModifiers::NONE))
}

fn write(state: &mut State, text: &str) {
    for c in text.chars() {
        assert_eq!(press(state, KeyCode::Char(c)), None);
    }
}

fn names(state: &State) -> String {
    let shown = state.shown();
    let names: Vec<&str> = shown.iter().map(|entry| &*entry.name).collect();
    names.join(" ")
}

/// The three, with the first one selected.
fn at_first() -> State {
    let mut state = State::new(three());
    press(&mut state, KeyCode::Down);
    state
}

fn selected(state: &State) -> Option<String> {
    let at = state.position()?;
    Some(state.shown()[at].name.clone())
}

#[test]
fn s_goes_round_the_orders() {
    let mut state = State::new(three());
    let orders = [
        (Sort::Waiting, "b a c"),
        (Sort::Longest, "c b a"),
        (Sort::Held, "a c b"),
        (Sort::Name, "a b c"),
        (Sort::Waiting, "b a c"),
    ];
    for (sort, order) in orders {
        assert_eq!((state.sort, &*names(&state)), (sort, order));
        press(&mut state, KeyCode::Char('s'));
    }
}

#[test]
fn unknown_values_are_sorted_last() {
    let mut unknown = held("0", 0, 0, 0);
    unknown.waiting = None;
    unknown.held_ms = None;
    let mut state = State::new([three(), vec![unknown]].concat());
    for _ in 0..3 {
        assert!(names(&state).ends_with(" 0"), "{}", names(&state));
        press(&mut state, KeyCode::Char('s'));
    }
}

#[test]
fn a_filter_hides_and_esc_shows_all_again() {
    let mut state = State::new(vec![held("mail:1", 1, 0, 0), held("Bill:q", 2, 0, 0)]);
    write(&mut state, "/");
    write(&mut state, "bill:q");
    assert_eq!(names(&state), "Bill:q", "q and f are text here");
    press(&mut state, KeyCode::Backspace);
    press(&mut state, KeyCode::Enter);
    assert!(matches!(state.mode, Mode::List));
    assert_eq!(names(&state), "Bill:q");
    assert_eq!(press(&mut state, KeyCode::Esc), None, "the filter first");
    assert_eq!(names(&state), "Bill:q mail:1");
    assert_eq!(press(&mut state, KeyCode::Esc), Some(Action::Quit));
    // The holder is text as well.
    write(&mut state, "/java");
    assert_eq!(state.shown().len(), 2);
    write(&mut state, "x");
    assert_eq!(state.shown().len(), 0);
}

#[test]
fn nothing_is_selected_at_the_start() {
    for (key, name) in [('j', "b"), ('k', "b")] {
        let mut state = State::new(three());
        assert_eq!(selected(&state), None);
        press(&mut state, KeyCode::Char('f'));
        assert!(matches!(state.mode, Mode::List), "f has no target");
        assert!(state.message.as_deref().unwrap().contains("No name"));
        press(&mut state, KeyCode::Char(key));
        assert_eq!(selected(&state).unwrap(), name);
    }
    let mut state = at_first();
    press(&mut state, KeyCode::Char('j'));
    assert_eq!(selected(&state).unwrap(), "a");
    press(&mut state, KeyCode::Char('k'));
    assert_eq!(selected(&state).unwrap(), "b");
}

#[test]
fn a_question_mark_explains_the_keys() {
    let mut state = State::new(three());
    press(&mut state, KeyCode::Char('?'));
    for width in [40, 80] {
        let screen = drawn(&mut state, width, 24).replace('\n', " ");
        for wanted in ["up, k", "take the lock from its holder", "Any key"] {
            assert!(screen.contains(wanted), "{wanted}\n{screen}");
        }
    }
    assert_eq!(press(&mut state, KeyCode::Char('q')), None, "only back");
    assert!(drawn(&mut state, 80, 24).contains("? keys"));
}

#[test]
fn rows_that_do_not_fit_are_counted() {
    let many = (0..50).map(|at| held(&format!("n{at:03}"), 0, 0, 0));
    let mut state = State::new(many.collect());
    let screen = drawn(&mut state, 80, 20);
    let rows = screen.matches("java").count();
    assert!(screen.contains(&format!("{} more", 50 - rows)), "{screen}");
    press(&mut state, KeyCode::End);
    let screen = drawn(&mut state, 80, 20);
    let rows = screen.matches("java").count();
    assert!(screen.contains(&format!("{} above", 50 - rows)), "{screen}");
    assert!(!drawn(&mut State::new(three()), 80, 20).contains("more"));
}

#[test]
fn the_selection_stays_with_its_name() {
    let mut state = at_first();
    press(&mut state, KeyCode::Down);
    assert_eq!(selected(&state).unwrap(), "a");
    state.looked(Ok(vec![
        held("x", 9, 0, 0),
        held("a", 0, 0, 0),
        held("c", 5, 0, 0),
    ]));
    assert_eq!(
        (names(&state).as_str(), selected(&state).unwrap().as_str()),
        ("x c a", "a")
    );
    press(&mut state, KeyCode::Char('s'));
    assert_eq!(selected(&state).unwrap(), "a");
    for _ in 0..5 {
        press(&mut state, KeyCode::Down);
    }
    press(&mut state, KeyCode::Home);
    press(&mut state, KeyCode::Up);
    assert_eq!(state.position(), Some(0));
}

#[test]
fn a_name_that_is_gone_is_not_replaced_by_its_neighbour() {
    let mut state = at_first();
    state.looked(Ok(vec![held("a", 2, 0, 0), held("c", 1, 0, 0)]));
    assert_eq!(selected(&state), None);
    for key in [KeyCode::Char('f'), KeyCode::Enter] {
        assert_eq!(press(&mut state, key), None);
        assert!(matches!(state.mode, Mode::List));
        assert_eq!(
            state.message.as_deref(),
            Some(crate::messages::no_selection())
        );
    }
    press(&mut state, KeyCode::Down);
    assert_eq!(selected(&state).unwrap(), "a", "where it was");
}

#[test]
fn only_y_releases_and_only_the_confirmed_name() {
    let asked = Question {
        key: b"b".to_vec(),
        kind: Some(Kind::Lock),
        owners: vec![OWNER.into()],
        holder: "java 9f1c0000…:7".into(),
    };
    for no in [
        KeyCode::Char('n'),
        KeyCode::Char('q'),
        KeyCode::Char('f'),
        KeyCode::Enter,
        KeyCode::Esc,
        KeyCode::Down,
    ] {
        let mut state = at_first();
        press(&mut state, KeyCode::Char('f'));
        assert!(matches!(&state.mode, Mode::Ask(question) if *question == asked));
        assert_eq!(press(&mut state, no), None, "{no:?}");
        assert!(matches!(state.mode, Mode::List));
        assert_eq!(press(&mut state, KeyCode::Char('y')), None, "too late");
    }
    let mut state = at_first();
    press(&mut state, KeyCode::Char('f'));
    let mut other = held("b", 3, 0, 0);
    other.owners = vec!["another".into()];
    state.looked(Ok(vec![other]));
    let yes = press(&mut state, KeyCode::Char('y'));
    assert_eq!(
        yes,
        Some(Action::Release(asked)),
        "not of the holder that came meanwhile"
    );
}

#[test]
fn names_without_force_release_need_no_confirmation() {
    let free = Entry::at_rest(b"free", Some(Kind::Lock));
    let mut permits = held("permits", 9, 0, 0);
    permits.kind = Some(Kind::LeasedSemaphore);
    let mut state = State::new(vec![free, permits]);
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Char('f'));
    let message = state.message.clone().unwrap();
    assert!(message.contains("not held as a whole"), "{message}");
    press(&mut state, KeyCode::Down);
    press(&mut state, KeyCode::Char('f'));
    assert_eq!(state.message.as_deref(), Some("free is free"));
    assert!(matches!(state.mode, Mode::List));
}

#[test]
fn enter_inspects_and_esc_comes_back() {
    let mut state = at_first();
    let asked = press(&mut state, KeyCode::Enter);
    assert_eq!(
        asked,
        Some(Action::Inspect(b"b".to_vec(), Some(Kind::Lock)))
    );
    state.inspected(b"a", Ok(Box::new(Inspected::nothing_of("a"))));
    assert!(
        matches!(&state.mode, Mode::Pane { seen: None, .. }),
        "of another name"
    );
    state.inspected(b"b", Ok(Box::new(Inspected::nothing_of("b"))));
    assert!(matches!(&state.mode, Mode::Pane { seen: Some(_), .. }));
    assert_eq!(press(&mut state, KeyCode::Char('f')), None);
    assert_eq!(press(&mut state, KeyCode::Esc), None);
    assert_eq!(selected(&state).unwrap(), "b");
    // An answer that comes after that does not open it again.
    state.inspected(b"b", Ok(Box::new(Inspected::nothing_of("b"))));
    assert!(matches!(state.mode, Mode::List));
}

#[test]
fn ctrl_c_ends_it_everywhere() {
    let control = KeyEvent::new(KeyCode::Char('c'), KeyModifiers::CONTROL);
    for keys in ["", "/", "/a", "f"] {
        let mut state = at_first();
        for c in keys.chars() {
            press(&mut state, KeyCode::Char(c));
        }
        assert_eq!(state.key(&control), Some(Action::Quit), "{keys:?}");
    }
}

#[test]
fn an_outage_keeps_the_names_and_ends() {
    let mut state = State::new(three());
    state.looked(Err("the server does not answer".into()));
    assert_eq!(names(&state), "b a c");
    assert!(drawn(&mut state, 80, 24).contains("does not answer"));
    state.looked(Ok(three()));
    assert_eq!(state.outage, None);
}

/// The screen as text.
fn drawn(state: &mut State, width: usize, height: usize) -> String {
    let view = View {
        server: "127.0.0.1:6379",
        every: Duration::from_secs(1),
        looked: Duration::from_secs(2),
    };
    let lines = view.lines(state, width, height);
    assert_eq!(lines.len(), height);
    let lines = lines.iter().map(|line| line.shown(width));
    lines.collect::<Vec<_>>().join("\n")
}

#[test]
fn every_width_has_the_names_the_sums_and_all_keys() {
    for (width, height) in [(40, 24), (80, 24), (120, 40)] {
        let mut broken = held("evil\x1b[2J\nname", 0, 0, 0);
        broken.trouble.push(Trouble::NoTtl);
        let mut state = State::new([three(), vec![broken]].concat());
        let screen = drawn(&mut state, width, height);
        for wanted in [
            "127.0.0.1:6379",
            "4 names",
            "4 holders",
            "6 waiters",
            "looked 2s ago",
            "by waiting",
            "q quit",
            "s sort",
            "/ filter",
            "up/down select",
            "Enter inspect",
            "f force-release",
            "NAME",
            "WAITING",
            "no TTL",
            "evil\\u{",
        ] {
            assert!(screen.contains(wanted), "{width}: {wanted}\n{screen}");
        }
        assert!(!screen.contains('\x1b'));
        for title in ["KIND", "HELD", "LEASE", "LONGEST"] {
            assert_eq!(screen.contains(title), width > 40, "{title}: {screen}");
        }
    }
}

#[test]
fn a_narrow_table_has_what_it_is_sorted_by() {
    let mut state = State::new(three());
    for (title, sort) in [
        ("WAITING", "by waiting"),
        ("LONGEST", "by longest wait"),
        ("HELD", "by hold age"),
        ("NAME", "by name"),
    ] {
        let screen = drawn(&mut state, 40, 24);
        assert!(screen.contains(title) && screen.contains(sort), "{screen}");
        press(&mut state, KeyCode::Char('s'));
    }
}

#[test]
fn a_question_shows_how_to_answer_however_long_the_name() {
    for width in [40, 80, 120] {
        let mut state = State::new(vec![held(&"long-".repeat(50), 0, 0, 0)]);
        press(&mut state, KeyCode::Down);
        press(&mut state, KeyCode::Char('f'));
        let screen = drawn(&mut state, width, 24).replace('\n', " ");
        for wanted in ["force-release", "from java 9f1c0000…:7?", "y/N"] {
            assert!(screen.contains(wanted), "{width}: {wanted}\n{screen}");
        }
    }
}

#[test]
fn the_selected_row_is_always_on_the_screen() {
    for width in [40, 80, 120] {
        let many = (0..200).map(|at| held(&format!("n{at:03}"), 0, 0, 0));
        let mut state = State::new(many.collect());
        press(&mut state, KeyCode::Down);
        for _ in 0..250 {
            let screen = drawn(&mut state, width, 20);
            let name = selected(&state).unwrap();
            assert!(screen.contains(&name), "{width}: {name}\n{screen}");
            press(&mut state, KeyCode::Down);
        }
        press(&mut state, KeyCode::Home);
        assert!(drawn(&mut state, width, 20).contains("n000"));
    }
}

#[test]
fn a_pane_shows_one_name_and_no_terminal_is_too_small() {
    let mut state = at_first();
    press(&mut state, KeyCode::Enter);
    assert!(drawn(&mut state, 80, 24).contains("b: asking"));
    state.inspected(b"b", Ok(Box::new(Inspected::nothing_of("b"))));
    assert!(drawn(&mut state, 80, 24).contains("b: of no known kind, free"));
    press(&mut state, KeyCode::End);
    for mode in ["pane", "list"] {
        for (width, height) in [(1, 1), (3, 2), (10, 3), (200, 1)] {
            drop(drawn(&mut state, width, height));
        }
        assert_eq!(press(&mut state, KeyCode::Esc).is_some(), mode == "list");
    }
}
