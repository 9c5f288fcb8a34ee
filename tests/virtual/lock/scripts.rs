//! Runs the lock's scripts directly, in states and with refusals that clients rarely cause: late requests, rights that are missing, a server
//! at maxmemory, and foreign values. [`stanchion_tests::transcript`] describes the notation.

use stanchion_lock::scripts::{ACQUIRE, HAND_OFF, RELEASE, TEND};
use stanchion_tests::transcript;

const KEYS: &str = "job fence line wake";

/// `acquire OWNER WORD ARRIVAL …`, `hand_off KEEP` from A to A2, `tend RELAY`, `release OWNER PLACES`.
pub(super) fn check(text: &str) {
    let acquire = "$1 $lease:30000 $until:now+10s $* PUBLISH base";
    let hand_off = "base $publish:PUBLISH A A2 30000 $until:now+10s $1";
    let scripts = [
        ("acquire", ACQUIRE.text(), KEYS, acquire),
        ("hand_off", HAND_OFF.text(), KEYS, hand_off),
        ("tend", TEND.text(), KEYS, "base PUBLISH $1"),
        ("release", RELEASE.text(), KEYS, "base PUBLISH $1 $2"),
    ];
    transcript::check(&scripts, text);
}

#[test]
fn without_the_right_to_set_a_lease_an_acquire_takes_nothing() {
    check(
        "a free lock, with the right
        > acquire A new -> now; fence = now; job = {A 1} /30000

        a free lock
        + refuse PEXPIRE
        > acquire A new -> error NOPERM no right to PEXPIRE; fence = now
        + line = [B] /150000
        > acquire A ask -> error NOPERM no right to PEXPIRE; fence = now+1us

        R4: a replay that fails keeps the hold
        + job = {A 3} /1000; refuse PEXPIRE
        > acquire A ask -> error NOPERM no right to PEXPIRE; fence = now",
    );
}

/// P3.
#[test]
fn a_late_request_changes_nothing() {
    for state in [
        "fence = 7",
        "line = [B] /150000",
        "job = {A 1} /9000; line = [A] /150000",
        "job = {B 1} /9000; line = [C] /150000",
    ] {
        let text = "late
            + @state
            > acquire A new until=now-1us -> -1
            > acquire A ask until=now-1us -> -1
            > acquire A look until=now-1us -> -1
            > hand_off 1 until=now-1us -> -1
            > hand_off 0 until=now-1us -> -1";
        check(&text.replace("@state", state));
    }
}

/// R3, R4, P6.
#[test]
fn a_replay_keeps_the_count_and_the_longer_lease() {
    check(
        "the lease in the request is shorter
        + job = {A 3} /60000; line = [A B] /150000
        > acquire A look -> now; fence = now; line = [B@2] /150000

        the lease in the request is longer
        + job = {A 3} /1000; line = [A B] /150000
        > acquire A look -> now; fence = now; job = {A 3} /30000; line = [B@2] /150000

        a hand-off of a shorter lease
        + job = {A2 3} /60000
        > hand_off 1 -> now; fence = now

        a hand-off of a longer lease
        + job = {A2 3} /1000
        > hand_off 1 -> now; fence = now; job = {A2 3} /30000",
    );
}

#[test]
fn a_lock_in_use_as_a_read_write_lock_is_an_error() {
    check(
        "a hash of a read-write lock
        + job = {mode 1} /9000; line = [B] /150000
        > acquire A new -> error WRONGTYPE this name is in use as a read-write lock
        > acquire A ask -> error WRONGTYPE this name is in use as a read-write lock
        > acquire A look -> error WRONGTYPE this name is in use as a read-write lock
        > acquire A try -> error WRONGTYPE this name is in use as a read-write lock",
    );
}

#[test]
fn a_request_that_does_not_wait_leaves_the_queue_as_it_is() {
    check(
        "a held lock
        + job = {B 1} /1000
        > acquire A try -> -1004

        a free lock with a queue
        + line = [B] /150000; heard B
        > acquire A try -> now; fence = now; job = {A 1} /30000",
    );
}

/// L6.
#[test]
fn a_new_waiter_and_a_client_that_polls_do_not_overtake() {
    check(
        "a new waiter polls at random; a client that polls tries 50 ms later
        + line = [B] /150000; heard B
        > acquire A new 77 -> [-15004 now 77 0 1 0]; line = [B A@77] /150000
        > acquire C ask 99 0? -> [-54 now 99 0 0 0]; line = [B A@77 C?@99] /150000; wake = {C now} /60000
        + ZREM line B A
        > acquire C ask 99 0? -> now; fence = now; job = {C 1} /30000; line is gone; wake is gone",
    );
}

#[test]
fn a_hand_off_replaces_the_owner_or_fails() {
    check(
        "the lock is held
        + job = {A 2} /50000
        > hand_off 1 -> now; fence = now; job = {A2 1} /30000

        the server is at maxmemory
        + job = {A 2} /50000; full
        > hand_off 1 -> now; fence = now; job = {A2 1} /30000

        R7: the lock is free, and the new owner has no entry
        + line = [B] /150000
        > hand_off 1 -> -2
        > hand_off 0 -> -2

        R7: another owner holds the lock
        + job = {B 1} /9000; line = [B] /150000
        > hand_off 1 -> -2
        > hand_off 0 -> -2

        R15: no token can be minted, so the old owner holds, and the client then releases
        + job = {A 2} /9000; fence = x
        > hand_off 1 -> error WRONGTYPE the fencing counter fence is not a whole number below 2^53 - 1;
            job = {A 2} /30000

        no right to set the lease
        + job = {A 2} /9000; refuse PEXPIRE
        > hand_off 1 -> error NOPERM no right to PEXPIRE

        no right to mint the token
        + job = {A 2} /9000; refuse SET
        > hand_off 1 -> error NOPERM no right to SET; job = {A 2} /30000

        no right to set the owner
        + job = {A 2} /9000; refuse HSET
        > hand_off 1 -> error NOPERM no right to HSET; fence = now; job = {A 2} /30000",
    );
}

/// The ninth hand-off in a row, and one after each waiter of the process has had a hold.
#[test]
fn at_the_end_of_its_turn_a_process_keeps_the_lock_if_no_other_waits() {
    for keep in ["0", "2"] {
        let text = "no other client is subscribed
            + job = {A 2} /9000; heard C
            > hand_off @keep -> now; fence = now; job = {A2 1} /30000

            the only subscriber is a relay
            + job = {A 2} /9000; heard base base:stanchion
            > hand_off @keep -> now; fence = now; job = {A2 1} /30000

            the subscribed channel is another one
            + job = {A 2} /9000; sharded base
            > hand_off @keep -> now; fence = now; job = {A2 1} /30000

            a client of Redisson's waits
            + job = {A 2} /9000; heard base
            > hand_off @keep -> [-6 now now 1 0 1]; base: 00; A: P A2 2; line = [A2@now] /22500;
                wake = {turn 0, until now+2ms} /60000; job is gone

            the script has no right to count subscribers
            + job = {A 2} /9000; refuse PUBSUB
            > hand_off @keep -> [-6 now now 1 0 1]; base: 00; A: P A2 2; line = [A2@now] /22500;
                wake = {turn 0, until now+2ms} /60000; job is gone";
        check(&text.replace("@keep", keep));
    }
    check(
        "with `SPUBLISH` subscribers of both kinds of channels are counted accordingly
        + job = {A 2} /9000; sharded base
        > hand_off 0 publish=SPUBLISH -> [-6 now now 1 0 1]; base: 00; A: P A2 2; line = [A2@now] /22500;
            wake = {turn 0, until now+2ms} /60000; job is gone",
    );
}

#[test]
fn at_the_end_of_its_turn_a_process_is_queued_and_the_head_is_granted() {
    for full in ["", "; full"] {
        let text = "P6: the replay finds the entry, which keeps its arrival
            + job = {A 2} /9000; fence = 7000000000000000; line = [B] /150000; heard B@full
            > hand_off 0 -> [-1504 now now 0 0 0]; B: G B 7000000000000001 now 1500 fence; A: N A2 1500;
                fence = 7000000000000001; job = {B 1} /1500; line = [A2@now] /150000; wake = {granted B} /60000
            + ZADD line 5 A2
            > hand_off 0 -> [-1504 now 5 0 0 0]";
        check(&text.replace("@full", full));
    }
    check(
        "P6: the lock became free between the two runs
        + line = [A2 B] /150000
        > hand_off 0 -> now; B: N B 30000; fence = now; job = {A2 1} /30000; line = [B@2] /150000

        a turn of Redisson's clients begins
        + job = {A 2} /9000; heard base A; wake = {turn 1}
        > hand_off 0 -> [-6 now now 1 0 1]; base: 00; A: P A2 2; line = [A2@now] /22500;
            wake = {turn 0, until now+2ms} /60000; job is gone

        dead processes are left in the queue
        + job = {A 1} /9000; line = [x1..17] /150000; heard A
        > hand_off 0 -> [tend 0 [-29 now now 0 0 1]]; x1..16: G; fence = now+15us; line = [A2@now] /150000; job is gone",
    );
}

#[test]
fn a_release_without_a_queue_publishes_for_redisson() {
    check(
        "no subscribers; the second run finds no hold
        + job = {A 2} /9000
        > release A 0 -> 0; base: 0; job is gone
        > release A 1 -> -2

        three subscribers
        + job = {A 2} /9000; heard base=3
        > release A 0 -> 3; base: 0; wake = {turn 0, until now+2ms} /3000; job is gone
        > release A 1 -> -2

        no right to publish
        + job = {A 2} /9000; refuse PUBLISH
        > release A 0 -> -1; job is gone",
    );
}

/// L4.
#[test]
fn a_process_that_leaves_the_queue_of_a_held_lock_passes_its_watch_on() {
    check(
        "the head leaves
        + job = {C 1} /900; line = [A B] /150000; heard B; wake = {A 5}
        > release A 1 -> 0; B: N B 900; line = [B@2] /150000; wake is gone

        a head that polls leaves
        + job = {C 1} /900; line = [A? B] /150000; heard B; wake = {A 5}
        > release A 1 -> 0; B: N B 900; line = [B@2] /150000; wake is gone

        an entry that is not the head leaves
        + job = {C 1} /900; line = [B A] /150000
        > release A 1 -> 0; line = [B] /150000

        the process has no entry
        + job = {C 1} /900; line = [B C] /150000
        > release A 1 -> -2

        the process keeps its entry
        + job = {C 1} /900; line = [A B] /150000
        > release A 0 -> -2

        the last entry removes the notes
        + job = {C 1} /900; line = [A] /150000; wake = {turn 5}
        > release A 1 -> 0; line is gone; wake is gone",
    );
}

/// P6: the reply says what this run has found.
#[test]
fn a_repeated_release_of_a_free_lock_serves_the_queue() {
    check(
        "without an entry
        + line = [B] /150000; heard B
        > release A 1 -> -2; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone

        with an entry
        + line = [A B] /150000; heard B
        > release A 1 -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone",
    );
}

/// L9.
#[test]
fn the_relay_serves_the_queue_of_a_free_lock_only() {
    check(
        "a report of the relay
        + job = {C 1} /900; line = [B] /150000; heard B; wake = {sentry A, unused 3, heard 5}
        > tend @A -> -1; wake = {sentry A, unused 3, heard now, ended now}
        + DEL job
        > tend @A -> -1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone; wake is gone
        + DEL job
        > tend @A -> -1

        R8: the server is at maxmemory
        + line = [B] /150000; heard B; full
        > tend '' -> -1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone",
    );
}
