//! Runs the functions of the queue (`line.lua`) through the lock's scripts: dead processes, clients that poll, the notes, and rights that are
//! missing. The numbers are those of `docs/protocol.md`.
//!
//! Long: the cases of one file of functions.

use stanchion_tests::desk::{A, B, C, Desk};

use super::scripts::{
    acquire, acquire_for, channel, end_turn, held, holders, is_token, queue, queued, release, tend,
};

pub(super) const D: &str = "dddddddd-0000-8000-8000-000000000000:1";

pub(super) fn subscribed(desk: &mut Desk, owners: &[&str]) {
    for owner in owners {
        desk.subscribe(&channel(owner), 1);
    }
}

fn message(owner: &str, word: &str, rest: &str) -> String {
    format!("{} {word} {owner} {rest}", channel(owner))
}

pub(super) fn notes(desk: &Desk, fields: &[&str]) {
    desk.command(&[&["HSET", "wake"], fields].concat());
    desk.command(&["PEXPIRE", "wake", "60000"]);
}

pub(super) fn note(desk: &Desk, name: &str) -> String {
    desk.command(&["HGET", "wake", name])
}

pub(super) fn holds(desk: &Desk, owner: &str) -> bool {
    holders(desk) == format!("{{{owner} 1}}")
}

fn dead(count: usize) -> Vec<String> {
    let dead = |n| format!("00000000-0000-8000-8000-{n:012}:1");
    (0..count).map(dead).collect()
}

/// A lock that A holds, and a queue.
pub(super) fn waiting(entries: &[&str], subscribers: &[&str]) -> Desk {
    let mut desk = held(A, 1, 9_000);
    queue(&desk, entries);
    subscribed(&mut desk, subscribers);
    desk
}

/// A client that polls is granted the lock if its last request was sent within a second.
#[tokio::test(start_paused = true)]
async fn a_client_that_polls_is_dead_after_a_second() {
    let polls = format!("{B}?");
    for (ago, lives) in [
        (Some(999_999), true),
        (Some(1_000_000), false),
        (None, false),
    ] {
        let desk = waiting(&[&polls], &[]);
        if let Some(ago) = ago {
            notes(&desk, &[B, &(desk.now() - ago).to_string()]);
        }
        let reply = release(&desk, A, "0");
        assert_eq!(
            (holds(&desk, B), reply.as_str()),
            (lives, if lives { "1" } else { "0" })
        );
        assert_eq!(queued(&desk), "[]");
        // All processes of the queue are dead, so the lock is free for all.
        assert_eq!(
            desk.messages(),
            if lives { vec![] } else { vec!["base 00"] }
        );
        // In front of another waiter.
        let desk = held(C, 1, 9_000);
        queue(&desk, &[&polls]);
        if let Some(ago) = ago {
            notes(&desk, &[B, &(desk.now() - ago).to_string()]);
        }
        let reply = acquire(&desk, A, "new");
        let expected = if lives { "-15004" } else { "-5004" };
        assert!(
            reply.starts_with(&format!("[{expected} ")),
            "{ago:?}: {reply}"
        );
        assert_eq!(note(&desk, B) != "nil", lives);
    }
}

/// P4: an expiry does not serve the queue, and the head may be dead or stopped.
#[tokio::test(start_paused = true)]
async fn a_client_that_polls_takes_a_lock_that_stays_free() {
    for lives in [false, true] {
        let mut desk = held(C, 1, 900);
        subscribed(&mut desk, if lives { &[B] } else { &[] });
        let entry = format!("{A}?");
        queue(&desk, &[B, &entry]);
        // Its next request is an `ask` while the lock is held, then a `look`.
        let busy = format!("[-904 {} 1 0 0 1]", desk.now());
        assert_eq!(acquire(&desk, A, "ask 1 0 ?"), busy);
        desk.command(&["DEL", "job"]);
        let free = format!("[-54 {} 1 0 0 0]", desk.now());
        assert_eq!(acquire(&desk, A, "ask 1 0 ?"), free);
        assert_eq!(queued(&desk), format!("[{B} {entry}]"));
        assert!(is_token(&acquire(&desk, A, "look 1 0 ?")));
        assert_eq!((holds(&desk, A), queued(&desk)), (true, "[]".into()));
        // L3: the head sends a request again, if it is alive.
        assert_eq!(desk.messages().len(), 1, "{lives}");
    }
}

/// R16.
#[tokio::test(start_paused = true)]
async fn a_foreign_value_in_place_of_the_notes_stays() {
    for entries in [&[][..], &[B]] {
        let desk = waiting(entries, &[B]);
        desk.command(&["SET", "wake", "x"]);
        assert_ne!(release(&desk, A, "0"), "-2");
        assert_eq!(holds(&desk, B), !entries.is_empty());
        assert_eq!(desk.command(&["GET", "wake"]), "x");
    }
    // A process leaves the queue of a lock that is held.
    let desk = waiting(&[B], &[]);
    desk.command(&["SET", "wake", "x"]);
    assert_eq!(
        (release(&desk, B, "1"), queued(&desk)),
        ("0".into(), "[]".into())
    );
    assert_eq!(desk.command(&["GET", "wake"]), "x");
    let desk = waiting(&[], &[]);
    notes(&desk, &["turn", "5"]);
    release(&desk, A, "0");
    assert_eq!(desk.command(&["EXISTS", "wake"]), "0");
}

/// R9.
#[tokio::test(start_paused = true)]
async fn notes_have_a_lifetime_that_is_never_shortened() {
    let polls = |desk: &Desk| acquire(desk, A, "ask 7 0 ?");
    for (before, after) in [(29_999, "60000"), (30_000, "30000"), (100_000, "100000")] {
        let desk = held(C, 1, 9_000);
        notes(&desk, &["x", "y"]);
        desk.command(&["PEXPIRE", "wake", &before.to_string()]);
        assert_eq!(polls(&desk), format!("[-9004 {} 7 0 0 1]", desk.now()));
        assert_eq!(desk.command(&["PTTL", "wake"]), after);
        assert_eq!(note(&desk, A), desk.now().to_string());
    }
    let mut desk = held(C, 1, 9_000);
    queue(&desk, &[B]);
    desk.refuse(&["PEXPIRE"]);
    polls(&desk);
    assert_eq!(desk.command(&["EXISTS", "wake"]), "0");
    assert_eq!(queued(&desk), format!("[{B} {A}?]"));
}

/// R8, R9.
#[tokio::test(start_paused = true)]
async fn the_queue_has_a_lifetime_that_exceeds_every_poll_pause() {
    for (before, after) in [(17_499, "22500"), (17_500, "17500"), (150_000, "150000")] {
        let desk = held(C, 1, 9_000);
        queue(&desk, &[A]);
        desk.command(&["PEXPIRE", "line", &before.to_string()]);
        acquire(&desk, A, "look 1");
        assert_eq!(desk.command(&["PTTL", "line"]), after);
    }
    let desk = held(C, 1, 9_000);
    for _ in 0..2 {
        acquire(&desk, A, "new 5");
        assert_eq!(
            (desk.command(&["PTTL", "line"]), queued(&desk)),
            ("22500".into(), format!("[{A}]"))
        );
    }
    let mut desk = held(C, 1, 9_000);
    desk.refuse(&["PEXPIRE"]);
    assert!(acquire(&desk, A, "new").starts_with("error NOPERM"));
    assert_eq!(queued(&desk), "[]");
    desk.refuse(&["ZADD"]);
    assert!(acquire(&desk, A, "new").starts_with("error NOPERM"));
    // At maxmemory a process waits without an entry.
    desk.refuse(&[]);
    desk.fill(true);
    assert_eq!(
        (acquire(&desk, A, "new"), queued(&desk)),
        ("-9004".into(), "[]".into())
    );
    desk.command(&["DEL", "job"]);
    queue(&desk, &[B]);
    assert!(acquire(&desk, A, "new").starts_with("error OOM"));
}

/// A grant by message.
#[tokio::test(start_paused = true)]
async fn the_head_and_the_newest_entry_watch_a_grant() {
    let grant = |desk: &Desk| message(B, "G", &format!("{} {} 1500 fence", desk.now(), desk.now()));
    let desk = waiting(&[B], &[B]);
    assert_eq!(release(&desk, A, "0"), "1");
    assert_eq!(desk.messages(), [grant(&desk)]);
    assert_eq!(desk.command(&["EXISTS", "wake", "line"]), "0");
    // Without a queue the notes go.
    let desk = waiting(&[B], &[B]);
    notes(&desk, &["granted", C]);
    release(&desk, A, "0");
    assert_eq!(desk.command(&["EXISTS", "wake"]), "0");
    // The count of releases until the turn of Redisson's clients goes on.
    let desk = waiting(&[B], &[B]);
    notes(&desk, &["turn", "1"]);
    release(&desk, A, "0");
    assert_eq!(
        (note(&desk, "turn"), note(&desk, "granted")),
        ("1".into(), "nil".into())
    );

    let desk = waiting(&[B, C], &[B, C]);
    assert_eq!(release(&desk, A, "0"), "1");
    assert_eq!(desk.messages(), [grant(&desk), message(C, "N", "1500")]);
    assert_eq!(
        (note(&desk, "granted"), note(&desk, "watched")),
        (B.into(), "nil".into())
    );
    assert_eq!((queued(&desk), holds(&desk, B)), (format!("[{C}]"), true));

    for (ago, watches) in [(1_499_999, false), (1_500_000, true), (0, true)] {
        let desk = waiting(&[B, C, D], &[B, C, D]);
        if ago > 0 {
            notes(&desk, &["watched", &(desk.now() - ago).to_string()]);
        }
        release(&desk, A, "0");
        let mut told = vec![grant(&desk), message(C, "N", "1500")];
        if watches {
            told.push(message(D, "N", "1550"));
            assert_eq!(note(&desk, "watched"), desk.now().to_string());
        }
        assert_eq!(desk.messages(), told, "{ago}");
        assert_eq!(note(&desk, "watcher"), if watches { D } else { "nil" });
    }
}

/// L2.
#[tokio::test(start_paused = true)]
async fn dead_processes_are_skipped_sixteen_in_one_run() {
    for (count, done) in [(1, true), (15, true), (16, false), (17, false)] {
        let gone = dead(count);
        let mut entries: Vec<&str> = gone.iter().map(String::as_str).collect();
        entries.push(B);
        let desk = waiting(&entries, &[B]);
        let reply = release(&desk, A, "0");
        assert_eq!(reply, if done { "1" } else { "[tend 0 0]" }, "{count}");
        assert_eq!(holds(&desk, B), done, "{count}");
        let messages = desk.messages();
        assert!(
            !messages.contains(&"base 00".to_owned()),
            "the lock is not free for all"
        );
        if done {
            continue;
        }
        tend(&desk, "");
        assert!(holds(&desk, B), "{count}");
    }
    let gone = dead(3);
    let entries: Vec<&str> = gone.iter().map(String::as_str).collect();
    let mut desk = waiting(&entries, &[]);
    desk.subscribe("base", 1);
    desk.subscribe("base:stanchion", 1);
    notes(&desk, &["granted", C]);
    assert_eq!(release(&desk, A, "0"), "1");
    assert_eq!(desk.messages().last().unwrap(), "base 00");
    assert_eq!(desk.command(&["EXISTS", "job", "line", "wake"]), "0");
}

/// R15. A moving slot refuses to read a key that the script has removed, and to write it again.
#[tokio::test(start_paused = true)]
async fn a_release_in_a_moving_slot_is_done_and_notifies_the_head() {
    for places in ["0", "1"] {
        let mut desk = waiting(&[B, C], &[B, C]);
        notes(&desk, &["turn", "1"]);
        desk.command(&["SET", "fence", "7"]);
        desk.migrate();
        assert_eq!(release(&desk, A, places), "-1");
        assert_eq!(desk.messages(), ["base 0".into(), message(B, "P", "0")]);
        assert_eq!(
            (holders(&desk), queued(&desk)),
            ("{}".into(), format!("[{B} {C}]"))
        );
    }
}

/// R8.
#[tokio::test(start_paused = true)]
async fn a_free_lock_is_granted_to_the_queue_at_maxmemory() {
    let mut desk = Desk::new();
    queue(&desk, &[B]);
    subscribed(&mut desk, &[B]);
    desk.fill(true);
    assert_eq!(tend(&desk, ""), "-1");
    assert!(holds(&desk, B));
}

/// L14.
#[tokio::test(start_paused = true)]
async fn without_the_right_to_publish_no_entry_is_granted() {
    let mut desk = waiting(&[B, C], &[B, C]);
    desk.refuse(&["PUBLISH"]);
    assert_eq!(release(&desk, A, "0"), "-1");
    assert_eq!(
        (holders(&desk), queued(&desk)),
        ("{}".into(), format!("[{C}]"))
    );
    let several = format!("{B}+");
    let mut desk = waiting(&[&several, C], &[B, C]);
    desk.refuse(&["PUBLISH"]);
    assert_eq!(release(&desk, A, "0"), "-1");
    assert_eq!(
        (holders(&desk), queued(&desk)),
        ("{}".into(), format!("[{C}]"))
    );
}

#[tokio::test(start_paused = true)]
async fn a_process_that_wants_several_names_is_notified_and_the_next_one_tries_later() {
    let several = format!("{B}+");
    let desk = waiting(&[&several, C, D], &[B, C, D]);
    assert_eq!(release(&desk, A, "0"), "1");
    assert_eq!(
        (holders(&desk), queued(&desk)),
        ("{}".into(), format!("[{C} {D}]"))
    );
    assert_eq!(
        desk.messages(),
        [message(B, "P", "0"), message(C, "P", "25")]
    );
    let desk = waiting(&[&several], &[B]);
    assert_eq!(
        (release(&desk, A, "0"), desk.messages()),
        ("1".into(), vec![message(B, "P", "0")])
    );
    // A dead one is skipped.
    let desk = waiting(&[&several, C], &[C]);
    assert_eq!(
        (release(&desk, A, "0"), holds(&desk, C)),
        ("1".into(), true)
    );
}

/// R15.
#[tokio::test(start_paused = true)]
async fn a_release_stands_if_no_entry_can_be_granted() {
    let desk = waiting(&[B], &[B]);
    desk.command(&["SET", "fence", "x"]);
    assert_eq!(release(&desk, A, "0"), "-1");
    assert_eq!(
        (holders(&desk), queued(&desk)),
        ("{}".into(), format!("[{B}]"))
    );
    assert_eq!(desk.messages(), ["base 0".to_owned(), message(B, "P", "0")]);
    assert_eq!(desk.command(&["GET", "fence"]), "x");
    // R9: the grant is undone if its lease cannot be set.
    let mut desk = waiting(&[B], &[B]);
    desk.refuse(&["PEXPIRE"]);
    assert_eq!(
        (release(&desk, A, "0"), holders(&desk)),
        ("-1".into(), "{}".into())
    );
    let gone = dead(17);
    let entries: Vec<&str> = gone.iter().map(String::as_str).collect();
    let desk = waiting(&entries, &[]);
    desk.command(&["SET", "fence", "x"]);
    assert_eq!(release(&desk, A, "0"), "[tend 0 -1]");
}

/// L5: one turn after as many releases as there are processes for each client of Redisson's, 16 at most. Each unused turn makes the next one twice
/// as long, 128 ms at most.
#[tokio::test(start_paused = true)]
async fn redissons_clients_get_a_turn() {
    let outside = |desk: &mut Desk| {
        desk.subscribe("base", 2);
        desk.subscribe("base:stanchion", 1);
    };
    let unknown = |desk: &mut Desk| desk.refuse(&["PUBSUB"]);
    let sets: [&dyn Fn(&mut Desk); 2] = [&outside, &unknown];
    for set in sets {
        for (turn, unused, length) in [
            ("1", "0", None),
            ("2", "0", Some(2)),
            ("1", "1", None),
            ("2", "1", Some(4)),
            ("2", "5", Some(64)),
            ("2", "6", Some(128)),
            ("2", "9", Some(128)),
            ("2", "10", Some(128)),
        ] {
            let mut desk = waiting(&[B, C], &[B, C]);
            set(&mut desk);
            notes(&desk, &["turn", turn, "unused", unused]);
            desk.command(&["PEXPIRE", "wake", "59999"]);
            let reply = release(&desk, A, "0");
            assert_eq!(holds(&desk, B), length.is_none(), "{turn} {unused}");
            let told = desk.messages();
            assert_eq!(desk.command(&["PTTL", "wake"]), "60000");
            let until =
                length.map_or_else(|| "nil".into(), |ms| (desk.now() + 1000 * ms).to_string());
            assert_eq!(note(&desk, "until"), until);
            if length.is_some() {
                assert_eq!(told, ["base 00".to_owned(), message(B, "P", "2")]);
                assert_eq!(note(&desk, "turn"), "0");
                assert_eq!(reply, if told.is_empty() { "1" } else { reply.as_str() });
            } else {
                assert_eq!(
                    note(&desk, "turn"),
                    (turn.parse::<u8>().unwrap() + 1).to_string()
                );
            }
        }
    }
    // The notes live as long as before, or longer.
    let mut desk = waiting(&[B, C], &[B, C]);
    outside(&mut desk);
    notes(&desk, &["turn", "0"]);
    desk.command(&["PEXPIRE", "wake", "99000"]);
    release(&desk, A, "0");
    assert_eq!(desk.command(&["PTTL", "wake"]), "99000");
    // The dead processes at the head are removed, 16 in one run.
    for (count, reply) in [(3, "2"), (16, "[tend 2 2]")] {
        let gone = dead(count);
        let mut entries: Vec<&str> = gone.iter().map(String::as_str).collect();
        entries.push(B);
        let mut desk = waiting(&entries, &[B]);
        outside(&mut desk);
        notes(&desk, &["turn", "15"]);
        assert_eq!(
            (release(&desk, A, "0"), queued(&desk)),
            (reply.into(), format!("[{B}]"))
        );
        assert_eq!(
            desk.messages().last().unwrap() == &message(B, "P", "2"),
            count < 16
        );
    }
    let mut desk = waiting(&[B], &[]);
    outside(&mut desk);
    notes(&desk, &["turn", "15"]);
    assert_eq!(
        (release(&desk, A, "0"), queued(&desk)),
        ("2".into(), "[]".into())
    );
    let mut desk = waiting(&[B], &[B]);
    outside(&mut desk);
    notes(&desk, &["turn", "15"]);
    desk.refuse(&["PUBLISH"]);
    assert_eq!(
        (release(&desk, A, "0"), queued(&desk)),
        ("-1".into(), format!("[{B}]"))
    );
}

/// L3, L4.
#[tokio::test(start_paused = true)]
async fn a_request_that_takes_the_lock_informs_the_queue() {
    let free = |entries: &[&str], fields: &[&str]| {
        let mut desk = Desk::new();
        queue(&desk, entries);
        notes(&desk, fields);
        subscribed(&mut desk, &[B, C, D]);
        desk
    };
    let desk = free(&[A, B, C], &["turn", "3"]);
    assert!(is_token(&acquire(&desk, A, "ask 1")));
    assert_eq!(
        (queued(&desk), desk.messages()),
        (format!("[{B} {C}]"), vec![message(B, "N", "30000")])
    );
    assert_eq!(note(&desk, "unused"), "nil");
    // A turn that Redisson's clients did not take.
    for (unused, next) in [("0", "1"), ("9", "10")] {
        let desk = free(&[A, B], &["until", "5", "unused", unused]);
        acquire(&desk, A, "ask 1");
        assert_eq!(note(&desk, "unused"), next);
        assert_eq!(note(&desk, "until"), "nil");
        assert_eq!(note(&desk, "ended"), desk.now().to_string());
    }
    // The poll found a silent holder.
    let polls = format!("{D}?");
    for (grantee, told) in [(C, true), (A, false)] {
        let desk = free(&[A, B, &polls], &["granted", grantee, "turn", "0"]);
        assert!(is_token(&acquire(&desk, A, "look 1")));
        let mut expected = vec![message(B, "P", "0")];
        if told {
            expected.insert(0, message(C, "P", "0"));
        }
        assert_eq!(
            (queued(&desk), desk.messages()),
            (format!("[{polls}]"), expected)
        );
        assert_eq!(note(&desk, "unused"), "nil");
    }
    let desk = free(&[A], &["turn", "1"]);
    assert!(is_token(&acquire(&desk, A, "look 1")));
    assert_eq!(desk.messages(), Vec::<String>::new());
}

/// L4, L5, L8.
#[tokio::test(start_paused = true)]
async fn a_refusal_says_when_to_poll() {
    // The lease of the holder, the entries in front, the notes, the word, and: the ms until the poll, whether at random, and with `ask`.
    type Case<'a> = (i64, &'a [&'a str], &'a [&'a str], &'a str, i64, u8, u8);
    let cases: [Case<'_>; 13] = [
        (900, &[], &[], "new", 900, 0, 0),
        (5_001, &[], &[], "new", 5_000, 0, 0),
        (-1, &[], &[], "new", 5_000, 0, 0),
        (900, &[B], &[], "new", 15_000, 1, 0),
        (900, &[B, C], &[], "new", 22_500, 1, 0),
        // A watch of a grant by message.
        (900, &[B], &["watcher", A], "look", 950, 0, 0),
        (1_500, &[B], &["watcher", A], "look", 1_550, 0, 0),
        (1_501, &[B], &["watcher", A], "look", 15_000, 1, 0),
        (900, &[B], &["watcher", A], "ask", 15_000, 1, 0),
        (900, &[B], &["watcher", C], "look", 15_000, 1, 0),
        (-1, &[B], &["watcher", A], "look", 15_000, 1, 0),
        // The lock is free, and reserved for others.
        (-2, &[B], &["turn", "1"], "new", 50, 0, 1),
        (-2, &[B, C], &["turn", "1"], "new", 22_500, 1, 0),
    ];
    for (ttl, ahead, fields, word, look, spread, asks) in cases {
        let mut desk = if ttl == -2 {
            Desk::new()
        } else {
            held(D, 1, 9_000)
        };
        match ttl {
            -1 => drop(desk.command(&["PERSIST", "job"])),
            0.. => drop(desk.command(&["PEXPIRE", "job", &ttl.to_string()])),
            _ => {}
        }
        queue(&desk, ahead);
        subscribed(&mut desk, &[B, C, D]);
        if !fields.is_empty() {
            notes(&desk, fields);
        }
        let expected = format!("[{} {} 77 0 {spread} {asks}]", -4 - look, desk.now());
        let case = format!("{ttl} {ahead:?} {fields:?} {word}");
        assert_eq!(acquire(&desk, A, &format!("{word} 77")), expected, "{case}");
        // Its entry was not in the queue.
        assert_eq!(desk.messages().len(), usize::from(word == "look"));
    }
    // 120 s at most.
    let many: Vec<String> = (0..16).map(|n| format!("{}{n}", &B[..37])).collect();
    let mut desk = held(D, 1, 9_000);
    subscribed(&mut desk, &[B]);
    queue(&desk, &many.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(acquire(&desk, A, "new 77").starts_with("[-120004 "));
    assert_eq!(queued(&desk).split(' ').count(), 17);
}

/// L4: dead entries at the head are removed, 16 in one run.
#[tokio::test(start_paused = true)]
async fn a_refusal_removes_dead_entries_in_front() {
    for (count, look) in [(15, 900), (16, 900), (17, 25), (40, 25)] {
        let gone = dead(count);
        let desk = held(D, 1, 900);
        queue(&desk, &gone.iter().map(String::as_str).collect::<Vec<_>>());
        let reply = acquire(&desk, A, "new 77");
        let expected = format!("[{} {} 77 0 0 0]", -4 - look, desk.now());
        if count == 16 {
            // None is left in front, but the run has not checked that.
            assert!([expected, format!("[-29 {} 77 0 0 0]", desk.now())].contains(&reply));
        } else {
            assert_eq!(reply, expected, "{count}");
        }
        assert_eq!(
            queued(&desk).split(' ').count(),
            count.saturating_sub(16) + 1
        );
    }
    // Without the right to count, every process counts as alive.
    let mut desk = held(D, 1, 900);
    desk.refuse(&["PUBSUB"]);
    queue(&desk, &[B]);
    assert!(acquire(&desk, A, "new 77").starts_with("[-15004 "));
    assert_eq!(queued(&desk), format!("[{B} {A}]"));
}

/// L15: a due poll whose entry has vanished calls all processes that are subscribed, once in 5 s.
#[tokio::test(start_paused = true)]
async fn a_poll_finds_that_the_queue_was_lost() {
    let everyone = |desk: &mut Desk| {
        subscribed(desk, &[A, B, C]);
    };
    let called = vec!["base:all:stanchion 0".to_owned()];
    // The holder, the entries, the word and the arrival, and whether the processes are called.
    type Case<'a> = (Option<&'a str>, &'a [&'a str], &'a str, bool);
    let cases: [Case<'_>; 8] = [
        (None, &[], "look 77", true),
        (Some(D), &[], "look 77", true),
        (Some(D), &[B], "look 77", true),
        (Some(D), &[A], "look 1", false),
        (Some(D), &[], "ask 77", false),
        (Some(D), &[], "new 77", false),
        (Some(D), &[], "look  0 ", false),
        (None, &[], "ask 77", false),
    ];
    for (holder, entries, ask, calls) in cases {
        let mut desk = Desk::new();
        if let Some(holder) = holder {
            desk = held(holder, 1, 9_000);
        }
        queue(&desk, entries);
        everyone(&mut desk);
        let reply = acquire(&desk, A, ask);
        assert_eq!(is_token(&reply), holder.is_none(), "{ask}");
        let expected = if calls { called.clone() } else { vec![] };
        assert_eq!(desk.messages(), expected, "{holder:?} {entries:?} {ask}");
    }
    for (ago, calls) in [(4_999_999, false), (5_000_000, true)] {
        let mut desk = held(D, 1, 9_000);
        everyone(&mut desk);
        tokio::time::advance(std::time::Duration::from_secs(6)).await;
        desk.command(&["PEXPIRE", "job", "9000"]);
        notes(&desk, &["called", &(desk.now() - ago).to_string()]);
        acquire(&desk, A, "look 77");
        assert_eq!(desk.messages().len(), usize::from(calls));
    }
    // Without the right to publish the request is answered as usual.
    let mut desk = held(D, 1, 9_000);
    everyone(&mut desk);
    desk.refuse(&["PUBLISH"]);
    assert!(acquire(&desk, A, "look 77").starts_with("[-5004 "));
    assert_eq!(desk.messages(), Vec::<String>::new());
}

/// A lease that is shorter than a grant by message is in the notes until the grant, or until the entry is removed.
#[tokio::test(start_paused = true)]
async fn a_grant_by_message_lasts_no_longer_than_the_lease() {
    let field = format!("{B}:lease");
    for (lease, ms) in [
        ("300", "300"),
        ("1499", "1499"),
        ("1500", "1500"),
        ("30000", "1500"),
    ] {
        let mut desk = held(A, 1, 9_000);
        subscribed(&mut desk, &[B]);
        acquire_for(&desk, B, lease, "new 1");
        let noted = if ms == "1500" { "nil" } else { ms };
        assert_eq!(note(&desk, &field), noted);
        release(&desk, A, "0");
        assert!(holds(&desk, B));
        assert_eq!(desk.command(&["PTTL", "job"]), ms);
        assert_eq!(note(&desk, &field), "nil");
        let told = desk.messages();
        assert!(told[0].ends_with(&format!(" {ms} fence")), "{told:?}");
    }
    let desk = held(A, 1, 9_000);
    queue(&desk, &[C]);
    acquire_for(&desk, B, "300", "new 1");
    release(&desk, B, "1");
    assert_eq!(note(&desk, &field), "nil");
}

/// The turn of a process is over, and the release of the turn is left to Redisson's clients or passed on, as by a release.
#[tokio::test(start_paused = true)]
async fn the_end_of_a_turn_finishes_as_a_release() {
    let gone = dead(17);
    let mut desk = held(A, 1, 9_000);
    queue(&desk, &gone.iter().map(String::as_str).collect::<Vec<_>>());
    subscribed(&mut desk, &[A]);
    let reply = end_turn(&desk);
    assert!(reply.starts_with("[tend 0 ["), "{reply}");
    assert_eq!(holders(&desk), "{}");
}
