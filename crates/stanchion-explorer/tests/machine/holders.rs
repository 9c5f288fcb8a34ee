//! Holds of this process: grants, the ends of holds, and hand-offs.

use std::time::Duration;

use stanchion_client::local_queue::End;
use stanchion_client::primitive::Heard;

use crate::desk::{Desk, FAIR, LOCK, PERMIT, READER, Right, Wish, placed};
use crate::{leave, standing};

/// The hold of `owner` ends.
fn free(desk: &mut Desk, want: Wish, owner: u64, end: End) {
    let (clock, hold) = (desk.clock(), desk.hold(want, owner, 90_000));
    desk.queue.freed(&clock, &hold, end);
}

#[test]
fn readers_behind_a_granted_reader_send_requests_up_to_the_next_writer() {
    let (mut desk, [a, b, c, d]) = Desk::of([READER, READER, LOCK, READER]);
    desk.turns([a, b]);
    desk.refuse(b, 90_000);
    desk.turn(a);
    desk.grant(a, READER, None);
    assert_eq!(desk.called([b, c, d]), [true, false, false]);
    // The writer sends one request as the first, so that it has an entry.
    let (mut desk, [a, b, c]) = Desk::of([READER, LOCK, READER]);
    desk.turn(a);
    desk.grant(a, READER, None);
    assert_eq!(desk.turns([b, c]), ["Turn", "none"]);
    desk.stand(b, 90_000, false, false);
    let hold = desk.hold(READER, 9, 90_000);
    desk.acquired_elsewhere(&hold);
    assert_eq!(desk.called([b, c]), [false, false]);
}

/// Invariant 2: the reply may be older than the grant.
#[test]
fn a_reader_with_a_request_in_flight_sends_another_after_a_grant() {
    let (mut desk, [a, b]) = Desk::of([READER; 2]);
    desk.turns([a, b]);
    desk.grant(a, READER, None);
    desk.stand(b, 90_000, false, false);
    assert_eq!(desk.called([b]), [true]);
    // None is due without one.
    let (mut desk, [a]) = Desk::of([READER]);
    desk.turn(a);
    desk.grant(a, READER, None);
    let b = desk.join(READER);
    desk.turn(b);
    desk.stand(b, 90_000, false, false);
    assert_eq!(desk.called([b]), [false]);
}

#[test]
fn a_wake_up_during_a_request_that_is_granted_was_for_this_grant() {
    for want in [LOCK, FAIR] {
        let (mut desk, [a]) = Desk::of([want]);
        desk.turn(a);
        desk.hear(Heard::Free);
        let b = desk.join(want);
        if !want.in_line {
            // The wake-up of a fair lock is for another waiter, too.
            desk.turn(b);
            desk.refuse(b, 90_000);
            desk.hear(Heard::Free);
        }
        desk.grant(a, want, None);
        if !want.in_line {
            assert_eq!(desk.turn(b), "Told");
        } else {
            assert_eq!(desk.called([b]), [false]);
            free(&mut desk, want, a, End::Unknown);
            desk.turn(b);
            desk.stand(b, 90_000, false, false);
            assert_eq!(desk.called([b]), [false], "nothing is due any more");
        }
    }
    // The same for a grant by message, and for a hold that is handed over.
    for by_message in [true, false] {
        let (mut desk, [a, b]) = standing(LOCK);
        let clock = desk.clock();
        if by_message {
            desk.hear(Heard::Try("0", Duration::ZERO));
            desk.turn(a);
            desk.hear(Heard::Free);
            desk.hear_grant(0, "-");
            desk.refuse(a, 90_000);
        } else {
            assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
            desk.hear(Heard::Free);
            let hold = desk.hold(LOCK, 0, 90_000);
            desk.queue.hand_over(&clock, a, hold, 1);
        }
        assert_eq!(desk.turn(a), "takes 0");
        free(&mut desk, LOCK, 0, End::Unknown);
        assert_eq!(desk.turn(b), "Turn");
        desk.stand(b, 90_000, false, false);
        assert_eq!(desk.called([b]), [false], "{by_message}");
    }
}

/// Invariant 2: the server has removed the entry of the request with the wake-up. A try that takes the name next is not its answer.
#[test]
fn a_wake_up_during_a_request_is_kept_if_a_try_of_this_process_acquires() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.turn(a);
    desk.hear(Heard::Try("0", Duration::ZERO));
    let hold = desk.hold(LOCK, 9, 90_000);
    desk.acquired_elsewhere(&hold);
    desk.stand(a, 90_000, false, false);
    assert_eq!(desk.turn(a), "Told");
}

#[test]
fn a_grant_excludes_requests_by_its_hold() {
    for by_message in [true, false] {
        let (mut desk, [a]) = standing(LOCK);
        if by_message {
            desk.hear_grant(0, "-");
            desk.turn(a);
        } else {
            desk.hear(Heard::Free);
            desk.turn(a);
            desk.grant(a, LOCK, None);
        }
        let b = desk.join(LOCK);
        assert_eq!(desk.called([b]), [false]);
        let clock = desk.clock();
        assert_eq!(desk.queue.reserve(&clock, &LOCK, false), None);
    }
}

#[test]
fn a_grant_begins_the_pauses_of_a_client_that_polls_and_the_hand_offs_again() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.polls = true;
    for _ in 0..3 {
        desk.turn(a);
        desk.refuse(a, 90_000);
        desk.poll();
    }
    desk.refuse(a, 90_000);
    let (clock, hold) = (desk.clock(), desk.hold(LOCK, 9, 300));
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
    desk.queue.hand_over(&clock, a, hold, 4);
    desk.turn(a);
    assert_eq!(desk.queue.hand_offs().0, 4);
    desk.pass(300);
    let b = desk.join(LOCK);
    desk.turn(b);
    desk.grant(b, LOCK, None);
    assert_eq!(desk.queue.hand_offs().0, 0);
    free(&mut desk, LOCK, b, End::Unknown);
    let c = desk.join(LOCK);
    desk.turn(c);
    desk.refuse(c, 90_000);
    assert_eq!(desk.poll_in(), Some(1));
}

#[test]
fn a_permit_that_was_acquired_without_a_place_calls_the_next_waiter() {
    let (mut desk, [a]) = Desk::of([PERMIT]);
    desk.turn(a);
    desk.refuse(a, 90_000);
    let hold = desk.hold(PERMIT, 9, 300);
    desk.acquired_elsewhere(&hold);
    assert_eq!(desk.called([a]), [true]);
}

/// The message of the release wakes the waiters, or grants to the head of the queue, where this process has its entry.
#[test]
fn an_answered_release_calls_no_waiter_that_the_server_has_notified() {
    for want in [PERMIT, READER, LOCK] {
        for end in [End::Released, End::Unknown] {
            let (mut desk, [a]) = standing(want);
            free(&mut desk, want, 9, end);
            assert_eq!(desk.called([a]), [end == End::Unknown], "{want:?}");
        }
    }
    let [permit, reader] = [PERMIT, READER].map(|want| Wish {
        in_line: false,
        ..want
    });
    for want in [permit, reader] {
        for end in [End::Released, End::Unknown] {
            let (mut desk, [a]) = Desk::of([want]);
            desk.turn(a);
            desk.refuse(a, 90_000);
            free(&mut desk, want, 9, end);
            assert_eq!(desk.called([a]), [end == End::Unknown], "{want:?}");
        }
    }
}

#[test]
fn a_release_that_served_the_queue_of_the_server_plans_a_poll() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.turn(a);
    desk.stand(a, 90_000, true, false);
    assert_eq!(desk.poll_in(), Some(90_000));
    free(&mut desk, LOCK, 9, End::Released);
    assert_eq!(desk.poll_in(), Some(5000));
    // Without a waiter there is none.
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.turn(a);
    let b = desk.join(LOCK);
    leave(&mut desk, b);
    leave(&mut desk, a);
    desk.queue.rest();
    free(&mut desk, LOCK, 9, End::Released);
    assert_eq!(desk.poll_in(), None);
}

#[test]
fn a_hand_off_of_a_permit_counts_as_a_request_of_its_waiter() {
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    desk.refuse(a, 90_000);
    desk.turn(a);
    desk.refuse(b, 90_000);
    let clock = desk.clock();
    let reserved = desk.queue.reserve(&clock, &PERMIT, false).unwrap();
    let c = desk.join(PERMIT);
    assert_eq!(desk.called([c]), [false], "another one is parked");
    // A wake-up of that time is for others, and is followed when it has ended.
    desk.hear(Heard::Free);
    desk.queue.end_hand_off(&clock, reserved, None);
    assert_eq!(desk.turns([a, b]), ["Told", "none"]);
    // Without one, the waiter makes itself known.
    let (mut desk, [a]) = Desk::of([PERMIT]);
    desk.turn(a);
    desk.refuse(a, 90_000);
    let clock = desk.clock();
    assert_eq!(desk.queue.reserve(&clock, &PERMIT, false), Some(a));
    let b = desk.join(PERMIT);
    assert_eq!(desk.called([b]), [true], "no waiter is parked");
    desk.queue.end_hand_off(&clock, a, None);
    assert_eq!(desk.turn(a), "Turn");
}

#[test]
fn the_end_of_a_hold_ends_the_hand_offs_in_a_row() {
    for end in [End::Released, End::Unknown] {
        let (mut desk, [a, _]) = standing(LOCK);
        let (clock, hold) = (desk.clock(), desk.hold(LOCK, 9, 90_000));
        assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
        desk.queue.hand_over(&clock, a, hold, 5);
        assert_eq!(desk.turn(a), "takes 9");
        assert_eq!(desk.queue.hand_offs(), (5, true));
        free(&mut desk, LOCK, 9, end);
        // After a lost reply the next waiter uses the entry.
        assert_eq!(desk.queue.hand_offs(), (0, end == End::Released));
    }
}

#[test]
fn a_process_that_is_behind_another_one_after_a_hand_off_has_an_entry() {
    let right = || Right(LOCK, "5".into());
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.refuse(a, 90_000);
    let clock = desk.clock();
    desk.queue.reserve(&clock, &LOCK, false);
    desk.queue.passed_on(
        &clock,
        right(),
        Some(Duration::from_millis(700)),
        placed(false, false).unwrap(),
    );
    assert_eq!(
        (desk.called([a]), desk.stands(), desk.poll_in()),
        ([false], true, Some(703))
    );
    // All waiters have left.
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.refuse(a, 90_000);
    desk.queue.reserve(&clock, &LOCK, false);
    leave(&mut desk, a);
    desk.forget();
    desk.queue
        .passed_on(&clock, right(), None, placed(false, false).unwrap());
    assert_eq!(
        (desk.stands(), desk.given_up().unwrap()),
        (false, "5".into())
    );
    assert!(desk.queue.is_idle());
}

#[test]
fn a_waiter_removed_with_its_hold_leaves_a_poll_to_the_others() {
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    desk.refuse(a, 90_000);
    let clock = desk.clock();
    let mut hold = desk.hold(PERMIT, 9, 300);
    desk.queue.rest();
    desk.queue.reserve(&clock, &PERMIT, false);
    desk.queue.hand_over(&clock, a, hold.clone(), 1);
    hold.unclaimed = true;
    desk.queue.freed(&clock, &hold, End::Unknown);
    assert_eq!(desk.turn(a), "Missed");
    assert_eq!(desk.poll_in(), Some(5000));
}

/// The reply plans the next poll.
#[test]
fn a_poll_during_a_request_for_a_permit_calls_no_other_waiter() {
    let (mut desk, [a, b, c]) = Desk::of([PERMIT; 3]);
    desk.turns([a, b, c]);
    desk.refuse(b, 700);
    desk.refuse(c, 700);
    desk.poll();
    assert_eq!(desk.called([b, c]), [false; 2]);
    desk.refuse(a, 900);
    assert_eq!(desk.poll_in(), Some(903));
}

#[test]
fn a_poll_during_the_request_for_a_lock_is_kept_if_a_message_has_planned_it() {
    // Planned by a message.
    let (mut desk, [a]) = standing(LOCK);
    desk.hear(Heard::Try("0", Duration::from_millis(50)));
    desk.hear(Heard::Free);
    desk.turn(a);
    desk.poll();
    desk.stand(a, 90_000, false, false);
    assert_eq!(desk.turn(a), "Told");
    // By a refusal.
    let (mut desk, [a]) = standing(LOCK);
    desk.hear(Heard::Free);
    desk.turn(a);
    desk.poll();
    desk.stand(a, 90_000, false, false);
    assert_eq!(desk.called([a]), [false]);
}

/// An entry expires without requests, and the release would then serve no waiter of this process.
#[test]
fn a_process_that_holds_keeps_its_entry_by_polls() {
    for polls in [false, true] {
        let (mut desk, [a]) = standing(LOCK);
        desk.polls = polls;
        let hold = desk.hold(LOCK, 9, 90_000);
        desk.acquired_elsewhere(&hold);
        desk.poll();
        assert_eq!(desk.turn(a), "Look");
        desk.stand(a, 90_000, false, polls);
        assert_eq!(desk.poll_in(), Some(if polls { 1 } else { 5000 }));
    }
    // Without an entry a request would only be refused.
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.turn(a);
    desk.refuse(a, 700);
    let hold = desk.hold(LOCK, 9, 90_000);
    desk.acquired_elsewhere(&hold);
    desk.poll();
    assert_eq!((desk.called([a]), desk.poll_in()), ([false], None));
}

/// P4: no message tells a client that polls of the grant that the release has made.
#[test]
fn a_client_that_polls_sends_a_request_after_its_release() {
    let (mut desk, [a]) = standing(LOCK);
    desk.polls = true;
    free(&mut desk, LOCK, 9, End::Released);
    assert_eq!(desk.turn(a), "Turn");
    // A request in flight may be older than the release.
    free(&mut desk, LOCK, 9, End::Released);
    desk.stand(a, 90_000, false, true);
    assert_eq!(desk.turn(a), "Turn");
}

#[test]
fn a_client_that_polls_does_so_while_requests_are_in_flight() {
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.polls = true;
    desk.turns([a, b]);
    desk.refuse(b, 700);
    desk.poll();
    assert_eq!((desk.turn(b), desk.poll_in()), ("Turn".into(), Some(250)));
}

#[test]
fn a_waiter_that_gives_up_in_an_outage_leaves_its_turn_to_a_later_one() {
    let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
    desk.turn(a);
    desk.pass(1000);
    let c = desk.join(LOCK);
    let clock = desk.clock();
    let tolerance = Duration::from_millis(1000);
    assert!(!desk.queue.unanswered(&clock, a, tolerance, &()));
    desk.pass(999);
    let c_later = desk.join(LOCK);
    desk.pass(1);
    let clock = desk.clock();
    assert!(desk.queue.unanswered(&clock, a, tolerance, &()));
    assert_eq!(desk.called([b, c, c_later]), [true, true, false]);
    desk.queue.answer(&clock, a, "an error");
    assert_eq!(desk.turn(b), "OutOfReach");
    assert_eq!(desk.turn(c), "OutOfReach");
    assert_eq!(desk.turn(c_later), "Turn");
}

#[test]
fn a_waiter_that_takes_its_hold_leaves_a_poll_to_the_others() {
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.turns([a, b]);
    desk.refuse(a, 90_000);
    let (clock, hold) = (desk.clock(), desk.hold(PERMIT, 9, 300));
    desk.queue.rest();
    desk.queue.reserve(&clock, &PERMIT, false);
    desk.queue.hand_over(&clock, a, hold, 1);
    assert_eq!(
        (desk.turn(a), desk.poll_in()),
        ("takes 9".into(), Some(5000))
    );
}

#[test]
fn the_end_of_a_hold_calls_the_next_waiter_unless_the_release_has() {
    // Without an entry on the server.
    for (end, called) in [(End::Released, true), (End::Unknown, true)] {
        let (mut desk, []) = Desk::of([]);
        let hold = desk.hold(LOCK, 9, 90_000);
        desk.acquired_elsewhere(&hold);
        let a = desk.join(LOCK);
        let clock = desk.clock();
        desk.queue.freed(&clock, &hold, end);
        assert_eq!(desk.called([a]), [called]);
    }
    // The server grants a fair lock. A lost reply may have contained a grant to a waiter here.
    for (end, called) in [(End::Released, false), (End::Unknown, true)] {
        let (mut desk, [a]) = Desk::of([FAIR]);
        desk.turn(a);
        desk.refuse(a, 90_000);
        let (clock, hold) = (desk.clock(), desk.hold(FAIR, 9, 90_000));
        desk.queue.freed(&clock, &hold, end);
        assert_eq!(desk.called([a]), [called]);
    }
    // A late end of an old hold does not free the queue of the new one.
    let (mut desk, []) = Desk::of([]);
    let (old, new) = (desk.hold(LOCK, 8, 90_000), desk.hold(LOCK, 9, 90_000));
    desk.acquired_elsewhere(&new);
    let a = desk.join(LOCK);
    let clock = desk.clock();
    desk.queue.freed(&clock, &old, End::Released);
    assert_eq!(desk.called([a]), [false]);
}

#[test]
fn a_hold_for_a_waiter_that_has_left_is_released() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.refuse(a, 90_000);
    let (clock, hold) = (desk.clock(), desk.hold(LOCK, 9, 90_000));
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
    leave(&mut desk, a);
    desk.queue.hand_over(&clock, a, hold, 3);
    assert_eq!(desk.untaken(), ["9"]);
    // Its release calls the next waiter, so a new one waits.
    let b = desk.join(LOCK);
    assert_eq!(desk.called([b]), [false]);
    assert_eq!(desk.queue.hand_offs(), (3, false));
}
