//! Runs the semaphores' queue through their scripts: grants, dead processes, grants that are not confirmed, and the relay. The numbers are those
//! of `docs/protocol.md`.

use super::direct::check;

/// A grant of plain permits is provisional until the process confirms it. Leased permits are granted for a short time.
#[test]
fn a_release_grants_permits_to_the_head() {
    check(
        "a plain permit; without the message, the second confirmation does the same
        + free = 0; held = {A 1}; line = [B=1] /150000; heard B
        > release A -> 1; B: P B 0; granted = [B@ms+500ms]; held = {B 1}; line is gone
        > acquire B 1 ask -> 0; granted is gone
        > acquire B 1 look -> 0

        P1: the ledger was deleted, and the number set again, before the process has confirmed its grant
        + free = 0; held = {A 1}; line = [B=1] /150000; heard B
        > release A -> 1; B: P B 0; granted = [B@ms+500ms]; held = {B 1}; line is gone
        + DEL held; free = 1
        > acquire B 1 ask -> 0; free = 0; held = {B 1}; granted is gone

        a leased permit
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]; line = [B=1] /150000; heard B
        > return A %0 -> 1; B: G B 0 now 1500 -; held = [B#0@ms+1500ms %1@ms+5000ms]; line is gone

        two permits for one entry
        + free = 1; held = [%0@ms+5000ms %1@ms+5000ms]; line = [B=2] /150000; heard B
        > return A %0 -> 1; B: G B 0 now 1500 -; free = 0; held = [B#1@ms+1500ms B#0@ms+1500ms %1@ms+5000ms];
            line is gone

        R8: plain permits at maxmemory
        + free = 1; held = {A 1}; line = [B=1] /150000; heard B; full
        > tend '' -> -1; B: P B 0; free = 0; granted = [B@ms+500ms]; held = {A 1, B 1}; line is gone

        leased permits at maxmemory
        + free = 1; held = [%0@ms+5000ms %1@ms+5000ms]; line = [B=1] /150000; heard B; full
        > tend_leased '' -> -1; B: G B 0 now 1500 -; free = 0; held = [B#0@ms+1500ms %0@ms+5000ms %1@ms+5000ms];
            line is gone",
    );
}

/// L2.
#[test]
fn a_grant_without_a_receiver_is_undone() {
    check(
        "a plain permit
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard C
        > release A -> 1; B: P B 0; C: P C 0; granted = [C@ms+500ms]; held = {C 1}; line is gone

        a leased permit
        + free = 0; held = [%0@ms+5000ms %1@ms+5000ms]; line = [B=1 C=1] /150000; heard C
        > return A %0 -> 1; B: G B 0 now 1500 -; C: G C 0 now 1500 -; held = [C#0@ms+1500ms %1@ms+5000ms]; line is gone

        all processes of the queue are dead, so the permit is free for all
        + free = 0; held = {A 1}; line = [B=1] /150000
        > release A -> 0; B: P B 0; base: 01; free = 1; held is gone; line is gone

        no right to take permits: the head keeps its place, and finds the error with its own request
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C; refuse DECRBY
        > release A -> -1; base: 1; B: P B 0; free = 1; held is gone",
    );
}

/// A grant of plain permits that is not confirmed ends, and its process is notified: the first message may be lost.
#[test]
fn a_request_takes_back_what_has_ended() {
    check(
        "a grant ends now
        + free = 0; held = {A 1}; granted = [A@ms]
        > acquire C 1 try -> 0; A: P A 0; held = {C 1}; granted is gone

        a grant ended 1 ms ago
        + free = 0; held = {A 1}; granted = [A@ms-1ms]
        > acquire C 1 try -> 0; A: P A 0; held = {C 1}; granted is gone

        a grant ends in 1 ms
        + free = 0; held = {A 1}; granted = [A@ms+1ms]
        > acquire C 1 try -> -5

        the owner has released since; other grants are unaffected
        + free = 0; held = {A 1}; granted = [B@9 A@ms+200ms]
        > acquire C 1 try -> -204; granted = [A@ms+200ms]

        a lease has ended
        + free = 0; held = [%0@ms %1@ms+5000ms]
        > take C %2 try -> 0; held = [%1@ms+5000ms %2@ms+9000ms]

        a lease ends in 700 ms
        + free = 0; held = [%0@ms+700ms]
        > take C %2 try -> -704

        a lease of Redisson's that never ends
        + free = 0; held = [%0@922337203685477]
        > take C %2 try -> -3",
    );
}

/// The relay's `tend` serves the queue after a release of Redisson's. It also takes back what has ended.
#[test]
fn tend_serves_the_queue() {
    check(
        "a grant has ended
        + free = 0; held = {A 1}; granted = [A@9]; line = [B=1 C=1] /150000; heard B C
        > tend '' -> -1; A: P A 0; B: P B 0; C: N C 500; granted = [B@ms+500ms]; held = {B 1}; line = [C=1@2] /150000;
            wake = {granted B} /60000

        a lease has ended
        + free = 0; held = [%0@ms %1@ms+5000ms]; line = [B=1] /150000; heard B
        > tend_leased '' -> -1; B: G B 0 now 1500 -; held = [B#0@ms+1500ms %1@ms+5000ms]; line is gone

        without a queue, what has ended is free, and the notes end
        + free = 0; held = {A 1}; granted = [A@9]; wake = {sentry B} /60000
        > tend '' -> -1; A: P A 0; free = 1; granted is gone; held is gone; wake is gone

        P1: permits of a semaphore that was deleted do not make a new one
        + held = {A 1}; granted = [A@9]; line = [B=1] /150000; heard B
        > tend '' -> -1; granted is gone; held is gone

        L9: a release that the relay reports proves that it receives Redisson's messages
        + free = 0; held = {A 1}; line = [B=1] /150000; heard B; wake = {sentry B, heard 5, unused 9} /60000
        > tend '' -> -1
        > tend @C -> -1; wake = {sentry B, heard 5, unused 6, ended now} /60000
        > tend @B -> -1; wake = {sentry B, heard now, unused 6, ended now} /60000",
    );
}

/// P6: the second run of a release returns nothing, so it is no turn of Redisson's clients, and sends no message.
#[test]
fn a_release_that_returns_nothing_changes_nothing() {
    for queue in ["heard base=3", "heard B base=3; line = [B=1] /150000"] {
        let text = "plain
            + free = 1; held = {A 1}; wake = {turn 1} /60000; @queue
            > release C -> -2

            leased
            + free = 1; held = [%0@ms+5000ms %1@ms+5000ms]; wake = {turn 1} /60000; @queue
            > return C %2%3 -> -2";
        check(&text.replace("@queue", queue));
    }
}

/// L4, L9: the head polls when a grant ends. After the relay it polls within 100 ms, and becomes the relay.
#[test]
fn the_head_polls_when_a_grant_ends_or_the_relay_has_left() {
    check(
        "the new grant
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C
        > release A -> 1; B: P B 0; C: N C 500; granted = [B@ms+500ms]; held = {B 1}; line = [C=1@2] /150000;
            wake = {granted B} /60000

        an earlier grant
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C; granted = [A2@ms+300ms]
        > release A -> 1; B: P B 0; C: N C 300; granted = [A2@ms+300ms B@ms+500ms]; held = {B 1}; line = [C=1@2] /150000;
            wake = {granted B} /60000

        the relay waits
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C; granted = [A2@ms+300ms]
        + wake = {sentry C} /60000
        > release A -> 1; B: P B 0; C: N C 300; granted = [A2@ms+300ms B@ms+500ms]; held = {B 1}; line = [C=1@2] /150000;
            wake = {sentry C, granted B} /60000

        the relay is granted the permit
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C; wake = {sentry B} /60000
        > release A -> 1; B: P B 0; C: N C 100; granted = [B@ms+500ms]; held = {B 1}; line = [C=1@2] /150000;
            wake = {granted B} /60000

        the relay has left, and a grant ends later
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C; granted = [A2@ms+300ms]
        + wake = {sentry B} /60000
        > release A -> 1; B: P B 0; C: N C 100; granted = [A2@ms+300ms B@ms+500ms]; held = {B 1}; line = [C=1@2] /150000;
            wake = {granted B} /60000

        the relay has left, and a grant ends earlier
        + free = 0; held = {A 1}; line = [B=1 C=1] /150000; heard B C; granted = [A2@ms+60ms]
        + wake = {sentry B} /60000
        > release A -> 1; B: P B 0; C: N C 60; granted = [A2@ms+60ms B@ms+500ms]; held = {B 1}; line = [C=1@2] /150000;
            wake = {granted B} /60000",
    );
}

/// L4, L9. P3, L12: a grant that crossed the end of the wait passes to the next process.
#[test]
fn a_process_that_leaves_the_queue_passes_its_watch_on() {
    for polls in ["", "?"] {
        let text = "the grant of another owner ends in 300 ms
            + free = 0; held = {A 1}; line = [B=1@polls C=1]; heard C; granted = [A@ms+300ms]; wake = {x y}
            > release B quits=1 -> 0; C: N C 300; line = [C=1@2]

            the relay leaves
            + free = 0; held = {A 1}; line = [B=1@polls C=1]; heard C; granted = [A@ms+300ms]; wake = {x y, sentry B}
            > release B quits=1 -> 0; C: N C 100; line = [C=1@2]; wake = {x y}

            the notes end with the queue
            + free = 0; held = {A 1}; line = [B=1@polls] /150000; wake = {sentry B, B 5} /60000
            > release B quits=1 -> 0; line is gone; wake is gone";
        check(&text.replace("@polls", polls));
    }
    check(
        "only the head watches the end of a grant; the second run finds no entry
        + free = 0; held = {A 1}; line = [B=1 C=1 D=1] /150000; heard B C D; granted = [A@ms+300ms]
        + wake = {sentry A2} /60000
        > release C quits=1 -> 0; line = [B=1 D=1@3] /150000
        > release C quits=1 -> -2

        the head is the relay
        + free = 0; held = {A 1}; line = [B=1 C=1 D=1] /150000; heard B C D; granted = [A@ms+300ms]
        + wake = {sentry B} /60000
        > release C quits=1 -> 0; line = [B=1 D=1@3] /150000

        a grant crossed the request
        + free = 0; held = {A 1}; line = [C=1] /150000; heard C; granted = [A@ms+300ms]
        > release A quits=1 -> 1; C: P C 0; granted = [C@ms+500ms]; held = {C 1}; line is gone",
    );
}

/// P1, P6: permits of a semaphore that was deleted return nothing.
#[test]
fn a_semaphore_that_is_missing_has_no_holders() {
    check(
        "a request that does not wait
        + held = {A 1}; granted = [A@9]
        > acquire A 1 try -> -3; granted is gone; held is gone

        a request that waits
        + held = {A 1}; granted = [A@9]
        > acquire A 1 new -> [-5004 now now 1 0 0 none]; line = [A=1@now] /22500; granted is gone; held is gone

        a release
        + held = {A 1, C 1}
        > release A -> -2; held is gone

        a release with a queue
        + held = {A 1, C 1}; line = [B=1] /150000; heard B
        > release A -> -2; held is gone",
    );
}
