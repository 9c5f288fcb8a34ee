//! The read side, as the core sees it.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Call, Holdable, Item, Request, Script, ServerQueue, Synchronizer, renew_field,
};
use stanchion_client::{Lease, Name, WireOwner};

use crate::layout::{Layout, in_line, with_dead, write_field};

pub static ACQUIRE: Script<5, 10> = Script::new(
    "rwlock/read_acquire",
    in_line!(with_dead!(include_str!("../lua/read_acquire.lua"))),
);
pub static REENTER: Script<3, 4> = Script::new(
    "rwlock/read_reenter",
    include_str!("../lua/read_reenter.lua"),
);
pub static RELEASE: Script<6, 7> = Script::new(
    "rwlock/read_release",
    in_line!(with_dead!(include_str!("../lua/read_release.lua"))),
);
pub static RENEW: Script<3, 3> =
    Script::new("rwlock/renew_read", include_str!("../lua/renew_read.lua"));

pub static RENEW_HOLD_KEY: Script<1, 2> = Script::new(
    "rwlock/renew_hold_key",
    include_str!("../lua/renew_hold_key.lua"),
);

pub static RENEW_END: Script<1, 3> =
    Script::new("rwlock/renew_end", include_str!("../lua/renew_end.lua"));

/// The read side: readers share the lock, but not with a writer.
#[derive(Debug)]
pub(crate) struct ReadSide(pub(crate) Arc<Layout>);

impl ReadSide {
    fn give_back(&self, owner: &WireOwner, count: u32, lease: Lease, places: bool) -> Call {
        let [lock, fence, line, wake, readers] = self.0.keys();
        let [base, publish] = self.0.base();
        RELEASE.call(
            [lock, line, wake, readers, &self.0.hold_key(owner), fence],
            [
                base,
                publish,
                owner.as_str().into(),
                u64::from(count).into(),
                lease.millis().into(),
                self.0.hold_keys(),
                u64::from(places).into(),
            ],
        )
    }
}

impl Synchronizer for ReadSide {
    fn about(&self) -> &About {
        &self.0.readers
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let within = request.within.map(write_field).unwrap_or_default();
        let [lock, _, line, wake, readers] = self.0.keys();
        let [base, publish] = self.0.base();
        let ask = request.ask();
        ACQUIRE.call(
            [lock, line, wake, readers, &self.0.hold_key(request.owner)],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                ask.as_ref().into(),
                publish,
                base,
                self.0.side_of_readers().into(),
                self.0.hold_keys(),
                within.as_str().into(),
                request.since.into(),
            ],
        )
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    fn server_queue(&self) -> Option<&dyn ServerQueue> {
        Some(self)
    }
}

impl Holdable for ReadSide {
    fn reenter(&self, request: &Request<'_>, count: u32) -> Option<Call> {
        Some(REENTER.call(
            [
                self.0.main(),
                &self.0.hold_key(request.owner),
                self.0.by_end(),
            ],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(count).into(),
            ],
        ))
    }

    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Call {
        self.give_back(owner, count, lease, false)
    }

    fn abandon(&self, owner: &WireOwner, lease: Lease) -> Call {
        self.give_back(owner, 1, lease, true)
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        let (key, ms) = (self.0.hold_key(owner), lease.millis().to_string());
        let (readers, ms) = (self.0.by_end().to_vec(), ms.into_bytes());
        // A hold has three keys. While their slot migrates, they may be on two nodes.
        let parts = [
            renew_field(self.0.name(), owner.as_str(), lease),
            RENEW_HOLD_KEY.item([key.clone()], [ms.clone()]),
            RENEW_END.item([readers.clone()], [owner.as_str().into(), ms.clone()]),
        ];
        let all = RENEW.item(
            [self.0.main().to_vec(), key, readers],
            [owner.as_str().into(), ms],
        );
        vec![all.or_in_parts(parts)]
    }

    fn force_release(&self) -> Option<Call> {
        Some(self.0.force_release("read"))
    }
}

impl ServerQueue for ReadSide {
    fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        self.0.neighbours(name)
    }

    fn tend(&self, heard: bool) -> Option<Call> {
        Some(self.0.tend(heard))
    }
}
