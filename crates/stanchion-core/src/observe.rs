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

use crate::description::Kind;
use crate::error::{AcquireError, LostReason};

/// The span of one operation on one synchronizer.
macro_rules! span {
    ($operation:literal, $sync:expr) => {
        tracing::debug_span!($operation, kind = $sync.kind().name(), name = %$sync.name())
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
    use super::{Duration, Kind, LostReason};
    use metrics::{counter, histogram};

    pub(crate) fn waited(kind: Kind, outcome: &'static str, time: Duration) {
        histogram!("stanchion_wait_seconds", "kind" => kind.name(), "outcome" => outcome)
            .record(time);
    }

    pub(crate) fn held(kind: Kind, time: Duration) {
        histogram!("stanchion_hold_seconds", "kind" => kind.name()).record(time);
    }

    pub(crate) fn renewed(time: Duration) {
        histogram!("stanchion_renewal_seconds").record(time);
    }

    pub(crate) fn handed(kind: Kind) {
        counter!("stanchion_handed_total", "kind" => kind.name()).increment(1);
    }

    pub(crate) fn released(kind: Kind) {
        counter!("stanchion_released_total", "kind" => kind.name()).increment(1);
    }

    pub(crate) fn lost(kind: Kind, reason: LostReason) {
        let reason = match reason {
            LostReason::Expired => "expired",
            LostReason::Gone => "gone",
            LostReason::MaxHold => "max_hold",
            LostReason::Shutdown => "shutdown",
        };
        counter!("stanchion_lost_total", "kind" => kind.name(), "reason" => reason).increment(1);
    }
}

#[cfg(not(feature = "metrics"))]
mod sink {
    use super::{Duration, Kind, LostReason};

    pub(crate) fn waited(_: Kind, _: &'static str, _: Duration) {}
    pub(crate) fn held(_: Kind, _: Duration) {}
    pub(crate) fn renewed(_: Duration) {}
    pub(crate) fn handed(_: Kind) {}
    pub(crate) fn released(_: Kind) {}
    pub(crate) fn lost(_: Kind, _: LostReason) {}
}

pub(crate) use sink::*;
