//! The spans of operations, and the fields that are recorded at their end.
//!
//! A span without a subscriber costs no clock reading: its fields are recorded only if it is enabled.

use std::time::Duration;

use tracing::Span;

use crate::error::{ReleaseError, RenewError};
use crate::millis::whole_millis;
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

/// Records the end of an acquire.
pub(crate) fn waited(span: &Span, outcome: &str, token: Option<FencingToken>, time: Duration) {
    if span.is_disabled() {
        return;
    }
    span.record("outcome", outcome);
    span.record("waited_ms", whole_millis(time));
    if let Some(token) = token {
        span.record("token", token.get());
    }
}

/// An error of an operation on a hold, with the outcome that its span records.
pub(crate) trait SpanEnd {
    /// The outcome of an operation without an error.
    const DONE: &'static str;

    fn outcome(&self) -> &'static str;
}

impl SpanEnd for ReleaseError {
    const DONE: &'static str = "released";

    fn outcome(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::Ambiguous { .. } => "ambiguous",
            Self::Rejected { .. } => "rejected",
        }
    }
}

impl SpanEnd for RenewError {
    const DONE: &'static str = "renewed";

    fn outcome(&self) -> &'static str {
        match self {
            Self::Lost(_) => "lost",
            Self::Unavailable { .. } => "unavailable",
            Self::Rejected { .. } => "rejected",
        }
    }
}

/// Records the end of an operation on a hold.
pub(crate) fn ended<T, E: SpanEnd>(
    span: &Span,
    result: &Result<T, E>,
    held: impl FnOnce() -> Duration,
    token: Option<FencingToken>,
) {
    if span.is_disabled() {
        return;
    }
    let outcome = result.as_ref().map_or_else(E::outcome, |_| E::DONE);
    span.record("outcome", outcome);
    span.record("held_ms", whole_millis(held()));
    if let Some(token) = token {
        span.record("token", token.get());
    }
}
