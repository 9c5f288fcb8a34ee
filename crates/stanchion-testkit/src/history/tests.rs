//! For each rule: a history that keeps it, and one that only this rule rejects.

use std::time::Duration;

use super::*;

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Parses a history with one event per line: `<ms> <process>.<task> <kind> [W|R|P<n>] [t<token>] [s<safe until>]`.
fn history(text: &str) -> History {
    let history = History::new();
    for line in text.lines().map(str::trim).filter(|l| !l.is_empty()) {
        let mut words = line.split_whitespace();
        let at = ms(words.next().unwrap().parse().unwrap());
        let (process, task) = words.next().unwrap().split_once('.').unwrap();
        let kind = words.next().unwrap();
        let mut event = Event {
            at,
            process: process.parse().unwrap(),
            task: task.parse().unwrap(),
            name: "n".into(),
            kind: serde_json::from_str(&format!("\"{kind}\"")).unwrap(),
            mode: Mode::Write,
            token: None,
            safe_until: None,
        };
        for word in words {
            let (letter, rest) = word.split_at(1);
            match letter {
                "W" => event.mode = Mode::Write,
                "R" => event.mode = Mode::Read,
                "P" => event.mode = Mode::Permits(rest.parse().unwrap()),
                "t" => event.token = Some(rest.parse().unwrap()),
                "s" => event.safe_until = Some(ms(rest.parse().unwrap())),
                _ => panic!("unknown word {word}"),
            }
        }
        history.record(event);
    }
    history
}

#[track_caller]
fn accepts(rules: &Rules, text: &str) -> Summary {
    check(&history(text), rules).unwrap_or_else(|found| panic!("{found:#?}"))
}

/// Asserts that only `rule` rejects the history, so that a checker without that rule fails the test.
#[track_caller]
fn rejects(rule: Rule, rules: Rules, text: &str) {
    let found = check(&history(text), &rules).expect_err("the history breaks a rule");
    assert!(found.iter().all(|v| v.rule == rule), "{found:#?}");
    accepts(&rules.without(rule), text);
}

const TWO_HOLDS: &str = "
    0 1.1 Invoke
    1 1.1 Granted t1 s100
    2 2.1 Invoke
    3 1.1 Enter
    4 1.1 Exit
    5 1.1 ReleaseInvoke
    6 2.1 Granted t2 s100
    7 1.1 Released
    8 3.1 Invoke
    9 3.1 TimedOut
    10 2.1 Lost";

#[test]
fn a_good_history_is_summed_up() {
    let summary = accepts(&Rules::new().liveness(ms(10)), TWO_HOLDS);
    let expected = Summary {
        events: 11,
        names: 1,
        grants: 2,
        refusals: 1,
        unfinished: 0,
        lost: 1,
        longest_wait: ms(4),
    };
    assert_eq!(summary, expected);
}

#[test]
fn two_writers_exclude_each_other() {
    let overlap = "0 1.1 Invoke\n 1 1.1 Granted s100\n 2 2.1 Invoke\n 3 2.1 Granted s100";
    rejects(Rule::Exclusion, Rules::new(), overlap);
    for end in ["3 1.1 ReleaseInvoke", "3 1.1 Lost", "3 1.1 Renewed"] {
        let text = format!(
            "0 1.1 Invoke\n 1 1.1 Granted s{}\n 2 2.1 Invoke\n {end}\n 3 2.1 Granted s100",
            if end.contains("Renewed") { 3 } else { 100 }
        );
        accepts(&Rules::new(), &text);
    }
}

#[test]
fn a_renewal_moves_the_end_of_the_hold() {
    let text =
        "0 1.1 Invoke\n 1 1.1 Granted s10\n 5 1.1 Renewed s20\n 6 2.1 Invoke\n 15 2.1 Granted s30";
    rejects(Rule::Exclusion, Rules::new(), text);
}

#[test]
fn a_writer_excludes_readers_and_readers_do_not_exclude_readers() {
    let readers = "0 1.1 Invoke R\n 1 1.1 Granted R\n 2 2.1 Invoke R\n 3 2.1 Granted R";
    accepts(&Rules::new(), readers);
    let after = format!("{readers}\n 4 3.1 Invoke W\n 5 3.1 Granted W");
    rejects(Rule::Exclusion, Rules::new(), &after);
    let before = "0 1.1 Invoke W\n 1 1.1 Granted W\n 2 2.1 Invoke R\n 3 2.1 Granted R";
    rejects(Rule::Exclusion, Rules::new(), before);
}

#[test]
fn permits_stay_within_the_limit() {
    let text = "0 1.1 Invoke P2\n 1 1.1 Granted P2\n 2 2.1 Invoke P1\n 3 2.1 Granted P1";
    accepts(&Rules::new().permits("n", 3), text);
    rejects(Rule::Exclusion, Rules::new().permits("n", 2), text);
    let alone = "0 1.1 Invoke P4\n 1 1.1 Granted P4";
    rejects(Rule::Exclusion, Rules::new().permits("n", 3), alone);
}

#[test]
fn work_on_after_the_end_of_a_hold_is_found() {
    let text = "
        0 1.1 Invoke
        1 1.1 Granted s10
        2 1.1 Enter
        3 2.1 Invoke
        12 2.1 Granted s30
        13 2.1 Enter
        14 1.1 Exit
        15 2.1 Exit";
    rejects(Rule::CriticalSection, Rules::new(), text);
    let killed = text.replace("14 1.1 Exit", "");
    rejects(Rule::CriticalSection, Rules::new(), &killed);
    accepts(&Rules::new().killed(1, ms(5)), &killed);
}

#[test]
fn tokens_are_unique() {
    let text = "
        0 1.1 Invoke R
        1 1.1 Granted R t7
        2 2.1 Invoke R
        3 2.1 Granted R t7";
    rejects(Rule::TokenUnique, Rules::new(), text);
}

#[test]
fn tokens_grow_over_real_grants() {
    let text = "
        0 1.1 Invoke
        1 2.1 Invoke
        2 1.1 Granted t9 s10
        11 2.1 Granted t8 s20";
    rejects(Rule::TokenOrder, Rules::new(), text);
    // The first grant arrived after its own end, so it may have been overtaken.
    let late = "
        0 1.1 Invoke
        1 2.1 Invoke
        12 2.1 Granted t9 s20
        13 1.1 Granted t8 s10";
    accepts(&Rules::new(), late);
}

#[test]
fn tokens_grow_from_a_release_to_a_later_acquire() {
    let text = "
        0 1.1 Invoke R
        1 1.1 Granted R t9
        2 1.1 ReleaseInvoke
        3 1.1 Released
        4 2.1 Invoke R
        5 2.1 Granted R t8";
    rejects(Rule::TokenOrder, Rules::new(), text);
    accepts(&Rules::new(), &text.replace("4 2.1", "2 2.1"));
}

#[test]
fn every_invoke_ends_unless_its_process_was_killed() {
    let text = "0 1.1 Invoke\n 1 2.1 Invoke\n 2 2.1 Failed";
    rejects(Rule::Unfinished, Rules::new(), text);
    let summary = accepts(&Rules::new().killed(1, ms(1)), text);
    assert_eq!((summary.unfinished, summary.refusals), (1, 1));
}

#[test]
fn a_loss_is_recorded_before_the_hold_ends() {
    let text = "0 1.1 Invoke\n 1 1.1 Granted s10\n 11 1.1 Lost";
    rejects(Rule::LostLate, Rules::new(), text);
    rejects(
        Rule::LostLate,
        Rules::new(),
        &text.replace("Lost", "Renewed s20"),
    );
    accepts(&Rules::new().lost_slack(ms(1)), text);
    accepts(&Rules::new(), &text.replace("11 1.1", "10 1.1"));
}

#[test]
fn a_free_lock_is_given_to_a_waiter_within_the_bound() {
    let text = "
        0 1.1 Invoke
        1 1.1 Granted
        2 2.1 Invoke
        10 1.1 ReleaseInvoke
        11 1.1 Released
        31 2.1 Granted";
    rejects(Rule::Liveness, Rules::new().liveness(ms(19)), text);
    accepts(&Rules::new().liveness(ms(20)), text);
    accepts(&Rules::new(), text);
    let never = text.replace("31 2.1 Granted", "31 2.1 TimedOut");
    rejects(Rule::Liveness, Rules::new().liveness(ms(19)), &never);
}

#[test]
fn a_waiter_at_the_end_of_the_history_counts() {
    let text = "0 1.1 Invoke\n 30 2.1 Invoke\n 30 2.1 Failed";
    let rules = Rules::new().without(Rule::Unfinished);
    rejects(Rule::Liveness, rules.clone().liveness(ms(29)), text);
    accepts(&rules.clone().liveness(ms(30)), text);
    accepts(&rules.liveness(ms(9)).killed(1, ms(5)), text);
}

#[test]
fn a_lock_that_not_everybody_could_have_is_not_stalled() {
    let held = "0 1.1 Invoke {}\n 1 1.1 Granted {}\n 2 2.1 Invoke {}\n 60 2.1 TimedOut {}";
    let fill = |hold: &str, wait: &str| {
        let parts: Vec<_> = held.split("{}").collect();
        format!(
            "{}{hold}{}{hold}{}{wait}{}{wait}",
            parts[0], parts[1], parts[2], parts[3]
        )
    };
    let rules = Rules::new().permits("n", 3).liveness(ms(20));
    accepts(&rules, &fill("W", "R"));
    accepts(&rules, &fill("R", "W"));
    accepts(&rules, &fill("P2", "P2"));
    rejects(Rule::Liveness, rules.clone(), &fill("R", "R"));
    rejects(Rule::Liveness, rules, &fill("P2", "P1"));
}

#[test]
fn an_ambiguous_acquire_may_hold_the_lock_for_a_while() {
    let text = "
        0 1.1 Invoke
        1 1.1 Ambiguous s30
        2 2.1 Invoke
        45 2.1 Granted";
    accepts(&Rules::new().liveness(ms(15)), text);
    rejects(Rule::Liveness, Rules::new().liveness(ms(14)), text);
}

#[test]
fn grants_follow_the_given_order() {
    let text = "
        0 1.1 Invoke
        0 2.1 Invoke
        0 3.1 Invoke
        1 1.1 Granted s2
        3 3.1 TimedOut
        4 2.1 Granted s5";
    let order = |arrivals: &[(u32, u32)]| Rules::new().order("n", arrivals.to_vec());
    accepts(&order(&[(1, 1), (3, 1), (2, 1)]), text);
    rejects(Rule::Order, order(&[(2, 1), (1, 1)]), text);
    rejects(Rule::Order, order(&[(1, 1)]), text);
}

#[test]
fn events_out_of_turn_are_found() {
    for text in [
        "0 1.1 Granted",
        "0 1.1 Invoke\n 1 1.1 Enter\n 2 1.1 Failed",
        "0 1.1 Invoke\n 1 1.1 Failed\n 2 1.1 Released",
        "0 1.1 Invoke\n 1 1.1 Granted s5\n 2 1.1 Released",
        "0 1.1 Invoke\n 1 1.1 Granted s5\n 2 1.1 Exit",
        "0 1.1 Invoke\n 1 1.1 Granted s5\n 6 1.1 Invoke\n 7 1.1 Failed",
    ] {
        rejects(Rule::Malformed, Rules::new(), text);
    }
}

#[test]
fn names_are_checked_apart() {
    let one = history("0 1.1 Invoke\n 1 1.1 Granted t1");
    let other = History::new();
    for event in history("0 2.1 Invoke\n 1 2.1 Granted t1").events() {
        let name = "other".into();
        other.record(Event { name, ..event });
    }
    one.merge(&other);
    assert_eq!(check(&one, &Rules::new()).unwrap().names, 2);
}

#[test]
fn json_lines_come_back_as_they_were() {
    let history = history(TWO_HOLDS);
    let mut bytes = Vec::new();
    history.to_json_lines(&mut bytes).unwrap();
    let back = History::from_json_lines(bytes.as_slice()).unwrap();
    assert_eq!(back.events(), history.events());

    bytes.truncate(bytes.len() - 5);
    let torn = History::from_json_lines(bytes.as_slice()).unwrap();
    assert_eq!(torn.len(), history.len() - 1, "the torn line is left out");
    assert!(History::from_json_lines(&b"nonsense\n"[..]).is_err());
}

#[test]
fn a_streaming_history_is_on_disk_at_once_and_lanes_fill_in_the_rest() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("history");
    let history = History::streaming(&path).unwrap();
    let lane = history.lane((1, 2), "n", Mode::Read, || ms(5));
    lane.record(Kind::Invoke);
    lane.granted(Some(3), Some(ms(9)));
    let read = io::BufReader::new(File::open(&path).unwrap());
    let events = History::from_json_lines(read).unwrap().events();
    let granted = Event {
        at: ms(5),
        process: 1,
        task: 2,
        name: "n".into(),
        kind: Kind::Granted,
        mode: Mode::Read,
        token: Some(3),
        safe_until: Some(ms(9)),
    };
    assert_eq!(events[1..], [granted]);
}
