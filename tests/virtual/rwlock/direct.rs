//! Runs the scripts directly, in states and with refusals that clients rarely cause: late requests, rights that are missing, replays, and
//! processes that leave the queue. [`stanchion_tests::transcript`] describes the notation.

use stanchion_rwlock::{layout, read, write};
use stanchion_tests::transcript;

/// Runs cases of `read OWNER WORD …`, `write OWNER WORD …`, `unread OWNER`, `unwrite OWNER` (releases), `downgrade WRITER READER`, `tend`,
/// `reread OWNER COUNT`, `rewrite OWNER:write COUNT` (re-entries) and `renew OWNER` (of a reader), and those of Redisson.
pub(super) fn check(text: &str) {
    let (readers, writers) = (
        "job line wake readers $1.hold1 fence",
        "job fence line wake readers",
    );
    let release = "base PUBLISH $1 $n:1 30000 '' $quits:0";
    let scripts = [
        (
            "read",
            read::ACQUIRE.text(),
            "job line wake readers $1.hold1",
            "$1 30000 $until:now+9s $* PUBLISH base $side:r '' $in:'' $since:99",
        ),
        (
            "write",
            write::ACQUIRE.text(),
            writers,
            "$1 30000 $until:now+9s $* PUBLISH base ''",
        ),
        ("unread", read::RELEASE.text(), readers, release),
        ("unwrite", write::RELEASE.text(), writers, release),
        (
            "downgrade",
            write::DOWNGRADE.text(),
            "job line wake readers $2.hold1",
            "base PUBLISH $1 $2 30000 $until:now+9s ''",
        ),
        (
            "tend",
            layout::TEND.text(),
            writers,
            "base PUBLISH $sentry:'' ''",
        ),
        (
            "reread",
            read::REENTER.text(),
            "job $1.hold1 readers",
            "$1 30000 $until:now+9s $2",
        ),
        (
            "rewrite",
            write::REENTER.text(),
            "job",
            "$1 30000 $until:now+9s $2",
        ),
        (
            "renew",
            read::RENEW.text(),
            "job $1.hold1 readers",
            "$until:now+9s $1 30000",
        ),
        // The readers, and the entries of the queue.
        (
            "sizes",
            "return { redis.call('HLEN', KEYS[1]) - 1, redis.call('ZCARD', KEYS[2]) }",
            "job line",
            "",
        ),
        // The readers with a known lease. A sample of 64 fields may have the mode.
        (
            "known",
            "local n = redis.call('ZCARD', KEYS[1]) return (n == 63 or n == 64) and 'about 64' or n",
            "readers",
            "",
        ),
    ];
    let scripts = [&scripts[..], &super::direct_redisson::SCRIPTS].concat();
    transcript::check(&scripts, text);
}

/// P3.
#[test]
fn a_late_request_changes_nothing() {
    for state in [
        "reads B/9000",
        "fence = 7",
        "job = {mode write, B:write 1} /9000",
    ] {
        for line in ["", "; line = [C]"] {
            let text = "late
                + @state@line
                > read A new until=now-1us -> -1
                > read A ask until=now-1us -> -1
                > read A look until=now-1us -> -1
                > write A new until=now-1us -> -1
                > write A ask until=now-1us -> -1
                > write A look until=now-1us -> -1
                > downgrade A C until=now-1us -> -2
                > reread B 1 until=now-1us -> -1
                > rewrite B:write 1 until=now-1us -> -1
                > renew B until=now-1us -> -1";
            check(&text.replace("@state", state).replace("@line", line));
        }
    }
    check(
        "the caller holds
        + job = {mode write, A:write 1} /9000
        > read A new until=now-1us in=A:write -> -1
        > write A new until=now-1us -> -1
        > downgrade A C until=now-1us -> -1

        a try that finds a writer takes nothing, so it needs no check of the time
        + job = {mode write, B:write 1} /900
        > read A try until=now-1us -> -904
        > write A try until=now-1us -> -904",
    );
}

/// R4, R9: also a grant by message. Its release stands, and the lock is free.
#[test]
fn without_the_right_to_set_a_lease_an_acquire_takes_nothing() {
    check(
        "a free lock
        + refuse PEXPIRE
        > read A new -> error NOPERM no right to PEXPIRE
        > write A new -> error NOPERM no right to PEXPIRE; fence = now

        with a queue
        + line = [B]; refuse PEXPIRE
        > write A ask -> error NOPERM no right to PEXPIRE; fence = now

        next to a reader
        + reads B/9000; refuse PEXPIRE
        > read A new -> error NOPERM no right to PEXPIRE

        a grant to a reader
        + job = {mode write, A:write 1} /9000; heard B; line = [Br] /150000; refuse PEXPIRE
        > unwrite A -> -1; base: 1; B: P B 0; job is gone

        a grant to a writer
        + job = {mode write, A:write 1} /9000; heard B; line = [B] /150000; refuse PEXPIRE
        > unwrite A -> -1; base: 1; B: P B 0; fence = now; job is gone

        a replay of a reader that holds
        + reads A/900; HSET job A 3; refuse PEXPIRE
        > read A ask -> error NOPERM no right to PEXPIRE; A.hold1 = 1 /30000; readers = [A@ms+30000ms] /900

        a replay of a writer that holds
        + job = {mode write, A:write 1} /900; refuse PEXPIRE
        > write A ask -> error NOPERM no right to PEXPIRE; fence = now",
    );
}

/// R16: the hash is a lock's, or a key of another program is where the readers' leases or the notes belong.
#[test]
fn a_foreign_key_is_an_error_and_leaves_no_hold() {
    let wrong =
        "error WRONGTYPE the name belongs to another kind of synchronizer: its hash has no mode";
    let text = "a hash without a mode
        + job = {B 1}
        > read A new -> @wrong
        > read A ask -> @wrong
        > read A try -> @wrong
        > write A new -> @wrong
        > write A ask -> @wrong
        > write A try -> @wrong

        in the place of the counter; readers need no token
        + fence = x
        > write A new -> @fence
        > read A new -> 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000; readers = [A@ms+30000ms] /30000

        a counter, with a queue
        + fence = x; line = [A] /150000
        > write A ask 1 -> @fence

        in the place of the leases
        + readers = x
        > read A new -> error WRONGTYPE Operation against a key holding the wrong kind of value; A.hold1 = 1 /30000

        in the place of the notes
        + reads B/900; line = [AR] /150000; wake = x
        > unread A quits=1 -> 0; line is gone";
    let fence = "error WRONGTYPE the fencing counter fence is not a whole number below 2^53 - 1";
    check(&text.replace("@wrong", wrong).replace("@fence", fence));
}

#[test]
fn a_request_that_does_not_wait_gets_no_entry() {
    check(
        "a writer holds
        + job = {mode write, B:write 1} /900
        > read A try -> -904
        > write A try -> -904

        a reader holds, and another process waits
        + reads B/900; line = [C]
        > read A try side=R -> -904
        > write A try -> -904
        > read A try -> 0; A.hold1 = 1 /30000; job = {mode read, B 1, A 1} /30000;
            readers = [B@ms+900ms A@ms+30000ms] /30000

        a free lock: the entry and the notes of the queue stay
        + line = [C]; wake = {granted B}
        > read A try -> 0; C: N C 30000; A.hold1 = 1 /30000; job = {mode read, A 1} /30000;
            readers = [A@ms+30000ms] /30000

        the same for a writer
        + line = [C]; wake = {granted B}
        > write A try -> now; fence = now; job = {mode write, A:write 1} /30000",
    );
}

/// R3, R4, P6.
#[test]
fn a_replay_keeps_the_count_and_the_longer_lease() {
    check(
        "a reader with a longer lease
        + reads A/60000; HSET job A 3; line = [Ar C] /150000
        > read A ask -> 0; line = [C@2] /150000

        a reader with a shorter lease
        + reads A/900; HSET job A 3; line = [Ar C] /150000
        > read A ask -> 0; A.hold1 = 1 /30000; job = {mode read, A 3} /30000; line = [C@2] /150000;
            readers = [A@ms+30000ms] /30000

        a writer with a longer lease
        + job = {mode write, A:write 3} /60000; line = [A C] /150000
        > write A ask -> now; fence = now; line = [C@2] /150000

        a writer with a shorter lease
        + job = {mode write, A:write 3} /900; line = [A C] /150000
        > write A ask -> now; fence = now; job = {mode write, A:write 3} /30000; line = [C@2] /150000

        a re-entry sets a count, and never lowers it
        + reads A/900
        > reread A 1 -> 0; A.hold1 = 1 /30000; job = {mode read, A 2} /30000; readers = [A@ms+30000ms] /30000
        > reread A 1 -> 0
        > reread A 2 -> 0; job = {mode read, A 3} /30000
        > reread A 1 -> 0
        > reread B 1 -> -2

        a re-entry keeps the longer lease, and sets a hold key that is missing
        + reads A/60000; DEL A.hold1
        > reread A 1 -> 0; A.hold1 = 1 /30000; job = {mode read, A 2} /60000

        a writer's re-entry
        + job = {mode write, A:write 1} /900
        > rewrite A:write 1 -> 0; job = {mode write, A:write 2} /30000
        > rewrite A:write 2 -> 0; job = {mode write, A:write 3} /30000
        > rewrite A:write 1 -> 0
        > rewrite B:write 1 -> -2

        a renewal of a reader, and of one that has no hold key
        + reads A/900 B/60000; DEL B.hold1
        > renew A -> [1]; A.hold1 = 1 /30000; readers = [A@ms+30000ms B@ms+60000ms] /60000
        > renew B -> [1]; B.hold1 = 1 /30000
        > renew C -> [0]

        a renewal lengthens the key of leases
        + reads A/900
        > renew A -> [1]; A.hold1 = 1 /30000; job = {mode read, A 1} /30000; readers = [A@ms+30000ms] /30000

        R16: a foreign key in its place
        + reads A/900; readers = x
        > renew A -> [-1]; A.hold1 = 1 /30000; job = {mode read, A 1} /30000

        R16: a foreign key in the place of the lock
        + job = x
        > renew A -> [-1]

        no right to set a TTL
        + reads A/900; refuse PEXPIRE
        > renew A -> [-1]; readers = [A@ms+30000ms] /900",
    );
}

/// P6, R15.
#[test]
fn the_last_release_frees_the_lock_and_publishes_for_redisson() {
    check(
        "a reader
        + reads A/9000
        > unread A -> 0; base: 0; A.hold1 is gone; job is gone; readers is gone
        > unread A -> -2

        a writer
        + job = {mode write, A:write 1} /9000
        > unwrite A -> 0; base: 1; job is gone
        > unwrite A -> -2

        a reader without the right to publish
        + reads A/9000; refuse PUBLISH
        > unread A -> -1; A.hold1 is gone; job is gone; readers is gone

        a writer without the right to publish
        + job = {mode write, A:write 1} /9000; refuse PUBLISH
        > unwrite A -> -1; job is gone

        a stale lease of another reader
        + reads A/9000; ZADD readers ms+50ms C
        > unread A -> 0; base: 0; A.hold1 is gone; job is gone; readers is gone

        an owner without a hold frees nothing
        + reads B/9000; line = [A]
        > unread A -> -2
        > unread A quits=1 -> -2

        next to a writer
        + job = {mode write, B:write 1} /9000
        > unwrite A -> -2
        > unwrite A quits=1 -> -2",
    );
}

#[test]
fn one_hold_of_several_is_counted_down_and_the_others_are_renewed() {
    check(
        "a reader without a hold key
        + reads A/900; HSET job A 3; DEL A.hold1
        > unread A n=3 -> 0; A.hold1 = 1 /30000; job = {mode read, A 2} /30000; readers = [A@ms+30000ms] /30000
        > unread B n=3 -> -2

        R3: no TTL is shortened
        + reads A/60000; HSET job A 2
        > unread A n=2 -> 0; job = {mode read, A 1} /60000

        a reader that has no known lease gets none
        + job = {mode read, A 2} /900
        > unread A n=2 -> 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000

        a writer
        + job = {mode write, A:write 3} /900
        > unwrite A n=3 -> 0; job = {mode write, A:write 2} /30000
        > unwrite B n=3 -> -2",
    );
}

#[test]
fn a_release_with_other_readers_keeps_the_lock_for_the_longest_of_them() {
    check(
        "two others
        + reads A/9000 B/900 C/500; line = [A]
        > unread A -> 0; job = {mode read, B 1, C 1} /900; readers = [C@ms+500ms B@ms+900ms] /9000; A.hold1 is gone

        a reader without a hold key is dead, so the lock is free
        + reads A/9000 B/900; DEL B.hold1
        > unread A -> 0; base: 0; A.hold1 is gone; job is gone; readers is gone

        inside a write hold, whose lease stays
        + job = {mode write, A:write 1, B 1} /9000; B.hold1 = 1 /900
        > unread B -> 0; job = {mode write, A:write 1} /9000; B.hold1 is gone",
    );
}

/// L4.
#[test]
fn a_process_that_leaves_the_queue_passes_its_watch_on() {
    for side in ["r", "R", "r?", "R?", "", "?"] {
        let reads = side.contains(['r', 'R']);
        let text = "the head leaves
            + job = {mode write, C:write 1} /900; heard B; line = [A@side B] /150000
            > un@word A quits=1 -> 0; B: N B 900; line = [B@2] /150000

            the last one leaves
            + job = {mode write, C:write 1} /900; heard B; line = [B A@side] /150000
            > un@word A quits=1 -> 0; line = [B] /150000

            not in the queue
            + job = {mode write, C:write 1} /900; line = [B] /150000
            > un@word A quits=1 -> -2

            the lock is free: the queue is served
            + heard B; line = [A@side B] /150000
            > un@word A quits=1 -> 1; B: G B now now 1500 fence; fence = now; job = {mode write, B:write 1} /1500;
                line is gone";
        let word = if reads { "read" } else { "write" };
        check(&text.replace("@side", side).replace("@word", word));
    }
    check(
        "the last one of the queue of a held lock removes the notes
        + reads C/900; line = [AR]; wake = {turn 1}
        > unread A quits=1 -> 0; line is gone; wake is gone",
    );
}

/// P3: a writer that gives up what a lost reply may have granted, and one that releases. Its read holds stay.
#[test]
fn a_write_release_leaves_the_queue_or_the_read_holds_of_its_owner() {
    for quits in ["0", "1"] {
        let text = "the next writer
            + job = {mode write, A:write 1} /9000; heard B; line = [B] /150000
            > unwrite A quits=@quits -> 1; B: G B now now 1500 fence; fence = now; job = {mode write, B:write 1} /1500;
                line is gone

            the head waits for the writer's reads
            + job = {mode write, A:write 1, A 1} /9000; heard B; line = [B] /150000
            > unwrite A quits=@quits -> 0; base: 01; job = {mode read, A 1} /9000";
        check(&text.replace("@quits", quits));
    }
    check(
        "no process waits; Redisson publishes no message here
        + job = {mode write, A:write 1, A 1} /9000; heard base B
        > unwrite A -> 1; base: 1; job = {mode read, A 1} /9000

        readers join the reads of the writer
        + job = {mode write, A:write 1, A 1} /9000; heard base B; line = [Br C] /150000
        > unwrite A -> 2; base: 01; B: G B 0 now 1500 -; C: N C 1500; B.hold1 = 1 /1500;
            job = {mode read, A 1, B 1} /9000; line = [C@2] /150000; readers = [B@ms+1500ms] /9000;
            wake = {granted B} /60000",
    );
}

/// R3, R8, R10.
#[test]
fn a_downgrade_leaves_one_reader_and_lets_readers_join() {
    check(
        "a longer lease stays, at maxmemory; a replay renews the lease
        + job = {mode write, A:write 3} /60000; full
        > downgrade A C -> 0; base: 1; C.hold1 = 1 /30000; job = {mode read, C 1} /60000;
            readers = [C@ms+30000ms] /60000
        + PEXPIRE C.hold1 60000
        > downgrade A C -> 0
        > downgrade A B -> -2

        a shorter lease
        + job = {mode write, A:write 1} /900
        > downgrade A C -> 0; base: 1; C.hold1 = 1 /30000; job = {mode read, C 1} /30000;
            readers = [C@ms+30000ms] /30000

        a reader waits
        + job = {mode write, A:write 1} /9000; heard B; line = [BR A] /150000
        > downgrade A C -> 0; base: 01; B: G B 0 now 1500 -; A: N A 1500; B.hold1 = 1 /1500; C.hold1 = 1 /30000;
            job = {mode read, C 1, B 1} /30000; line = [A@2] /150000; readers = [B@ms+1500ms C@ms+30000ms] /30000;
            wake = {granted B} /60000",
    );
}
