//! A place in a line of processes that the server keeps: what a request tells of it, and what a reply does.

use stanchion_transport::Reply;

/// The way in which a request asks where the server keeps a line: see [`ServerLine`](crate::primitive::ServerLine).
#[derive(Clone, Copy, Debug, Default)]
#[non_exhaustive]
pub struct Approach {
    /// The arrival of the place, server time in µs; 0 without one.
    pub arrived: u64,
    /// The reason for which it asks, with a place.
    pub reason: Reason,
    /// True when this client hears no messages, so a place in the line would be of no use.
    pub polls: bool,
    /// True when this client hears Redisson's releases of the name.
    pub hears: bool,
    /// For permits: true when other waiters of this process do not ask now.
    pub others: bool,
    /// For permits: how many of those that this process was told of it has nobody for.
    pub surplus: u32,
}

/// The reason for which a process with a place in a line asks, or a waiter for permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reason {
    /// A first request, or its turn inside its process.
    #[default]
    Turn,
    /// A message to this process.
    Told,
    /// The time to look again.
    Look,
    /// Its subscription was confirmed or lost: it may have missed a message, and has no more right to a free lock than one that comes
    /// anew (rule L6). Of a request for permits also: it comes anew, or a moment of its own has come.
    Anew,
    /// The reply to another one of its process: some permits are left, or its holder reads, and this one may read as well.
    Reply,
}

/// A place in a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Placed {
    /// Its arrival, server time in µs.
    pub arrived: u64,
    /// The part of this process in hearing Redisson's releases.
    pub role: Role,
    /// True to look at a random moment before the time in the reply, not at its end.
    pub spread: bool,
    /// True to ask then as one that was told to: the lock is free, and left to others until then.
    pub asks: bool,
}

impl Placed {
    /// Reads the elements that `stand` in `line.lua` puts behind the server's time.
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

/// The part of a process in hearing Redisson's releases: one process of a line does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Role {
    /// As before.
    Keep,
    /// Hear them.
    Take,
    /// Hear them no more.
    Leave,
}

impl Role {
    /// Reads the number by which scripts tell it: 1 take, 2 leave.
    #[must_use]
    pub const fn read(number: Option<i64>) -> Self {
        match number {
            Some(1) => Self::Take,
            Some(2) => Self::Leave,
            _ => Self::Keep,
        }
    }
}

/// The place of a request for permits in the line of those for whom permits are kept back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Sign {
    /// None.
    #[default]
    None,
    /// A place, see [`Synchronizer::leaves_sign`](crate::primitive::Synchronizer::leaves_sign).
    InLine,
    /// Passed over: it cannot be served at present, so the waiters behind it go on without it.
    Passed,
}
