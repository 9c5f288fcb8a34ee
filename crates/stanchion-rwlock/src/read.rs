//! The read side, as the core sees it.

use std::sync::Arc;

use stanchion_core::primitive::{Call, Item, Request, Script, Sharing, Synchronizer};
use stanchion_core::{Lease, Name, WireOwner};

use crate::layout::{Layout, write_field};

static ACQUIRE: Script<3, 4> = Script::new(
    "rwlock/read_acquire",
    include_str!("../lua/read_acquire.lua"),
);
static REENTER: Script<2, 4> = Script::new(
    "rwlock/read_reenter",
    include_str!("../lua/read_reenter.lua"),
);
static RELEASE: Script<2, 6> = Script::new(
    "rwlock/read_release",
    include_str!("../lua/read_release.lua"),
);
static RENEW: Script<2, 3> =
    Script::new("rwlock/renew_read", include_str!("../lua/renew_read.lua"));

/// Readers hold together, beside no writer.
#[derive(Debug)]
pub(crate) struct ReadSide(pub(crate) Arc<Layout>);

impl Synchronizer for ReadSide {
    fn kind(&self) -> &'static str {
        "rwlock_read"
    }

    fn family(&self) -> &'static str {
        "rwlock"
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
                self.0.mark(),
            ],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                within.as_str().into(),
            ],
        )
    }

    fn reenter(&self, request: &Request<'_>, count: u32) -> Option<Call> {
        Some(REENTER.call(
            [self.0.main(), &self.0.hold_key(request.owner)],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(count).into(),
            ],
        ))
    }

    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Option<Call> {
        Some(RELEASE.call(
            [self.0.main(), &self.0.hold_key(owner)],
            [
                owner.as_str().into(),
                u64::from(count).into(),
                lease.millis().into(),
                self.0.channel(),
                self.0.publish(),
                self.0.hold_keys(),
            ],
        ))
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        vec![RENEW.item(
            [self.0.main().to_vec(), self.0.hold_key(owner)],
            [
                owner.as_str().into(),
                lease.millis().to_string().into_bytes(),
            ],
        )]
    }
}
