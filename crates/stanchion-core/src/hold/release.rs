//! The end of a hold: one count less, a public release, or a hand-off inside the process.
//!
//! [`one`] runs for each guard, under the hold's `count`. While others are left it only tells the server the smaller count. The
//! last one ends the hold locally first, so that `is_held` is false before the server can grant to another (P5); then it
//! hands the hold to the first local waiter, if the queue allows ([`Entry::successor`](crate::waiting::Entry)), or releases
//! publicly, which publishes a message. Both are sent again until they are answered or the lease has ended the hold.
//!
//! A request without an answer may still run (P3). [`Leftover`] sweeps in the background: at once, and again after the last
//! moment at which such a request may run, because only a release sent after that is final (rule R2).

use std::sync::Arc;
use std::time::Duration;

use crate::description::{Request, Sharing, Synchronizer, Tenure, Verdict, code_of, rest_of};
use crate::error::{LostReason, Rejection, ReleaseError};
use crate::hold::handle::Hold;
use crate::hold::state::{Grant, HoldState};
use crate::lease::Lease;
use crate::observe;
use crate::options::HoldTerms;
use crate::owner::Owner;
use crate::shared::Core;
use crate::waiting::{Rivals, Successor};
use crate::wire_owner::WireOwner;
use stanchion_transport::{Call, Failure, Moment, Outage, Path, Reply};

/// The reply to a release whose owner holds nothing.
const GONE: i64 = -2;

/// Takes one count away. Continues until the server has answered or the lease has ended the hold.
pub(crate) async fn one(state: Arc<HoldState>, path: Path) -> Result<(), ReleaseError> {
    let mut count = state.turn().await;
    if *count <= 1 {
        *count = 0;
        return last(&state, path).await;
    }
    let call = state.sync.release(&state.owner, *count, state.terms.lease);
    // The server is told counts, not differences, so the owner's next operation corrects a failure of this one.
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
    let done = persist(&state.core, path, &call, state.valid_until()).await;
    if let Ok((reply, _)) = &done
        && code_of(reply) == Some(GONE)
    {
        drop(state.gone());
    }
    // P8: a hold that is lost by now was not released, also if the server answered well.
    match (lost(state.core.clock.now()), done) {
        (Some(lost), _) => Err(lost.into()),
        (None, Ok(_)) => Ok(()),
        (None, Err(failure)) => Err(unreleased(&state, failure)),
    }
}

/// Takes the last count away, and so ends the hold.
async fn last(state: &Arc<HoldState>, path: Path) -> Result<(), ReleaseError> {
    end(state)?;
    if state.sync.tenure() == Tenure::Nothing {
        return Ok(());
    }
    // The waiters of a closing client leave, so none of them would take it.
    let passes_on = !state.core.closing.is_cancelled();
    let successor = passes_on.then(|| state.entry.successor(&*state.sync));
    let outcome = match successor.flatten() {
        Some(successor) => hand_off(state, successor, path).await,
        None => publicly(state, path, Freed::No).await,
    };
    sweep_unanswered(state);
    outcome
}

/// Ends the hold locally. One that was lost before is cleaned up on the server, and the loss returned.
fn end(state: &Arc<HoldState>) -> Result<(), ReleaseError> {
    let ended = state.end();
    state.unschedule();
    let Err(reason) = ended else { return Ok(()) };
    if reason != LostReason::Gone || state.sync.in_parts() {
        // Expired by the client's clock, perhaps not yet by the server's: remove it early, for those who wait.
        Leftover::of(state).sweep(&state.core, &state.sync);
    }
    Err(state.lease_lost(reason).into())
}

/// Sweeps after the last moment at which an unanswered request of this owner may run (P3, rule R2): only a release that is sent
/// after it is final.
fn sweep_unanswered(state: &Arc<HoldState>) {
    if state.core.clock.now() < state.unanswered_until() {
        Leftover::of(state).sweep(&state.core, &state.sync);
    }
}

/// The effect of an earlier script on this owner: it may have removed it already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    No,
    Perhaps,
}

/// Releases with a message to all processes that wait.
async fn publicly(state: &Arc<HoldState>, path: Path, before: Freed) -> Result<(), ReleaseError> {
    let core = &state.core;
    let Some(call) = state.sync.release(&state.owner, 1, state.terms.lease) else {
        return Ok(());
    };
    observe::released(state.sync.kind());
    if state.sync.sharing() == Sharing::Exclusive {
        state.entry.releasing();
    }
    let done = persist(core, path, &call, state.valid_until()).await;
    if let Ok((reply, _)) = &done {
        tend_later(core, &state.sync, reply);
    }
    let done = done.map(|(reply, resent)| (code_of(&reply), resent));
    let (rivals, outcome) = match done {
        // P6: an earlier run has released.
        Ok((Some(GONE), resent)) if resent || before == Freed::Perhaps => (Rivals::Unknown, Ok(())),
        Ok((Some(GONE), _)) => (Rivals::Unknown, Err(gone(state))),
        Ok((Some(heard), _)) => {
            let ours = i64::from(core.subscriptions.hears(state.sync.channel()));
            // −1: this user may not publish, so the number of waiting processes is unknown.
            let rivals = if heard < 0 || heard > ours {
                Rivals::Present(u32::try_from(heard - ours).unwrap_or(1))
            } else {
                Rivals::Absent
            };
            (rivals, Ok(()))
        }
        Ok((None, _)) => (Rivals::Unknown, Ok(())),
        Err(failure) => (Rivals::Unknown, Err(unreleased(state, failure))),
    };
    state.entry.freed(core, state, rivals);
    outcome
}

/// The transfer of a hold from one owner to the next in one script: one round trip, no message.
struct Passing<'a> {
    from: &'a Arc<HoldState>,
    to: &'a Arc<dyn Synchronizer>,
    terms: HoldTerms,
    owner: WireOwner,
    /// The end of the time in which a run whose answer was lost may still grant to the new owner (P3).
    unanswered_until: Moment,
}

enum Passed {
    To(Hold),
    /// The request came too late. A hand-off then released instead, and published; a downgrade did nothing.
    Released,
    Gone,
    Rejected,
    /// Nothing was done: the slot is being migrated, and the script's keys are on two nodes.
    Divided,
    Unanswered,
}

impl<'a> Passing<'a> {
    fn new(from: &'a Arc<HoldState>, to: &'a Arc<dyn Synchronizer>, terms: HoldTerms) -> Self {
        Self {
            from,
            to,
            terms,
            owner: from.core.next_wire_owner(),
            unanswered_until: Moment::ZERO,
        }
    }

    /// Sends the script that `call` makes, until it is answered or the hold to be transferred has expired.
    async fn go(&mut self, path: Path, call: impl Fn(&Request<'_>) -> Option<Call>) -> Passed {
        let core = &self.from.core;
        loop {
            let sent = core.clock.now();
            let limit = core.limit(self.from.sync.name(), sent);
            let request = limit.request(&self.owner, self.terms.first_lease);
            let Some(call) = call(&request) else {
                return Passed::Rejected;
            };
            let reply = core.call(path, &call).await;
            match reply.as_ref().map(Verdict::read) {
                Ok(Some(Verdict::Granted(token))) => {
                    let grant = Grant {
                        owner: self.owner.clone(),
                        token,
                        terms: self.terms,
                        sent,
                        first: None,
                        unanswered_until: self.unanswered_until,
                    };
                    let entry = &self.from.entry;
                    return Passed::To(Hold::begin(core, self.to, entry, grant));
                }
                Ok(Some(Verdict::Late)) => {
                    core.synchronise(path, self.from.sync.name()).await;
                    return Passed::Released;
                }
                Ok(_) => return Passed::Gone,
                Err(Failure::Rejected(_)) => return Passed::Rejected,
                Err(Failure::Unanswered(_)) => {
                    self.unanswered_until = limit.ends_by;
                }
                Err(Failure::NotNow(Outage::Refused { code, .. })) if code == "TRYAGAIN" => {
                    return Passed::Divided;
                }
                Err(Failure::NotNow(_)) => {}
            }
            if core.clock.now() >= self.from.valid_until() {
                return Passed::Unanswered;
            }
            core.recover(self.from.valid_until()).await;
        }
    }

    /// Returns whether an earlier run went unanswered, so that the answer may be about its effect.
    fn was_resent(&self) -> bool {
        self.unanswered_until > Moment::ZERO
    }

    /// Removes the grant of a run whose answer was lost (P3): nobody will use it.
    fn sweep(&self) {
        if self.was_resent() {
            let leftover = Leftover {
                owner: self.owner.clone(),
                lease: self.terms.first_lease,
                unanswered_until: self.unanswered_until,
            };
            leftover.sweep(&self.from.core, self.to);
        }
    }
}

/// Hands the hold to `successor`, and releases publicly where that cannot be done.
async fn hand_off(
    state: &Arc<HoldState>,
    successor: Successor,
    path: Path,
) -> Result<(), ReleaseError> {
    let to = Arc::clone(&successor.sync);
    let mut passing = Passing::new(state, &to, successor.terms);
    // P2: the successor's token comes from the successor's counter.
    let passed = passing
        .go(path, |request| to.hand_off(&state.owner, request))
        .await;
    let (rivals, outcome) = match passed {
        Passed::To(hold) if hold.is_held() => {
            observe::handed(state.sync.kind());
            state.entry.hand_over(successor, hold);
            return Ok(());
        }
        Passed::To(hold) => {
            // The answer took longer than the lease, so there is no hold to give.
            drop(hold);
            state.entry.not_handed();
            return Ok(());
        }
        Passed::Divided if !passing.was_resent() => {
            // A plain release has one key, so it works during the migration.
            state.entry.not_handed();
            return publicly(state, path, Freed::No).await;
        }
        Passed::Rejected | Passed::Divided => {
            // The script freed the lock before it failed, or did nothing. A plain release is right in both cases.
            passing.sweep();
            state.entry.not_handed();
            return publicly(state, path, Freed::Perhaps).await;
        }
        Passed::Released => (Rivals::Present(1), Ok(())),
        Passed::Gone if passing.was_resent() => (Rivals::Unknown, Ok(())),
        Passed::Gone => (Rivals::Unknown, Err(gone(state))),
        Passed::Unanswered => (Rivals::Unknown, Err(ambiguous(state))),
    };
    passing.sweep();
    state.entry.freed(&state.core, state, rivals);
    state.entry.not_handed();
    outcome
}

/// Turns an exclusive hold into a shared one, with no other holder in between.
pub(crate) async fn downgrade(
    state: Arc<HoldState>,
    to: Arc<dyn Synchronizer>,
    owner: Option<Owner>,
) -> Result<Hold, ReleaseError> {
    // The seat before the count, as an acquire of the same owner: the other way round the two would wait for each other.
    let seat = owner.as_ref().map(|owner| state.seat_of(owner));
    let mut seated = match &seat {
        Some(seat) => Some(seat.take().await),
        None => None,
    };
    let mut count = state.turn().await;
    if *count > 1 {
        let error = counted(&state, *count);
        // The guard was consumed, so its count is given up, as after any other failure.
        drop(count);
        drop(Hold::another(&state));
        return Err(error);
    }
    *count = 0;
    end(&state)?;
    let mut passing = Passing::new(&state, &to, state.terms);
    let script = |to: &Request<'_>| state.sync.downgrade(&state.owner, to);
    let mut passed = passing.go(Path::Direct, script).await;
    if matches!(passed, Passed::Released) {
        // Refused as late, so nothing was done. The server's clock has been read again since.
        passed = passing.go(Path::Direct, script).await;
    }
    while matches!(passed, Passed::Divided) && state.core.clock.now() < state.valid_until() {
        state.core.recover(state.valid_until()).await;
        passed = passing.go(Path::Direct, script).await;
    }
    sweep_unanswered(&state);
    let error = match passed {
        Passed::To(hold) => {
            // The script's message wakes the waiters of other processes; the local ones are woken here.
            state.entry.freed(&state.core, &state, Rivals::Unknown);
            state.entry.acquired(&hold, 0);
            if let (Some(owner), Some(seated)) = (owner, &mut seated) {
                hold.adopt(&owner);
                seated.shared = hold.weak();
            }
            return Ok(hold);
        }
        Passed::Released | Passed::Rejected => {
            passing.sweep();
            return Err(publicly(&state, Path::Direct, Freed::Perhaps)
                .await
                .err()
                .unwrap_or_else(|| gone(&state)));
        }
        Passed::Gone => gone(&state),
        Passed::Divided | Passed::Unanswered => ambiguous(&state),
    };
    passing.sweep();
    state.entry.freed(&state.core, &state, Rivals::Unknown);
    Err(error)
}

/// The error of a downgrade of a hold that is counted more than once.
fn counted(state: &HoldState, count: u32) -> ReleaseError {
    ReleaseError::Rejected {
        name: state.sync.name().clone(),
        rejection: Rejection::InvalidOption {
            rule: format!(
                "held {count} times by its owner: only a hold that was not re-entered can be downgraded"
            ),
        },
    }
}

fn gone(state: &HoldState) -> ReleaseError {
    state.lease_lost(LostReason::Gone).into()
}

fn ambiguous(state: &HoldState) -> ReleaseError {
    ReleaseError::Ambiguous {
        name: state.sync.name().clone(),
        free_by: state.free_by(),
    }
}

fn unreleased(state: &HoldState, failure: Failure) -> ReleaseError {
    match failure {
        Failure::Rejected(rejection) => ReleaseError::Rejected {
            name: state.sync.name().clone(),
            rejection: rejection.into(),
        },
        Failure::Unanswered(_) | Failure::NotNow(_) => ambiguous(state),
    }
}

/// Sends `call` until it is answered or `until` has passed. The flag is true if an earlier try went unanswered.
async fn persist(
    core: &Core,
    path: Path,
    call: &Call,
    until: Moment,
) -> Result<(Reply, bool), Failure> {
    let mut resent = false;
    loop {
        match core.call(path, call).await {
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

/// The leftovers of an owner's requests on the server: a hold, a place in a queue; or a request that may still run.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pub(crate) owner: WireOwner,
    pub(crate) lease: Lease,
    /// The end of the time in which one of the requests may still run.
    pub(crate) unanswered_until: Moment,
}

impl Leftover {
    fn of(state: &HoldState) -> Self {
        Self {
            owner: state.owner.clone(),
            lease: state.terms.first_lease,
            unanswered_until: state.unanswered_until(),
        }
    }

    /// Removes them in the background: at once, and again when no request can run any more. A shutdown waits for it.
    pub(crate) fn sweep(self, core: &Arc<Core>, sync: &Arc<dyn Synchronizer>) {
        let Some(call) = sync.abandon(&self.owner, self.lease) else {
            return;
        };
        let work = sweep(Arc::clone(core), Arc::clone(sync), call, self);
        core.runner.finish(work);
    }
}

/// The longest outage after which a place in a queue is still given up. The attempt keeps the client's connections alive, which a
/// server that never returns must not do for ever.
const LONGEST_OUTAGE: Duration = Duration::from_secs(3_600);

async fn sweep(core: Arc<Core>, sync: Arc<dyn Synchronizer>, call: Call, leftover: Leftover) {
    let until = leftover.unanswered_until;
    let hopeless = match sync.tenure() {
        // P3: a place in a queue has no lease. If nobody else asks for the name, only this removes it.
        Tenure::Leased if sync.sharing() == Sharing::Queued => core.clock.now() + LONGEST_OUTAGE,
        // After that the lease has ended any leftover.
        Tenure::Leased => core.clock.now().max(until) + leftover.lease.length(),
        Tenure::Unleased | Tenure::Nothing => Moment::FAR,
    };
    let first = persist(&core, Path::Background, &call, hopeless).await;
    if let Ok((reply, _)) = &first {
        tend_later(&core, &sync, reply);
    }
    let now = core.clock.now();
    if now < until {
        tokio::time::sleep(until.since(now)).await;
        let last = persist(&core, Path::Background, &call, hopeless).await;
        tracing::debug!(?first, ?last, "swept");
    }
}

/// Tends a queue that the server keeps, once `reply` says that this will be due: no waiter of any process may be left to do it.
///
/// Keeps the client only while a request is under way, so it ends with the client.
fn tend_later(core: &Arc<Core>, sync: &Arc<dyn Synchronizer>, reply: &Reply) {
    let due = |n: i64| u64::try_from(n).ok().map(Duration::from_millis);
    let Some(mut pause) = rest_of(reply).first().and_then(Reply::as_int).and_then(due) else {
        return;
    };
    let Some(call) = sync.tend() else { return };
    let (strong, core) = (core, Arc::downgrade(core));
    strong.runner.serve(async move {
        loop {
            tokio::time::sleep(pause + Duration::from_millis(1)).await;
            let Some(core) = core.upgrade() else { return };
            match core.call(Path::Background, &call).await {
                Ok(reply) => match code_of(&reply).and_then(due) {
                    Some(next) => pause = next,
                    None => return,
                },
                Err(Failure::Rejected(_)) => return,
                Err(_) => pause = Duration::from_millis(250),
            }
        }
    });
}
