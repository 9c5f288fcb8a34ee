//! Runs the scripts directly with many readers, dead readers, and Redisson's readers. The numbers are those of `docs/protocol.md`.

use super::direct::check;

/// R3, R10.
#[test]
fn a_new_reader_has_a_field_a_hold_key_and_a_lease() {
    check(
        "a free lock
        + fence = 7
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000; readers = [A@ms+30000ms] /30000

        a shorter lease than that of the others shortens nothing
        + reads B/60000; PEXPIRE readers 100
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, B 1, A 1} /60000;
            readers = [A@ms+30000ms B@ms+60000ms] /60000

        a hold key that is left of an earlier run
        + A.hold1 = 1 /60000
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000; readers = [A@ms+30000ms] /30000

        inside the write hold of its owner, dead readers stay
        + job = {mode write, A:write 1} /9000; dead x1
        > read B new in=A:write -> 0; B.hold1 = 1 /30000; job = {mode write, A:write 1, x1 1, B 1} /30000;
            readers = [x1@ms-1ms B@ms+30000ms] /30000",
    );
}

/// P1: a reader of Redisson's has a hold key for each hold. Eight are checked, and one that is not may last as long as the lock.
#[test]
fn a_reader_of_redissons_lives_while_one_of_its_hold_keys_does() {
    check(
        "two of eight keys are left
        + reads A/9000; HSET job J 8; J.hold1 = 1 /200; J.hold8 = 1 /700
        > unread A -> 0; job = {mode read, J 8} /700; A.hold1 is gone; readers is gone

        none of eight
        + reads A/9000; HSET job J 8
        > unread A -> 0; base: 0; A.hold1 is gone; job is gone; readers is gone

        none of nine
        + reads A/9000; HSET job J 9
        > unread A -> 0; job = {mode read, J 9} /9000; A.hold1 is gone; readers is gone
        > write B try -> -9004

        the first of nine
        + reads A/9000; HSET job J 9; J.hold1 = 1 /200
        > unread A -> 0; job = {mode read, J 9} /9000; A.hold1 is gone; readers is gone
        > write B try -> -9004

        the ninth, which is not checked
        + reads A/9000; HSET job J 9; J.hold1 = 1 /200; J.hold9 = 1 /5000
        > unread A -> 0; job = {mode read, J 9} /9000; A.hold1 is gone; readers is gone
        > write B try -> -9004",
    );
}

/// P11.
#[test]
fn dead_readers_are_removed_and_those_with_a_hold_key_stay() {
    check(
        "few readers are all checked; the lease of one was renewed in its hold key only
        + reads A/9000 C/900; dead x1 x2; ZADD readers 1 C
        > unread A -> 0; job = {mode read, C 1} /900; readers = [C@ms+900ms] /9000; A.hold1 is gone

        of many readers, only those whose leases ended: x11 has no hold key
        + reads A/9000 x11/901 x12/902 x13/903 x14/904 x15/905 x16/906; dead x1 x2 x3; DEL x11.hold1
        > unread A -> 0; job = {mode read, x11 1, x12 1, x13 1, x14 1, x15 1, x16 1} /9000;
            readers = [x11@ms+901ms x12@ms+902ms x13@ms+903ms x14@ms+904ms x15@ms+905ms x16@ms+906ms] /9000;
            A.hold1 is gone
        > write B try -> -910

        one run removes 64
        + reads A/9000; dead x1..70
        > unread A -> 0; job = {mode read, x1 1, x2 1, x3 1, x4 1, x5 1, x6 1} /9000;
            readers = [x6@ms-6ms x5@ms-5ms x4@ms-4ms x3@ms-3ms x2@ms-2ms x1@ms-1ms] /9000; A.hold1 is gone
        > write A try -> now; fence = now; job = {mode write, A:write 1} /30000; readers is gone

        a reader that joins removes the eight whose leases ended first
        + reads B/60000; dead x1..10
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, B 1, x1 1, x2 1, A 1} /60000;
            readers = [x2@ms-2ms x1@ms-1ms A@ms+30000ms B@ms+60000ms] /60000",
    );
}

#[test]
fn a_lock_whose_readers_are_all_dead_is_free() {
    check(
        "after a release
        + reads A/9000; dead x1
        > unread A -> 0; base: 0; A.hold1 is gone; job is gone; readers is gone

        five
        + reads A/9000; dead x1..5
        > unread A -> 0; base: 0; A.hold1 is gone; job is gone; readers is gone

        as many as one run removes
        + reads A/9000; dead x1..64
        > unread A -> 0; base: 0; A.hold1 is gone; job is gone; readers is gone

        a writer finds them, and a stale lease
        + reads B/9000; DEL B.hold1; ZADD readers 1 B; ZADD readers ms+50ms C
        > write A new -> now; fence = now; job = {mode write, A:write 1} /30000; readers is gone

        five
        + reads B/9000; DEL B.hold1; ZADD readers 1 B; dead x1..4; ZADD readers ms+50ms C
        > write A new -> now; fence = now; job = {mode write, A:write 1} /30000; readers is gone

        as many as one run removes
        + reads B/9000; DEL B.hold1; ZADD readers 1 B; dead x1..63; ZADD readers ms+50ms C
        > write A new -> now; fence = now; job = {mode write, A:write 1} /30000; readers is gone

        a waiter is granted the lock
        + reads A/9000; dead x1..5; heard B; line = [B] /150000
        > unread A -> 1; B: G B now now 1500 fence; fence = now; job = {mode write, B:write 1} /1500; A.hold1 is gone;
            line is gone; readers is gone

        a new writer does not overtake the queue of the lock that it frees
        + reads B/900; DEL B.hold1; heard C; line = [C] /150000
        > write A new -> [-15004 now now 0 1 0]; line = [C A@now] /150000; job is gone; readers is gone",
    );
}

/// P11. Redisson's readers, and those of older versions, have no known lease: they are checked once, and then have one. The lock keeps its
/// TTL while some were not checked, because they may hold for longer.
#[test]
fn readers_without_a_known_lease_are_checked_and_added() {
    check(
        "many; x5, x6 and x7 are dead
        + reads A/9000; HSET job x1 1 x2 1 x3 1 x4 1 x5 1 x6 1 x7 1
        + x1.hold1 = 1 /901; x2.hold1 = 1 /902; x3.hold1 = 1 /903; x4.hold1 = 1 /904
        > unread A -> 0; job = {mode read, x1 1, x2 1, x3 1, x4 1} /904;
            readers = [x1@ms+901ms x2@ms+902ms x3@ms+903ms x4@ms+904ms] /9000; A.hold1 is gone

        a known lease is not replaced by that of the sample
        + reads A/9000 B/5000; HSET job x1 1 x2 1 x3 1 x4 1; PEXPIRE B.hold1 300
        + x1.hold1 = 1 /901; x2.hold1 = 1 /902; x3.hold1 = 1 /903; x4.hold1 = 1 /904
        > write C try -> -9004;
            readers = [x1@ms+901ms x2@ms+902ms x3@ms+903ms x4@ms+904ms B@ms+5000ms A@ms+9000ms] /9000",
    );
    // At most 64 are checked. A writer polls again soon.
    let fields: String = (1..81).map(|n| format!(" x{n} 1")).collect();
    let keys: String = (1..81).map(|n| format!("; x{n}.hold1 = 1 /900")).collect();
    let text = "more readers than one run checks
        + reads A/9000; HSET job@fields@keys
        > unread A -> 0; …
        > sizes -> [80 0]
        > known -> about 64
        > write B try -> -104; …";
    check(&text.replace("@fields", &fields).replace("@keys", &keys));
}

#[test]
fn a_writer_polls_when_the_longest_hold_ends() {
    check(
        "the lock lasts longer than its readers
        + reads B/900 C/500; PEXPIRE job 9000
        > write A try -> -904
        > write A new -> [-904 now now 0 0 0]; line = [A@now] /22500

        the readers last longer
        + reads B/900; PEXPIRE job 500
        > write A try -> -504

        the lock has no TTL
        + reads B/900; PERSIST job
        > write A try -> -904",
    );
}

/// R8: at maxmemory, a process waits without an entry, and its request serves no other.
#[test]
fn at_maxmemory_a_writer_sees_how_long_the_readers_hold() {
    check(
        "a lease that was renewed in its hold key only
        + reads B/900; ZADD readers 1 B; full
        > write A try -> -904; readers = [B@ms+900ms] /900

        a reader
        + reads B/900; heard C; line = [Cr] /150000; full
        > read A new side=R -> -904",
    );
}
