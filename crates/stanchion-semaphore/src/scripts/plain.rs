//! A request for plain permits, as the core sees it.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Arg, Call, HandOff, Holdable, Kind, Operation, Reply, Request, Script, ServerQueue,
    Synchronizer, Visible, unexpected,
};
use stanchion_client::{Lease, Name, NameState, QueryError, WireOwner};

use super::script;
use crate::keys::{Keys, remark};
use crate::status::SemaphoreStatus;

pub static ACQUIRE: Script<6, 8> = script!(
    "semaphore/acquire",
    "pool/free.lua" "pool/idle.lua" "plain/acquire.lua" => queued with "pool/request.lua"
);
pub static RELEASE: Script<6, 5> = script!(
    "semaphore/release",
    "pool/free.lua" "pool/idle.lua" "pool/reserved.lua" "plain/release.lua" => queued with "pool/returned.lua"
);
pub static HAND_OFF: Script<4, 8> = script!(
    "semaphore/hand_off",
    "pool/free.lua" "pool/reserved.lua" "plain/hand_off.lua"
);
pub static RECLAIM: Script<6, 4> = script!(
    "semaphore/reclaim",
    "pool/free.lua" "pool/idle.lua" "pool/announced.lua" "pool/once.lua" "plain/reclaim.lua"
);
pub static STATUS: Script<2, 1> = script!("semaphore/status", "pool/free.lua" "plain/status.lua");

/// A request for a number of permits of one semaphore.
#[derive(Debug)]
pub(crate) struct Description {
    about: About,
    keys: Arc<Keys>,
    permits: u32,
}

impl Description {
    pub(crate) fn new(keys: &Arc<Keys>, permits: u32) -> Self {
        Self {
            about: About {
                is_leased: false,
                ..keys.about("semaphore", permits)
            },
            keys: Arc::clone(keys),
            permits,
        }
    }
}

impl Description {
    /// The arguments of the release of what `owner` holds, or has asked for; with `entries` it gives up its entry in the queue, too.
    fn returned<'a>(&'a self, owner: &'a WireOwner, entries: bool) -> [Arg<'a>; 5] {
        let [base, publish] = self.keys.common();
        let permits = u64::from(self.permits).into();
        let entries = u64::from(entries).into();
        [owner.as_str().into(), permits, base, publish, entries]
    }
}

impl Visible for Description {
    fn subject(&self) -> (Kind, &Name) {
        (self.about.kind, &self.keys.name)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        vec![self.keys.name.as_bytes().to_vec(), self.keys.held.clone()]
    }

    fn look(&self) -> Call {
        status(&self.keys, true)
    }

    fn see(&self, reply: &Reply) -> Result<NameState, QueryError> {
        let status = SemaphoreStatus::read(reply).ok_or_else(|| unexpected(reply))?;
        Ok(status.seen())
    }
}

impl Synchronizer for Description {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let [base, publish] = self.keys.common();
        let (ask, made) = (request.ask(), self.keys.made());
        ACQUIRE.call(
            self.keys.serving(),
            [
                request.owner.as_str().into(),
                u64::from(self.permits).into(),
                request.not_after.into(),
                ask.as_ref().into(),
                base,
                publish,
                self.keys.kept.into(),
                made.as_str().into(),
            ],
        )
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    fn remark(&self, rest: &[Reply]) -> Option<&'static str> {
        remark(rest)
    }

    fn server_queue(&self) -> Option<&dyn ServerQueue> {
        Some(&*self.keys)
    }
}

impl Holdable for Description {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        RELEASE.call(self.keys.serving(), self.returned(owner, false))
    }

    fn release_alone(&self, owner: &WireOwner) -> Option<Call> {
        Some(RELEASE.call(self.keys.alone(), self.returned(owner, false)))
    }

    fn abandon(&self, owner: &WireOwner, _lease: Lease) -> Call {
        RELEASE.call(self.keys.serving(), self.returned(owner, true))
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        Some(self)
    }
}

impl HandOff for Description {
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call {
        let [owner, permits, ..] = self.returned(from, false);
        let [free, ledger, line, wake, ..] = self.keys.serving();
        let [base, publish] = self.keys.common();
        HAND_OFF.call(
            [free, ledger, line, wake],
            [
                to.owner.as_str().into(),
                to.not_after.into(),
                owner,
                permits,
                base,
                publish,
                self.keys.yields(to.yields),
                u64::from(to.approach.hears).into(),
            ],
        )
    }
}

pub(crate) fn reclaim(keys: &Keys, owner: &str, operation: &Operation) -> Call {
    let [free, held, line, _, _, idle] = keys.serving();
    let [base, publish] = keys.common();
    RECLAIM.call(
        [free, held, &keys.once(operation), &keys.total, line, idle],
        [owner.into(), operation.not_after.into(), base, publish],
    )
}

/// Reads the status, with the list of holders if `holders`.
pub(crate) fn status(keys: &Keys, holders: bool) -> Call {
    STATUS.call(
        [keys.name.as_bytes(), &keys.held],
        [u64::from(holders).into()],
    )
}
