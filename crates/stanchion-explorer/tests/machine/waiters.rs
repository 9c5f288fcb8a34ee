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
        desk.refuse(b, want, 9000);
        let c = desk.join(want);
        assert_eq!(desk.called([b, c]), [false, false]);
    }
}

#[test]
fn a_reader_behind_a_writer_waits() {
    let (desk, places) = Desk::of([LOCK, READER]);
    assert_eq!(desk.called(places), [true, false]);
}

#[test]
fn a_new_waiter_sends_no_request_while_this_process_holds() {
    for (want, asks) in [(LOCK, false), (FAIR, true)] {
        let (mut desk, []) = Desk::of([]);
        let hold = desk.hold(want, 9, 500);
        desk.queue.acquired_without_place(&hold);
        let a = desk.join(want);
        assert_eq!(desk.called([a]), [asks], "{want:?}");
    }
    // The lease has ended, though the end is not recorded.
    let (mut desk, []) = Desk::of([]);
    let hold = desk.hold(LOCK, 9, 500);
    desk.queue.acquired_without_place(&hold);
    desk.pass(500);
    let a = desk.join(LOCK);
    assert_eq!(desk.called([a]), [true]);
    // A permit may leave others free.
    let (mut desk, []) = Desk::of([]);
    let hold = desk.hold(PERMIT, 9, 500);
    desk.queue.acquired_without_place(&hold);
    let a = desk.join(PERMIT);
    assert_eq!(desk.called([a]), [true]);
}

#[test]
fn a_waiter_for_a_fact_sends_no_request_at_first() {
    let fact = Wish {
        is_fact: true,
        ..EVENT
    };
    let (desk, places) = Desk::of([fact, EVENT]);
    assert_eq!(desk.called(places), [false, false]);
    let (desk, places) = Desk::of([EVENT; 2]);
    assert_eq!(desk.called(places), [true, true]);
}

/// P8: an answer is as old as its request.
#[test]
fn an_event_has_occurred_for_those_that_joined_before_the_request() {
    let (mut desk, [a, b]) = Desk::of([EVENT; 2]);
    assert_eq!(desk.turns([a, b]), ["Turn", "Turn"]);
    desk.refuse(b, EVENT, 9000);
    let c = desk.join(EVENT);
    assert_eq!(desk.called([c]), [false]);
    desk.grant(a, EVENT, None);
    assert_eq!(desk.turns([b, c]), ["Seen", "Turn"]);
}

#[test]
fn the_next_waiter_sends_a_request_if_a_given_hold_has_ended_before_it_is_taken() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    assert_eq!(desk.turn(a), "Turn");
    desk.refuse(a, LOCK, 9000);
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
    desk.refuse(a, permit, 9000);
    desk.refuse(b, permit, 9000);
    let (clock, hold) = (desk.clock(), desk.hold(permit, a, 9000));
    assert_eq!(desk.queue.reserve(&clock, &permit, false), Some(a));
    desk.queue.hand_over(&clock, a, hold, 1);
    assert_eq!(desk.turn(a), "takes 0");
    // `b` is parked, so a new waiter does not overtake it.
    let c = desk.join(permit);
    assert_eq!(desk.called([b, c]), [false, false]);
}

#[test]
fn a_waiter_whose_attempt_decided_nothing_sends_another_request() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    for _ in 0..2 {
        assert_eq!(desk.turn(a), "Turn");
        desk.queue.undecided(a);
    }
    assert_eq!(desk.turn(a), "Turn");
    desk.refuse(a, LOCK, 9000);
    // No request is counted any more.
    let clock = desk.clock();
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
}

#[test]
fn an_outage_ends_the_waits_of_all_that_have_waited_for_it() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.turns([a, b]);
    let unanswered = |desk: &mut Desk, place| {
        let clock = desk.clock();
        let is_over = desk.queue.unanswered(&clock, place, ms(3000), &());
        desk.queue.undecided(place);
        assert!(is_over || desk.turn(place) == "Turn");
        is_over
    };
    assert!(!unanswered(&mut desk, a));
    desk.pass(2000);
    let c = desk.join(LOCK);
    desk.pass(999);
    assert!(!unanswered(&mut desk, a));
    desk.pass(1);
    assert!(unanswered(&mut desk, a));
    assert_eq!(desk.turn(b), "OutOfReach(())");
    // The next one, which came later, has the turn of the one that gave up.
    assert_eq!(desk.called([c]), [false]);
    leave(&mut desk, a);
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
    desk.refuse(b, PERMIT, 90_000);
    desk.grant(a, PERMIT, Some(4000));
    assert_eq!(desk.called([b]), [false]);
    assert_eq!(desk.queue.next_poll(), Some(at(4000)));
    // Without a date more permits may be free.
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    desk.refuse(b, PERMIT, 90_000);
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
    desk.refuse(b, PERMIT, 700);
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
        if want.in_line {
            desk.refuse(a, want, 90_000);
            message(&mut desk, None, Heard::Free);
            desk.turn(a);
        } else {
            desk.refuse(b, want, 90_000);
        }
        desk.grant(a, want, None);
        assert_eq!(desk.called([b]), expected);
    }
}

#[test]
fn the_turn_of_a_waiter_that_leaves_goes_to_the_next() {
    // It has a turn, sends a request, or is parked as the first.
    let before: [fn(&mut Desk, u64); 3] = [
        |_, _| (),
        |desk, place| {
            desk.turn(place);
        },
        |desk, place| {
            desk.turn(place);
            desk.refuse(place, LOCK, 90_000);
        },
    ];
    for prepare in before {
        let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
        prepare(&mut desk, a);
        leave(&mut desk, a);
        assert_eq!(desk.called([b]), [true]);
    }
    // One that is parked behind others delayed none.
    let (mut desk, [a, b, c]) = Desk::of([LOCK; 3]);
    desk.turn(a);
    desk.refuse(a, LOCK, 90_000);
    leave(&mut desk, b);
    assert_eq!(desk.called([a, c]), [false, false]);
    // The end of a local hold calls the next one.
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    let hold = desk.hold(LOCK, 9, 500);
    desk.queue.acquired_without_place(&hold);
    leave(&mut desk, a);
    assert_eq!(desk.called([b]), [false]);
    // The server calls the next waiter for a fair lock.
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.turns([a, b]);
    desk.refuse(b, FAIR, 90_000);
    leave(&mut desk, a);
    assert_eq!(desk.called([b]), [false]);
}

/// The request of the next waiter is newer than each wake-up so far. Of permits, several may be free.
#[test]
fn a_wake_up_during_the_request_of_a_waiter_that_leaves_is_kept_for_permits_only() {
    for (want, kept) in [(LOCK, false), (PERMIT, true)] {
        let (mut desk, [a, b]) = Desk::of([want; 2]);
        if desk.turns([a, b]) == ["Turn", "Turn"] {
            desk.refuse(b, want, 90_000);
        }
        message(&mut desk, None, Heard::Free);
        leave(&mut desk, a);
        assert_eq!(desk.turn(b), "Turn");
        desk.refuse(b, want, 90_000);
        assert_eq!(desk.called([b]), [kept], "{want:?}");
    }
}

#[test]
fn a_poll_calls_the_first_waiter() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.turn(a);
    desk.refuse(a, LOCK, 700);
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
            desk.refuse(place, FAIR, 900_000);
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
        "the waiter may never take its reply"
    );
}

#[test]
fn a_waiter_wakes_the_task_that_polled_it_last() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.turns([a, b]);
    let clock = desk.clock();
    assert!(desk.queue.take_turn(&clock, b, 77).is_pending());
    assert_eq!(desk.effects().replaced, Some(b));
    desk.refuse(a, LOCK, 90_000);
    leave(&mut desk, a);
    assert_eq!(desk.woken(), [77]);
}

#[test]
fn a_hand_off_excludes_requests_until_it_has_ended() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    let clock = desk.clock();
    // The turn that `a` has not taken is taken back.
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
    desk.refuse(b, PERMIT, 90_000);
    let clock = desk.clock();
    assert_eq!(desk.queue.reserve(&clock, &PERMIT, false), Some(b));
    assert_eq!(desk.queue.hand_offs(), (1, false));
    assert_eq!(desk.queue.reserve(&clock, &PERMIT, false), None);
}

#[test]
fn a_waiter_that_did_not_take_its_hold_in_time_starts_again() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
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
    let (clock, hold) = (desk.clock(), desk.hold(LOCK, 9, 300));
    desk.queue.reserve(&clock, &LOCK, false);
    desk.queue.hand_over(&clock, a, hold, 1);
    let owners: Vec<_> = desk.queue.take_unclaimed();
    assert_eq!(owners.len(), 1);
    assert_eq!(owners[0].owner, "9");
    assert_eq!(desk.turns([a, b]), ["none", "none"]);
    assert!(desk.queue.take_unclaimed().is_empty());
}

/// The waiter is parked again.
#[test]
fn a_waiter_whose_hold_was_taken_at_a_shutdown_is_not_overtaken() {
    let permit = Wish {
        in_line: false,
        ..PERMIT
    };
    let (mut desk, [a, b]) = Desk::of([permit; 2]);
    desk.turns([a, b]);
    desk.refuse(a, permit, 90_000);
    desk.refuse(b, permit, 90_000);
    let (clock, hold) = (desk.clock(), desk.hold(permit, 9, 300));
    assert_eq!(desk.queue.reserve(&clock, &permit, false), Some(a));
    desk.queue.hand_over(&clock, a, hold, 1);
    assert_eq!(desk.queue.take_unclaimed().len(), 1);
    leave(&mut desk, b);
    let c = desk.join(permit);
    assert_eq!(desk.called([a, c]), [false, false]);
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
        other.refuse(a, LOCK, 90_000);
        other.poll();
    }
    leave(&mut other, a);
    other.queue.reset();
    let b = other.join(LOCK);
    other.turn(b);
    other.refuse(b, LOCK, 90_000);
    assert_eq!(other.poll_in(), Some(1));
    let hold = desk.hold(LOCK, 9, 300);
    desk.queue.acquired_without_place(&hold);
    leave(&mut desk, 1);
    assert!(!desk.queue.is_idle(), "a hand-off returns to it");
}
