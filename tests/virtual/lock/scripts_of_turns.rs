//! Runs the functions of the queue (`line.lua`) through the lock's scripts: turns of Redisson's clients, and the relay. The numbers are those of
//! `docs/protocol.md`.

use stanchion_tests::desk::{A, B, C, Desk};

use super::scripts::{acquire, at_a, channel, held, holders, is_token, queue, release, tend};
use super::scripts_of_line::{D, holds, note, notes, subscribed, waiting};

const JAVA: &str = "eeeeeeee-0000-4000-8000-000000000000:1";

/// L5: the lock is free in a turn of Redisson's clients. A refused process becomes the relay, because a release of theirs ends the turn.
#[tokio::test(start_paused = true)]
async fn a_turn_of_redissons_clients_is_left_to_them() {
    // The entries in front, the µs that are left, the word, and: the ms until the poll, whether at random, and with `ask`.
    type Case<'a> = (&'a [&'a str], u64, &'a str, u64, u8, u8);
    let cases: [Case<'_>; 7] = [
        (&[A], 4_000, "new", 4, 0, 1),
        (&[A], 3_001, "ask", 4, 0, 1),
        (&[A], 3_000, "look", 3, 0, 1),
        (&[A], 128_000, "ask", 128, 0, 1),
        (&[B, A], 4_000, "ask", 29, 0, 1),
        (&[B], 4_000, "new", 29, 0, 1),
        (&[B, C], 4_000, "look", 22_500, 1, 0),
    ];
    for (ahead, left, word, look, spread, asks) in cases {
        let mut desk = Desk::new();
        queue(&desk, ahead);
        subscribed(&mut desk, &[B, C]);
        notes(
            &desk,
            &[
                "until",
                &(desk.now() + left).to_string(),
                "called",
                &desk.now().to_string(),
            ],
        );
        let case = format!("{ahead:?} {left} {word}");
        let expected = format!("[-{} {} 77 1 {spread} {asks}]", look + 4, desk.now());
        let reply = acquire(&desk, A, &format!("{word} 77"));
        assert_eq!(reply, expected, "{case}");
        assert_eq!(holders(&desk), "{}", "{case}");
        assert_eq!(desk.messages(), Vec::<String>::new(), "{case}");
        // A request that does not wait takes the lock.
        assert!(is_token(&acquire(&desk, D, "try")), "{case}");
        // Its release continues the turn.
        desk.subscribe("base", 1);
        subscribed(&mut desk, &[A]);
        assert_eq!(release(&desk, D, "0"), "1", "{case}");
        assert_eq!(holders(&desk), "{}");
        let told = desk.messages();
        assert_eq!((told[0].as_str(), told.len()), ("base 00", 2), "{case}");
    }
    // The turn is over.
    let desk = Desk::new();
    queue(&desk, &[A]);
    notes(&desk, &["until", &desk.now().to_string()]);
    assert!(is_token(&acquire(&desk, A, "ask 1")));
    // A release of Redisson's ends it, and the queue is served.
    for (reporter, served) in [(A, true), ("", false)] {
        let mut desk = Desk::new();
        queue(&desk, &[B]);
        subscribed(&mut desk, &[B]);
        notes(&desk, &["until", &(desk.now() + 1).to_string()]);
        tend(&desk, reporter.get(..36).unwrap_or_default());
        assert_eq!(holds(&desk, B), served);
    }
}

/// L5: after four unused turns of the greatest length, the next one follows after eight times that length.
#[tokio::test(start_paused = true)]
async fn turns_that_are_never_used_are_rare() {
    for (unused, ago, is_turn) in [
        ("9", 0, true),
        ("10", 1_023_999, false),
        ("10", 1_024_000, true),
        ("99", 1_023_999, false),
    ] {
        let mut desk = waiting(&[B], &[B]);
        desk.subscribe("base", 1);
        tokio::time::advance(std::time::Duration::from_secs(2)).await;
        let ended = (desk.now() - ago).to_string();
        notes(&desk, &["turn", "5", "unused", unused, "ended", &ended]);
        release(&desk, A, "0");
        assert_eq!(holds(&desk, B), !is_turn, "{unused} {ago}");
        assert_eq!(note(&desk, "turn"), if is_turn { "0" } else { "6" });
    }
}

/// P4: a server's clock that was stepped back leaves moments far ahead in the notes. They count as past.
#[tokio::test(start_paused = true)]
async fn a_moment_far_ahead_has_passed() {
    let ahead = |desk: &Desk| (desk.now() + 3_600_000_000).to_string();
    let desk = Desk::new();
    queue(&desk, &[A]);
    notes(&desk, &["until", &ahead(&desk)]);
    assert!(
        is_token(&acquire(&desk, A, "ask 1")),
        "no turn lasts so long"
    );
    let mut desk = waiting(&[B], &[B]);
    desk.subscribe("base", 1);
    notes(
        &desk,
        &["turn", "5", "unused", "10", "ended", &ahead(&desk)],
    );
    release(&desk, A, "0");
    assert!(
        !holds(&desk, B),
        "the next turn does not wait for the old clock"
    );
}

/// L5: a queue that is empty for a moment keeps the notes about turns while clients of Redisson's wait, and for 3 s after a turn, because a
/// client that has just released subscribes again at its next request.
#[tokio::test(start_paused = true)]
async fn an_empty_queue_keeps_the_length_of_the_turns() {
    for (outside, note_of, ago, is_kept) in [
        (1, "ended", 9_000_000, true),
        (0, "ended", 2_999_999, true),
        (0, "ended", 3_000_000, false),
        (0, "until", 2_999_999, true),
        (0, "until", 3_000_000, false),
    ] {
        let mut desk = held(A, 1, 9_000);
        desk.subscribe("base", outside);
        let moment = (desk.now() - ago).to_string();
        notes(&desk, &["unused", "4", note_of, &moment]);
        release(&desk, A, "0");
        let kept = if is_kept { "4" } else { "nil" };
        assert_eq!(note(&desk, "unused"), kept, "{outside} {note_of} {ago}");
        assert_eq!(desk.messages().len(), 1);
    }
}

/// L9.
#[tokio::test(start_paused = true)]
async fn while_redisson_holds_one_process_becomes_the_relay() {
    // The relay, µs since its last proof, whether it is subscribed; whether this client is subscribed to Redisson's releases; its role.
    let cases = [
        ("", 0, false, false, 1),
        ("", 0, false, true, 0),
        (B, 999_999, true, false, 0),
        (B, 999_999, true, true, 2),
        (B, 999_999, false, false, 1),
        (B, 1_000_000, true, false, 1),
        (B, 1_000_000, true, true, 0),
        (A, 5, true, true, 0),
        (A, 5, true, false, 0),
    ];
    for (relay, ago, lives, hears, role) in cases {
        let mut desk = held(JAVA, 1, 9_000);
        desk.subscribe(&channel(B), usize::from(lives));
        desk.subscribe(&at_a(), 1);
        notes(&desk, &["unused", "3"]);
        if !relay.is_empty() {
            notes(
                &desk,
                &["sentry", relay, "heard", &(desk.now() - ago).to_string()],
            );
        }
        let reply = acquire(&desk, A, if hears { "new 7 1" } else { "new 7 0" });
        assert_eq!(
            reply,
            format!("[-1004 {} 7 {role} 1 0]", desk.now()),
            "{relay} {ago}"
        );
        assert_eq!(note(&desk, "unused"), "3");
        let is_relay = hears && role == 0;
        assert_eq!(note(&desk, "heard") == desk.now().to_string(), is_relay);
        if is_relay {
            assert_eq!(note(&desk, "sentry"), A);
        }
    }
    // The head polls at the end of a short lease, and others at their own times.
    let desk = held(JAVA, 1, 900);
    assert_eq!(
        acquire(&desk, A, "new 7 1"),
        format!("[-904 {} 7 0 0 0]", desk.now())
    );
    let mut desk = held(JAVA, 1, 9_000);
    queue(&desk, &[B]);
    subscribed(&mut desk, &[B]);
    assert_eq!(
        acquire(&desk, A, "new 7 1"),
        format!("[-15004 {} 7 0 1 0]", desk.now())
    );
    // A holder of stanchion's needs no relay.
    let desk = held(D, 1, 9_000);
    notes(&desk, &["unused", "3"]);
    assert_eq!(
        acquire(&desk, A, "new 7 1"),
        format!("[-5004 {} 7 0 0 0]", desk.now())
    );
    assert_eq!(
        (note(&desk, "unused"), note(&desk, "sentry")),
        ("3".into(), "nil".into())
    );
}

/// L9: only the relay's report is a proof. L5: each report of a release of Redisson's shows that its clients use their turns.
#[tokio::test(start_paused = true)]
async fn a_report_of_another_process_is_no_proof() {
    for (sentry, reporter, counts, unused) in [
        (A, A, true, "6"),
        (B, A, false, "6"),
        (A, "", false, "9"),
        ("", "", false, "9"),
    ] {
        let desk = held(D, 1, 9_000);
        queue(&desk, &[C]);
        notes(&desk, &["unused", "9", "heard", "5"]);
        if !sentry.is_empty() {
            notes(&desk, &["sentry", sentry]);
        }
        tend(&desk, reporter.get(..36).unwrap_or_default());
        assert_eq!(note(&desk, "unused"), unused);
        assert_eq!(note(&desk, "heard") != "5", counts);
    }
}
