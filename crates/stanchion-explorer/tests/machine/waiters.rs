//! The life of a waiter: its turns, its polls, its end.

use crate::desk::check;

#[test]
fn a_new_waiter_sends_a_request_if_it_overtakes_no_other() {
    check(
        "
        only the first waiter for a lock
        join lock lock lock | a Turn

        permits together until one is refused
        join permit permit | a Turn, b Turn behind
        b refused 9000 | poll 5000
        join permit

        readers together until one is refused
        join reader reader | a Turn, b Turn behind
        b refused 9000 | poll 5000
        join reader

        a reader behind a writer waits
        join lock reader | a Turn

        a new waiter waits while this process holds, until the lease has ended, though the end is not recorded
        holds lock 9 500; join lock
        a leaves; pass 500; join lock | gives up 0, b Turn

        a permit may leave others free
        holds permit 9 500; join permit | a Turn

        the server keeps the waiters of a fair lock
        holds fair 9 500; join fair | a Turn

        a waiter for a fact joins before the event can occur
        join fact event

        waiters for events that requests find
        join event event | a Turn, b Turn behind

        P8: an event has occurred for those that joined before the request
        join event event; a refused 9000; b refused 9000 | a Turn, b Turn behind, poll 5000
        free; join event | a Told
        a granted | gives up 0, gives up 1, c Turn, a takes 0, b Seen
        ",
    );
}

#[test]
fn a_call_that_begins_to_wait_later_sends_its_request_then() {
    check(
        "
        one that looks
        join fact
        a begins looks | a Turn
        a begins looks

        one that is due
        join fact fact
        free; a begins; b begins | a Turn

        one that is not
        join fact; a begins
        free | a Told
        ",
    );
}

#[test]
fn a_reply_ends_a_wait() {
    check(
        "
        the next waiter sends a request if a given hold has ended before it is taken
        join lock lock; a sleeps; a refused 9000; reserve lock; a handed 9 300 1 | a Turn, poll 5000, reserves a, gives up 0
        pass 300; a runs | a takes 9, b Turn

        a waiter that takes its hold leaves the others parked, so a new waiter does not overtake them
        join permit* permit*; a refused 9000; b refused 9000 | a Turn, b Turn behind, poll 5000
        reserve permit*; a handed 9 9000 1 | reserves a, gives up 0, a takes 9
        join permit*

        an attempt that decided nothing is repeated, but not after a hold was given, or the waiter has left
        join lock lock; a undecided | a Turn, again as 0
        grant 0
        a undecided | over, gives up 0, a takes 0
        b leaves; b undecided | gives up 1, over

        an error calls the next waiter; a hold that a message gave is worth more
        join lock lock; a error | a Turn, gives up 0, b Turn, a error
        grant 1; b error | gives up 1, drops error, b takes 1

        the server calls the next waiter for a fair lock
        join fair fair; b refused 90000; a error | a Turn, b Turn behind, poll 5000, gives up 0, a error

        the reply to a waiter that has left, and a hold for it
        join lock lock; a leaves; a error | a Turn, gives up 0, b Turn, drops error
        b leaves; b granted | gives up 1, drops 1

        a grant by message and by reply
        join lock; grant 0; a granted | a Turn, also 0, gives up 0, a takes 0

        two grants by message
        join lock; grant 0; grant 0; a error | a Turn, gives up 0, drops error, a takes 0

        a waiter that leaves with a hold that it was given
        join lock; grant 0; a leaves | a Turn, gives up 0, drops 0

        a waiter that leaves with a hold that it has not taken
        join lock; a sleeps; a granted; a leaves | a Turn, gives up 0, drops 0
        ",
    );
}

#[test]
fn an_outage_ends_the_waits_of_all_that_have_waited_for_it() {
    check(
        "
        one that came later sends a request after the one that gives up
        join lock lock; a unanswered; pass 2000; join lock; pass 999; a unanswered | a Turn
        pass 1; a unanswered | fails, b OutOfReach
        a error | gives up 0, c Turn, a error

        one that came before the outage waits since the first failure
        join lock; pass 1000; join lock; a unanswered; pass 2999 | a Turn
        join lock; pass 1; a unanswered | fails, b OutOfReach
        a error | gives up 0, c Turn, a error

        a request that is under way ends its wait itself
        join permit permit; a unanswered; pass 3000; a unanswered | a Turn, b Turn behind, fails

        a grant ends it
        join permit permit; b unanswered | a Turn, b Turn behind
        pass 2999; a granted 5000; pass 1; b unanswered | gives up 0, a takes 0, poll 5000

        a grant by message ends it
        join fair fair; b unanswered; pass 2999; grant 0; pass 1; b unanswered | a Turn, b Turn behind, poll 5000

        a refusal ends it
        join lock; a unanswered; pass 2000; a refused 1; timer; pass 1000; a unanswered | a Turn, poll 4, a Turn

        a hand-off ends it
        join permit permit; b refused 90000; a unanswered | a Turn, b Turn behind, poll 5000
        reserve permit; b handed 9 9000 1; pass 3000; a unanswered | reserves b, gives up 1, b takes 9

        its end is that of the last waiter
        join lock; a unanswered; is out; a leaves; is out | a Turn, true, gives up 0, false
        ",
    );
}

#[test]
fn a_waiter_that_leaves_has_a_successor() {
    check(
        "
        of a lock, with a request in flight
        join lock lock; a leaves | a Turn, gives up 0, b Turn

        of a lock, parked
        join lock lock; a refused 90000; a leaves | a Turn, poll 5000, gives up 0, b Turn

        one that is parked behind others delayed none
        join lock lock lock; a refused 90000; b leaves | a Turn, poll 5000, gives up 1

        the end of a local hold calls the next one
        holds lock 9 500; join lock lock; a leaves | gives up 0

        the server calls the next waiter for a fair lock
        join fair fair; b refused 90000; a leaves | a Turn, b Turn behind, poll 5000, gives up 0

        a wake-up during its request is older than the next request
        join lock lock; free; a leaves | a Turn, gives up 0, b Turn
        b refused 90000 | poll 5000

        of permits, several may be free
        join permit permit; b refused 90000; free; a leaves | a Turn, b Turn behind, poll 5000, gives up 0, b Turn
        b refused 90000 | b Told

        invariant 3: it may have planned the poll for all
        join permit permit; a leaves | a Turn, b Turn behind, gives up 0, poll 5000

        a grant may, too, and the next one makes itself known if the server has no entry of this process
        join permit permit; a granted | a Turn, b Turn behind, gives up 0, a takes 0, poll 5000
        b refused 90000 | b Turn

        a poll that is planned stays
        join permit permit; b refused 700; a leaves | a Turn, b Turn behind, poll 703, gives up 0, b Turn

        of permits, a wake-up may have been for it
        join permit permit; a leaves; b refused 90000 | a Turn, b Turn behind, gives up 0, poll 5000, b Turn

        without others there is none
        join permit; a leaves | a Turn, gives up 0

        a task that takes its hold leaves a poll to the others
        join permit permit; a refused 90000; rest | a Turn, b Turn behind, poll 5000
        reserve permit; a handed 9 300 1 | reserves a, gives up 0, a takes 9, poll 5000

        also if the hold is taken from the waiter
        join permit permit; a sleeps; a refused 90000; rest | a Turn, b Turn behind, poll 5000
        reserve permit; a handed 9 300 1; missed permit 9 | reserves a, gives up 0, poll 5000, drops 9
        a runs | a Missed
        ",
    );
}

#[test]
fn a_grant_lets_others_send_requests_if_they_may_hold_too() {
    check(
        "
        a permit
        join permit permit; b refused 90000 | a Turn, b Turn behind, poll 5000
        a granted | gives up 0, b Turn, a takes 0

        the next permit is free at a known time
        join permit permit; b refused 90000 | a Turn, b Turn behind, poll 5000
        a granted 3000 | gives up 0, a takes 0, poll 3000

        a fair lock: another waiter checks the queue after a grant in a reply
        join fair fair; a refused 90000; b refused 90000; free | a Turn, b Turn behind, poll 5000, a Told
        a granted | gives up 0, b Turn, a takes 0

        a lock
        join lock lock; a refused 90000; free; a granted | a Turn, poll 5000, a Told, gives up 0, a takes 0

        a permit that was acquired without a place
        join permit; a refused 90000 | a Turn, poll 5000
        holds permit 9 300 | a Turn

        readers up to the next writer
        join reader reader lock reader; b refused 90000 | a Turn, b Turn behind, poll 5000
        a granted | gives up 0, b Turn, a takes 0

        the writer sends one request, for its entry
        join reader lock reader; a granted | a Turn, gives up 0, b Turn, a takes 0, poll 5000
        b queued 90000; holds reader 9 90000 | entry

        invariant 2: a reply may be older than the grant to another reader
        join reader reader; a granted; b queued 90000 | a Turn, b Turn behind, gives up 0, a takes 0, poll 5000, b Turn

        not without a request in flight
        join reader; a granted; join reader; b queued 90000 | a Turn, gives up 0, a takes 0, b Turn, poll 5000, entry
        ",
    );
}

#[test]
fn a_poll_calls_the_first_waiter() {
    check(
        "
        of a lock
        join lock lock; a refused 700; timer | a Turn, poll 703, a Turn

        all waiters for a fair lock every 150 s, since each has its own deadline on the server
        join fair fair; pass 10000; join fair | a Turn, b Turn behind, c Turn behind
        a refused 900000; b refused 900000; c refused 900000 | poll 5000
        pass 139999; timer | a Turn, poll 5000
        a refused 900000; pass 1; timer | a Turn, b Turn behind, c Turn behind, poll 5000
        a refused 900000; b refused 900000; c refused 900000; pass 149999; timer | a Turn, poll 5000

        the reply plans the next poll, so a poll during a request for a permit calls no other waiter
        join permit permit permit; b refused 700; c refused 700; timer | a Turn, b Turn behind, c Turn behind, poll 703
        a refused 900 | poll 903

        a poll during a request for a lock is kept if a message has planned it
        join lock; a queued 90000; try 0 50; free; timer | a Turn, poll 5000, poll 50, a Told
        a queued 90000 | a Told

        not if a refusal has planned it
        join lock; a queued 90000; free; timer | a Turn, poll 5000, a Told
        a queued 90000 | poll 5000, entry

        an entry of a process that holds expires without requests, and the release would serve no waiter here
        join lock; a queued 90000; holds lock 9 90000; timer | a Turn, poll 5000, a Look
        a queued 90000 | poll 5000, entry

        a client that polls
        polls; join lock; a queued 90000; holds lock 9 90000; timer | a Turn, poll 5000, a Look
        a queued 90000 asks | poll 1, entry

        also during a request
        join permit permit; a queued 90000; timer | a Turn, b Turn behind, poll 5000, poll 5000, entry

        without an entry a request would only be refused
        join lock; a refused 700; holds lock 9 90000; timer | a Turn, poll 703

        a client that polls does so while requests are in flight
        polls; join fair fair; b refused 700; timer | a Turn, b Turn behind, poll 1, b Turn behind, poll 250
        ",
    );
}

#[test]
fn the_task_that_polled_last_is_woken() {
    check(
        "
        a task that has moved
        join lock lock; b runs; a leaves; b error | a Turn, gives up 0, b Turn, gives up 1, b error

        a shutdown finds the holds that were not taken
        join lock lock; a sleeps; a refused 90000; reserve lock; a handed 9 300 1 | a Turn, poll 5000, reserves a, gives up 0
        shutdown; a runs; shutdown | 9, a Missed

        also one that a message gave during a request; its end calls the waiter
        join lock; grant 0; shutdown; a refused 90000 | a Turn, 0, poll 5000
        ",
    );
}

#[test]
fn a_queue_that_is_reset_keeps_only_the_count_of_its_places() {
    check(
        "
        places
        join lock; is idle; a leaves; rest; is idle; reset; join lock | a Turn, false, gives up 0, true, b Turn

        the number of refusals in a row
        polls; join lock; a refused 90000; timer; a refused 90000; timer; a refused 90000 | a Turn, poll 1, a Turn, poll 2, a Turn, poll 4
        timer; a leaves; reset; join lock; b refused 90000 | a Turn, gives up 0, b Turn, poll 1

        a local hold keeps the queue
        holds lock 9 300; is idle | false

        so does an outcome
        join lock; a sleeps; a error; is idle | a Turn, gives up 0, false
        ",
    );
}

#[test]
fn a_fact_reaches_all_waiters() {
    check(
        "
        each looks for itself, or its wait is over
        join fact fact; a begins; b begins; fact look | a Turn, b Turn behind
        fact happened | gives up 0, gives up 1, a Seen, b Seen, poll 5000
        is for-facts | true

        a fact about another event is no news
        join fact; a begins; fact other

        it counts as an answer
        join fact; a begins looks; a unanswered; is out; fact other; is out | a Turn, true, false

        a client that polls begins its pauses again after news only
        polls; join fact; a begins looks; a refused 90000; timer; a refused 90000; timer; a refused 90000 | a Turn, poll 1, a Turn, poll 2, a Turn, poll 4
        fact other; timer; a refused 90000; fact look; a refused 90000 | a Turn, poll 8, a Turn, poll 1

        a queue of others
        join lock; is for-facts | a Turn, false
        ",
    );
}

#[test]
fn a_queue_knows_what_is_under_way() {
    check(
        "
        a request, another one, a hold
        is held; is attended; is waited-for; is idle | false, true, false, true
        join permit*; is held; is waited-for; join permit*; is held; is waited-for | a Turn, false, false, b Turn behind, true, false
        join lock; is waited-for | true

        a wake-up that is kept, and a hold
        join lock; free; is waited-for; is attended | a Turn, true, true
        a granted; is held; is attended | gives up 0, a takes 0, true, true
        pass 10000; is held | false

        fair waiters do not wait for each other
        join fair fair; a refused 90000; is waited-for | a Turn, b Turn behind, poll 5000, false

        the owners whose leftovers it keeps
        join lock lock; has 0; has 1; has 2; a queued 90000; has 0; a leaves; has 0 | a Turn, true, true, false, poll 5000, true, true, entry
        ",
    );
}
