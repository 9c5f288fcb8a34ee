//! Metrics for operators, through the `metrics` facade. Without the feature these functions are empty.
//!
//! | metric | kind | meaning |
//! |---|---|---|
//! | `stanchion_wait_seconds` | histogram | from the call to the guard, labels `kind`, `outcome` (`acquired`, `busy`, `timed_out`, `failed`) |
//! | `stanchion_hold_seconds` | histogram | from the grant to the end of the hold |
//! | `stanchion_renewal_seconds` | histogram | one batch of renewals, from send to reply |
//! | `stanchion_handed_total` | counter | holds handed over inside the process |
//! | `stanchion_released_total` | counter | public releases |
//! | `stanchion_lost_total` | counter | holds lost, label `reason` |

use std::time::Duration;

use crate::error::{AcquireError, LostReason};

/// The span of one operation on one synchronizer.
macro_rules! span {
    ($operation:literal, $sync:expr) => {
        tracing::debug_span!($operation, kind = $sync.kind(), name = %$sync.name())
    };
}
pub(crate) use span;

/// The outcome of an acquire, for its label.
pub(crate) fn outcome<T>(
    result: &Result<T, AcquireError>,
    granted: impl FnOnce(&T) -> bool,
) -> &'static str {
    match result {
        Ok(value) if granted(value) => "acquired",
        Ok(_) => "busy",
        Err(AcquireError::TimedOut { .. }) => "timed_out",
        Err(_) => "failed",
    }
}

#[cfg(feature = "metrics")]
mod sink {
    use super::{Duration, LostReason};
    use metrics::{counter, histogram};

    pub(crate) fn waited(kind: &'static str, outcome: &'static str, time: Duration) {
        histogram!("stanchion_wait_seconds", "kind" => kind, "outcome" => outcome).record(time);
    }

    pub(crate) fn held(kind: &'static str, time: Duration) {
        histogram!("stanchion_hold_seconds", "kind" => kind).record(time);
    }

    pub(crate) fn renewed(time: Duration) {
        histogram!("stanchion_renewal_seconds").record(time);
    }

    pub(crate) fn handed(kind: &'static str) {
        counter!("stanchion_handed_total", "kind" => kind).increment(1);
    }

    pub(crate) fn released(kind: &'static str) {
        counter!("stanchion_released_total", "kind" => kind).increment(1);
    }

    pub(crate) fn lost(kind: &'static str, reason: LostReason) {
        let reason = match reason {
            LostReason::Expired => "expired",
            LostReason::Gone => "gone",
            LostReason::MaxHold => "max_hold",
            LostReason::Shutdown => "shutdown",
        };
        counter!("stanchion_lost_total", "kind" => kind, "reason" => reason).increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod sink {
    use super::{Duration, LostReason};

    pub(crate) fn waited(_: &'static str, _: &'static str, _: Duration) {}
    pub(crate) fn held(_: &'static str, _: Duration) {}
    pub(crate) fn renewed(_: Duration) {}
    pub(crate) fn handed(_: &'static str) {}
    pub(crate) fn released(_: &'static str) {}
    pub(crate) fn lost(_: &'static str, _: LostReason) {}
}

pub(crate) use sink::*;
