//! Ending a hold: one count less, a public release, or passing it on inside the process.

use std::sync::Arc;
use std::time::Duration;

use crate::client::Core;
use crate::error::{LostReason, Rejection, ReleaseError};
use crate::hold::{Grant, Hold, HoldState};
use crate::lease::Lease;
use crate::observe;
use crate::options::HoldTerms;
use crate::owner::{Owner, WireOwner};
use crate::primitive::{
    Call, Reply, Request, Sharing, Synchronizer, Tenure, Verdict, code_of, rest_of,
};
use crate::waiting::{Rivals, Successor};
use stanchion_transport::Failure;
use stanchion_transport::Moment;
use stanchion_transport::{Outage, Path};

/// The release said that its owner holds nothing.
const GONE: i64 = -2;

/// Takes one count away. Goes on until the server has answered or the lease has ended it.
pub(crate) async fn one(state: Arc<HoldState>, path: Path) -> Result<(), ReleaseError> {
    let mut count = state.turn().await;
    if *count <= 1 {
        *count = 0;
        return last(&state, path).await;
    }
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
    let Some(call) = call else { return Ok(()) };
    let done = persist(&state.core, path, &call, state.valid_until()).await;
    if let Ok((reply, _)) = &done
        && code_of(reply) == Some(GONE)
    {
        drop(state.gone());
    }
    // P8: whatever the server said, what is lost by now was not released.
    match (lost(state.core.clock.now()), done) {
        (Some(lost), _) => Err(lost.into()),
        (None, Ok(_)) => Ok(()),
        (None, Err(failure)) => Err(unreleased(&state, failure)),
    }
}

async fn last(state: &Arc<HoldState>, path: Path) -> Result<(), ReleaseError> {
    end(state)?;
    if state.sync.tenure() == Tenure::Nothing {
        return Ok(());
    }
    // A closing client tells its waiters to go: nobody here would take it.
    let passes_on = !state.core.closing.is_cancelled();
    let successor = passes_on.then(|| state.entry.successor(&*state.sync));
    let outcome = match successor.flatten() {
        Some(successor) => hand_off(state, successor, path).await,
        None => publicly(state, path, Freed::No).await,
    };
    sweep_unanswered(state);
    outcome
}

/// The hold ends here, by the will of its holder; or it was lost before, and is cleaned up after.
fn end(state: &Arc<HoldState>) -> Result<(), ReleaseError> {
    let ended = state.end();
    state.unschedule();
    let Err(reason) = ended else { return Ok(()) };
    if reason != LostReason::Gone || state.sync.in_parts() {
        // Lost by our clock, perhaps not yet by the server's: take it out early, for whoever waits.
        Leftover::of(state).sweep(&state.core, &state.sync);
    }
    Err(state.lease_lost(reason).into())
}

/// P3, rule R2: a request for this owner may still be under way; only a release sent after its end is final.
fn sweep_unanswered(state: &Arc<HoldState>) {
    if state.core.clock.now() < state.unanswered_until() {
        Leftover::of(state).sweep(&state.core, &state.sync);
    }
}

/// Whether an earlier script may have taken this owner out already.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Freed {
    No,
    Perhaps,
}

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
        // P6: the first run did it.
        Ok((Some(GONE), resent)) if resent || before == Freed::Perhaps => (Rivals::Unknown, Ok(())),
        Ok((Some(GONE), _)) => (Rivals::Unknown, Err(gone(state))),
        Ok((Some(heard), _)) => {
            let ours = i64::from(core.subscriptions.hears(state.sync.channel()));
            // −1: no right to publish, so nobody knows who waits.
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

/// A hold on its way from one owner to the next, in one script: one round trip, no message.
struct Passing<'a> {
    from: &'a Arc<HoldState>,
    to: &'a Arc<dyn Synchronizer>,
    terms: HoldTerms,
    owner: WireOwner,
    /// P3: the new owner may be in by a run whose answer was lost.
    unanswered_until: Moment,
}

enum Passed {
    To(Hold),
    /// The server has released instead, and published.
    Released,
    Gone,
    Rejected,
    /// The slot is on its way, and the keys of the script are on two nodes: it did nothing.
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

    /// Sends what `call` makes until it is answered or the hold to be passed has run out.
    async fn go(&mut self, path: Path, call: impl Fn(&Request<'_>) -> Option<Call>) -> Passed {
        let core = &self.from.core;
        loop {
            let sent = core.clock.now();
            let limit = core.limit(self.from.sync.name(), sent);
            let request = Request {
                owner: &self.owner,
                lease: self.terms.first_lease,
                not_after: limit.not_after,
                since: limit.sent,
                waits: false,
                first: false,
                queued: false,
                within: None,
            };
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
                    return Passed::To(HoldState::begin(core, self.to, entry, grant));
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

    fn was_resent(&self) -> bool {
        self.unanswered_until > Moment::ZERO
    }

    /// P3: nobody will use what a run whose answer was lost may have granted.
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
            // The answer took longer than the lease: nobody is given what is over.
            drop(hold);
            state.entry.not_handed();
            return Ok(());
        }
        Passed::Divided if !passing.was_resent() => {
            // A plain release has one key.
            state.entry.not_handed();
            return publicly(state, path, Freed::No).await;
        }
        Passed::Rejected | Passed::Divided => {
            // The script freed the lock before it failed, or did nothing: a plain release serves both.
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

/// From an exclusive hold to a shared one, with nobody in between.
pub(crate) async fn downgrade(
    state: Arc<HoldState>,
    to: Arc<dyn Synchronizer>,
    owner: Option<Owner>,
) -> Result<Hold, ReleaseError> {
    let mut count = state.turn().await;
    if *count > 1 {
        let error = counted(&state, *count);
        // The count that was to be downgraded is given up, as by any other failure.
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
        // Late: it was not done. By now the server's clock is known again.
        passed = passing.go(Path::Direct, script).await;
    }
    while matches!(passed, Passed::Divided) && state.core.clock.now() < state.valid_until() {
        state.core.recover(state.valid_until()).await;
        passed = passing.go(Path::Direct, script).await;
    }
    sweep_unanswered(&state);
    let error = match passed {
        Passed::To(hold) => {
            // Its message tells the others; ours are called here.
            state.entry.freed(&state.core, &state, Rivals::Unknown);
            state.entry.acquired(&hold, 0);
            if let Some(owner) = owner {
                hold.adopt(&owner);
                let seat = state.seat_of(&owner);
                seat.take().await.shared = hold.weak();
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

/// Why a hold cannot be turned into another: it is counted more than once.
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

/// Sends `call` until it is answered or `until` has passed. The flag: whether an earlier try went unanswered.
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

/// What requests for an owner left on the server, or may yet leave.
#[derive(Clone, Debug)]
pub(crate) struct Leftover {
    pub(crate) owner: WireOwner,
    pub(crate) lease: Lease,
    /// When none of them can run any more.
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

    /// Removes it in the background: at once, and again when no request can run any more.
    pub(crate) fn sweep(self, core: &Arc<Core>, sync: &Arc<dyn Synchronizer>) {
        let Some(call) = sync.abandon(&self.owner, self.lease) else {
            return;
        };
        let work = sweep(Arc::clone(core), Arc::clone(sync), call, self);
        core.runner.finish(work);
    }
}

async fn sweep(core: Arc<Core>, sync: Arc<dyn Synchronizer>, call: Call, leftover: Leftover) {
    let until = leftover.unanswered_until;
    let hopeless = match sync.tenure() {
        // P3: a place in a queue has no lease, so nothing but this takes it away if nobody comes again.
        Tenure::Leased if sync.sharing() == Sharing::Queued => Moment::FAR,
        // After that the lease has ended whatever there was.
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

/// Looks after a queue that the server keeps, when a reply said that it will be due and nobody may be left to do it.
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
