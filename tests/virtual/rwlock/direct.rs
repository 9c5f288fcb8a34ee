//! Runs the scripts directly, in states and with refusals that clients rarely cause: late requests, rights that are missing, and processes
//! that leave the queue.
//!
//! Long: the scripts share one set-up.

use stanchion_rwlock::{read, write};
use stanchion_tests::desk::{A, B, C, Desk};

pub(super) const READERS: &str = "readers";
pub(super) const FOREVER: u64 = 10_000_000;

pub(super) fn hold_key(owner: &str) -> String {
    format!("job:{owner}:rwlock_timeout:1")
}

pub(super) fn channel(owner: &str) -> String {
    format!("base:{}", &owner[..36])
}

pub(super) fn message(owner: &str, word: &str, rest: &str) -> String {
    format!("{} {word} {owner} {rest}", channel(owner))
}

pub(super) fn read_within(desk: &Desk, owner: &str, ask: &str, side: &str, life: u64) -> String {
    let (hold, not_after) = (hold_key(owner), (desk.now() + life - 1).to_string());
    let keys = ["job", "line", "wake", READERS, &hold];
    let args = [
        owner, "30000", &not_after, ask, "PUBLISH", "base", side, "job:", "", "99",
    ];
    desk.run((read::ACQUIRE.text(), &keys, &args))
}

pub(super) fn write_within(desk: &Desk, owner: &str, ask: &str, life: u64) -> String {
    let not_after = (desk.now() + life - 1).to_string();
    let keys = ["job", "fence", "line", "wake", READERS];
    let args = [owner, "30000", &not_after, ask, "PUBLISH", "base", "job:"];
    desk.run((write::ACQUIRE.text(), &keys, &args))
}

pub(super) fn read(desk: &Desk, owner: &str, ask: &str) -> String {
    read_within(desk, owner, ask, "r", FOREVER)
}

pub(super) fn write(desk: &Desk, owner: &str, ask: &str) -> String {
    write_within(desk, owner, ask, FOREVER)
}

pub(super) fn read_release(desk: &Desk, owner: &str, n: &str, quits: &str) -> String {
    let hold = hold_key(owner);
    let keys = ["job", "line", "wake", READERS, &hold, "fence"];
    let args = ["base", "PUBLISH", owner, n, "30000", "job:", quits];
    desk.run((read::RELEASE.text(), &keys, &args))
}

pub(super) fn write_release(desk: &Desk, owner: &str, n: &str, quits: &str) -> String {
    let keys = ["job", "fence", "line", "wake", READERS];
    let args = ["base", "PUBLISH", owner, n, "30000", "job:", quits];
    desk.run((write::RELEASE.text(), &keys, &args))
}

pub(super) fn downgrade_within(desk: &Desk, writer: &str, owner: &str, life: u64) -> String {
    let (hold, not_after) = (hold_key(owner), (desk.now() + life - 1).to_string());
    let keys = ["job", "line", "wake", READERS, &hold];
    let args = [
        "base", "PUBLISH", writer, owner, "30000", &not_after, "job:",
    ];
    desk.run((write::DOWNGRADE.text(), &keys, &args))
}

/// A lock with these readers, each with its lease in ms.
pub(super) fn read_by(owners: &[(&str, u64)]) -> Desk {
    let desk = Desk::new();
    for (owner, ttl) in owners {
        desk.command(&["HSET", "job", "mode", "read", owner, "1"]);
        desk.command(&["SET", &hold_key(owner), "1", "PX", &ttl.to_string()]);
        let ends = desk.now() / 1000 + ttl;
        desk.command(&["ZADD", READERS, &ends.to_string(), owner]);
        for key in ["job", READERS] {
            let longest = owners.iter().map(|it| it.1).max().unwrap();
            desk.command(&["PEXPIRE", key, &longest.to_string()]);
        }
    }
    desk
}

pub(super) fn written_by(owner: &str, ttl: u64) -> Desk {
    let desk = Desk::new();
    desk.command(&[
        "HSET",
        "job",
        "mode",
        "write",
        &format!("{owner}:write"),
        "1",
    ]);
    desk.command(&["PEXPIRE", "job", &ttl.to_string()]);
    desk
}

pub(super) fn queue(desk: &Desk, entries: &[&str]) {
    desk.queue("line", entries);
}

pub(super) fn queued(desk: &Desk) -> String {
    desk.command(&["ZRANGE", "line", "0", "-1"])
}

pub(super) fn holders(desk: &Desk) -> String {
    desk.command(&["HGETALL", "job"])
}

pub(super) fn ttl(desk: &Desk) -> String {
    desk.command(&["PTTL", "job"])
}

/// P3.
#[tokio::test(start_paused = true)]
async fn a_late_request_changes_nothing() {
    let states: [fn() -> Desk; 4] = [
        Desk::new,
        || read_by(&[(B, 9_000)]),
        || written_by(A, 9_000),
        || written_by(B, 9_000),
    ];
    for state in states {
        for entries in [&[][..], &[C]] {
            let desk = state();
            queue(&desk, entries);
            let before = desk.keys();
            for ask in ["new", "ask", "look"] {
                assert_eq!(read_within(&desk, A, ask, "r", 0), "-1");
                assert_eq!(write_within(&desk, A, ask, 0), "-1");
            }
            let reply = downgrade_within(&desk, A, C, 0);
            assert!(["-1", "-2"].contains(&reply.as_str()));
            assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
        }
    }
}

/// R9.
#[tokio::test(start_paused = true)]
async fn without_the_right_to_set_a_lease_an_acquire_takes_nothing() {
    let mut desk = Desk::new();
    desk.refuse(&["PEXPIRE"]);
    assert!(read(&desk, A, "new").starts_with("error NOPERM"));
    assert_eq!(desk.keys(), "");
    assert!(write(&desk, A, "new").starts_with("error NOPERM"));
    assert_eq!(holders(&desk), "{}");
    queue(&desk, &[B]);
    assert!(write(&desk, A, "ask").starts_with("error NOPERM"));
    assert_eq!(holders(&desk), "{}");
    let mut desk = read_by(&[(B, 9_000)]);
    desk.refuse(&["PEXPIRE"]);
    let before = desk.keys();
    assert!(read(&desk, A, "new").starts_with("error NOPERM"));
    assert_eq!(desk.keys(), before);
    // The same for a grant by message: the release stands, and the lock is free.
    for entry in [format!("{B}r"), B.to_owned()] {
        let mut desk = written_by(A, 9_000);
        desk.subscribe(&channel(B), 1);
        queue(&desk, &[&entry]);
        desk.refuse(&["PEXPIRE"]);
        assert_eq!(write_release(&desk, A, "1", "0"), "-1");
        assert_eq!(
            (
                holders(&desk),
                desk.command(&["EXISTS", READERS, &hold_key(B)])
            ),
            ("{}".into(), "0".into())
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_hash_without_a_mode_is_an_error() {
    let desk = Desk::new();
    desk.command(&["HSET", "job", B, "1"]);
    let before = desk.keys();
    for ask in ["new", "ask", "try"] {
        assert!(read(&desk, A, ask).starts_with("error WRONGTYPE"));
        assert!(write(&desk, A, ask).starts_with("error WRONGTYPE"));
    }
    assert_eq!(desk.keys(), before);
}

#[tokio::test(start_paused = true)]
async fn a_request_that_does_not_wait_gets_no_entry() {
    let desk = written_by(B, 900);
    assert_eq!(
        (read(&desk, A, "try"), write(&desk, A, "try")),
        ("-904".into(), "-904".into())
    );
    let desk = read_by(&[(B, 900)]);
    queue(&desk, &[C]);
    assert_eq!(read_within(&desk, A, "try", "R", FOREVER), "-904");
    assert_eq!(write(&desk, A, "try"), "-904");
    assert_eq!(queued(&desk), format!("[{C}]"));
    assert_eq!(read(&desk, A, "try"), "0");
}

/// R3, R4.
#[tokio::test(start_paused = true)]
async fn a_replay_keeps_the_count_and_the_longer_lease() {
    for (before, after) in [(60_000, "60000"), (900, "30000")] {
        let desk = read_by(&[(A, before)]);
        desk.command(&["HSET", "job", A, "3"]);
        let entry = format!("{A}r");
        queue(&desk, &[&entry, C]);
        assert_eq!(read(&desk, A, "ask"), "0");
        assert_eq!(holders(&desk), format!("{{mode read {A} 3}}"));
        assert_eq!(
            (ttl(&desk), desk.command(&["PTTL", &hold_key(A)])),
            (after.into(), after.into())
        );
        assert_eq!((queued(&desk), desk.messages()), (format!("[{C}]"), vec![]));

        let desk = written_by(A, before);
        desk.command(&["HSET", "job", &format!("{A}:write"), "3"]);
        queue(&desk, &[A, C]);
        assert!(write(&desk, A, "ask").parse::<i64>().unwrap() > 0);
        assert_eq!(
            (holders(&desk), ttl(&desk)),
            (format!("{{mode write {A}:write 3}}"), after.into())
        );
        assert_eq!((queued(&desk), desk.messages()), (format!("[{C}]"), vec![]));
    }
}

#[tokio::test(start_paused = true)]
async fn the_last_release_frees_the_lock_and_publishes_for_redisson() {
    let desk = read_by(&[(A, 9_000)]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.messages()),
        ("0".into(), vec!["base 0".into()])
    );
    assert_eq!(desk.keys(), "");
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.messages()),
        ("-2".into(), vec![])
    );
    let desk = written_by(A, 9_000);
    assert_eq!(
        (write_release(&desk, A, "1", "0"), desk.messages()),
        ("0".into(), vec!["base 1".into()])
    );
    assert_eq!(desk.keys(), "");
    assert_eq!(
        (write_release(&desk, A, "1", "0"), desk.messages()),
        ("-2".into(), vec![])
    );
    // Without the right to publish the release stands.
    let mut desk = read_by(&[(A, 9_000)]);
    desk.refuse(&["PUBLISH"]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.keys()),
        ("-1".into(), String::new())
    );
    let mut desk = written_by(A, 9_000);
    desk.refuse(&["PUBLISH"]);
    assert_eq!(
        (write_release(&desk, A, "1", "0"), desk.keys()),
        ("-1".into(), String::new())
    );
}

#[tokio::test(start_paused = true)]
async fn a_release_with_other_readers_keeps_the_lock_for_the_longest_of_them() {
    let desk = read_by(&[(A, 9_000), (B, 900), (C, 500)]);
    queue(&desk, &[A]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.messages()),
        ("0".into(), vec![])
    );
    assert_eq!(
        (holders(&desk), ttl(&desk)),
        (format!("{{mode read {B} 1 {C} 1}}"), "900".into())
    );
    assert_eq!(desk.command(&["ZCARD", READERS]), "2");
    assert_eq!(desk.command(&["EXISTS", &hold_key(A)]), "0");
    // A reader without a hold key is dead, so the lock is free.
    let desk = read_by(&[(A, 9_000), (B, 900)]);
    desk.command(&["DEL", &hold_key(B)]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.messages()),
        ("0".into(), vec!["base 0".into()])
    );
    assert_eq!(desk.keys(), "");
    // Inside a write hold, whose lease stays.
    let desk = written_by(A, 9_000);
    desk.command(&["HSET", "job", B, "1"]);
    desk.command(&["SET", &hold_key(B), "1", "PX", "900"]);
    assert_eq!(
        (read_release(&desk, B, "1", "0"), desk.messages()),
        ("0".into(), vec![])
    );
    assert_eq!(
        (holders(&desk), ttl(&desk)),
        (format!("{{mode write {A}:write 1}}"), "9000".into())
    );
}

#[tokio::test(start_paused = true)]
async fn one_hold_of_several_is_counted_down() {
    let desk = read_by(&[(A, 900)]);
    desk.command(&["HSET", "job", A, "3"]);
    desk.command(&["DEL", &hold_key(A)]);
    assert_eq!(read_release(&desk, A, "3", "0"), "0");
    assert_eq!(holders(&desk), format!("{{mode read {A} 2}}"));
    for key in ["job", READERS, &hold_key(A)] {
        assert_eq!(desk.command(&["PTTL", key]), "30000", "{key}");
    }
    let ends = desk.now() / 1000 + 30_000;
    assert_eq!(desk.command(&["ZSCORE", READERS, A]), ends.to_string());
    assert_eq!(read_release(&desk, B, "3", "0"), "-2");
    let desk = written_by(A, 900);
    assert_eq!(
        (write_release(&desk, A, "3", "0"), ttl(&desk)),
        ("0".into(), "30000".into())
    );
    assert_eq!(holders(&desk), format!("{{mode write {A}:write 2}}"));
    assert_eq!(write_release(&desk, B, "3", "0"), "-2");
}

/// L4.
#[tokio::test(start_paused = true)]
async fn a_process_that_leaves_the_queue_passes_its_watch_on() {
    for side in ["r", "R", "r?", "R?", "", "?"] {
        let leave = |desk: &Desk| {
            if side.trim_end_matches('?').is_empty() {
                write_release(desk, A, "1", "1")
            } else {
                read_release(desk, A, "1", "1")
            }
        };
        let entry = format!("{A}{side}");
        let mut desk = written_by(C, 900);
        desk.subscribe(&channel(B), 1);
        queue(&desk, &[&entry, B]);
        assert_eq!(
            (leave(&desk), queued(&desk)),
            ("0".into(), format!("[{B}]")),
            "{side}"
        );
        let told = [message(B, "N", "900")];
        assert_eq!(desk.messages(), told, "{side}");
        let desk = written_by(C, 900);
        queue(&desk, &[B, &entry]);
        assert_eq!(
            (leave(&desk), desk.messages()),
            ("0".into(), vec![]),
            "{side}"
        );
        let desk = written_by(C, 900);
        queue(&desk, &[B]);
        assert_eq!(
            (leave(&desk), desk.messages()),
            ("-2".into(), vec![]),
            "{side}"
        );
        // The lock is free: the queue is served.
        let mut desk = Desk::new();
        desk.subscribe(&channel(B), 1);
        queue(&desk, &[&entry, B]);
        assert_eq!(
            (leave(&desk), queued(&desk)),
            ("1".into(), "[]".into()),
            "{side}"
        );
        assert_eq!(holders(&desk), format!("{{mode write {B}:write 1}}"));
    }
    // The last one of the queue of a held lock removes the notes.
    let desk = read_by(&[(C, 900)]);
    let entry = format!("{A}R");
    queue(&desk, &[&entry]);
    desk.command(&["HSET", "wake", "turn", "1"]);
    assert_eq!(
        (
            read_release(&desk, A, "1", "1"),
            desk.command(&["EXISTS", "wake"])
        ),
        ("0".into(), "0".into())
    );
}

/// The writer reads, too: Redisson publishes nothing here.
#[tokio::test(start_paused = true)]
async fn a_write_release_with_nested_reads_lets_readers_join() {
    for waits in [false, true] {
        let mut desk = written_by(A, 9_000);
        desk.command(&["HSET", "job", A, "1"]);
        desk.subscribe(&channel(B), 1);
        desk.subscribe("base", 1);
        let (reader, writer) = (format!("{B}r"), C);
        if waits {
            queue(&desk, &[&reader, writer]);
        }
        assert_eq!(
            write_release(&desk, A, "1", "0"),
            if waits { "2" } else { "1" }
        );
        let (told, joined) = (
            desk.messages(),
            if waits {
                format!(" {B} 1")
            } else {
                String::new()
            },
        );
        assert_eq!(told[0], if waits { "base 01" } else { "base 1" });
        assert_eq!(holders(&desk), format!("{{mode read {A} 1{joined}}}"));
    }
}

/// R3, R10.
#[tokio::test(start_paused = true)]
async fn a_downgrade_keeps_the_longer_lease_and_lets_readers_join() {
    for (before, after) in [(60_000, "60000"), (900, "30000")] {
        let mut desk = written_by(A, before);
        desk.fill(true);
        assert_eq!(downgrade_within(&desk, A, C, FOREVER), "0");
        assert_eq!(
            (holders(&desk), desk.messages()),
            (format!("{{mode read {C} 1}}"), vec!["base 1".into()])
        );
        assert_eq!(
            (ttl(&desk), desk.command(&["PTTL", READERS])),
            (after.into(), after.into())
        );
        assert_eq!(desk.command(&["PTTL", &hold_key(C)]), "30000");
        let ends = (desk.now() / 1000 + 30_000).to_string();
        assert_eq!(desk.command(&["ZSCORE", READERS, C]), ends);
        // A replay renews the lease.
        desk.command(&["PEXPIRE", &hold_key(C), "60000"]);
        assert_eq!(
            (downgrade_within(&desk, A, C, FOREVER), desk.messages()),
            ("0".into(), vec![])
        );
        assert_eq!(desk.command(&["PTTL", &hold_key(C)]), "60000");
        assert_eq!(downgrade_within(&desk, A, B, FOREVER), "-2");
    }
    let mut desk = written_by(A, 9_000);
    desk.subscribe(&channel(B), 1);
    let reader = format!("{B}R");
    queue(&desk, &[&reader, A]);
    assert_eq!(downgrade_within(&desk, A, C, FOREVER), "0");
    assert_eq!(holders(&desk), format!("{{mode read {C} 1 {B} 1}}"));
    assert_eq!(desk.messages()[0], "base 01");
}

/// A silent writer holds readers with preference for writers off for 2 s.
#[tokio::test(start_paused = true)]
async fn a_silent_writer_moves_to_the_end_of_the_queue() {
    let reader = format!("{C}R");
    for (left, passes) in [(1, false), (0, true)] {
        let mut desk = written_by(A, 9_000);
        desk.command(&["HSET", "job", A, "1"]);
        for owner in [B, C] {
            desk.subscribe(&channel(owner), 1);
        }
        queue(&desk, &[B, &reader]);
        let ends = (desk.now() + left).to_string();
        desk.command(&["HSET", "wake", "waits", B, "ends", &ends]);
        write_release(&desk, A, "1", "0");
        let joined = if passes {
            format!(" {C} 1")
        } else {
            String::new()
        };
        assert_eq!(holders(&desk), format!("{{mode read {A} 1{joined}}}"));
        assert_eq!(
            queued(&desk),
            if passes {
                format!("[{B}]")
            } else {
                format!("[{B} {reader}]")
            }
        );
        let told = desk.messages();
        if passes {
            assert_eq!(desk.command(&["ZSCORE", "line", B]), desk.now().to_string());
        } else {
            assert_eq!(told[1..], [message(B, "N", "0"), message(C, "N", "1")]);
        }
    }
    // A writer at the head is given 2 s, and a dead one none.
    for lives in [true, false] {
        let mut desk = written_by(A, 9_000);
        desk.command(&["HSET", "job", A, "1"]);
        desk.subscribe(&channel(B), usize::from(lives));
        desk.subscribe(&channel(C), 1);
        queue(&desk, &[B, &reader]);
        write_release(&desk, A, "1", "0");
        let told = desk.messages();
        if lives {
            let ends = (desk.now() + 2_000_000).to_string();
            assert_eq!(desk.command(&["HGET", "wake", "ends"]), ends);
            assert_eq!(desk.command(&["HGET", "wake", "waits"]), B);
            assert_eq!(
                told[1..],
                [message(B, "N", "1000"), message(C, "N", "2000")]
            );
        } else {
            assert_eq!(holders(&desk), format!("{{mode read {A} 1 {C} 1}}"));
        }
    }
}

/// R16: a key of another program where the readers' leases belong.
#[tokio::test(start_paused = true)]
async fn a_foreign_key_of_leases_is_an_error_and_leaves_no_hold() {
    let desk = Desk::new();
    desk.command(&["SET", READERS, "x"]);
    assert!(read(&desk, A, "new").starts_with("error WRONGTYPE"));
    assert_eq!(desk.command(&["EXISTS", "job"]), "0");
    assert_eq!(desk.command(&["GET", READERS]), "x");
}
