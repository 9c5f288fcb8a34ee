//! An entry in the queue of processes that the server keeps: its parameters in a request, and its state in a reply.

use stanchion_transport::Reply;

/// The parameters of a request if the server keeps a queue of processes: see [`ServerQueue`](crate::primitive::ServerQueue).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Approach {
    /// The arrival time of the entry, server time in µs; 0 without an entry.
    pub arrived: u64,
    /// The reason of the request.
    pub reason: Reason,
    /// True if this client receives no messages, so that its entry is marked as that of a client that polls.
    pub polls: bool,
    /// True if this client is subscribed to Redisson's releases of the name; with [`Sharing::Queued`](crate::primitive::Sharing::Queued), to its own
    /// channel.
    pub hears: bool,
}

/// The reason of a request from a process with an entry in the queue on the server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A first request, or its turn inside its process.
    #[default]
    Turn,
    /// A message to this process.
    Told,
    /// The time of the next poll.
    Look,
    /// The subscription was confirmed or lost. A message may have been missed, so the request has no more right to a free lock than the request of a
    /// new waiter (rule L6).
    Resubscribed,
}

/// The hand-offs in a row after which other processes come first.
pub(crate) const TURN: u32 = 8;

/// The clients that come before the waiters of this process at a hand-off, if they wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Yields {
    /// None.
    #[default]
    No,
    /// Clients outside the queue of processes: each waiter of this process may have had a hold in this turn.
    Outside,
    /// All others: the turn of this process is over.
    All,
}

impl Yields {
    /// After so many hand-offs in a row, in a process with so many waiters.
    pub(crate) const fn after(handed: u32, waiters: usize) -> Self {
        if handed >= TURN {
            Self::All
        } else if handed as usize >= waiters {
            Self::Outside
        } else {
            Self::No
        }
    }
}

/// An entry in the queue of processes that the server keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placed {
    /// Its arrival time, server time in µs.
    pub arrived: u64,
    /// The role of this process for Redisson's releases.
    pub role: Role,
    /// True if the next poll is due at a random moment before the time in the reply, not at its end.
    pub spread: bool,
    /// If set, that poll is an `ask`, as after a message, and not a `look`.
    pub asks: bool,
}

impl Placed {
    /// Reads the elements that `stand` in `line.lua` appends after the server's time.
    #[must_use]
    pub fn read(rest: &[Reply]) -> Option<Self> {
        let [arrived, role, spread, asks, ..] = rest else {
            return None;
        };
        Some(Self {
            arrived: u64::try_from(arrived.as_int()?).ok()?,
            role: Role::read(role.as_int()),
            spread: spread.as_int()? == 1,
            asks: asks.as_int()? == 1,
        })
    }
}

/// The role of a process for Redisson's releases: one process of a queue is the relay, which subscribes to them on behalf of the others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// No change.
    Keep,
    /// Become the relay.
    Take,
    /// Stop being the relay.
    Leave,
}

impl Role {
    /// Reads the number that scripts use: 1 take, 2 leave.
    #[must_use]
    pub const fn read(number: Option<i64>) -> Self {
        match number {
            Some(1) => Self::Take,
            Some(2) => Self::Leave,
            _ => Self::Keep,
        }
    }
}
