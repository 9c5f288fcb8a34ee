//! The queue of a client on its own: one event after the other, in milliseconds.
//!
//! The explorer visits what follows from several events. These tests name the rules of a single one.

mod desk;
mod entry;
mod holders;
mod stale;
mod waiters;

use desk::{Desk, Wish};
use stanchion_client::primitive::Heard;

fn message(desk: &mut Desk, to: Option<&str>, heard: Heard<'_>) {
    let clock = desk.clock();
    desk.queue.message(&clock, to, true, heard, |_| None);
}

fn leave(desk: &mut Desk, place: u64) {
    let clock = desk.clock();
    let _ = desk.queue.leave(&clock, place);
}

/// A queue whose first waiter was refused, and has an entry.
fn standing<const N: usize>(want: Wish) -> (Desk, [u64; N]) {
    let (mut desk, places) = Desk::of([want; N]);
    assert_eq!(desk.turn(places[0]), "Turn");
    desk.stand(places[0], 90_000, false, false);
    desk.forget();
    (desk, places)
}
