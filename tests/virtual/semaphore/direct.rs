//! Runs the scripts directly, in states and with refusals that clients rarely cause: late requests, rights that are missing, a server at
//! maxmemory, and permits that belong to others.

use stanchion_semaphore::scripts::{leased as of_leased, plain as of_plain, pool::TEND};
use stanchion_tests::desk::{A, B, C, Desk};

pub(super) const PLAIN: [&str; 6] = ["free", "held", "line", "wake", "granted", "idle"];
const LEASED: [&str; 5] = ["free", "held", "line", "wake", "idle"];
/// The ms for which a waiter keeps a semaphore that ends.
pub(super) const KEPT: &str = "8000";
const A2: &str = "aaaaaaaa-0000-8000-8000-000000000000:2";
/// The reply to a hand-off that does nothing, the state that it finds, and for how many µs it may run.
type Kept = (&'static str, fn() -> Desk, u64);
/// Ids of leased permits, of 16 bytes.
pub(super) const IDS: [&str; 4] = [
    "permit-0-of-16-b",
    "permit-1-of-16-b",
    "permit-2-of-16-b",
    "permit-3-of-16-b",
];

fn after(desk: &Desk, micros: u64) -> String {
    (desk.now() + micros).to_string()
}

/// A request that may run for `life` µs; 0: one µs ago.
fn until(desk: &Desk, life: u64) -> String {
    (desk.now() + life - 1).to_string()
}

fn plain_acquire(desk: &Desk, owner: &str, wanted: &str, ask: &str, life: u64) -> String {
    plain_acquire_of(desk, owner, wanted, ask, life, "")
}

/// `made`: the semaphore that the request creates if there is none.
pub(super) fn plain_acquire_of(
    desk: &Desk,
    owner: &str,
    wanted: &str,
    ask: &str,
    life: u64,
    made: &str,
) -> String {
    let script = of_plain::ACQUIRE.text();
    let until = until(desk, life);
    let args = [owner, wanted, &until, ask, "base", "PUBLISH", KEPT, made];
    desk.run((script, &PLAIN, &args))
}

pub(super) fn plain_tend(desk: &Desk, sentry: &str) -> String {
    let script = TEND.text();
    desk.run((script, &PLAIN, &["base", "PUBLISH", sentry]))
}

pub(super) fn leased_tend(desk: &Desk, sentry: &str) -> String {
    let script = TEND.text();
    let keys = ["free", "held", "line", "wake", "free", "idle"];
    desk.run((script, &keys, &["base", "PUBLISH", sentry]))
}

pub(super) fn plain_release(desk: &Desk, owner: &str, permits: &str, quits: &str) -> String {
    let script = of_plain::RELEASE.text();
    let args = [owner, permits, "base", "PUBLISH", quits];
    desk.run((script, &PLAIN, &args))
}

/// The release of a slot in migration.
pub(super) fn plain_release_alone(desk: &Desk, owner: &str) -> String {
    let script = of_plain::RELEASE.text();
    let keys = ["free", "held", "free", "free", "free", "free"];
    desk.run((script, &keys, &[owner, "1", "base", "PUBLISH", "0"]))
}

pub(super) fn plain_hand_off(desk: &Desk, life: u64) -> String {
    let until = until(desk, life);
    let args = [A2, &until, A, "1", "", "PUBLISH"];
    desk.run((of_plain::HAND_OFF.text(), &PLAIN[..4], &args))
}

fn leased_acquire(desk: &Desk, owner: &str, ids: &[&str], ask: &str, life: u64) -> String {
    leased_acquire_of(desk, owner, ids, ask, life, "")
}

pub(super) fn leased_acquire_of(
    desk: &Desk,
    owner: &str,
    ids: &[&str],
    ask: &str,
    life: u64,
    made: &str,
) -> String {
    let script = of_leased::ACQUIRE.text();
    let (ids, until) = (ids.concat(), until(desk, life));
    let args = [
        owner, &ids, "9000", &until, ask, "101", "base", "PUBLISH", KEPT, made,
    ];
    desk.run((script, &LEASED, &args))
}

pub(super) fn leased_release(desk: &Desk, owner: &str, ids: &[&str], quits: &str) -> String {
    let script = of_leased::RELEASE.text();
    let args = [owner, &ids.concat(), "base", "PUBLISH", quits];
    desk.run((script, &LEASED, &args))
}

pub(super) fn leased_hand_off(desk: &Desk, to: &[&str], from: &[&str], life: u64) -> String {
    let until = until(desk, life);
    let args = [&to.concat(), "9000", &until, &from.concat(), "", "PUBLISH"];
    desk.run((of_leased::HAND_OFF.text(), &LEASED, &args))
}

/// A semaphore with `free` permits, and one that A holds.
pub(super) fn plain(free: i64) -> Desk {
    let desk = Desk::new();
    desk.command(&["SET", "free", &free.to_string()]);
    desk.command(&["HSET", "held", A, "1"]);
    desk
}

/// A semaphore with `free` permits, and two leases, of the first two ids.
pub(super) fn leased(free: i64) -> Desk {
    let desk = Desk::new();
    desk.command(&["SET", "free", &free.to_string()]);
    let ends = (desk.now() / 1000 + 5_000).to_string();
    desk.command(&["ZADD", "held", &ends, IDS[0], &ends, IDS[1]]);
    desk
}

pub(super) fn free(desk: &Desk) -> String {
    desk.command(&["GET", "free"])
}

fn ledger(desk: &Desk) -> String {
    desk.command(&["HGETALL", "held"])
}

fn leases(desk: &Desk) -> String {
    desk.command(&["ZRANGE", "held", "0", "-1"])
}

pub(super) fn channel(owner: &str) -> String {
    format!("base:{}", &owner[..36])
}

/// A request for two permits has its turn until `micros` µs from now.
fn turn_of_b(desk: &Desk, micros: u64) {
    let entry = format!("{B}=2");
    desk.command(&["ZADD", "line", "1", &entry]);
    desk.command(&[
        "HSET",
        "wake",
        "waits",
        &entry,
        "ends",
        &after(desk, micros),
    ]);
}

#[tokio::test(start_paused = true)]
async fn a_plain_permit_is_handed_over_or_nothing_changes() {
    let desk = plain(0);
    assert_eq!(plain_hand_off(&desk, 9_000), "0");
    assert_eq!(
        (ledger(&desk), free(&desk)),
        (format!("{{{A2} 1}}"), "0".into())
    );
    assert_eq!(plain_hand_off(&desk, 9_000), "-2");
    assert_eq!(
        (ledger(&desk), free(&desk)),
        (format!("{{{A2} 1}}"), "0".into())
    );
    let kept: [Kept; 4] = [
        ("-1", || plain(0), 0),
        ("-3", || plain(-1), 9_000),
        (
            "-3",
            || {
                let desk = plain(0);
                turn_of_b(&desk, 1);
                desk
            },
            9_000,
        ),
        (
            "-3",
            || {
                let desk = plain(0);
                desk.command(&["DEL", "free"]);
                desk
            },
            9_000,
        ),
    ];
    for (reply, state, life) in kept {
        let desk = state();
        let before = desk.keys();
        assert_eq!(
            (plain_hand_off(&desk, life), desk.keys()),
            (reply.into(), before)
        );
    }
    // The turn is over, or its request has left the queue.
    let desk = plain(0);
    turn_of_b(&desk, 0);
    assert_eq!(plain_hand_off(&desk, 9_000), "0");
    let desk = plain(0);
    turn_of_b(&desk, 9_000);
    desk.command(&["DEL", "line"]);
    assert_eq!(plain_hand_off(&desk, 9_000), "0");
    let desk = plain(0);
    turn_of_b(&desk, 9_000);
    desk.command(&["HSET", "wake", "waits", ""]);
    assert_eq!(plain_hand_off(&desk, 9_000), "0");
    // R8.
    let mut desk = plain(0);
    desk.fill(true);
    assert_eq!(plain_hand_off(&desk, 9_000), "0");
    // R15: the permit is not lost.
    let mut desk = plain(0);
    desk.refuse(&["HSET"]);
    assert!(plain_hand_off(&desk, 9_000).starts_with("error NOPERM"));
    assert_eq!((ledger(&desk), free(&desk)), ("{}".into(), "1".into()));
}

#[tokio::test(start_paused = true)]
async fn leased_permits_are_handed_over_or_nothing_changes() {
    let (from, to) = (&IDS[..2], &IDS[2..]);
    for full in [false, true] {
        let mut desk = leased(0);
        desk.fill(full);
        assert_eq!(leased_hand_off(&desk, to, from, 9_000), "0");
        assert_eq!(
            (leases(&desk), free(&desk)),
            (format!("[{} {}]", to[0], to[1]), "0".into())
        );
        let ends = (desk.now() / 1000 + 9_000).to_string();
        assert_eq!(desk.command(&["ZSCORE", "held", to[1]]), ends);
        let before = desk.keys();
        assert_eq!(
            (leased_hand_off(&desk, to, from, 9_000), desk.keys()),
            ("-3".into(), before)
        );
    }
    let kept: [Kept; 5] = [
        ("-1", || leased(0), 0),
        ("-3", || leased(-1), 9_000),
        (
            "-3",
            || {
                let desk = leased(0);
                turn_of_b(&desk, 1);
                desk
            },
            9_000,
        ),
        (
            "-3",
            || {
                let desk = leased(0);
                desk.command(&["ZREM", "held", IDS[0]]);
                desk
            },
            9_000,
        ),
        (
            "-3",
            || {
                let desk = leased(0);
                desk.command(&["ZREM", "held", IDS[1]]);
                desk
            },
            9_000,
        ),
    ];
    for (reply, state, life) in kept {
        let desk = state();
        let before = desk.keys();
        assert_eq!(
            (leased_hand_off(&desk, to, from, life), desk.keys()),
            (reply.into(), before)
        );
    }
    // R15.
    let mut desk = leased(0);
    desk.refuse(&["ZADD"]);
    let before = desk.keys();
    assert!(leased_hand_off(&desk, to, from, 9_000).starts_with("error NOPERM"));
    assert_eq!(desk.keys(), before);
    // P1: no lease outlasts a semaphore that ends.
    let desk = leased(0);
    desk.command(&["SET", "idle", "1000"]);
    for key in ["free", "held", "idle"] {
        desk.command(&["PEXPIRE", key, "6000"]);
    }
    assert_eq!(leased_hand_off(&desk, to, from, 9_000), "0");
    for key in ["free", "held", "idle"] {
        assert_eq!(desk.command(&["PTTL", key]), "10000", "{key}");
    }
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_late_request_changes_nothing() {
    for entries in [&[][..], &["=1"]] {
        for count in [0, 3] {
            let (plain, leased) = (plain(count), leased(count));
            for desk in [&plain, &leased] {
                for suffix in entries {
                    desk.command(&["ZADD", "line", "1", &format!("{B}{suffix}")]);
                }
            }
            let before = (plain.keys(), leased.keys());
            for owner in [A, C] {
                assert_eq!(plain_acquire(&plain, owner, "1", "new", 0), "-1");
                assert_eq!(leased_acquire(&leased, owner, &IDS[1..3], "ask", 0), "-1");
            }
            assert_eq!((plain.keys(), leased.keys()), before);
        }
    }
}

/// P6.
#[tokio::test(start_paused = true)]
async fn a_replay_takes_nothing_again() {
    for entries in [&[][..], &["=1"]] {
        let (plain, leased) = (plain(5), leased(5));
        for suffix in entries {
            for owner in [A, B] {
                plain.command(&["ZADD", "line", "1", &format!("{owner}{suffix}")]);
                leased.command(&["ZADD", "line", "1", &format!("{owner}=2")]);
            }
        }
        plain.command(&["ZADD", "granted", "9", A]);
        assert_eq!(plain_acquire(&plain, A, "1", "ask", 9_000), "0");
        assert_eq!(
            (ledger(&plain), free(&plain)),
            (format!("{{{A} 1}}"), "5".into())
        );
        assert_eq!(plain.command(&["EXISTS", "granted"]), "0");
        assert_eq!(leased_acquire(&leased, A, &IDS[..2], "ask", 9_000), "0");
        assert_eq!(free(&leased), "5");
        let ends = (leased.now() / 1000 + 9_000).to_string();
        assert_eq!(leased.command(&["ZSCORE", "held", IDS[0]]), ends);
        for desk in [&plain, &leased] {
            assert_eq!(desk.command(&["ZCARD", "line"]), entries.len().to_string());
        }
    }
    // One of two leases was reaped: the request starts again.
    let desk = leased(1);
    assert_eq!(leased_acquire(&desk, A, &IDS[1..3], "new", 9_000), "0");
    assert_eq!(
        (leases(&desk), free(&desk)),
        (format!("[{} {} {}]", IDS[0], IDS[1], IDS[2]), "0".into())
    );
}

/// P1: no permit is lost, and none is made.
#[tokio::test(start_paused = true)]
async fn a_request_without_a_right_takes_and_returns_nothing() {
    for waits in [false, true] {
        for refused in ["DECRBY", "HSET"] {
            let mut desk = plain(3);
            if waits {
                desk.command(&["HSET", "wake", "turn", "1"]);
            }
            desk.refuse(&[refused]);
            let reply = plain_acquire(&desk, C, "1", "new", 9_000);
            assert!(
                reply.contains("NOPERM no right"),
                "{waits} {refused}: {reply}"
            );
            assert_eq!(
                (ledger(&desk), free(&desk)),
                (format!("{{{A} 1}}"), "3".into())
            );
            assert_eq!(desk.command(&["EXISTS", "granted"]), "0");
        }
    }
    let mut desk = leased(3);
    desk.refuse(&["ZADD"]);
    assert!(leased_acquire(&desk, C, &IDS[2..], "new", 9_000).starts_with("error NOPERM"));
    assert_eq!(
        (desk.command(&["ZCARD", "held"]), free(&desk)),
        ("2".into(), "3".into())
    );
    let mut desk = plain(3);
    desk.refuse(&["INCRBY"]);
    assert!(plain_release(&desk, A, "1", "0").starts_with("error NOPERM"));
    assert_eq!(
        (ledger(&desk), free(&desk)),
        (format!("{{{A} 1}}"), "3".into())
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_without_a_queue_publishes_for_redisson() {
    for (count, told) in [(-1, vec![]), (0, vec!["base 1"]), (4, vec!["base 5"])] {
        for refused in [false, true] {
            let (mut plain, mut leased) = (plain(count), leased(count));
            if refused {
                plain.refuse(&["PUBLISH"]);
                leased.refuse(&["PUBLISH"]);
            }
            plain.subscribe("base", 3);
            leased.subscribe("base", 3);
            let reply = match (told.is_empty(), refused) {
                (true, _) => "0",
                (_, true) => "-1",
                _ => "3",
            };
            let told = if refused { vec![] } else { told.clone() };
            assert_eq!(plain_release(&plain, A, "1", "0"), reply);
            assert_eq!(
                (plain.messages(), free(&plain)),
                (
                    told.iter().map(ToString::to_string).collect(),
                    (count + 1).to_string()
                )
            );
            assert_eq!(
                (plain_release(&plain, A, "1", "0"), free(&plain)),
                ("-2".into(), (count + 1).to_string())
            );
            assert_eq!(leased_release(&leased, A, &IDS[..1], "0"), reply);
            assert_eq!(
                (leased.messages(), free(&leased)),
                (
                    told.iter().map(ToString::to_string).collect(),
                    (count + 1).to_string()
                )
            );
            // One of two is not held; the other one is returned.
            assert_eq!(
                (leased_release(&leased, A, &IDS[..2], "0"), free(&leased)),
                ("-2".into(), (count + 2).to_string())
            );
        }
    }
    // The semaphore was deleted, so nothing is held.
    let desk = plain(0);
    desk.command(&["DEL", "free"]);
    assert_eq!(
        (plain_release(&desk, A, "1", "0"), desk.keys()),
        ("-2".into(), String::new())
    );
}
