//! Errors, with the outcome at each node (P8).

use std::fmt;
use std::time::Duration;

use stanchion_client::primitive::Brief;
use stanchion_client::{AcquireError, Error, Name, Outage, Rejection};

/// The reason that an acquire returned no guard. Grants of single nodes are being released, also those of silent nodes.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedLockError {
    /// The deadline passed first: enough nodes answered, and another owner held too many of them.
    #[error("timed out after {} waiting for {name}: {}", Brief(*.waited), Reasons(.nodes))]
    TimedOut {
        /// The name of the lock.
        name: Name,
        /// The time that the call waited.
        waited: Duration,
        /// The last outcome at each node.
        nodes: Vec<NodeReport>,
    },
    /// Too few nodes answered. Worth retrying.
    #[error("no quorum for {name}, {needed} nodes are needed: {}", Reasons(.nodes))]
    NoQuorum {
        /// The name of the lock.
        name: Name,
        /// The quorum.
        needed: usize,
        /// The last outcome at each node.
        nodes: Vec<NodeReport>,
    },
    /// Too many nodes refused the request: retrying will not help.
    #[error("rejected while acquiring {name}: {}", Reasons(.nodes))]
    Rejected {
        /// The name of the lock.
        name: Name,
        /// The outcome at each node.
        nodes: Vec<NodeReport>,
    },
    /// An option that a RedLock does not support. Nothing was sent.
    #[error("invalid option for {name}: {rule}")]
    InvalidOption {
        /// The name of the lock.
        name: Name,
        /// The option and the rule.
        rule: String,
    },
}

/// The outcome at one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// The number of the node: from 0, in the order given to [`RedLock::new`](crate::RedLock::new).
    pub node: usize,
    /// The outcome.
    pub outcome: NodeOutcome,
}

/// The outcome of one request to one node.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeOutcome {
    /// Granted; too few other nodes did, or too late, so the grant is being released.
    Granted,
    /// Held by another owner.
    Busy,
    /// No answer before the other nodes had decided the outcome. If the node granted, the grant is being released.
    Unanswered,
    /// The node was out of reach, or refused the request.
    Failed(AcquireError),
}

impl RedLockError {
    /// Returns the outcome at each node; empty when no request was sent.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlockerror-nodes-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// let error = compaction.acquire_timeout(Duration::from_millis(50)).await.unwrap_err();
    /// for report in error.nodes() {
    ///     println!("node {}: {}", report.node, report.outcome); // held by somebody else
    /// }
    /// assert_eq!(error.nodes().len(), 3);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn nodes(&self) -> &[NodeReport] {
        match self {
            Self::TimedOut { nodes, .. }
            | Self::NoQuorum { nodes, .. }
            | Self::Rejected { nodes, .. } => nodes,
            Self::InvalidOption { .. } => &[],
        }
    }

    /// Returns the name of the lock.
    ///
    /// ```
    /// # use std::time::Duration;
    /// # use stanchion_redlock::{Client, RedLock};
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let mut nodes = Vec::new();
    /// # for node in 1..=3 {
    /// #     nodes.push(Client::connect(format!("memory://redlockerror-name-{node}")).await?);
    /// # }
    /// # let compaction = RedLock::new(&nodes, "compaction")?;
    /// let guard = compaction.acquire().await?;
    /// let error = compaction.acquire_timeout(Duration::from_millis(50)).await.unwrap_err();
    /// assert_eq!(error.name(), compaction.name());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        match self {
            Self::TimedOut { name, .. }
            | Self::NoQuorum { name, .. }
            | Self::Rejected { name, .. }
            | Self::InvalidOption { name, .. } => name,
        }
    }
}

impl From<RedLockError> for AcquireError {
    /// Converts for callers that do not need the single nodes: their outcomes become text.
    fn from(error: RedLockError) -> Self {
        let detail = Reasons(error.nodes()).to_string();
        match error {
            RedLockError::TimedOut { name, waited, .. } => Self::TimedOut {
                name,
                waited,
                free_by: None,
                remark: Some(detail.into()),
            },
            RedLockError::NoQuorum { name, .. } => Self::Unavailable {
                name,
                outage: Outage::Unanswered { detail },
            },
            // A client that is shut down sends no request, and counts as a refusal.
            RedLockError::Rejected { name, nodes } => {
                let of = |is: fn(&Self) -> bool| {
                    let mut nodes = nodes.iter();
                    nodes.any(|node| matches!(&node.outcome, NodeOutcome::Failed(why) if is(why)))
                };
                let refused = of(|why| matches!(why, Self::Rejected { .. }));
                if of(|why| matches!(why, Self::Shutdown { .. })) && !refused {
                    return Self::Shutdown { name };
                }
                let rejection = Rejection::Other { detail };
                Self::Rejected { name, rejection }
            }
            RedLockError::InvalidOption { name, rule } => Self::Rejected {
                name,
                rejection: Rejection::InvalidOption { rule },
            },
        }
    }
}

impl From<RedLockError> for Error {
    fn from(error: RedLockError) -> Self {
        Self::Acquire(error.into())
    }
}

/// The list `node 0: granted; node 1: …`.
struct Reasons<'a>(&'a [NodeReport]);

impl fmt::Display for Reasons<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (i, report) in self.0.iter().enumerate() {
            if i > 0 {
                f.write_str("; ")?;
            }
            write!(f, "node {}: {}", report.node, report.outcome)?;
        }
        Ok(())
    }
}

impl fmt::Display for NodeOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Granted => f.write_str("granted, and being released"),
            Self::Busy => f.write_str("held by somebody else"),
            Self::Unanswered => f.write_str("no answer when the others had decided"),
            Self::Failed(error) => error.fmt(f),
        }
    }
}
