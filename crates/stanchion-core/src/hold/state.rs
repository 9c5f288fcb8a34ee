//! One hold, from its grant to its end: the state that its guards, the watchdog and the releaser share.
//!
//! [`HoldState::begin`] creates the [`HoldState`] of a grant and enters it in the timetable. Each guard wraps a
//! [`Hold`](crate::hold::handle::Hold), which is one count of the hold; a re-entry adds another. The hold ends once, by a
//! compare-and-swap of `phase`: its last guard releases it ([`HoldState::end`]), or it is lost ([`HoldState::lose`]), whichever
//! is first. After the end the hold is not renewed, `ended` and `lost` resolve, and the local queue wakes the next waiter. A
//! holder may count on the hold only until `valid_until` (P5): all checks compare the clock, so an expiry needs no timer.
//!
//! Only guards (one may be in a waiter's untaken turn) and operations in flight keep the state alive. The timetable,
//! the local queue's `holder` and an owner's seats have weak references to it. So the hold ends with its last guard:
//! dropping a [`Hold`](crate::hold::handle::Hold) releases it in the background.
//!
//! Long: the atomics of one hold, each with the rules by which it changes, which hold only together.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering, fence};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{MutexGuard, Notify, watch};
use tracing::{Instrument as _, Span};

use crate::agenda::Item;
use crate::description::{End, Subject, Synchronizer, Tenure};
use crate::error::{LeaseLost, LostReason};
use crate::free_by::FreeBy;
use crate::hold::ended::Ended;
use crate::hold::holds::Base;
use crate::hold::losses::Loss;
use crate::hold::parked::Parked;
use crate::hold::queue::HoldQueue;
use crate::hold::request::ReleaseRequest;
use crate::lease::Lease;
use crate::observe::{self, spans};
use crate::owner::Owner;
use crate::seat::Seat;
use crate::terms::{HoldTerms, Renewal};
use crate::token::FencingToken;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Moment, Outage, Placement, Slot};

/// The state of one hold of one owner, shared by all its guards.
///
/// Any task reads the atomics, without a lock. `slot` has its place in the lock order of [`crate::waiting`].
pub(crate) struct HoldState {
    /// This state itself, for the list of lost holds. Weak, because only guards keep a hold alive.
    this: Weak<Self>,
    /// Set at the grant and never changed, like all fields that are neither atomic nor locked.
    pub(crate) core: Arc<dyn Base>,
    pub(crate) sync: Arc<dyn Synchronizer>,
    /// The local queue of its name.
    pub(crate) queue: Arc<dyn HoldQueue>,
    pub(crate) owner: WireOwner,
    pub(crate) terms: HoldTerms,
    pub(super) token: Option<FencingToken>,
    began: Moment,
    /// The moment from which the hold counts, see [`Dated`](crate::primitive::Dated).
    due: Moment,
    /// The moment at which the next waiter of this process sends a request, if the grant sets one.
    next: Option<Moment>,
    /// The latest end of the hold: set by `max_hold`, or taken over from the hold that this one continues.
    ends: Moment,
    /// The end that the holder may count on, in nanoseconds (P5). Renewals raise it (`fetch_max`), counted from the
    /// send time of a successful request. The end is never lowered, so a late answer cannot shorten the hold.
    valid_until: AtomicU64,
    /// The longest lease requested from the server, in ms: it bounds how long the server keeps the hold. Raised before each request.
    longest_lease: AtomicU64,
    /// True until the first renewal if the server granted for less than the lease. Cleared by [`HoldState::renewed`].
    provisional: AtomicBool,
    /// The number of counts that were given to a caller which has not taken them yet: to a waiter, or to a re-entry
    /// that finished in the background. While all counts are unclaimed the hold is not renewed, so a future that is
    /// not polled cannot hold indefinitely. Lowered by [`HoldState::claim`].
    unclaimed: AtomicU32,
    /// The re-entries in flight, and some that have ended. Locked to find or add one; no other mutex is taken under this lock.
    reentries: Mutex<Vec<Weak<Parked>>>,
    /// True while the hold belongs to a call that is still waiting: the caller has not received the hold. Set and cleared by the primitive.
    withheld: AtomicBool,
    /// The number of `run`s under way. A shutdown gives them its grace.
    pub(super) working: AtomicU32,
    /// [`HELD`], [`RELEASED`] or an index into [`LOST`]. Leaves `HELD` once, by compare-and-swap, and never changes again.
    phase: AtomicU8,
    /// Notified after `phase` has changed; created by the first task that waits for the end. In an `Arc` of its own,
    /// so that a future that waits for the end keeps neither this state nor the client alive.
    over: OnceLock<Arc<Notify>>,
    /// The number of guards. Scripts receive absolute counts, so this owner's renewals, re-entries and releases take turns: each
    /// holds this mutex from before its request until its answer. The watchdog does not, because its renewals carry no count.
    pub(super) count: tokio::sync::Mutex<u32>,
    /// The end of the time in which an earlier request of this owner may still run on the server (P3), in
    /// nanoseconds. Only raised. The release reads this value, and sweeps once more after that time.
    unanswered_until: AtomicU64,
    /// The hold's slot in the timetable. This mutex stays locked while `phase` is checked and a slot is taken in the
    /// timetable. A hold that has ended therefore never takes a slot.
    slot: Mutex<Option<Slot>>,
    /// The owner that users see. Set by [`Hold::adopt`](crate::hold::handle::Hold::adopt), or made on first use.
    pub(super) public_owner: OnceLock<Owner>,
    /// The last failure of a request of an operation, for its error at the deadline. Cleared when an operation begins. Boxed: rare.
    outage: Mutex<Option<Box<Outage>>>,
    /// The last request to give the hold back. Created on first use: by a guard that subscribes, or by the first request.
    requests: OnceLock<watch::Sender<Option<ReleaseRequest>>>,
}

/// The time for which an operation waits for its turn before it moves unpolled re-entries to the background.
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
    /// The lease until the first renewal, if it is shorter than the lease of the terms. For a hold without a lease:
    /// the time until the hold ends if its waiter does not take it.
    pub(crate) first: Option<Duration>,
    /// The end of the time in which an earlier request of this owner may still run.
    pub(crate) unanswered_until: Moment,
    /// The moment from which the hold counts.
    pub(crate) due: Moment,
    /// The moment at which the next waiter sends a request, if the grant sets one.
    pub(crate) next: Option<Moment>,
}

impl HoldState {
    /// Begins a hold, and hands it to the watchdog. The hold may have expired already: check [`HoldState::is_held`].
    pub(crate) fn begin(
        core: Arc<dyn Base>,
        sync: &Arc<dyn Synchronizer>,
        queue: Arc<dyn HoldQueue>,
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
        // A grant that is too short for a lease has expired at once.
        let lease = first.map_or(Some(terms.first_lease), |first| Lease::new(first).ok());
        let lease = lease.map(|lease| lease.min(terms.first_lease));
        let valid_until = match lease {
            _ if !leased => first.map_or(Moment::FAR, |first| sent + first),
            Some(lease) => lease.valid_until(sent).min(ends),
            None => sent,
        };
        let state = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            core,
            sync: Arc::clone(sync),
            queue,
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
            working: AtomicU32::new(0),
            phase: AtomicU8::new(HELD),
            over: OnceLock::new(),
            count: tokio::sync::Mutex::new(1),
            unanswered_until: AtomicU64::new(unanswered_until.nanos()),
            slot: Mutex::new(None),
            public_owner: OnceLock::new(),
            outage: Mutex::new(None),
            requests: OnceLock::new(),
        });
        if state.sync.tenure() != Tenure::Nothing {
            if state.core.sink.is_some() {
                state.core.counts.begun(state.sync.kind().name());
            }
            // A long first lease does not change the interval of renewals, because a renewal also detects a loss.
            let renewal = lease.map_or(sent, |lease| {
                sent + lease.min(terms.lease).renewal_interval()
            });
            // A hold without a lease also gets a slot in the timetable: a shutdown finds the live holds there.
            let due = if leased { renewal } else { Moment::FAR };
            state.schedule(due.min(valid_until));
        }
        state
    }

    pub(crate) fn valid_until(&self) -> Moment {
        Moment::from_nanos(self.valid_until.load(Ordering::Acquire))
    }

    /// The notifier of the hold's end. A caller must read the phase after this call.
    pub(super) fn bell(&self) -> Arc<Notify> {
        let bell = Arc::clone(self.over.get_or_init(Arc::default));
        // With the fence in `ring`: either the end finds this bell, or its phase is seen after this.
        fence(Ordering::SeqCst);
        bell
    }

    /// Wakes the tasks that wait for the end, after the phase has changed.
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

    /// The moment from which the hold counts, and the moment at which the next waiter sends a request.
    pub(crate) fn dates(&self) -> (Moment, Option<Moment>) {
        (self.due, self.next)
    }

    /// The time since the grant.
    pub(crate) fn age(&self) -> Duration {
        self.core.clock.now().since(self.began)
    }

    /// The fencing token.
    pub(crate) fn token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The requests to give the hold back.
    pub(super) fn requests(&self) -> &watch::Sender<Option<ReleaseRequest>> {
        self.requests.get_or_init(|| watch::Sender::new(None))
    }

    /// Subscribes to messages about this hold, from now on and at least until its next renewal.
    pub(crate) fn listen(&self) {
        let (core, name) = (&self.core, self.sync.name());
        let until = self.valid_until() + self.terms.lease.length();
        if let Some(channel) = self.sync.notices() {
            core.subscriptions.hear(&channel, until);
        } else if core.placement == Placement::Slots {
            core.subscriptions.hear(&core.own_channel(name), until);
        } else if core.subscriptions.may_hear_for_ever() {
            // One channel for all names, so the subscription is kept.
            core.subscriptions
                .hear(&core.own_channel(name), Moment::FAR);
        }
    }

    /// Passes `request` to the guards.
    pub(crate) fn request(&self, request: ReleaseRequest) {
        let requests = self.requests();
        // A sender may repeat its request, as a candidate does. Only a new request is logged and passed on.
        if requests.borrow().as_ref() != Some(&request) {
            tracing::info!(name = %self.sync.name(), owner = %self.owner, reason = request.reason, "asked to release");
            requests.send_replace(Some(request));
        }
    }

    /// The last request to give the hold back, if there was one.
    pub(super) fn last_request(&self) -> Option<ReleaseRequest> {
        self.requests.get()?.borrow().clone()
    }

    pub(crate) fn unanswered_until(&self) -> Moment {
        Moment::from_nanos(self.unanswered_until.load(Ordering::Acquire))
    }

    /// Records that an earlier request of this owner may still run until `unanswered_until` (P3).
    pub(super) fn mind(&self, unanswered_until: Moment) {
        self.unanswered_until
            .fetch_max(unanswered_until.nanos(), Ordering::AcqRel);
    }

    /// Marks one count as given to a caller that has not taken it yet.
    pub(super) fn leave_unclaimed(&self) {
        self.unclaimed.fetch_add(1, Ordering::AcqRel);
    }

    /// Sets whether the hold belongs to a call that is still waiting.
    pub(super) fn withhold(&self, withheld: bool) {
        self.withheld.store(withheld, Ordering::Release);
    }

    /// Returns whether the hold belongs to a call that is still waiting. Surveys list the wait instead of the hold.
    pub(crate) fn is_of_a_wait(&self) -> bool {
        self.withheld.load(Ordering::Acquire)
    }

    /// Returns whether the caller has not received the hold: its call is still waiting, or the hold counts only from a later moment.
    pub(crate) fn is_withheld(&self) -> bool {
        self.is_of_a_wait() || self.due > self.core.clock.now()
    }

    /// Records that the caller has taken one unclaimed count. From then on the watchdog renews the hold.
    pub(super) fn claim(self: &Arc<Self>) {
        let now = self.core.clock.now();
        // This function lowers `unclaimed` before it reschedules the hold. The watchdog reads `unclaimed` after it
        // has rescheduled the hold. Whichever of the two is second sends a renewal.
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
            // A renewal was due while the hold was unclaimed, and was skipped.
            self.schedule(now);
        }
    }

    /// Returns whether a caller was given a count and has not taken it yet.
    pub(crate) fn is_unclaimed(&self) -> bool {
        self.unclaimed.load(Ordering::Acquire) > 0
    }

    /// Returns whether the hold is still held by the clock (P5). A timer that has not fired yet changes nothing.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held_at(self.core.clock.now())
    }

    pub(crate) fn is_held_at(&self, now: Moment) -> bool {
        self.phase.load(Ordering::Acquire) == HELD && now < self.valid_until()
    }

    /// Returns whether the watchdog must renew the hold.
    pub(crate) fn wants_renewal(&self) -> bool {
        // A provisional hold is always renewed once: a grant by message lasts for less than the requested lease (F4).
        let watched = self.terms.renewal == Renewal::Watchdog && self.is_claimed();
        (watched || self.provisional.load(Ordering::Acquire)) && !self.is_at_its_end()
    }

    /// Returns whether any caller has taken a count of the hold.
    pub(crate) fn is_claimed(&self) -> bool {
        let unclaimed = self.unclaimed.load(Ordering::Acquire);
        // While an operation is in flight the hold counts as claimed. The next renewal checks again.
        unclaimed == 0 || self.guards().is_none_or(|guards| unclaimed < guards)
    }

    /// The lease that a renewal at `now` requests.
    pub(crate) fn lease_to_ask(&self, now: Moment) -> Lease {
        if self.provisional.load(Ordering::Acquire) && self.terms.has_first_lease() {
            return self.terms.first_asked(now);
        }
        self.asked(self.terms.lease, now)
    }

    /// The lease to request from the server at `now`, so that the holder may count on `lease`: no longer than the hold may last (P10).
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

    /// The longest lease that was requested from the server.
    pub(super) fn longest_lease(&self) -> Lease {
        let longest = Duration::from_millis(self.longest_lease.load(Ordering::Acquire));
        Lease::new(longest).unwrap_or(Lease::MAX)
    }

    /// Records that a renewal for `lease` is about to be sent.
    pub(super) fn asks_for(&self, lease: Lease) {
        self.longest_lease
            .fetch_max(lease.millis(), Ordering::AcqRel);
    }

    /// Returns whether the hold already lasts until the end set by `max_hold`, so that a renewal cannot extend it.
    fn is_at_its_end(&self) -> bool {
        self.valid_until() >= self.ends
    }

    /// The time within which due renewals are sent together.
    pub(crate) fn batching_window(&self) -> Duration {
        // A tenth of the renewal interval: a renewal this much earlier costs little, and the holds of one process are sent in one batch.
        self.terms.lease.length() / 30
    }

    /// The reason of the loss, if the hold is lost. Declares an expired hold lost: see [`HoldState::lose`] for the locks.
    pub(crate) fn lost_reason(&self, now: Moment) -> Option<LostReason> {
        let phase = self.phase.load(Ordering::Acquire);
        if phase == HELD {
            let valid_until = self.valid_until();
            if now < valid_until {
                return None;
            }
            // P4: the first caller that sees the end declares the loss, which wakes the next waiter. The watchdog may see the end much later.
            return self.lose(if valid_until >= self.ends {
                LostReason::MaxHold
            } else {
                LostReason::Expired
            });
        }
        lost_reason_of(phase)
    }

    /// Declares the hold lost, unless it has ended before: the first reason stays. Returns the reason in effect; `None` when the
    /// hold was released. Wakes the next waiter, which locks the queue: not to be called under any of the core's blocking mutexes.
    pub(crate) fn lose(&self, reason: LostReason) -> Option<LostReason> {
        // Every reason is in `LOST`, so the default is never used.
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
            // Several tasks may notice the loss, but only one gets here, so the queue is called once.
            Ok(_) => {
                let (kind, label) = (self.sync.kind().name(), observe::reason(reason));
                self.core.tell(|sink| sink.lost(kind, label));
                self.tell_ended();
                tracing::warn!(name = %self.sync.name(), owner = %self.owner, %reason, "hold lost");
                self.ring();
                self.may_be_there(reason);
                // P4: the first task that notices the loss wakes the waiters, because no other task may do so.
                self.queue.freed(self, End::Unknown);
                Some(reason)
            }
            Err(phase) => lost_reason_of(phase),
        }
    }

    /// Records that the server may still have the hold, although it was lost and its guards have not ended.
    fn may_be_there(&self, reason: LostReason) {
        let there = match reason {
            LostReason::Expired | LostReason::MaxHold | LostReason::Shutdown => {
                self.sync.tenure() != Tenure::Nothing
            }
            LostReason::Gone => self.sync.in_parts(),
        };
        if there {
            let (now, free_by) = (self.core.clock.now(), self.free_by().bound());
            let loss = Loss {
                hold: Some(self.this.clone()),
                name: self.sync.name().clone(),
                owner: self.owner.clone(),
                gone: free_by.map_or(Moment::FAR, |time| now + time),
            };
            self.core.losses.add(loss, now);
        }
    }

    /// Records the failure of a request of an operation.
    pub(super) fn failed(&self, outage: &Outage) {
        let boxed = Some(Box::new(outage.clone()));
        *self.outage.lock().unwrap_or_else(PoisonError::into_inner) = boxed;
    }

    /// Takes the last failure of a request of the operation under way.
    pub(super) fn take_outage(&self) -> Option<Outage> {
        let mut outage = self.outage.lock().unwrap_or_else(PoisonError::into_inner);
        outage.take().map(|outage| *outage)
    }

    /// Changes the phase from held to released. Returns the reason if the hold is lost instead.
    pub(crate) fn end(&self) -> Result<(), LostReason> {
        // P8: a hold whose lease has ended is not reported as released, even if no task has declared it lost.
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
            // The hold has ended since the check above: it was lost, or another guard released it.
            Err(phase) => lost_reason_of(phase).map_or(Ok(()), Err),
        }
    }

    /// Reports the end to the sink of metrics. Called once, by the task that changed the phase.
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

    /// Returns whether the server has granted for less than the lease, and no renewal has succeeded since.
    pub(super) fn is_provisional(&self) -> bool {
        self.provisional.load(Ordering::Acquire)
    }

    /// Extends the hold after a successful renewal that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Moment) {
        // P1: by the usual lease, even if a longer first lease was requested. The holder may count on a shorter time
        // than the server keeps the hold, but never on a longer one.
        self.renewed_for(self.terms.lease, sent);
    }

    /// Extends the hold by `lease` after a successful renewal for that lease, sent at `sent`.
    pub(super) fn renewed_for(&self, lease: Lease, sent: Moment) {
        let until = lease.valid_until(sent).min(self.ends);
        self.valid_until.fetch_max(until.nanos(), Ordering::AcqRel);
        // Cleared after the new end is stored: a task that reads the cleared mark (Acquire) also reads that end.
        self.provisional.store(false, Ordering::Release);
    }

    /// Declares the hold lost because the server no longer has it.
    pub(crate) fn gone(self: &Arc<Self>) -> LeaseLost {
        // `None`: the hold was released while this answer was in flight.
        let reason = self.lose(LostReason::Gone).unwrap_or(LostReason::Gone);
        self.lease_lost(reason)
    }

    /// Moves the hold to `at` in the timetable. Does nothing once the hold has ended.
    pub(crate) fn schedule(self: &Arc<Self>, at: Moment) {
        let mut slot = self.slot.lock().unwrap_or_else(PoisonError::into_inner);
        let (table, old) = (&self.core.timetable, slot.take());
        // The phase is read under the mutex of `slot`, and `unschedule` runs after the phase has changed. So either
        // `unschedule` finds this slot and removes it, or this function sees the changed phase.
        if self.phase.load(Ordering::Acquire) == HELD {
            *slot = Some(table.replace(old, at, Item::Hold(Arc::downgrade(self))));
        } else if let Some(old) = old {
            table.remove(old);
        }
    }

    /// Removes the hold from the timetable. Must be called after the phase has changed; otherwise the watchdog may schedule it again.
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

    /// Runs an operation on this hold in `span`, and records its end there.
    pub(super) fn traced<T, E: spans::Outcome, F: Future<Output = Result<T, E>>>(
        self: &Arc<Self>,
        span: Span,
        operation: F,
    ) -> impl Future<Output = Result<T, E>> + use<T, E, F> {
        let (recorded, hold) = (span.clone(), Arc::clone(self));
        operation
            .inspect(move |result| {
                spans::ended(&recorded, result, || hold.age(), hold.token);
            })
            .instrument(span)
    }

    pub(crate) fn lease_lost(&self, reason: LostReason) -> LeaseLost {
        LeaseLost {
            name: self.sync.name().clone(),
            reason,
        }
    }

    /// The number of guards; `None` while an operation on the hold is in flight.
    pub(crate) fn guards(&self) -> Option<u32> {
        self.count.try_lock().ok().map(|count| *count)
    }

    /// The end that `max_hold` sets; `None` without one.
    pub(super) fn latest_end(&self) -> Option<Moment> {
        Some(self.ends).filter(|end| *end != Moment::FAR)
    }

    /// The end of the hold without a release: the end of its lease if it is renewed manually, otherwise the end set by `max_hold`.
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

    /// Waits for this owner's turn: its operations run one at a time.
    pub(crate) async fn turn(&self) -> MutexGuard<'_, u32> {
        if let Ok(count) = self.count.try_lock() {
            return count;
        }
        // P9: this wait is for another operation, not for an answer, so no link bounds the wait. The wake-up by this
        // yield makes `in_time` set its timer.
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

    /// Records a re-entry that is in flight.
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

    /// Moves the re-entries that are not being polled to the background, because one of them may have the turn.
    fn finish_parked(&self) {
        let all: Vec<_> = self.reentries().iter().filter_map(Weak::upgrade).collect();
        for reentry in all {
            reentry.finish(&self.core.runner);
        }
    }

    /// The way in which the hold has ended, if it has.
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
