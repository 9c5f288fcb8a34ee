//! The server's clock, seen from ours.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// What the server's clock says, by the last time it was read.
///
/// One value behind a mutex: the offset of one reading with the uncertainty of another is true of neither.
#[derive(Debug, Default)]
pub(crate) struct ServerClock(Mutex<Reading>);

/// One look at the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    /// Server µs − client µs, measured from *before* the question was sent: never less than the truth.
    offset: i64,
    /// How long the answer took, µs: the offset is too high by at most this.
    round_trip: u64,
}

/// An instant of ours on the server's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    /// Server time in µs that the server's clock has not passed before ours reads that instant.
    pub(crate) server_micros: u64,
    /// It has passed it so long after, at the latest.
    pub(crate) within: Duration,
}

impl ServerClock {
    fn reading(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn observe(
        &self,
        server_micros: u64,
        asked_at_micros: u64,
        answered_at_micros: u64,
    ) {
        let reading = Reading {
            offset: server_micros
                .cast_signed()
                .wrapping_sub(asked_at_micros.cast_signed()),
            round_trip: answered_at_micros.saturating_sub(asked_at_micros),
        };
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }

    /// Takes what is known of `other` for what is known of this one.
    pub(super) fn assume(&self, other: &Self) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = other.reading();
    }

    /// Whether it has been read, or assumed.
    pub(super) fn is_known(&self) -> bool {
        self.reading() != Reading::default()
    }

    /// Our clock when the server's read `server_micros`, or a little earlier.
    pub(crate) fn back(&self, server_micros: u64) -> u64 {
        server_micros.saturating_add_signed(self.reading().offset.saturating_neg())
    }

    /// What the server's clock reads when ours reads `client_micros`.
    pub(crate) fn at(&self, client_micros: u64) -> u64 {
        self.reach(client_micros).server_micros
    }

    /// As [`ServerClock::at`], with how far that may be off.
    pub(crate) fn reach(&self, client_micros: u64) -> Reached {
        let reading = self.reading();
        Reached {
            server_micros: client_micros.wrapping_add_signed(reading.offset),
            within: Duration::from_micros(reading.round_trip),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instant_is_reached_within_the_round_trip_of_the_reading_it_was_told_by() {
        let clock = ServerClock::default();
        assert!(!clock.is_known());
        // Asked at 1000, answered 400 later; the server is 5000 ahead and read its clock when the question came, at 1300.
        clock.observe(6_300, 1_000, 1_400);
        assert!(clock.is_known());
        let reached = clock.reach(2_000);
        assert_eq!(reached.server_micros, 7_300, "never before the truth, 7000");
        // It reads 7300 when ours reads 2300.
        assert!(reached.within >= Duration::from_micros(300));
        // A better reading says nothing of what was told by the worse one.
        clock.observe(7_010, 2_000, 2_020);
        assert_eq!(clock.reach(2_000).within, Duration::from_micros(20));
        assert_eq!(reached.within, Duration::from_micros(400));
        assert_eq!(clock.back(clock.at(9_000)), 9_000);
    }
}
