//! Several locks of one server as one synchronizer: acquired by one script, released by one.

use std::sync::{Arc, Mutex, PoisonError};

use stanchion_core::primitive::{
    Arg, Call, Hint, Item, Kind, Part, Reply, Request, Script, Synchronizer, renew_field,
};
use stanchion_core::{Lease, Name, WireOwner};
use tokio::sync::Notify;

static ACQUIRE: Script<2, 6> = Script::new("multilock/acquire", include_str!("../lua/acquire.lua"));
static RELEASE: Script<1, 3> = Script::new("multilock/release", include_str!("../lua/release.lua"));

/// The number of times that an acquire may find a different member busy than before. Members that are held in turns would keep it
/// out for ever; a member that is held for long counts once.
const MOST_MOVES: u32 = 16;

/// Locks of one client and, on a cluster, of one slot, in name order.
#[derive(Debug)]
pub(crate) struct Joint {
    locks: Arc<[One]>,
    /// The counters of all locks, each once.
    fences: Arc<[Vec<u8>]>,
    publish: &'static str,
    refusals: Mutex<Refusals>,
    starved: Notify,
}

/// The refusals of one acquire.
#[derive(Debug, Default)]
struct Refusals {
    /// The lock that was busy last.
    last: Option<usize>,
    moves: u32,
}

/// A clone has the same locks, for another acquire.
impl Clone for Joint {
    fn clone(&self) -> Self {
        Self {
            locks: Arc::clone(&self.locks),
            fences: Arc::clone(&self.fences),
            publish: self.publish,
            refusals: Mutex::default(),
            starved: Notify::new(),
        }
    }
}

#[derive(Debug)]
struct One {
    name: Name,
    channel: Vec<u8>,
}

impl Joint {
    /// Joins `parts`, which must not be empty.
    pub(crate) fn new(parts: &[Part]) -> Self {
        let mut fences: Vec<Vec<u8>> = parts
            .iter()
            .filter_map(|part| part.sync.fence().map(<[u8]>::to_vec))
            .collect();
        fences.sort_unstable();
        fences.dedup();
        let one = |part: &Part| One {
            name: part.sync.name().clone(),
            channel: part.sync.channel().to_vec(),
        };
        Self {
            locks: parts.iter().map(one).collect(),
            fences: fences.into(),
            publish: parts
                .first()
                .map_or("PUBLISH", |part| part.handle.publish_command()),
            refusals: Mutex::default(),
            starved: Notify::new(),
        }
    }

    /// Resolves when this acquire has been sent from one busy member to another too often.
    pub(crate) async fn starved(&self) {
        self.starved.notified().await;
    }

    fn found_busy(&self, lock: usize) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        if refusals.last.replace(lock).is_some_and(|last| last != lock) {
            refusals.moves += 1;
            if refusals.moves == MOST_MOVES {
                self.starved.notify_one();
            }
        }
    }

    fn first(&self) -> &One {
        // OK: made of at least one member.
        &self.locks[0]
    }

    fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.locks.iter().map(|one| one.name.as_bytes())
    }

    fn channels(&self) -> impl Iterator<Item = Arg<'_>> {
        self.locks
            .iter()
            .map(|one| Arg::from(one.channel.as_slice()))
    }
}

impl Synchronizer for Joint {
    /// Its waiters share the queue of the lock that they wait for.
    fn kind(&self) -> Kind {
        Kind::new("multilock").of_family("lock")
    }

    /// The first name, for errors and logs.
    fn name(&self) -> &Name {
        &self.first().name
    }

    /// The channel of the first lock, where a wait begins; it moves to the lock that the server found held.
    fn channel(&self) -> &[u8] {
        &self.first().channel
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let keys: Vec<&[u8]> = self
            .names()
            .chain(self.fences.iter().map(Vec::as_slice))
            .collect();
        let locks = u64::try_from(self.locks.len()).unwrap_or(u64::MAX);
        let common = [
            request.owner.as_str().into(),
            request.lease.millis().into(),
            request.not_after.into(),
            locks.into(),
            self.publish.into(),
        ];
        ACQUIRE.batch(&keys, common.into_iter().chain(self.channels()))
    }

    fn in_parts(&self) -> bool {
        self.locks.len() > 1
    }

    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        let keys: Vec<&[u8]> = self.names().collect();
        let common = [owner.as_str().into(), self.publish.into()];
        Some(RELEASE.batch(&keys, common.into_iter().chain(self.channels())))
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        self.locks
            .iter()
            .map(|one| renew_field(&one.name, owner.as_str(), lease))
            .collect()
    }

    /// Moves the wait to the lock that was found held.
    fn hint(&self, rest: &[Reply]) -> Hint {
        let number = rest
            .first()
            .and_then(Reply::as_int)
            .and_then(|i| usize::try_from(i).ok()?.checked_sub(1));
        if let Some(number) = number {
            self.found_busy(number);
        }
        let held = number.and_then(|i| self.locks.get(i));
        held.map_or(Hint::None, |one| Hint::Elsewhere {
            name: one.name.clone(),
            channel: one.channel.clone(),
        })
    }
}
