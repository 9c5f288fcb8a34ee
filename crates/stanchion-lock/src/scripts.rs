//! The scripts, and the description of a lock that calls them.

use stanchion_core::primitive::{Call, HandOff, Handle, Kind, Request, Script, Synchronizer};
use stanchion_core::{Fencing, Lease, Name, WireOwner, minting};

static ACQUIRE: Script<2, 3> =
    Script::new("lock/acquire", minting!(include_str!("../lua/acquire.lua")));
static REENTER: Script<1, 4> = Script::new("lock/reenter", include_str!("../lua/reenter.lua"));
static RELEASE: Script<1, 5> = Script::new("lock/release", include_str!("../lua/release.lua"));
static HAND_OFF: Script<2, 6> = Script::new(
    "lock/hand_off",
    minting!(include_str!("../lua/hand_off.lua")),
);
static STATUS: Script<2, 0> = Script::new("lock/status", include_str!("../lua/status.lua"));
static FORCE_RELEASE: Script<1, 2> = Script::new(
    "lock/force_release",
    include_str!("../lua/force_release.lua"),
);

/// A lock, as the core sees it.
#[derive(Debug)]
pub(crate) struct Description {
    name: Name,
    channel: Vec<u8>,
    /// The counter of the tokens; the name itself where no tokens are minted.
    fence: Vec<u8>,
    publish: &'static str,
}

impl Description {
    pub(crate) fn new(handle: &Handle, name: Name, fencing: Fencing) -> Self {
        Self {
            channel: name.prefixed("redisson_lock__channel"),
            fence: fencing.key(&name),
            publish: handle.publish_command(),
            name,
        }
    }

    pub(crate) fn mints_tokens(&self) -> bool {
        self.fence != self.name.as_bytes()
    }

    pub(crate) fn status(&self) -> Call {
        STATUS.call([self.name.as_bytes(), &self.fence], [])
    }

    pub(crate) fn force_release(&self) -> Call {
        FORCE_RELEASE.call(
            [self.name.as_bytes()],
            [self.channel.as_slice().into(), self.publish.into()],
        )
    }
}

impl Synchronizer for Description {
    fn kind(&self) -> Kind {
        Kind::new("lock").plain()
    }

    fn name(&self) -> &Name {
        &self.name
    }

    fn channel(&self) -> &[u8] {
        &self.channel
    }

    fn fence(&self) -> Option<&[u8]> {
        self.mints_tokens().then_some(&self.fence)
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        ACQUIRE.call(
            [self.name.as_bytes(), &self.fence],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
            ],
        )
    }

    fn reenter(&self, request: &Request<'_>, count: u32) -> Option<Call> {
        let call = REENTER.call(
            [self.name.as_bytes()],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(count).into(),
            ],
        );
        Some(call)
    }

    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Option<Call> {
        let call = RELEASE.call(
            [self.name.as_bytes()],
            [
                owner.as_str().into(),
                u64::from(count).into(),
                lease.millis().into(),
                self.channel.as_slice().into(),
                self.publish.into(),
            ],
        );
        Some(call)
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        Some(self)
    }
}

impl HandOff for Description {
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call {
        HAND_OFF.call(
            [self.name.as_bytes(), &self.fence],
            [
                from.as_str().into(),
                to.owner.as_str().into(),
                to.lease.millis().into(),
                to.not_after.into(),
                self.channel.as_slice().into(),
                self.publish.into(),
            ],
        )
    }
}
