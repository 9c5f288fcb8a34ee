//! A request for permits of a token bucket, as the core sees it.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{
    About, Call, Dated, Hint, Holdable, Operation, Reply, Request, Script, Synchronizer,
    whole_millis,
};
use stanchion_client::{Lease, WireOwner};

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
    pub(crate) about: About,
    pub(crate) keys: Arc<BucketKeys>,
    pub(crate) limits: Arc<str>,
    pub(crate) permits: u32,
    pub(crate) horizon: Duration,
    /// The longest wait.
    pub(crate) patience: Option<Duration>,
    pub(crate) answer: Arc<Answer>,
}

impl Synchronizer for BucketDescription {
    fn about(&self) -> &About {
        &self.about
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

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        self.answer.refused(rest)
    }

    fn dated(&self, rest: &[Reply]) -> Dated {
        self.answer.granted(rest)
    }
}

impl Holdable for BucketDescription {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        let permits = u64::from(self.permits).into();
        ABANDON.call(
            [&self.keys.bucket],
            [owner.as_str().into(), permits, (&*self.limits).into()],
        )
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
