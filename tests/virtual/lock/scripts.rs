//! Runs the lock's scripts directly, in states and with refusals that clients rarely cause: late requests, rights that are missing, a server
//! at maxmemory, and foreign values.

use stanchion_lock::scripts::{ACQUIRE, HAND_OFF, RELEASE, TEND};
use stanchion_tests::desk::{A, B, C, Desk};

const KEYS: [&str; 4] = ["job", "fence", "line", "wake"];
/// The next owner of the process of [`A`].
const A2: &str = "aaaaaaaa-0000-8000-8000-000000000000:2";
const LATE: u64 = 0;
const IN_TIME: u64 = 10_000_000;

pub(super) fn at_a() -> String {
    channel(A)
}

pub(super) fn channel(owner: &str) -> String {
    format!("base:{}", &owner[..36])
}

/// Sends an acquire that may run until `life` µs from now.
fn acquire_within(desk: &Desk, owner: &str, ask: &str, life: u64) -> String {
    let not_after = (desk.now() + life - 1).to_string();
    let args = [owner, "30000", &not_after, ask, "PUBLISH", "base"];
    desk.run((ACQUIRE.text(), &KEYS, &args))
}

/// Sends an acquire for `lease` ms.
pub(super) fn acquire_for(desk: &Desk, owner: &str, lease: &str, ask: &str) -> String {
    let not_after = (desk.now() + IN_TIME).to_string();
    let args = [owner, lease, &not_after, ask, "PUBLISH", "base"];
    desk.run((ACQUIRE.text(), &KEYS, &args))
}

pub(super) fn acquire(desk: &Desk, owner: &str, ask: &str) -> String {
    acquire_within(desk, owner, ask, IN_TIME)
}

fn hand_off_within(desk: &Desk, keep: bool, life: u64) -> String {
    let not_after = (desk.now() + life - 1).to_string();
    let keep = if keep { "1" } else { "0" };
    let args = ["base", "PUBLISH", A, A2, "30000", &not_after, keep];
    desk.run((HAND_OFF.text(), &KEYS, &args))
}

fn hand_off(desk: &Desk, keep: bool) -> String {
    hand_off_within(desk, keep, IN_TIME)
}

/// A hand-off at the end of the turn of this process.
pub(super) fn end_turn(desk: &Desk) -> String {
    hand_off(desk, false)
}

/// `sentry`: the uuid of the client that is the relay, or empty.
pub(super) fn tend(desk: &Desk, sentry: &str) -> String {
    desk.run((TEND.text(), &KEYS, &["base", "PUBLISH", sentry]))
}

pub(super) fn release(desk: &Desk, owner: &str, places: &str) -> String {
    desk.run((RELEASE.text(), &KEYS, &["base", "PUBLISH", owner, places]))
}

/// A lock that `owner` holds `count` times, for `ttl` ms.
pub(super) fn held(owner: &str, count: u64, ttl: u64) -> Desk {
    let desk = Desk::new();
    desk.command(&["HSET", "job", owner, &count.to_string()]);
    desk.command(&["PEXPIRE", "job", &ttl.to_string()]);
    desk
}

/// Adds entries to the queue, with the arrivals 1, 2, …
pub(super) fn queue(desk: &Desk, entries: &[&str]) {
    desk.queue("line", entries);
}

pub(super) fn queued(desk: &Desk) -> String {
    desk.command(&["ZRANGE", "line", "0", "-1"])
}

pub(super) fn holders(desk: &Desk) -> String {
    desk.command(&["HGETALL", "job"])
}

fn ttl(desk: &Desk) -> String {
    desk.command(&["PTTL", "job"])
}

pub(super) fn is_token(reply: &str) -> bool {
    reply.parse().is_ok_and(|token: i64| token > 0)
}

#[tokio::test(start_paused = true)]
async fn a_free_lock_is_taken_for_the_lease() {
    let desk = Desk::new();
    assert!(is_token(&acquire(&desk, A, "new")));
    assert_eq!(
        (holders(&desk), ttl(&desk)),
        (format!("{{{A} 1}}"), "30000".into())
    );
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_set_a_lease_an_acquire_takes_nothing() {
    let mut desk = Desk::new();
    desk.refuse(&["PEXPIRE"]);
    assert!(acquire(&desk, A, "new").starts_with("error NOPERM"));
    assert_eq!(holders(&desk), "{}");
    queue(&desk, &[B]);
    assert!(acquire(&desk, A, "ask").starts_with("error NOPERM"));
    assert_eq!(
        (holders(&desk), queued(&desk)),
        ("{}".into(), format!("[{B}]"))
    );
    // R4: a replay that fails keeps the hold.
    let mut desk = held(A, 3, 1_000);
    desk.refuse(&["PEXPIRE"]);
    assert!(acquire(&desk, A, "ask").starts_with("error NOPERM"));
    assert_eq!(holders(&desk), format!("{{{A} 3}}"));
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_late_request_changes_nothing() {
    for (holder, entries) in [
        (None, vec![]),
        (None, vec![B]),
        (Some(A), vec![A]),
        (Some(B), vec![C]),
    ] {
        let desk = holder.map_or_else(Desk::new, |holder| held(holder, 1, 9_000));
        queue(&desk, &entries);
        let before = desk.keys();
        for ask in ["new", "ask", "look"] {
            assert_eq!(
                acquire_within(&desk, A, ask, LATE),
                "-1",
                "{holder:?} {entries:?}"
            );
        }
        for keep in [true, false] {
            assert_eq!(hand_off_within(&desk, keep, LATE), "-1", "{holder:?}");
        }
        assert_eq!(
            (desk.keys(), desk.messages()),
            (before, vec![]),
            "{holder:?} {entries:?}"
        );
    }
}

/// R3, R4, P6.
#[tokio::test(start_paused = true)]
async fn a_replay_keeps_the_count_and_the_longer_lease() {
    for (before, after) in [(60_000, "60000"), (1_000, "30000")] {
        let desk = held(A, 3, before);
        queue(&desk, &[A, B]);
        assert!(is_token(&acquire(&desk, A, "look")));
        assert_eq!(
            (holders(&desk), ttl(&desk)),
            (format!("{{{A} 3}}"), after.into())
        );
        assert_eq!((queued(&desk), desk.messages()), (format!("[{B}]"), vec![]));
    }
    // The same for a hand-off.
    for (before, after) in [(60_000, "60000"), (1_000, "30000")] {
        let desk = held(A2, 3, before);
        assert!(is_token(&hand_off(&desk, true)));
        assert_eq!(
            (holders(&desk), ttl(&desk)),
            (format!("{{{A2} 3}}"), after.into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_lock_in_use_as_a_read_write_lock_is_an_error() {
    let desk = held("mode", 1, 9_000);
    queue(&desk, &[B]);
    let before = desk.keys();
    for ask in ["new", "ask", "look", "try"] {
        assert!(acquire(&desk, A, ask).starts_with("error WRONGTYPE"));
    }
    assert_eq!(desk.keys(), before);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_leaves_the_queue_as_it_is() {
    let desk = held(B, 1, 1_000);
    assert_eq!(acquire(&desk, A, "try"), "-1004");
    assert_eq!(queued(&desk), "[]");
    let mut desk = Desk::new();
    desk.subscribe(&channel(B), 1);
    queue(&desk, &[B]);
    assert!(is_token(&acquire(&desk, A, "try")));
    assert_eq!((queued(&desk), desk.messages()), (format!("[{B}]"), vec![]));
}

/// L6.
#[tokio::test(start_paused = true)]
async fn a_new_waiter_and_a_client_that_polls_do_not_overtake() {
    let mut desk = Desk::new();
    desk.subscribe(&channel(B), 1);
    queue(&desk, &[B]);
    // The second entry tries 50 ms later, with the word `ask`.
    assert_eq!(
        acquire(&desk, A, "new 77"),
        format!("[-54 {} 77 0 0 1]", desk.now())
    );
    assert_eq!(holders(&desk), "{}");
    let polls = format!("{C}?");
    assert_eq!(
        acquire(&desk, C, "ask 99 0?"),
        format!("[-54 {} 99 0 0 0]", desk.now())
    );
    assert_eq!(queued(&desk), format!("[{B} {A} {polls}]"));
    for entry in [B, A] {
        desk.command(&["ZREM", "line", entry]);
    }
    assert!(is_token(&acquire(&desk, C, "ask 99 0?")));
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_replaces_the_owner() {
    for full in [false, true] {
        let mut desk = held(A, 2, 50_000);
        desk.fill(full);
        assert!(is_token(&hand_off(&desk, true)), "at maxmemory: {full}");
        assert_eq!(
            (holders(&desk), ttl(&desk)),
            (format!("{{{A2} 1}}"), "30000".into())
        );
        assert_eq!((queued(&desk), desk.messages()), ("[]".into(), vec![]));
    }
}

/// R7: the old owner does not hold, and the new owner has neither a hold nor an entry.
#[tokio::test(start_paused = true)]
async fn a_hand_off_without_a_hold_changes_nothing() {
    for desk in [Desk::new(), held(B, 1, 9_000)] {
        queue(&desk, &[B]);
        let before = desk.keys();
        for keep in [true, false] {
            assert_eq!(hand_off(&desk, keep), "-2");
        }
        assert_eq!(desk.keys(), before);
    }
}

/// R15: the client then releases.
#[tokio::test(start_paused = true)]
async fn a_hand_off_that_fails_leaves_the_old_owner() {
    let desk = held(A, 2, 9_000);
    desk.command(&["SET", "fence", "x"]);
    assert!(hand_off(&desk, true).starts_with("error WRONGTYPE"));
    assert_eq!(
        (holders(&desk), desk.messages()),
        (format!("{{{A} 2}}"), vec![])
    );
    assert_eq!(desk.command(&["GET", "fence"]), "x");
    for refused in ["PEXPIRE", "SET", "HSET"] {
        let mut desk = held(A, 2, 9_000);
        desk.refuse(&[refused]);
        assert!(hand_off(&desk, true).starts_with("error NOPERM"));
        assert_eq!(holders(&desk), format!("{{{A} 2}}"));
    }
}

/// The ninth hand-off in a row, and one after each waiter of the process has had a hold.
#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_turn_a_process_keeps_the_lock_if_no_other_waits() {
    type Others<'a> = (&'a str, &'a dyn Fn(&mut Desk));
    let sharded = |desk: &mut Desk| desk.subscribe_sharded("base", 1);
    let others: [Others<'_>; 5] = [
        ("nobody", &|_| ()),
        ("a relay", &|desk| {
            desk.subscribe("base", 1);
            desk.subscribe("base:stanchion", 1);
        }),
        ("another channel", &sharded),
        ("Redisson", &|desk| desk.subscribe("base", 1)),
        ("unknown", &|desk| desk.refuse(&["PUBSUB"])),
    ];
    for (who, set) in others {
        for keep in ["0", "2"] {
            let mut desk = held(A, 2, 9_000);
            set(&mut desk);
            let not_after = (desk.now() + IN_TIME).to_string();
            let args = ["base", "PUBLISH", A, A2, "30000", &not_after, keep];
            let kept = is_token(&desk.run((HAND_OFF.text(), &KEYS, &args)));
            let waits = matches!(who, "Redisson" | "unknown");
            assert_eq!(kept, !waits, "{who} {keep}");
            let holder = if waits {
                "{}".into()
            } else {
                format!("{{{A2} 1}}")
            };
            assert_eq!(holders(&desk), holder, "{who} {keep}");
            if !waits {
                assert_eq!(ttl(&desk), "30000");
                assert_eq!((queued(&desk), desk.messages()), ("[]".into(), vec![]));
            }
        }
    }
    // With `SPUBLISH` subscribers of both kinds of channels are counted accordingly.
    let mut desk = held(A, 2, 9_000);
    sharded(&mut desk);
    let not_after = (desk.now() + IN_TIME).to_string();
    let args = ["base", "SPUBLISH", A, A2, "30000", &not_after, "0"];
    assert!(!is_token(&desk.run((HAND_OFF.text(), &KEYS, &args))));
    assert_eq!(holders(&desk), "{}");
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_turn_a_process_is_queued_and_the_head_is_granted() {
    for full in [false, true] {
        let mut desk = held(A, 2, 9_000);
        desk.command(&["SET", "fence", "7000000000000000"]);
        desk.subscribe(&channel(B), 1);
        queue(&desk, &[B]);
        desk.fill(full);
        let now = desk.now();
        assert_eq!(hand_off(&desk, false), format!("[-1504 {now} {now} 0 0 0]"));
        assert_eq!(
            (holders(&desk), ttl(&desk)),
            (format!("{{{B} 1}}"), "1500".into())
        );
        assert_eq!(queued(&desk), format!("[{A2}]"));
        assert_eq!(desk.command(&["PTTL", "line"]), "150000");
        let grant = format!("{} G {B} 7000000000000001 {} 1500 fence", channel(B), now);
        let poll = format!("{} N {A2} 1500", at_a());
        assert_eq!(desk.messages(), [grant, poll]);
        // P6: a replay finds the entry, which keeps its arrival.
        desk.command(&["ZADD", "line", "5", A2]);
        let now = desk.now();
        assert_eq!(hand_off(&desk, false), format!("[-1504 {now} 5 0 0 0]"));
        assert_eq!(
            (queued(&desk), desk.messages()),
            (format!("[{A2}]"), vec![])
        );
    }
}

/// P6: the lock became free between the two runs.
#[tokio::test(start_paused = true)]
async fn a_replay_at_the_end_of_a_turn_takes_a_free_lock() {
    let desk = Desk::new();
    queue(&desk, &[A2, B]);
    assert!(is_token(&hand_off(&desk, false)));
    assert_eq!(
        (holders(&desk), queued(&desk)),
        (format!("{{{A2} 1}}"), format!("[{B}]"))
    );
}

#[tokio::test(start_paused = true)]
async fn at_the_end_of_its_turn_a_process_leaves_the_lock_to_redisson() {
    let mut desk = held(A, 2, 9_000);
    desk.subscribe("base", 1);
    desk.subscribe(&at_a(), 1);
    desk.command(&["HSET", "wake", "turn", "1"]);
    let now = desk.now();
    assert_eq!(hand_off(&desk, false), format!("[-6 {now} {now} 1 0 1]"));
    assert_eq!(
        (holders(&desk), queued(&desk)),
        ("{}".into(), format!("[{A2}]"))
    );
    assert_eq!(
        desk.messages(),
        ["base 00".to_owned(), format!("{} P {A2} 2", at_a())]
    );
    assert_eq!(desk.command(&["PTTL", "line"]), "22500");
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_queue_publishes_for_redisson() {
    for (subscribers, reply) in [(0, "0"), (3, "3")] {
        let mut desk = held(A, 2, 9_000);
        desk.subscribe("base", subscribers);
        assert_eq!(release(&desk, A, "0"), reply);
        assert_eq!(
            (holders(&desk), desk.messages()),
            ("{}".into(), vec!["base 0".to_owned()])
        );
        // The second run finds no hold.
        assert_eq!(
            (release(&desk, A, "1"), desk.messages()),
            ("-2".into(), vec![])
        );
    }
    let mut desk = held(A, 2, 9_000);
    desk.refuse(&["PUBLISH"]);
    assert_eq!(
        (release(&desk, A, "0"), holders(&desk)),
        ("-1".into(), "{}".into())
    );
}

/// L4.
#[tokio::test(start_paused = true)]
async fn a_process_that_leaves_the_queue_of_a_held_lock_passes_its_watch_on() {
    for entry in [A.to_owned(), format!("{A}?")] {
        let mut desk = held(C, 1, 900);
        desk.subscribe(&channel(B), 1);
        queue(&desk, &[&entry, B]);
        desk.command(&["HSET", "wake", A, "5"]);
        assert_eq!(release(&desk, A, "1"), "0");
        assert_eq!(queued(&desk), format!("[{B}]"));
        assert_eq!(desk.command(&["EXISTS", "wake"]), "0");
        assert_eq!(desk.messages(), [format!("{} N {B} 900", channel(B))]);
    }
    // Not the head, not in the queue, or not asked to leave.
    for (entries, places, reply) in [([B, A], "1", "0"), ([B, C], "1", "-2"), ([A, B], "0", "-2")] {
        let desk = held(C, 1, 900);
        queue(&desk, &entries);
        assert_eq!(
            (release(&desk, A, places), desk.messages()),
            (reply.into(), vec![])
        );
    }
    // The last one removes the notes.
    let desk = held(C, 1, 900);
    queue(&desk, &[A]);
    desk.command(&["HSET", "wake", "turn", "5"]);
    assert_eq!(release(&desk, A, "1"), "0");
    assert_eq!(desk.command(&["EXISTS", "line", "wake"]), "0");
}

/// P6: the reply says what this run has found.
#[tokio::test(start_paused = true)]
async fn a_repeated_release_of_a_free_lock_serves_the_queue() {
    let mut desk = Desk::new();
    desk.subscribe(&channel(B), 1);
    queue(&desk, &[B]);
    assert_eq!(release(&desk, A, "1"), "-2");
    assert_eq!(
        (holders(&desk), queued(&desk)),
        (format!("{{{B} 1}}"), "[]".into())
    );
    let mut desk = Desk::new();
    desk.subscribe(&channel(B), 1);
    queue(&desk, &[A, B]);
    assert_eq!(release(&desk, A, "1"), "1");
    assert_eq!(
        (holders(&desk), queued(&desk)),
        (format!("{{{B} 1}}"), "[]".into())
    );
}

/// L9.
#[tokio::test(start_paused = true)]
async fn the_relay_serves_the_queue_of_a_free_lock_only() {
    let tend = |desk: &Desk| tend(desk, &A[..36]);
    let mut desk = held(C, 1, 900);
    desk.subscribe(&channel(B), 1);
    queue(&desk, &[B]);
    desk.command(&["HSET", "wake", "sentry", A, "unused", "3", "heard", "5"]);
    assert_eq!((tend(&desk), desk.messages()), ("-1".into(), vec![]));
    assert_eq!(desk.command(&["HGET", "wake", "unused"]), "3");
    assert_eq!(
        desk.command(&["HGET", "wake", "heard"]),
        desk.now().to_string()
    );
    desk.command(&["DEL", "job"]);
    assert_eq!(
        (tend(&desk), holders(&desk)),
        ("-1".into(), format!("{{{B} 1}}"))
    );
    desk.command(&["DEL", "job"]);
    assert_eq!((tend(&desk), holders(&desk)), ("-1".into(), "{}".into()));
}
