//! Runs the semaphores' scripts with commands that the server refuses in the middle: missing rights, a moving slot, `maxmemory`. No permit is
//! created and none is lost.

use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{IDS, free, leased, leased_release, leased_tend, plain};
use super::direct_of_line::{
    D, acquire, in_ms, message, notes, queued, release, stored, take, tend, waiting,
};

/// The free permits, those in the ledger and those with a lease.
fn permits(desk: &Desk) -> i64 {
    let sum = "local sum = redis.call('GET', 'free') + 0
        if redis.call('TYPE', 'held').ok == 'zset' then return sum + redis.call('ZCARD', 'held') end
        for _, count in ipairs(redis.call('HVALS', 'held')) do sum = sum + count end
        return sum";
    desk.command(&["EVAL", sum, "0"]).parse().unwrap()
}

/// P1, R15: whichever command is refused, and whatever ends or releases a hold, no permit is created and none is lost.
#[tokio::test(start_paused = true)]
async fn a_refused_command_creates_and_loses_no_permit() {
    let rights = [
        "DECRBY", "INCRBY", "HSET", "HDEL", "ZADD", "ZREM", "PEXPIRE", "PUBLISH",
    ];
    for right in rights {
        for (what, run) in [
            ("a release", 0),
            ("a request", 1),
            ("a request without a queue", 2),
            ("tend", 3),
        ] {
            let owners: &[&str] = if run == 2 { &[] } else { &[B, C] };
            let what = format!("{what} without {right}");
            let mut desk = waiting(plain(0), owners);
            let ended = in_ms(&desk, 0).to_string();
            if run > 0 {
                desk.command(&["ZADD", "granted", &ended, A]);
            }
            desk.refuse(&[right]);
            match run {
                0 => release(&desk, A),
                3 => tend(&desk),
                _ => acquire(&desk, D, "1", if run == 1 { "look" } else { "try" }),
            };
            assert_eq!(permits(&desk), 1, "{what}: {}", desk.keys());
            desk.refuse(&[]);
            // What was not returned is returned by a request with more rights, or is still held.
            acquire(&desk, D, "1", "try");
            assert_eq!(permits(&desk), 1, "{what}: {}", desk.keys());

            let mut desk = waiting(leased(0), owners);
            if run > 0 {
                desk.command(&["EVAL", "for _, id in ipairs(redis.call('ZRANGE', 'held', 0, -1)) do redis.call('ZADD', 'held', ARGV[1], id) end", "0", &ended]);
            }
            let before = permits(&desk);
            desk.refuse(&[right]);
            match run {
                0 => leased_release(&desk, A, &IDS[..1], "0"),
                3 => leased_tend(&desk, ""),
                _ => take(&desk, D, &IDS[2..3], if run == 1 { "look" } else { "try" }),
            };
            assert_eq!(permits(&desk), before, "leased: {what}: {}", desk.keys());
            desk.refuse(&[]);
            take(&desk, D, &IDS[2..3], "try");
            assert_eq!(permits(&desk), before, "leased: {what}: {}", desk.keys());
        }
    }
}

/// The same in a moving slot, which refuses to access keys that the script has removed. A script starts only if all its keys exist.
#[tokio::test(start_paused = true)]
async fn a_moving_slot_creates_and_loses_no_permit() {
    let moving = |desk: &mut Desk| {
        notes(desk, &["turn", "1"]);
        desk.command(&["SET", "idle", "x"]);
        desk.migrate();
    };
    let mut desk = waiting(plain(0), &[B, C]);
    desk.command(&["ZADD", "granted", "9999999999999", D]);
    moving(&mut desk);
    assert_eq!(release(&desk, A), "-1");
    assert_eq!(desk.messages(), ["base 1".into(), message(B, "P", "0")]);
    assert_eq!(
        (permits(&desk), queued(&desk)),
        (1, format!("[{B}=1 {C}=1]"))
    );

    let mut desk = waiting(plain(0), &[B, C]);
    desk.command(&["ZADD", "granted", &in_ms(&desk, 0).to_string(), A]);
    moving(&mut desk);
    let reply = tend(&desk);
    assert_eq!(permits(&desk), 1, "{reply}: {}", desk.keys());

    let mut desk = waiting(leased(0), &[B, C]);
    moving(&mut desk);
    leased_release(&desk, A, &IDS[..2], "0");
    assert_eq!(permits(&desk), 2, "{}", desk.keys());
}

/// P1: the ledger was deleted, and the number set again, before the process has confirmed its grant.
#[tokio::test(start_paused = true)]
async fn a_permit_that_is_acquired_again_is_not_taken_back() {
    let desk = waiting(plain(0), &[B]);
    assert_eq!(release(&desk, A), "1");
    desk.command(&["DEL", "held"]);
    desk.command(&["SET", "free", "1"]);
    assert_eq!(acquire(&desk, B, "1", "ask"), "0");
    assert_eq!(stored(&desk), ["free = 0", &format!("held = {B} 1")]);
}

/// R8.
#[tokio::test(start_paused = true)]
async fn free_permits_are_granted_to_the_queue_at_maxmemory() {
    let mut desk = waiting(plain(1), &[B]);
    desk.fill(true);
    assert_eq!(tend(&desk), "-1");
    assert_eq!((free(&desk), queued(&desk)), ("0".into(), "[]".into()));
    let mut desk = waiting(leased(1), &[B]);
    desk.fill(true);
    assert_eq!(leased_tend(&desk, ""), "-1");
    assert_eq!((free(&desk), queued(&desk)), ("0".into(), "[]".into()));
}
