//! Runs the multi-lock's hand-off directly, with rights that are missing, a server at maxmemory, and a lock that is not held.

use stanchion_tests::desk::{A, B, Desk};

const KEYS: [&str; 7] = ["a", "b", "line a", "line b", "wake a", "wake b", "fence"];
/// The next owner of the process of [`A`].
const A2: &str = "aaaaaaaa-0000-8000-8000-000000000000:2";

/// Both locks, held by `owner` for 50 s.
fn held(owner: &str) -> Desk {
    let desk = Desk::new();
    for lock in ["a", "b"] {
        desk.command(&["HSET", lock, owner, "1"]);
        desk.command(&["PEXPIRE", lock, "50000"]);
    }
    desk
}

/// Hands both locks from [`A`] to [`A2`], for 30 s.
fn hand_off(desk: &Desk) -> String {
    let script = include_str!("../../../crates/stanchion-multilock/lua/hand_off.lua").replace(
        "-- @joint.lua\n",
        include_str!("../../../crates/stanchion-multilock/lua/joint.lua"),
    );
    let not_after = (desk.now() + 1_000_000).to_string();
    let args = [
        A2, "30000", &not_after, "2", "PUBLISH", A, "base a", "base b", "1", "1",
    ];
    desk.run((&script, &KEYS, &args))
}

fn holders(desk: &Desk) -> [String; 2] {
    ["a", "b"].map(|lock| desk.command(&["HGETALL", lock]))
}

fn both(owner: &str) -> [String; 2] {
    [format!("{{{owner} 1}}"), format!("{{{owner} 1}}")]
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
        // P6: a second run grants again.
        assert!(hand_off(&desk).parse::<u64>().unwrap() > token);
        assert_eq!(holders(&desk), both(A2));
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
    for desk in [Desk::new(), held(B)] {
        let before = desk.keys();
        assert_eq!(hand_off(&desk), "-3");
        assert_eq!(desk.keys(), before);
    }
    let desk = held(A);
    desk.command(&["HDEL", "b", A]);
    let before = desk.keys();
    assert_eq!(hand_off(&desk), "-3");
    assert_eq!(desk.keys(), before);
}
