//! First requests that go with a release: one script releases a hold and acquires for a new waiter of the same process.
//!
//! Tasks that take turns release and acquire again at the same moment, and if the server keeps the queue, each of the two is a request.
//! Therefore a new waiter first lets the tasks run that are ready. If the holder is among them and releases, its script also makes the
//! request of the new waiter.

use std::sync::Arc;

use futures_util::future::join;
use tokio::sync::oneshot;

use super::lock_entry::LockEntry;
use super::shared::Host as _;
use crate::description::{Request, Synchronizer};
use crate::hold::debt::Debt;
use crate::hold::holds::Holds;
use crate::hold::queue::Piggyback;
use crate::hold::state::HoldState;
use crate::lease::Lease;
use crate::line::Approach;
use crate::wire::Limit;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Call, Failure, Outage, Path, Reply};

/// The first request of a waiter, until it is sent.
#[derive(Debug)]
pub(crate) struct FirstRequest {
    sync: Arc<dyn Synchronizer>,
    owner: WireOwner,
    lease: Lease,
    limit: Limit,
    approach: Approach,
    answer: oneshot::Sender<Option<Result<Reply, Failure>>>,
}

impl Piggyback for FirstRequest {
    fn call(&self, from: &WireOwner) -> Option<Call> {
        self.sync.server_queue()?.pass_on(from, &self.request())
    }

    fn answered(self: Box<Self>, answer: Option<Result<Reply, Failure>>) {
        // An error: the waiter was dropped with its runtime.
        let _: Result<(), _> = self.answer.send(answer);
    }
}

impl FirstRequest {
    /// Sends the request alone.
    async fn ask(self, core: &Holds) {
        let call = {
            let request = self.request();
            self.sync.acquire(&request)
        };
        let answer = core.call(Path::Direct, &call).await;
        Box::new(self).answered(Some(answer));
    }

    fn request(&self) -> Request<'_> {
        Request {
            waits: true,
            approach: self.approach,
            ..self.limit.request(&self.owner, self.lease)
        }
    }
}

impl LockEntry {
    /// Returns whether the holder may be in this process, so that its release can make the request of a new waiter for `sync`.
    pub(super) fn may_release(&self, core: &Holds, sync: &dyn Synchronizer) -> bool {
        let now = core.clock.now();
        sync.sharing().keeps_each_waiter() && self.state().queue.may_have_holder(now)
    }

    /// Makes the first request of `debt`: with the release of the holder, if there is one in this turn of the tasks, otherwise by `call`.
    pub(super) async fn ask_with_release(
        &self,
        debt: &Debt,
        limit: Limit,
        request: &Request<'_>,
        call: &Call,
    ) -> Result<Reply, Failure> {
        let core = &debt.core;
        let (answer, answered) = oneshot::channel();
        let ahead = self.take_or_put(|| FirstRequest {
            sync: Arc::clone(&debt.sync),
            owner: debt.owner.clone(),
            lease: request.lease,
            limit,
            approach: request.approach,
            answer,
        });
        if let Some(ahead) = ahead {
            // Both now, in the order in which they came: the runtime may resume the last first.
            let ((), answer) = join(ahead.ask(core), core.call(Path::Direct, call)).await;
            return answer;
        }
        tokio::task::yield_now().await;
        if self.take_piggyback(|it| it.owner == debt.owner).is_none() {
            let cut_off = |_| {
                // P3: the release ended without an answer, so this may have been executed.
                let detail = "the release that it went with was dropped".into();
                Some(Err(Failure::Unanswered(Outage::Unanswered { detail })))
            };
            if let Some(answer) = answered.await.unwrap_or_else(cut_off) {
                return answer;
            }
        }
        core.call(Path::Direct, call).await
    }

    /// Takes a request that can go with the release of `hold`.
    pub(super) fn with_release_of(&self, hold: &HoldState) -> Option<FirstRequest> {
        // P2: the tokens of both come from one counter. A request without a waiter is not made, because no task would undo it.
        self.take_piggyback(|it| it.sync.fence() == hold.sync.fence() && !it.answer.is_closed())
    }

    /// Takes the stored request, or stores another.
    fn take_or_put(&self, other: impl FnOnce() -> FirstRequest) -> Option<FirstRequest> {
        let mut state = self.state();
        let ahead = state.more.piggyback.take();
        if ahead.is_none() {
            state.more.piggyback = Some(other());
        }
        ahead
    }

    fn take_piggyback(&self, fits: impl Fn(&FirstRequest) -> bool) -> Option<FirstRequest> {
        self.state().more.piggyback.take_if(|it| fits(it))
    }
}
