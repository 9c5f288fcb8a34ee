//! One hold: what its guard, the watchdog and the releaser share.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::{MutexGuard, Notify};
use tracing::Instrument as _;

use crate::client::Core;
use crate::ended::{Ended, ended, lost};
use crate::error::{AcquireError, LeaseLost, LostReason, Rejection, ReleaseError, RenewError};
use crate::lease::Lease;
use crate::name::Name;
use crate::observe::{self, span};
use crate::options::{HoldTerms, Renewal};
use crate::owner::{Owner, Seat, WireOwner};
use crate::primitive::{Request, Sharing, Subject, Synchronizer, Tenure, Verdict};
use crate::release;
use crate::timetable::{Item, Slot};
use crate::token::FencingToken;
use crate::waiting::{Entry, Rivals};
use crate::watchdog;
use stanchion_transport::Failure;
use stanchion_transport::Moment;
use stanchion_transport::Persistent;
use stanchion_transport::{Outage, Path};

/// The state of one hold of one owner, however many guards count on it.
pub(crate) struct HoldState {
    pub(crate) core: Arc<Core>,
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) owner: WireOwner,
    pub(crate) terms: HoldTerms,
    token: Option<FencingToken>,
    began: Moment,
    /// Where `max_hold` ends it.
    ends: Moment,
    /// P5: nanoseconds; only ever raised, and only from the send time of a successful request.
    valid_until: AtomicU64,
    /// The server has it for less than its lease, until the first renewal.
    provisional: AtomicBool,
    /// It waits for a waiter to come for it. What nobody polls cannot hold for ever: it is not renewed beyond its first lease.
    unclaimed: AtomicBool,
    phase: AtomicU8,
    /// Rings when the phase changes. Of its own, so that who waits for that keeps neither this nor the client.
    over: Arc<Notify>,
    /// How many guards hold. The mutex makes this owner's operations take turns: counts are told to the server.
    count: tokio::sync::Mutex<u32>,
    /// P3: until then an earlier request for this owner may still run on the server.
    unanswered_until: AtomicU64,
    slot: Mutex<Option<Slot>>,
    public_owner: OnceLock<Owner>,
}

const HELD: u8 = 0;
const RELEASED: u8 = 1;
const LOST: [LostReason; 4] = [
    LostReason::Expired,
    LostReason::Gone,
    LostReason::MaxHold,
    LostReason::Shutdown,
];
const FIRST_LOST: u8 = 2;

fn lost_reason_of(phase: u8) -> Option<LostReason> {
    LOST.get(usize::from(phase.checked_sub(FIRST_LOST)?))
        .copied()
}

/// What a grant brought.
pub(crate) struct Grant {
    pub(crate) owner: WireOwner,
    pub(crate) token: Option<FencingToken>,
    pub(crate) terms: HoldTerms,
    /// Before the request was sent.
    pub(crate) sent: Moment,
    /// The lease until the first renewal, if it is another.
    pub(crate) first: Option<Duration>,
    /// When no earlier request for this owner can run any more.
    pub(crate) unanswered_until: Moment,
}

impl HoldState {
    /// A hold that begins: the watchdog knows it from here on.
    pub(crate) fn begin(
        core: &Arc<Core>,
        sync: &Arc<dyn Synchronizer>,
        entry: &Arc<Entry>,
        grant: Grant,
    ) -> Hold {
        let Grant {
            owner,
            token,
            terms,
            sent,
            first,
            unanswered_until,
        } = grant;
        let ends = terms.max_hold.map_or(Moment::FAR, |max| sent + max);
        let leased = sync.tenure() == Tenure::Leased;
        // A grant too short to count on is over at once.
        let lease = first.map_or(Some(terms.first_lease), |first| Lease::new(first).ok());
        let lease = lease.map(|lease| lease.min(terms.first_lease));
        let valid_until = match lease {
            _ if !leased => Moment::FAR,
            Some(lease) => lease.valid_until(sent).min(ends),
            None => sent,
        };
        let state = Arc::new(Self {
            core: Arc::clone(core),
            sync: Arc::clone(sync),
            entry: Arc::clone(entry),
            owner,
            terms,
            token,
            began: sent,
            ends,
            valid_until: AtomicU64::new(valid_until.nanos()),
            provisional: AtomicBool::new(first.is_some()),
            unclaimed: AtomicBool::new(false),
            phase: AtomicU8::new(HELD),
            over: Arc::default(),
            count: tokio::sync::Mutex::new(1),
            unanswered_until: AtomicU64::new(unanswered_until.nanos()),
            slot: Mutex::new(None),
            public_owner: OnceLock::new(),
        });
        if state.sync.tenure() != Tenure::Nothing {
            // As often as later: a renewal is also how a holder hears that it holds no more.
            let renewal = lease.map_or(sent, |lease| {
                sent + lease.min(terms.lease).renewal_interval()
            });
            let due = if leased { renewal } else { Moment::FAR };
            core.schedule_hold(&state, due.min(valid_until));
        }
        Hold { state: Some(state) }
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    pub(crate) fn unanswered_until(&self) -> Moment {
        Moment::from_nanos(self.unanswered_until.load(Ordering::Acquire))
    }

    /// P5: compares the clock; a timer that has not run yet changes nothing.
    pub(crate) fn is_held(&self) -> bool {
        self.phase.load(Ordering::Acquire) == HELD && self.core.clock.now() < self.valid_until()
    }

    /// Whether the watchdog is to renew it.
    pub(crate) fn wants_renewal(&self) -> bool {
        let watched =
            self.terms.renewal == Renewal::Watchdog && !self.unclaimed.load(Ordering::Acquire);
        (watched || self.provisional.load(Ordering::Acquire)) && !self.is_at_its_end()
    }

    /// What a renewal asks for.
    pub(crate) fn lease_to_ask(&self) -> Lease {
        if self.provisional.load(Ordering::Acquire) {
            self.terms.first_lease
        } else {
            self.terms.lease
        }
    }

    /// `max_hold` leaves nothing to renew.
    fn is_at_its_end(&self) -> bool {
        self.valid_until() >= self.ends
    }

    /// Renewals due within this time go together.
    pub(crate) fn batching_window(&self) -> Duration {
        self.terms.lease.length() / 30
    }

    /// Why the hold is over, if it is lost. Decides it when the clock has.
    pub(crate) fn lost_reason(&self, now: Moment) -> Option<LostReason> {
        let phase = self.phase.load(Ordering::Acquire);
        if phase == HELD {
            let valid_until = self.valid_until();
            if now < valid_until {
                return None;
            }
            return self.lose(if valid_until >= self.ends {
                LostReason::MaxHold
            } else {
                LostReason::Expired
            });
        }
        lost_reason_of(phase)
    }

    /// Sticky: the first reason stays. Returns the reason that holds now; `None` when it was released before. Calls the next
    /// waiter; not to be used under a queue's mutex.
    pub(crate) fn lose(&self, reason: LostReason) -> Option<LostReason> {
        let phase = LOST
            .iter()
            .position(|r| *r == reason)
            .and_then(|i| u8::try_from(i).ok())
            .unwrap_or_default()
            + FIRST_LOST;
        match self
            .phase
            .compare_exchange(HELD, phase, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {
                observe::lost(self.sync.kind(), reason);
                observe::held(self.sync.kind(), self.core.clock.now().since(self.began));
                tracing::warn!(name = %self.sync.name(), owner = %self.owner, %reason, "hold lost");
                self.over.notify_waiters();
                // P4: whoever sees the loss first tells the waiters; there may be nobody else to.
                self.entry.freed(&self.core, self, Rivals::Unknown);
                Some(reason)
            }
            Err(phase) => lost_reason_of(phase),
        }
    }

    /// From held to released; the reason if it is lost instead.
    pub(crate) fn end(&self) -> Result<(), LostReason> {
        if let Some(reason) = self.lost_reason(self.core.clock.now()) {
            return Err(reason);
        }
        match self
            .phase
            .compare_exchange(HELD, RELEASED, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {
                self.over.notify_waiters();
                if cfg!(feature = "metrics") {
                    observe::held(self.sync.kind(), self.core.clock.now().since(self.began));
                }
                Ok(())
            }
            Err(phase) => lost_reason_of(phase).map_or(Ok(()), Err),
        }
    }

    /// A renewal that was sent at `sent` succeeded.
    pub(crate) fn renewed(&self, sent: Moment) {
        let until = self.terms.lease.valid_until(sent).min(self.ends);
        self.valid_until.fetch_max(until.nanos(), Ordering::AcqRel);
        self.provisional.store(false, Ordering::Release);
    }

    /// The server said that it is gone.
    pub(crate) fn gone(self: &Arc<Self>) -> LeaseLost {
        let reason = self.lose(LostReason::Gone).unwrap_or(LostReason::Gone);
        self.lease_lost(reason)
    }

    /// Takes the place `at` in the timetable; nothing once the hold is over.
    pub(crate) fn schedule(self: &Arc<Self>, at: Moment) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = slot.take() {
            self.core.timetable.remove(old);
        }
        // Under the slot's mutex: `unschedule` comes after the phase has changed, so one of the two sees the other.
        if self.phase.load(Ordering::Acquire) == HELD {
            *slot = Some(
                self.core
                    .timetable
                    .insert(at, Item::Hold(Arc::downgrade(self))),
            );
        }
    }

    pub(crate) fn unschedule(&self) {
        let slot = self
            .slot
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .take();
        if let Some(slot) = slot {
            self.core.timetable.remove(slot);
        }
    }

    pub(crate) fn lease_lost(&self, reason: LostReason) -> LeaseLost {
        LeaseLost {
            name: self.sync.name().clone(),
            reason,
        }
    }

    /// Where `owner` finds this hold.
    pub(crate) fn seat_of(&self, owner: &Owner) -> Arc<Seat> {
        owner.seat(&self.core.realm, Subject::of(&*self.sync))
    }

    /// An upper bound on how long the server may still know this hold, whatever is lost from now on.
    pub(crate) fn free_by(&self) -> Duration {
        match self.sync.tenure() {
            Tenure::Leased => self.terms.first_lease.length() + self.core.config.response_timeout,
            Tenure::Unleased => Duration::MAX,
            Tenure::Nothing => Duration::ZERO,
        }
    }

    /// This owner's turn: one operation at a time.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, u32> {
        if let Ok(count) = self.count.try_lock() {
            return count;
        }
        // P9: what is waited for here is no answer, so no link bounds it. Being woken sets the timer of `bounded`.
        tokio::task::yield_now().await;
        self.count.lock().await
    }

    /// How it has ended, if it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        if self.phase.load(Ordering::Acquire) == RELEASED {
            return Some(Ended::Released);
        }
        self.lost_reason(self.core.clock.now()).map(Ended::Lost)
    }
}

impl fmt::Debug for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", self.sync.name())
            .field("owner", &self.owner)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}

/// One count of a hold: what a guard wraps. Dropping it releases in the background.
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct Hold {
    state: Option<Arc<HoldState>>,
}

impl Hold {
    fn state(&self) -> &Arc<HoldState> {
        match &self.state {
            Some(state) => state,
            // OK: taken only by `release` and `drop`, which consume the guard.
            None => unreachable!("a hold is used after it was consumed"),
        }
    }

    /// Leaves it for a waiter to come for.
    pub(crate) fn unclaimed(self) -> Self {
        self.state().unclaimed.store(true, Ordering::Release);
        self
    }

    /// The waiter has come.
    pub(crate) fn claim(&self) {
        let state = self.state();
        let now = state.core.clock.now();
        let due = state.began + state.terms.lease.renewal_interval();
        if state.unclaimed.swap(false, Ordering::AcqRel) && now >= due && state.is_held() {
            // The watchdog has passed it by.
            state.core.schedule_hold(state, now);
        }
    }

    pub(crate) fn is(&self, state: &HoldState) -> bool {
        self.state
            .as_ref()
            .is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), state))
    }

    /// Forgets this hold without releasing: the same grant came twice, and another guard stands for it.
    pub(crate) fn disown(mut self) {
        if let Some(state) = self.state.take() {
            state.end().ok();
            state.unschedule();
        }
    }

    /// P3: an earlier request of its owner may still run until then.
    pub(crate) fn mind(&self, unanswered_until: Moment) {
        self.state()
            .unanswered_until
            .fetch_max(unanswered_until.nanos(), Ordering::AcqRel);
    }

    pub(crate) fn weak(&self) -> Weak<HoldState> {
        Arc::downgrade(self.state())
    }

    /// One more count of a hold that the server has counted already.
    pub(crate) fn another(state: &Arc<HoldState>) -> Self {
        Self {
            state: Some(Arc::clone(state)),
        }
    }

    /// What is held.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.state().sync.name()
    }

    /// The owner, to re-enter with.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        let state = self.state();
        state.public_owner.get_or_init(|| {
            let owner = Owner::new(state.owner.clone());
            // Nobody else has this owner yet, so its seat is free.
            if let Some(mut seat) = state.seat_of(&owner).try_take() {
                *seat.of(state.sync.sharing()) = Arc::downgrade(state);
            }
            owner
        })
    }

    /// Remembers the explicit owner this hold was acquired for.
    pub(crate) fn adopt(&self, owner: &Owner) {
        drop(self.state().public_owner.set(owner.clone()));
    }

    /// How holders of this kind get along, and for how many permits this one counts.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.state().sync.sharing()
    }

    /// What Redis stores as the holder.
    #[must_use]
    pub fn wire_owner(&self) -> &WireOwner {
        &self.state().owner
    }

    /// The token of this hold, when its synchronizer mints them.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.state().token
    }

    /// Until when this holder may count on the hold (P1, P5). Grows with every renewal.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.state().valid_until()
    }

    /// How much of that is left now; zero when lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let state = self.state();
        if state.is_held() {
            state.valid_until().since(state.core.clock.now())
        } else {
            Duration::ZERO
        }
    }

    /// Whether it is still held, by the clock (P5).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.state().is_held()
    }

    /// Resolves when the hold is lost (P5); never after a release. Keeps nothing alive.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        lost(self.ended())
    }

    /// Resolves when the hold is released or lost (P5). Keeps nothing alive.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        let state = self.state();
        ended(Arc::downgrade(state), Arc::clone(&state.over))
    }

    /// Runs `work` as long as the hold lasts; drops it when the hold is lost.
    ///
    /// # Errors
    /// [`LeaseLost`]: the work was dropped at an await point, in time.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        let lost = self.lost();
        let state = self.state();
        tokio::select! {
            // The loss first: after a pause, the work must not take another step.
            biased;
            reason = lost => Err(state.lease_lost(reason)),
            output = work => Ok(output),
        }
    }

    /// Renews now. See the guards' documentation.
    ///
    /// # Errors
    /// [`RenewError`].
    pub async fn renew(&self) -> Result<(), RenewError> {
        let state = Arc::clone(self.state());
        let timeout = state.core.config.operation_timeout;
        let unavailable = RenewError::Unavailable {
            name: self.name().clone(),
            outage: unanswered_in(timeout),
        };
        let work = renew(Arc::clone(&state)).instrument(span!("renew", state.sync));
        let work = Persistent::new(&state.core.runner, work);
        bounded(&state.core, timeout, work)
            .await
            .unwrap_or(Err(unavailable))
    }

    /// One more hold by the same owner.
    ///
    /// # Errors
    /// [`RenewError`].
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        reenter(self.state(), &self.state().core).await
    }

    /// Turns an exclusive hold into a hold of `to`, which shares its channel, in one step.
    ///
    /// # Errors
    /// [`ReleaseError`]; then this hold is being released.
    pub async fn downgrade(mut self, to: &Arc<dyn Synchronizer>) -> Result<Self, ReleaseError> {
        // OK: taken only by methods that consume the hold.
        let state = Arc::clone(self.state());
        let core = Arc::clone(&state.core);
        let timeout = core.config.operation_timeout;
        let unconfirmed = ReleaseError::Ambiguous {
            name: state.sync.name().clone(),
            free_by: state.free_by(),
        };
        self.state = None;
        let owner = state.public_owner.get().cloned();
        let work =
            release::downgrade(state, Arc::clone(to), owner).instrument(span!("downgrade", to));
        let work = Persistent::begun(&core.runner, work);
        bounded(&core, timeout, work)
            .await
            .unwrap_or(Err(unconfirmed))
    }

    /// Ends this hold without releasing it. See the guards' documentation.
    pub fn leave(mut self) {
        let Some(state) = self.state.take() else {
            return;
        };
        // Otherwise other guards, or an operation under way, still stand for it: the last of them ends the renewals.
        let last = state.count.try_lock().is_ok_and(|count| *count <= 1);
        if last && state.end().is_ok() {
            state.unschedule();
            state.entry.freed(&state.core, &state, Rivals::Unknown);
        }
    }

    /// Releases and waits for the server's answer.
    ///
    /// # Errors
    /// [`ReleaseError`].
    pub async fn release(mut self) -> Result<(), ReleaseError> {
        let Some(state) = self.state.take() else {
            return Ok(());
        };
        let timeout = state.core.config.operation_timeout;
        let unconfirmed = || ReleaseError::Ambiguous {
            name: state.sync.name().clone(),
            free_by: state.free_by(),
        };
        let work =
            release::one(Arc::clone(&state), Path::Direct).instrument(span!("release", state.sync));
        let work = Persistent::begun(&state.core.runner, work);
        bounded(&state.core, timeout, work)
            .await
            .unwrap_or_else(|| Err(unconfirmed()))
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            let runner = Arc::clone(&state.core.runner);
            runner.finish(async move {
                if let Err(error) = release::one(state, Path::Background).await {
                    tracing::debug!(%error, "releasing a dropped guard");
                }
            });
        }
    }
}

impl fmt::Debug for Hold {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.state().fmt(f)
    }
}

/// `work`, for at most `timeout` (P9).
///
/// The timer is set up only when the work has been woken once and is still not done. The first wait is for an answer,
/// which its link bounds; a timer for each release would be the runtime's earliest, and cost a system call to tell its
/// driver so.
async fn bounded<T: Send + 'static>(
    core: &Core,
    timeout: Duration,
    mut work: Persistent<T>,
) -> Option<T> {
    let until = core.clock.now() + timeout;
    let mut answer_expected = core.config.response_timeout * 2 <= timeout;
    let mut timer: Option<Pin<Box<tokio::time::Sleep>>> = None;
    poll_fn(|cx| {
        if let Poll::Ready(outcome) = Pin::new(&mut work).poll(cx) {
            return Poll::Ready(Some(outcome));
        }
        if std::mem::take(&mut answer_expected) {
            return Poll::Pending;
        }
        let left = || Box::pin(tokio::time::sleep(until.since(core.clock.now())));
        timer
            .get_or_insert_with(left)
            .as_mut()
            .poll(cx)
            .map(|()| None)
    })
    .await
}

fn unanswered_in(timeout: Duration) -> Outage {
    Outage::Unanswered {
        detail: format!("nothing within {}", humantime::format_duration(timeout)),
    }
}

async fn renew(state: Arc<HoldState>) -> Result<(), RenewError> {
    // One operation of an owner at a time; a release that waits for the mutex comes after this.
    let _turn = state.turn().await;
    let name = || state.sync.name().clone();
    loop {
        if let Some(reason) = state.lost_reason(state.core.clock.now()) {
            return Err(state.lease_lost(reason).into());
        }
        let sent = state.core.clock.now();
        match watchdog::renew(&state.core, &state).await {
            Ok(Some(true)) => {
                state.renewed(sent);
                return Ok(());
            }
            Ok(Some(false)) => return Err(state.gone().into()),
            // Late, or the server refused this key.
            Ok(None) => {}
            Err(Failure::Rejected(rejection)) => {
                return Err(RenewError::Rejected {
                    name: name(),
                    rejection: rejection.into(),
                });
            }
            Err(_) => {}
        }
        state.core.recover(state.valid_until()).await;
    }
}

/// One more count for `state`, told to the server that `via` is connected to.
pub(crate) async fn reenter(state: &Arc<HoldState>, via: &Arc<Core>) -> Result<Hold, RenewError> {
    let timeout = state.core.config.operation_timeout;
    let unavailable = RenewError::Unavailable {
        name: state.sync.name().clone(),
        outage: unanswered_in(timeout),
    };
    let work = reenter_persistently(Arc::clone(state), Arc::clone(via));
    let work = work.instrument(span!("reenter", state.sync));
    let work = Persistent::new(&state.core.runner, work);
    bounded(&state.core, timeout, work)
        .await
        .unwrap_or(Err(unavailable))
}

/// Dropped by its caller, it ends in the background, and the guard it makes is dropped there: count and server agree.
async fn reenter_persistently(state: Arc<HoldState>, core: Arc<Core>) -> Result<Hold, RenewError> {
    let mut count = state.turn().await;
    loop {
        if let Some(reason) = state.lost_reason(core.clock.now()) {
            return Err(state.lease_lost(reason).into());
        }
        if *count == 0 {
            return Err(state.lease_lost(LostReason::Gone).into());
        }
        let sent = core.clock.now();
        let limit = core.limit(state.sync.name(), sent);
        let request = Request {
            owner: &state.owner,
            lease: state.terms.lease,
            not_after: limit.not_after,
            since: limit.sent,
            waits: false,
            first: false,
            queued: false,
            within: None,
        };
        let Some(call) = state.sync.reenter(&request, *count) else {
            return Err(RenewError::Rejected {
                name: state.sync.name().clone(),
                rejection: Rejection::InvalidOption {
                    rule: format!("a {} cannot be held twice by one owner", state.sync.kind()),
                },
            });
        };
        match core.call(Path::Direct, &call).await {
            Ok(reply) => match Verdict::read(&reply) {
                Some(Verdict::Granted(_)) => {
                    // P6: the server set count + 1, however often the script ran.
                    *count += 1;
                    state.renewed(sent);
                    return Ok(Hold::another(&state));
                }
                Some(Verdict::Gone) if Arc::ptr_eq(&core, &state.core) => {
                    return Err(state.gone().into());
                }
                // P1: another client's hold, and this client's server does not know it. It is somewhere else, or gone; here
                // it holds nothing.
                Some(Verdict::Gone) => return Err(state.lease_lost(LostReason::Gone).into()),
                _ => core.synchronise(Path::Direct, state.sync.name()).await,
            },
            Err(Failure::Rejected(rejection)) => {
                return Err(RenewError::Rejected {
                    name: state.sync.name().clone(),
                    rejection: rejection.into(),
                });
            }
            Err(_) => {}
        }
        core.recover(state.valid_until()).await;
    }
}

/// A re-entry that failed, told as an acquire that failed.
pub(crate) fn as_acquire_error(error: RenewError, free_by: Duration) -> Option<AcquireError> {
    match error {
        // The hold ended: there is nothing to re-enter, acquire anew.
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
