//! Runs the scripts of requests directly: of waiters and new waiters, of clients that poll, and of replays.

use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    FOREVER, downgrade_within, hold_key, holders, message, queue, queued, read, read_by,
    read_release, read_within, ttl, write, write_release, write_within, written_by,
};
use super::direct_queue::{
    D, E, granted, notes, queue_all, read_since, subscribed, us_in, with, writers,
};
use super::direct_readers::read_keys;

#[tokio::test(start_paused = true)]
async fn a_new_writer_has_the_lock_for_its_lease() {
    let desk = Desk::new();
    let token = write(&desk, A, "new");
    assert_eq!(token, desk.now().to_string());
    assert_eq!(
        desk.keys(),
        format!("fence = {token}, TTL -1\njob = mode write {A}:write 1, TTL 30000")
    );
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_takes_a_free_lock_lets_the_next_readers_join() {
    let (a, b) = (format!("{A}r"), format!("{B}R"));
    let mut desk = Desk::new();
    subscribed(&mut desk, &[B, C]);
    queue(&desk, &[&a, &b, C]);
    assert_eq!(read(&desk, A, "ask 1"), "0");
    assert_eq!(
        desk.messages(),
        [granted(&desk, B, false), message(C, "N", "1500")]
    );
    let held = read_keys(&desk, &[(B, 1_500), (A, 30_000)], 30_000, 30_000).replace(
        &format!("mode read {B} 1 {A} 1"),
        &format!("mode read {A} 1 {B} 1"),
    );
    let others = [
        format!("line = {C} 3, TTL 150000"),
        format!("wake = granted {B}, TTL 60000"),
    ];
    assert_eq!(desk.keys(), with(&held, &others));
    // L4: with no reader behind it, the writer polls when the lease ends.
    let desk = Desk::new();
    queue(&desk, &[&a, C]);
    assert_eq!(read(&desk, A, "ask 1"), "0");
    assert_eq!(desk.messages(), [message(C, "N", "30000")]);
    assert_eq!(
        (holders(&desk), queued(&desk)),
        (format!("{{mode read {A} 1}}"), format!("[{C}]"))
    );
}

/// L3: the lock was free, or other readers hold, and no message said so.
#[tokio::test(start_paused = true)]
async fn a_poll_that_is_granted_notifies_the_others() {
    let reader = format!("{A}r");
    for desk in [Desk::new(), read_by(&[(D, 9_000)])] {
        queue(&desk, &[&reader, &format!("{B}r"), C]);
        assert_eq!(read(&desk, A, "look 1"), "0");
        assert_eq!(
            desk.messages(),
            [message(B, "P", "0"), message(C, "P", "0")]
        );
        assert_eq!(queued(&desk), "[]");
    }
    // After a message it removes its own entry only.
    let desk = read_by(&[(D, 9_000)]);
    queue(&desk, &[C, &reader, B]);
    assert_eq!(read(&desk, A, "ask 2"), "0");
    assert_eq!(
        (queued(&desk), desk.messages()),
        (format!("[{C} {B}]"), vec![])
    );
    assert_eq!(holders(&desk), format!("{{mode read {D} 1 {A} 1}}"));
    // P11: there are more dead processes in the queue.
    let desk = Desk::new();
    let mut entries = vec![reader];
    entries.extend(writers(17).iter().map(|owner| format!("{owner}r")));
    queue_all(&desk, &entries);
    assert_eq!(read(&desk, A, "ask 1"), "[tend 0 0]");
}

/// L6.
#[tokio::test(start_paused = true)]
async fn a_reader_that_came_before_the_head_joins_the_readers() {
    for (since, joins) in [("0", true), ("1", false), ("2", false)] {
        let mut desk = read_by(&[(B, 9_000)]);
        subscribed(&mut desk, &[C]);
        queue(&desk, &[C]);
        let reply = read_since(&desk, A, since);
        assert_eq!(reply == "0", joins, "{since}: {reply}");
        assert_eq!(
            desk.command(&["HEXISTS", "job", A]),
            u64::from(joins).to_string()
        );
    }
}

/// L6: the lock is free, and reserved for the queue.
#[tokio::test(start_paused = true)]
async fn a_new_request_does_not_overtake_the_queue_of_a_free_lock() {
    for side in ["r", "R", ""] {
        let mut desk = Desk::new();
        subscribed(&mut desk, &[A, B, C]);
        queue(&desk, &[C]);
        let entry = format!("{A}{side}");
        let reply = if side.is_empty() {
            write(&desk, A, "new")
        } else {
            read_within(&desk, A, "new", side, FOREVER)
        };
        // L5: the second in the queue tries 25 ms after the head.
        assert_eq!(reply, format!("[-54 {0} {0} 0 0 1]", desk.now()));
        assert_eq!(
            (queued(&desk), desk.messages()),
            (format!("[{C} {entry}]"), vec![])
        );
        assert_eq!(holders(&desk), "{}");
    }
    // A try takes it, and changes no entry.
    for writes in [false, true] {
        let desk = Desk::new();
        queue(&desk, &[C]);
        notes(&desk, &["granted", B]);
        let reply = if writes {
            write(&desk, A, "try")
        } else {
            read(&desk, A, "try")
        };
        assert!(reply.parse::<i64>().unwrap() >= 0, "{reply}");
        assert_ne!(holders(&desk), "{}");
        assert_eq!(queued(&desk), format!("[{C}]"));
    }
}

/// P1: a writer that takes a free lock grants to no other process.
#[tokio::test(start_paused = true)]
async fn a_writer_that_takes_a_free_lock_is_alone() {
    let mut desk = Desk::new();
    subscribed(&mut desk, &[B, C]);
    queue(&desk, &[A, &format!("{B}r"), C]);
    let token = write(&desk, A, "ask 1");
    assert_eq!(desk.messages(), [message(B, "N", "30000")]);
    assert_eq!(
        desk.keys(),
        [
            format!("fence = {token}, TTL -1"),
            format!("job = mode write {A}:write 1, TTL 30000"),
            format!("line = {B}r 2 {C} 3, TTL 150000")
        ]
        .join("\n")
    );
}

/// The entry has the arrival of the request, or of an entry that was removed.
#[tokio::test(start_paused = true)]
async fn a_refused_request_keeps_its_arrival() {
    for mut desk in [written_by(C, 900), read_by(&[(C, 900)])] {
        subscribed(&mut desk, &[A, B, D, E]);
        if holders(&desk).starts_with("{mode read") {
            queue(&desk, &[B]);
        }
        read_since(&desk, A, &us_in(&desk, 0));
        let first = desk.command(&["ZSCORE", "line", &format!("{A}R")]);
        assert_eq!(first, desk.now().to_string());
        write(&desk, D, "look 77");
        assert_eq!(desk.command(&["ZSCORE", "line", D]), "77");
        read_within(&desk, E, "look 78", "R", FOREVER);
        assert_eq!(desk.command(&["ZSCORE", "line", &format!("{E}R")]), "78");
    }
}

/// P4: no release serves the queue of a lock whose holder has died.
#[tokio::test(start_paused = true)]
async fn a_client_that_polls_takes_a_free_lock_as_the_head_or_with_a_look() {
    for side in ["r?", "R?", "?"] {
        let polls = |desk: &Desk, word: &str| match side {
            "?" => write(desk, A, &format!("{word} 1 0 ?")),
            _ => read_within(desk, A, &format!("{word} 1 0 ?"), &side[..1], FOREVER),
        };
        let entry = format!("{A}{side}");
        let is_held = |desk: &Desk| desk.command(&["EXISTS", "job"]) == "1";
        let desk = Desk::new();
        queue(&desk, &[&entry]);
        assert!(polls(&desk, "ask").parse::<i64>().unwrap() >= 0, "{side}");
        assert!(queued(&desk) == "[]" && is_held(&desk));
        let mut desk = Desk::new();
        subscribed(&mut desk, &[B]);
        queue(&desk, &[B, &entry]);
        let free = format!("[-54 {} 1 0 0 0]", desk.now());
        assert_eq!(polls(&desk, "ask"), free);
        assert!(queued(&desk) == format!("[{B} {entry}]") && !is_held(&desk));
        assert!(polls(&desk, "look").parse::<i64>().unwrap() >= 0, "{side}");
        assert!(queued(&desk) == "[]" && is_held(&desk));
    }
}

/// R4: the hold of a replay is the caller's.
#[tokio::test(start_paused = true)]
async fn a_replay_that_fails_keeps_the_hold() {
    let mut desk = read_by(&[(A, 900)]);
    desk.command(&["HSET", "job", A, "3"]);
    desk.refuse(&["PEXPIRE"]);
    assert!(read(&desk, A, "ask").starts_with("error NOPERM"));
    assert_eq!(holders(&desk), format!("{{mode read {A} 3}}"));
    assert_eq!(desk.command(&["EXISTS", &hold_key(A)]), "1");
    let mut desk = written_by(A, 900);
    desk.refuse(&["PEXPIRE"]);
    assert!(write(&desk, A, "ask").starts_with("error NOPERM"));
    assert_eq!(
        (holders(&desk), ttl(&desk)),
        (format!("{{mode write {A}:write 1}}"), "900".into())
    );
}

/// A `try` that finds a writer takes nothing, so it needs no check of the time.
#[tokio::test(start_paused = true)]
async fn a_try_that_is_late_is_busy_while_a_writer_holds() {
    let desk = written_by(B, 900);
    let before = desk.keys();
    assert_eq!(read_within(&desk, A, "try", "r", 0), "-904");
    assert_eq!(write_within(&desk, A, "try", 0), "-904");
    assert_eq!(desk.keys(), before);
}

/// A downgrade changes the lease of the lock and of its reader in one step.
#[tokio::test(start_paused = true)]
async fn a_downgrade_leaves_one_reader() {
    for (before, after) in [(60_000, 60_000), (900, 30_000)] {
        let desk = written_by(A, before);
        desk.command(&["HSET", "job", &format!("{A}:write"), "3"]);
        assert_eq!(downgrade_within(&desk, A, C, FOREVER), "0");
        desk.messages();
        assert_eq!(desk.keys(), read_keys(&desk, &[(C, 30_000)], after, after));
    }
}

/// P3: a writer that gives up what a lost reply may have granted.
#[tokio::test(start_paused = true)]
async fn giving_up_removes_the_entry_and_the_hold() {
    for quits in ["0", "1"] {
        let mut desk = written_by(A, 9_000);
        subscribed(&mut desk, &[B]);
        queue(&desk, &[B]);
        assert_eq!(write_release(&desk, A, "1", quits), "1");
        assert_eq!(holders(&desk), format!("{{mode write {B}:write 1}}"));
        // The writer's read holds stay, and the head waits for them.
        let mut desk = written_by(A, 9_000);
        desk.command(&["HSET", "job", A, "1"]);
        subscribed(&mut desk, &[B]);
        queue(&desk, &[B]);
        assert_eq!(write_release(&desk, A, "1", quits), "0");
        assert_eq!(
            (holders(&desk), ttl(&desk)),
            (format!("{{mode read {A} 1}}"), "9000".into())
        );
        assert_eq!(
            (queued(&desk), desk.messages()),
            (format!("[{B}]"), vec!["base 01".into()])
        );
    }
}

/// R16.
#[tokio::test(start_paused = true)]
async fn a_foreign_value_in_place_of_the_notes_stays() {
    let desk = read_by(&[(B, 900)]);
    queue(&desk, &[&format!("{A}R")]);
    desk.command(&["SET", "wake", "x"]);
    assert_eq!(read_release(&desk, A, "1", "1"), "0");
    assert_eq!(
        (queued(&desk), desk.command(&["GET", "wake"])),
        ("[]".into(), "x".into())
    );
}
