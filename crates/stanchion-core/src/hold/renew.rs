//! Renewal and re-entry on demand, and the wait for any operation on a hold.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use crate::description::Verdict;
use crate::error::{AcquireError, LostReason, Rejection, ReleaseError, RenewError};
use crate::free_by::FreeBy;
use crate::hold::handle::Hold;
use crate::hold::holds::{Base, Holds};
use crate::hold::parked::Parked;
use crate::hold::release::ambiguous;
use crate::hold::state::HoldState;
use crate::lease::Lease;
use crate::observe::span;
use crate::query::unanswered_in;
use crate::watchdog;
use crate::wire::Retries;
use stanchion_transport::{Failure, Outage, Path, Persistent, Sleep, sleep};

/// The error of an operation that has not ended within the operation timeout.
pub(super) trait Late {
    fn late(hold: &HoldState) -> Self;
}

impl Late for ReleaseError {
    fn late(hold: &HoldState) -> Self {
        ambiguous(hold)
    }
}

impl Late for RenewError {
    fn late(hold: &HoldState) -> Self {
        Self::Unavailable {
            name: hold.sync.name().clone(),
            // P8: a reason of the server helps more than the time that has passed.
            outage: hold
                .take_outage()
                .unwrap_or_else(|| unanswered_in(hold.core.config.operation_timeout)),
        }
    }
}

/// Waits for an operation on `hold`, for at most the operation timeout (P9). After that it continues in the background.
///
/// The timer is set only when the operation has been woken once and is still not done. The first wait is for an answer, and the link wakes every
/// such call four times in each response timeout. A timer for each release would be the runtime's earliest one, and would cost a system call to
/// re-arm the runtime's driver.
pub(super) async fn in_time<T: Send + 'static, E: Late + Send + 'static>(
    hold: Arc<HoldState>,
    mut operation: Persistent<Result<T, E>>,
) -> Result<T, E> {
    let core = &hold.core;
    drop(hold.take_outage());
    let timeout = core.config.operation_timeout;
    let until = core.clock.now() + timeout;
    let mut answer_expected = core.config.silence_limit() <= timeout;
    let mut timer: Option<Sleep> = None;
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = Pin::new(&mut operation).poll(cx) {
            return Poll::Ready(outcome);
        }
        if std::mem::take(&mut answer_expected) {
            return Poll::Pending;
        }
        let timer = timer.get_or_insert_with(|| sleep(until.since(core.clock.now())));
        Pin::new(timer).poll(cx).map(|()| Err(E::late(&hold)))
    })
    .await
}

/// Renews the hold until the server has answered or the hold is lost. `lease` replaces the usual lease.
pub(crate) async fn renew(state: Arc<HoldState>, lease: Option<Lease>) -> Result<(), RenewError> {
    // A release that waits for its turn runs after this renewal, so the renewal does not undo it.
    let _turn = state.turn().await;
    let name = || state.sync.name().clone();
    let mut retries = Retries::default();
    loop {
        if let Some(reason) = state.lost_reason(state.core.clock.now()) {
            return Err(state.lease_lost(reason).into());
        }
        // P5: read before the request. A slow answer must not lengthen the time that the holder counts on.
        let sent = state.core.clock.now();
        // A grant by message is for less than the acquire has requested. The first renewal makes up for that.
        let (asked, lease) = match lease {
            Some(lease) if state.life().is_provisional() => {
                let lease = lease.max(state.terms.lease);
                (
                    state.asked(lease, sent).max(state.lease_to_ask(sent)),
                    lease,
                )
            }
            Some(lease) => (state.asked(lease, sent), lease),
            None => (state.lease_to_ask(sent), state.terms.lease),
        };
        state.debt.record(|it| it.requests(asked));
        match watchdog::renew(&state.core, &state, asked).await {
            Ok(Some(true)) => {
                state.change(|life| life.renewed(lease, sent));
                return Ok(());
            }
            Ok(Some(false)) => return Err(state.gone().into()),
            // The request was late, or the server refused this key: try again.
            Ok(None) => {}
            Err(Failure::Rejected(rejection)) => {
                return Err(RenewError::Rejected {
                    name: name(),
                    rejection: rejection.into(),
                });
            }
            // The request may have run. Another renewal is harmless: no lease is shortened (R3), and the end counts from the answered request.
            Err(Failure::NotNow(outage) | Failure::Unanswered(outage)) => {
                state.failed(&outage);
                state.core.unless_closed(&state, outage)?;
            }
        }
        let until = state.valid_until();
        state.core.recover(until, &mut retries).await;
    }
}

/// Renews a hold that was left before its first renewal, so that the server keeps it for the lease that the acquire has requested. Continues
/// until the server has answered or the hold has expired.
pub(crate) async fn keep(state: Arc<HoldState>) {
    let (core, mut retries) = (&state.core, Retries::default());
    while core.clock.now() < state.valid_until() && !core.closed.is_cancelled() {
        let asked = state.lease_to_ask(core.clock.now());
        match watchdog::renew(core, &state, asked).await {
            Ok(Some(_)) | Err(Failure::Rejected(_)) => return,
            Ok(None) | Err(_) => core.recover(state.valid_until(), &mut retries).await,
        }
    }
}

impl Holds {
    /// Fails once the client is closed, because a closed client does not reconnect.
    fn unless_closed(&self, state: &HoldState, outage: Outage) -> Result<(), RenewError> {
        if !self.closed.is_cancelled() {
            return Ok(());
        }
        let name = state.sync.name().clone();
        Err(RenewError::Unavailable { name, outage })
    }
}

/// Adds one count to `state`, on the server that `via` is connected to.
pub(crate) async fn reenter(
    state: &Arc<HoldState>,
    via: Arc<dyn Base>,
) -> Result<Hold, RenewError> {
    let span = span!("reenter", state.sync);
    let work = state.traced(span, reenter_persistently(Arc::clone(state), via));
    let work = Parked::new(work);
    state.reenters(&work);
    let work = Persistent::new(&state.core.runner, work.outcome());
    in_time(Arc::clone(state), work).await
}

/// Adds one count, until the server has answered or the hold is lost.
///
/// If the caller drops the future, the work finishes in the background and drops the new guard there. So the local
/// count and the server's count stay equal.
async fn reenter_persistently(
    state: Arc<HoldState>,
    core: Arc<dyn Base>,
) -> Result<Hold, RenewError> {
    // Locked until the answer: the next request of this owner must carry the resulting count (R4).
    let mut count = state.turn().await;
    let mut retries = Retries::default();
    loop {
        if let Some(reason) = state.lost_reason(core.clock.now()) {
            return Err(state.lease_lost(reason).into());
        }
        // The hold was released while this call waited for its turn.
        if *count == 0 {
            return Err(state.lease_lost(LostReason::Gone).into());
        }
        let sent = core.clock.now();
        // Each try has a `not_after` of its own, and all of them set the same count (R4).
        let limit = core.limit(state.sync.name(), sent);
        let request = limit.request(&state.debt.owner, state.lease_to_ask(sent));
        let hold = state.sync.hold();
        let Some(call) = hold.and_then(|it| it.reenter(&request, *count)) else {
            return Err(RenewError::Rejected {
                name: state.sync.name().clone(),
                rejection: Rejection::InvalidOption {
                    rule: format!(
                        "a {} cannot be held twice by one owner",
                        state.sync.kind().name()
                    ),
                },
            });
        };
        match core.call(Path::Direct, &call).await {
            Ok(reply) => match Verdict::read(&reply) {
                Some(Verdict::Granted(_)) => {
                    // P6: the script sets count + 1, so two runs have the effect of one.
                    *count += 1;
                    state.renewed(sent);
                    return Ok(Hold::another(&state));
                }
                Some(Verdict::Gone) if Arc::ptr_eq(&core, &state.core) => {
                    return Err(state.gone().into());
                }
                // P1: the hold belongs to another client, and the server of this client does not have it. The hold is
                // on another server or has ended, so it cannot be re-entered here.
                Some(Verdict::Gone) => return Err(state.lease_lost(LostReason::Gone).into()),
                _ => core.synchronise(Path::Direct, state.sync.name()).await,
            },
            Err(Failure::Rejected(rejection)) => {
                return Err(RenewError::Rejected {
                    name: state.sync.name().clone(),
                    rejection: rejection.into(),
                });
            }
            Err(Failure::NotNow(outage) | Failure::Unanswered(outage)) => {
                state.failed(&outage);
                core.unless_closed(&state, outage)?;
            }
        }
        core.recover(state.valid_until(), &mut retries).await;
    }
}

/// Turns the error of a re-entry into that of an acquire; `None` when the hold has ended.
pub(crate) fn as_acquire_error(error: RenewError, free_by: FreeBy) -> Option<AcquireError> {
    match error {
        // There is nothing to re-enter: the caller acquires instead.
        RenewError::Lost(_) => None,
        RenewError::Unavailable { name, outage } => Some(AcquireError::Ambiguous {
            name,
            free_by,
            outage,
        }),
        RenewError::Rejected { name, rejection } => {
            Some(AcquireError::Rejected { name, rejection })
        }
    }
}
