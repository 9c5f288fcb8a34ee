//! The write side, as the core sees it.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Call, Hint, Holdable, Holders, Item, Placed, Reply, Request, Script, ServerQueue,
    Synchronizer, renew_field,
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
pub(crate) struct WriteSide {
    about: About,
    layout: Arc<Layout>,
}

impl WriteSide {
    pub(crate) fn of(layout: &Arc<Layout>) -> Self {
        Self {
            about: About {
                fence: layout.fence.clone(),
                holders: Some(Holders::Writer),
                ..layout.about("rwlock_write")
            },
            layout: Arc::clone(layout),
        }
    }

    fn give_back(&self, owner: &WireOwner, count: u32, lease: Lease, places: bool) -> Call {
        let [base, publish] = self.layout.base();
        RELEASE.call(
            self.layout.keys(),
            [
                base,
                publish,
                owner.as_str().into(),
                u64::from(count).into(),
                lease.millis().into(),
                self.layout.hold_keys(),
                u64::from(places).into(),
            ],
        )
    }
}

impl Synchronizer for WriteSide {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let [base, publish] = self.layout.base();
        let ask = request.ask();
        ACQUIRE.call(
            self.layout.keys(),
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                ask.as_ref().into(),
                publish,
                base,
                self.layout.hold_keys(),
            ],
        )
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        Placed::read(rest).map_or(Hint::None, Hint::Placed)
    }

    fn server_queue(&self) -> Option<&dyn ServerQueue> {
        Some(self)
    }
}

impl Holdable for WriteSide {
    fn reenter(&self, request: &Request<'_>, count: u32) -> Option<Call> {
        Some(REENTER.call(
            [self.layout.main()],
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
        let [base, publish] = self.layout.base();
        Some(RELEASE_ALONE.call([self.layout.main()], [base, publish, owner.as_str().into()]))
    }

    fn abandon(&self, owner: &WireOwner, lease: Lease) -> Call {
        self.give_back(owner, 1, lease, true)
    }

    fn downgrade(&self, from: &WireOwner, to: &Request<'_>) -> Option<Call> {
        let [lock, _, line, wake, readers] = self.layout.keys();
        let [base, publish] = self.layout.base();
        Some(DOWNGRADE.call(
            [lock, line, wake, readers, &self.layout.hold_key(to.owner)],
            [
                base,
                publish,
                from.as_str().into(),
                to.owner.as_str().into(),
                to.lease.millis().into(),
                to.not_after.into(),
                self.layout.hold_keys(),
            ],
        ))
    }

    fn downgraded(&self) -> Option<Arc<dyn Synchronizer>> {
        Some(Arc::new(ReadSide::of(&self.layout)))
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        vec![renew_field(&self.about.name, &write_field(owner), lease)]
    }

    fn force_release(&self) -> Option<Call> {
        Some(self.layout.force_release("write"))
    }
}

impl ServerQueue for WriteSide {
    fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        self.layout.neighbours(name)
    }

    fn tend(&self, heard: bool) -> Option<Call> {
        Some(self.layout.tend(heard))
    }
}
