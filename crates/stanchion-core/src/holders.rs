//! Describes how to read the current holders of a name from the server.

use std::borrow::Cow;

/// Describes how to read the current holders of a name from the server. Deadlock detection finds the blockers of a waiter with it.
///
/// Processes write this description into their records, so that a process can read the holders of a synchronizer that it does not know.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Holders {
    /// The server has no list of owners. Only the records of the processes list the holders.
    #[default]
    Untold,
    /// The same as `Untold`, for permits: the release of some of several holders may be enough.
    Permits,
    /// The holder is the one field of the hash `name`.
    One,
    /// Like `One`. The next holders are in a list; Redisson's rule makes its key with this prefix ([`Name::prefixed`](crate::Name::prefixed)).
    Queue(Cow<'static, str>),
    /// The holders are fields of the hash `name` of a read-write lock. This is the reading side of the lock.
    Readers,
    /// The same for the writing side.
    Writer,
}
