//! One hold, from its grant to its end: the state that its guards, the watchdog and the releaser share.
//!
//! A grant begins a [`HoldState`] ([`HoldState::begin`]) and gives it its place in the timetable. Each guard wraps a
//! [`Hold`](crate::hold::handle::Hold), which is one count of it; a re-entry adds another. The hold ends once, by a compare-and-swap of
//! `phase`: released by its last guard ([`HoldState::end`]), or lost ([`HoldState::lose`]), whichever is first. From then on nobody
//! renews it, `ended` and `lost` resolve, and the local queue calls the next waiter. A holder may count on it only until
//! `valid_until` (P5): all checks compare the clock, so an expiry needs no timer.
//!
//! Only guards (one may be in a waiter's untaken turn) and operations under way keep it alive. The timetable, the local queue's
//! `holder` and an owner's seats refer to it weakly. So it ends with its last guard: dropping a
//! [`Hold`](crate::hold::handle::Hold) releases it in the background.
//!
//! Long: the atomics of one hold, each with the rules by which it changes, which hold only together.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use tokio::sync::{MutexGuard, Notify, watch};

use crate::agenda::Item;
use crate::description::{Subject, Synchronizer, Tenure};
use crate::error::{LeaseLost, LostReason};
use crate::free_by::FreeBy;
use crate::hold::ended::Ended;
use crate::hold::parked::Parked;
use crate::lease::Lease;
use crate::notice::ReleaseRequest;
use crate::observe;
use crate::options::{HoldTerms, Renewal};
use crate::owner::Owner;
use crate::seat::Seat;
use crate::shared::Core;
use crate::timetable::Slot;
use crate::token::FencingToken;
use crate::waiting::{End, LockEntry};
use crate::wire_owner::WireOwner;
use stanchion_transport::Moment;

/// The state of one hold of one owner, shared by all its guards.
///
/// Any task reads the atomics, without a lock. `slot` has its place in the lock order of [`crate::waiting`].
pub(crate) struct HoldState {
    /// Itself, for the list of those that are lost. Weak, as everything that is no guard.
    this: Weak<Self>,
    /// Fixed at the grant, as all fields that are neither atomic nor locked.
    pub(crate) core: Arc<Core>,
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) entry: Arc<LockEntry>,
    pub(crate) owner: WireOwner,
    pub(crate) terms: HoldTerms,
    pub(super) token: Option<FencingToken>,
    began: Moment,
    /// The moment from which on it counts.
    due: Moment,
    /// The moment at which the next waiter of this process asks, if the grant says so.
    next: Option<Moment>,
    /// The end that `max_hold` sets, and what the hold continues.
    ends: Moment,
    /// The end that the holder may count on, in nanoseconds (P5). Raised by renewals (`fetch_max`), only from the send time of a
    /// successful request; never lowered, so an answer that arrives late cannot shorten it.
    valid_until: AtomicU64,
    /// The longest lease that the server was asked for, in ms. Raised before the request is sent: how long it may know the hold.
    longest_lease: AtomicU64,
    /// True until the first renewal, when the server granted for less than the lease. Cleared by [`HoldState::renewed`].
    provisional: AtomicBool,
    /// The number of its counts that were given to callers which have not taken them: to a waiter, or to a re-entry that was finished
    /// for its caller. While that is all of them it is not renewed, so a future that nobody polls cannot hold for ever. Lowered by
    /// [`HoldState::claim`].
    unclaimed: AtomicU32,
    /// The re-entries under way, and some that have ended. Locked to find or add one; no other mutex is taken under it.
    reentries: Mutex<Vec<Weak<Parked>>>,
    /// True while it belongs to a call that waits on: its caller has not been given it. Set and cleared by the primitive.
    withheld: AtomicBool,
    /// [`HELD`], [`RELEASED`] or an index into [`LOST`]. Leaves `HELD` once, by compare-and-swap, and never changes again.
    phase: AtomicU8,
    /// Rung after `phase` has changed; made by the first that waits for that. In an `Arc` of its own, so that a future that waits for
    /// the end keeps neither this state nor the client alive.
    over: OnceLock<Arc<Notify>>,
    /// The number of guards. Scripts are told absolute counts, so this owner's renewals, re-entries and releases take turns:
    /// each holds this mutex from before its request until its answer. The watchdog, whose renewals carry no count, does not.
    pub(super) count: tokio::sync::Mutex<u32>,
    /// The end of the time in which an earlier request of this owner may still run on the server (P3), in nanoseconds. Only
    /// raised. The release reads it, and sweeps once more after it.
    unanswered_until: AtomicU64,
    /// Its place in the timetable. The timetable is changed under this mutex when a place is taken; `phase` is read under it,
    /// so a hold that has ended never takes one.
    slot: Mutex<Option<Slot>>,
    /// The owner that users see. Set by [`Hold::adopt`](crate::hold::handle::Hold::adopt), or made on first use.
    pub(super) public_owner: OnceLock<Owner>,
    /// The last request to give it back. Made on first use: by a guard that wants to know, or by the request.
    requests: OnceLock<watch::Sender<Option<ReleaseRequest>>>,
}

/// The time for which an operation waits for the one before it, until it has that finished in the background.
const PATIENCE: Duration = Duration::from_millis(50);

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
    /// The lease until the first renewal, if it is shorter than that of the terms. Without a lease: how long it lasts unless its waiter
    /// takes it.
    pub(crate) first: Option<Duration>,
    /// The end of the time in which an earlier request of this owner may still run.
    pub(crate) unanswered_until: Moment,
    /// The moment from which on it counts.
    pub(crate) due: Moment,
    /// The moment at which the next waiter asks, if the grant says so.
    pub(crate) next: Option<Moment>,
}

impl HoldState {
    /// Begins a hold, and hands it to the watchdog. It may have expired already: check [`HoldState::is_held`].
    pub(crate) fn begin(
        core: &Arc<Core>,
        sync: &Arc<dyn Synchronizer>,
        entry: &Arc<LockEntry>,
        grant: Grant,
    ) -> Arc<Self> {
        let Grant {
            owner,
            token,
            terms,
            sent,
            first,
            unanswered_until,
            due,
            next,
        } = grant;
        let ends = terms.ends(sent);
        let leased = sync.tenure() == Tenure::Leased;
        // A grant too short to count on has expired at once.
        let lease = first.map_or(Some(terms.first_lease), |first| Lease::new(first).ok());
        let lease = lease.map(|lease| lease.min(terms.first_lease));
        let valid_until = match lease {
            _ if !leased => first.map_or(Moment::FAR, |first| sent + first),
            Some(lease) => lease.valid_until(sent).min(ends),
            None => sent,
        };
        let state = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            core: Arc::clone(core),
            sync: Arc::clone(sync),
            entry: Arc::clone(entry),
            owner,
            terms,
            token,
            began: sent,
            due,
            next,
            ends,
            valid_until: AtomicU64::new(valid_until.nanos()),
            longest_lease: AtomicU64::new(terms.first_asked(sent).millis()),
            provisional: AtomicBool::new(leased && first.is_some()),
            unclaimed: AtomicU32::new(0),
            reentries: Mutex::default(),
            withheld: AtomicBool::new(false),
            phase: AtomicU8::new(HELD),
            over: OnceLock::new(),
            count: tokio::sync::Mutex::new(1),
            unanswered_until: AtomicU64::new(unanswered_until.nanos()),
            slot: Mutex::new(None),
            public_owner: OnceLock::new(),
            requests: OnceLock::new(),
        });
        if state.sync.tenure() != Tenure::Nothing {
            if core.sink.is_some() {
                core.counts.begun(state.sync.kind().name());
            }
            // Also with a long first lease the renewals come at the usual interval: by them the holder learns of a loss.
            let renewal = lease.map_or(sent, |lease| {
                sent + lease.min(terms.lease).renewal_interval()
            });
            // Also without a lease it gets a place in the timetable: there a shutdown finds the holds that are alive.
            let due = if leased { renewal } else { Moment::FAR };
            state.schedule(due.min(valid_until));
        }
        state
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// The bell that rings at its end. Who takes it reads the phase afterwards.
    pub(super) fn bell(&self) -> Arc<Notify> {
        let bell = Arc::clone(self.over.get_or_init(Arc::default));
        // With the fence in `ring`: either the end finds this bell, or its phase is seen after this.
        fence(Ordering::SeqCst);
        bell
    }

    /// Wakes those who wait for the end, after the phase has changed.
    fn ring(&self) {
        fence(Ordering::SeqCst);
        if let Some(bell) = self.over.get() {
            bell.notify_waiters();
        }
    }

    /// The moment of its grant, before the request was sent.
    pub(crate) fn began(&self) -> Moment {
        self.began
    }

    /// The moment from which on it counts, and the one at which the next waiter asks.
    pub(crate) fn dates(&self) -> (Moment, Option<Moment>) {
        (self.due, self.next)
    }

    /// The time since its grant.
    pub(crate) fn age(&self) -> Duration {
        self.core.clock.now().since(self.began)
    }

    /// Its fencing token.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The requests to give it back.
    pub(super) fn requests(&self) -> &watch::Sender<Option<ReleaseRequest>> {
        self.requests.get_or_init(|| watch::Sender::new(None))
    }

    /// Shows `request` to its guards.
    pub(crate) fn request(&self, request: ReleaseRequest) {
        let requests = self.requests();
        // What asks again and again, as a candidate does, is said once.
        if requests.borrow().as_ref() != Some(&request) {
            tracing::info!(name = %self.sync.name(), owner = %self.owner, reason = request.reason, "asked to release");
            requests.send_replace(Some(request));
        }
    }

    /// The last request, if there was one.
    pub(super) fn last_request(&self) -> Option<ReleaseRequest> {
        self.requests.get()?.borrow().clone()
    }

    pub(crate) fn unanswered_until(&self) -> Moment {
        Moment::from_nanos(self.unanswered_until.load(Ordering::Acquire))
    }

    /// Records that an earlier request of its owner may still run until `unanswered_until` (P3).
    pub(super) fn mind(&self, unanswered_until: Moment) {
        self.unanswered_until
            .fetch_max(unanswered_until.nanos(), Ordering::AcqRel);
    }

    /// Marks a count of it as given to a caller that has not taken it yet.
    pub(super) fn leave_unclaimed(&self) {
        self.unclaimed.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets whether it belongs to a call that waits on.
    pub(super) fn withhold(&self, withheld: bool) {
        self.withheld.store(withheld, Ordering::Release);
    }

    /// Returns whether it belongs to a call that waits on, and is told as that wait.
    pub(crate) fn is_of_a_wait(&self) -> bool {
        self.withheld.load(Ordering::Acquire)
    }

    /// Returns whether no caller has been given it: it belongs to a call that waits on, or counts only from a later moment on.
    pub(crate) fn is_withheld(&self) -> bool {
        self.is_of_a_wait() || self.due > self.core.clock.now()
    }

    /// Records that the caller has taken that count. From here on the watchdog renews it.
    pub(super) fn claim(self: &Arc<Self>) {
        let now = self.core.clock.now();
        // `unclaimed` is lowered before the hold is rescheduled, and the watchdog reads it after it has rescheduled the hold:
        // whichever of the two is second, a renewal is sent.
        let due = self.began + self.terms.lease.renewal_interval();
        let fewer = |unclaimed: u32| unclaimed.checked_sub(1);
        let lowered = self
            .unclaimed
            .fetch_update(Ordering::AcqRel, Ordering::Acquire, fewer);
        if lowered.is_err() || !self.is_held() {
            return;
        }
        if self.sync.tenure() == Tenure::Unleased {
            self.valid_until
                .fetch_max(Moment::FAR.nanos(), Ordering::AcqRel);
            self.schedule(Moment::FAR);
        } else if now >= due {
            // A renewal was due and skipped while it was unclaimed.
            self.schedule(now);
        }
    }

    /// Returns whether some caller has been given it and has not taken it yet.
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.unclaimed.load(Ordering::Acquire) > 0
    }

    /// Returns whether it is held by the clock (P5). A timer that has not fired yet changes nothing.
    pub(crate) fn is_held(&self) -> bool {
        self.phase.load(Ordering::Acquire) == HELD && self.core.clock.now() < self.valid_until()
    }

    /// Returns whether the watchdog must renew it.
    pub(crate) fn wants_renewal(&self) -> bool {
        // A provisional hold is renewed once in any case: a grant by message lasts for less than the lease that was asked for
        // (F4).
        let watched = self.terms.renewal == Renewal::Watchdog && self.is_claimed();
        (watched || self.provisional.load(Ordering::Acquire)) && !self.is_at_its_end()
    }

    /// Returns whether any caller has taken a count of it.
    pub(crate) fn is_claimed(&self) -> bool {
        let unclaimed = self.unclaimed.load(Ordering::Acquire);
        // With an operation under way, the next renewal sees.
        unclaimed == 0 || self.guards().is_none_or(|guards| unclaimed < guards)
    }

    /// The lease that a renewal at `now` requests.
    pub(crate) fn lease_to_ask(&self, now: Moment) -> Lease {
        if self.provisional.load(Ordering::Acquire) && self.terms.has_first_lease() {
            return self.terms.first_asked(now);
        }
        self.asked(self.terms.lease, now)
    }

    /// The lease to ask the server for at `now`, so that the holder may count on `lease`: no longer than the hold may last (P10).
    pub(super) fn asked(&self, lease: Lease, now: Moment) -> Lease {
        self.terms.asked_for(lease.within(now, self.ends))
    }

    /// The terms of a hold that continues this one.
    pub(super) fn terms_left(&self) -> HoldTerms {
        HoldTerms {
            until: self.ends,
            ..self.terms
        }
    }

    /// The longest lease that the server was asked for.
    pub(super) fn longest_lease(&self) -> Lease {
        let longest = Duration::from_millis(self.longest_lease.load(Ordering::Acquire));
        Lease::new(longest).unwrap_or(Lease::MAX)
    }

    /// Records that a renewal for `lease` is about to be sent.
    pub(super) fn asks_for(&self, lease: Lease) {
        self.longest_lease
            .fetch_max(lease.millis(), Ordering::AcqRel);
    }

    /// Returns whether `max_hold` leaves nothing to renew.
    fn is_at_its_end(&self) -> bool {
        self.valid_until() >= self.ends
    }

    /// The time within which due renewals are sent together.
    pub(crate) fn batching_window(&self) -> Duration {
        // A tenth of the renewal interval: renewing so much earlier costs little, and holds of one process are sent in one batch.
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
            // P4: whoever sees the end declares it and so calls the next waiter. The watchdog may see it much later.
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
        // Every reason is in `LOST`: the default is never taken.
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
            // Only one of several tasks that notice the loss gets here, so the queue is called once.
            Ok(_) => {
                let (kind, label) = (self.sync.kind().name(), observe::reason(reason));
                self.core.tell(|sink| sink.lost(kind, label));
                self.tell_ended();
                tracing::warn!(name = %self.sync.name(), owner = %self.owner, %reason, "hold lost");
                self.ring();
                self.may_be_there(reason);
                // P4: the first to notice the loss wakes the waiters, because nobody else may.
                self.entry.freed(&self.core, self, End::Unknown);
                Some(reason)
            }
            Err(phase) => lost_reason_of(phase),
        }
    }

    /// Records that the server may still have it, though it was lost: its guards have not ended.
    fn may_be_there(&self, reason: LostReason) {
        let there = match reason {
            LostReason::Expired | LostReason::MaxHold | LostReason::Shutdown => {
                self.sync.tenure() != Tenure::Nothing
            }
            LostReason::Gone => self.sync.in_parts(),
        };
        if there && let Some(this) = self.this.upgrade() {
            self.core.losses.add(&this);
        }
    }

    /// Turns it from held to released; the reason if it is lost instead.
    pub(crate) fn end(&self) -> Result<(), LostReason> {
        // P8: a hold whose lease has ended is not reported as released, even if nobody has declared it lost.
        if let Some(reason) = self.lost_reason(self.core.clock.now()) {
            return Err(reason);
        }
        match self
            .phase
            .compare_exchange(HELD, RELEASED, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => {
                self.ring();
                self.tell_ended();
                Ok(())
            }
            // Ended since the check above: lost, or released by another guard.
            Err(phase) => lost_reason_of(phase).map_or(Ok(()), Err),
        }
    }

    /// Tells that it has ended. Once, by whoever changed the phase.
    fn tell_ended(&self) {
        let kind = self.sync.kind().name();
        // Without a sink a release does not read the clock.
        self.core.tell(|sink| {
            if self.sync.tenure() != Tenure::Nothing {
                self.core.counts.ended(kind);
            }
            sink.held(kind, self.age());
        });
    }

    /// Extends it after a successful renewal that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Moment) {
        // P1: by the usual lease, also where a longer first one was asked for. What the holder counts on may be shorter than what
        // the server keeps, never longer.
        self.renewed_for(self.terms.lease, sent);
    }

    /// Extends it by `lease` after a successful renewal for it that was sent at `sent`.
    pub(super) fn renewed_for(&self, lease: Lease, sent: Moment) {
        let until = lease.valid_until(sent).min(self.ends);
        self.valid_until.fetch_max(until.nanos(), Ordering::AcqRel);
        // After the new end: whoever reads the mark as cleared (Acquire) reads that end, too.
        self.provisional.store(false, Ordering::Release);
    }

    /// Declares it lost because the server no longer knows it.
    pub(crate) fn gone(self: &Arc<Self>) -> LeaseLost {
        // `None`: released while this answer was under way.
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

    /// The number of guards; `None` while an operation on it is under way.
    pub(crate) fn guards(&self) -> Option<u32> {
        self.count.try_lock().ok().map(|count| *count)
    }

    /// The end that `max_hold` sets; `None` where there is none.
    pub(super) fn latest_end(&self) -> Option<Moment> {
        Some(self.ends).filter(|end| *end != Moment::FAR)
    }

    /// The moment at which it ends though nobody releases it: nobody renews it, or not for longer.
    pub(crate) fn ends(&self) -> Option<Moment> {
        match self.terms.renewal {
            Renewal::Manual => Some(self.valid_until()),
            Renewal::Watchdog => Some(self.ends),
        }
        .filter(|end| *end != Moment::FAR)
    }

    /// The seat in which `owner` finds this hold.
    pub(crate) fn seat_of(&self, owner: &Owner) -> Arc<Seat> {
        owner.seat(&self.core.realm, Subject::of(&*self.sync))
    }

    /// An upper bound on the time for which the server may still know this hold, even if no more messages arrive.
    pub(crate) fn free_by(&self) -> FreeBy {
        let by_lease = self.core.free_by(self.sync.tenure(), self.longest_lease());
        if self.ends == Moment::FAR || self.terms.has_first_lease() {
            return by_lease;
        }
        // No request set a lease longer than the rest of `max_hold`, and the last request may run late (P10).
        let whole = Lease::MAX.within(self.began, self.ends);
        let last = self.began + self.terms.asked_for(whole).length();
        let last = last.max(self.ends) + self.core.config.silence_limit();
        by_lease.min(last.since(self.core.clock.now()).into())
    }

    /// Waits for this owner's turn: one operation at a time.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, u32> {
        if let Ok(count) = self.count.try_lock() {
            return count;
        }
        // P9: another operation is waited for here, not an answer, so no link bounds the wait. The wake-up by this yield makes
        // `bounded` set its timer.
        tokio::task::yield_now().await;
        let mut turn = pin!(self.count.lock());
        loop {
            tokio::select! {
                biased;
                count = &mut turn => return count,
                () = self.core.runner.sleep(PATIENCE) => self.finish_parked(),
            }
        }
    }

    /// Records a re-entry that is under way.
    pub(super) fn reenters(&self, reentry: &Arc<Parked>) {
        let mut all = self.reentries();
        all.retain(|it| it.strong_count() > 0);
        all.push(Arc::downgrade(reentry));
    }

    fn reentries(&self) -> std::sync::MutexGuard<'_, Vec<Weak<Parked>>> {
        self.reentries
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
    }

    /// Has the re-entries that nobody polls finished in the background: one of them may have the turn.
    fn finish_parked(&self) {
        let all: Vec<_> = self.reentries().iter().filter_map(Weak::upgrade).collect();
        for reentry in all {
            reentry.finish(&self.core.runner);
        }
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
