//! The content of a busy reply, beyond the time after which to retry.

use std::sync::Arc;
use std::time::Duration;

use crate::description::rest_of;
use crate::line::{Placed, Role};
use crate::name::Name;
use stanchion_transport::Reply;

/// The content of a busy reply beyond its number.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Hint {
    /// No content beyond the number.
    #[default]
    None,
    /// Another name of the same family to wait for instead.
    Elsewhere {
        /// The name.
        name: Name,
        /// Its channel.
        channel: Arc<[u8]>,
        /// The entry there, if the request has got one.
        placed: Option<Placed>,
    },
    /// The name cannot be granted before the caller's deadline, which the request contained: the acquire times out now.
    TooLate,
    /// The request has an entry in the queue: see [`ServerQueue`](crate::primitive::ServerQueue).
    Placed(Placed),
    /// For [`Sharing::Queued`](crate::primitive::Sharing::Queued): the state of the queue.
    Queue {
        /// The waiter's own entry.
        placed: Placed,
        /// True if the server had removed this entry: the other waiters of this process send a request, too.
        forgotten: bool,
        /// The waiter of this process that holds according to the server. The message of its grant may have been lost.
        granted: Option<String>,
        /// True if a client ahead never grants (Redisson): also listen to [`ServerQueue::channel_of`](crate::primitive::ServerQueue::channel_of).
        foreign: bool,
    },
}

/// The refusal of a request.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// The time after which to retry, if it is known.
    pub after: Option<Duration>,
    pub(crate) hint: Hint,
    pub(crate) reply: Reply,
}

impl Refusal {
    /// The elements of the reply from the third on, for a primitive whose refusals say more than that another owner holds.
    #[must_use]
    pub fn rest(&self) -> &[Reply] {
        rest_of(&self.reply)
    }
}

impl Hint {
    /// The entry in a queue that the reply reports.
    pub(crate) const fn placed(&self) -> Option<Placed> {
        match self {
            Self::Placed(placed) | Self::Queue { placed, .. } => Some(*placed),
            Self::Elsewhere { placed, .. } => *placed,
            _ => None,
        }
    }

    /// The role of this process for Redisson's releases.
    pub(crate) fn role(&self) -> Role {
        self.placed().map_or(Role::Keep, |placed| placed.role)
    }
}
