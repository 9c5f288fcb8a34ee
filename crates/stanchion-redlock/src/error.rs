//! Errors that say what each node said (P8).

use std::fmt;
use std::time::Duration;

use stanchion_core::{AcquireError, Error, Name, Outage, Rejection};

/// An acquire that gave no guard. What was granted on single nodes is being released, on the silent ones, too.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RedLockError {
    /// The deadline passed first; enough nodes answered, and somebody else held too many of them.
    #[error("timed out after {} waiting for {name}: {}", Brief(*.waited), Reasons(.nodes))]
    TimedOut {
        /// What was asked for.
        name: Name,
        /// How long the call waited.
        waited: Duration,
        /// What each node said last.
        nodes: Vec<NodeReport>,
    },
    /// Too few nodes answered. Worth retrying.
    #[error("no quorum for {name}, {needed} nodes are needed: {}", Reasons(.nodes))]
    NoQuorum {
        /// What was asked for.
        name: Name,
        /// The quorum.
        needed: usize,
        /// What each node said last.
        nodes: Vec<NodeReport>,
    },
    /// So many nodes refuse for good that retrying will not help.
    #[error("rejected while acquiring {name}: {}", Reasons(.nodes))]
    Rejected {
        /// What was asked for.
        name: Name,
        /// What each node said.
        nodes: Vec<NodeReport>,
    },
    /// An option that a RedLock does not have. Nothing was sent.
    #[error("invalid option for {name}: {rule}")]
    InvalidOption {
        /// What was asked for.
        name: Name,
        /// The option and the rule.
        rule: String,
    },
}

/// What one node said.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct NodeReport {
    /// Which one: from 0, in the order given to [`RedLock::new`](crate::RedLock::new).
    pub node: usize,
    /// What it said.
    pub outcome: NodeOutcome,
}

/// What one node said to one question.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum NodeOutcome {
    /// It granted; too few others did, or too late, so the grant is being released.
    Granted,
    /// Somebody else holds it there.
    Busy,
    /// It had not answered when the others had decided the question. If it granted, the grant is being released.
    Unanswered,
    /// It could not be asked, or refused.
    Failed(AcquireError),
}

impl RedLockError {
    /// What each node said; empty when none was asked.
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

    /// What was asked for.
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
    /// For callers who do not care about single nodes: their reasons become text.
    fn from(error: RedLockError) -> Self {
        let detail = Reasons(error.nodes()).to_string();
        match error {
            RedLockError::TimedOut { name, waited, .. } => Self::TimedOut {
                name,
                waited,
                free_by: None,
            },
            RedLockError::NoQuorum { name, .. } => Self::Unavailable {
                name,
                outage: Outage::Unanswered { detail },
            },
            // A client that is shut down is not asked, and refuses for good.
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

/// `node 0: granted; node 1: …`.
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

/// A duration for people: whole milliseconds.
struct Brief(Duration);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = Duration::from_millis(u64::try_from(self.0.as_millis()).unwrap_or(u64::MAX));
        humantime::format_duration(whole).fmt(f)
    }
}
