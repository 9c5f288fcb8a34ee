//! What an acquire gives.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use stanchion_core::primitive::{Hold, HoldSet};
use stanchion_core::{Ended, Guard, LeaseLost, LostReason, Moment, Name, ReleaseError, RenewError};

/// A held [`RedLock`](crate::RedLock). Release it, or drop it: the releases then run in the background.
///
/// It is held while a quorum of nodes is. `Send + Sync + 'static`, and not `Clone`. Dropping blocks on nothing, needs no
/// runtime and never panics (P9). It has no fencing token: see `docs/primitives/redlock.md`.
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct RedGuard {
    holds: HoldSet,
}

impl RedGuard {
    pub(crate) fn new(holds: HoldSet) -> Self {
        Self { holds }
    }

    /// What is held: the name with the first client's key prefix.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.holds.name()
    }

    /// On how many nodes it is held now.
    #[must_use]
    pub fn nodes_held(&self) -> usize {
        let held = |hold: &&Hold| hold.is_held();
        self.holds.holds().iter().filter(held).count()
    }

    /// Until when the holder may count on it, on the clients' clock (the default clock is one for all clients of a process):
    /// the end of the quorum, which is the earliest of its nodes' ends. Each end is sent + lease − max(2 ms, lease/100), the
    /// last term for the drift of clocks. Every renewal moves it on.
    ///
    /// # Guarantees
    /// P1 for a quorum: no other owner is granted a quorum before it, while no server of it loses data or steps its clock.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.holds.valid_until()
    }

    /// What is left of [`valid_until`](Self::valid_until) now: the validity. Zero once lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.holds.remaining()
    }

    /// Whether a quorum of nodes is still held.
    ///
    /// # Guarantees
    /// P5: false before anybody else can be granted a quorum. Compares the clock; needs no network and no timer. It cannot
    /// stop code between this check and its effect, and here no fencing token can, either.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds.is_held()
    }

    /// Resolves when too few nodes are left for a quorum, with the last node's reason; never after a release.
    ///
    /// # Guarantees
    /// P5: resolves before anybody else can be granted a quorum, and not early while a quorum is renewed.
    ///
    /// # Cancel safety
    /// Safe; any number of these futures may exist, also beyond the guard. After a release it pends for ever and keeps
    /// nothing alive, but a task that only waits for it never ends: spawn [`ended`](Self::ended) instead.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.holds.lost()
    }

    /// Resolves when it is over: released, or too few nodes are left. For tasks that watch it.
    ///
    /// # Guarantees
    /// As [`lost`](Self::lost), if it is lost.
    ///
    /// # Cancel safety
    /// As [`lost`](Self::lost). It keeps nothing alive.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.holds.ended()
    }

    /// Runs `work` as long as a quorum is held. When it is lost, `work` is dropped at its await point.
    ///
    /// # Errors
    /// [`LeaseLost`]: the work did not finish.
    ///
    /// # Cancel safety
    /// As that of `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        self.holds.run(work).await
    }

    /// Renews on all nodes now, side by side; done when a quorum has renewed. Only needed with
    /// [`Renewal::Manual`](stanchion_core::Renewal::Manual), or to have a whole lease ahead at a certain point.
    ///
    /// # Errors
    /// [`RenewError`] of one node, when fewer than a quorum renewed. Ends within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: a renewal that was sent may still take effect.
    ///
    /// # On the wire
    /// One script for each node that is held; again after a lost reply, with the effect of once.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.holds.renew().await
    }

    /// Releases on all nodes, side by side, and waits until a quorum has confirmed. The others, also the silent ones, go on in
    /// the background. Dropping the guard does the same without waiting.
    ///
    /// # Errors
    /// [`ReleaseError`] of one node, when fewer than a quorum confirmed. [`ReleaseError::Lost`]: too many had ended before.
    ///
    /// # Cancel safety
    /// Safe: the releases go on in the background.
    ///
    /// # On the wire
    /// One script for each node.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.holds.release().await
    }
}

impl From<RedGuard> for Guard {
    fn from(guard: RedGuard) -> Self {
        Self::from(guard.holds)
    }
}

impl fmt::Debug for RedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedGuard").field(&self.holds).finish()
    }
}
