//! Plain commands to one server: what an operator asks that no script can.

use std::fmt;
use std::sync::Arc;

use crate::cluster::Member;
use crate::failure::Failure;
use crate::link::{ConnectionId, Link};
use crate::node::{Node, Path};
use crate::reply::Reply;
use crate::servers::Servers;

/// One server of a client: the only one, the current master of a Sentinel set, or one master of a cluster.
///
/// Its commands go out once and follow no redirect, so they fit what concerns the server and not a key: `CLIENT LIST`, `INFO`,
/// `SCAN`.
#[derive(Clone)]
pub struct Console {
    seat: Seat,
    /// True if its commands go out on the connection on which messages come.
    hears: bool,
}

#[derive(Clone)]
enum Seat {
    Only(Arc<Servers>),
    Member(Arc<Member>),
}

impl Console {
    pub(crate) const fn only(servers: Arc<Servers>) -> Self {
        Self::at(Seat::Only(servers))
    }

    pub(crate) const fn member(member: Arc<Member>) -> Self {
        Self::at(Seat::Member(member))
    }

    const fn at(seat: Seat) -> Self {
        Self { seat, hears: false }
    }

    /// The same server, with commands that go out on the connection on which messages come, whatever path they are given: those whose
    /// later answer is a message.
    #[must_use]
    pub fn hearing(&self) -> Self {
        Self {
            seat: self.seat.clone(),
            hears: true,
        }
    }

    fn node(&self) -> Option<&Node> {
        match &self.seat {
            Seat::Only(servers) => servers.only(),
            Seat::Member(member) => Some(&member.node),
        }
    }

    /// Returns the server's address without credentials.
    #[must_use]
    pub fn server(&self) -> &str {
        self.node().map_or("", |node| &node.address.server)
    }

    /// Returns the connection on which the next command goes out; `None` while there is none.
    #[must_use]
    pub fn connection_id(&self) -> Option<ConnectionId> {
        self.link(Path::Background)?.connection_id()
    }

    fn link(&self, path: Path) -> Option<&Link> {
        let node = self.node()?;
        Some(match self.hears {
            true => node.subscriber(),
            false => node.link(path),
        })
    }

    /// Sends a command and returns the reply; waits at most the connect timeout for a connection that is not up yet.
    ///
    /// Dropping the future does not cancel the command.
    ///
    /// # Errors
    /// [`Failure`] says whether it may have run.
    pub async fn command(&self, path: Path, parts: &[&[u8]]) -> Result<Reply, Failure> {
        // A console is made for servers that have a node.
        let Some(link) = self.link(path) else {
            return Ok(Reply::Nil);
        };
        // The link may be new. Its outage, if it does not come up, is the answer of `command`.
        let _ = link.settled().await;
        let answer = link.command(parts).await;
        match &self.seat {
            Seat::Only(_) => answer.map_err(Failure::of_one_server),
            Seat::Member(_) => answer,
        }
    }
}

impl fmt::Debug for Console {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Console").field(&self.server()).finish()
    }
}
