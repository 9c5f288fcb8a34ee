//! The offset between a server's clock and the client's.
//!
//! The supervisors of a node's links read the server's clock with `TIME`, at every connect and whenever a link is idle. Calls
//! use the last reading to turn a moment of the client's clock into server time, which scripts compare with the server's
//! own clock.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// The last reading of a server's clock. Shared by all links of a node.
///
/// Offset and round trip are read and replaced together, under one lock, because values of two readings do not match.
#[derive(Debug, Default)]
pub struct ServerClock(Mutex<Reading>);

/// One reading of the server's clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reading {
    /// The server's time minus the client's time from *before* `TIME` was sent, in µs: never less than the true offset.
    offset: i64,
    /// The time until the reply, in µs. The offset is too high by at most this much.
    round_trip: u64,
}

/// A moment of the client's clock, in server time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reached {
    /// The server time in µs. The server's clock does not pass it before the client's clock reads the moment.
    pub server_micros: u64,
    /// The longest time from the moment until the server's clock has passed `server_micros`.
    pub within: Duration,
}

impl ServerClock {
    fn reading(&self) -> Reading {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Stores a reading of the server's clock, with the client's times before the request and after the reply.
    pub fn observe(&self, server_micros: u64, asked_at_micros: u64, answered_at_micros: u64) {
        // The server reads its clock at some moment of the round trip. The offset is computed from the moment before the
        // request, so it can only be too high. A request then carries a late end, and never an end so early that the server
        // refuses the request as late.
        let reading = Reading {
            offset: server_micros
                .cast_signed()
                // Wraps, so that no reply of a server can cause a panic.
                .wrapping_sub(asked_at_micros.cast_signed()),
            round_trip: answered_at_micros.saturating_sub(asked_at_micros),
        };
        // The last reading counts, not the reading with the shortest round trip: the server's clock may have been stepped in
        // between, and only a new reading shows that.
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = reading;
    }

    /// Copies the reading of `other`, as a guess for a clock that has not been read.
    pub(crate) fn assume(&self, other: &Self) {
        // The guess is wrong by the difference of the two servers' clocks. If it is too low, a request is refused as late,
        // and the client then reads the clock (`Link::synchronise`).
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = other.reading();
    }

    /// Returns whether the clock has been read or assumed.
    pub(crate) fn is_known(&self) -> bool {
        // A reading equals the default only if the server's time of day is the time since boot of this machine.
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

    /// Returns the server time like `at`, with the bound on its error.
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
    fn an_instant_is_reached_within_the_round_trip_of_its_reading() {
        let clock = ServerClock::default();
        assert!(!clock.is_known());
        // Sent at 1000, answered 400 later. The server is 5000 ahead and read its clock when the request arrived, at 1300.
        clock.observe(6_300, 1_000, 1_400);
        assert!(clock.is_known());
        let reached = clock.reach(2_000);
        assert_eq!(reached.server_micros, 7_300, "never before the truth, 7000");
        // The server's clock reads 7300 when the client's reads 2300.
        assert!(reached.within >= Duration::from_micros(300));
        // A better reading does not change the bound that came from the worse one.
        clock.observe(7_010, 2_000, 2_020);
        assert_eq!(clock.reach(2_000).within, Duration::from_micros(20));
        assert_eq!(reached.within, Duration::from_micros(400));
        assert_eq!(clock.back(clock.at(9_000)), 9_000);
    }
}
