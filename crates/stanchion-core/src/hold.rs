//! One hold, from its grant to its end: the state that its guards, the watchdog and the releaser share.
//!
//! A grant begins a [`HoldState`] ([`HoldState::begin`]) and gives its place in the timetable. Each guard wraps a [`Hold`], which
//! is one count of it; a re-entry adds another. The hold ends once, by a compare-and-swap of `phase`: released by its last
//! guard ([`HoldState::end`]), or lost ([`HoldState::lose`]), whichever is first. From then on nobody renews it, `ended` and
//! `lost` resolve, and the local queue calls the next waiter. A holder may count on it only until `valid_until` (P5): all
//! checks compare the clock, so an expiry needs no timer.
//!
//! Only guards (one may be in a waiter's untaken turn) and operations under way keep it alive. The timetable, the local queue's
//! `holder` and an owner's seats refer to it weakly. So it ends with its last guard: dropping a [`Hold`] releases it in the
//! background.

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

/// The state of one hold of one owner, shared by all its guards.
///
/// Any task reads the atomics, without a lock. `slot` has its place in the lock order of [`crate::waiting`].
pub(crate) struct HoldState {
    pub(crate) core: Arc<Core>,
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) entry: Arc<Entry>,
    pub(crate) owner: WireOwner,
    pub(crate) terms: HoldTerms,
    token: Option<FencingToken>,
    began: Moment,
    /// The end that `max_hold` sets.
    ends: Moment,
    /// The end that the holder may count on, in nanoseconds (P5). Raised by renewals (`fetch_max`), only from the send time of a
    /// successful request; never lowered, so an answer that arrives late cannot shorten it.
    valid_until: AtomicU64,
    /// True until the first renewal, when the server granted for less than the lease. Cleared by [`HoldState::renewed`].
    provisional: AtomicBool,
    /// True while a waiter that was given this hold has not taken it. Until then it is not renewed beyond its first lease, so a
    /// future that nobody polls cannot hold for ever. Cleared once, by [`Hold::claim`].
    unclaimed: AtomicBool,
    /// [`HELD`], [`RELEASED`] or an index into [`LOST`]. Leaves `HELD` once, by compare-and-swap, and never changes again.
    phase: AtomicU8,
    /// Rung after `phase` has changed. In an `Arc` of its own, so that a future that waits for the end keeps neither this state
    /// nor the client alive.
    over: Arc<Notify>,
    /// The number of guards. Scripts are told absolute counts, so this owner's renewals, re-entries and releases take turns:
    /// each holds this mutex from before its request until its answer. The watchdog, whose renewals carry no count, does not.
    count: tokio::sync::Mutex<u32>,
    /// The end of the time in which an earlier request of this owner may still run on the server (P3), in nanoseconds. Only
    /// raised. The release reads it, and sweeps once more after it.
    unanswered_until: AtomicU64,
    /// Its place in the timetable. The timetable is changed under this mutex when a place is taken; `phase` is read under it,
    /// so a hold that has ended never takes one.
    slot: Mutex<Option<Slot>>,
    /// The owner that users see. Set by [`Hold::adopt`], or made on first use.
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

/// The data of a grant.
pub(crate) struct Grant {
    pub(crate) owner: WireOwner,
    pub(crate) token: Option<FencingToken>,
    pub(crate) terms: HoldTerms,
    /// The moment before the request was sent.
    pub(crate) sent: Moment,
    /// The lease until the first renewal, if it is shorter than that of the terms.
    pub(crate) first: Option<Duration>,
    /// The end of the time in which an earlier request of this owner may still run.
    pub(crate) unanswered_until: Moment,
}

impl HoldState {
    /// Begins a hold, and hands it to the watchdog. It may have expired already: check [`HoldState::is_held`].
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
        // A grant too short to count on has expired at once.
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
            // Also with a long first lease the renewals come at the usual interval: by them the holder learns of a loss.
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

    /// Returns whether it is held by the clock (P5). A timer that has not fired yet changes nothing.
    pub(crate) fn is_held(&self) -> bool {
        self.phase.load(Ordering::Acquire) == HELD && self.core.clock.now() < self.valid_until()
    }

    /// Returns whether the watchdog must renew it.
    pub(crate) fn wants_renewal(&self) -> bool {
        let watched =
            self.terms.renewal == Renewal::Watchdog && !self.unclaimed.load(Ordering::Acquire);
        (watched || self.provisional.load(Ordering::Acquire)) && !self.is_at_its_end()
    }

    /// The lease that a renewal asks for.
    pub(crate) fn lease_to_ask(&self) -> Lease {
        if self.provisional.load(Ordering::Acquire) {
            self.terms.first_lease
        } else {
            self.terms.lease
        }
    }

    /// Returns whether `max_hold` leaves nothing to renew.
    fn is_at_its_end(&self) -> bool {
        self.valid_until() >= self.ends
    }

    /// The time within which due renewals are sent together.
    pub(crate) fn batching_window(&self) -> Duration {
        self.terms.lease.length() / 30
    }

    /// The reason of the loss, if it is lost. An expired lease is declared lost here: see [`HoldState::lose`] for the locks.
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

    /// Declares it lost, unless it has ended before: the first reason stays. Returns the reason that holds now; `None` when it
    /// was released. Calls the next waiter, so it locks the queue: not to be called under any of the core's blocking mutexes.
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
                // P4: the first to notice the loss wakes the waiters, because nobody else may.
                self.entry.freed(&self.core, self, Rivals::Unknown);
                Some(reason)
            }
            Err(phase) => lost_reason_of(phase),
        }
    }

    /// Turns it from held to released; the reason if it is lost instead.
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

    /// Extends it after a successful renewal that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Moment) {
        let until = self.terms.lease.valid_until(sent).min(self.ends);
        self.valid_until.fetch_max(until.nanos(), Ordering::AcqRel);
        self.provisional.store(false, Ordering::Release);
    }

    /// Declares it lost because the server no longer knows it.
    pub(crate) fn gone(self: &Arc<Self>) -> LeaseLost {
        let reason = self.lose(LostReason::Gone).unwrap_or(LostReason::Gone);
        self.lease_lost(reason)
    }

    /// Moves it to `at` in the timetable; nothing once the hold has ended.
    pub(crate) fn schedule(self: &Arc<Self>, at: Moment) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(old) = slot.take() {
            self.core.timetable.remove(old);
        }
        // Under the slot's mutex: `unschedule` runs after the phase has changed. So either it finds this slot and removes it, or
        // this sees the changed phase.
        if self.phase.load(Ordering::Acquire) == HELD {
            *slot = Some(
                self.core
                    .timetable
                    .insert(at, Item::Hold(Arc::downgrade(self))),
            );
        }
    }

    /// Leaves the timetable. To be called after the phase has changed, or the watchdog may schedule it again.
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

    /// The seat in which `owner` finds this hold.
    pub(crate) fn seat_of(&self, owner: &Owner) -> Arc<Seat> {
        owner.seat(&self.core.realm, Subject::of(&*self.sync))
    }

    /// An upper bound on the time for which the server may still know this hold, even if no more messages arrive.
    pub(crate) fn free_by(&self) -> Duration {
        match self.sync.tenure() {
            Tenure::Leased => self.terms.first_lease.length() + self.core.config.response_timeout,
            Tenure::Unleased => Duration::MAX,
            Tenure::Nothing => Duration::ZERO,
        }
    }

    /// Waits for this owner's turn: one operation at a time.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, u32> {
        if let Ok(count) = self.count.try_lock() {
            return count;
        }
        // P9: another operation is waited for here, not an answer, so no link bounds the wait. The wake-up by this yield makes
        // `bounded` set its timer.
        tokio::task::yield_now().await;
        self.count.lock().await
    }

    /// The way in which it has ended, if it has.
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

/// One count of a hold, wrapped by a guard. Dropping it releases in the background.
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

    /// Marks it as given to a waiter that has not taken it yet.
    pub(crate) fn unclaimed(self) -> Self {
        self.state().unclaimed.store(true, Ordering::Release);
        self
    }

    /// Records that the waiter has taken it. From here on the watchdog renews it.
    pub(crate) fn claim(&self) {
        let state = self.state();
        let now = state.core.clock.now();
        let due = state.began + state.terms.lease.renewal_interval();
        if state.unclaimed.swap(false, Ordering::AcqRel) && now >= due && state.is_held() {
            // A renewal was due and skipped while it was unclaimed.
            state.core.schedule_hold(state, now);
        }
    }

    /// Returns whether it is a count of `state`.
    pub(crate) fn is(&self, state: &HoldState) -> bool {
        self.state
            .as_ref()
            .is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), state))
    }

    /// Ends this state without releasing: the same grant arrived twice, and another guard has it.
    pub(crate) fn disown(mut self) {
        if let Some(state) = self.state.take() {
            state.end().ok();
            state.unschedule();
        }
    }

    /// Records that an earlier request of its owner may still run until `unanswered_until` (P3).
    pub(crate) fn mind(&self, unanswered_until: Moment) {
        self.state()
            .unanswered_until
            .fetch_max(unanswered_until.nanos(), Ordering::AcqRel);
    }

    pub(crate) fn weak(&self) -> Weak<HoldState> {
        Arc::downgrade(self.state())
    }

    /// Makes a guard's count of a hold that the server has counted already.
    pub(crate) fn another(state: &Arc<HoldState>) -> Self {
        Self {
            state: Some(Arc::clone(state)),
        }
    }

    /// The name that is held.
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
            // No other code has this owner yet, so its seat is free.
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

    /// The way in which holders of this kind share, and the number of permits that this one takes.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.state().sync.sharing()
    }

    /// The owner that Redis stores as the holder.
    #[must_use]
    pub fn wire_owner(&self) -> &WireOwner {
        &self.state().owner
    }

    /// The token of this hold, when its synchronizer mints them.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.state().token
    }

    /// The end of the time for which this holder may count on the hold (P1, P5). Every renewal moves it on.
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.state().valid_until()
    }

    /// The time left until [`valid_until`](Self::valid_until); zero when lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let state = self.state();
        if state.is_held() {
            state.valid_until().since(state.core.clock.now())
        } else {
            Duration::ZERO
        }
    }

    /// Returns whether it is still held, by the clock (P5).
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
            // The loss first: after a pause of the process, the work must not take another step.
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

    /// Re-enters: adds one more hold by the same owner.
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
        // Otherwise other guards, or an operation under way, still count on it: the last of them ends the renewals.
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

/// Runs `work` for at most `timeout` (P9); `None` after it.
///
/// The timer is set only when the work has been woken once and is still not done. The first wait is for an answer, which its
/// link bounds. A timer for each release would be the runtime's earliest one, and cost a system call to re-arm its driver.
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

/// Renews until the server has answered or the hold is lost.
async fn renew(state: Arc<HoldState>) -> Result<(), RenewError> {
    // A release that waits for its turn runs after this, and so is not undone by it.
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
            // Refused as late, or the server refused this key: try again.
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

/// Adds one count to `state`, on the server that `via` is connected to.
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

/// Adds one count, until the server has answered or the hold is lost.
///
/// If the caller drops it, it finishes in the background, and the guard that it makes is dropped there: so the local count and
/// the server's stay equal.
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
                    // P6: the script sets count + 1, so running it twice has the effect of once.
                    *count += 1;
                    state.renewed(sent);
                    return Ok(Hold::another(&state));
                }
                Some(Verdict::Gone) if Arc::ptr_eq(&core, &state.core) => {
                    return Err(state.gone().into());
                }
                // P1: the hold is another client's, and the server of this client does not know it. It is on another server or
                // gone, so there is nothing to re-enter here.
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

/// Turns the error of a re-entry into that of an acquire; `None` when the hold has ended.
pub(crate) fn as_acquire_error(error: RenewError, free_by: Duration) -> Option<AcquireError> {
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
