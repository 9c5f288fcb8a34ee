//! The entry of this process in the queue on the server: requests, refusals, messages, polls.

use std::time::Duration;

use stanchion_client::local_queue::Refused;
use stanchion_client::primitive::Heard;

use crate::desk::{Desk, FAIR, LOCK, PERMIT, READER, Right, placed, refused};
use crate::{leave, standing};

#[test]
fn the_entry_is_that_of_the_next_request_of_the_first_waiter() {
    let (mut desk, [a, b]) = standing(PERMIT);
    // A waiter behind the first has no right to it.
    let hold = desk.hold(PERMIT, 9, 300);
    assert_eq!(desk.request(b), Some(("1".into(), false)));
    assert!(desk.stands());
    desk.acquired_elsewhere(&hold);
    assert_eq!(desk.request(a), Some(("0".into(), true)));
    assert_eq!((desk.stands(), desk.given_up()), (false, None));
}

#[test]
fn an_entry_for_another_kind_of_waiter_is_given_up() {
    let (mut desk, [a]) = standing(READER);
    let b = desk.join(LOCK);
    leave(&mut desk, a);
    assert_eq!(desk.request(b), Some(("1".into(), true)));
    assert!(!desk.stands());
}

/// Also a waiter whose own owner has become the entry of this process.
#[test]
fn a_request_without_the_entry_has_a_fresh_owner() {
    let (mut desk, [a]) = standing(LOCK);
    desk.hear_grant(0, "another");
    assert_eq!(desk.request(a), Some(("0".into(), true)));
    let (mut desk, [a]) = standing(LOCK);
    let taken = desk.queue.take_entry();
    assert_eq!(taken.unwrap().1, "0");
    desk.hear(Heard::Free);
    assert_eq!(desk.request(a), Some(("fresh".into(), true)));
}

#[test]
fn a_new_entry_replaces_the_old_one_and_a_refusal_without_one_leaves_none() {
    let refusal = |has_entry| Refused {
        has_entry,
        placed: placed(false, false),
        ..refused(90_000)
    };
    let (mut desk, [a]) = standing(LOCK);
    desk.hear(Heard::Try("0", Duration::ZERO));
    desk.turn(a);
    desk.refuse_with(a, refusal(true));
    assert_eq!((desk.stands(), desk.given_up()), (true, None));
    desk.hear(Heard::Free);
    desk.turn(a);
    desk.refuse_with(a, refusal(false));
    assert_eq!((desk.stands(), desk.given_up()), (false, None));
    // That of a waiter that was the first before.
    let (mut desk, [a, b]) = Desk::of([PERMIT; 2]);
    desk.refuse_with(b, refusal(true));
    desk.refuse_with(a, refusal(true));
    assert_eq!(desk.given_up().unwrap(), "1");
}

#[test]
fn the_last_waiter_that_leaves_gives_the_entry_up() {
    let (mut desk, [a, b]) = standing(LOCK);
    leave(&mut desk, a);
    assert_eq!((desk.stands(), desk.called([b])), (true, [false]));
    let clock = desk.clock();
    let (own, entry) = desk.queue.leave(&clock, b);
    assert_eq!((own.unwrap().1, entry.unwrap().1), ("1".into(), "0".into()));
    assert!(desk.queue.is_empty());
    // Also if the queue ends with it.
    let (mut desk, [_]) = standing(LOCK);
    desk.queue.rest();
    assert_eq!(desk.given_up().unwrap(), "0");
    assert_eq!(desk.poll_in(), None);
}

#[test]
fn an_entry_from_another_queue_is_used_by_the_next_request_kept_or_given_up() {
    let (mut desk, []) = Desk::of([]);
    let a = desk.bring(LOCK, "other");
    assert_eq!(desk.request(a), Some(("other".into(), true)));
    assert_eq!((desk.stands(), desk.given_up()), (false, None));
    // Another waiter is the first.
    desk.bring(LOCK, "second");
    assert_eq!((desk.stands(), desk.given_up()), (false, None));
    // The queue has one already.
    desk.bring(LOCK, "third");
    assert_eq!(desk.given_up().unwrap(), "third");
    // The first waiter cannot use it.
    let (mut desk, [_]) = Desk::of([READER]);
    desk.bring(LOCK, "other");
    assert_eq!(desk.given_up().unwrap(), "other");
}

#[test]
fn the_next_poll_follows_the_reply() {
    // At the end of a lease, 1 ms and a jitter of 2 ms later; within 5 s; or at a random moment of the whole time.
    for (ttl, spread, expected) in [
        (700, false, 703),
        (90_000, false, 5000),
        (90_000, true, 90_000),
    ] {
        for asks in [false, true] {
            let (mut desk, [a]) = Desk::of([LOCK]);
            desk.turn(a);
            desk.stand(a, ttl, spread, asks);
            assert_eq!(desk.poll_in(), Some(expected), "{ttl} {spread}");
            desk.poll();
            assert_eq!(desk.turn(a), if asks { "Told" } else { "Look" });
        }
    }
    // A client without messages polls more and more rarely, from 1 ms on.
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.polls = true;
    for pause in [1, 2, 4, 8, 16, 32, 64, 128, 128] {
        desk.turn(a);
        desk.stand(a, 90_000, false, true);
        assert_eq!(desk.poll_in(), Some(pause));
        desk.poll();
    }
    // The name was free, and the server chose the pause.
    desk.turn(a);
    desk.stand(a, 50, false, false);
    assert_eq!(desk.poll_in(), Some(53));
    desk.poll();
    // A message begins the pauses again.
    for heard in [Heard::Try("0", Duration::ZERO), Heard::Free] {
        desk.turn(a);
        desk.stand(a, 90_000, false, true);
        assert_ne!(desk.poll_in(), Some(1));
        desk.hear(heard);
        desk.turn(a);
        desk.stand(a, 90_000, false, true);
        assert_eq!(desk.poll_in(), Some(1));
        desk.poll();
    }
}

#[test]
fn a_refusal_without_an_entry_plans_the_poll_by_the_lease() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.turn(a);
    desk.refuse(a, 90_000);
    assert_eq!(desk.poll_in(), Some(5000));
    // A later refusal replaces the plan of a lock. Of several requests, the earliest poll counts.
    for (want, expected) in [(LOCK, 5000), (PERMIT, 703)] {
        let (mut desk, [a]) = Desk::of([want]);
        desk.turn(a);
        desk.refuse(a, 700);
        desk.hear(Heard::Free);
        desk.turn(a);
        desk.refuse(a, 90_000);
        assert_eq!(desk.poll_in(), Some(expected), "{want:?}");
    }
}

#[test]
fn the_head_polls_after_its_message_and_the_notified_process_at_once() {
    // N: after the time and 1 ms, within 5 s.
    for (pause, expected) in [(300, 301), (90_000, 5000)] {
        let (mut desk, [a]) = standing(LOCK);
        desk.hear(Heard::Head("0", Duration::from_millis(pause)));
        assert_eq!(
            (desk.poll_in(), desk.called([a])),
            (Some(expected), [false])
        );
        desk.poll();
        assert_eq!(desk.turn(a), "Look");
    }
    // P with a time, which leaves the entry in the queue.
    let (mut desk, [a]) = standing(LOCK);
    desk.hear(Heard::Try("0", Duration::from_millis(50)));
    assert_eq!(
        (desk.poll_in(), desk.called([a]), desk.stands()),
        (Some(50), [false], true)
    );
    desk.poll();
    assert_eq!(desk.turn(a), "Told");
    // P at once: the server may have removed the entry.
    let (mut desk, [a]) = standing(LOCK);
    desk.hear(Heard::Try("0", Duration::ZERO));
    assert!(!desk.stands());
    assert_eq!(desk.turn(a), "Told");
    // About another entry.
    let (mut desk, [a]) = standing(LOCK);
    let planned = desk.poll_in();
    for heard in [
        Heard::Try("9", Duration::ZERO),
        Heard::Try("9", Duration::from_millis(50)),
        Heard::Head("9", Duration::from_millis(50)),
    ] {
        desk.hear(heard);
        assert_eq!(
            (desk.called([a]), desk.poll_in(), desk.stands()),
            ([false], planned, true)
        );
    }
}

#[test]
fn a_message_during_a_request_is_kept_until_its_reply() {
    // The later of two messages asks for no later request.
    for (pauses, turn, poll) in [
        (&[0][..], Some("Told"), None),
        (&[50], None, Some(50)),
        (&[50, 90], None, Some(50)),
    ] {
        let (mut desk, [a]) = Desk::of([LOCK]);
        desk.turn(a);
        for pause in pauses {
            desk.hear(Heard::Try("0", Duration::from_millis(*pause)));
        }
        assert_eq!(desk.poll_in(), None);
        desk.stand(a, 90_000, false, false);
        match turn {
            Some(turn) => assert_eq!(desk.turn(a), turn),
            None => assert_eq!((desk.called([a]), desk.poll_in()), ([false], poll)),
        }
    }
}

#[test]
fn a_release_of_redissons_wakes_the_first_waiter_or_the_one_that_it_names() {
    let (mut desk, [a, b]) = standing(LOCK);
    desk.hear(Heard::Free);
    assert_eq!(desk.turns([a, b]), ["Told", "none"]);
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.turns([a, b]);
    desk.refuse(a, 90_000);
    desk.refuse(b, 90_000);
    let clock = desk.clock();
    desk.queue
        .message(&clock, Some("1"), true, Heard::Free, |_| None);
    assert_eq!(desk.called([a, b]), [false, true]);
    // One that left is not found.
    leave(&mut desk, b);
    desk.queue
        .message(&clock, Some("1"), true, Heard::Free, |_| None);
    assert_eq!(desk.called([a]), [false]);
}

#[test]
fn a_grant_by_message_is_for_the_first_waiter_and_uses_the_entry_up() {
    let (mut desk, [a, b]) = standing(LOCK);
    desk.hear(Heard::Try("9", Duration::ZERO));
    desk.hear_grant(0, "-");
    assert_eq!(desk.turns([a, b]), ["takes 0", "none"]);
    assert_eq!((desk.stands(), desk.given_up()), (false, None));
    // It is held, so new waiters wait.
    let c = desk.join(LOCK);
    assert_eq!(desk.called([b, c]), [false, false]);
    // Readers and permits may be held together.
    for want in [READER, PERMIT] {
        let (mut desk, [a, b]) = standing(want);
        desk.turn(b);
        desk.refuse(b, 90_000);
        assert_eq!(desk.called([b]), [false]);
        desk.hear_grant(0, "-");
        assert_eq!(desk.turn(a), "takes 0");
        assert_eq!(desk.called([b]), [true], "{want:?}");
    }
}

#[test]
fn a_grant_by_message_ends_the_hand_offs_in_a_row() {
    let (mut desk, [a]) = standing(LOCK);
    let clock = desk.clock();
    let hold = desk.hold(LOCK, 9, 300);
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
    desk.join(LOCK);
    desk.queue.hand_over(&clock, a, hold, 5);
    assert_eq!(desk.turn(a), "takes 9");
    assert_eq!(desk.queue.hand_offs().0, 5);
    desk.hear_grant(0, "-");
    assert_eq!(desk.queue.hand_offs().0, 0);
}

#[test]
fn a_grant_that_no_waiter_takes_is_given_up() {
    let (mut desk, [a]) = standing(LOCK);
    desk.hear_grant(7, "-");
    assert_eq!(
        (desk.called([a]), desk.stands(), desk.given_up()),
        ([false], true, None)
    );
    // The waiter has a hold already.
    let clock = desk.clock();
    let hold = desk.hold(LOCK, 9, 90_000);
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
    desk.queue.hand_over(&clock, a, hold, 1);
    desk.hear_grant(0, "-");
    assert_eq!(desk.given_up().unwrap(), "0");
    assert_eq!(desk.turn(a), "takes 9");
}

/// P2: a user of another counter may have made the token.
#[test]
fn a_grant_with_the_token_of_another_counter_is_found_by_a_request() {
    let (mut desk, [a]) = standing(LOCK);
    desk.hear_grant(0, "another");
    assert!(!desk.stands());
    assert_eq!(desk.request(a), Some(("0".into(), true)));
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.turns([a, b]);
    desk.refuse(a, 90_000);
    desk.refuse(b, 90_000);
    desk.hear_grant(1, "another");
    assert_eq!(desk.called([a, b]), [false, true]);
}

#[test]
fn a_grant_during_a_hand_off_is_looked_at_after_it() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.refuse(a, 90_000);
    let clock = desk.clock();
    assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
    desk.hear_grant(5, "-");
    assert_eq!(desk.called([a]), [false]);
    desk.queue.passed_on(
        &clock,
        Right(LOCK, "5".into()),
        None,
        placed(false, false).unwrap(),
    );
    // What its own owner may have left is given up.
    assert_eq!(desk.request(a), Some(("5".into(), true)));
    assert_eq!(desk.given_up().unwrap(), "0");
}

#[test]
fn a_waiter_for_a_fair_lock_is_granted_by_its_own_owner_and_another_one_polls() {
    let (mut desk, [a, b, c]) = Desk::of([FAIR; 3]);
    desk.turns([a, b, c]);
    for place in [a, b, c] {
        desk.stand(place, 90_000, true, false);
        desk.forget();
    }
    desk.pass(10_000);
    desk.hear_grant(1, "-");
    assert_eq!(desk.turns([a, b, c]), ["none", "takes 1", "none"]);
    // The time of the reply, divided by the number of waiters.
    assert_eq!(desk.poll_in(), Some(45_000));
    desk.poll();
    assert_eq!(desk.turns([a, c]), ["Look", "none"]);
}

#[test]
fn the_reply_to_a_waiter_for_a_fair_lock_names_the_holder_or_reports_lost_places() {
    let refusal = |granted: Option<&str>, forgotten| Refused {
        granted: granted.map(str::to_owned),
        forgotten,
        ..refused(90_000)
    };
    for (granted, forgotten, called) in [
        (Some("2"), false, [false, false, true]),
        (Some("9"), false, [false; 3]),
        (None, true, [false, true, true]),
    ] {
        let (mut desk, [a, b, c]) = Desk::of([FAIR; 3]);
        desk.turns([a, b, c]);
        desk.refuse(b, 90_000);
        desk.refuse(c, 90_000);
        desk.refuse_with(a, refusal(granted, forgotten));
        assert_eq!(desk.called([a, b, c]), called, "{granted:?}");
    }
    // Only the first waiter counts for lost places.
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.turns([a, b]);
    desk.refuse(a, 90_000);
    desk.refuse_with(b, refusal(None, true));
    assert_eq!(desk.called([a, b]), [false, false]);
}

#[test]
fn a_refusal_ends_an_outage() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    let unanswered = |desk: &mut Desk| {
        let clock = desk.clock();
        desk.queue
            .unanswered(&clock, a, Duration::from_secs(3), &())
    };
    assert!(!unanswered(&mut desk));
    desk.pass(2000);
    desk.turn(a);
    desk.refuse(a, 1);
    desk.poll();
    desk.pass(1000);
    assert!(!unanswered(&mut desk));
}

#[test]
fn a_grant_by_message_ends_an_outage() {
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.turns([a, b]);
    let unanswered = |desk: &mut Desk| {
        let clock = desk.clock();
        desk.queue
            .unanswered(&clock, b, Duration::from_secs(3), &())
    };
    assert!(!unanswered(&mut desk));
    desk.pass(2999);
    desk.hear_grant(0, "-");
    desk.pass(1);
    assert!(!unanswered(&mut desk));
}

#[test]
fn a_message_about_a_waiter_for_a_fair_lock_is_for_that_waiter() {
    let (mut desk, [a, b]) = Desk::of([FAIR; 2]);
    desk.turns([a, b]);
    desk.refuse(a, 90_000);
    desk.refuse(b, 90_000);
    desk.hear(Heard::Head("1", Duration::from_millis(300)));
    assert_eq!(
        (desk.called([a, b]), desk.poll_in()),
        ([false; 2], Some(301))
    );
    desk.hear(Heard::Try("1", Duration::ZERO));
    assert_eq!(desk.called([a, b]), [false, true]);
}

#[test]
fn the_reply_to_a_waiter_for_a_fair_lock_does_not_delay_the_poll_of_another() {
    let (mut desk, [a, b, c]) = Desk::of([FAIR; 3]);
    desk.turns([a, b, c]);
    for (place, ttl, spread, expected) in [
        (a, 700, false, 703),
        (b, 900, true, 703),
        (c, 300, false, 303),
    ] {
        desk.stand(place, ttl, spread, false);
        assert_eq!(desk.poll_in(), Some(expected));
    }
}

/// The request has the owner of the entry, so a grant that crosses it finds the waiter.
#[test]
fn a_grant_that_crosses_a_request_is_for_the_requesting_waiter() {
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.turn(a);
    desk.refuse(a, 90_000);
    let b = desk.bring(LOCK, "77");
    desk.hear(Heard::Free);
    assert_eq!(desk.turn(a), "Told");
    desk.hear_grant(77, "-");
    assert_eq!(desk.turn(a), "none");
    desk.refuse(a, 90_000);
    assert_eq!(desk.turns([a, b]), ["takes 77", "none"]);
}
