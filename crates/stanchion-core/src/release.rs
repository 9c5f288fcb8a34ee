//! Ending a hold: one count less, a public release, or passing it on inside the process.

use std::sync::Arc;

use crate::client::{Core, Path};
use crate::clock::Moment;
use crate::error::{LostReason, ReleaseError};
use crate::hold::{Grant, HoldState};
use crate::lease::Lease;
use crate::observe;
use crate::owner::WireOwner;
use crate::primitive::{Call, Reply, Request, Synchronizer, Verdict};
use crate::transport::Failure;
use crate::waiting::{Rivals, Successor};

/// Takes one count away. Goes on until the server has answered or the lease has ended it.
pub(crate) async fn one(state: Arc<HoldState>, path: Path) -> Result<(), ReleaseError> {
    let mut count = state.count.lock().await;
    if *count > 1 {
        let call = state.sync.release(&state.owner, *count, state.terms.lease);
        // The server is told counts, not differences: the next operation of this owner puts right what this one cannot.
        *count -= 1;
        let lost = |now| {
            state
                .lost_reason(now)
                .map(|reason| state.lease_lost(reason))
        };
        if let Some(lost) = lost(state.core.clock.now()) {
            return Err(lost.into());
        }
        let done = persist(&state.core, path, &call, state.valid_until()).await;
        if matches!(done, Ok((Reply::Int(-2), _))) {
            state.lose(LostReason::Gone);
            state.entry.freed(&state.core, &state, Rivals::Unknown);
        }
        // P8: whatever the server said, what is lost by now was not released.
        return match (lost(state.core.clock.now()), done) {
            (Some(lost), _) => Err(lost.into()),
            (None, Ok(_)) => Ok(()),
            (None, Err(failure)) => Err(unreleased(&state, failure)),
        };
    }
    *count = 0;
    last(&state, path).await
}

async fn last(state: &Arc<HoldState>, path: Path) -> Result<(), ReleaseError> {
    let core = &state.core;
    let ended = state.end();
    state.unschedule();
    if let Err(reason) = ended {
        if reason != LostReason::Gone {
            // Lost by our clock, perhaps not yet by the server's: take it out early, for whoever waits.
            sweep_in_background(
                core,
                &state.sync,
                &state.owner,
                state.terms.lease,
                state.unanswered_until(),
            );
        }
        state.entry.freed(core, state, Rivals::Unknown);
        return Err(state.lease_lost(reason).into());
    }
    let outcome = match state.entry.successor() {
        Some(successor) => hand_off(state, successor, path).await,
        None => publicly(state, path, Freed::No).await,
    };
    let unanswered = state.unanswered_until();
    if unanswered > Moment::ZERO && core.clock.now() < unanswered {
        // P3, rule R2: a request for this owner may still be under way; only a release sent after its end is final.
        sweep_in_background(
            core,
            &state.sync,
            &state.owner,
            state.terms.lease,
            state.unanswered_until(),
        );
    }
    outcome
}

/// Whether an earlier script may have taken this owner out already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    No,
    Perhaps,
}

async fn publicly(state: &Arc<HoldState>, path: Path, before: Freed) -> Result<(), ReleaseError> {
    let core = &state.core;
    let call = state.sync.release(&state.owner, 1, state.terms.lease);
    observe::released(state.sync.kind());
    state.entry.releasing();
    let done = persist(core, path, &call, state.valid_until()).await;
    let (rivals, outcome) = match done {
        // P6: the first run did it.
        Ok((Reply::Int(-2), resent)) if resent || before == Freed::Perhaps => {
            (Rivals::Unknown, Ok(()))
        }
        Ok((Reply::Int(-2), _)) => (Rivals::Unknown, Err(gone(state))),
        Ok((Reply::Int(heard), _)) => {
            let ours = i64::from(core.subscriptions.hears(state.sync.channel()));
            // −1: no right to publish, so nobody knows who waits.
            (
                if heard < 0 || heard > ours {
                    Rivals::Present(u32::try_from(heard - ours).unwrap_or(1))
                } else {
                    Rivals::Absent
                },
                Ok(()),
            )
        }
        Ok(_) => (Rivals::Unknown, Ok(())),
        Err(failure) => (Rivals::Unknown, Err(unreleased(state, failure))),
    };
    state.entry.freed(core, state, rivals);
    outcome
}

/// One script: this owner out, the successor in. One round trip, no message.
async fn hand_off(
    state: &Arc<HoldState>,
    successor: Successor,
    path: Path,
) -> Result<(), ReleaseError> {
    let core = &state.core;
    let owner = core.next_wire_owner();
    let lease = successor.terms.lease;
    let mut unanswered_until = Moment::ZERO;
    loop {
        let sent = core.clock.now();
        let request = Request {
            owner: &owner,
            lease,
            not_after: core.not_after(sent),
        };
        let reply = core
            .link(path)
            .call(&state.sync.hand_off(&state.owner, &request))
            .await;
        let resent = unanswered_until > Moment::ZERO;
        match reply.as_ref().map(Verdict::read) {
            Ok(Some(Verdict::Granted(token))) => {
                let grant = Grant {
                    owner,
                    token,
                    terms: successor.terms,
                    sent,
                    unanswered_until,
                };
                let hold = HoldState::begin(core, &state.sync, &state.entry, grant);
                if hold.is_held() {
                    observe::handed(state.sync.kind());
                    state.entry.hand_over(successor, hold);
                } else {
                    // The answer took longer than the lease: nobody is given what is over.
                    drop(hold);
                    state.entry.not_handed();
                }
                return Ok(());
            }
            Ok(Some(Verdict::Late)) => {
                // The script released instead, and published.
                core.link(path).synchronise().await;
                return not_handed(
                    state,
                    &owner,
                    lease,
                    unanswered_until,
                    Rivals::Present(1),
                    Ok(()),
                );
            }
            Ok(Some(Verdict::Gone)) => {
                let outcome = if resent { Ok(()) } else { Err(gone(state)) };
                return not_handed(
                    state,
                    &owner,
                    lease,
                    unanswered_until,
                    Rivals::Unknown,
                    outcome,
                );
            }
            Ok(_) => {
                return not_handed(
                    state,
                    &owner,
                    lease,
                    unanswered_until,
                    Rivals::Unknown,
                    Ok(()),
                );
            }
            Err(Failure::Rejected(_)) => {
                // The script freed the lock before it failed, or did nothing: a plain release serves both.
                if resent {
                    // P3: an earlier run may have granted to the successor's owner, which nobody will use.
                    sweep_in_background(core, &state.sync, &owner, lease, unanswered_until);
                }
                state.entry.not_handed();
                return publicly(state, path, Freed::Perhaps).await;
            }
            Err(Failure::Unanswered(_)) => unanswered_until = core.ends_by(sent),
            Err(Failure::NotNow(_)) => {}
        }
        if core.clock.now() >= state.valid_until() {
            let outcome = Err(ReleaseError::Ambiguous {
                name: state.sync.name().clone(),
                free_by: state.free_by(),
            });
            return not_handed(
                state,
                &owner,
                lease,
                unanswered_until,
                Rivals::Unknown,
                outcome,
            );
        }
        core.recover(state.valid_until()).await;
    }
}

fn not_handed(
    state: &Arc<HoldState>,
    owner: &WireOwner,
    lease: Lease,
    unanswered_until: Moment,
    rivals: Rivals,
    outcome: Result<(), ReleaseError>,
) -> Result<(), ReleaseError> {
    if unanswered_until > Moment::ZERO {
        sweep_in_background(&state.core, &state.sync, owner, lease, unanswered_until);
    }
    state.entry.freed(&state.core, state, rivals);
    state.entry.not_handed();
    outcome
}

fn gone(state: &HoldState) -> ReleaseError {
    state.lease_lost(LostReason::Gone).into()
}

fn unreleased(state: &HoldState, failure: Failure) -> ReleaseError {
    let name = state.sync.name().clone();
    match failure {
        Failure::Rejected(rejection) => ReleaseError::Rejected { name, rejection },
        Failure::Unanswered(_) | Failure::NotNow(_) => ReleaseError::Ambiguous {
            name,
            free_by: state.free_by(),
        },
    }
}

/// Sends `call` until it is answered or `until` has passed. The flag: whether an earlier try went unanswered.
async fn persist(
    core: &Core,
    path: Path,
    call: &Call,
    until: Moment,
) -> Result<(Reply, bool), Failure> {
    let mut resent = false;
    loop {
        match core.link(path).call(call).await {
            Ok(reply) => return Ok((reply, resent)),
            Err(failure @ Failure::Rejected(_)) => return Err(failure),
            Err(failure) => {
                if core.clock.now() >= until {
                    return Err(failure);
                }
                resent |= matches!(failure, Failure::Unanswered(_));
            }
        }
        core.recover(until).await;
    }
}

/// Removes whatever requests for `owner` left or may yet leave: at once, and again when none of them can run any more.
pub(crate) fn sweep_in_background(
    core: &Arc<Core>,
    sync: &Arc<dyn Synchronizer>,
    owner: &WireOwner,
    lease: Lease,
    unanswered_until: Moment,
) {
    let call = sync.release(owner, 1, lease);
    let work = sweep(Arc::clone(core), call, lease, unanswered_until);
    core.runner.finish(work);
}

async fn sweep(core: Arc<Core>, call: Call, lease: Lease, unanswered_until: Moment) {
    // After that the lease has ended whatever there was.
    let hopeless = core.clock.now().max(unanswered_until) + lease.length();
    let first = persist(&core, Path::Background, &call, hopeless).await;
    let now = core.clock.now();
    if now < unanswered_until {
        tokio::time::sleep(unanswered_until.since(now)).await;
        let last = persist(&core, Path::Background, &call, hopeless).await;
        tracing::debug!(?first, ?last, "swept");
    }
}
