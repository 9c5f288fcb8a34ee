//! Observation: the spans of operations, and the events that are counted.
//!
//! The core and the links report to one [`Observer`](stanchion_transport::Observer), which passes everything on to the observers of the client.
//! Without an observer nothing is counted or timed. `spans` has the spans of operations.

pub(crate) mod spans;

pub(crate) use self::spans::span;

use crate::error::{AcquireError, LostReason};

/// The outcome of an acquire, for the label of its metric.
pub(crate) fn outcome<T>(
    result: &Result<T, AcquireError>,
    granted: impl FnOnce(&T) -> bool,
) -> &'static str {
    match result {
        Ok(value) if granted(value) => "acquired",
        Ok(_) => "busy",
        Err(AcquireError::TimedOut { .. }) => "timed_out",
        Err(AcquireError::Deadlock { .. }) => "deadlock",
        Err(_) => "failed",
    }
}

/// The label of a loss.
pub(crate) fn reason(reason: LostReason) -> &'static str {
    match reason {
        LostReason::Expired => "expired",
        LostReason::Gone => "gone",
        LostReason::MaxHold => "max_hold",
        LostReason::Shutdown => "shutdown",
    }
}
