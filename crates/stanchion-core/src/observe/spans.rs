//! The spans of operations, and the fields that are recorded at their end.
//!
//! A span without a subscriber costs no clock reading: its fields are recorded only if it is enabled.

use std::time::Duration;

use tracing::Span;

use crate::error::{ReleaseError, RenewError};
use crate::hold::state::HoldState;
use crate::token::FencingToken;

/// The span of one operation on one synchronizer. The fields of its end are declared here and recorded later.
macro_rules! span {
    ($operation:literal, $sync:expr) => {
        tracing::debug_span!(
            $operation,
            kind = $sync.kind().name(),
            name = %$sync.name(),
            outcome = tracing::field::Empty,
            token = tracing::field::Empty,
            waited_ms = tracing::field::Empty,
            held_ms = tracing::field::Empty,
            booked_ms = tracing::field::Empty,
        )
    };
}
pub(crate) use span;

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// Records the end of an acquire.
pub(crate) fn waited(span: &Span, outcome: &str, token: Option<FencingToken>, time: Duration) {
    if span.is_disabled() {
        return;
    }
    span.record("outcome", outcome);
    span.record("waited_ms", millis(time));
    if let Some(token) = token {
        span.record("token", token.get());
    }
}

/// Records the end of a release or a downgrade of `hold`.
pub(crate) fn released<T>(span: &Span, hold: &HoldState, result: &Result<T, ReleaseError>) {
    let outcome = match result {
        Ok(_) => "released",
        Err(ReleaseError::Lost(_)) => "lost",
        Err(ReleaseError::Ambiguous { .. }) => "ambiguous",
        Err(ReleaseError::Rejected { .. }) => "rejected",
    };
    of_hold(span, hold, outcome);
}

/// Records the end of a renewal or a re-entry of `hold`.
pub(crate) fn renewed<T>(span: &Span, hold: &HoldState, result: &Result<T, RenewError>) {
    let outcome = match result {
        Ok(_) => "renewed",
        Err(RenewError::Lost(_)) => "lost",
        Err(RenewError::Unavailable { .. }) => "unavailable",
        Err(RenewError::Rejected { .. }) => "rejected",
    };
    of_hold(span, hold, outcome);
}

fn of_hold(span: &Span, hold: &HoldState, outcome: &str) {
    if span.is_disabled() {
        return;
    }
    span.record("outcome", outcome);
    span.record("held_ms", millis(hold.age()));
    if let Some(token) = hold.token() {
        span.record("token", token.get());
    }
}
