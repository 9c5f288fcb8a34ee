//! Entries that the server may have removed with a message which the queue could not apply to them.

use std::time::Duration;

use stanchion_client::local_queue::End;
use stanchion_client::primitive::Heard;

use crate::desk::{Desk, LOCK, Right, placed};

/// P4: the message that removed the entry may have arrived while the entry was that of a request of another queue.
#[test]
fn an_entry_from_another_queue_does_not_replace_the_request_after_a_local_hold() {
    // The request in flight of another waiter is granted.
    let (mut desk, [a]) = Desk::of([LOCK]);
    desk.turn(a);
    desk.hear(Heard::Try("77", Duration::ZERO));
    let b = desk.bring(LOCK, "77");
    let clock = desk.clock();
    let hold = desk.grant(a, LOCK, None);
    desk.queue.freed(&clock, &hold, End::Released);
    assert_eq!(desk.turn(b), "Turn");
    // The request uses the entry, and its refusal proves that the server has it.
    desk.stand(b, 90_000, false, false);
    assert!(desk.stands());
    // A waiter of this process holds.
    let (mut desk, []) = Desk::of([]);
    let hold = desk.hold(LOCK, 9, 90_000);
    desk.acquired_elsewhere(&hold);
    desk.hear(Heard::Try("77", Duration::ZERO));
    let a = desk.bring(LOCK, "77");
    assert_eq!(desk.called([a]), [false]);
    desk.queue.freed(&clock, &hold, End::Released);
    assert_eq!(desk.turn(a), "Turn");
}

/// P4: the wake-up has removed the entry, and another waiter of this process gets the hold.
#[test]
fn an_entry_with_a_wake_up_during_its_request_does_not_replace_a_request() {
    for passed_on in [false, true] {
        let (mut desk, [a, b]) = Desk::of([LOCK; 2]);
        let clock = desk.clock();
        if passed_on {
            desk.refuse(a, 90_000);
            assert_eq!(desk.queue.reserve(&clock, &LOCK, false), Some(a));
            desk.hear(Heard::Try("0", Duration::ZERO));
            let placed = placed(false, false).unwrap();
            let debt = Right(LOCK, "0".into());
            desk.queue.passed_on(&clock, debt, None, placed);
        } else {
            desk.turn(a);
            desk.hear(Heard::Try("0", Duration::ZERO));
            desk.stand(a, 90_000, false, false);
        }
        assert_eq!(desk.turns([a, b]), ["Told", "none"]);
        let hold = desk.grant(a, LOCK, None);
        assert_eq!(desk.called([b]), [false]);
        desk.queue.freed(&clock, &hold, End::Released);
        assert_eq!(desk.turn(b), "Turn", "{passed_on}");
    }
}
