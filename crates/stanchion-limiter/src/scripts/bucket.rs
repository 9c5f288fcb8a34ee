//! A request for permits of a token bucket, as the core sees it.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{
    Call, Dated, Hint, Item, Kind, Operation, Reply, Request, Script, Sharing, Synchronizer,
    Tenure, whole_millis,
};
use stanchion_client::{Lease, Name, WireOwner};

use crate::keys::BucketKeys;
use crate::limited::Answer;

/// Builds a script, with the shared functions in front.
macro_rules! script {
    ($name:literal, $file:literal) => {
        Script::new(
            $name,
            concat!(
                include_str!("../../lua/bucket/bucket.lua"),
                include_str!(concat!("../../lua/bucket/", $file))
            ),
        )
    };
}

static ACQUIRE: Script<1, 6> = script!("bucket/acquire", "acquire.lua");
static ABANDON: Script<1, 3> = script!("bucket/abandon", "abandon.lua");

/// One request.
#[derive(Debug)]
pub(crate) struct BucketDescription {
    pub(crate) keys: Arc<BucketKeys>,
    pub(crate) limits: Arc<str>,
    pub(crate) permits: u32,
    pub(crate) horizon: Duration,
    /// The longest wait.
    pub(crate) patience: Option<Duration>,
    pub(crate) answer: Arc<Answer>,
}

impl Synchronizer for BucketDescription {
    fn kind(&self) -> Kind {
        Kind::new("token_bucket")
    }

    fn name(&self) -> &Name {
        &self.keys.name
    }

    fn channel(&self) -> &[u8] {
        &self.keys.channel
    }

    fn sharing(&self) -> Sharing {
        Sharing::Permits(self.permits)
    }

    fn tenure(&self) -> Tenure {
        Tenure::Unleased
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        ACQUIRE.call(
            [&self.keys.bucket],
            [
                request.owner.as_str().into(),
                u64::from(self.permits).into(),
                request.not_after.into(),
                super::until(request, self.patience).into(),
                whole_millis(self.horizon).into(),
                (&*self.limits).into(),
            ],
        )
    }

    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Option<Call> {
        let permits = u64::from(self.permits).into();
        Some(ABANDON.call(
            [&self.keys.bucket],
            [owner.as_str().into(), permits, (&*self.limits).into()],
        ))
    }

    fn renewals(&self, _owner: &WireOwner, _lease: Lease) -> Vec<Item> {
        Vec::new()
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        self.answer.refused(rest)
    }

    fn dated(&self, rest: &[Reply]) -> Dated {
        self.answer.granted(rest)
    }
}

/// Reads the state, and takes nothing.
pub(crate) fn look(keys: &BucketKeys, limits: &str, operation: &Operation) -> Call {
    ACQUIRE.call(
        [&keys.bucket],
        [
            operation.id.as_str().into(),
            0.into(),
            operation.not_after.into(),
            0.into(),
            0.into(),
            limits.into(),
        ],
    )
}
