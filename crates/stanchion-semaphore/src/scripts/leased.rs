//! A request for leased permits, as the core sees it.

use std::sync::Arc;

use stanchion_client::primitive::{
    About, Call, HandOff, Holdable, Item, Kind, Operation, Reply, Request, Script, ServerQueue,
    Synchronizer, Visible, unexpected,
};
use stanchion_client::{Lease, Name, NameState, QueryError, WireOwner};

use super::script;
use crate::ids::PermitId;
use crate::keys::{Keys, remark};
use crate::status::LeasedStatus;

pub static ACQUIRE: Script<5, 10> = script!(
    "leased/acquire",
    "pool/free.lua" "pool/idle.lua" "leased/acquire.lua" => queued with "pool/request.lua"
);
pub static RELEASE: Script<5, 5> = script!(
    "leased/release",
    "pool/free.lua" "pool/idle.lua" "pool/reserved.lua" "leased/release.lua" => queued with "pool/returned.lua"
);
pub static HAND_OFF: Script<5, 8> = script!(
    "leased/hand_off",
    "pool/free.lua" "pool/idle.lua" "pool/reserved.lua" "leased/hand_off.lua"
);
pub static RENEW: Script<3, 3> = script!("leased/renew", "pool/idle.lua" "leased/renew.lua");
pub static SET_TOTAL: Script<5, 5> = script!(
    "leased/set_total",
    "pool/free.lua" "pool/idle.lua" "pool/announced.lua" "pool/once.lua" "leased/set_total.lua"
);
pub static RECLAIM: Script<4, 4> = script!(
    "leased/reclaim",
    "pool/free.lua" "pool/announced.lua" "pool/once.lua" "leased/reclaim.lua"
);
pub static STATUS: Script<2, 1> = script!("leased/status", "pool/free.lua" "leased/status.lua");

/// The number of leases that [`LeasedSemaphore::status`] lists.
pub(crate) const LISTED: u64 = 1000;

/// The number of ended leases that a request reaps at most beyond the permits that it needs: about 0.1 ms of the server's time.
const REAP: u64 = 100;

/// A request for a number of leased permits of one semaphore.
#[derive(Debug)]
pub(crate) struct LeasedDescription {
    about: About,
    keys: Arc<Keys>,
    permits: u32,
}

impl LeasedDescription {
    pub(crate) fn new(keys: &Arc<Keys>, permits: u32) -> Self {
        Self {
            about: About {
                notices: Some(keys.held_channel().into()),
                ..keys.about("leased_semaphore", permits)
            },
            keys: Arc::clone(keys),
            permits,
        }
    }
}

impl Visible for LeasedDescription {
    fn subject(&self) -> (Kind, &Name) {
        (self.about.kind, &self.keys.name)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        vec![self.keys.name.as_bytes().to_vec(), self.keys.held.clone()]
    }

    fn look(&self) -> Call {
        status(&self.keys, LISTED)
    }

    fn see(&self, reply: &Reply) -> Result<NameState, QueryError> {
        let status = LeasedStatus::read(reply).ok_or_else(|| unexpected(reply))?;
        Ok(status.seen())
    }
}

impl Synchronizer for LeasedDescription {
    fn about(&self) -> &About {
        &self.about
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let ids = PermitId::joined(request.owner, self.permits);
        let [base, publish] = self.keys.common();
        let (ask, made) = (request.ask(), self.keys.made());
        ACQUIRE.call(
            self.keys.serving_leased(),
            [
                request.owner.as_str().into(),
                ids.as_slice().into(),
                request.lease.millis().into(),
                request.not_after.into(),
                ask.as_ref().into(),
                (REAP + u64::from(self.permits)).into(),
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

impl Holdable for LeasedDescription {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        self.give_back(self.keys.serving_leased(), owner, false)
    }

    fn release_alone(&self, owner: &WireOwner) -> Option<Call> {
        Some(self.give_back(self.keys.alone(), owner, false))
    }

    fn abandon(&self, owner: &WireOwner, _lease: Lease) -> Call {
        self.give_back(self.keys.serving_leased(), owner, true)
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        let keys = &*self.keys;
        let leases = || keys.held.clone();
        let renewal = |index| {
            let args = [
                PermitId::of(owner, index).as_bytes().to_vec(),
                lease.millis().to_string().into_bytes(),
            ];
            let alone = RENEW.item([leases(), leases(), leases()], args.clone());
            RENEW
                .item(
                    [leases(), keys.name.as_bytes().to_vec(), keys.idle.clone()],
                    args,
                )
                .or_in_parts([alone])
        };
        (0..self.permits).map(renewal).collect()
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        Some(self)
    }
}

impl LeasedDescription {
    /// Gives back what `owner` holds, or has asked for; with `entries` also its entry in the queue.
    fn give_back(&self, keys: [&[u8]; 5], owner: &WireOwner, entries: bool) -> Call {
        let ids = PermitId::joined(owner, self.permits);
        let [base, publish] = self.keys.common();
        RELEASE.call(
            keys,
            [
                owner.as_str().into(),
                ids.as_slice().into(),
                base,
                publish,
                u64::from(entries).into(),
            ],
        )
    }
}

impl HandOff for LeasedDescription {
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call {
        let [given, got] = [from, to.owner].map(|owner| PermitId::joined(owner, self.permits));
        let [base, publish] = self.keys.common();
        HAND_OFF.call(
            self.keys.serving_leased(),
            [
                got.as_slice().into(),
                to.lease.millis().into(),
                to.not_after.into(),
                given.as_slice().into(),
                base,
                publish,
                self.keys.yields(to.yields),
                u64::from(to.approach.hears).into(),
            ],
        )
    }
}

pub(crate) fn set_total(keys: &Keys, total: u32, operation: &Operation) -> Call {
    let [free, held, line, _, idle] = keys.serving_leased();
    let [base, publish] = keys.common();
    SET_TOTAL.call(
        [free, held, &keys.once(operation), line, idle],
        [
            u64::from(total).into(),
            operation.not_after.into(),
            base,
            publish,
            keys.made().as_str().into(),
        ],
    )
}

pub(crate) fn reclaim(keys: &Keys, id: &PermitId, operation: &Operation) -> Call {
    let [free, held, line, ..] = keys.serving_leased();
    let [base, publish] = keys.common();
    RECLAIM.call(
        [free, held, &keys.once(operation), line],
        [
            id.as_bytes().as_slice().into(),
            operation.not_after.into(),
            base,
            publish,
        ],
    )
}

/// Reads the status, with the `list` leases that end first.
pub(crate) fn status(keys: &Keys, list: u64) -> Call {
    STATUS.call([keys.name.as_bytes(), &keys.held], [list.into()])
}
