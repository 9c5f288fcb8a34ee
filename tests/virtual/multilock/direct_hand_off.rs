//! Runs the multi-lock's hand-off directly, with rights that are missing, a server at maxmemory, and locks that are not held.

use stanchion_multilock::scripts::HAND_OFF;
use stanchion_tests::desk::{A, B, Desk};

use super::direct::{IN_TIME, KEYS, LATE, both, busy, held, hold, holders, lines};

/// The next owner of the process of [`A`].
const A2: &str = "aaaaaaaa-0000-8000-8000-000000000000:2";

/// Hands both locks from [`A`] to [`A2`], for 30 s.
fn hand_off_within(desk: &Desk, life: u64) -> String {
    let not_after = (desk.now() + life - 1).to_string();
    let args = [
        A2, "30000", &not_after, "2", "PUBLISH", A, "base a", "base b", "1", "1",
    ];
    desk.run((HAND_OFF.text(), &KEYS, &args))
}

fn hand_off(desk: &Desk) -> String {
    hand_off_within(desk, IN_TIME)
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_replaces_the_owner_of_all() {
    for full in [false, true] {
        let mut desk = held(A);
        desk.fill(full);
        let token: u64 = hand_off(&desk).parse().unwrap();
        assert!(token > 0, "at maxmemory: {full}");
        assert_eq!(holders(&desk), both(A2));
        for lock in ["a", "b"] {
            assert_eq!(desk.command(&["PTTL", lock]), "30000");
        }
        // P6: a second run grants again. R3, R4: the lease and the count stay.
        desk.command(&["HSET", "b", A2, "2"]);
        desk.command(&["PEXPIRE", "b", "60000"]);
        let second: u64 = hand_off(&desk).parse().unwrap();
        assert_eq!(second, token + 1);
        assert_eq!(
            desk.keys(),
            lines([
                format!("a = {A2} 1, TTL 30000"),
                format!("b = {A2} 2, TTL 60000"),
                format!("fence = {second}, TTL -1"),
            ])
        );
    }
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_late_hand_off_changes_nothing() {
    for desk in [held(A), held(A2)] {
        let before = desk.keys();
        assert_eq!(hand_off_within(&desk, LATE), "-1");
        assert_eq!(desk.keys(), before);
    }
}

/// R15: the client then releases.
#[tokio::test(start_paused = true)]
async fn a_hand_off_that_fails_leaves_the_locks_with_the_old_owner() {
    for right in ["PEXPIRE", "HSET", "SET"] {
        let mut desk = held(A);
        desk.refuse(&[right]);
        assert!(hand_off(&desk).starts_with("error NOPERM"), "{right}");
        assert_eq!(holders(&desk), both(A), "{right}");
    }
    let desk = held(A);
    desk.command(&["SET", "fence", "x"]);
    assert!(hand_off(&desk).starts_with("error WRONGTYPE"));
    assert_eq!(holders(&desk), both(A));
}

#[tokio::test(start_paused = true)]
async fn a_hand_off_of_locks_that_others_hold_changes_nothing() {
    let half = held(A);
    half.command(&["HDEL", "b", A]);
    // R7: the new owner has one of them.
    let mixed = busy("a", A2);
    hold(&mixed, "b", A, 900);
    for desk in [Desk::new(), held(B), half, mixed] {
        let before = desk.keys();
        assert_eq!(hand_off(&desk), "-3");
        assert_eq!(desk.keys(), before);
    }
}
