//! A request for plain permits, as the core sees it.

use std::sync::Arc;

use stanchion_client::primitive::{
    Arg, Call, HandOff, Hint, Item, Kind, Operation, Reply, Request, Script, ServerLine, Sharing,
    Synchronizer, Tenure, Visible, unexpected,
};
use stanchion_client::{Lease, Name, NameState, QueryError, WireOwner};

use super::script;
use crate::keys::Keys;
use crate::status::SemaphoreStatus;

static ACQUIRE: Script<7, 10> = script!(
    "semaphore/acquire",
    "pool/free.lua" "plain/acquire.lua" => crowded with "pool/refused.lua" with "pool/idle.lua"
);
static RELEASE: Script<6, 4> = script!(
    "semaphore/release",
    "pool/free.lua" "plain/release.lua" => crowded with "pool/idle.lua"
);
static HAND_OFF: Script<6, 7> = script!(
    "semaphore/hand_off",
    "pool/free.lua" "plain/hand_off.lua" => crowded with "pool/idle.lua"
);
static ABANDON: Script<6, 4> = script!(
    "semaphore/abandon",
    "pool/free.lua" "pool/idle.lua" "pool/line.lua" "pool/crowd.lua" "plain/abandon.lua"
);
static RECLAIM: Script<8, 4> = script!(
    "semaphore/reclaim",
    "pool/free.lua" "pool/idle.lua" "pool/line.lua" "pool/crowd.lua" "pool/once.lua" "plain/reclaim.lua"
);
static STATUS: Script<2, 1> = script!("semaphore/status", "pool/free.lua" "plain/status.lua");

/// A request for a number of permits of one semaphore.
#[derive(Debug)]
pub(crate) struct Description {
    pub(crate) keys: Arc<Keys>,
    pub(crate) permits: u32,
}

impl Description {
    /// The arguments of the scripts that give the permits of `owner` back.
    fn returned<'a>(&'a self, owner: &'a WireOwner) -> [Arg<'a>; 4] {
        let [base, publish] = self.keys.common();
        let permits = u64::from(self.permits).into();
        [owner.as_str().into(), permits, base, publish]
    }
}

impl Visible for Description {
    fn subject(&self) -> (Kind, &Name) {
        (self.kind(), &self.keys.name)
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
    fn kind(&self) -> Kind {
        Kind::new("semaphore")
    }

    fn name(&self) -> &Name {
        &self.keys.name
    }

    fn channel(&self) -> &[u8] {
        &self.keys.crowd.channel
    }

    fn sharing(&self) -> Sharing {
        Sharing::Permits(self.permits)
    }

    fn tenure(&self) -> Tenure {
        Tenure::Unleased
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        let [base, publish] = self.keys.common();
        let made = self.keys.made();
        ACQUIRE.call(
            [
                self.keys.name.as_bytes(),
                &self.keys.held,
                &self.keys.line,
                &self.keys.crowd.line,
                &self.keys.crowd.wake,
                &self.keys.slow,
                &self.keys.idle,
            ],
            [
                request.owner.as_str().into(),
                u64::from(self.permits).into(),
                request.not_after.into(),
                super::waits(request).into(),
                base,
                publish,
                super::client(&self.keys, request),
                super::flags(request).into(),
                self.keys.kept.into(),
                made.as_str().into(),
            ],
        )
    }

    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        Some(RELEASE.call(self.keys.returning(), self.returned(owner)))
    }

    fn release_alone(&self, owner: &WireOwner) -> Option<Call> {
        Some(RELEASE.call(self.keys.alone(), self.returned(owner)))
    }

    fn abandon(&self, owner: &WireOwner, _lease: Lease) -> Option<Call> {
        Some(ABANDON.call(self.keys.returning(), self.returned(owner)))
    }

    fn renewals(&self, _owner: &WireOwner, _lease: Lease) -> Vec<Item> {
        Vec::new()
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        super::hint(rest)
    }

    fn line(&self) -> Option<&dyn ServerLine> {
        Some(&*self.keys)
    }

    fn hand_off(&self) -> Option<&dyn HandOff> {
        // A request for several permits may be in the line on the server, where a hand-off would leave its entry behind.
        (self.permits == 1).then_some(self)
    }
}

impl HandOff for Description {
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call {
        let [owner, permits, base, publish] = self.returned(from);
        HAND_OFF.call(
            self.keys.returning(),
            [
                to.owner.as_str().into(),
                to.not_after.into(),
                owner,
                permits,
                base,
                publish,
                super::waiting(to).into(),
            ],
        )
    }
}

pub(crate) fn reclaim(keys: &Keys, owner: &str, operation: &Operation) -> Call {
    let [free, held, line, crowd, wake] = keys.releasing();
    let [base, publish] = keys.common();
    RECLAIM.call(
        [
            free,
            held,
            &keys.once(operation),
            &keys.total,
            line,
            crowd,
            wake,
            &keys.idle,
        ],
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
