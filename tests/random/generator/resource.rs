//! A resource: a name of one family, in one database of one server.

use crate::generator::program::{ClientSpec, Name, Target};

/// Primitives whose main keys have the same type, so that they can share a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// Locks, fair locks, read-write locks.
    Hash,
    Permits,
    Leased,
    Latch,
    Rate,
    /// Buckets and barriers share no keys with other families.
    Bucket,
    Barrier,
    Double,
}

impl Family {
    /// Returns whether the family shares no keys with other families.
    pub(crate) const fn has_separate_keys(self) -> bool {
        matches!(self, Self::Bucket | Self::Barrier | Self::Double)
    }

    pub(crate) const fn is_barrier(self) -> bool {
        matches!(self, Self::Barrier | Self::Double)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Resource {
    pub(crate) server: u8,
    pub(crate) database: u8,
    pub(crate) family: Family,
    pub(crate) name: Name,
}

/// The relation of a hold to other holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Exclusive,
    Shared,
    Count(u32),
    /// One node of a RedLock, which may be held on some nodes only.
    Quorum,
    /// A wait until the resource is free, without a hold.
    NoHold,
}

/// One resource of a call or of a guard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) resource: Resource,
    pub(crate) side: Side,
    /// The client that sends the requests.
    pub(crate) client: u8,
    /// The source of the fencing tokens.
    pub(crate) tokens: Tokens,
    pub(crate) queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    None,
    OfSlot,
    OfName,
}

/// The order in which waiters are served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// No order between processes.
    Unordered,
    Fair,
    /// Waiting writers block new readers.
    WriterFirst,
    /// By priority. Waiters receive the same messages as Redisson's waiters.
    ByPriority,
}

impl Resource {
    /// The name without braces. Names with the same base share channels and keys.
    pub(crate) fn base(self) -> &'static str {
        self.name.trim_matches(['{', '}'])
    }
}

/// The uses of `target` through `client`. `specs`: all clients; `nodes`: the clients of a RedLock.
pub(crate) fn uses(target: &Target, client: u8, specs: &[ClientSpec], nodes: &[u8]) -> Vec<Use> {
    let Some(spec) = specs.get(usize::from(client)) else {
        return Vec::new();
    };
    let one = |family, name: &Name, side, tokens, queue| {
        vec![Use {
            resource: Resource {
                server: spec.server,
                database: spec.database,
                family,
                name,
            },
            side,
            client,
            tokens,
            queue,
        }]
    };
    let hash = |n, side, tokens, queue| one(Family::Hash, n, side, tokens, queue);
    let other = |family, n, side| one(family, n, side, Tokens::None, Queue::Unordered);
    let (alone, unordered) = (Side::Exclusive, Queue::Unordered);
    match target {
        Target::Lock(n) | Target::Write(n) | Target::Job(n, ..) => {
            hash(n, alone, Tokens::OfSlot, unordered)
        }
        Target::Unfenced(n) => hash(n, alone, Tokens::None, unordered),
        Target::NameFenced(n) => hash(n, alone, Tokens::OfName, unordered),
        Target::Fair(n) => hash(n, alone, Tokens::OfSlot, Queue::Fair),
        Target::Read(n) => hash(n, Side::Shared, Tokens::None, unordered),
        Target::WriterFirstRead(n) => hash(n, Side::Shared, Tokens::None, Queue::WriterFirst),
        Target::WriterFirstWrite(n) => hash(n, alone, Tokens::OfSlot, Queue::WriterFirst),
        Target::Leader(n, _) => hash(n, alone, Tokens::OfSlot, Queue::ByPriority),
        Target::WaitFree(n) => hash(n, Side::NoHold, Tokens::None, unordered),
        Target::Permits(n, k) => other(Family::Permits, n, Side::Count(*k)),
        Target::Leased(n, k) => other(Family::Leased, n, Side::Count(*k)),
        Target::Rate(n, k) => other(Family::Rate, n, Side::Count(*k)),
        Target::Bucket(n, k) => other(Family::Bucket, n, Side::Count(*k)),
        Target::Latch(n) => other(Family::Latch, n, Side::Shared),
        Target::Barrier(n, ..) => other(Family::Barrier, n, Side::Shared),
        Target::DoubleBarrier(n, _) => other(Family::Double, n, Side::Shared),
        Target::Multi(members) => members
            .iter()
            .flat_map(|(client, target)| uses(target, *client, specs, nodes))
            .collect(),
        Target::Red(n) => nodes
            .iter()
            .flat_map(|node| uses(&Target::Unfenced(n), *node, specs, nodes))
            .map(|used| Use {
                side: Side::Quorum,
                ..used
            })
            .collect(),
    }
}
