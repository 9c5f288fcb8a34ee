//! Runs the functions of the queue (`line.lua`) through the lock's scripts: turns of Redisson's clients, and the relay. The numbers are those of
//! `docs/protocol.md`.

use super::scripts::check;

/// L5: the lock is free in a turn of Redisson's clients. A refused process becomes the relay, because a release of theirs ends the turn.
#[test]
fn a_turn_of_redissons_clients_is_left_to_them() {
    check(
        "the head; a request that does not wait takes the lock, and its release continues the turn
        + line = [A] /150000; wake = {until now+4ms, called now} /60000
        > acquire A new 77 -> [-8 now 77 1 0 1]
        > acquire D try -> now; fence = now; job = {D 1} /30000
        + heard base A
        > release D 0 -> 1; base: 00; A: P A 2; job is gone

        the head, with part of a ms left
        + line = [A] /150000; wake = {until now+3001us, called now} /60000
        > acquire A ask 77 -> [-8 now 77 1 0 1]

        the head polls
        + line = [A] /150000; wake = {until now+3ms, called now} /60000
        > acquire A look 77 -> [-7 now 77 1 0 1]

        the longest turn
        + line = [A] /150000; wake = {until now+128ms, called now} /60000
        > acquire A ask 77 -> [-132 now 77 1 0 1]

        the second entry
        + line = [B A] /150000; heard B; wake = {until now+4ms, called now} /60000
        > acquire A ask 77 -> [-15004 now 77 1 1 0]

        a new second entry
        + line = [B] /150000; heard B; wake = {until now+4ms, called now} /60000
        > acquire A new 77 -> [-15004 now 77 1 1 0]; line = [B A@77] /150000

        the third entry
        + line = [B C] /150000; heard B C; wake = {until now+4ms, called now} /60000
        > acquire A look 77 -> [-22504 now 77 1 1 0]; line = [B C A@77] /150000

        the turn is over
        + line = [A] /150000; wake = {until now} /60000
        > acquire A ask 1 -> now; fence = now; job = {A 1} /30000; wake = {unused 1, ended now} /60000; line is gone

        a release of Redisson's ends the turn, and the queue is served
        + line = [B] /150000; heard B; wake = {until now+1us} /60000
        > tend '' -> -1
        > tend @A -> -1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500; line is gone; wake is gone",
    );
}

/// L5: after four unused turns of the greatest length, the next one follows after eight times that length.
#[test]
fn turns_that_are_never_used_are_rare() {
    check(
        "the longest turn is unused three times
        + job = {A 1} /9000; line = [B] /150000; heard B base
        + wake = {turn 5, unused 9, ended now} /60000
        > release A 0 -> 1; base: 00; B: P B 2; wake = {turn 0, unused 9, ended now, until now+128ms} /60000;
            job is gone

        four times
        + job = {A 1} /9000; line = [B] /150000; heard B base
        + wake = {turn 5, unused 10, ended now-1023999us} /60000
        > release A 0 -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500;
            wake = {turn 6, unused 10, ended now-1023999us} /60000; line is gone

        four times, eight lengths ago
        + job = {A 1} /9000; line = [B] /150000; heard B base
        + wake = {turn 5, unused 10, ended now-1024ms} /60000
        > release A 0 -> 1; base: 00; B: P B 2; wake = {turn 0, unused 10, ended now-1024ms, until now+128ms} /60000;
            job is gone

        more often
        + job = {A 1} /9000; line = [B] /150000; heard B base
        + wake = {turn 5, unused 99, ended now-1023999us} /60000
        > release A 0 -> 1; B: G B now now 1500 fence; fence = now; job = {B 1} /1500;
            wake = {turn 6, unused 99, ended now-1023999us} /60000; line is gone",
    );
}

/// P4: a server's clock that was stepped back leaves moments far ahead in the notes. They count as past.
#[test]
fn a_moment_far_ahead_has_passed() {
    check(
        "no turn lasts so long
        + line = [A] /150000; wake = {until now+3600s} /60000
        > acquire A ask 1 -> now; fence = now; job = {A 1} /30000; wake = {unused 1, ended now} /60000; line is gone

        the next turn does not wait for the old clock
        + job = {A 1} /9000; line = [B] /150000; heard B base
        + wake = {turn 5, unused 10, ended now+3600s} /60000
        > release A 0 -> 1; base: 00; B: P B 2; wake = {turn 0, unused 10, ended now+3600000ms, until now+128ms} /60000;
            job is gone",
    );
}

/// L5: a queue that is empty for a moment keeps the notes about turns while clients of Redisson's wait, and for 3 s after a turn, because a
/// client that has just released subscribes again at its next request.
#[test]
fn an_empty_queue_keeps_the_length_of_the_turns() {
    check(
        "a client waits
        + job = {A 1} /9000; heard base; wake = {unused 4, ended now-9s} /60000
        > release A 0 -> 1; base: 00; wake = {unused 4, ended now-9000ms, turn 0, until now+32ms} /3000; job is gone

        2.999999 s after a turn
        + job = {A 1} /9000; wake = {unused 4, ended now-2999999us} /60000
        > release A 0 -> 0; base: 0; wake = {unused 4, ended now-2999999us} /3000; job is gone

        3 s after a turn
        + job = {A 1} /9000; wake = {unused 4, ended now-3s} /60000
        > release A 0 -> 0; base: 0; job is gone; wake is gone

        2.999999 s after a turn that no request has found
        + job = {A 1} /9000; wake = {unused 4, until now-2999999us} /60000
        > release A 0 -> 0; base: 0; wake = {until now-2999999us, unused 4} /3000; job is gone

        3 s after it
        + job = {A 1} /9000; wake = {unused 4, until now-3s} /60000
        > release A 0 -> 0; base: 0; job is gone; wake is gone",
    );
}

/// L9.
#[test]
fn while_redisson_holds_one_process_becomes_the_relay() {
    check(
        "no relay, and this process is not subscribed to Redisson's releases
        + job = {J 1} /9000; heard A; wake = {unused 3} /60000
        > acquire A new 7 0 -> [-1004 now 7 1 1 0]; line = [A@7] /22500; wake = {unused 3, ended now} /60000

        no relay, and it is
        + job = {J 1} /9000; heard A; wake = {unused 3} /60000
        > acquire A new 7 1 -> [-1004 now 7 0 1 0]; line = [A@7] /22500;
            wake = {unused 3, ended now, sentry A, heard now} /60000

        the relay has sent a proof within the second
        + job = {J 1} /9000; heard A B; wake = {unused 3, sentry B, heard now-999999us} /60000
        > acquire A new 7 0 -> [-1004 now 7 0 1 0]; line = [A@7] /22500;
            wake = {unused 3, sentry B, heard now-999999us, ended now} /60000

        the same, and this process is subscribed, too
        + job = {J 1} /9000; heard A B; wake = {unused 3, sentry B, heard now-999999us} /60000
        > acquire A new 7 1 -> [-1004 now 7 2 1 0]; line = [A@7] /22500;
            wake = {unused 3, sentry B, heard now-999999us, ended now} /60000

        the relay is dead
        + job = {J 1} /9000; heard A; wake = {unused 3, sentry B, heard now-999999us} /60000
        > acquire A new 7 0 -> [-1004 now 7 1 1 0]; line = [A@7] /22500;
            wake = {unused 3, sentry B, heard now-999999us, ended now} /60000

        the relay's proof is old
        + job = {J 1} /9000; heard A B; wake = {unused 3, sentry B, heard now-1s} /60000
        > acquire A new 7 0 -> [-1004 now 7 1 1 0]; line = [A@7] /22500;
            wake = {unused 3, sentry B, heard now-1000ms, ended now} /60000

        its proof is old, and this process is subscribed
        + job = {J 1} /9000; heard A B; wake = {unused 3, sentry B, heard now-1s} /60000
        > acquire A new 7 1 -> [-1004 now 7 0 1 0]; line = [A@7] /22500;
            wake = {unused 3, sentry A, heard now, ended now} /60000

        this process is the relay
        + job = {J 1} /9000; heard A; wake = {unused 3, sentry A, heard now-5us} /60000
        > acquire A new 7 1 -> [-1004 now 7 0 1 0]; line = [A@7] /22500;
            wake = {unused 3, sentry A, heard now, ended now} /60000
        > acquire A new 7 0 -> [-1004 now 7 0 1 0]

        the head polls at the end of a short lease
        + job = {J 1} /900
        > acquire A new 7 1 -> [-904 now 7 0 0 0]; line = [A@7] /22500; wake = {sentry A, heard now} /60000

        other entries poll at their own times
        + job = {J 1} /9000; line = [B] /150000; heard B
        > acquire A new 7 1 -> [-15004 now 7 0 1 0]; line = [B A@7] /150000; wake = {sentry A, heard now} /60000

        a holder of stanchion's needs no relay
        + job = {D 1} /9000; wake = {unused 3} /60000
        > acquire A new 7 1 -> [-5004 now 7 0 0 0]; line = [A@7] /22500",
    );
}

/// L9: only the relay's report is a proof. L5: each report of a release of Redisson's shows that its clients use their turns.
#[test]
fn a_report_of_another_process_is_no_proof() {
    check(
        "the relay
        + job = {D 1} /9000; line = [C] /150000; wake = {unused 9, heard 5, sentry A} /60000
        > tend @A -> -1; wake = {unused 6, heard now, sentry A, ended now} /60000

        another process
        + job = {D 1} /9000; line = [C] /150000; wake = {unused 9, heard 5, sentry B} /60000
        > tend @A -> -1; wake = {unused 6, heard 5, sentry B, ended now} /60000

        no report
        + job = {D 1} /9000; line = [C] /150000; wake = {unused 9, heard 5, sentry A} /60000
        > tend '' -> -1

        no relay, and no report
        + job = {D 1} /9000; line = [C] /150000; wake = {unused 9, heard 5} /60000
        > tend '' -> -1",
    );
}
