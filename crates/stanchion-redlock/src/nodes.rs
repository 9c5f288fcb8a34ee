//! The servers of a RedLock.

use std::sync::Arc;

use stanchion_client::primitive::{Handle, Part};
use stanchion_client::{Client, Error, Fencing, InvalidName, Lockable as _};
use stanchion_lock::Lock;

/// The reason that a set of nodes makes no RedLock. Nothing was sent.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidNodes {
    /// Fewer than three nodes: the loss of any of them stops the lock.
    #[error(
        "a RedLock has at least 3 nodes, not {nodes}: give a client for each server, also for one that is down"
    )]
    TooFew {
        /// The number of nodes.
        nodes: usize,
    },
    /// An even number of nodes: it needs a larger quorum than one node less, and survives no more losses.
    #[error("a RedLock has an odd number of nodes, not {nodes}: one less survives as many losses")]
    Even {
        /// The number of nodes.
        nodes: usize,
    },
    /// Two clients of one server, or one client twice: the loss of that server would count twice. Numbered from 0, in the order
    /// given.
    #[error(
        "nodes {first} and {second} are the same server: a quorum is one of independent servers"
    )]
    SameServer {
        /// The number of the first.
        first: usize,
        /// The number of the second.
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
            invalid => Self::primitive(invalid),
        }
    }
}

/// Returns the lock called `name` on every node, in the order given.
pub(crate) fn parts(clients: &[&Client], name: &[u8]) -> Result<Arc<[Part]>, InvalidNodes> {
    let nodes = clients.len();
    if nodes < 3 {
        return Err(InvalidNodes::TooFew { nodes });
    }
    if nodes.is_multiple_of(2) {
        return Err(InvalidNodes::Even { nodes });
    }
    if let Some((first, second)) = twins(clients.iter().map(|it| (*it).as_ref())) {
        return Err(InvalidNodes::SameServer { first, second });
    }
    clients
        .iter()
        // A token of one node means nothing to another.
        .map(|client| Ok(Lock::new(client, name)?.fencing(Fencing::Off).part()))
        .collect()
}

/// Returns the numbers of two clients of one server, as far as the servers are known by now.
pub(crate) fn twins<'a>(
    clients: impl Iterator<Item = &'a Handle> + Clone,
) -> Option<(usize, usize)> {
    clients.clone().enumerate().find_map(|(second, b)| {
        let mut before = clients.clone().take(second);
        Some((before.position(|a| are_one_server(a, b))?, second))
    })
}

fn are_one_server(a: &Handle, b: &Handle) -> bool {
    let (first, second) = (&a.server().run_id, &b.server().run_id);
    a.id() == b.id() || (!first.is_empty() && first == second)
}
