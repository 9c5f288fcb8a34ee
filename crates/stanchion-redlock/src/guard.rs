//! The guard that an acquire returns.

use std::fmt;

use stanchion_client::primitive::{Hold, HoldSet};
use stanchion_client::{Name, define_guard};

define_guard! {
    /// A held [`RedLock`](crate::RedLock). Release it, or drop it: the releases then run in the background.
    ///
    /// The lock is held while a quorum of nodes is held. `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no
    /// runtime and never panics (P9). It has no fencing token: see `docs/primitives/redlock.md`.
    pub struct RedGuard over holds;

    /// # use stanchion_redlock::{AcquireOptions, Client, Ended, LostReason, RedLock, Renewal};
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-{node}")).await?);
    /// # }
    /// # let client = &nodes[0];
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    example compaction.acquire(), compaction.acquire_with(options);

    fn valid_until {
        /// Returns the time until which the holder may count on the lock: the end of the quorum, the earliest end of its nodes.
        /// An end is sent + lease − max(2 ms, lease/100), the last term for the drift of clocks, on the clients' clock (the
        /// default clock is one for all clients of a process). Every renewal extends it.
    } {
        /// # Guarantees
        /// P1 for a quorum: no other owner is granted a quorum before it, while no server of it loses data or steps its clock.
    }
    fn is_held {
        /// Returns whether a quorum of nodes is still held.
    } {
        /// # Guarantees
        /// P5: false before another owner can be granted a quorum. Compares the clock; needs no network and no timer. It cannot
        /// stop code between this check and its effect, and a RedLock has no fencing token that could.
    }
    fn lost {
        /// Resolves when too few nodes are held for a quorum, with the reason of the last loss; never after a release.
    } {
        /// # Guarantees
        /// P5: resolves before another owner can be granted a quorum, and not early while a quorum is renewed.
    }
    fn ended {
        /// Resolves when the hold has ended: released, or held on too few nodes. For tasks that watch it.
    }
    fn run {
        /// Runs `work` while a quorum is held. When the quorum is lost, `work` is dropped at its await point.
    }
    fn renew {
        /// Renews on all nodes at once, and returns when a quorum has renewed. Only needed with
        /// [`Renewal::Manual`](stanchion_client::Renewal::Manual), or to have a whole lease ahead at a certain point.
    } {
        /// # Errors
        /// The [`RenewError`](stanchion_client::RenewError) of one node, when fewer than a quorum renewed. Ends within the
        /// operation timeout.
        ///
        /// # Cancel safety
        /// Safe: a renewal that was sent may still take effect.
        ///
        /// # On the wire
        /// One script for each node that is held, resent after a lost reply; it takes effect once.
    }
    fn release {
        /// Releases on all nodes at once, and waits until a quorum has confirmed. The other releases, also on silent
        /// nodes, continue in the background. Dropping the guard does the same without waiting.
    } {
        /// # Errors
        /// The [`ReleaseError`](stanchion_client::ReleaseError) of one node, when fewer than a quorum confirmed.
        /// [`ReleaseError::Lost`](stanchion_client::ReleaseError::Lost): the quorum was lost before.
        ///
        /// # Cancel safety
        /// Safe: the releases continue in the background.
        ///
        /// # On the wire
        /// One script for each node.
    }
}

impl RedGuard {
    pub(crate) fn new(holds: HoldSet) -> Self {
        Self { holds }
    }

    /// Returns the name of the lock, with the first client's key prefix.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-name-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// println!("{} is held on {} servers", guard.name(), guard.nodes_held());
    /// assert_eq!(guard.name(), compaction.name());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        self.holds.name()
    }

    /// Returns the number of nodes on which it is held now.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-nodes-held-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// assert!(guard.nodes_held() >= compaction.quorum());
    /// for node in &nodes[..2] {
    ///     node.shutdown(Duration::ZERO).await; // renews no longer
    /// }
    /// assert_eq!(guard.nodes_held(), 1);
    /// assert!(!guard.is_held()); // one node is no quorum
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn nodes_held(&self) -> usize {
        let held = |hold: &&Hold| hold.is_held();
        self.holds.holds().iter().filter(held).count()
    }
}

impl fmt::Debug for RedGuard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("RedGuard").field(&self.holds).finish()
    }
}
