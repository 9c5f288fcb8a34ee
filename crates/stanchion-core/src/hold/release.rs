//! The end of a hold: a smaller count, a public release, or a hand-off inside the process.
//!
//! [`one`] runs for each guard, under the mutex of the hold's `count`. While other guards are left, it only sends the smaller count to the
//! server. The last guard's release first ends the hold locally, so that `is_held` is false before the server can grant to another owner
//! (P5). Then it hands the hold to the first local waiter, if the queue allows it ([`HoldQueue::successor`](super::queue::HoldQueue::successor)), or
//! releases publicly, which publishes a message. Both are sent again until they are answered or the lease has ended the hold.
//!
//! [`super::sweep`] undoes the requests that were not answered.

use std::sync::Arc;
use std::time::Duration;

use super::hand_off::hand_off;
use super::sweep::{finished, is_divided, persist_telling, served, tend_after};
use crate::description::{End, code_of};
use crate::error::{LeaseLost, LostReason, ReleaseError};
use crate::hold::claim::Claim;
use crate::hold::queue::Piggyback;
use crate::hold::releases::Process;
use crate::hold::state::HoldState;
use stanchion_transport::{Call, Failure, Moment, Outage, Path, Reply};

/// The reply to a release whose owner holds nothing.
const GONE: i64 = -2;

/// Removes one count. Continues until the server has answered or the lease has ended the hold.
pub(crate) async fn one(state: Arc<HoldState>, path: Path) -> Result<(), ReleaseError> {
    // Locked until the answer: the counts of this owner must reach the server in this order (R4).
    let mut count = state.turn().await;
    if *count <= 1 {
        *count = 0;
        return last(&state, path).await;
    }
    let call = call(&state, *count);
    // The server receives counts, not differences, so the owner's next operation corrects a failure of this one.
    *count -= 1;
    let lost = |now| {
        state
            .lost_reason(now)
            .map(|reason| state.lease_lost(reason))
    };
    if let Some(lost) = lost(state.core.clock.now()) {
        return Err(lost.into());
    }
    let Some(call) = call else { return Ok(()) };
    // After the end of the lease there is no count to correct.
    let done = persist_telling(
        &state.core,
        &*state.sync,
        path,
        &call,
        state.valid_until(),
        false,
        &|outage| state.failed(outage),
    )
    .await;
    if let Ok((reply, _)) = &done
        && code_of(reply) == Some(GONE)
    {
        drop(state.gone());
    }
    // P8: a hold that is lost by now was not released, even if the server answered without an error.
    match (lost(state.core.clock.now()), done) {
        (Some(lost), _) => Err(lost.into()),
        (None, Ok(_)) => Ok(()),
        (None, Err(failure)) => Err(unreleased(&state, failure)),
    }
}

/// Removes the last count, which ends the hold.
async fn last(state: &Arc<HoldState>, path: Path) -> Result<(), ReleaseError> {
    end(state)?;
    if state.sync.hold().is_none() {
        return Ok(());
    }
    // The waiters of a closing client leave, so none of them would take the hold.
    let passes_on = !state.core.closing.is_cancelled();
    let successor = passes_on.then(|| state.queue.successor(state));
    let sent = Sent::begin(state);
    let outcome = match successor.flatten() {
        // Boxed: the future is large, and most releases have no successor.
        Some(successor) => Box::pin(hand_off(state, successor, path)).await,
        None => match passes_on.then(|| state.queue.piggyback(state)).flatten() {
            Some(asks) => Box::pin(with_request(state, path, asks)).await,
            None => publicly(state, path, Freed::No).await,
        },
    };
    was_sent(state, sent);
    outcome
}

/// Ends the hold locally. A hold that was lost before is cleaned up on the server, and the loss is returned.
pub(super) fn end(state: &Arc<HoldState>) -> Result<(), LeaseLost> {
    let Err(reason) = state.end() else {
        return Ok(());
    };
    // The hold has expired by the client's clock, but perhaps not by the server's. An early removal helps the waiters. If the server no
    // longer has the hold, it may have a part of it, or the owner's place in the queue: another master, or older data, has lost the grant.
    state.debt.sweep();
    Err(state.lease_lost(reason))
}

/// The moment before the first try of the release of a hold that has ended, and the server's process at that moment.
#[derive(Clone, Copy)]
pub(super) struct Sent {
    at: Moment,
    to: Process,
}

impl Sent {
    /// Begins the release, and records that in the claim.
    pub(super) fn begin(state: &HoldState) -> Self {
        let core = &state.core;
        state.debt.record(Claim::ends);
        Self {
            at: core.clock.now(),
            to: Process::now(core, state.sync.name()),
        }
    }
}

/// Does the follow-up of a release; to be called when the release has been answered or given up.
///
/// Records the release, so that it is sent again if the master loses it. If an unanswered request of this owner may still
/// run, the drop of the debt sweeps after the last such moment (P3, rule R2): only a release that is sent after that moment is final.
pub(super) fn was_sent(state: &Arc<HoldState>, sent: Sent) {
    let core = &state.core;
    // Recorded only now. If the release were still in flight, its repetition could run first, and the release would report a loss. P1: after a
    // hand-off, the new hold is live by now, so it is checked before this release is sent again.
    let (sync, owner, lease) = (&state.sync, &state.debt.owner, state.debt.claim().lease());
    core.releases.note(core, sent.to, sync, owner, lease);
    state.debt.record(|it| it.released(sent.at));
}

/// The effect of an earlier script on this owner: the script may have removed the owner already.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Freed {
    No,
    Perhaps,
}

/// The script that lowers the hold count from `count`; `None` if there is nothing to release.
fn call(state: &HoldState, count: u32) -> Option<Call> {
    let lease = state.asked(state.terms.lease, state.core.clock.now());
    let hold = state.sync.hold()?;
    Some(hold.release(&state.debt.owner, count, lease))
}

/// Releases, and publishes a message to all waiting processes.
pub(super) async fn publicly(
    state: &Arc<HoldState>,
    path: Path,
    before: Freed,
) -> Result<(), ReleaseError> {
    let core = &state.core;
    let Some(call) = call(state, 1) else {
        return Ok(());
    };
    core.tell(|sink| sink.released(state.sync.kind().name()));
    // R1: a repetition is harmless, even a late one, because no newer hold has this owner.
    let until = state.valid_until();
    let tell = |outage: &Outage| state.failed(outage);
    let sent = persist_telling(core, &*state.sync, path, &call, until, true, &tell);
    let done = match sent.await {
        Err(failure) if is_divided(&failure) => Box::pin(divided(state, path, &call, until)).await,
        done => done,
    };
    released(state, before, done)
}

/// Releases, and makes the first request of a waiter of this process, in one script.
async fn with_request(
    state: &Arc<HoldState>,
    path: Path,
    asks: Box<dyn Piggyback>,
) -> Result<(), ReleaseError> {
    let core = &state.core;
    let Some(call) = asks.call(&state.debt.owner) else {
        asks.answered(None);
        return publicly(state, path, Freed::No).await;
    };
    let answer = core.call(path, &call).await;
    match answer.map(|reply| finished(core, &*state.sync, reply)) {
        Ok(Reply::Array(replies)) if replies.len() == 2 => {
            let mut replies = replies.into_iter();
            let (first, second) = (replies.next(), replies.next());
            core.tell(|sink| sink.released(state.sync.kind().name()));
            // Before `released`, which may wake the next holder: the task that is woken last runs next on this thread.
            asks.answered(second.filter(|it| *it != Reply::Nil).map(Ok));
            released(state, Freed::No, Ok((first.unwrap_or(Reply::Nil), false)))
        }
        failed => {
            // R1, P6: a plain release is right whether or not this script has run. The waiter's request counts as unanswered if it may have run.
            let unanswered = match failed {
                Err(failure @ Failure::Unanswered(_)) => Some(Err(failure)),
                _ => None,
            };
            asks.answered(unanswered);
            publicly(state, path, Freed::Perhaps).await
        }
    }
}

/// Evaluates the outcome of a release: its reply, and whether it was sent again.
fn released(
    state: &Arc<HoldState>,
    before: Freed,
    done: Result<(Reply, bool), Failure>,
) -> Result<(), ReleaseError> {
    let core = &state.core;
    if let Ok((reply, _)) = &done {
        served(core, &*state.sync, reply);
    }
    let done = done.map(|(reply, resent)| (code_of(&reply), resent));
    let (end, outcome) = match done {
        // P6: an earlier run has released the hold.
        Ok((Some(GONE), resent)) if resent || before == Freed::Perhaps => (End::Unknown, Ok(())),
        Ok((Some(GONE), ..)) => {
            // Another master, or older data, that has lost the grant may still have the owner's place in the queue.
            state.debt.sweep();
            (End::Unknown, Err(gone(state)))
        }
        Ok((Some(_), ..)) => (End::Released, Ok(())),
        Ok((None, ..)) => (End::Unknown, Ok(())),
        Err(failure) => (End::Unknown, Err(unreleased(state, failure))),
    };
    // Called after a failure, too: this process no longer holds, and its waiters learn the server's state from their own requests.
    state.queue.freed(state, end);
    outcome
}

/// Releases while the slot is being migrated, when the server refuses a script with keys on two nodes. The line is tended as soon as possible.
async fn divided(
    state: &Arc<HoldState>,
    path: Path,
    call: &Call,
    until: Moment,
) -> Result<(Reply, bool), Failure> {
    let hold = state.sync.hold();
    let alone = hold.and_then(|it| it.release_alone(&state.debt.owner));
    let done = persist_telling(
        &state.core,
        &*state.sync,
        path,
        alone.as_ref().unwrap_or(call),
        until,
        false,
        &|outage| state.failed(outage),
    )
    .await;
    if alone.is_some() {
        tend_after(&state.core, &state.sync, Duration::ZERO);
    }
    done
}

pub(super) fn gone(state: &HoldState) -> ReleaseError {
    state.lease_lost(LostReason::Gone).into()
}

pub(super) fn ambiguous(state: &HoldState) -> ReleaseError {
    ReleaseError::Ambiguous {
        name: state.sync.name().clone(),
        free_by: state.free_by(),
        outage: state.take_outage(),
    }
}

/// Gives back the grant of a used-up hold. Continues until the server has answered.
pub(super) async fn after_its_end(state: Arc<HoldState>) -> Result<(), ReleaseError> {
    let sent = Sent::begin(&state);
    let outcome = publicly(&state, Path::Direct, Freed::No).await;
    was_sent(&state, sent);
    outcome
}

fn unreleased(state: &HoldState, failure: Failure) -> ReleaseError {
    match failure {
        Failure::Rejected(rejection) => ReleaseError::Rejected {
            name: state.sync.name().clone(),
            rejection: rejection.into(),
        },
        Failure::Unanswered(outage) | Failure::NotNow(outage) => {
            state.failed(&outage);
            ambiguous(state)
        }
    }
}
