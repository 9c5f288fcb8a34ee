//! The date of a grant.

use std::time::Duration;

/// The dates of a grant that counts from a later moment: see [`Synchronizer::dated`](crate::primitive::Synchronizer::dated).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dated {
    /// The time until the grant counts. The acquire returns then. If the acquire is dropped before, it releases the grant.
    pub due: Duration,
    /// For [`Sharing::Permits`](crate::primitive::Sharing::Permits): the delay of the next local waiter's request, unless the reply admits it now.
    pub next: Option<Duration>,
}

impl Dated {
    /// A grant that counts after `due`, and lets the next waiter send a request after `next`.
    #[must_use]
    pub const fn new(due: Duration, next: Option<Duration>) -> Self {
        Self { due, next }
    }
}
