//! The date of a grant.

use std::time::Duration;

/// The time of a grant that counts from a later moment on: see [`Synchronizer::dated`](crate::primitive::Synchronizer::dated).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dated {
    /// The time until the grant counts. The acquire returns then; dropped before, it releases.
    pub due: Duration,
    /// For [`Sharing::Permits`](crate::primitive::Sharing::Permits): the time after which the next waiter of this process asks, unless the reply lets it ask at once.
    pub next: Option<Duration>,
}

impl Dated {
    /// A grant that counts after `due`, and lets the next waiter ask after `next`.
    #[must_use]
    pub const fn new(due: Duration, next: Option<Duration>) -> Self {
        Self { due, next }
    }
}
