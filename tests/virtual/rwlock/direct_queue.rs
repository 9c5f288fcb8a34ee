//! Runs the scripts directly in states of the queue: requests of waiters and of clients that poll, grants by message, dead processes, and
//! readers behind writers. The numbers are those of `docs/protocol.md`.

use super::direct::check;

#[test]
fn a_release_grants_to_the_readers_in_front_of_the_next_writer_or_to_one_writer() {
    check(
        "readers
        + job = {mode write, A:write 1} /9000; heard B C D; line = [Br CR D] /150000
        > unwrite A -> 2; B: G B 0 now 1500 -; C: G C 0 now 1500 -; D: N D 1500; B.hold1 = 1 /1500; C.hold1 = 1 /1500;
            job = {mode read, B 1, C 1} /1500; line = [D@3] /150000; readers = [B@ms+1500ms C@ms+1500ms] /1500;
            wake = {granted C} /60000

        a reader without preference for writers joins the readers, past the writer
        + job = {mode write, A:write 1} /9000; heard B C D; line = [BR D Cr] /150000
        > unwrite A -> 2; B: G B 0 now 1500 -; C: G C 0 now 1500 -; D: N D 1500; B.hold1 = 1 /1500; C.hold1 = 1 /1500;
            job = {mode read, B 1, C 1} /1500; line = [D@2] /150000; readers = [B@ms+1500ms C@ms+1500ms] /1500;
            wake = {granted C} /60000

        one writer
        + reads A/9000; heard B C D; line = [B Cr D] /150000
        > unread A -> 1; B: G B now now 1500 fence; C: N C 1500; D: N D 1550; fence = now;
            job = {mode write, B:write 1} /1500; line = [Cr@2 D@3] /150000;
            wake = {granted B, watched now, watcher D} /60000; A.hold1 is gone; readers is gone

        R3: a grant to a reader keeps the lock for the longest lease, and the writer that sends the request waits
        + reads A/60000; heard B C; line = [B Cr] /150000
        > write B look 1 -> [-5004 now 1 0 0 0]; C: G C 0 now 1500 -; B: N B 1500; C.hold1 = 1 /1500;
            job = {mode read, A 1, C 1} /60000; line = [B] /150000; readers = [C@ms+1500ms A@ms+60000ms] /60000;
            wake = {granted C} /60000",
    );
}

/// L2.
#[test]
fn a_grant_that_no_process_receives_is_undone() {
    check(
        "a reader, a writer and another reader are dead
        + job = {mode write, A:write 1} /9000; heard D; line = [Br C Dr Er] /150000
        > unwrite A -> 1; B: G B 0 now 1500 -; C: G C now now 1500 fence; D: G D 0 now 1500 -; E: G E 0 now 1500 -;
            D.hold1 = 1 /1500; fence = now; job = {mode read, D 1} /1500; readers = [D@ms+1500ms] /1500; line is gone

        the next writer is granted the lock after a reader that is dead
        + job = {mode write, A:write 1} /9000; heard C; line = [Br D C] /150000
        > unwrite A -> 1; B: G B 0 now 1500 -; D: G D now now 1500 fence; C: G C now+1us now 1500 fence; fence = now+1us;
            job = {mode write, C:write 1} /1500; line is gone

        all are dead, so the lock is free for Redisson's clients
        + job = {mode write, A:write 1} /9000; line = [Br] /150000
        > unwrite A -> 0; B: G B 0 now 1500 -; base: 01; job is gone; line is gone

        a dead writer
        + job = {mode write, A:write 1} /9000; line = [C] /150000
        > unwrite A -> 0; C: G C now now 1500 fence; base: 01; fence = now; job is gone; line is gone",
    );
}

#[test]
fn readers_pass_any_number_of_writers_that_one_run_checks() {
    for count in [1, 64, 65, 512] {
        let text = "the reader is granted the lock
            + reads A/9000; heard x1 C; line = [x1..@count Cr] /150000
            > tend -> …
            > sizes -> [2 @count]";
        check(&text.replace("@count", &count.to_string()));
    }
    check(
        "behind more writers there may be a reader, which the writer holds off
        + reads A/9000; heard x1 C; line = [x1..513 Cr] /150000
        > tend -> -1; x1: N x1 1000; wake = {waits x1, ends now+2000ms} /60000",
    );
}

/// P11.
#[test]
fn dead_writers_in_front_of_a_reader_are_removed_16_at_a_time() {
    check(
        "the client runs the script again
        + reads A/9000; heard C; line = [x1..17 CR] /150000
        > tend -> [tend 0 -1]; x1..16: N; line = [x17@17 CR@18] /150000; wake = {waits x16, ends now+2000ms} /60000
        > tend -> -1; x17: N x17 1000; C: G C 0 now 1500 -; C.hold1 = 1 /1500; job = {mode read, A 1, C 1} /9000;
            readers = [C@ms+1500ms A@ms+9000ms] /9000; line is gone; wake is gone

        a reader that takes a free lock finds more dead readers
        + line = [Ar x1r x2r x3r x4r x5r x6r x7r x8r x9r x10r x11r x12r x13r x14r x15r x16r x17r] /150000
        > read A ask 1 -> [tend 0 0]; x1..16: G; x17: N x17 30000; A.hold1 = 1 /30000; job = {mode read, A 1} /30000;
            line = [x17r@18] /150000; readers = [A@ms+30000ms] /30000",
    );
}

/// A writer holds readers with preference for writers off, and every reader behind them. A silent writer does so for 2 s and then moves to
/// the end of the queue. P4: its time begins each time it comes to the head.
#[test]
fn a_writer_holds_readers_off_while_it_sends_requests() {
    check(
        "a release: the writer at the head has 2 s
        + job = {mode write, A:write 1, A 1} /9000; heard B C; line = [B CR] /150000
        > unwrite A -> 0; base: 01; B: N B 1000; C: N C 2000; job = {mode read, A 1} /9000;
            wake = {waits B, ends now+2000ms} /60000

        a dead writer has no time
        + job = {mode write, A:write 1, A 1} /9000; heard C; line = [B CR] /150000
        > unwrite A -> 1; base: 01; B: N B 1000; C: G C 0 now 1500 -; C.hold1 = 1 /1500;
            job = {mode read, A 1, C 1} /9000; readers = [C@ms+1500ms] /9000; line is gone

        its time is not over
        + job = {mode write, A:write 1, A 1} /9000; heard B C; line = [B CR] /150000;
            wake = {waits B, ends now+1us} /60000
        > unwrite A -> 0; base: 01; B: N B 0; C: N C 1; job = {mode read, A 1} /9000

        its time is over
        + job = {mode write, A:write 1, A 1} /9000; heard B C; line = [B CR] /150000; wake = {waits B, ends now} /60000
        > unwrite A -> 1; base: 01; C: G C 0 now 1500 -; B: N B 1500; C.hold1 = 1 /1500;
            job = {mode read, A 1, C 1} /9000; line = [B@now] /150000; readers = [C@ms+1500ms] /9000;
            wake = {ends now, granted C} /60000

        a reader behind one that waits for the writer is held off, too
        + reads A/9000; heard B C D; line = [B CR Dr] /150000
        > tend -> -1; B: N B 1000; C: N C 2000; wake = {waits B, ends now+2000ms} /60000

        a request of the writer gives it the whole time again
        + reads A/9000; heard B C; line = [B CR] /150000; wake = {waits B, ends now+400ms} /60000
        > write B look 1 -> [-5004 now 1 0 0 0]; B: N B 1000; C: N C 2000; wake = {waits B, ends now+2000ms} /60000

        a request of the reader does not
        + reads A/9000; heard B C; line = [B CR] /150000; wake = {waits B, ends now+400ms} /60000
        > read C look 2 side=R -> [-15004 now 2 0 1 0]; B: N B 0; C: N C 400

        the writer is silent: the reader has its whole lease, and a new reader waits as long for the writer
        + reads A/9000; heard B C D; line = [B CR] /150000; wake = {waits B, ends now} /60000
        > read C look 2 side=R -> 0; B: N B 30000; C.hold1 = 1 /30000; job = {mode read, A 1, C 1} /30000;
            line = [B@now] /150000; readers = [A@ms+9000ms C@ms+30000ms] /30000; wake = {ends now} /60000
        > read D new side=R since=now -> [-15004 now now+1us 0 1 0]; B: N B 1000; D: N D 2000;
            line = [B@now DR@now+1us] /150000; wake = {ends now+2000ms, waits B} /60000",
    );
}

#[test]
fn tend_serves_the_queue_of_a_lock_that_is_free_or_read() {
    check(
        "a free lock
        + heard B; line = [Br] /150000
        > tend -> -1; B: G B 0 now 1500 -; B.hold1 = 1 /1500; job = {mode read, B 1} /1500;
            readers = [B@ms+1500ms] /1500; line is gone

        a lock that is read
        + reads C/9000; heard B; line = [Br] /150000
        > tend -> -1; B: G B 0 now 1500 -; B.hold1 = 1 /1500; job = {mode read, C 1, B 1} /9000;
            readers = [B@ms+1500ms C@ms+9000ms] /9000; line is gone

        a lock that is written
        + job = {mode write, C:write 1} /9000; heard B; line = [Br] /150000
        > tend -> -1

        writers behind readers that hold wait without messages
        + reads A/9000; line = [x1..70] /150000
        > tend -> -1

        R8: a reader at maxmemory
        + heard B; line = [Br] /150000; full
        > tend -> -1; B: G B 0 now 1500 -; B.hold1 = 1 /1500; job = {mode read, B 1} /1500;
            readers = [B@ms+1500ms] /1500; line is gone

        R8: a writer at maxmemory
        + heard B; line = [B] /150000; full
        > tend -> -1; B: G B now now 1500 fence; fence = now; job = {mode write, B:write 1} /1500; line is gone

        L9: a release that the relay reports proves that it receives them
        + job = {mode write, C:write 1} /9000; line = [A B] /150000; wake = {sentry A, heard 1, unused 9} /60000
        > tend sentry=@A -> -1; wake = {sentry A, heard now, unused 6, ended now} /60000

        another process reports it
        + job = {mode write, C:write 1} /9000; line = [A B] /150000; wake = {sentry A, heard 1, unused 9} /60000
        > tend sentry=@B -> -1; wake = {sentry A, heard 1, unused 6, ended now} /60000

        no relay
        + job = {mode write, C:write 1} /9000; line = [A B] /150000; wake = {sentry A, heard 1, unused 9} /60000
        > tend -> -1",
    );
}

/// R15: a moving slot refuses to read a key that the script has removed, and to write it again.
#[test]
fn a_release_in_a_moving_slot_is_done_and_notifies_the_head() {
    for quits in ["0", "1"] {
        let text = "a writer
            + job = {mode write, A:write 1} /9000; fence = 7; readers = [E@1]; wake = {turn 1} /60000
            + line = [B C] /150000; heard B C; moves
            > unwrite A quits=@quits -> -1; base: 1; B: P B 0; fence = now; job is gone

            a reader
            + reads A/9000; fence = 7; ZADD readers 1 E; wake = {turn 1} /60000; line = [B C] /150000; heard B C; moves
            > unread A quits=@quits -> -1; base: 0; B: P B 0; fence = now; A.hold1 is gone; job is gone; readers is gone";
        check(&text.replace("@quits", quits));
    }
}

/// P1, L3, L4: a new hold, and what it sends.
#[test]
fn a_request_that_is_granted_notifies_the_next_in_the_queue() {
    check(
        "a new writer has the lock for its lease
        + readers = [C@1]
        > write A new -> now; fence = now; job = {mode write, A:write 1} /30000

        a writer that takes a free lock is alone
        + heard B C; line = [A Br C] /150000
        > write A ask 1 -> now; B: N B 30000; fence = now; job = {mode write, A:write 1} /30000;
            line = [Br@2 C@3] /150000

        a reader that takes a free lock lets the next readers join
        + heard B C; line = [Ar BR C] /150000
        > read A ask 1 -> 0; B: G B 0 now 1500 -; C: N C 1500; A.hold1 = 1 /30000; B.hold1 = 1 /1500;
            job = {mode read, A 1, B 1} /30000; line = [C@3] /150000; readers = [B@ms+1500ms A@ms+30000ms] /30000;
            wake = {granted B} /60000

        with no reader behind it, the writer polls when the lease ends
        + line = [Ar C] /150000
        > read A ask 1 -> 0; C: N C 30000; A.hold1 = 1 /30000; job = {mode read, A 1} /30000; line = [C@2] /150000;
            readers = [A@ms+30000ms] /30000

        no message said that the lock was free: the others try
        + line = [Ar Br C] /150000
        > read A look 1 -> 0; B: P B 0; C: P C 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000;
            readers = [A@ms+30000ms] /30000; line is gone

        no message said that readers hold
        + reads D/9000; line = [Ar Br C] /150000
        > read A look 1 -> 0; B: P B 0; C: P C 0; A.hold1 = 1 /30000; job = {mode read, D 1, A 1} /30000;
            readers = [D@ms+9000ms A@ms+30000ms] /30000; line is gone

        after a message the reader removes its own entry only
        + reads D/9000; line = [C Ar B] /150000
        > read A ask 2 -> 0; A.hold1 = 1 /30000; job = {mode read, D 1, A 1} /30000; line = [C B@3] /150000;
            readers = [D@ms+9000ms A@ms+30000ms] /30000",
    );
}

/// L6, L5: the lock is free and reserved for the queue. The second in the queue tries 25 ms after the head.
#[test]
fn a_new_request_does_not_overtake_the_queue_of_a_free_lock() {
    check(
        "a reader
        + heard A B C; line = [C] /150000
        > read A new -> [-15004 now now 0 1 0]; line = [C Ar@now] /150000

        a reader with preference for writers
        + heard A B C; line = [C] /150000
        > read A new side=R -> [-15004 now now 0 1 0]; line = [C AR@now] /150000

        a writer
        + heard A B C; line = [C] /150000
        > write A new -> [-15004 now now 0 1 0]; line = [C A@now] /150000

        a reader whose call began before the head came joins the readers
        + reads B/9000; heard C; line = [C@1] /150000
        > read A new side=R since=0 -> 0; A.hold1 = 1 /30000; job = {mode read, B 1, A 1} /30000;
            readers = [B@ms+9000ms A@ms+30000ms] /30000

        one that came with the head waits
        + reads B/9000; heard C; line = [C@1] /150000
        > read A new side=R since=1 -> [-15004 now now 0 1 0]; C: N C 1000; A: N A 2000; line = [C AR@now] /150000;
            wake = {waits C, ends now+2000ms} /60000

        one that came later waits
        + reads B/9000; heard C; line = [C@1] /150000
        > read A new side=R since=2 -> [-15004 now now 0 1 0]; C: N C 1000; A: N A 2000; line = [C AR@now] /150000;
            wake = {waits C, ends now+2000ms} /60000",
    );
}

/// The entry has the arrival of the request, or of an entry that was removed.
#[test]
fn a_refused_request_keeps_its_arrival() {
    check(
        "a writer holds
        + job = {mode write, C:write 1} /900; heard A B D E
        > read A new side=R since=now -> [-904 now now 0 0 0]; line = [AR@now] /22500
        > write D look 77 -> [-904 now 77 0 0 0]; base:all:stanchion: 0; line = [D@77 AR@now] /30000;
            wake = {called now} /60000
        > read E look 78 side=R -> [-22504 now 78 0 1 0]; line = [D@77 ER@78 AR@now] /37500

        a reader holds
        + reads C/900; heard A B D E; line = [B] /150000
        > read A new side=R since=now -> [-15004 now now 0 1 0]; B: N B 1000; A: N A 2000; line = [B AR@now] /150000;
            wake = {waits B, ends now+2000ms} /60000
        > write D look 77 -> [-22504 now 77 0 1 0]; base:all:stanchion: 0; B: N B 1000; A: N A 2000;
            line = [B D@77 AR@now] /150000; wake = {waits B, ends now+2000ms, called now} /60000
        > read E look 78 side=R -> [-30004 now 78 0 1 0]; B: N B 1000; E: N E 2000; line = [B D@77 ER@78 AR@now] /150000",
    );
}

/// P4: no release serves the queue of a lock whose holder has died.
#[test]
fn a_client_that_polls_takes_a_free_lock_as_the_head_or_with_a_look() {
    for side in ["r", "R"] {
        let text = "the head
            + line = [A@side?] /150000
            > read A ask 1 0 ? side=@side -> 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000;
                readers = [A@ms+30000ms] /30000; line is gone

            not the head
            + heard B; line = [B A@side?] /150000
            > read A ask 1 0 ? side=@side -> [-54 now 1 0 0 0]; wake = {A now} /60000
            > read A look 1 0 ? side=@side -> 0; B: P B 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000;
                readers = [A@ms+30000ms] /30000; line is gone; wake is gone";
        check(&text.replace("@side", side));
    }
    check(
        "a writer at the head
        + line = [A?] /150000
        > write A ask 1 0 ? -> now; fence = now; job = {mode write, A:write 1} /30000; line is gone

        a writer that is not the head
        + heard B; line = [B A?] /150000
        > write A ask 1 0 ? -> [-54 now 1 0 0 0]; wake = {A now} /60000
        > write A look 1 0 ? -> now; B: P B 0; fence = now; job = {mode write, A:write 1} /30000; line is gone;
            wake is gone",
    );
}

/// P4: a poll that finds no entry reports the loss of the queue.
#[test]
fn a_poll_without_an_entry_calls_all_processes() {
    check(
        "a reader takes a free lock
        > read A look 5 -> 0; base:all:stanchion: 0; A.hold1 = 1 /30000; job = {mode read, A 1} /30000;
            readers = [A@ms+30000ms] /30000; wake = {called now} /60000

        a reader joins
        + reads D/9000; line = [C] /150000
        > read A look 5 -> 0; C: N C 30000; base:all:stanchion: 0; A.hold1 = 1 /30000;
            job = {mode read, D 1, A 1} /30000; readers = [D@ms+9000ms A@ms+30000ms] /30000;
            wake = {called now} /60000

        a reader waits
        + reads D/9000; heard C; line = [C] /150000
        > read A look 5 side=R -> [-15004 now 5 0 1 0]; base:all:stanchion: 0; C: N C 1000; A: N A 2000;
            line = [C AR@5] /150000; wake = {called now, waits C, ends now+2000ms} /60000

        a writer takes a free lock
        > write A look 5 -> now; base:all:stanchion: 0; fence = now; job = {mode write, A:write 1} /30000;
            wake = {called now} /60000",
    );
}

/// L5: a free lock is left to Redisson's clients until their turn is over.
#[test]
fn a_lock_is_left_to_redissons_clients_that_are_subscribed() {
    check(
        "after the release of a reader
        + reads A/9000; heard base=3
        > unread A -> 3; base: 0; wake = {turn 0, until now+2ms} /3000; A.hold1 is gone; job is gone; readers is gone
        > read B new -> [-6 now now 1 0 1]; line = [Br@now] /22500
        > write C new -> [-6 now now+1us 1 0 1]; line = [C@now+1us] /30000
        > write D try -> now; fence = now; job = {mode write, D:write 1} /30000

        after the release of a writer
        + job = {mode write, A:write 1} /9000; heard base=3
        > unwrite A -> 3; base: 1; wake = {turn 0, until now+2ms} /3000; job is gone

        R16: a foreign key in the place of the notes
        + wake = x
        > write A new -> error WRONGTYPE Operation against a key holding the wrong kind of value
        > write A try -> now; fence = now; job = {mode write, A:write 1} /30000

        R15: no reader can join, and the release stands
        + job = {mode write, A:write 1, A 1} /9000; heard B; line = [Br] /150000; refuse SET
        > unwrite A -> -1; base: 01; job = {mode read, A 1} /9000",
    );
}
