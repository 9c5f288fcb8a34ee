//! The guard of a held lock.

use stanchion_client::Held;
use stanchion_client::primitive::{Detachable, Fenced, Reentrant};

use crate::lock::Lock;

/// A held [`Lock`]. Release it, or drop it: the release then runs in the background.
///
/// `Send + Sync + 'static`, and not `Clone`: [`LockGuard::reenter`] gives another guard of the same hold. The lock is
/// free when the last of them is released. Dropping never blocks, needs no runtime and never panics (P9).
pub type LockGuard = Held<Lock>;

impl Fenced for Lock {}
impl Reentrant for Lock {}
impl Detachable for Lock {}
