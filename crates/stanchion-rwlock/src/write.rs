//! The write side, as the core sees it.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Call, Holdable, Item, Request, Script, ServerQueue, Synchronizer, renew_field,
};
use stanchion_client::{Lease, Name, WireOwner, minting};

use crate::layout::{Layout, in_line, with_dead, write_field};
use crate::read::ReadSide;

pub static ACQUIRE: Script<5, 7> = Script::new(
    "rwlock/write_acquire",
    in_line!(with_dead!(minting!(include_str!(
        "../lua/write_acquire.lua"
    )))),
);
pub static REENTER: Script<1, 4> = Script::new(
    "rwlock/write_reenter",
    include_str!("../lua/write_reenter.lua"),
);
pub static RELEASE: Script<5, 7> = Script::new(
    "rwlock/write_release",
    in_line!(include_str!("../lua/write_release.lua")),
);
pub static RELEASE_ALONE: Script<1, 3> = Script::new(
    "rwlock/release_alone",
    include_str!("../lua/release_alone.lua"),
);
pub static DOWNGRADE: Script<5, 7> = Script::new(
    "rwlock/downgrade",
    in_line!(include_str!("../lua/downgrade.lua")),
);

/// The write side: one writer, alone.
///
/// Its release always goes to the line: a hand-off to the next writer of the process would overtake all waiting readers.
#[derive(Debug)]
pub(crate) struct WriteSide(pub(crate) Arc<Layout>);

impl WriteSide {
    fn give_back(&self, owner: &WireOwner, count: u32, lease: Lease, places: bool) -> Call {
        let [base, publish] = self.0.base();
        RELEASE.call(
            self.0.keys(),
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

impl Synchronizer for WriteSide {
    fn about(&self) -> &About {
        &self.0.writers
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let [base, publish] = self.0.base();
        let ask = request.ask();
        ACQUIRE.call(
            self.0.keys(),
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                ask.as_ref().into(),
                publish,
                base,
                self.0.hold_keys(),
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

impl Holdable for WriteSide {
    fn reenter(&self, request: &Request<'_>, count: u32) -> Option<Call> {
        Some(REENTER.call(
            [self.0.main()],
            [
                write_field(request.owner).as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(count).into(),
            ],
        ))
    }

    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Call {
        self.give_back(owner, count, lease, false)
    }

    fn release_alone(&self, owner: &WireOwner) -> Option<Call> {
        let [base, publish] = self.0.base();
        Some(RELEASE_ALONE.call([self.0.main()], [base, publish, owner.as_str().into()]))
    }

    fn abandon(&self, owner: &WireOwner, lease: Lease) -> Call {
        self.give_back(owner, 1, lease, true)
    }

    fn downgrade(&self, from: &WireOwner, to: &Request<'_>) -> Option<Call> {
        let [lock, _, line, wake, readers] = self.0.keys();
        let [base, publish] = self.0.base();
        Some(DOWNGRADE.call(
            [lock, line, wake, readers, &self.0.hold_key(to.owner)],
            [
                base,
                publish,
                from.as_str().into(),
                to.owner.as_str().into(),
                to.lease.millis().into(),
                to.not_after.into(),
                self.0.hold_keys(),
            ],
        ))
    }

    fn downgraded(&self) -> Option<Arc<dyn Synchronizer>> {
        Some(Arc::new(ReadSide(Arc::clone(&self.0))))
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        vec![renew_field(self.0.name(), &write_field(owner), lease)]
    }

    fn force_release(&self) -> Option<Call> {
        Some(self.0.force_release("write"))
    }
}

impl ServerQueue for WriteSide {
    fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        self.0.neighbours(name)
    }

    fn tend(&self, heard: bool) -> Option<Call> {
        Some(self.0.tend(heard))
    }
}
