//! The receivers of messages in local queues.

use crate::description::Subject;
use crate::wire_owner::WireOwner;

/// The subscriptions of a client.
pub(crate) type Subscriptions = stanchion_transport::Subscriptions<Receiver>;

/// The receiver of a channel's messages in the queue of `subject`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Receiver {
    pub(crate) subject: Subject,
    pub(crate) part: Part,
}

/// The part of a queue that receives a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Part {
    /// The whole queue.
    Queue,
    /// One waiter.
    Waiter(WireOwner),
    /// The queue on the server: this process is its relay, and receives Redisson's releases.
    Line,
}
