//! Runs the scripts directly with many readers, dead readers, and Redisson's readers. The numbers are those of `docs/protocol.md`.

use stanchion_rwlock::read;
use stanchion_tests::desk::{A, B, C, Desk};

use super::direct::{
    FOREVER, READERS, hold_key, holders, queue, queued, read, read_by, read_release, read_within,
    ttl, write, write_release, written_by,
};

const JAVA: &str = "eeeeeeee-0000-4000-8000-000000000000:1";

/// The server's time in `ms` from now, as the end of a lease.
fn in_ms(desk: &Desk, ms: u64) -> String {
    (desk.now() / 1000 + ms).to_string()
}

fn reader(n: usize) -> String {
    format!("00000000-0000-8000-8000-{n:012}:1")
}

/// Adds readers without a hold key. Their leases ended 1 ms ago, 2 ms ago, … : the last reader ended first.
fn dead(desk: &Desk, count: usize) {
    for n in 0..count {
        desk.command(&["HSET", "job", &reader(n), "1"]);
        let ended = (desk.now() / 1000 - 1 - n as u64).to_string();
        desk.command(&["ZADD", READERS, &ended, &reader(n)]);
    }
}

/// Adds a reader of Redisson's with these hold keys: their numbers and TTLs. No lease is known.
fn redisson(desk: &Desk, owner: &str, count: usize, keys: &[(usize, u64)]) {
    desk.command(&["HSET", "job", owner, &count.to_string()]);
    for (n, ttl) in keys {
        let key = format!("job:{owner}:rwlock_timeout:{n}");
        desk.command(&["SET", &key, "1", "PX", &ttl.to_string()]);
    }
}

/// The keys of a lock in mode `read` for `ttl` ms, with these readers in the order of their leases.
pub(super) fn read_keys(
    desk: &Desk,
    readers: &[(&str, u64)],
    ttl: u64,
    readers_ttl: u64,
) -> String {
    let (mut fields, mut leases, mut keys) = (String::new(), String::new(), Vec::new());
    for (owner, lease) in readers {
        fields += &format!(" {owner} 1");
        leases += &format!(" {owner} {}", in_ms(desk, *lease));
        keys.push(format!("{} = 1, TTL {lease}", hold_key(owner)));
    }
    keys.push(format!("job = mode read{fields}, TTL {ttl}"));
    keys.push(format!("{READERS} ={leases}, TTL {readers_ttl}"));
    keys.sort();
    keys.join("\n")
}

#[tokio::test(start_paused = true)]
async fn a_new_reader_has_a_field_a_hold_key_and_a_lease() {
    let desk = Desk::new();
    assert_eq!(read(&desk, A, "new"), "0");
    assert_eq!(
        desk.keys(),
        read_keys(&desk, &[(A, 30_000)], 30_000, 30_000)
    );
    // R3: a shorter lease than that of the others shortens nothing.
    let desk = read_by(&[(B, 60_000)]);
    desk.command(&["PEXPIRE", READERS, "100"]);
    assert_eq!(read(&desk, A, "new"), "0");
    let mut expected: Vec<_> = read_keys(&desk, &[(A, 30_000), (B, 60_000)], 60_000, 60_000)
        .replace(
            &format!("mode read {A} 1 {B} 1"),
            &format!("mode read {B} 1 {A} 1"),
        )
        .lines()
        .map(str::to_owned)
        .collect();
    expected.sort();
    assert_eq!(desk.keys(), expected.join("\n"));
}

/// R10: a hold key that is left of an earlier run has its own, shorter TTL.
#[tokio::test(start_paused = true)]
async fn a_hold_key_that_is_left_does_not_shorten_a_new_hold() {
    let desk = Desk::new();
    desk.command(&["SET", &hold_key(A), "1", "PX", "60000"]);
    assert_eq!(read(&desk, A, "new"), "0");
    assert_eq!(
        desk.keys(),
        read_keys(&desk, &[(A, 30_000)], 30_000, 30_000)
    );
}

/// A reader of Redisson's has a hold key for each hold.
#[tokio::test(start_paused = true)]
async fn a_reader_lives_while_one_of_its_hold_keys_does() {
    let desk = read_by(&[(A, 9_000)]);
    redisson(&desk, JAVA, 8, &[(1, 200), (8, 700)]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.messages()),
        ("0".into(), vec![])
    );
    assert_eq!(
        desk.keys(),
        format!(
            "job = mode read {JAVA} 8, TTL 700\njob:{JAVA}:rwlock_timeout:1 = 1, TTL 200\njob:{JAVA}:rwlock_timeout:8 = 1, TTL 700"
        )
    );
    let desk = read_by(&[(A, 9_000)]);
    redisson(&desk, JAVA, 8, &[]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.messages()),
        ("0".into(), vec!["base 0".into()])
    );
    assert_eq!(desk.keys(), "");
}

/// P1: a hold key that is not checked may last as long as the lock.
#[tokio::test(start_paused = true)]
async fn a_reader_with_more_holds_than_are_checked_keeps_the_lock() {
    for keys in [&[][..], &[(1, 200)], &[(1, 200), (9, 5_000)]] {
        let desk = read_by(&[(A, 9_000)]);
        redisson(&desk, JAVA, 9, keys);
        assert_eq!(
            (read_release(&desk, A, "1", "0"), desk.messages()),
            ("0".into(), vec![])
        );
        assert_eq!(
            (holders(&desk), ttl(&desk)),
            (format!("{{mode read {JAVA} 9}}"), "9000".into())
        );
        assert_eq!(write(&desk, B, "try"), "-9004");
    }
}

/// Few readers are all checked.
#[tokio::test(start_paused = true)]
async fn a_release_removes_dead_readers_and_keeps_those_with_a_hold_key() {
    let desk = read_by(&[(A, 9_000), (C, 900)]);
    dead(&desk, 2);
    // The hold key was renewed, and the end of the lease was not.
    desk.command(&["ZADD", READERS, "1", C]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.messages()),
        ("0".into(), vec![])
    );
    assert_eq!(desk.keys(), read_keys(&desk, &[(C, 900)], 900, 9_000));
}

/// P11: the leases say how long many readers hold, so that their hold keys are not read.
#[tokio::test(start_paused = true)]
async fn among_many_readers_only_those_whose_leases_ended_are_checked() {
    let owners: Vec<_> = (10..16).map(reader).collect();
    let mut all = vec![(A, 9_000)];
    for (n, owner) in owners.iter().enumerate() {
        all.push((owner, 900 + n as u64));
    }
    let desk = read_by(&all);
    dead(&desk, 9);
    desk.command(&["DEL", &hold_key(&owners[0])]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.messages()),
        ("0".into(), vec![])
    );
    let first = format!("{} = 1, TTL 900\n", hold_key(&owners[0]));
    let expected = read_keys(&desk, &all[1..], 9_000, 9_000).replace(&first, "");
    assert_eq!(desk.keys(), expected);
    // A writer polls when the last lease ends.
    assert_eq!(
        (write(&desk, B, "try"), desk.keys()),
        ("-909".into(), expected)
    );
}

#[tokio::test(start_paused = true)]
async fn a_lock_whose_readers_are_all_dead_is_free() {
    for count in [1, 5, 64] {
        let desk = read_by(&[(A, 9_000)]);
        dead(&desk, count);
        assert_eq!(
            (read_release(&desk, A, "1", "0"), desk.messages()),
            ("0".into(), vec!["base 0".into()])
        );
        assert_eq!(desk.keys(), "", "{count}");

        let desk = read_by(&[(B, 9_000)]);
        desk.command(&["DEL", &hold_key(B)]);
        desk.command(&["ZADD", READERS, "1", B]);
        dead(&desk, count - 1);
        // A stale lease of a reader that is not in the hash.
        desk.command(&["ZADD", READERS, &in_ms(&desk, 50), C]);
        let token = write(&desk, A, "new");
        assert!(token.parse::<u64>().unwrap() > 0, "{count}: {token}");
        assert_eq!(
            desk.keys(),
            format!("fence = {token}, TTL -1\njob = mode write {A}:write 1, TTL 30000")
        );
    }
    // A waiter is granted the lock.
    let mut desk = read_by(&[(A, 9_000)]);
    dead(&desk, 5);
    desk.subscribe(&super::direct::channel(B), 1);
    queue(&desk, &[B]);
    assert_eq!(read_release(&desk, A, "1", "0"), "1");
    assert_eq!(holders(&desk), format!("{{mode write {B}:write 1}}"));
}

/// P11.
#[tokio::test(start_paused = true)]
async fn one_run_removes_64_dead_readers_and_the_next_the_others() {
    let desk = read_by(&[(A, 9_000)]);
    dead(&desk, 70);
    assert_eq!(read_release(&desk, A, "1", "0"), "0");
    assert_eq!(
        (desk.command(&["HLEN", "job"]), ttl(&desk)),
        ("7".into(), "9000".into())
    );
    let leases = desk.command(&["ZRANGE", READERS, "0", "-1"]);
    let left: Vec<_> = (0..6).rev().map(reader).collect();
    assert_eq!(leases, format!("[{}]", left.join(" ")));
    assert!(write(&desk, A, "try").parse::<u64>().unwrap() > 0);
    assert_eq!(desk.command(&["EXISTS", READERS]), "0");
}

/// A reader that joins removes the eight whose leases ended first.
#[tokio::test(start_paused = true)]
async fn a_reader_that_joins_removes_eight_dead_readers() {
    let desk = read_by(&[(B, 60_000)]);
    dead(&desk, 10);
    assert_eq!(read(&desk, A, "new"), "0");
    assert_eq!(
        holders(&desk),
        format!("{{mode read {B} 1 {} 1 {} 1 {A} 1}}", reader(0), reader(1))
    );
    assert_eq!(
        desk.command(&["ZRANGE", READERS, "0", "-1"]),
        format!("[{} {} {A} {B}]", reader(1), reader(0))
    );
    // A nested read of a writer has no other readers to remove.
    let desk = written_by(A, 9_000);
    dead(&desk, 1);
    let (hold, writer) = (hold_key(B), format!("{A}:write"));
    let keys = ["job", "line", "wake", READERS, &hold];
    let not_after = (desk.now() + FOREVER).to_string();
    let args = [
        B, "30000", &not_after, "new", "PUBLISH", "base", "r", "job:", &writer, "99",
    ];
    let reply = desk.run((read::ACQUIRE.text(), &keys, &args));
    assert_eq!(
        (reply, holders(&desk)),
        (
            "0".into(),
            format!("{{mode write {A}:write 1 {} 1 {B} 1}}", reader(0))
        )
    );
}

/// Redisson's readers, and those of older versions, have no known lease: they are checked once, and then have one.
#[tokio::test(start_paused = true)]
async fn many_readers_without_a_known_lease_are_checked_and_added() {
    let desk = read_by(&[(A, 9_000)]);
    let live: Vec<_> = (10..14).map(reader).collect();
    for (n, owner) in live.iter().enumerate() {
        redisson(&desk, owner, 1, &[(1, 900 + n as u64)]);
    }
    for n in 20..23 {
        redisson(&desk, &reader(n), 1, &[]);
    }
    assert_eq!(read_release(&desk, A, "1", "0"), "0");
    let all: Vec<_> = live
        .iter()
        .enumerate()
        .map(|(n, owner)| (owner.as_str(), 900 + n as u64))
        .collect();
    assert_eq!(desk.keys(), read_keys(&desk, &all, 903, 9_000));

    // A known lease is not replaced by that of the sample.
    let desk = read_by(&[(A, 9_000), (B, 5_000)]);
    for (n, owner) in live.iter().enumerate() {
        redisson(&desk, owner, 1, &[(1, 900 + n as u64)]);
    }
    desk.command(&["PEXPIRE", &hold_key(B), "300"]);
    assert_eq!(write(&desk, C, "try"), "-9004");
    assert_eq!(desk.command(&["ZSCORE", READERS, B]), in_ms(&desk, 5_000));
    assert_eq!(desk.command(&["PTTL", READERS]), "9000");
}

/// P11: at most 64 are checked. The lock keeps its TTL, because the others may hold for longer.
#[tokio::test(start_paused = true)]
async fn more_readers_than_one_run_checks_keep_the_lock_as_it_is() {
    let desk = read_by(&[(A, 9_000)]);
    for n in 0..80 {
        redisson(&desk, &reader(n), 1, &[(1, 900)]);
    }
    assert_eq!(read_release(&desk, A, "1", "0"), "0");
    assert_eq!(ttl(&desk), "9000");
    let known: usize = desk.command(&["ZCARD", READERS]).parse().unwrap();
    assert!((63..=64).contains(&known), "{known}");
    // A writer polls again soon.
    assert_eq!(write(&desk, B, "try"), "-104");
}

#[tokio::test(start_paused = true)]
async fn a_writer_polls_when_the_longest_hold_ends() {
    // The lock lasts longer than its readers.
    let desk = read_by(&[(B, 900), (C, 500)]);
    desk.command(&["PEXPIRE", "job", "9000"]);
    assert_eq!(write(&desk, A, "try"), "-904");
    assert!(write(&desk, A, "new").starts_with("[-904 "));
    assert_eq!(
        (queued(&desk), ttl(&desk)),
        (format!("[{A}]"), "9000".into())
    );
    // The readers last longer, or the lock has no TTL.
    let desk = read_by(&[(B, 900)]);
    desk.command(&["PEXPIRE", "job", "500"]);
    assert_eq!(write(&desk, A, "try"), "-504");
    desk.command(&["PERSIST", "job"]);
    assert_eq!(write(&desk, A, "try"), "-904");
}

/// R8.
#[tokio::test(start_paused = true)]
async fn at_maxmemory_a_writer_sees_how_long_the_readers_hold() {
    let mut desk = read_by(&[(B, 900)]);
    desk.command(&["ZADD", READERS, "1", B]);
    desk.fill(true);
    assert_eq!(write(&desk, A, "try"), "-904");
    assert_eq!(desk.keys(), read_keys(&desk, &[(B, 900)], 900, 900));
    // A process waits without an entry, and its request serves no other.
    desk.subscribe(&super::direct::channel(C), 1);
    queue(&desk, &[&format!("{C}r")]);
    let before = desk.keys();
    assert_eq!(read_within(&desk, A, "new", "R", FOREVER), "-904");
    assert_eq!((desk.keys(), desk.messages()), (before, vec![]));
}

/// A writer that finds dead readers in front of other waiters leaves the lock to them.
#[tokio::test(start_paused = true)]
async fn a_new_writer_that_frees_the_lock_does_not_overtake_the_queue() {
    let mut desk = read_by(&[(B, 900)]);
    desk.subscribe(&super::direct::channel(C), 1);
    desk.command(&["DEL", &hold_key(B)]);
    queue(&desk, &[C]);
    let reply = write(&desk, A, "new");
    assert_eq!(reply, format!("[-54 {0} {0} 0 0 1]", desk.now()));
    assert_eq!(
        (holders(&desk), queued(&desk)),
        ("{}".into(), format!("[{C} {A}]"))
    );
    assert_eq!(desk.command(&["EXISTS", READERS]), "0");
}

#[tokio::test(start_paused = true)]
async fn a_release_of_one_hold_renews_the_others() {
    // R3: no TTL is shortened.
    let desk = read_by(&[(A, 60_000)]);
    desk.command(&["HSET", "job", A, "2"]);
    assert_eq!(read_release(&desk, A, "2", "0"), "0");
    assert_eq!(
        desk.keys(),
        read_keys(&desk, &[(A, 60_000)], 60_000, 60_000)
    );
    // A reader that has no known lease gets none.
    let desk = Desk::new();
    desk.command(&["HSET", "job", "mode", "read", A, "2"]);
    desk.command(&["PEXPIRE", "job", "900"]);
    assert_eq!(read_release(&desk, A, "2", "0"), "0");
    assert_eq!(
        desk.keys(),
        format!(
            "job = mode read {A} 1, TTL 30000\n{} = 1, TTL 30000",
            hold_key(A)
        )
    );
}

/// The end of the last hold removes what is left of other readers.
#[tokio::test(start_paused = true)]
async fn the_last_release_removes_stale_leases() {
    let desk = read_by(&[(A, 9_000)]);
    desk.command(&["ZADD", READERS, &in_ms(&desk, 50), C]);
    assert_eq!(
        (read_release(&desk, A, "1", "0"), desk.keys()),
        ("0".into(), String::new())
    );
    // An owner without a hold frees nothing.
    let desk = read_by(&[(B, 9_000)]);
    queue(&desk, &[A]);
    let before = desk.keys();
    for quits in ["0", "1"] {
        assert_eq!(read_release(&desk, A, "1", quits), "-2");
        assert_eq!(desk.keys(), before);
    }
    let desk = written_by(B, 9_000);
    let before = desk.keys();
    for quits in ["0", "1"] {
        assert_eq!(write_release(&desk, A, "1", quits), "-2");
        assert_eq!(desk.keys(), before);
    }
}
