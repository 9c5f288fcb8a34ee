//! The scripts, and the description of a lock that calls them.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Arg, Call, HandOff, Handle, Holdable, Kind, Line, Reply, Request, Script, ServerQueue,
    Synchronizer, Visible, Yields, adopt_field,
};
use stanchion_client::{
    Fencing, Lease, Name, NameState, QueryError, WireOwner, in_line, minting, noticing,
};

use crate::status::LockStatus;

pub static ACQUIRE: Script<4, 6> = Script::new(
    "lock/acquire",
    in_line!(minting!(include_str!("../lua/acquire.lua"))),
);
pub static REENTER: Script<1, 4> = Script::new("lock/reenter", include_str!("../lua/reenter.lua"));
pub static EXIT: Script<1, 3> = Script::new("lock/exit", include_str!("../lua/exit.lua"));
pub static RELEASE: Script<4, 4> =
    Script::new("lock/release", in_line!(include_str!("../lua/release.lua")));
pub static RELEASE_ALONE: Script<1, 3> = Script::new(
    "lock/release_alone",
    include_str!("../lua/release_alone.lua"),
);
pub static TEND: Script<4, 3> = Script::new("lock/tend", in_line!(include_str!("../lua/tend.lua")));
pub static HAND_OFF: Script<4, 7> = Script::new(
    "lock/hand_off",
    in_line!(minting!(include_str!("../lua/hand_off.lua"))),
);
pub static STATUS: Script<2, 0> = Script::new("lock/status", include_str!("../lua/status.lua"));
pub static FORCE_RELEASE: Script<4, 3> = Script::new(
    "lock/force_release",
    in_line!(noticing!(include_str!("../lua/force_release.lua"))),
);

/// A lock, as the core sees it.
#[derive(Debug)]
pub(crate) struct Description {
    about: About,
    line: Line,
    /// Beginning of the channels of holders.
    notice: Vec<u8>,
}

impl Description {
    pub(crate) fn new(handle: &Handle, name: Name, fencing: Fencing) -> Self {
        let line = Line::of(handle, &name);
        Self {
            notice: handle.notice(&name),
            about: About {
                fence: fencing.counter(&name),
                ..About::new(Kind::new("lock").plain(), name, Arc::clone(&line.channel))
            },
            line,
        }
    }

    pub(crate) const fn name(&self) -> &Name {
        &self.about.name
    }

    pub(crate) const fn mints_tokens(&self) -> bool {
        self.about.fence.is_some()
    }

    fn keys(&self) -> [&[u8]; 4] {
        let Line { line, wake, .. } = &self.line;
        [self.name().as_bytes(), self.about.fence_key(), line, wake]
    }

    /// The first arguments of every script that handles the line.
    fn common(&self) -> [Arg<'_>; 2] {
        [self.line.base.as_slice().into(), self.line.publish.into()]
    }

    pub(crate) const fn line(&self) -> &Line {
        &self.line
    }

    pub(crate) fn status(&self) -> Call {
        STATUS.call([self.name().as_bytes(), self.about.fence_key()], [])
    }

    /// The script that ends the last hold of `owner`, and with `places` its place in the line.
    fn free(&self, owner: &WireOwner, places: bool) -> Call {
        let [base, publish] = self.common();
        RELEASE.call(
            self.keys(),
            [
                base,
                publish,
                owner.as_str().into(),
                u64::from(places).into(),
            ],
        )
    }

    /// The script that ends the hold of `from` for `to`, or for the head of the line. `keep`: see the script.
    fn pass(&self, from: &WireOwner, to: &Request<'_>, keep: u64) -> Call {
        let [base, publish] = self.common();
        HAND_OFF.call(
            self.keys(),
            [
                base,
                publish,
                from.as_str().into(),
                to.owner.as_str().into(),
                to.lease.millis().into(),
                to.not_after.into(),
                keep.into(),
            ],
        )
    }
}

impl Visible for Description {
    fn subject(&self) -> (Kind, &Name) {
        (self.about.kind, self.name())
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        vec![self.name().as_bytes().to_vec()]
    }

    fn look(&self) -> Call {
        self.status()
    }

    fn see(&self, reply: &Reply) -> Result<NameState, QueryError> {
        Ok(LockStatus::read(reply)?.seen())
    }
}

impl Synchronizer for Description {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        if let Some(adopt) = adopt_field(self.name(), self.about.fence_key(), request) {
            return adopt;
        }
        let [base, publish] = self.common();
        let ask = request.ask();
        ACQUIRE.call(
            self.keys(),
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                ask.as_ref().into(),
                publish,
                base,
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

impl Holdable for Description {
    fn reenter(&self, request: &Request<'_>, count: u32) -> Option<Call> {
        let call = REENTER.call(
            [self.name().as_bytes()],
            [
                request.owner.as_str().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                u64::from(count).into(),
            ],
        );
        Some(call)
    }

    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Call {
        if count > 1 {
            EXIT.call(
                [self.name().as_bytes()],
                [
                    owner.as_str().into(),
                    u64::from(count).into(),
                    lease.millis().into(),
                ],
            )
        } else {
            self.free(owner, false)
        }
    }

    fn release_alone(&self, owner: &WireOwner) -> Option<Call> {
        let [base, publish] = self.common();
        Some(RELEASE_ALONE.call(
            [self.name().as_bytes()],
            [base, publish, owner.as_str().into()],
        ))
    }

    fn abandon(&self, owner: &WireOwner, _lease: Lease) -> Call {
        self.free(owner, true)
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        Some(self)
    }

    fn force_release(&self) -> Option<Call> {
        let [base, publish] = self.common();
        Some(FORCE_RELEASE.call(self.keys(), [base, publish, self.notice.as_slice().into()]))
    }
}

impl HandOff for Description {
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call {
        let turn = match to.yields {
            Yields::No => 1,
            Yields::Outside => 2,
            Yields::All => 0,
        };
        self.pass(from, to, turn)
    }
}

impl ServerQueue for Description {
    fn neighbours(&self, name: &Name) -> Option<&[u8]> {
        (name == self.name()).then_some(self.line.base.as_slice())
    }

    fn tend(&self, heard: bool) -> Option<Call> {
        let [base, publish] = self.common();
        let sentry = if heard { self.line.client() } else { b"" };
        Some(TEND.call(self.keys(), [base, publish, sentry.into()]))
    }
}
