//! The guard that an acquire returns.

use stanchion_client::Held;
use stanchion_client::primitive::{HoldSet, Quorum};

use crate::redlock::RedLock;

/// A held [`RedLock`]. Release it, or drop it: the releases then run in the background.
///
/// The lock is held while a quorum of nodes is held. [`valid_until`](RedGuard::valid_until) is the end of the quorum. A renewal returns
/// when a quorum has renewed, and a release when a quorum has confirmed; silent nodes do not delay either.
///
/// `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and never panics (P9). It has no fencing token: see
/// `docs/primitives/redlock.md`.
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
/// assert_eq!(guard.name(), compaction.name());
/// assert!(guard.nodes_held() >= compaction.quorum());
/// for node in &nodes[..2] {
///     node.shutdown(Duration::ZERO).await; // renews no longer
/// }
/// assert_eq!(guard.nodes_held(), 1);
/// assert!(!guard.is_held()); // one node is no quorum
/// # Ok(())
/// # }
/// ```
pub type RedGuard = Held<RedLock, HoldSet>;

impl Quorum for RedLock {}
