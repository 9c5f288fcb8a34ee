//! What an acquire gives.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use stanchion_core::primitive::HoldSet;
use stanchion_core::{
    FencingToken, LeaseLost, LostReason, Moment, Name, ReleaseError, RenewError,
};

/// All members of a [`MultiLock`](crate::MultiLock), held. Release it, or drop it: the release then runs in the background.
///
/// `Send + Sync + 'static`, and not `Clone`. Dropping blocks on nothing, needs no runtime and never panics (P9).
#[must_use = "dropping a guard releases at once"]
pub struct MultiGuard {
    holds: HoldSet,
    /// Of each member, in name order.
    names: Vec<Name>,
    tokens: Vec<Option<FencingToken>>,
}
