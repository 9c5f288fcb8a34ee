//! Which servers take part.

use std::sync::Arc;

use stanchion_core::primitive::Part;
use stanchion_core::{
    Client, ConfigError, ConnectError, Error, Fencing, InvalidName, Lockable as _,
};
use stanchion_lock::Lock;

/// Nodes that no RedLock can be made of. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidNodes {
    /// With one or two, the loss of any stops everything.
    #[error("a RedLock has at least 3 nodes, not {nodes}")]
    TooFew {
        /// How many there are.
        nodes: usize,
    },
    /// One node more than an odd number needs a larger quorum and survives no more losses.
    #[error("a RedLock has an odd number of nodes, not {nodes}: one less survives as many losses")]
    Even {
        /// How many there are.
        nodes: usize,
    },
    /// Two clients of one server, or one client twice: its loss would count twice. Counted from 0, in the order given.
    #[error(
        "nodes {first} and {second} are the same server: a quorum is one of independent servers"
    )]
    SameServer {
        /// The first of them.
        first: usize,
        /// The second.
        second: usize,
    },
    /// The name breaks a rule of one of the nodes.
    #[error(transparent)]
    Name(#[from] InvalidName),
}

impl From<InvalidNodes> for Error {
    fn from(invalid: InvalidNodes) -> Self {
        match invalid {
            InvalidNodes::Name(invalid) => Self::Name(invalid),
            other => Self::Connect(ConnectError::Config(ConfigError::InvalidSetting {
                setting: "nodes",
                value: "of a RedLock".into(),
                rule: other.to_string(),
            })),
        }
    }
}

/// The lock called `name` on every node, in the order given.
pub(crate) fn parts(clients: &[&Client], name: &[u8]) -> Result<Arc<[Part]>, InvalidNodes> {
    let nodes = clients.len();
    if nodes < 3 {
        return Err(InvalidNodes::TooFew { nodes });
    }
    if nodes.is_multiple_of(2) {
        return Err(InvalidNodes::Even { nodes });
    }
    for (second, b) in clients.iter().enumerate() {
        for (first, a) in clients.iter().take(second).enumerate() {
            if are_one_server(a, b) {
                return Err(InvalidNodes::SameServer { first, second });
            }
        }
    }
    clients
        .iter()
        // A token of one node means nothing to another.
        .map(|client| Ok(Lock::new(client, name)?.with_fencing(Fencing::Off).part()))
        .collect()
}

fn are_one_server(a: &Client, b: &Client) -> bool {
    let (first, second) = (&a.server().run_id, &b.server().run_id);
    a.id() == b.id() || (!first.is_empty() && first == second)
}
