//! The set-up of the tests that run the multi-lock's scripts directly: two locks, their queues, and requests.

use stanchion_multilock::scripts::{ACQUIRE, RELEASE, TEND};
use stanchion_tests::desk::Desk;

pub(super) const KEYS: [&str; 7] = ["a", "b", "line a", "line b", "wake a", "wake b", "fence"];
pub(super) const D: &str = "dddddddd-0000-8000-8000-000000000000:1";
pub(super) const LATE: u64 = 0;
pub(super) const IN_TIME: u64 = 10_000_000;

/// Both locks, held by `owner` for 50 s.
pub(super) fn held(owner: &str) -> Desk {
    let desk = Desk::new();
    for lock in ["a", "b"] {
        hold(&desk, lock, owner, 50_000);
    }
    desk
}

pub(super) fn hold(desk: &Desk, lock: &str, owner: &str, ttl: u64) {
    desk.command(&["HSET", lock, owner, "1"]);
    desk.command(&["PEXPIRE", lock, &ttl.to_string()]);
}

/// A state in which `owner` holds this lock for 900 ms, and the other one is free.
pub(super) fn busy(lock: &str, owner: &str) -> Desk {
    let desk = Desk::new();
    hold(&desk, lock, owner, 900);
    desk
}

pub(super) fn acquire_within(desk: &Desk, owner: &str, ask: &str, life: u64) -> String {
    let not_after = (desk.now() + life - 1).to_string();
    let args = [
        owner, "30000", &not_after, "2", "PUBLISH", ask, "base a", "base b", "1", "1",
    ];
    desk.run((ACQUIRE.text(), &KEYS, &args))
}

pub(super) fn acquire(desk: &Desk, owner: &str, ask: &str) -> String {
    acquire_within(desk, owner, ask, IN_TIME)
}

pub(super) fn release(desk: &Desk, owner: &str, places: &str) -> String {
    let args = [owner, "PUBLISH", "2", places, "base a", "base b", "1", "1"];
    desk.run((RELEASE.text(), &KEYS, &args))
}

/// A release of locks without fencing tokens.
pub(super) fn release_without_counters(desk: &Desk, owner: &str) -> String {
    let args = [owner, "PUBLISH", "2", "0", "base a", "base b", "0", "0"];
    desk.run((RELEASE.text(), &KEYS[..6], &args))
}

pub(super) fn tend(desk: &Desk) -> String {
    let args = ["PUBLISH", "2", "base a", "base b", "1", "1"];
    desk.run((TEND.text(), &KEYS, &args))
}

pub(super) fn queue(desk: &Desk, lock: &str, entries: &[&str]) {
    desk.queue(&format!("line {lock}"), entries);
}

/// Adds 17 entries of processes that are not subscribed, more than one run removes.
pub(super) fn queue_dead(desk: &Desk, lock: &str) {
    let dead: Vec<_> = (0..17)
        .map(|n| format!("00000000-0000-8000-8000-{n:012}:1"))
        .collect();
    let dead: Vec<_> = dead.iter().map(String::as_str).collect();
    queue(desk, lock, &dead);
}

pub(super) fn notes(desk: &Desk, lock: &str, fields: &[&str]) {
    let wake = format!("wake {lock}");
    desk.command(&[&["HSET", &wake], fields].concat());
    desk.command(&["PEXPIRE", &wake, "60000"]);
}

fn channel(lock: &str, owner: &str) -> String {
    format!("base {lock}:{}", &owner[..36])
}

pub(super) fn subscribed(desk: &mut Desk, waiters: &[(&str, &str)]) {
    for (lock, owner) in waiters {
        desk.subscribe(&channel(lock, owner), 1);
    }
}

pub(super) fn message(lock: &str, owner: &str, word: &str, rest: &str) -> String {
    format!("{} {word} {owner} {rest}", channel(lock, owner))
}

/// The message of a grant of one lock, with this token.
pub(super) fn granted(desk: &Desk, lock: &str, owner: &str, token: u64) -> String {
    let rest = format!("{token} {} 1500 fence", desk.now());
    message(lock, owner, "G", &rest)
}

pub(super) fn holders(desk: &Desk) -> [String; 2] {
    ["a", "b"].map(|lock| desk.command(&["HGETALL", lock]))
}

pub(super) fn both(owner: &str) -> [String; 2] {
    [format!("{{{owner} 1}}"), format!("{{{owner} 1}}")]
}

pub(super) fn queued(desk: &Desk) -> [String; 2] {
    ["line a", "line b"].map(|line| desk.command(&["ZRANGE", line, "0", "-1"]))
}

pub(super) fn lines<const N: usize>(all: [String; N]) -> String {
    all.join("\n")
}
