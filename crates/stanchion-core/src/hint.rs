//! The content of a busy reply, beyond the time after which to ask again.

use std::time::Duration;

use crate::line::{Placed, Role, Sign};
use crate::name::Name;
use stanchion_transport::Reply;

/// The content of a busy reply beyond its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// No content beyond the number.
    #[default]
    None,
    /// For [`Sharing::Permits`](crate::primitive::Sharing::Permits): the state of the request on the server.
    Waits {
        /// Its place in line.
        sign: Sign,
        /// The part of this process in hearing Redisson's releases.
        role: Role,
    },
    /// Another name of the same family to wait for instead.
    Elsewhere {
        /// The name.
        name: Name,
        /// Its channel.
        channel: Vec<u8>,
        /// The place there, if the request has got one.
        placed: Option<Placed>,
    },
    /// It cannot be had before the caller's deadline, which the script was told: the acquire has timed out, now.
    TooLate,
    /// The request has a place in the line: see [`ServerLine`](crate::primitive::ServerLine).
    Placed(Placed),
    /// For [`Sharing::Queued`](crate::primitive::Sharing::Queued): the server has lost the queue, so all waiters must ask again.
    Forgotten,
    /// For [`Sharing::Queued`](crate::primitive::Sharing::Queued): the state of the queue.
    Queue {
        /// The waiter of this process that holds according to the server: the message of its grant may be lost.
        granted: Option<String>,
        /// True when a client is ahead that grants to nobody (Redisson): listen to [`ServerQueue::channel_of`](crate::primitive::ServerQueue::channel_of), too.
        foreign: bool,
    },
    /// What a refusal says to a primitive that does not wait: see [`Handle::ask`](crate::primitive::Handle::ask).
    Told(Vec<Reply>),
}

/// A refusal of an acquire that does not wait.
#[derive(Clone, Debug, Default)]
#[non_exhaustive]
pub struct Refusal {
    /// The time after which to ask again, if it is known.
    pub after: Option<Duration>,
    /// What else the reply says. Boxed: most hints are empty, and the future of every try would carry one.
    pub hint: Box<Hint>,
}

impl Hint {
    /// The place in a line that it tells of.
    pub(crate) const fn placed(&self) -> Option<Placed> {
        match self {
            Self::Placed(placed) => Some(*placed),
            Self::Elsewhere { placed, .. } => *placed,
            _ => None,
        }
    }

    /// The part of this process in hearing Redisson's releases.
    pub(crate) fn role(&self) -> Role {
        match self {
            Self::Waits { role, .. } => *role,
            _ => self.placed().map_or(Role::Keep, |placed| placed.role),
        }
    }

    /// The place in the line of those for whom permits are kept back.
    pub(crate) const fn sign(&self) -> Sign {
        match self {
            Self::Waits { sign, .. } => *sign,
            _ => Sign::None,
        }
    }
}
