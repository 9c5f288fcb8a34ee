//! The entry of this process in the queue on the server: requests, refusals, polls.

use crate::desk::check;

#[test]
fn the_entry_is_that_of_the_next_request_of_the_first_waiter() {
    check(
        "
        a waiter behind the first has no right to it
        join permit permit; a queued 90000 | a Turn, b Turn behind, poll 5000, entry
        holds permit 9 300 | a Turn, no entry

        an entry for another kind of waiter is given up
        join reader; a queued 90000; join lock; a leaves | a Turn, poll 5000, gives up 0, b Turn

        without it, a waiter whose own owner was its owner has a fresh one
        join lock; a queued 90000; take-entry; free | a Turn, poll 5000, a Told as fresh

        a new entry replaces the old one, and a refusal without one leaves none
        join lock; a queued 90000; try 0 0; a queued 90000; free; a refused 90000 | a Turn, poll 5000, a Told, a Told

        the entry of a waiter that was the first before is given up
        join permit permit; b queued 90000; a queued 90000 | a Turn, b Turn behind, poll 5000, gives up 1, entry

        the last waiter that leaves gives it up
        join lock lock; a queued 90000; a leaves | a Turn, poll 5000, entry
        b leaves | gives up 1, gives up 0, no entry

        so does a queue that ends
        join lock; a queued 90000; rest | a Turn, poll 5000, gives up 0

        one from another queue is used by the next request, kept, or given up if the queue has one
        bring lock other | a Turn as other
        bring lock second
        bring lock third | gives up third

        one that the first waiter cannot use is given up
        join reader; bring lock other | a Turn, gives up other

        one that comes after the end of a lease
        holds lock 9 500; join lock; pass 500; bring lock 77 | gives up 0, a Turn as 77
        ",
    );
}

#[test]
fn the_next_poll_follows_the_reply() {
    check(
        "
        the end of a lease, 1 ms and a jitter of 2 ms later; 5 s; or a random moment of the whole time
        join lock; a queued 700; timer; a queued 90000; timer | a Turn, poll 703, a Look, poll 5000, a Look
        a queued 90000 spread; timer | poll 90000, a Look

        it counts as a response
        join lock; a queued 700 asks; timer; a queued 90000 asks; timer | a Turn, poll 703, a Told, poll 5000, a Told
        a queued 90000 spread asks; timer | poll 90000, a Told

        a client without messages polls more and more rarely, and a message begins the pauses again
        polls; join lock; a queued 90000 asks; timer; a queued 90000 asks; timer; a queued 90000 asks | a Turn, poll 1, a Told, poll 2, a Told, poll 4, entry
        timer; a queued 90000 asks; timer; a queued 90000 asks; timer; a queued 90000 asks | a Told, poll 8, a Told, poll 16, a Told, poll 32
        timer; a queued 90000 asks; timer; a queued 90000 asks; timer; a queued 90000 asks | a Told, poll 64, a Told, poll 128, a Told, poll 128
        timer; a queued 50 asks; timer; a queued 50; timer; a queued 90000 asks | a Told, poll 53, a Told, poll 53, a Look, poll 128
        try 0 0; a queued 90000 asks; timer; a queued 90000 asks | a Told, poll 1, a Told, poll 2
        free; a queued 90000 asks | a Told, poll 1

        without a subscription
        join lock; a queued 90000 unsubscribed; free; a queued 100 unsubscribed | a Turn, poll 250, a Told, poll 103, entry
        free; a refused 90000 unsubscribed | a Told, poll 250, no entry

        a refusal without an entry; a later one replaces the plan of a lock
        join lock; a refused 700; free; a refused 90000 | a Turn, poll 703, a Told, poll 5000

        of several requests for permits, the earliest poll counts
        join permit; a refused 700; free; a refused 90000 | a Turn, poll 703, a Told

        the reply to a waiter for a fair lock does not delay the poll of another
        join fair fair fair | a Turn, b Turn behind, c Turn behind
        a queued 700; b queued 900 spread; c queued 300 | poll 703, poll 303

        also without a subscription
        join fair fair; a queued 700 unsubscribed; b queued 900 unsubscribed | a Turn, b Turn behind, poll 250
        ",
    );
}

#[test]
fn the_reply_to_a_waiter_for_a_fair_lock_calls_others() {
    check(
        "
        it names the holder, whose message may be lost
        join fair fair fair; b refused 90000; c refused 90000 | a Turn, b Turn behind, c Turn behind, poll 5000
        a refused 90000 granted=2 | c Turn behind

        an unknown holder
        join fair fair; b refused 90000; a refused 90000 granted=9 | a Turn, b Turn behind, poll 5000

        the holder has a request in flight
        join fair fair; a refused 90000 granted=1; b refused 90000 | a Turn, b Turn behind, poll 5000, b Turn behind

        the server has lost places
        join fair fair fair; b refused 90000; c refused 90000 | a Turn, b Turn behind, c Turn behind, poll 5000
        a refused 90000 forgotten | b Turn behind, c Turn behind

        only the first waiter counts for lost places
        join fair fair; a refused 90000; b refused 90000 forgotten | a Turn, b Turn behind, poll 5000
        ",
    );
}
