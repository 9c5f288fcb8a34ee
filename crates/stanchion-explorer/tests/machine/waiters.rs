//! The life of a waiter: its turns, its polls, its end.

use stanchion_client::local_queue::End;
use stanchion_client::primitive::Heard;

use crate::desk::{Desk, EVENT, FAIR, LOCK, PERMIT, READER, Wish, at, ms};
use crate::{leave, message};

#[test]
fn only_the_first_waiter_for_a_lock_sends_a_request() {
    let (mut desk, places) = Desk::of([LOCK; 3]);
    assert_eq!(desk.called(places), [true, false, false]);
    assert_eq!(desk.turns(places), ["Turn", "none", "none"]);
}

#[test]
fn permits_and_readers_send_requests_together_until_one_is_refused() {
    for want in [PERMIT, READER] {
        let (mut desk, [a, b]) = Desk::of([want; 2]);
        assert_eq!(desk.turns([a, b]), ["Turn", "Turn"]);
        desk.refuse(b, 9000);
        let c = desk.join(want);
        assert_eq!(desk.called([b, c]), [false, false]);
    }
}

#[test]
fn a_reader_behind_a_writer_waits() {
    let (mut desk, places) = Desk::of([LOCK, READER]);
    assert_eq!(desk.called(places), [true, false]);
}

#[test]
fn a_new_waiter_sends_no_request_while_this_process_holds() {
    for (want, asks) in [(LOCK, false), (FAIR, true)] {
        let (mut desk, []) = Desk::of([]);
        let hold = desk.hold(want, 9, 500);
        desk.acquired_elsewhere(&hold);
        let a = desk.join(want);
        assert_eq!(desk.called([a]), [asks], "{want:?}");
    }
    // The lease has ended, though the end is not recorded.
    let (mut desk, []) = Desk::of([]);
    let hold = desk.hold(LOCK, 9, 500);
    desk.acquired_elsewhere(&hold);
    desk.pass(500);
    let a = desk.join(LOCK);
    assert_eq!(desk.called([a]), [true]);
    // A permit may leave others free.
    let (mut desk, []) = Desk::of([]);
    let hold = desk.hold(PERMIT, 9, 500);
    desk.acquired_elsewhere(&hold);
    let a = desk.join(PERMIT);
    assert_eq!(desk.called([a]), [true]);
}

#[test]
fn a_waiter_for_a_fact_sends_no_request_at_first() {
    let fact = Wish {
        is_fact: true,
        ..EVENT
    };
    let (mut desk, places) = Desk::of([fact, EVENT]);
    assert_eq!(desk.called(places), [false, false]);
    let (mut desk, places) = Desk::of([EVENT; 2]);
    assert_eq!(desk.called(places), [true, true]);
}

/// P8: an answer is as old as its request.
#[test]
fn an_event_has_occurred_for_those_that_joined_before_the_request() {
    let (mut desk, [a, b]) = Desk::of([EVENT; 2]);
    assert_eq!(desk.turns([a, b]), ["Turn", "Turn"]);
    desk.refuse(a, 9000);
    desk.refuse(b, 9000);
    desk.hear(Heard::Free);
    assert_eq!(desk.turn(a), "Told");
    let c = desk.join(EVENT);
    assert_eq!(desk.called([c]), [false]);
    desk.grant(a, EVENT, None);
    assert_eq!(desk.turns([b, c]), ["Seen", "Turn"]);
}

#[test]
fn the_next_waiter_sends_a_request_if_a_given_hold_has_ended_before_it_is_taken() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    assert_eq!(desk.turn(a), "Turn");
    desk.refuse(a, 9000);
    let (clock, hold) = (desk.clock(), desk.hold(LOCK, a, 300));
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
    desk.queue.hand_over(&clock, a, hold, 1);
    desk.pass(300);
    assert_eq!(desk.turn(a), "takes 0");
    assert_eq!(desk.called([b]), [true]);
}

#[test]
fn a_waiter_that_takes_its_hold_leaves_the_count_of_parked_waiters_alone() {
    let permit = Wish {
        in_line: false,
        ..PERMIT
    };
    let (mut desk, [a, b]) = Desk::of([permit; 2]);
    desk.turns([a, b]);
    desk.refuse(a, 9000);
    desk.refuse(b, 9000);
    let (clock, hold) = (desk.clock(), desk.hold(permit, a, 9000));
    assert_eq!(desk.queue.reserve(&clock, &permit, false), Some(a));
    desk.queue.hand_over(&clock, a, hold, 1);
    assert_eq!(desk.turn(a), "takes 0");
    // `b` is parked, so a new waiter does not overtake it.
    let c = desk.join(permit);
    assert_eq!(desk.called([b, c]), [false, false]);
}

#[test]
fn a_waiter_whose_attempt_decided_nothing_sends_its_request_again() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    let clock = desk.clock();
    assert_eq!(desk.turn(a), "Turn");
    assert!(desk.queue.undecided(&clock, a).is_some());
    // Not once it was given a hold, or has left.
    desk.hear_grant(0, "-");
    assert_eq!(desk.turn(a), "none");
    assert!(desk.queue.undecided(&clock, a).is_none());
    assert_eq!(desk.turn(a), "takes 0");
    leave(&mut desk, b);
    assert!(desk.queue.undecided(&clock, b).is_none());
}

#[test]
fn a_reply_that_decides_ends_the_wait_and_calls_the_next_one() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    let clock = desk.clock();
    desk.turn(a);
    desk.queue.answer(&clock, a, "an error");
    assert_eq!(desk.turns([a, b]), ["an error", "Turn"]);
    // A hold that a message gave to it is worth more.
    desk.hear_grant(1, "-");
    desk.queue.answer(&clock, b, "an error");
    assert_eq!(desk.turn(b), "takes 1");
    // The server calls the next waiter for a fair lock.
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.turns([a, b]);
    desk.refuse(b, 90_000);
    desk.queue.answer(&clock, a, "an error");
    assert_eq!(desk.called([b]), [false]);
}

#[test]
fn an_outage_ends_the_waits_of_all_that_have_waited_for_it() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.turns([a, b]);
    let unanswered = |desk: &mut Desk, place| {
        let clock = desk.clock();
        desk.queue.unanswered(&clock, place, ms(3000), &())
    };
    assert!(!unanswered(&mut desk, a));
    desk.pass(2000);
    let c = desk.join(LOCK);
    desk.pass(999);
    assert!(!unanswered(&mut desk, a));
    desk.pass(1);
    assert!(unanswered(&mut desk, a));
    assert_eq!(desk.turn(b), "OutOfReach");
    // The next one, which came later, sends a request after the one that gives up.
    assert_eq!(desk.called([c]), [false]);
    desk.queue.answer(&desk.clock(), a, "an error");
    assert_eq!(desk.turn(c), "Turn");
    // A request that is under way ends its wait itself.
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    assert!(!unanswered(&mut desk, a));
    desk.pass(3000);
    assert!(unanswered(&mut desk, a));
    assert_eq!(desk.turn(b), "none");
}

#[test]
fn a_grant_ends_an_outage() {
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    let clock = desk.clock();
    assert!(!desk.queue.unanswered(&clock, b, ms(3000), &()));
    desk.pass(2999);
    // With the time of the next grant, and without.
    desk.grant(a, PERMIT, Some(5000));
    desk.pass(1);
    let clock = desk.clock();
    assert!(!desk.queue.unanswered(&clock, b, ms(3000), &()));
}

#[test]
fn the_next_waiter_polls_at_the_time_of_a_dated_grant() {
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    desk.refuse(b, 90_000);
    desk.grant(a, PERMIT, Some(4000));
    assert_eq!(desk.called([b]), [false]);
    assert_eq!(desk.queue.next_poll(), Some(at(4000)));
    // Without a date more permits may be free.
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    desk.refuse(b, 90_000);
    desk.grant(a, PERMIT, None);
    assert_eq!(desk.called([b]), [true]);
}

/// Invariant 3: the waiter that leaves may have planned the poll for all.
#[test]
fn a_poll_is_planned_when_a_waiter_leaves_others_without_one() {
    let leave_or_grant: [fn(&mut Desk, u64, Wish); 2] = [
        |desk, place, _| leave(desk, place),
        |desk, place, want| {
            desk.grant(place, want, None);
        },
    ];
    for (want, planned) in [(PERMIT, Some(at(6000))), (LOCK, None)] {
        for end in leave_or_grant {
            let (mut desk, [a, _]) = Desk::of([want; 2]);
            desk.turn(a);
            end(&mut desk, a, want);
            assert_eq!(desk.queue.next_poll(), planned, "{want:?}");
        }
        let (mut desk, [a]) = Desk::of([want]);
        desk.turn(a);
        leave(&mut desk, a);
        assert_eq!(desk.queue.next_poll(), None);
    }
    // One that is planned stays.
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    desk.refuse(b, 700);
    let planned = desk.queue.next_poll();
    assert!(planned < Some(at(2000)));
    leave(&mut desk, a);
    assert_eq!(desk.queue.next_poll(), planned);
}

#[test]
fn a_waiter_of_a_fair_lock_lets_another_one_check_the_queue_after_a_grant_in_a_reply() {
    for (want, expected) in [(FAIR, [true]), (LOCK, [false])] {
        let (mut desk, [a, b]) = Desk::of([want; 2]);
        desk.turns([a, b]);
        desk.refuse(a, 90_000);
        if !want.in_line {
            desk.refuse(b, 90_000);
        }
        message(&mut desk, None, Heard::Free);
        desk.turn(a);
        desk.grant(a, want, None);
        assert_eq!(desk.called([b]), expected);
    }
}

#[test]
fn the_next_waiter_sends_a_request_in_the_place_of_one_that_leaves() {
    for is_refused in [false, true] {
        let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
        if is_refused {
            desk.refuse(a, 90_000);
        }
        leave(&mut desk, a);
        assert_eq!(desk.called([b]), [true]);
    }
    // One that is parked behind others delayed none.
    let (mut desk, [a, b, c]) = Desk::of([LOCK; 3]);
    desk.turn(a);
    desk.refuse(a, 90_000);
    leave(&mut desk, b);
    assert_eq!(desk.called([a, c]), [false, false]);
    // The end of a local hold calls the next one.
    let (mut desk, []) = Desk::of([]);
    let hold = desk.hold(LOCK, 9, 500);
    desk.acquired_elsewhere(&hold);
    let (a, b) = (desk.join(LOCK), desk.join(LOCK));
    leave(&mut desk, a);
    assert_eq!(desk.called([b]), [false]);
    // The server calls the next waiter for a fair lock.
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.turns([a, b]);
    desk.refuse(b, 90_000);
    leave(&mut desk, a);
    assert_eq!(desk.called([b]), [false]);
}

/// The request of the next waiter is newer than each wake-up so far. Of permits, several may be free.
#[test]
fn a_wake_up_during_the_request_of_a_waiter_that_leaves_is_kept_for_permits_only() {
    for (want, kept) in [(LOCK, false), (PERMIT, true)] {
        let (mut desk, [a, b]) = Desk::of([want; 2]);
        if desk.turns([a, b]) == ["Turn", "Turn"] {
            desk.refuse(b, 90_000);
        }
        message(&mut desk, None, Heard::Free);
        leave(&mut desk, a);
        // A wake-up that is kept is the reason of the next request.
        assert_eq!(desk.turn(b), "Turn");
        desk.refuse(b, 90_000);
        assert_eq!(desk.called([b]), [kept], "{want:?}");
    }
}

#[test]
fn a_poll_calls_the_first_waiter() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.turn(a);
    desk.refuse(a, 700);
    let due = desk.queue.next_poll().unwrap();
    desk.pass(due.since(at(1000)).as_millis().try_into().unwrap());
    let clock = desk.clock();
    desk.queue.timer(&clock);
    assert_eq!(desk.turns([a, b]), ["Turn", "none"]);
    assert_eq!(desk.queue.next_poll(), None);
}

/// Each waiter of a fair lock has its own deadline on the server, which its requests set again.
#[test]
fn all_waiters_for_a_fair_lock_send_their_requests_again_every_150_s() {
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.pass(10_000);
    let c = desk.join(FAIR);
    let places = [a, b, c];
    let refuse_all = |desk: &mut Desk| {
        desk.turns(places);
        for place in places {
            desk.refuse(place, 900_000);
        }
    };
    let poll = |desk: &mut Desk| {
        let clock = desk.clock();
        desk.queue.timer(&clock);
        desk.called(places)
    };
    refuse_all(&mut desk);
    desk.pass(139_999);
    assert_eq!(poll(&mut desk), [true, false, false]);
    refuse_all(&mut desk);
    desk.pass(1);
    assert_eq!(poll(&mut desk), [true; 3]);
    // And 150 s after that.
    refuse_all(&mut desk);
    desk.pass(149_999);
    assert_eq!(poll(&mut desk), [true, false, false]);
    assert_eq!(
        desk.queue.next_poll(),
        Some(desk.after(5000)),
        "the replies to several waiters plan one poll"
    );
}

#[test]
fn a_waiter_wakes_the_task_that_polled_it_last() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.turns([a, b]);
    let clock = desk.clock();
    assert!(desk.queue.poll(&clock, b, 77).is_pending());
    desk.forget();
    let hold = desk.hold(LOCK, 9, 300);
    desk.refuse(a, 90_000);
    leave(&mut desk, a);
    desk.refuse(b, 90_000);
    desk.forget();
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(b));
    desk.queue.hand_over(&clock, b, hold, 1);
    assert_eq!(desk.woken(), [77]);
}

#[test]
fn a_hand_off_excludes_requests_until_it_has_ended() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    let clock = desk.clock();
    desk.refuse(a, 90_000);
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
    assert_eq!(desk.called([a, b]), [false, false]);
    let c = desk.join(LOCK);
    message(&mut desk, None, Heard::Free);
    assert_eq!(desk.called([a, b, c]), [false; 3]);
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), None);
    assert!(!desk.queue.is_idle());
    // It failed: the wake-up of that time is for the first waiter.
    desk.queue.end_hand_off(&clock, a, None);
    let hold = desk.hold(LOCK, 9, 90_000);
    desk.queue.freed(&clock, &hold, End::Unknown);
    assert_eq!(desk.called([a, b, c]), [true, false, false]);
}

#[test]
fn a_request_in_flight_excludes_a_hand_off() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.turn(a);
    let clock = desk.clock();
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), None);
    // A permit goes to the first parked waiter.
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    desk.refuse(b, 90_000);
    let clock = desk.clock();
    assert_eq!(desk.queue.reserve(&clock, &PERMIT, false), Some(b));
    assert_eq!(desk.queue.hand_offs(), (1, false));
    assert_eq!(desk.queue.reserve(&clock, &PERMIT, false), None);
}

#[test]
fn a_waiter_that_did_not_take_its_hold_in_time_starts_again() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.refuse(a, 90_000);
    let (clock, mut hold) = (desk.clock(), desk.hold(LOCK, 9, 300));
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
    desk.queue.hand_over(&clock, a, hold.clone(), 1);
    desk.pass(300);
    hold.unclaimed = true;
    let clock = desk.clock();
    desk.queue.freed(&clock, &hold, End::Unknown);
    assert_eq!(desk.turn(a), "Missed");
    assert_eq!(desk.called([b]), [true]);
}

#[test]
fn holds_that_were_not_taken_are_found_at_a_shutdown() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.refuse(a, 90_000);
    let (clock, hold) = (desk.clock(), desk.hold(LOCK, 9, 300));
    desk.queue.reserve(&clock, &LOCK, false);
    desk.queue.hand_over(&clock, a, hold, 1);
    let owners: Vec<_> = desk.queue.take_unclaimed();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0].owner, "9");
    assert_eq!(desk.turns([a, b]), ["Missed", "none"]);
    assert!(desk.queue.take_unclaimed().is_empty());
    // One that a message gave to a waiter with a request in flight.
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.hear_grant(0, "-");
    assert_eq!(desk.queue.take_unclaimed().len(), 1);
    desk.refuse(a, 90_000);
    // The end of the hold calls it.
    assert_eq!(desk.turn(a), "none");
}

#[test]
fn a_queue_that_is_reset_counts_its_places_on() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    leave(&mut desk, a);
    desk.queue.rest();
    assert!(desk.queue.is_idle());
    desk.queue.reset();
    assert_eq!(desk.join(LOCK), 1);
    // Nothing else is kept, such as the number of refusals in a row.
    let (mut other, [a]) = Desk::of([LOCK]);
    other.polls = true;
    for _ in 0..3 {
        other.turn(a);
        other.refuse(a, 90_000);
        other.poll();
    }
    leave(&mut other, a);
    other.queue.reset();
    let b = other.join(LOCK);
    other.turn(b);
    other.refuse(b, 90_000);
    assert_eq!(other.poll_in(), Some(1));
    let hold = desk.hold(LOCK, 9, 300);
    desk.acquired_elsewhere(&hold);
    leave(&mut desk, 1);
    assert!(!desk.queue.is_idle(), "a hand-off returns to it");
}
