//! A subject of locks: a name of one kind, in one database of one server.

use crate::program::{Named, Seat, What};

/// Kinds whose main keys have the same type: these meet under one name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Family {
    /// Locks, fair locks, read-write locks.
    Hash,
    Permits,
    Leased,
    Latch,
    Rate,
    /// Their keys are none of the others'.
    Bucket,
    Barrier,
    Double,
}

impl Family {
    /// Returns whether its keys are none of the others'.
    pub(crate) const fn is_apart(self) -> bool {
        matches!(self, Self::Bucket | Self::Barrier | Self::Double)
    }

    pub(crate) const fn is_barrier(self) -> bool {
        matches!(self, Self::Barrier | Self::Double)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Spot {
    pub(crate) server: u8,
    pub(crate) database: u8,
    pub(crate) family: Family,
    pub(crate) name: Named,
}

/// The relation of a holder to others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Alone,
    Together,
    Of(u32),
    /// One node of a RedLock: it may hold fewer than all.
    Quorum,
    /// Takes nothing, and waits until nobody else has it.
    Absent,
}

/// One part of what a call wants or a guard has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Use {
    pub(crate) spot: Spot,
    pub(crate) side: Side,
    /// The client it goes through.
    pub(crate) client: u8,
    /// Whose tokens it gets.
    pub(crate) tokens: Tokens,
    pub(crate) queue: Queue,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tokens {
    None,
    OfSlot,
    OfName,
}

/// The order in which waiters are served, and by whom.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Queue {
    /// Nobody across processes.
    Open,
    Fair,
    /// Writers hold readers off.
    Polite,
    /// By priority, and told as Redisson's waiters are.
    Elected,
}

impl Spot {
    /// The name without braces: names that are equal so share channels and keys.
    pub(crate) fn base(self) -> &'static str {
        self.name.trim_matches(['{', '}'])
    }
}

/// The uses of `what`, asked for through `client`. `seats`: of all clients; `nodes`: the clients of a RedLock.
pub(crate) fn uses(what: &What, client: u8, seats: &[Seat], nodes: &[u8]) -> Vec<Use> {
    let Some(seat) = seats.get(usize::from(client)) else {
        return Vec::new();
    };
    let one = |family, name: &Named, side, tokens, queue| {
        vec![Use {
            spot: Spot {
                server: seat.server,
                database: seat.database,
                family,
                name,
            },
            side,
            client,
            tokens,
            queue,
        }]
    };
    match what {
        What::Lock(n) => one(Family::Hash, n, Side::Alone, Tokens::OfSlot, Queue::Open),
        What::Bare(n) => one(Family::Hash, n, Side::Alone, Tokens::None, Queue::Open),
        What::Own(n) => one(Family::Hash, n, Side::Alone, Tokens::OfName, Queue::Open),
        What::Fair(n) => one(Family::Hash, n, Side::Alone, Tokens::OfSlot, Queue::Fair),
        What::Read(n) => one(Family::Hash, n, Side::Together, Tokens::None, Queue::Open),
        What::Write(n) => one(Family::Hash, n, Side::Alone, Tokens::OfSlot, Queue::Open),
        What::PoliteRead(n) => one(Family::Hash, n, Side::Together, Tokens::None, Queue::Polite),
        What::PoliteWrite(n) => one(Family::Hash, n, Side::Alone, Tokens::OfSlot, Queue::Polite),
        What::Permits(n, k) => one(Family::Permits, n, Side::Of(*k), Tokens::None, Queue::Open),
        What::Leased(n, k) => one(Family::Leased, n, Side::Of(*k), Tokens::None, Queue::Open),
        What::Latch(n) => one(Family::Latch, n, Side::Together, Tokens::None, Queue::Open),
        What::Leader(n, _) => one(Family::Hash, n, Side::Alone, Tokens::OfSlot, Queue::Elected),
        What::Job(n, ..) => one(Family::Hash, n, Side::Alone, Tokens::OfSlot, Queue::Open),
        What::Free(n) => one(Family::Hash, n, Side::Absent, Tokens::None, Queue::Open),
        What::Rate(n, k) => one(Family::Rate, n, Side::Of(*k), Tokens::None, Queue::Open),
        What::Bucket(n, k) => one(Family::Bucket, n, Side::Of(*k), Tokens::None, Queue::Open),
        What::Meet(n, ..) => one(
            Family::Barrier,
            n,
            Side::Together,
            Tokens::None,
            Queue::Open,
        ),
        What::Inside(n, _) => one(Family::Double, n, Side::Together, Tokens::None, Queue::Open),
        What::Multi(members) => members
            .iter()
            .flat_map(|(client, what)| uses(what, *client, seats, nodes))
            .collect(),
        What::Red(n) => nodes
            .iter()
            .flat_map(|node| uses(&What::Bare(n), *node, seats, nodes))
            .map(|used| Use {
                side: Side::Quorum,
                ..used
            })
            .collect(),
    }
}
