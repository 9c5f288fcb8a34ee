//! Several locks of one server as one synchronizer: taken by one script, released by one.

use stanchion_core::primitive::{
    Arg, Call, Hint, Item, Part, Reply, Request, Script, Synchronizer, renew_field,
};
use stanchion_core::{Lease, Name, WireOwner};

static ACQUIRE: Script<2, 6> = Script::new("multilock/acquire", include_str!("../lua/acquire.lua"));
static RELEASE: Script<1, 3> = Script::new("multilock/release", include_str!("../lua/release.lua"));

/// Locks of one client and, on a cluster, of one slot, in name order.
#[derive(Debug)]
pub(crate) struct Joint {
    locks: Vec<One>,
    /// The counters of all locks, each once.
    fences: Vec<Vec<u8>>,
    publish: &'static str,
}

#[derive(Debug)]
struct One {
    name: Name,
    channel: Vec<u8>,
}

impl Joint {
    /// Not for an empty list.
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
            fences,
            publish: parts
                .first()
                .map_or("PUBLISH", |part| part.client.publish_command()),
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
    fn kind(&self) -> &'static str {
        "multilock"
    }

    /// The first name. Errors and logs carry it.
    fn name(&self) -> &Name {
        &self.first().name
    }

    /// Where a wait begins; it goes on where the server says that it is worth waiting.
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

    /// Busy: wait for the lock that was found held.
    fn hint(&self, rest: &[Reply]) -> Hint {
        let held = rest
            .first()
            .and_then(Reply::as_int)
            .and_then(|i| usize::try_from(i).ok()?.checked_sub(1))
            .and_then(|i| self.locks.get(i));
        Hint {
            elsewhere: held.map(|one| one.channel.clone()),
            ..Hint::default()
        }
    }
}
