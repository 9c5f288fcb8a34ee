//! Runs the semaphores' queue through their scripts: grants, dead processes, grants that are not confirmed, and the relay. The numbers are those
//! of `docs/protocol.md`.

use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    IDS, channel, free, leased, leased_acquire_of, leased_release, leased_tend, plain,
    plain_acquire_of, plain_release, plain_tend,
};

pub(super) const D: &str = "dddddddd-0000-8000-8000-000000000000:1";
const A2: &str = "aaaaaaaa-0000-8000-8000-000000000000:2";
const LIFE: u64 = 9_000_000;

pub(super) fn acquire(desk: &Desk, owner: &str, wanted: &str, ask: &str) -> String {
    plain_acquire_of(desk, owner, wanted, ask, LIFE, "")
}

pub(super) fn take(desk: &Desk, owner: &str, ids: &[&str], ask: &str) -> String {
    leased_acquire_of(desk, owner, ids, ask, LIFE, "")
}

pub(super) fn release(desk: &Desk, owner: &str) -> String {
    plain_release(desk, owner, "1", "0")
}

/// Removes the entry of an owner that holds nothing.
fn quit(desk: &Desk, owner: &str) -> String {
    plain_release(desk, owner, "1", "1")
}

pub(super) fn tend(desk: &Desk) -> String {
    plain_tend(desk, "")
}

/// Entries for one permit, with the arrivals 1, 2, …, of processes that are subscribed.
pub(super) fn waiting(mut desk: Desk, owners: &[&str]) -> Desk {
    let entries: Vec<String> = owners.iter().map(|it| format!("{it}=1")).collect();
    queue(&desk, &entries);
    subscribe(&mut desk, owners);
    desk
}

pub(super) fn subscribe(desk: &mut Desk, owners: &[&str]) {
    for owner in owners {
        desk.subscribe(&channel(owner), 1);
    }
}

pub(super) fn queue(desk: &Desk, entries: &[String]) {
    for (n, entry) in entries.iter().enumerate() {
        desk.command(&["ZADD", "line", &(n + 1).to_string(), entry]);
    }
    desk.command(&["PEXPIRE", "line", "150000"]);
}

pub(super) fn queued(desk: &Desk) -> String {
    desk.command(&["ZRANGE", "line", "0", "-1"])
}

pub(super) fn notes(desk: &Desk, fields: &[&str]) {
    desk.command(&[&["HSET", "wake"], fields].concat());
    desk.command(&["PEXPIRE", "wake", "60000"]);
}

pub(super) fn note(desk: &Desk, name: &str) -> String {
    desk.command(&["HGET", "wake", name])
}

pub(super) fn message(owner: &str, word: &str, rest: &str) -> String {
    format!("{} {word} {owner} {rest}", channel(owner))
}

/// The server's time in `ms` from now.
pub(super) fn in_ms(desk: &Desk, ms: u64) -> u64 {
    desk.now() / 1000 + ms
}

/// All keys with their contents, and the TTLs of those that end.
pub(super) fn stored(desk: &Desk) -> Vec<String> {
    let keys = desk.keys();
    let lines = keys.lines();
    lines
        .map(|it| it.trim_end_matches(", TTL -1").to_owned())
        .collect()
}

/// The end of the lease of the permit `index` of an owner. The id is 16 bytes of the SHA-1 of `<owner>:<index>`.
fn lease(desk: &Desk, owner: &str, index: u32) -> String {
    let script = "local id = string.sub(redis.sha1hex(ARGV[1]), 1, 32)
id = string.gsub(id, '%x%x', function(byte) return string.char(tonumber(byte, 16)) end)
return redis.call('ZSCORE', 'held', id)";
    desk.command(&["EVAL", script, "0", &format!("{owner}:{index}")])
}

/// A grant of plain permits is provisional until the process confirms it.
#[tokio::test(start_paused = true)]
async fn a_release_grants_a_plain_permit_that_the_process_confirms() {
    let desk = waiting(plain(0), &[B]);
    assert_eq!(release(&desk, A), "1");
    assert_eq!(desk.messages(), [message(B, "P", "0")]);
    let granted = format!("granted = {B} {}", in_ms(&desk, 500));
    let held = format!("held = {B} 1");
    assert_eq!(stored(&desk), ["free = 0", &granted, &held]);
    assert_eq!(acquire(&desk, B, "1", "ask"), "0");
    assert_eq!(stored(&desk), ["free = 0", &held]);
    // Without the message, the same.
    assert_eq!(acquire(&desk, B, "1", "look"), "0");
    assert_eq!(stored(&desk), ["free = 0", &held]);
}

#[tokio::test(start_paused = true)]
async fn a_release_grants_a_leased_permit_for_a_short_time() {
    let desk = waiting(leased(0), &[B]);
    assert_eq!(leased_release(&desk, A, &IDS[..1], "0"), "1");
    let told = format!("0 {} 1500 -", desk.now());
    assert_eq!(desk.messages(), [message(B, "G", &told)]);
    assert_eq!(lease(&desk, B, 0), in_ms(&desk, 1500).to_string());
    assert_eq!(desk.command(&["ZCARD", "held"]), "2");
    assert_eq!((free(&desk), queued(&desk)), ("0".into(), "[]".into()));
    // Two permits for one entry.
    let mut desk = leased(1);
    queue(&desk, &[format!("{B}=2")]);
    subscribe(&mut desk, &[B]);
    assert_eq!(leased_release(&desk, A, &IDS[..1], "0"), "1");
    for index in [0, 1] {
        assert_eq!(lease(&desk, B, index), in_ms(&desk, 1500).to_string());
    }
    assert_eq!(desk.command(&["ZCARD", "held"]), "3");
    assert_eq!(free(&desk), "0");
}

/// L2.
#[tokio::test(start_paused = true)]
async fn a_grant_without_a_receiver_is_undone() {
    let mut desk = waiting(plain(0), &[B, C]);
    desk.subscribe(&channel(B), 0);
    assert_eq!(release(&desk, A), "1");
    let told = [message(B, "P", "0"), message(C, "P", "0")];
    assert_eq!(desk.messages(), told);
    let granted = format!("granted = {C} {}", in_ms(&desk, 500));
    let held = format!("held = {C} 1");
    assert_eq!(stored(&desk), ["free = 0", &granted, &held]);

    let mut desk = waiting(leased(0), &[B, C]);
    desk.subscribe(&channel(B), 0);
    assert_eq!(leased_release(&desk, A, &IDS[..1], "0"), "1");
    assert_eq!(lease(&desk, B, 0), "nil");
    assert_eq!(lease(&desk, C, 0), in_ms(&desk, 1500).to_string());
    assert_eq!(desk.command(&["ZCARD", "held"]), "2");
    assert_eq!((free(&desk), queued(&desk)), ("0".into(), "[]".into()));

    // All processes of the queue are dead, so the permit is free for all.
    let mut desk = waiting(plain(0), &[B]);
    desk.subscribe(&channel(B), 0);
    assert_eq!(release(&desk, A), "0");
    assert_eq!(desk.messages(), [message(B, "P", "0"), "base 01".into()]);
    assert_eq!(stored(&desk), ["free = 1"]);
}

/// Without the right to take permits a release grants none.
#[tokio::test(start_paused = true)]
async fn a_grant_without_a_right_leaves_the_permit_free() {
    let mut desk = waiting(plain(0), &[B, C]);
    desk.refuse(&["DECRBY"]);
    assert_eq!(release(&desk, A), "-1");
    // The head keeps its place, and finds the error with its own request.
    assert_eq!(desk.messages(), ["base 1".into(), message(B, "P", "0")]);
    assert_eq!(desk.command(&["EXISTS", "held", "granted"]), "0");
    assert_eq!(free(&desk), "1");
    assert_eq!(queued(&desk), format!("[{B}=1 {C}=1]"));
}

/// A grant of plain permits that is not confirmed ends, and its process is notified: the first message may be lost.
#[tokio::test(start_paused = true)]
async fn a_request_takes_back_grants_that_were_not_confirmed() {
    for (ago, ended) in [(0, true), (1, true), (-1, false)] {
        let desk = plain(0);
        let ends = in_ms(&desk, 0).checked_add_signed(-ago).unwrap();
        desk.command(&["ZADD", "granted", &ends.to_string(), A]);
        let reply = acquire(&desk, C, "1", "try");
        if ended {
            assert_eq!(reply, "0");
            assert_eq!(desk.messages(), [message(A, "P", "0")]);
            assert_eq!(stored(&desk), ["free = 0", &format!("held = {C} 1")]);
        } else {
            // The grant ends in 1 ms.
            assert_eq!(reply, "-5");
            let (granted, held) = (format!("granted = {A} {ends}"), format!("held = {A} 1"));
            assert_eq!(stored(&desk), ["free = 0", &granted, &held]);
        }
    }
    // The owner has released since. Other grants are unaffected.
    let desk = plain(0);
    let ends = in_ms(&desk, 200).to_string();
    desk.command(&["ZADD", "granted", "9", B, &ends, A]);
    assert_eq!(acquire(&desk, C, "1", "try"), "-204");
    let (granted, held) = (format!("granted = {A} {ends}"), format!("held = {A} 1"));
    assert_eq!(stored(&desk), ["free = 0", &granted, &held]);
    assert_eq!(desk.messages(), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_request_reaps_ended_leases() {
    let desk = leased(0);
    desk.command(&["ZADD", "held", &in_ms(&desk, 0).to_string(), IDS[0]]);
    assert_eq!(take(&desk, C, &IDS[2..3], "try"), "0");
    let held = format!(
        "held = {} {} {} {}",
        IDS[1],
        in_ms(&desk, 5_000),
        IDS[2],
        in_ms(&desk, 9_000)
    );
    assert_eq!(stored(&desk), ["free = 0", &held]);
    // Redisson's "no lease" never ends.
    for (ends, reply) in [(in_ms(&desk, 700), "-704"), (922_337_203_685_477, "-3")] {
        let desk = leased(0);
        desk.command(&["ZREM", "held", IDS[1]]);
        desk.command(&["ZADD", "held", &ends.to_string(), IDS[0]]);
        let before = desk.keys();
        assert_eq!(take(&desk, C, &IDS[2..3], "try"), reply);
        assert_eq!(desk.keys(), before);
    }
}

/// The relay's `tend` serves the queue after a release of Redisson's. It also takes back what has ended.
#[tokio::test(start_paused = true)]
async fn tend_serves_the_queue() {
    let desk = waiting(plain(0), &[B, C]);
    desk.command(&["ZADD", "granted", "9", A]);
    assert_eq!(tend(&desk), "-1");
    let told = [
        message(A, "P", "0"),
        message(B, "P", "0"),
        message(C, "N", "500"),
    ];
    assert_eq!(desk.messages(), told);
    let granted = format!("granted = {B} {}", in_ms(&desk, 500));
    let held = format!("held = {B} 1");
    let line = format!("line = {C}=1 2, TTL 150000");
    let wake = format!("wake = granted {B}, TTL 60000");
    assert_eq!(stored(&desk), ["free = 0", &granted, &held, &line, &wake]);

    let desk = waiting(leased(0), &[B]);
    desk.command(&["ZADD", "held", &in_ms(&desk, 0).to_string(), IDS[0]]);
    assert_eq!(leased_tend(&desk, ""), "-1");
    assert_eq!(lease(&desk, B, 0), in_ms(&desk, 1500).to_string());
    assert_eq!((free(&desk), queued(&desk)), ("0".into(), "[]".into()));

    // Without a queue, what has ended is free, and the notes end.
    let desk = plain(0);
    desk.command(&["ZADD", "granted", "9", A]);
    notes(&desk, &["sentry", B]);
    assert_eq!(tend(&desk), "-1");
    assert_eq!(stored(&desk), ["free = 1"]);
    // P1: permits of a semaphore that was deleted do not make a new one.
    let desk = waiting(plain(0), &[B]);
    desk.command(&["ZADD", "granted", "9", A]);
    desk.command(&["DEL", "free"]);
    assert_eq!(tend(&desk), "-1");
    let line = format!("line = {B}=1 1, TTL 150000");
    assert_eq!(stored(&desk), [line]);
}

/// P6: the second run of a release returns nothing, so it is no turn of Redisson's clients, and sends no message.
#[tokio::test(start_paused = true)]
async fn a_release_that_returns_nothing_changes_nothing() {
    for owners in [&[][..], &[B]] {
        let mut desks = [waiting(plain(1), owners), waiting(leased(1), owners)];
        for desk in &mut desks {
            desk.subscribe("base", 3);
            notes(desk, &["turn", "1"]);
        }
        let before = desks.each_ref().map(Desk::keys);
        assert_eq!(plain_release(&desks[0], C, "1", "0"), "-2");
        assert_eq!(leased_release(&desks[1], C, &IDS[2..], "0"), "-2");
        assert_eq!(desks.each_ref().map(Desk::keys), before);
        assert_eq!(
            desks.each_ref().map(Desk::messages),
            [const { Vec::<String>::new() }; 2]
        );
    }
}

/// L9: a release that the relay reports proves that it receives Redisson's messages.
#[tokio::test(start_paused = true)]
async fn tend_of_the_relay_is_a_proof() {
    for (sentry, proves) in [(&B[..36], true), (&C[..36], false), ("", false)] {
        let desk = waiting(plain(0), &[B]);
        notes(&desk, &["sentry", B, "heard", "5", "unused", "9"]);
        assert_eq!(plain_tend(&desk, sentry), "-1");
        let heard = if proves {
            desk.now().to_string()
        } else {
            "5".into()
        };
        assert_eq!(note(&desk, "heard"), heard, "{sentry}");
        let unused = if sentry.is_empty() { "9" } else { "6" };
        assert_eq!(note(&desk, "unused"), unused);
    }
}

/// L4, L9: the head polls when a grant ends. After the relay it polls within 100 ms, and becomes the relay.
#[tokio::test(start_paused = true)]
async fn the_head_polls_when_a_grant_ends_or_the_relay_has_left() {
    for (sentry, ends, soon) in [
        (None, None, "500"),
        (None, Some(300), "300"),
        (Some(C), Some(300), "300"),
        (Some(B), None, "100"),
        (Some(B), Some(300), "100"),
        (Some(B), Some(60), "60"),
    ] {
        let desk = waiting(plain(0), &[B, C]);
        if let Some(ends) = ends {
            let ends = in_ms(&desk, ends).to_string();
            desk.command(&["ZADD", "granted", &ends, A2]);
        }
        if let Some(sentry) = sentry {
            notes(&desk, &["sentry", sentry]);
        }
        assert_eq!(release(&desk, A), "1");
        let told = [message(B, "P", "0"), message(C, "N", soon)];
        assert_eq!(desk.messages(), told, "{sentry:?} {ends:?}");
        let relay = sentry.filter(|it| *it != B).unwrap_or("nil");
        assert_eq!(note(&desk, "sentry"), relay);
    }
}

/// L4, L9.
#[tokio::test(start_paused = true)]
async fn a_process_that_leaves_the_queue_passes_its_watch_on() {
    for polls in ["", "?"] {
        for relay in [false, true] {
            let mut desk = plain(0);
            desk.command(&["HSET", "held", A, "1"]);
            desk.subscribe(&channel(C), 1);
            for (n, entry) in [format!("{B}=1{polls}"), format!("{C}=1")]
                .iter()
                .enumerate()
            {
                desk.command(&["ZADD", "line", &n.to_string(), entry]);
            }
            // The grant of another owner ends in 300 ms.
            let ends = (desk.now() / 1000 + 300).to_string();
            desk.command(&["ZADD", "granted", &ends, A]);
            desk.command(&["HSET", "wake", "x", "y"]);
            if relay {
                desk.command(&["HSET", "wake", "sentry", B]);
            }
            assert_eq!(quit(&desk, B), "0");
            assert_eq!(
                desk.command(&["ZRANGE", "line", "0", "-1"]),
                format!("[{C}=1]")
            );
            assert_eq!(desk.command(&["HGET", "wake", "sentry"]), "nil");
            let soon = if relay { "100" } else { "300" };
            let message = format!("{} N {C} {soon}", channel(C));
            assert_eq!(desk.messages(), [message]);
        }
    }
}

/// L4: only the head watches the end of a grant.
#[tokio::test(start_paused = true)]
async fn a_process_that_leaves_behind_the_head_sends_no_message() {
    for sentry in [None, Some(B)] {
        let desk = waiting(plain(0), &[B, C, D]);
        let ends = in_ms(&desk, 300).to_string();
        desk.command(&["ZADD", "granted", &ends, A]);
        notes(&desk, &["sentry", sentry.unwrap_or(A2)]);
        let before = stored(&desk);
        assert_eq!(quit(&desk, C), "0");
        assert_eq!(desk.messages(), [""; 0]);
        let line = format!("line = {B}=1 1 {D}=1 3, TTL 150000");
        let mut after = before.clone();
        after[3].clone_from(&line);
        assert_eq!(stored(&desk), after);
        // It has left already.
        assert_eq!(quit(&desk, C), "-2");
        assert_eq!(stored(&desk), after);
        assert_eq!(desk.messages(), [""; 0]);
    }
}

/// The notes end with the queue.
#[tokio::test(start_paused = true)]
async fn the_last_process_that_leaves_removes_the_notes() {
    for polls in ["", "?"] {
        let desk = plain(0);
        queue(&desk, &[format!("{B}=1{polls}")]);
        notes(&desk, &["sentry", B, B, "5"]);
        assert_eq!(quit(&desk, B), "0");
        assert_eq!(stored(&desk), ["free = 0", &format!("held = {A} 1")]);
        assert_eq!(desk.messages(), [""; 0]);
    }
}

/// P3, L12: a grant that crossed the end of the wait passes to the next process.
#[tokio::test(start_paused = true)]
async fn a_process_that_leaves_returns_a_grant_that_crossed_its_request() {
    let desk = waiting(plain(0), &[C]);
    let ends = in_ms(&desk, 300).to_string();
    desk.command(&["ZADD", "granted", &ends, A]);
    assert_eq!(quit(&desk, A), "1");
    assert_eq!(desk.messages(), [message(C, "P", "0")]);
    let granted = format!("granted = {C} {}", in_ms(&desk, 500));
    let held = format!("held = {C} 1");
    assert_eq!(stored(&desk), ["free = 0", &granted, &held]);
}

/// P1, P6: permits of a semaphore that was deleted return nothing.
#[tokio::test(start_paused = true)]
async fn a_semaphore_that_is_missing_has_no_holders() {
    for ask in ["try", "new"] {
        let desk = plain(0);
        desk.command(&["ZADD", "granted", "9", A]);
        desk.command(&["DEL", "free"]);
        let reply = acquire(&desk, A, "1", ask);
        let line = format!("line = {A}=1 {}, TTL 22500", desk.now());
        if ask == "try" {
            assert_eq!((reply.as_str(), stored(&desk)), ("-3", vec![]));
        } else {
            assert_eq!(reply, format!("[-5004 {0} {0} 1 0 0 none]", desk.now()));
            assert_eq!(stored(&desk), [line]);
        }
    }
    for waits in [false, true] {
        let desk = waiting(plain(0), if waits { &[B] } else { &[] });
        desk.command(&["DEL", "free"]);
        desk.command(&["HSET", "held", C, "1"]);
        assert_eq!(release(&desk, A), "-2");
        let line = format!("line = {B}=1 1, TTL 150000");
        assert_eq!(stored(&desk), if waits { vec![line] } else { vec![] });
        assert_eq!(desk.messages(), [""; 0]);
    }
}

/// P6.
#[tokio::test(start_paused = true)]
async fn a_replay_without_a_queue_takes_nothing_again() {
    let desk = plain(3);
    let before = desk.keys();
    assert_eq!(acquire(&desk, A, "1", "new"), "0");
    assert_eq!(desk.keys(), before);
    assert_eq!(acquire(&desk, B, "2", "new"), "0");
    let held = format!("held = {A} 1 {B} 2");
    assert_eq!(stored(&desk), ["free = 1", &held]);
    // R3, R8: a longer lease stays, and a full server is no obstacle.
    for full in [false, true] {
        let mut desk = leased(3);
        desk.fill(full);
        let longer = in_ms(&desk, 60_000).to_string();
        desk.command(&["ZADD", "held", &longer, IDS[1]]);
        assert_eq!(take(&desk, A, &IDS[..2], "new"), "0");
        let ends = in_ms(&desk, 9_000);
        let held = format!("held = {} {ends} {} {longer}", IDS[0], IDS[1]);
        assert_eq!(stored(&desk), ["free = 3", &held]);
    }
}

/// Some of the permits of an earlier run have ended: the request starts again, as one that holds none.
#[tokio::test(start_paused = true)]
async fn a_refused_request_keeps_no_permit_of_an_earlier_run() {
    let desk = leased(0);
    assert_eq!(take(&desk, A, &IDS[1..3], "try"), "-5004");
    let held = format!("held = {} {}", IDS[0], in_ms(&desk, 5_000));
    assert_eq!(stored(&desk), ["free = 1", &held]);
}

/// While the slot migrates, a release names the number and the ledger alone.
#[tokio::test(start_paused = true)]
async fn a_release_in_a_migrating_slot_leaves_the_queue_alone() {
    let desk = waiting(plain(0), &[B]);
    let line = format!("line = {B}=1 1, TTL 150000");
    assert_eq!(super::direct::plain_release_alone(&desk, A), "0");
    assert_eq!(desk.messages(), ["base 1"]);
    assert_eq!(stored(&desk), ["free = 1", &line]);
}
