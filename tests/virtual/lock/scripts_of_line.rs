//! Runs the functions of the queue (`line.lua`) through the lock's scripts: dead processes, clients that poll, the notes, and rights that are
//! missing. The numbers are those of `docs/protocol.md`.
//!
//! Long: the cases of one file of functions.

use super::scripts::check;

/// A client that polls is granted the lock if its last request was sent within a second.
#[test]
fn a_client_that_polls_is_dead_after_a_second() {
    check(
        "it has sent a request within a second
        + job = {A 1} /9000; line = [B?] /150000; wake = {B now-999999us} /60000
        > release A 0 -> 1; fence = now; job = {B 1} /1500; line is gone; wake is gone

        a second ago: all processes of the queue are dead, so the lock is free for all
        + job = {A 1} /9000; line = [B?] /150000; wake = {B now-1s} /60000
        > release A 0 -> 0; base: 00; fence = now; job is gone; line is gone; wake is gone

        without a note
        + job = {A 1} /9000; line = [B?] /150000
        > release A 0 -> 0; base: 00; fence = now; job is gone; line is gone

        in front of another waiter
        + job = {C 1} /9000; line = [B?] /150000; wake = {B now-999999us} /60000
        > acquire A new 77 -> [-15004 now 77 0 1 0]; line = [B? A@77] /150000

        dead, in front of another waiter
        + job = {C 1} /9000; line = [B?] /150000; wake = {B now-1s} /60000
        > acquire A new 77 -> [-5004 now 77 0 0 0]; line = [A@77] /150000; wake is gone

        without a note, in front of another waiter
        + job = {C 1} /9000; line = [B?] /150000
        > acquire A new 77 -> [-5004 now 77 0 0 0]; line = [A@77] /150000",
    );
}

/// P4: an expiry does not serve the queue, and the head may be dead or stopped. L3: the head sends a request again, if it is alive.
#[test]
fn a_client_that_polls_takes_a_lock_that_stays_free() {
    for lives in ["0", "1"] {
        let text = "the next request is an `ask` while the lock is held, then a `look`
            + job = {C 1} /900; line = [B A?] /150000; heard B=@lives
            > acquire A ask 1 0 ? -> [-904 now 1 0 0 1]; wake = {A now} /60000
            + DEL job
            > acquire A ask 1 0 ? -> [-54 now 1 0 0 0]
            > acquire A look 1 0 ? -> now; B: P B 0; fence = now; job = {A 1} /30000; line is gone; wake is gone";
        check(&text.replace("@lives", lives));
    }
}

/// R16.
#[test]
fn a_foreign_value_in_place_of_the_notes_stays() {
    check(
        "without a queue
        + job = {A 1} /9000; wake = x
        > release A 0 -> 0; base: 0; job is gone

        with a queue
        + job = {A 1} /9000; line = [B] /150000; heard B; wake = x
        > release A 0 -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone

        a process leaves the queue of a lock that is held
        + job = {A 1} /9000; line = [B] /150000; wake = x
        > release B 1 -> 0; line is gone

        a process leaves no other key
        + job = {A 1} /9000; wake = {turn 5} /60000
        > release A 0 -> 0; base: 0; job is gone; wake is gone",
    );
}

/// R9.
#[test]
fn notes_have_a_lifetime_that_is_never_shortened() {
    check(
        "less than half is left
        + job = {C 1} /9000; wake = {x y} /29999
        > acquire A ask 7 0 ? -> [-9004 now 7 0 0 1]; line = [A?@7] /22500; wake = {x y, A now} /60000

        half is left
        + job = {C 1} /9000; wake = {x y} /30000
        > acquire A ask 7 0 ? -> [-9004 now 7 0 0 1]; line = [A?@7] /22500; wake = {x y, A now} /30000

        more than a whole lifetime is left
        + job = {C 1} /9000; wake = {x y} /100000
        > acquire A ask 7 0 ? -> [-9004 now 7 0 0 1]; line = [A?@7] /22500; wake = {x y, A now} /100000

        no right to set it
        + job = {C 1} /9000; line = [B] /150000; refuse PEXPIRE
        > acquire A ask 7 0 ? -> [-9004 now 7 0 0 1]; line = [B A?@7] /150000",
    );
}

/// R8, R9.
#[test]
fn the_queue_has_a_lifetime_that_exceeds_every_poll_pause() {
    check(
        "less than the pause and its margin is left
        + job = {C 1} /9000; line = [A] /17499
        > acquire A look 1 -> [-5004 now 1 0 0 0]; line = [A] /22500

        as much is left
        + job = {C 1} /9000; line = [A] /17500
        > acquire A look 1 -> [-5004 now 1 0 0 0]

        more is left
        + job = {C 1} /9000; line = [A] /150000
        > acquire A look 1 -> [-5004 now 1 0 0 0]

        a new queue
        + job = {C 1} /9000
        > acquire A new 5 -> [-5004 now 5 0 0 0]; line = [A@5] /22500
        > acquire A new 5 -> [-5004 now 5 0 0 0]

        no right to set it, or to add an entry
        + job = {C 1} /9000; refuse PEXPIRE
        > acquire A new -> error NOPERM no right to PEXPIRE
        + refuse ZADD
        > acquire A new -> error NOPERM no right to ZADD

        at maxmemory a process waits without an entry
        + job = {C 1} /9000; full
        > acquire A new -> -9004
        + DEL job; line = [B] /150000
        > acquire A new -> error OOM command not allowed",
    );
}

/// A grant by message.
#[test]
fn the_head_and_the_newest_entry_watch_a_grant() {
    check(
        "one entry, whose own request ends its wait
        + job = {A 1} /9000; line = [B] /150000; heard B
        > release A 0 -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone

        without a queue the notes go
        + job = {A 1} /9000; line = [B] /150000; heard B; wake = {granted C} /60000
        > release A 0 -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone; wake is gone

        the count of releases until the turn of Redisson's clients goes on
        + job = {A 1} /9000; line = [B] /150000; heard B; wake = {turn 1} /60000
        > release A 0 -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone

        two entries
        + job = {A 1} /9000; line = [B C] /150000; heard B C
        > release A 0 -> 1; B: G B now now 1500 fence; C: N C 1500; fence = now; job = {B 1} /1500; line = [C@2] /150000;
            wake = {granted B} /60000

        three entries
        + job = {A 1} /9000; line = [B C D] /150000; heard B C D
        > release A 0 -> 1; B: G B now now 1500 fence; C: N C 1500; D: N D 1550; fence = now; job = {B 1} /1500;
            line = [C@2 D@3] /150000; wake = {granted B, watched now, watcher D} /60000

        the newest entry has watched for less than a grant lasts
        + job = {A 1} /9000; line = [B C D] /150000; heard B C D; wake = {watched now-1499999us} /60000
        > release A 0 -> 1; B: G B now now 1500 fence; C: N C 1500; fence = now; job = {B 1} /1500;
            line = [C@2 D@3] /150000; wake = {watched now-1499999us, granted B} /60000

        the watch is over
        + job = {A 1} /9000; line = [B C D] /150000; heard B C D; wake = {watched now-1500ms} /60000
        > release A 0 -> 1; B: G B now now 1500 fence; C: N C 1500; D: N D 1550; fence = now; job = {B 1} /1500;
            line = [C@2 D@3] /150000; wake = {watched now, granted B, watcher D} /60000",
    );
}

/// L2.
#[test]
fn dead_processes_are_skipped_sixteen_in_one_run() {
    check(
        "one dead process
        + job = {A 1} /9000; line = [x1 B] /150000; heard B
        > release A 0 -> 1; x1: G x1 now now 1500 fence; B: G B now+1us now 1500 fence; fence = now+1us;
            job = {B 1} /1500; line is gone

        as many as one run may remove
        + job = {A 1} /9000; line = [x1..15 B] /150000; heard B
        > release A 0 -> 1; x1..15: G; B: G B now+15us now 1500 fence; fence = now+15us; job = {B 1} /1500; line is gone

        one more: the lock is not free for all
        + job = {A 1} /9000; line = [x1..16 B] /150000; heard B
        > release A 0 -> [tend 0 0]; x1..16: G; fence = now+15us; line = [B@17] /150000; job is gone
        > tend '' -> -1; B: G B now+16us now 1500 fence; fence = now+16us; job = {B 1} /1500; line is gone

        the second run removes the last one
        + job = {A 1} /9000; line = [x1..17 B] /150000; heard B
        > release A 0 -> [tend 0 0]; x1..16: G; fence = now+15us; line = [x17@17 B@18] /150000; job is gone
        > tend '' -> -1; x17: G x17 now+16us now 1500 fence; B: G B now+17us now 1500 fence; fence = now+17us;
            job = {B 1} /1500; line is gone

        all are dead
        + job = {A 1} /9000; line = [x1..3] /150000; heard base base:stanchion; wake = {granted C} /60000
        > release A 0 -> 1; x1..3: G; base: 00; fence = now+2us; job is gone; line is gone; wake is gone",
    );
}

/// R15. A moving slot refuses to read a key that the script has removed, and to write it again.
#[test]
fn a_release_in_a_moving_slot_is_done_and_notifies_the_head() {
    for places in ["0", "1"] {
        let text = "all keys exist when the script starts
            + job = {A 1} /9000; line = [B C] /150000; heard B C; wake = {turn 1} /60000; fence = 7; moves
            > release A @places -> -1; base: 0; B: P B 0; fence = now; job is gone";
        check(&text.replace("@places", places));
    }
}

/// L14, R15, R9.
#[test]
fn a_release_stands_if_no_entry_can_be_granted() {
    check(
        "no right to publish
        + job = {A 1} /9000; line = [B C] /150000; heard B C; refuse PUBLISH
        > release A 0 -> -1; fence = now; line = [C@2] /150000; job is gone

        no right to publish, and the head wants several names
        + job = {A 1} /9000; line = [B+ C] /150000; heard B C; refuse PUBLISH
        > release A 0 -> -1; line = [C@2] /150000; job is gone

        no token can be minted
        + job = {A 1} /9000; line = [B] /150000; heard B; fence = x
        > release A 0 -> -1; base: 0; B: P B 0; job is gone

        no right to set the lease
        + job = {A 1} /9000; line = [B] /150000; heard B; refuse PEXPIRE
        > release A 0 -> -1; base: 0; B: P B 0; fence = now; job is gone

        dead processes, and no token
        + job = {A 1} /9000; line = [x1..17] /150000; fence = x
        > release A 0 -> [tend 0 -1]; base: 0; x1..16: P; line = [x17@17] /150000; job is gone",
    );
}

#[test]
fn a_process_that_wants_several_names_is_notified_and_the_next_one_tries_later() {
    check(
        "three entries
        + job = {A 1} /9000; line = [B+ C D] /150000; heard B C D
        > release A 0 -> 1; B: P B 0; C: P C 25; line = [C@2 D@3] /150000; job is gone

        one entry
        + job = {A 1} /9000; line = [B+] /150000; heard B
        > release A 0 -> 1; B: P B 0; job is gone; line is gone

        a dead one is skipped
        + job = {A 1} /9000; line = [B+ C] /150000; heard C
        > release A 0 -> 1; B: P B 0; C: G C now now 1500 fence; fence = now; job = {C 1} /1500; line is gone",
    );
}

/// L5: one turn after as many releases as there are processes for each client of Redisson's, 16 at most. Each unused turn makes the next one twice
/// as long, 128 ms at most.
#[test]
fn redissons_clients_get_a_turn() {
    for outside in ["heard base=2 base:stanchion", "heard base=2; refuse PUBSUB"] {
        let text = "two releases are missing
            + job = {A 1} /9000; line = [B C] /150000; heard B C; @outside; wake = {turn 1, unused 0} /59999
            > release A 0 -> 1; B: G B now now 1500 fence; C: N C 1500; fence = now; job = {B 1} /1500; line = [C@2] /150000;
                wake = {turn 2, unused 0, granted B} /60000

            the first turn
            + job = {A 1} /9000; line = [B C] /150000; heard B C; @outside; wake = {turn 2, unused 0} /59999
            > release A 0 -> 2; base: 00; B: P B 2; wake = {turn 0, unused 0, until now+2ms} /60000; job is gone

            an unused turn makes the next one not earlier
            + job = {A 1} /9000; line = [B C] /150000; heard B C; @outside; wake = {turn 1, unused 1} /59999
            > release A 0 -> 1; B: G B now now 1500 fence; C: N C 1500; fence = now; job = {B 1} /1500; line = [C@2] /150000;
                wake = {turn 2, unused 1, granted B} /60000

            but longer
            + job = {A 1} /9000; line = [B C] /150000; heard B C; @outside; wake = {turn 2, unused 1} /59999
            > release A 0 -> 2; base: 00; B: P B 2; wake = {turn 0, unused 1, until now+4ms} /60000; job is gone

            five unused turns
            + job = {A 1} /9000; line = [B C] /150000; heard B C; @outside; wake = {turn 2, unused 5} /59999
            > release A 0 -> 2; base: 00; B: P B 2; wake = {turn 0, unused 5, until now+64ms} /60000; job is gone

            six
            + job = {A 1} /9000; line = [B C] /150000; heard B C; @outside; wake = {turn 2, unused 6} /59999
            > release A 0 -> 2; base: 00; B: P B 2; wake = {turn 0, unused 6, until now+128ms} /60000; job is gone

            the length grows no more
            + job = {A 1} /9000; line = [B C] /150000; heard B C; @outside; wake = {turn 2, unused 10} /59999
            > release A 0 -> 2; base: 00; B: P B 2; wake = {turn 0, unused 10, until now+128ms} /60000; job is gone";
        check(&text.replace("@outside", outside));
    }
    check(
        "the notes live as long as before, or longer
        + job = {A 1} /9000; line = [B C] /150000; heard B C base=2 base:stanchion; wake = {turn 0} /99000
        > release A 0 -> 1; B: G B now now 1500 fence; C: N C 1500; fence = now; job = {B 1} /1500; line = [C@2] /150000;
            wake = {turn 1, granted B} /99000

        the dead processes at the head are removed
        + job = {A 1} /9000; line = [x1..3 B] /150000; heard B base=2 base:stanchion; wake = {turn 15} /60000
        > release A 0 -> 2; base: 00; x1..3: P; B: P B 2; line = [B@4] /150000; wake = {turn 0, until now+2ms} /60000;
            job is gone

        16 in one run
        + job = {A 1} /9000; line = [x1..16 B] /150000; heard B base=2 base:stanchion; wake = {turn 15} /60000
        > release A 0 -> [tend 2 2]; base: 00; x1..16: P; line = [B@17] /150000; wake = {turn 0, until now+2ms} /60000;
            job is gone

        the whole queue is dead
        + job = {A 1} /9000; line = [B] /150000; heard base=2 base:stanchion; wake = {turn 15} /60000
        > release A 0 -> 2; base: 00; B: P B 2; wake = {turn 0, until now+2ms} /60000; job is gone; line is gone

        no right to publish
        + job = {A 1} /9000; line = [B] /150000; heard B base=2 base:stanchion; wake = {turn 15} /60000
        + refuse PUBLISH
        > release A 0 -> -1; wake = {turn 0, until now+2ms} /60000; job is gone",
    );
}

/// L3, L4.
#[test]
fn a_request_that_takes_the_lock_informs_the_queue() {
    check(
        "the next entry watches
        + line = [A B C] /150000; heard B C D; wake = {turn 3} /60000
        > acquire A ask 1 -> now; B: N B 30000; fence = now; job = {A 1} /30000; line = [B@2 C@3] /150000

        a turn that Redisson's clients did not take
        + line = [A B] /150000; heard B C D; wake = {until 5, unused 0} /60000
        > acquire A ask 1 -> now; B: N B 30000; fence = now; job = {A 1} /30000; line = [B@2] /150000;
            wake = {unused 1, ended now} /60000

        ten such turns
        + line = [A B] /150000; heard B C D; wake = {until 5, unused 9} /60000
        > acquire A ask 1 -> now; B: N B 30000; fence = now; job = {A 1} /30000; line = [B@2] /150000;
            wake = {unused 10, ended now} /60000

        the poll found a silent holder
        + line = [A B D?] /150000; heard B C D; wake = {granted C, turn 0} /60000
        > acquire A look 1 -> now; C: P C 0; B: P B 0; fence = now; job = {A 1} /30000; line = [D?@3] /150000

        the silent holder is this process
        + line = [A B D?] /150000; heard B C D; wake = {granted A, turn 0} /60000
        > acquire A look 1 -> now; B: P B 0; fence = now; job = {A 1} /30000; line = [D?@3] /150000

        a poll without a queue behind it
        + line = [A] /150000; heard B C D; wake = {turn 1} /60000
        > acquire A look 1 -> now; fence = now; job = {A 1} /30000; line is gone",
    );
}

/// L4, L5, L8: the ms until the poll plus 4, negative; server time, arrival, the relay's role, whether at random, and whether with `ask`.
#[test]
fn a_refusal_says_when_to_poll() {
    check(
        "at the end of a short lease
        + job = {D 1} /900
        > acquire A new 77 -> [-904 now 77 0 0 0]; line = [A@77] /22500

        5 s at most
        + job = {D 1} /5001
        > acquire A new 77 -> [-5004 now 77 0 0 0]; line = [A@77] /22500

        without a lease
        + job = {D 1}
        > acquire A new 77 -> [-5004 now 77 0 0 0]; line = [A@77] /22500

        the second entry, at random
        + job = {D 1} /900; line = [B] /150000; heard B C D
        > acquire A new 77 -> [-15004 now 77 0 1 0]; line = [B A@77] /150000

        the third entry
        + job = {D 1} /900; line = [B C] /150000; heard B C D
        > acquire A new 77 -> [-22504 now 77 0 1 0]; line = [B C A@77] /150000

        a watch of a grant by message
        + job = {D 1} /900; line = [B] /150000; heard B C D; wake = {watcher A} /60000
        > acquire A look 77 -> [-954 now 77 0 0 0]; base:all:stanchion: 0; line = [B A@77] /150000;
            wake = {watcher A, called now} /60000

        a watch of the longest grant
        + job = {D 1} /1500; line = [B] /150000; heard B C D; wake = {watcher A} /60000
        > acquire A look 77 -> [-1554 now 77 0 0 0]; base:all:stanchion: 0; line = [B A@77] /150000;
            wake = {watcher A, called now} /60000

        no grant by message is so long
        + job = {D 1} /1501; line = [B] /150000; heard B C D; wake = {watcher A} /60000
        > acquire A look 77 -> [-15004 now 77 0 1 0]; base:all:stanchion: 0; line = [B A@77] /150000;
            wake = {watcher A, called now} /60000

        a request that is not a poll
        + job = {D 1} /900; line = [B] /150000; heard B C D; wake = {watcher A} /60000
        > acquire A ask 77 -> [-15004 now 77 0 1 0]; line = [B A@77] /150000

        another process watches
        + job = {D 1} /900; line = [B] /150000; heard B C D; wake = {watcher C} /60000
        > acquire A look 77 -> [-15004 now 77 0 1 0]; base:all:stanchion: 0; line = [B A@77] /150000;
            wake = {watcher C, called now} /60000

        a watch of a hold without a lease
        + job = {D 1}; line = [B] /150000; heard B C D; wake = {watcher A} /60000
        > acquire A look 77 -> [-15004 now 77 0 1 0]; base:all:stanchion: 0; line = [B A@77] /150000;
            wake = {watcher A, called now} /60000

        the lock is free, and reserved for the head
        + line = [B] /150000; heard B C D; wake = {turn 1} /60000
        > acquire A new 77 -> [-15004 now 77 0 1 0]; line = [B A@77] /150000

        the third entry of a free lock
        + line = [B C] /150000; heard B C D; wake = {turn 1} /60000
        > acquire A new 77 -> [-22504 now 77 0 1 0]; line = [B C A@77] /150000

        120 s at most
        + job = {D 1} /9000; heard B
        + line = [B0 B1 B2 B3 B4 B5 B6 B7 B8 B9 B10 B11 B12 B13 B14 B15] /150000
        > acquire A new 77 -> [-120004 now 77 0 1 0];
            line = [B0 B B2 B3 B4 B5 B6 B7 B8 B9 B10 B11 B12 B13 B14 B15 A@77] /150000",
    );
}

/// L4: dead entries at the head are removed, 16 in one run.
#[test]
fn a_refusal_removes_dead_entries_in_front() {
    check(
        "as many as one run may remove
        + job = {D 1} /900; line = [x1..15] /150000
        > acquire A new 77 -> [-904 now 77 0 0 0]; line = [A@77] /150000

        none is left in front, but the run has not checked that
        + job = {D 1} /900; line = [x1..16] /150000
        > acquire A new 77 -> [-904 now 77 0 0 0]; line = [A@77] /150000

        one is left
        + job = {D 1} /900; line = [x1..17] /150000
        > acquire A new 77 -> [-29 now 77 0 0 0]; line = [x17@17 A@77] /150000

        without the right to count, every process counts as alive
        + job = {D 1} /900; line = [B] /150000; refuse PUBSUB
        > acquire A new 77 -> [-15004 now 77 0 1 0]; line = [B A@77] /150000",
    );
}

/// L15: a due poll whose entry has vanished calls all processes that are subscribed, once in 5 s.
#[test]
fn a_poll_finds_that_the_queue_was_lost() {
    check(
        "a free lock
        + heard A B C
        > acquire A look 77 -> now; base:all:stanchion: 0; fence = now; job = {A 1} /30000; wake = {called now} /60000

        a held lock, and no queue; the next poll within 5 s calls no process
        + job = {D 1} /9000; heard A B C
        > acquire A look 77 -> [-5004 now 77 0 0 0]; base:all:stanchion: 0; line = [A@77] /22500;
            wake = {called now} /60000
        + DEL line; wait 4999999us
        > acquire A look 77 -> [-4005 now 77 0 0 0]; line = [A@77] /22500
        + DEL line; wait 1us
        > acquire A look 77 -> [-4004 now 77 0 0 0]; base:all:stanchion: 0; line = [A@77] /22500;
            wake = {called now} /55000

        a queue without the entry
        + job = {D 1} /9000; line = [B] /150000; heard A B C
        > acquire A look 77 -> [-15004 now 77 0 1 0]; base:all:stanchion: 0; line = [B A@77] /150000;
            wake = {called now} /60000

        a queue with the entry
        + job = {D 1} /9000; line = [A] /150000; heard A B C
        > acquire A look 1 -> [-5004 now 1 0 0 0]

        not a poll, but a retry
        + job = {D 1} /9000; heard A B C
        > acquire A ask 77 -> [-5004 now 77 0 0 0]; line = [A@77] /22500

        a new waiter
        + job = {D 1} /9000; heard A B C
        > acquire A new 77 -> [-5004 now 77 0 0 0]; line = [A@77] /22500

        a poll of a process that had no entry
        + job = {D 1} /9000; heard A B C
        > acquire A look '' 0 '' -> [-5004 now now 0 0 0]; line = [A@now] /22500

        a retry takes a free lock
        + heard A B C
        > acquire A ask 77 -> now; fence = now; job = {A 1} /30000

        without the right to publish the request is answered as usual
        + job = {D 1} /9000; heard A B C; refuse PUBLISH
        > acquire A look 77 -> [-5004 now 77 0 0 0]; line = [A@77] /22500; wake = {called now} /60000",
    );
}

/// A lease that is shorter than a grant by message is in the notes until the grant, or until the entry is removed.
#[test]
fn a_grant_by_message_lasts_no_longer_than_the_lease() {
    check(
        "a short lease
        + job = {A 1} /9000; heard B
        > acquire B new 1 lease=300 -> [-5004 now 1 0 0 0]; line = [B] /22500; wake = {B:lease 300} /60000
        > release A 0 -> 1; B: G B now now 300 fence; fence = now; job = {B 1} /300; line is gone; wake is gone

        a lease that is just shorter
        + job = {A 1} /9000; heard B
        > acquire B new 1 lease=1499 -> [-5004 now 1 0 0 0]; line = [B] /22500; wake = {B:lease 1499} /60000
        > release A 0 -> 1; B: G B now now 1499 fence; fence = now; job = {B 1} /1499; line is gone; wake is gone

        a lease as long as a grant
        + job = {A 1} /9000; heard B
        > acquire B new 1 lease=1500 -> [-5004 now 1 0 0 0]; line = [B] /22500
        > release A 0 -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone

        the entry is removed
        + job = {A 1} /9000; line = [C] /150000
        > acquire B new 1 lease=300 -> [-5004 now 1 0 0 0]; line = [B C@1] /150000; wake = {B:lease 300} /60000
        > release B 1 -> 0; C: N C 9000; line = [C] /150000; wake is gone",
    );
}
