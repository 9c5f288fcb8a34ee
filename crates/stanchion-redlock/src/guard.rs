//! The guard that an acquire returns.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use stanchion_core::primitive::{Hold, HoldSet};
use stanchion_core::{Ended, Guard, LeaseLost, LostReason, Moment, Name, ReleaseError, RenewError};

/// A held [`RedLock`](crate::RedLock). Release it, or drop it: the releases then run in the background.
///
/// It is held while a quorum of nodes is held. `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no
/// runtime and never panics (P9). It has no fencing token: see `docs/primitives/redlock.md`.
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct RedGuard {
    holds: HoldSet,
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
    /// for node in &nodes {
    ///     node.shutdown(Duration::ZERO).await;
    /// }
    /// assert_eq!(guard.nodes_held(), 0);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn nodes_held(&self) -> usize {
        let held = |hold: &&Hold| hold.is_held();
        self.holds.holds().iter().filter(held).count()
    }

    /// Returns the time until which the holder may count on the lock: the end of the quorum, the earliest end of its nodes. An
    /// end is sent + lease − max(2 ms, lease/100), the last term for the drift of clocks, on the clients' clock (the default
    /// clock is one for all clients of a process). Every renewal extends it.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-valid-until-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// let left = guard.valid_until().since(nodes[0].now());
    /// assert!(left > Duration::from_secs(20)); // of a lease of 30 s
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P1 for a quorum: no other owner is granted a quorum before it, while no server of it loses data or steps its clock.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.holds.valid_until()
    }

    /// Returns the time that is left until [`valid_until`](Self::valid_until), the validity; zero once lost.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-remaining-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// assert!(guard.remaining() > Duration::from_secs(20)); // of a lease of 30 s
    /// for node in &nodes {
    ///     node.shutdown(Duration::ZERO).await;
    /// }
    /// assert_eq!(guard.remaining(), Duration::ZERO); // lost
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.holds.remaining()
    }

    /// Returns whether a quorum of nodes is still held.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-is-held-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// assert!(guard.is_held());
    /// for node in &nodes[..2] {
    ///     node.shutdown(Duration::ZERO).await; // renews no longer
    /// }
    /// assert!(!guard.is_held()); // one node is no quorum
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P5: false before another owner can be granted a quorum. Compares the clock; needs no network and no timer. It cannot
    /// stop code between this check and its effect, and a RedLock has no fencing token that could.
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds.is_held()
    }

    /// Resolves when too few nodes are held for a quorum, with the reason of the last loss; never after a release.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{AcquireOptions, Client, LostReason, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-lost-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let guard = compaction.acquire_with(options).await?;
    /// assert_eq!(guard.lost().await, LostReason::MaxHold);
    /// assert!(!guard.is_held());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P5: resolves before another owner can be granted a quorum, and not early while a quorum is renewed.
    ///
    /// # Cancel safety
    /// Safe; any number of these futures may exist, and they may outlive the guard. After a release they pend for ever and
    /// keep nothing alive, but a task that only waits for one never ends: spawn [`ended`](Self::ended) instead.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.holds.lost()
    }

    /// Resolves when the hold has ended: released, or held on too few nodes. For tasks that watch it.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, Ended, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-ended-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// let watch = tokio::spawn(guard.ended());
    /// guard.release().await?;
    /// assert_eq!(watch.await?, Ended::Released);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// As [`lost`](Self::lost), if it is lost.
    ///
    /// # Cancel safety
    /// As [`lost`](Self::lost). It keeps nothing alive.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.holds.ended()
    }

    /// Runs `work` while a quorum is held. When the quorum is lost, `work` is dropped at its await point.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{AcquireOptions, Client, LostReason, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-run-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let options = AcquireOptions::new().max_hold(Duration::from_millis(50));
    /// let guard = compaction.acquire_with(options).await?;
    /// assert_eq!(guard.run(async { 1 + 1 }).await?, 2);
    /// let endless = guard.run(std::future::pending::<()>()).await;
    /// assert_eq!(endless.unwrap_err().reason, LostReason::MaxHold); // dropped in time
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LeaseLost`]: the work did not finish.
    ///
    /// # Cancel safety
    /// As that of `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        self.holds.run(work).await
    }

    /// Renews on all nodes at once, and returns when a quorum has renewed. Only needed with
    /// [`Renewal::Manual`](stanchion_core::Renewal::Manual), or to have a whole lease ahead at a certain point.
    ///
    /// ```
    /// # use stanchion_redlock::{AcquireOptions, Client, RedLock, Renewal};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-renew-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let options = AcquireOptions::new().renewal(Renewal::Manual);
    /// let guard = compaction.acquire_with(options).await?;
    /// let earlier = guard.valid_until();
    /// guard.renew().await?;
    /// assert!(guard.valid_until() > earlier); // a whole lease ahead
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The [`RenewError`] of one node, when fewer than a quorum renewed. Ends within the operation timeout.
    ///
    /// # Cancel safety
    /// Safe: a renewal that was sent may still take effect.
    ///
    /// # On the wire
    /// One script for each node that is held, resent after a lost reply; it takes effect once.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.holds.renew().await
    }

    /// Releases on all nodes at once, and waits until a quorum has confirmed. The other releases, also on silent nodes, go on
    /// in the background. Dropping the guard does the same without waiting.
    ///
    /// ```
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redguard-release-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// guard.release().await?; // confirmed by a quorum
    /// compaction.acquire().await?.release().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// The [`ReleaseError`] of one node, when fewer than a quorum confirmed. [`ReleaseError::Lost`]: the quorum was lost before.
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
