//! The offset between a server's clock and the client's.
//!
//! The supervisors of a node's links read the server's clock with `TIME`, at every connect and whenever a link is idle. Calls
//! use the last reading to turn a moment of the client's clock into server time, which scripts compare with the server's
//! own clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// A server's clock, by its last reading. Shared by all links of a node.
///
/// Offset and round trip are read and replaced together, under one lock: those of two different readings do not match.
#[derive(Debug, Default)]
pub struct ServerClock(Mutex<Reading>);

/// One reading of the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    /// The server's time minus the client's time from *before* `TIME` was sent, in µs: never less than the true offset.
    offset: i64,
    /// The time until the reply, in µs: the offset is too high by at most this.
    round_trip: u64,
}

/// A moment of the client's clock, in server time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The server time in µs. The server's clock does not pass it before the client's clock reads the moment.
    pub server_micros: u64,
    /// The longest it may take after that moment until the server's clock has passed it.
    pub within: Duration,
}

impl ServerClock {
    fn reading(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes in a reading of the server's clock, and when it was asked for and answered by ours.
    pub fn observe(&self, server_micros: u64, asked_at_micros: u64, answered_at_micros: u64) {
        // The server reads its clock at some moment of the round trip. Counted from the moment before the question, the
        // offset is too high if anything: a request is then told to end late, never so early that the server refuses it
        // as late.
        let reading = Reading {
            offset: server_micros
                .cast_signed()
                // Wraps, so that no answer of a server makes this panic.
                .wrapping_sub(asked_at_micros.cast_signed()),
            round_trip: answered_at_micros.saturating_sub(asked_at_micros),
        };
        // The latest reading counts, not the one with the shortest round trip: the server's clock may have been stepped
        // since, and only a new reading shows it.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }

    /// Copies the reading of `other`, as a guess for a clock that has not been read.
    pub(crate) fn assume(&self, other: &Self) {
        // Wrong by as much as the two servers' clocks differ. If it is too low, a request is refused as late, and the clock
        // is read then (`Link::synchronise`).
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = other.reading();
    }

    /// Returns whether it has been read, or assumed.
    pub(crate) fn is_known(&self) -> bool {
        // A reading equal to the default would need a server whose time of day is this machine's time since boot.
        self.reading() != Reading::default()
    }

    /// Returns the time on the client's clock when the server's clock read `server_micros`, or a little earlier.
    pub fn back(&self, server_micros: u64) -> u64 {
        // The offset is never less than the true one, so the result is never later than the true moment.
        server_micros.saturating_add_signed(self.reading().offset.saturating_neg())
    }

    /// Returns the server time when the client's clock reads `client_micros`; not less than the true one.
    pub(crate) fn at(&self, client_micros: u64) -> u64 {
        self.reach(client_micros).server_micros
    }

    /// Returns the server time as `at`, with the bound on its error.
    pub fn reach(&self, client_micros: u64) -> Reached {
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
