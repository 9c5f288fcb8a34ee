//! Runs the scripts directly in states of the queue: grants by message, dead processes, and readers behind writers. The numbers are those of
//! `docs/protocol.md`.

use stanchion_rwlock::{layout, read};
use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    FOREVER, READERS, channel, hold_key, holders, message, queue, queued, read_by, read_release,
    read_within, write, write_release, written_by,
};
use super::direct_readers::read_keys;

pub(super) const D: &str = "dddddddd-0000-8000-8000-000000000000:1";
pub(super) const E: &str = "eeeeeeee-0000-8000-8000-000000000000:1";

pub(super) fn subscribed(desk: &mut Desk, owners: &[&str]) {
    for owner in owners {
        desk.subscribe(&channel(owner), 1);
    }
}

pub(super) fn notes(desk: &Desk, fields: &[&str]) {
    desk.command(&[&["HSET", "wake"], fields].concat());
    desk.command(&["PEXPIRE", "wake", "60000"]);
}

fn note(desk: &Desk, name: &str) -> String {
    desk.command(&["HGET", "wake", name])
}

fn tend(desk: &Desk, sentry: &str) -> String {
    let keys = ["job", "fence", "line", "wake", READERS];
    desk.run((
        layout::TEND.text(),
        &keys,
        &["base", "PUBLISH", sentry, "job:"],
    ))
}

/// Sends the first request of a reader with preference for writers, whose call began at `since`.
pub(super) fn read_since(desk: &Desk, owner: &str, since: &str) -> String {
    let (hold, not_after) = (hold_key(owner), us_in(desk, 9_000));
    let keys = ["job", "line", "wake", READERS, &hold];
    let args = [
        owner, "30000", &not_after, "new", "PUBLISH", "base", "R", "job:", "", since,
    ];
    desk.run((read::ACQUIRE.text(), &keys, &args))
}

/// The message of a grant to a reader, or of one to a writer with the first token.
pub(super) fn granted(desk: &Desk, owner: &str, writes: bool) -> String {
    let us = desk.now();
    let rest = if writes {
        format!("{us} {us} 1500 fence")
    } else {
        format!("0 {us} 1500 -")
    };
    message(owner, "G", &rest)
}

/// The server's time in `ms` from now, in µs.
pub(super) fn us_in(desk: &Desk, ms: u64) -> String {
    (desk.now() + 1_000 * ms).to_string()
}

/// Writers of processes that are not subscribed.
pub(super) fn writers(count: usize) -> Vec<String> {
    (0..count)
        .map(|n| format!("00000000-0000-8000-8000-{n:012}:1"))
        .collect()
}

pub(super) fn queue_all(desk: &Desk, entries: &[String]) {
    let entries: Vec<_> = entries.iter().map(String::as_str).collect();
    queue(desk, &entries);
}

/// Adds keys to a dump.
pub(super) fn with(keys: &str, more: &[String]) -> String {
    let mut lines: Vec<_> = keys.lines().map(str::to_owned).collect();
    lines.extend_from_slice(more);
    lines.sort();
    lines.join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_release_grants_to_the_readers_in_front_of_the_next_writer() {
    let mut desk = written_by(A, 9_000);
    subscribed(&mut desk, &[B, C, D]);
    queue(&desk, &[&format!("{B}r"), &format!("{C}R"), D]);
    assert_eq!(write_release(&desk, A, "1", "0"), "2");
    assert_eq!(
        desk.messages(),
        [
            granted(&desk, B, false),
            granted(&desk, C, false),
            message(D, "N", "1500")
        ]
    );
    let held = read_keys(&desk, &[(B, 1_500), (C, 1_500)], 1_500, 1_500);
    let others = [
        format!("line = {D} 3, TTL 150000"),
        format!("wake = granted {C}, TTL 60000"),
    ];
    assert_eq!(desk.keys(), with(&held, &others));
    // A reader without preference for writers joins the readers, past the writer.
    let mut desk = written_by(A, 9_000);
    subscribed(&mut desk, &[B, C, D]);
    queue(&desk, &[&format!("{B}R"), D, &format!("{C}r")]);
    assert_eq!(write_release(&desk, A, "1", "0"), "2");
    assert_eq!(holders(&desk), format!("{{mode read {B} 1 {C} 1}}"));
    assert_eq!(queued(&desk), format!("[{D}]"));
}

#[tokio::test(start_paused = true)]
async fn a_release_grants_to_one_writer() {
    let mut desk = read_by(&[(A, 9_000)]);
    subscribed(&mut desk, &[B, C, D]);
    queue(&desk, &[B, &format!("{C}r"), D]);
    assert_eq!(read_release(&desk, A, "1", "0"), "1");
    assert_eq!(
        desk.messages(),
        [
            granted(&desk, B, true),
            message(C, "N", "1500"),
            message(D, "N", "1550")
        ]
    );
    let us = desk.now();
    assert_eq!(
        desk.keys(),
        [
            format!("fence = {us}, TTL -1"),
            format!("job = mode write {B}:write 1, TTL 1500"),
            format!("line = {C}r 2 {D} 3, TTL 150000"),
            format!("wake = granted {B} watched {us} watcher {D}, TTL 60000")
        ]
        .join("\n")
    );
}

/// L2.
#[tokio::test(start_paused = true)]
async fn a_grant_that_no_process_receives_is_undone() {
    let (b, c, d, e) = (format!("{B}r"), C, format!("{D}r"), format!("{E}r"));
    let mut desk = written_by(A, 9_000);
    subscribed(&mut desk, &[D]);
    queue(&desk, &[&b, c, &d, &e]);
    assert_eq!(write_release(&desk, A, "1", "0"), "1");
    let fence = format!("fence = {}, TTL -1", desk.now());
    let held = read_keys(&desk, &[(D, 1_500)], 1_500, 1_500);
    desk.messages();
    assert_eq!(desk.keys(), with(&held, &[fence]));
    // The next writer is granted the lock after a reader that is dead.
    let mut desk = written_by(A, 9_000);
    subscribed(&mut desk, &[C]);
    queue(&desk, &[&b, D, c]);
    assert_eq!(write_release(&desk, A, "1", "0"), "1");
    assert_eq!(holders(&desk), format!("{{mode write {C}:write 1}}"));
    assert_eq!(desk.command(&["EXISTS", READERS, &hold_key(B)]), "0");
    // All are dead, so the lock is free for Redisson's clients.
    for entry in [&b, c] {
        let desk = written_by(A, 9_000);
        queue(&desk, &[entry]);
        assert_eq!(write_release(&desk, A, "1", "0"), "0");
        assert_eq!(desk.messages().last().unwrap(), "base 01");
        assert_eq!(
            desk.command(&["EXISTS", "job", "line", "wake", READERS, &hold_key(B)]),
            "0"
        );
    }
}

/// R3.
#[tokio::test(start_paused = true)]
async fn a_grant_to_a_reader_keeps_the_lock_for_the_longest_lease() {
    let mut desk = read_by(&[(A, 60_000)]);
    subscribed(&mut desk, &[B, C]);
    queue(&desk, &[B, &format!("{C}r")]);
    // The request of a writer that stays in the queue.
    assert_eq!(
        write(&desk, B, "look 1"),
        format!("[-5004 {} 1 0 0 0]", desk.now())
    );
    assert_eq!(
        desk.messages(),
        [granted(&desk, C, false), message(B, "N", "1500")]
    );
    let held = read_keys(&desk, &[(C, 1_500), (A, 60_000)], 60_000, 60_000).replace(
        &format!("mode read {C} 1 {A} 1"),
        &format!("mode read {A} 1 {C} 1"),
    );
    let others = [
        format!("line = {B} 1, TTL 150000"),
        format!("wake = granted {C}, TTL 60000"),
    ];
    assert_eq!(desk.keys(), with(&held, &others));
}

#[tokio::test(start_paused = true)]
async fn readers_pass_any_number_of_writers_that_one_run_checks() {
    for (count, passes) in [(1, true), (64, true), (65, true), (512, true), (513, false)] {
        let mut desk = read_by(&[(A, 9_000)]);
        let mut entries = writers(count);
        let head = entries[0].clone();
        desk.subscribe(&channel(&head), 1);
        subscribed(&mut desk, &[C]);
        entries.push(format!("{C}r"));
        queue_all(&desk, &entries);
        assert_eq!(tend(&desk, ""), "-1");
        let told = desk.messages();
        if passes {
            assert_eq!(told[0], granted(&desk, C, false), "{count}");
            assert_eq!(holders(&desk), format!("{{mode read {A} 1 {C} 1}}"));
            assert_eq!(desk.command(&["ZCARD", "line"]), count.to_string());
        } else {
            // There may be a reader, which the writer holds off.
            assert_eq!(told, [message(&head, "N", "1000")]);
            assert_eq!(holders(&desk), format!("{{mode read {A} 1}}"));
            assert_eq!(
                desk.command(&["HGETALL", "wake"]),
                format!("{{waits {head} ends {}}}", us_in(&desk, 2_000))
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn writers_behind_readers_that_hold_wait_without_messages() {
    for count in [1, 2, 70] {
        let desk = read_by(&[(A, 9_000)]);
        queue_all(&desk, &writers(count));
        let before = desk.keys();
        assert_eq!(tend(&desk, ""), "-1");
        assert_eq!((desk.keys(), desk.messages()), (before, vec![]), "{count}");
    }
}

/// Readers are served in order behind a reader with preference for writers.
#[tokio::test(start_paused = true)]
async fn a_writer_holds_off_every_reader_behind_one_that_waits_for_it() {
    let mut desk = read_by(&[(A, 9_000)]);
    subscribed(&mut desk, &[B, C, D]);
    queue(&desk, &[B, &format!("{C}R"), &format!("{D}r")]);
    assert_eq!(tend(&desk, ""), "-1");
    assert_eq!(
        desk.messages(),
        [message(B, "N", "1000"), message(C, "N", "2000")]
    );
    assert_eq!(holders(&desk), format!("{{mode read {A} 1}}"));
    assert_eq!(
        desk.keys().lines().last().unwrap(),
        format!("wake = waits {B} ends {}, TTL 60000", us_in(&desk, 2_000))
    );
}

#[tokio::test(start_paused = true)]
async fn a_writer_holds_readers_off_while_it_sends_requests() {
    for (asks, left) in [(true, 2_000), (false, 400)] {
        let mut desk = read_by(&[(A, 9_000)]);
        subscribed(&mut desk, &[B, C]);
        let reader = format!("{C}R");
        queue(&desk, &[B, &reader]);
        notes(&desk, &["waits", B, "ends", &us_in(&desk, 400)]);
        if asks {
            write(&desk, B, "look 1");
        } else {
            read_within(&desk, C, "look 2", "R", FOREVER);
        }
        assert_eq!(note(&desk, "ends"), us_in(&desk, left));
        let (soon, end) = (left.saturating_sub(1_000), left.to_string());
        assert_eq!(
            desk.messages(),
            [message(B, "N", &soon.to_string()), message(C, "N", &end)]
        );
        assert_eq!(queued(&desk), format!("[{B} {reader}]"));
    }
}

/// P4: the time of a writer begins each time it comes to the head.
#[tokio::test(start_paused = true)]
async fn a_silent_writer_has_the_whole_time_when_it_is_the_head_again() {
    let mut desk = read_by(&[(A, 9_000)]);
    subscribed(&mut desk, &[B, C, D]);
    queue(&desk, &[B, &format!("{C}R")]);
    notes(&desk, &["waits", B, "ends", &us_in(&desk, 0)]);
    // The reader's own request: its reply is the grant, for the whole lease.
    assert_eq!(read_within(&desk, C, "look 2", "R", FOREVER), "0");
    assert_eq!(holders(&desk), format!("{{mode read {A} 1 {C} 1}}"));
    assert_eq!(
        desk.command(&["PTTL", &hold_key(C)]),
        "30000",
        "the caller's lease"
    );
    assert_eq!(desk.messages(), [message(B, "N", "30000")]);
    assert_eq!(desk.command(&["ZSCORE", "line", B]), desk.now().to_string());
    let reader = format!("{D}R");
    assert!(read_since(&desk, D, &us_in(&desk, 0)).starts_with('['));
    assert_eq!(
        desk.messages(),
        [message(B, "N", "1000"), message(D, "N", "2000")]
    );
    assert_eq!(queued(&desk), format!("[{B} {reader}]"));
}

/// P11: 16 dead writers are removed in one run, and the client runs the script again.
#[tokio::test(start_paused = true)]
async fn dead_writers_in_front_of_a_reader_are_removed_16_at_a_time() {
    let mut desk = read_by(&[(A, 9_000)]);
    subscribed(&mut desk, &[C]);
    let mut entries = writers(17);
    entries.push(format!("{C}R"));
    queue_all(&desk, &entries);
    assert_eq!(tend(&desk, ""), "[tend 0 -1]");
    assert_eq!(queued(&desk), format!("[{} {C}R]", entries[16]));
    assert_eq!(tend(&desk, ""), "-1");
    assert_eq!(
        (queued(&desk), holders(&desk)),
        ("[]".into(), format!("{{mode read {A} 1 {C} 1}}"))
    );
}

#[tokio::test(start_paused = true)]
async fn tend_serves_the_queue_of_a_lock_that_is_free_or_read() {
    let reader = format!("{B}r");
    for (mut desk, grants) in [
        (Desk::new(), true),
        (read_by(&[(C, 9_000)]), true),
        (written_by(C, 9_000), false),
    ] {
        subscribed(&mut desk, &[B]);
        queue(&desk, &[&reader]);
        let before = desk.keys();
        assert_eq!(tend(&desk, ""), "-1");
        assert_eq!(desk.messages().len(), usize::from(grants));
        assert_eq!(desk.command(&["EXISTS", "line"]) == "0", grants);
        assert_eq!(
            desk.command(&["HEXISTS", "job", B]),
            u64::from(grants).to_string()
        );
        assert_eq!(desk.keys() == before, !grants);
    }
}

/// L9.
#[tokio::test(start_paused = true)]
async fn a_release_that_the_relay_reports_proves_that_it_receives_them() {
    for (sentry, proves) in [(&A[..36], true), (&B[..36], false), ("", false)] {
        let desk = written_by(C, 9_000);
        queue(&desk, &[A, B]);
        notes(&desk, &["sentry", A, "heard", "1", "unused", "9"]);
        assert_eq!(tend(&desk, sentry), "-1");
        let heard = if proves {
            desk.now().to_string()
        } else {
            "1".into()
        };
        let unused = if sentry.is_empty() { "9" } else { "6" };
        assert_eq!(
            (note(&desk, "heard"), note(&desk, "unused")),
            (heard, unused.into())
        );
    }
}

/// R15. A moving slot refuses to read a key that the script has removed, and to write it again.
#[tokio::test(start_paused = true)]
async fn a_release_in_a_moving_slot_is_done_and_notifies_the_head() {
    for (writes, quits) in [(true, "0"), (true, "1"), (false, "0"), (false, "1")] {
        let (mut desk, payload) = match writes {
            true => (written_by(A, 9_000), "base 1"),
            false => (read_by(&[(A, 9_000)]), "base 0"),
        };
        desk.command(&["SET", "fence", "7"]);
        desk.command(&["ZADD", READERS, "1", E]);
        queue(&desk, &[B, C]);
        notes(&desk, &["turn", "1"]);
        subscribed(&mut desk, &[B, C]);
        desk.migrate();
        let reply = match writes {
            true => write_release(&desk, A, "1", quits),
            false => read_release(&desk, A, "1", quits),
        };
        assert_eq!(reply, "-1", "{writes} {quits}");
        assert_eq!(desk.messages(), [payload.into(), message(B, "P", "0")]);
        assert_eq!(
            (holders(&desk), queued(&desk)),
            ("{}".into(), format!("[{B} {C}]"))
        );
    }
}

/// R8.
#[tokio::test(start_paused = true)]
async fn a_free_lock_is_granted_to_the_queue_at_maxmemory() {
    for reads in [false, true] {
        let mut desk = Desk::new();
        let entry = if reads { format!("{B}r") } else { B.to_owned() };
        queue(&desk, &[&entry]);
        subscribed(&mut desk, &[B]);
        desk.fill(true);
        assert_eq!(tend(&desk, ""), "-1");
        assert_eq!(desk.messages(), [granted(&desk, B, !reads)]);
    }
}
