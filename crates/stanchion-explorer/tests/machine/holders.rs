//! Holds of this process: grants, the ends of holds, and hand-offs.

use crate::desk::check;

#[test]
fn a_wake_up_during_a_request_that_is_granted_was_for_this_grant() {
    check(
        "
        a lock
        join lock lock; free; a granted | a Turn, gives up 0, a takes 0
        ended lock 0; b queued 90000 | b Turn, poll 5000, entry

        the wake-up of a fair lock is for another waiter, too
        join fair fair; b refused 90000; free; a granted | a Turn, b Turn behind, poll 5000, gives up 0, b Told, a takes 0

        a grant by message
        join lock lock; a queued 90000; try 0 0; free; grant 0; a refused 90000 | a Turn, poll 5000, a Told, gives up 0, a takes 0
        ended lock 0; b queued 90000 | b Turn, entry

        a hold that is handed over
        join lock lock; a queued 90000; reserve lock; free; a handed 0 90000 1 | a Turn, poll 5000, reserves a, a takes 0, entry
        ended lock 0; b queued 90000 | gives up 1, b Turn as 0

        invariant 2: a try that takes the name next is not the answer to a wake-up that removed the entry of the request
        join lock; try 0 0; holds lock 9 90000; a queued 90000 | a Turn, a Told
        ",
    );
}

#[test]
fn a_grant_excludes_requests_by_its_hold() {
    check(
        "
        a grant by message
        join lock; a queued 90000; grant 0; join lock; reserve lock | a Turn, poll 5000, a takes 0, reserves none

        a grant in a reply
        join lock; a queued 90000; free; a granted | a Turn, poll 5000, a Told, gives up 0, a takes 0
        join lock; reserve lock | reserves none
        ",
    );
}

#[test]
fn the_end_of_a_hold_calls_the_next_waiter_unless_the_release_has() {
    check(
        "
        a lock, without an entry
        holds lock 9 90000; join lock; released lock 9 | a Turn

        a lost reply
        holds lock 9 90000; join lock; ended lock 9 | a Turn

        the late end of an old hold
        holds lock 9 90000; join lock; released lock 8

        a release that served the queue of the server plans a poll
        join lock; a queued 90000 spread; released lock 9 | a Turn, poll 90000, poll 5000, entry
        ended lock 9 | a Turn, no entry

        not without a waiter
        join lock lock; b leaves; a leaves; rest; released lock 9 | a Turn, gives up 1, gives up 0

        a permit in the queue of the server
        join permit; a queued 90000; released permit 9 | a Turn, poll 5000, entry
        ended permit 9 | a Turn, no entry

        a reader in the queue of the server
        join reader; a queued 90000; released reader 9 | a Turn, poll 5000, entry
        ended reader 9 | a Turn, no entry

        the message of the release wakes waiters without a queue on the server
        join permit*; a refused 90000; released permit* 9 | a Turn, poll 5000
        ended permit* 9 | a Turn

        so it does for readers
        join reader*; a refused 90000; released reader* 9 | a Turn, poll 5000
        ended reader* 9 | a Turn

        the server grants a fair lock; a lost reply may have contained a grant to a waiter here
        join fair; a refused 90000; released fair 9 | a Turn, poll 5000
        ended fair 9 | a Turn

        P4: no message reports the grant of a release to a client that polls
        polls; join lock; a queued 90000; released lock 9 | a Turn, poll 5000, a Turn
        released lock 9; a queued 90000 asks | a Turn

        an event has no holder
        join event; a refused 90000; ended event 9 | a Turn, poll 5000
        ",
    );
}

#[test]
fn a_hand_off_excludes_requests_until_it_has_ended() {
    check(
        "
        a lock; it fails, and the wake-up of that time is for the first waiter
        join lock lock; a refused 90000; reserve lock | a Turn, poll 5000, reserves a
        join lock; free; reserve lock; is idle | reserves none, false
        a failed; ended lock 9 | a Turn

        not during a request
        join lock; reserve lock | a Turn, reserves none

        a permit goes to the first parked waiter
        join permit permit; b refused 90000 | a Turn, b Turn behind, poll 5000
        reserve permit; hand-offs; reserve permit | reserves b, 1, reserves none

        another permit is parked, so a new waiter waits; a wake-up is followed when the hand-off has ended
        join permit permit; a refused 90000; b refused 90000; a refused 90000 | a Turn, b Turn behind, poll 5000
        reserve permit; join permit | reserves a
        free; a failed | a Told

        no waiter is parked; without a wake-up the waiter makes itself known
        join permit; a refused 90000; reserve permit; join permit | a Turn, poll 5000, reserves a, b Turn behind
        a failed | a Turn

        a waiter that did not take its hold in time starts again
        join lock lock; a sleeps; a refused 90000; reserve lock; a handed 9 300 1 | a Turn, poll 5000, reserves a, gives up 0
        pass 300; missed lock 9; a runs | drops 9, b Turn, a Missed

        a hold for a waiter that has left is released, and the release calls the next waiter
        join lock; a refused 90000; reserve lock; a leaves; a handed 9 90000 3 | a Turn, poll 5000, reserves a, gives up 0, drops 9
        join lock; hand-offs | 3

        a process that is behind another one after it has an entry
        join lock; a refused 90000; reserve lock; a passed 5 700 | a Turn, poll 5000, reserves a, poll 703, entry

        unless all waiters have left
        join lock; a refused 90000; reserve lock; a leaves; a passed 5; is idle | a Turn, poll 5000, reserves a, gives up 0, gives up 5, true

        only a waiter for the same synchronizer gets the hold
        join reader lock; a refused 90000; reserve lock | a Turn, poll 5000, reserves none
        ",
    );
}

#[test]
fn a_grant_or_the_end_of_a_hold_ends_the_hand_offs_in_a_row() {
    check(
        "
        an answered release; the entry stays
        join lock lock; a queued 90000; reserve lock; a handed 9 90000 5; hand-offs | a Turn, poll 5000, reserves a, a takes 9, 5, entry
        released lock 9; hand-offs | 0

        a lost reply; the next waiter uses the entry
        join lock lock; a queued 90000; reserve lock; a handed 9 90000 5 | a Turn, poll 5000, reserves a, a takes 9, entry
        ended lock 9; hand-offs | gives up 1, b Turn as 0, 0, no entry

        a grant by message
        join lock; a queued 90000; reserve lock | a Turn, poll 5000, reserves a, entry
        join lock; a handed 9 300 5; grant 0; hand-offs | a takes 9, gives up 1, b takes 0, 0, no entry

        a grant in a reply, which also begins the pauses of a client that polls again
        polls; join lock; a refused 90000; timer; a refused 90000; timer; a refused 90000 | a Turn, poll 1, a Turn, poll 2, a Turn, poll 4
        reserve lock; a handed 9 300 4 | reserves a, gives up 0, a takes 9
        pass 300; join lock; b granted; hand-offs | b Turn, gives up 1, b takes 1, 0
        ended lock 1; join lock; c refused 90000 | c Turn, poll 1
        ",
    );
}

/// P4.
#[test]
fn an_entry_that_a_message_may_have_removed_does_not_replace_a_request() {
    check(
        "
        an entry from another queue, whose message may have arrived before; a refusal proves that the server has it
        join lock; try 77 0; bring lock 77; a granted | a Turn, gives up 0, a takes 0
        released lock 0 | b Turn as 77
        b queued 90000 | poll 5000, entry

        the same while a waiter of this process holds
        holds lock 9 90000; try 77 0; bring lock 77
        released lock 9 | a Turn as 77

        a wake-up during the request, and another waiter gets the hold
        join lock lock; try 0 0; a queued 90000; a granted | a Turn, a Told, gives up 0, a takes 0
        released lock 0 | b Turn

        a wake-up during a hand-off that fails
        join lock; a queued 90000; reserve lock; try 0 0; a failed; released lock 9 | a Turn, poll 5000, reserves a, a Turn

        a wake-up during a hand-off
        join lock lock; a refused 90000; reserve lock; try 0 0 | a Turn, poll 5000, reserves a
        a passed 0; a granted | gives up 0, a Told, gives up 0, a takes 0
        released lock 0 | b Turn
        ",
    );
}
