//! Plain commands to one server, for operators' requests that no script can serve.

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
/// Its commands are sent once and follow no redirect. They suit requests about the server and not about a key: `CLIENT
/// LIST`, `INFO`, `SCAN`.
#[derive(Clone)]
pub struct Console {
    seat: Seat,
    /// True if the commands are sent on the connection that receives messages.
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

    /// Returns a console for the same server that sends its commands on the connection for messages, whatever path a call
    /// names. For commands with a later answer that arrives as a message.
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

    /// Returns the connection that the next command would use, or `None` while there is none.
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

    /// Sends a command and returns the reply. Waits at most the connect timeout for a connection that is not up yet.
    ///
    /// Dropping the future does not cancel the command.
    ///
    /// # Errors
    /// [`Failure`] states whether the command may have run.
    pub async fn command(&self, path: Path, parts: &[&[u8]]) -> Result<Reply, Failure> {
        // Consoles exist only for servers with a node.
        let Some(link) = self.link(path) else {
            return Ok(Reply::Nil);
        };
        // The link may be new. If it does not come up, `command` returns its outage.
        let _ = link.settled().await;
        self.of_seat(link.command(parts).await)
    }

    /// Sends commands in one write, and returns their replies in order. An error reply fails its own command only. Waits as
    /// [`Console::command`].
    ///
    /// Dropping the future does not cancel the commands.
    ///
    /// # Errors
    /// [`Failure`] states whether the commands may have run.
    pub async fn commands(
        &self,
        path: Path,
        commands: &[Vec<&[u8]>],
    ) -> Result<Vec<Result<Reply, Failure>>, Failure> {
        let Some(link) = self.link(path) else {
            return Ok(commands.iter().map(|_| Ok(Reply::Nil)).collect());
        };
        let _ = link.settled().await;
        let replies = self.of_seat(link.commands(commands).await)?;
        Ok(replies.into_iter().map(|it| self.of_seat(it)).collect())
    }

    fn of_seat<T>(&self, answer: Result<T, Failure>) -> Result<T, Failure> {
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
