//! The write side, as the core sees it.

use std::sync::Arc;

use stanchion_core::primitive::{Call, Item, Kind, Request, Script, Synchronizer, renew_field};
use stanchion_core::{Lease, Name, WireOwner, minting};

use crate::layout::{Layout, with_dead, write_field};
use crate::preference::Preference;

static ACQUIRE: Script<5, 5> = Script::new(
    "rwlock/write_acquire",
    minting!(with_dead!("write_acquire")),
);
static REENTER: Script<1, 4> = Script::new(
    "rwlock/write_reenter",
    include_str!("../lua/write_reenter.lua"),
);
static RELEASE: Script<1, 5> = Script::new(
    "rwlock/write_release",
    include_str!("../lua/write_release.lua"),
);
static ABANDON: Script<2, 3> = Script::new(
    "rwlock/write_abandon",
    include_str!("../lua/write_abandon.lua"),
);
static DOWNGRADE: Script<3, 6> =
    Script::new("rwlock/downgrade", include_str!("../lua/downgrade.lua"));

/// The write side: one writer, alone.
///
/// Its release is always published: a hand-off to the next writer of the process would overtake all waiting readers.
#[derive(Debug)]
pub(crate) struct WriteSide(pub(crate) Arc<Layout>);

impl Synchronizer for WriteSide {
    fn kind(&self) -> Kind {
        Kind::new("rwlock_write").of_family("rwlock")
    }

    fn name(&self) -> &Name {
        &self.0.name
    }

    fn channel(&self) -> &[u8] {
        &self.0.channel
    }

    fn fence(&self) -> Option<&[u8]> {
        let fence = self.0.fence();
        (fence != self.0.main()).then_some(fence)
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        ACQUIRE.call(
            [
                self.0.main(),
                self.0.fence(),
                self.0.readers(),
                self.0.mark(),
                self.0.turn(),
            ],
            [
                write_field(request.owner).as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                self.0.grace(request),
                self.0.hold_keys(),
            ],
        )
    }

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

    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Option<Call> {
        Some(RELEASE.call(
            [self.0.main()],
            [
                write_field(owner).as_str().into(),
                u64::from(count).into(),
                lease.millis().into(),
                self.0.channel(),
                self.0.publish(),
            ],
        ))
    }

    fn abandon(&self, owner: &WireOwner, lease: Lease) -> Option<Call> {
        match self.0.preference {
            Preference::Redisson => self.release(owner, 1, lease),
            Preference::Writer => Some(ABANDON.call(
                [self.0.main(), self.0.mark()],
                [
                    write_field(owner).as_str().into(),
                    self.0.channel(),
                    self.0.publish(),
                ],
            )),
        }
    }

    fn leaves_sign(&self) -> bool {
        self.0.preference == Preference::Writer
    }

    fn downgrade(&self, from: &WireOwner, to: &Request<'_>) -> Option<Call> {
        Some(DOWNGRADE.call(
            [self.0.main(), &self.0.hold_key(to.owner), self.0.readers()],
            [
                write_field(from).as_str().into(),
                to.owner.as_str().into(),
                to.lease.millis().into(),
                to.not_after.into(),
                self.0.channel(),
                self.0.publish(),
            ],
        ))
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        vec![renew_field(self.name(), &write_field(owner), lease)]
    }
}
