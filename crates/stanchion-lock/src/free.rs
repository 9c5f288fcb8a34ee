//! The event that a lock becomes free, for tasks that wait for it without acquiring the lock.

use stanchion_client::primitive::{
    Call, Kind, Line, Request, Script, Sharing, Synchronizer, Tenure,
};
use stanchion_client::{Lease, Name, WireOwner};

static FREE: Script<1, 0> = Script::new("lock/free", include_str!("../lua/free.lua"));

/// The event that a lock is free, as the core sees it.
#[derive(Debug)]
pub(crate) struct Free {
    name: Name,
    /// Redisson's channel: a release that leaves the lock free is published there.
    channel: Vec<u8>,
}

impl Free {
    pub(crate) fn of(name: &Name, line: &Line) -> Self {
        Self {
            name: name.clone(),
            channel: line.base.clone(),
        }
    }
}

impl Synchronizer for Free {
    fn kind(&self) -> Kind {
        Kind::new("lock_free")
    }

    fn name(&self) -> &Name {
        &self.name
    }

    fn channel(&self) -> &[u8] {
        &self.channel
    }

    fn sharing(&self) -> Sharing {
        Sharing::Event
    }

    fn tenure(&self) -> Tenure {
        Tenure::Nothing
    }

    fn acquire(&self, _request: &Request<'_>) -> Call {
        FREE.call([self.name.as_bytes()], [])
    }

    fn release(&self, _owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        None
    }
}
