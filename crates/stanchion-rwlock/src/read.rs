//! The read side, as the core sees it.

use std::sync::Arc;

use stanchion_core::primitive::{
    Call, Item, Kind, Request, Script, Sharing, Synchronizer, renew_field,
};
use stanchion_core::{Lease, Name, WireOwner};

use crate::layout::{Layout, with_dead, write_field};
use crate::preference::Preference;

static ACQUIRE: Script<5, 6> = Script::new("rwlock/read_acquire", with_dead!("read_acquire"));
static REENTER: Script<3, 4> = Script::new(
    "rwlock/read_reenter",
    include_str!("../lua/read_reenter.lua"),
);
static RELEASE: Script<4, 6> = Script::new("rwlock/read_release", with_dead!("read_release"));
static RENEW: Script<3, 3> =
    Script::new("rwlock/renew_read", include_str!("../lua/renew_read.lua"));

static RENEW_HOLD_KEY: Script<1, 2> = Script::new(
    "rwlock/renew_hold_key",
    include_str!("../lua/renew_hold_key.lua"),
);

static RENEW_END: Script<1, 3> =
    Script::new("rwlock/renew_end", include_str!("../lua/renew_end.lua"));

/// The read side: readers hold together, but not beside a writer.
#[derive(Debug)]
pub(crate) struct ReadSide(pub(crate) Arc<Layout>);

impl ReadSide {
    fn give_back(&self, owner: &WireOwner, count: u32, lease: Lease, turn: &[u8]) -> Call {
        RELEASE.call(
            [
                self.0.main(),
                &self.0.hold_key(owner),
                self.0.readers(),
                turn,
            ],
            [
                owner.as_str().into(),
                u64::from(count).into(),
                lease.millis().into(),
                self.0.channel(),
                self.0.publish(),
                self.0.hold_keys(),
            ],
        )
    }
}

impl Synchronizer for ReadSide {
    fn kind(&self) -> Kind {
        Kind::new("rwlock_read").of_family("rwlock")
    }

    fn name(&self) -> &Name {
        &self.0.name
    }

    fn channel(&self) -> &[u8] {
        &self.0.channel
    }

    fn sharing(&self) -> Sharing {
        Sharing::Together
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let within = request.within.map(write_field).unwrap_or_default();
        ACQUIRE.call(
            [
                self.0.main(),
                &self.0.hold_key(request.owner),
                self.0.readers(),
                self.0.mark(),
                self.0.turn(),
            ],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                within.as_str().into(),
                self.0.hold_keys(),
                self.0.grace(request),
            ],
        )
    }

    fn reenter(&self, request: &Request<'_>, count: u32) -> Option<Call> {
        Some(REENTER.call(
            [
                self.0.main(),
                &self.0.hold_key(request.owner),
                self.0.readers(),
            ],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(count).into(),
            ],
        ))
    }

    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Option<Call> {
        Some(self.give_back(owner, count, lease, self.0.main()))
    }

    fn abandon(&self, owner: &WireOwner, lease: Lease) -> Option<Call> {
        Some(self.give_back(owner, 1, lease, self.0.turn()))
    }

    fn leaves_sign(&self) -> bool {
        self.0.preference == Preference::Writer
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        let (key, ms) = (self.0.hold_key(owner), lease.millis().to_string());
        let (readers, ms) = (self.0.readers().to_vec(), ms.into_bytes());
        // A hold has three keys. While their slot migrates, they may be on two nodes.
        let parts = [
            renew_field(self.name(), owner.as_str(), lease),
            RENEW_HOLD_KEY.item([key.clone()], [ms.clone()]),
            RENEW_END.item([readers.clone()], [owner.as_str().into(), ms.clone()]),
        ];
        let all = RENEW.item(
            [self.0.main().to_vec(), key, readers],
            [owner.as_str().into(), ms],
        );
        vec![all.or_in_parts(parts)]
    }
}
