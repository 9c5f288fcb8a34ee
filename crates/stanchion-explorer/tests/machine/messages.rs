//! Messages about the entry of this process in the queue on the server.

use crate::desk::check;

#[test]
fn a_message_plans_a_poll_or_a_request() {
    check(
        "
        the head polls after the time and 1 ms, within 5 s
        join lock; a queued 90000; head 0 300; head 0 90000; timer | a Turn, poll 5000, poll 301, poll 5000, a Look

        a process that is to try later keeps its entry
        join lock; a queued 90000; try 0 50; timer | a Turn, poll 5000, poll 50, a Told

        at once: the server may have removed the entry
        join lock; a queued 90000; try 0 0 | a Turn, poll 5000, a Told

        another entry
        join lock; a queued 90000 | a Turn, poll 5000, entry
        try 9 0; try 9 50; head 9 50

        a waiter for a fair lock
        join fair fair; a refused 90000; b refused 90000; head 1 300 | a Turn, b Turn behind, poll 5000, poll 301
        try 1 0 | b Turn behind

        a release of Redisson's is for the first waiter
        join lock lock; a queued 90000; free | a Turn, poll 5000, a Told

        or for the one that it names, unless that one has left
        join fair fair; a refused 90000; b refused 90000; free 1 | a Turn, b Turn behind, poll 5000, b Turn behind
        b leaves; free 1 | gives up 1
        ",
    );
}

#[test]
fn a_message_during_a_request_is_kept_until_its_reply() {
    check(
        "
        to try at once
        join lock; try 0 0; a queued 90000 | a Turn, a Told

        to try later: a later message asks for no later request
        join lock; try 0 50; try 0 90; a queued 90000 | a Turn, poll 50, entry

        for a fair lock
        join fair fair; a refused 90000; free 1; b refused 90000 | a Turn, b Turn behind, poll 5000, b Turn behind
        ",
    );
}

#[test]
fn a_grant_by_message_is_for_the_first_waiter_and_uses_the_entry_up() {
    check(
        "
        a lock, and new waiters wait
        join lock lock; a queued 90000; try 9 0; grant 0 | a Turn, poll 5000, a takes 0
        join lock

        readers may hold together
        join reader reader; a queued 90000; b refused 90000 | a Turn, b Turn behind, poll 5000, entry
        grant 0 | b Turn, a takes 0, no entry

        permits, too
        join permit permit; a queued 90000; b refused 90000 | a Turn, b Turn behind, poll 5000, entry
        grant 0 | b Turn, a takes 0, no entry

        an unknown owner
        join lock; a queued 90000 | a Turn, poll 5000, entry
        grant 7

        the waiter has a hold already
        join lock; a sleeps; a queued 90000; reserve lock; a handed 9 90000 1 | a Turn, poll 5000, reserves a, entry
        grant 0; a runs | gives up 0, a takes 9, no entry

        P2: a user of another counter may have made the token, so a request finds the grant
        join lock; a queued 90000; grant 0 other | a Turn, poll 5000, a Turn

        P2: of a fair lock, the request of its waiter
        join fair fair; a refused 90000; b refused 90000; grant 1 other | a Turn, b Turn behind, poll 5000, b Turn behind

        during a hand-off it is looked at afterwards, and the leftovers of the waiter's own owner are given up
        join lock; a refused 90000; reserve lock; grant 5; a passed 5 | a Turn, poll 5000, reserves a, gives up 0, a Turn as 5

        a fair lock: its waiter, and another one polls after the time of the reply, divided by the number of waiters
        join fair fair fair | a Turn, b Turn behind, c Turn behind
        a queued 90000 spread; b queued 90000 spread; c queued 90000 spread | poll 30000
        pass 10000; grant 1; timer | gives up 1, b takes 1, poll 45000, a Look, poll 5000

        one that crosses a request is for the requesting waiter, by the owner of the entry
        join lock; a refused 90000; bring lock 77; free | a Turn, poll 5000, gives up 0, a Told as 77
        grant 77; a refused 90000 | gives up 77, a takes 77
        ",
    );
}
