//! Runs the fair lock's scripts directly, in states and with refusals that clients rarely cause: late requests, rights that are missing, a
//! server at maxmemory, and places that were removed.

use stanchion_fair::scripts::{ABANDON, ACQUIRE, RELEASE, RELEASE_AND_ACQUIRE, TEND};
use stanchion_tests::desk::{A, B, C, Desk};

const KEYS: [&str; 6] = ["job", "queue", "timeouts", "waiters", "wake", "fence"];
/// The longest wait of Redisson's clients, ms.
const WAIT: &str = "300000";
pub(super) const LIFE: u64 = 9_000_000;
/// The next owner of the process of [`A`], and one more.
pub(super) const A2: &str = "aaaaaaaa-0000-8000-8000-000000000000:2";
pub(super) const A3: &str = "aaaaaaaa-0000-8000-8000-000000000000:3";
pub(super) const D: &str = "dddddddd-0000-8000-8000-000000000000:1";
/// A waiter of Redisson's.
pub(super) const JAVA: &str = "eeeeeeee-0000-4000-8000-000000000000:1";

fn acquire_within(desk: &Desk, owner: &str, arrived: &str, hears: &str, life: u64) -> String {
    let script = ACQUIRE.text();
    let until = (desk.now() + life - 1).to_string();
    let args = [
        "base", "PUBLISH", WAIT, owner, "30000", &until, arrived, hears,
    ];
    desk.run((script, &KEYS, &args))
}

/// The first request of a waiter, of a client that is subscribed.
pub(super) fn join(desk: &Desk, owner: &str) -> String {
    acquire_within(desk, owner, "0", "1", LIFE)
}

/// A later request.
pub(super) fn poll(desk: &Desk, owner: &str, arrived: &str) -> String {
    acquire_within(desk, owner, arrived, "1", LIFE)
}

/// A request of a client that is not subscribed.
pub(super) fn poll_unheard(desk: &Desk, owner: &str, arrived: &str) -> String {
    acquire_within(desk, owner, arrived, "0", LIFE)
}

/// A request that does not wait.
pub(super) fn attempt(desk: &Desk, owner: &str) -> String {
    acquire_within(desk, owner, "", "1", LIFE)
}

pub(super) fn release(desk: &Desk, owner: &str) -> String {
    release_one_of(desk, owner, "1")
}

pub(super) fn release_one_of(desk: &Desk, owner: &str, count: &str) -> String {
    let script = RELEASE.text();
    let args = ["base", "PUBLISH", WAIT, owner, count, "30000"];
    desk.run((script, &KEYS, &args))
}

/// A releases, and A2 acquires.
pub(super) fn release_and_acquire(desk: &Desk, life: u64) -> String {
    let script = RELEASE_AND_ACQUIRE.text();
    let until = (desk.now() + life - 1).to_string();
    let args = ["base", "PUBLISH", WAIT, A, A2, "30000", &until, "1"];
    desk.run((script, &KEYS, &args))
}

pub(super) fn abandon(desk: &Desk, owner: &str) -> String {
    let script = ABANDON.text();
    desk.run((script, &KEYS, &["base", "PUBLISH", WAIT, owner]))
}

pub(super) fn tend(desk: &Desk) -> String {
    let script = TEND.text();
    desk.run((script, &KEYS, &["base", "PUBLISH", WAIT]))
}

pub(super) fn channel(owner: &str) -> String {
    format!("base:{}", &owner[..36])
}

pub(super) fn message(owner: &str, word: &str, rest: &str) -> String {
    format!("{} {word} {owner} {rest}", channel(owner))
}

/// A grant by message.
pub(super) fn grant(desk: &Desk, owner: &str) -> String {
    let us = desk.now();
    message(owner, "G", &format!("{us} {us} 1500 fence"))
}

/// The server's time in `ms` from now.
pub(super) fn in_ms(desk: &Desk, ms: u64) -> u64 {
    desk.now() / 1000 + ms
}

/// The deadline that a request sets behind so many of Redisson's waiters.
pub(super) fn deadline(desk: &Desk, others: u64) -> u64 {
    in_ms(desk, (others + 2) * 300_000)
}

/// A lock that `owner` holds for `ttl` ms.
pub(super) fn held(owner: &str, ttl: u64) -> Desk {
    let desk = Desk::new();
    desk.command(&["HSET", "job", owner, "1"]);
    desk.command(&["PEXPIRE", "job", &ttl.to_string()]);
    desk
}

/// Adds waiters with the arrivals 1, 2, … Those of stanchion are subscribed.
pub(super) fn waiting(mut desk: Desk, owners: &[&str]) -> Desk {
    for (n, owner) in owners.iter().enumerate() {
        place(&desk, owner, n + 1);
        if *owner != JAVA {
            desk.subscribe(&channel(owner), 1);
        }
    }
    desk.command(&["PEXPIRE", "waiters", "150000"]);
    desk
}

fn place(desk: &Desk, owner: &str, arrival: usize) {
    desk.command(&["RPUSH", "queue", owner]);
    let deadline = deadline(desk, 0).to_string();
    desk.command(&["ZADD", "timeouts", &deadline, owner]);
    if owner != JAVA {
        desk.command(&["ZADD", "waiters", &arrival.to_string(), owner]);
    }
}

/// Removes the place of a waiter, not its entry in `waiters`.
pub(super) fn lose(desk: &Desk, owner: &str) {
    desk.command(&["LREM", "queue", "1", owner]);
    desk.command(&["ZREM", "timeouts", owner]);
}

/// Adds a note of `ago` µs ago.
pub(super) fn note(desk: &Desk, what: &str, ago: u64) {
    let at = (desk.now() - ago).to_string();
    desk.command(&["ZADD", "wake", &at, what]);
    desk.command(&["PEXPIRE", "wake", "10000"]);
}

pub(super) fn queued(desk: &Desk) -> String {
    desk.command(&["LRANGE", "queue", "0", "-1"])
}

pub(super) fn holders(desk: &Desk) -> String {
    desk.command(&["HGETALL", "job"])
}

pub(super) fn holds(desk: &Desk, owner: &str) -> bool {
    holders(desk) == format!("{{{owner} 1}}")
}

/// All keys with their contents, and the TTLs of those that end.
pub(super) fn stored(desk: &Desk) -> Vec<String> {
    let keys = desk.keys();
    let lines = keys.lines();
    lines
        .map(|it| it.trim_end_matches(", TTL -1").to_owned())
        .collect()
}

/// The keys of a lock and of a queue without Redisson's waiters: each has an arrival.
pub(super) fn kept(desk: &Desk, lock: Option<(&str, u64)>, places: &[(&str, u64)]) -> Vec<String> {
    let lock = lock.map(|(owner, ttl)| format!("job = {owner} 1, TTL {ttl}"));
    let queue: Vec<&str> = places.iter().map(|(it, _)| *it).collect();
    let end = deadline(desk, 0);
    let timeouts: Vec<String> = queue.iter().map(|it| format!("{it} {end}")).collect();
    let waiters: Vec<String> = places.iter().map(|(it, at)| format!("{it} {at}")).collect();
    let mut keys: Vec<String> = lock.into_iter().collect();
    if !places.is_empty() {
        keys.push(format!("queue = {}", queue.join(" ")));
        keys.push(format!("timeouts = {}", timeouts.join(" ")));
        keys.push(format!("waiters = {}, TTL 150000", waiters.join(" ")));
    }
    keys
}

/// A reply without a grant: ms to the next poll, the arrival, and 1 to poll at a random moment of that time.
pub(super) fn busy(desk: &Desk, ms: u64, arrival: u64, spread: u64) -> String {
    format!("[-{} {} {arrival} 0 {spread} 0  0 0]", ms + 4, desk.now())
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_is_taken() {
    for arrived in ["0", ""] {
        let desk = Desk::new();
        let token = acquire_within(&desk, A, arrived, "0", 1);
        assert_eq!(token, desk.now().to_string());
        let fence = format!("fence = {token}");
        assert_eq!(stored(&desk), [fence, format!("job = {A} 1, TTL 30000")]);
    }
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_late_request_changes_nothing() {
    for desk in [
        Desk::new(),
        held(B, 9_000),
        waiting(held(B, 9_000), &[A]),
        waiting(Desk::new(), &[A]),
        held(A, 9_000),
    ] {
        let before = desk.keys();
        for arrived in ["0", "1", ""] {
            assert_eq!(acquire_within(&desk, A, arrived, "0", 0), "-1");
        }
        assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
    }
}

/// R9.
#[tokio::test(start_paused = true)]
async fn without_the_right_to_set_a_lease_a_request_takes_nothing() {
    let mut desk = Desk::new();
    desk.refuse(&["PEXPIRE"]);
    assert!(join(&desk, A).starts_with("error NOPERM"));
    assert_eq!(desk.command(&["EXISTS", "job"]), "0");
    // A new waiter.
    let mut desk = held(C, 9_000);
    let before = desk.keys();
    desk.refuse(&["PEXPIRE"]);
    assert!(join(&desk, A).starts_with("error NOPERM"));
    assert_eq!(desk.keys(), before);
    // A waiter whose turn has come.
    let mut desk = waiting(Desk::new(), &[A]);
    desk.refuse(&["PEXPIRE"]);
    assert!(poll(&desk, A, "1").contains("NOPERM"));
    assert_eq!(desk.command(&["EXISTS", "job"]), "0");
    // Without the right to set their TTL, there are no notes.
    let mut desk = waiting(held(C, 9_000), &[A]);
    desk.refuse(&["PEXPIRE"]);
    poll_unheard(&desk, A, "1");
    assert_eq!(stored(&desk), kept(&desk, Some((C, 9_000)), &[(A, 1)]));
}

/// R16.
#[tokio::test(start_paused = true)]
async fn a_lock_in_use_as_another_kind_is_an_error() {
    let desk = waiting(held(C, 9_000), &[B]);
    desk.command(&["HSET", "job", "mode", "read"]);
    let before = desk.keys();
    for reply in [join(&desk, A), poll(&desk, B, "1"), attempt(&desk, A)] {
        assert!(reply.contains("WRONGTYPE"), "{reply}");
    }
    assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
}

/// F1, F7.
#[tokio::test(start_paused = true)]
async fn a_refused_request_joins_the_end_of_the_queue() {
    let mut desk = held(C, 9_000);
    desk.subscribe(&channel(A), 1);
    let at = desk.now();
    assert_eq!(join(&desk, A), busy(&desk, 5_000, at, 0));
    let places = [(A, at)];
    assert_eq!(stored(&desk), kept(&desk, Some((C, 9_000)), &places));
    // Arrivals rise also within a microsecond, and if the clock goes back.
    assert_eq!(join(&desk, B), busy(&desk, 15_000, at + 1, 1));
    let places = [(A, at), (B, at + 1)];
    assert_eq!(stored(&desk), kept(&desk, Some((C, 9_000)), &places));
    // P6: a replay keeps the place.
    assert_eq!(join(&desk, A), busy(&desk, 5_000, at, 0));
    assert_eq!(stored(&desk), kept(&desk, Some((C, 9_000)), &places));
    assert_eq!(desk.messages(), [""; 0]);
}

/// R8.
#[tokio::test(start_paused = true)]
async fn at_maxmemory_a_waiter_keeps_its_place_and_a_new_one_is_refused() {
    let mut desk = waiting(held(C, 9_000), &[A]);
    desk.command(&["ZADD", "timeouts", "5", A]);
    desk.fill(true);
    let before = desk.keys();
    for reply in [join(&desk, B), acquire_within(&desk, B, "0", "0", LIFE)] {
        assert!(reply.starts_with("error OOM"), "{reply}");
    }
    assert_eq!(desk.keys(), before);
    assert_eq!(poll(&desk, A, "1"), busy(&desk, 5_000, 1, 0));
    assert_eq!(stored(&desk), kept(&desk, Some((C, 9_000)), &[(A, 1)]));
    // A release, the end of a wait, and `tend` grant there, too.
    for run in [
        |desk: &Desk| release(desk, C),
        |desk: &Desk| abandon(desk, C),
        |desk: &Desk| {
            desk.command(&["DEL", "job"]);
            tend(desk)
        },
    ] {
        let mut desk = waiting(held(C, 9_000), &[A]);
        desk.fill(true);
        run(&desk);
        assert!(holds(&desk, A));
        assert_eq!(desk.messages(), [grant(&desk, A)]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_queue_outlives_every_poll_pause() {
    for (before, after) in [("144999", 150_000), ("145000", 145_000)] {
        let desk = waiting(held(C, 9_000), &[A]);
        desk.command(&["PEXPIRE", "waiters", before]);
        poll(&desk, A, "1");
        let ttl = desk.command(&["PTTL", "waiters"]);
        assert_eq!(ttl, after.to_string());
    }
}

/// F3: a process without a subscription, or after a call, notes its request. Old notes are removed.
#[tokio::test(start_paused = true)]
async fn a_request_is_noted_where_the_queue_depends_on_it() {
    for (called, hears, notes) in [
        (None, "1", false),
        (None, "0", true),
        (Some(9_999_999), "1", true),
        (Some(10_000_001), "1", false),
    ] {
        let desk = waiting(held(C, 9_000), &[A]);
        if let Some(ago) = called {
            note(&desk, "called", ago);
        }
        let before = desk.command(&["ZRANGE", "wake", "0", "-1", "WITHSCORES"]);
        acquire_within(&desk, A, "1", hears, LIFE);
        let at = desk.command(&["ZSCORE", "wake", &A[..36]]);
        let now = desk.now().to_string();
        assert_eq!(at, if notes { &now } else { "nil" }, "{called:?} {hears}");
        if !notes {
            let after = desk.command(&["ZRANGE", "wake", "0", "-1", "WITHSCORES"]);
            assert_eq!(before, after);
        }
    }
    let desk = waiting(held(C, 9_000), &[A]);
    note(&desk, "old", 10_000_000);
    note(&desk, "watched", 9_999_999);
    desk.command(&["PEXPIRE", "wake", "1"]);
    poll_unheard(&desk, A, "1");
    let wake = desk.command(&["ZRANGE", "wake", "0", "-1"]);
    assert_eq!(wake, format!("[watched {}]", &A[..36]));
    assert_eq!(desk.command(&["PTTL", "wake"]), "10000");
}

/// F5.
#[tokio::test(start_paused = true)]
async fn a_waiter_whose_place_was_removed_takes_it_again_by_its_arrival() {
    for (arrived, order) in [
        ("1", format!("[{A} {B} {D}]")),
        ("3", format!("[{B} {A} {D}]")),
        ("9", format!("[{B} {D} {A}]")),
    ] {
        let desk = waiting(held(C, 9_000), &[]);
        let mut desk = desk;
        for (owner, arrival) in [(B, 2), (D, 5)] {
            place(&desk, owner, arrival);
            desk.subscribe(&channel(owner), 1);
        }
        let reply = poll(&desk, A, arrived);
        assert!(reply.ends_with(" 1 0]"), "{reply}");
        assert_eq!(queued(&desk), order);
        let places = desk.command(&["ZSCORE", "waiters", A]);
        assert_eq!(places, arrived);
        let ends = deadline(&desk, 0).to_string();
        assert_eq!(desk.command(&["ZSCORE", "timeouts", A]), ends);
    }
    // The next one has lost its place, too.
    let desk = waiting(held(C, 9_000), &[A, B, D]);
    lose(&desk, A);
    lose(&desk, B);
    poll(&desk, A, "1");
    assert_eq!(queued(&desk), format!("[{A} {D}]"));
    // Its place was removed from the list alone.
    let desk = waiting(held(C, 9_000), &[A, B]);
    lose(&desk, A);
    desk.command(&["DEL", "queue"]);
    poll(&desk, A, "1");
    assert_eq!(queued(&desk), format!("[{A}]"));
}

/// R3, P6: a grant by message that the process finds with its own request.
#[tokio::test(start_paused = true)]
async fn a_replay_grants_again_with_a_larger_token() {
    for (before, after) in [(60_000, "60000"), (1_000, "30000")] {
        for arrived in ["0", "1", ""] {
            let desk = waiting(held(A, before), &[B]);
            desk.command(&["ZADD", "waiters", "0", A]);
            let last = desk.now() + 7;
            desk.command(&["SET", "fence", &last.to_string()]);
            let reply = acquire_within(&desk, A, arrived, "1", LIFE);
            assert_eq!(reply, (last + 1).to_string());
            assert_eq!(desk.command(&["PTTL", "job"]), after);
            assert_eq!((queued(&desk), holds(&desk, A)), (format!("[{B}]"), true));
            assert_eq!(desk.messages(), [""; 0]);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_leaves_no_place() {
    for (ttl, reply) in [("9000", "-9004"), ("0", "-3")] {
        let desk = waiting(held(C, 9_000), &[B]);
        if ttl == "0" {
            desk.command(&["PERSIST", "job"]);
        }
        let before = desk.keys();
        assert_eq!(attempt(&desk, A), reply);
        assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
    }
    // The head of the queue is served.
    let desk = waiting(Desk::new(), &[B]);
    assert_eq!(attempt(&desk, A), "-1504");
    assert_eq!(desk.messages(), [grant(&desk, B)]);
    assert!(holds(&desk, B));
    // Only dead waiters were ahead.
    let mut desk = waiting(Desk::new(), &[B]);
    desk.subscribe(&channel(B), 0);
    let token = attempt(&desk, A);
    assert_eq!(token, (desk.now() + 1).to_string());
    let fence = format!("fence = {token}");
    assert_eq!(stored(&desk), [fence, format!("job = {A} 1, TTL 30000")]);
    // A waiter of Redisson's acquires for itself.
    let desk = waiting(Desk::new(), &[JAVA]);
    assert_eq!(attempt(&desk, A), "-3");
    assert_eq!(desk.messages(), [format!("base:{JAVA} 0")]);
}

/// F1: a new waiter takes a free lock only if the queue is empty.
#[tokio::test(start_paused = true)]
async fn a_new_waiter_does_not_overtake() {
    let desk = waiting(Desk::new(), &[B]);
    let at = desk.now();
    assert_eq!(join(&desk, A), busy(&desk, 1_550, at, 0));
    assert_eq!(desk.messages(), [grant(&desk, B), message(A, "N", "1500")]);
    assert!(holds(&desk, B));
    assert_eq!(queued(&desk), format!("[{A}]"));
    // The head is granted in the reply, for its whole lease.
    let desk = waiting(Desk::new(), &[A, B]);
    let token = poll(&desk, A, "1");
    assert_eq!(token, desk.now().to_string());
    assert_eq!(desk.messages(), [message(B, "N", "5000")]);
    let mut expected = vec![format!("fence = {token}")];
    expected.extend(kept(&desk, Some((A, 30_000)), &[(B, 2)]));
    assert_eq!(stored(&desk), expected);
}
