//! One hold, from its grant to its end: the state that its guards, the watchdog and the releaser share.
//!
//! [`HoldState::begin`] creates the [`HoldState`] of a grant and enters it in the timetable. Each guard wraps a
//! [`Hold`](crate::hold::handle::Hold), which is one count of the hold; a re-entry adds another. The hold ends once: its last guard
//! releases it ([`HoldState::end`]), or it is lost ([`HoldState::lose`]), whichever is first. After the end the hold is not renewed,
//! `ended` and `lost` resolve, and the local queue wakes the next waiter. A holder may count on the hold only until `valid_until` (P5):
//! all checks compare the clock, so an expiry needs no timer.
//!
//! What changes is under one mutex; [`Life`] decides. [`HoldState::is_held`] reads an atomic instead, because queues call it under theirs.
//!
//! Only guards (one may be in a waiter's untaken turn) and operations in flight keep the state alive. The timetable,
//! the local queue's `holder` and an owner's seats have weak references to it. So the hold ends with its last guard:
//! dropping a [`Hold`](crate::hold::handle::Hold) releases it in the background.
//!
//! Long: the record of one hold, and all that reads or changes it.

use std::fmt;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;

use futures_util::FutureExt as _;
use tokio::sync::{Notify, watch};
use tracing::{Instrument as _, Span};

use crate::about::Tenure;
use crate::agenda::Item;
use crate::description::{End, Subject, Synchronizer};
use crate::error::{LeaseLost, LostReason};
use crate::free_by::FreeBy;
use crate::hold::claim::Claim;
use crate::hold::debt::Debt;
use crate::hold::ended::Ended;
use crate::hold::holds::Base;
use crate::hold::life::{Due, Life, Start};
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
use stanchion_transport::{Moment, Outage, Placement, Slot};

/// The state of one hold of one owner, shared by all its guards.
pub(crate) struct HoldState {
    /// This state itself, for the timetable and the list of lost holds. Weak, because only guards keep a hold alive.
    this: Weak<Self>,
    /// Set at the grant and never changed, like all fields without a lock.
    pub(crate) core: Arc<dyn Base>,
    pub(crate) sync: Arc<dyn Synchronizer>,
    /// The local queue of its name.
    pub(crate) queue: Arc<dyn HoldQueue>,
    /// What its owner may have on the server.
    pub(crate) debt: Arc<Debt>,
    pub(crate) terms: HoldTerms,
    pub(super) token: Option<FencingToken>,
    began: Moment,
    /// The moment from which the hold counts, see [`Dated`](crate::primitive::Dated).
    due: Moment,
    /// The moment at which the next waiter of this process sends a request, if the grant sets one.
    next: Option<Moment>,
    /// [`Life::held_until`] in nanoseconds, for readers without its lock (P5).
    held_until: AtomicU64,
    /// Has its place in the lock order of [`crate::waiting`].
    shared: Mutex<Shared>,
    /// The number of guards. Scripts receive absolute counts, so this owner's renewals, re-entries and releases take turns: each
    /// holds this mutex from before its request until its answer. The watchdog does not, because its renewals carry no count.
    pub(super) count: tokio::sync::Mutex<u32>,
    /// The owner that users see. Set by [`Hold::adopt`](crate::hold::handle::Hold::adopt), or made on first use.
    pub(super) public_owner: OnceLock<Owner>,
}

/// What changes while a hold lasts.
struct Shared {
    life: Life,
    /// True while the hold belongs to a call that is still waiting: the caller has not received the hold. Set and cleared by the primitive.
    withheld: bool,
    /// The number of `run`s under way. A shutdown gives them its grace.
    working: u32,
    /// The hold's slot in the timetable. A hold that has ended has none.
    slot: Option<Slot>,
    /// The re-entries in flight, and some that have ended.
    reentries: Vec<Weak<Parked>>,
    /// The last failure of a request of an operation, for its error at the deadline. Cleared when an operation begins. Boxed: rare.
    outage: Option<Box<Outage>>,
    /// Notified after the end; created by the first task that waits for the end. In an `Arc` of its own, so that a future that waits for
    /// the end keeps neither this state nor the client alive.
    over: Option<Arc<Notify>>,
    /// The last request to give the hold back. Created by a guard that subscribes, or by the first request.
    requests: Option<watch::Sender<Option<ReleaseRequest>>>,
}

/// The time for which an operation waits for its turn before it moves unpolled re-entries to the background.
const PATIENCE: Duration = Duration::from_millis(50);

/// The data of a grant.
pub(crate) struct Grant {
    pub(crate) token: Option<FencingToken>,
    pub(crate) terms: HoldTerms,
    /// The moment before the request was sent.
    pub(crate) sent: Moment,
    /// The lease until the first renewal, if it is shorter than the lease of the terms.
    pub(crate) first: Option<Duration>,
    /// True if the hold is given to a waiter that has to take it.
    pub(crate) given: bool,
    /// The moment from which the hold counts.
    pub(crate) due: Moment,
    /// The moment at which the next waiter sends a request, if the grant sets one.
    pub(crate) next: Option<Moment>,
}

impl HoldState {
    /// Begins the hold of the owner of `debt`, and hands it to the watchdog. The hold may have expired already: check [`HoldState::is_held`].
    pub(crate) fn begin(debt: Arc<Debt>, queue: Arc<dyn HoldQueue>, grant: Grant) -> Arc<Self> {
        let Grant {
            token,
            terms,
            sent,
            first,
            given,
            due,
            next,
        } = grant;
        debt.record(Claim::granted);
        let (core, sync) = (Arc::clone(&debt.core), Arc::clone(&debt.sync));
        let tenure = sync.tenure();
        let life = Life::begin(Start {
            now: core.clock.now(),
            sent,
            tenure,
            leases: [terms.lease, terms.first_lease],
            short: first,
            is_watched: terms.renewal == Renewal::Watchdog,
            ends: terms.ends(sent),
            is_given: given,
            keeps: sync.about().keeps_late_grants,
        });
        let state = Arc::new_cyclic(|this| Self {
            this: this.clone(),
            core,
            sync,
            queue,
            debt,
            terms,
            token,
            began: sent,
            due,
            next,
            held_until: AtomicU64::new(life.held_until().nanos()),
            shared: Mutex::new(Shared {
                life,
                withheld: false,
                working: 0,
                slot: None,
                reentries: Vec::new(),
                outage: None,
                over: None,
                requests: None,
            }),
            count: tokio::sync::Mutex::new(1),
            public_owner: OnceLock::new(),
        });
        if tenure != Tenure::Nothing && state.core.sink.is_some() {
            state.core.counts.begun(state.sync.kind().name());
        }
        state.plan(&mut state.shared(), false);
        state
    }

    /// Locked for a moment only: never across an await, a queue's event or a waker.
    fn shared(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the life, and what follows from it.
    pub(crate) fn change<R>(&self, change: impl FnOnce(&mut Life) -> R) -> R {
        let mut shared = self.shared();
        let result = change(&mut shared.life);
        self.changed(&mut shared);
        result
    }

    fn changed(&self, shared: &mut Shared) {
        let until = shared.life.held_until().nanos();
        self.held_until.store(until, Ordering::Release);
        self.plan(shared, false);
    }

    /// The present life.
    pub(crate) fn life(&self) -> Life {
        self.shared().life
    }

    pub(crate) fn valid_until(&self) -> Moment {
        self.shared().life.valid_until()
    }

    /// The latest end of the hold: set by `max_hold`, or taken over from the hold that this one continues.
    fn last_end(&self) -> Moment {
        self.terms.ends(self.began)
    }

    /// The notifier of the hold's end. A caller must ask for the end after this call.
    pub(super) fn bell(&self) -> Arc<Notify> {
        Arc::clone(self.shared().over.get_or_insert_default())
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
    pub(super) fn requests(&self) -> watch::Sender<Option<ReleaseRequest>> {
        let mut shared = self.shared();
        let requests = shared
            .requests
            .get_or_insert_with(|| watch::Sender::new(None));
        requests.clone()
    }

    /// Subscribes to messages about this hold, from now on and at least until its next renewal.
    pub(crate) fn listen(&self) {
        let (core, name) = (&self.core, self.sync.name());
        let until = self.valid_until() + self.terms.lease.length();
        if let Some(channel) = &self.sync.about().notices {
            core.subscriptions.hear(channel, until);
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
            tracing::info!(name = %self.sync.name(), owner = %self.debt.owner, reason = request.reason, "asked to release");
            requests.send_replace(Some(request));
        }
    }

    /// The last request to give the hold back, if there was one.
    pub(super) fn last_request(&self) -> Option<ReleaseRequest> {
        self.shared().requests.as_ref()?.borrow().clone()
    }

    /// Sets whether the hold belongs to a call that is still waiting.
    pub(super) fn withhold(&self, withheld: bool) {
        self.shared().withheld = withheld;
    }

    /// Returns whether the hold belongs to a call that is still waiting. Surveys list the wait instead of the hold.
    pub(crate) fn is_of_a_wait(&self) -> bool {
        self.shared().withheld
    }

    /// Returns whether the caller has not received the hold: its call is still waiting, or the hold counts only from a later moment.
    pub(crate) fn is_withheld(&self) -> bool {
        self.is_of_a_wait() || self.due > self.core.clock.now()
    }

    /// Counts work under the hold that begins.
    pub(super) fn begin_work(&self) {
        self.shared().working += 1;
    }

    pub(super) fn end_work(&self) {
        self.shared().working -= 1;
    }

    pub(super) fn has_work(&self) -> bool {
        self.shared().working > 0
    }

    /// Records that the caller has taken one untaken count. From then on the watchdog renews the hold.
    pub(super) fn taken(&self) {
        let now = self.core.clock.now();
        self.change(|life| life.take(now));
    }

    /// Returns whether the hold is still held by the clock (P5). A timer that has not fired yet changes nothing.
    pub(crate) fn is_held(&self) -> bool {
        self.is_held_at(self.core.clock.now())
    }

    pub(crate) fn is_held_at(&self, now: Moment) -> bool {
        now.nanos() < self.held_until.load(Ordering::Acquire)
    }

    /// Returns what the watchdog has to do now, and plans the next look. The timetable has just taken its entry out.
    pub(crate) fn due(&self, now: Moment) -> Due {
        // The renewals of a window are sent together.
        let (window, guards) = (self.batching_window(), self.guards());
        let mut shared = self.shared();
        let due = shared.life.due(now, window, guards);
        self.plan(&mut shared, true);
        due
    }

    /// Returns whether any caller has taken a count of the hold.
    pub(crate) fn is_taken(&self) -> bool {
        let guards = self.guards();
        self.shared().life.is_taken(guards)
    }

    /// The lease that a renewal at `now` requests.
    pub(crate) fn lease_to_ask(&self, now: Moment) -> Lease {
        if self.life().is_provisional() && self.terms.has_first_lease() {
            return self.terms.first_asked(now);
        }
        self.asked(self.terms.lease, now)
    }

    /// The lease to request from the server at `now`, so that the holder may count on `lease`: no longer than the hold may last (P10).
    pub(super) fn asked(&self, lease: Lease, now: Moment) -> Lease {
        self.terms.asked_for(lease.within(now, self.last_end()))
    }

    /// The terms of a hold that continues this one.
    pub(super) fn terms_left(&self) -> HoldTerms {
        HoldTerms {
            until: self.last_end(),
            ..self.terms
        }
    }

    /// The time within which due renewals are sent together.
    pub(crate) fn batching_window(&self) -> Duration {
        // A tenth of the renewal interval: a renewal this much earlier costs little, and the holds of one process are sent in one batch.
        self.terms.lease.length() / 30
    }

    /// The reason of the loss, if the hold is lost. Declares an expired hold lost: see [`HoldState::lose`] for the locks.
    pub(crate) fn lost_reason(&self, now: Moment) -> Option<LostReason> {
        if self.is_held_at(now) {
            return None;
        }
        match self.life().end_at(now)? {
            // P4: the first caller that sees the end declares the loss, which wakes the next waiter. The watchdog may see the end much later.
            Ended::Lost(reason) => self.lose(reason),
            Ended::Released => None,
        }
    }

    /// Ends the hold. Returns the way in which it had ended before, if it had.
    fn over(&self, end: Ended) -> Result<(), Ended> {
        let mut shared = self.shared();
        shared.life.end(end)?;
        self.changed(&mut shared);
        let over = shared.over.clone();
        drop(shared);
        if let Some(over) = over {
            over.notify_waiters();
        }
        Ok(())
    }

    /// Declares the hold lost, unless it has ended before: the first reason stays. Returns the reason in effect; `None` when the
    /// hold was released. Wakes the next waiter, which locks the queue: not to be called under any of the core's blocking mutexes.
    pub(crate) fn lose(&self, reason: LostReason) -> Option<LostReason> {
        // Several tasks may notice the loss, but only one goes on, so the queue is called once.
        match self.over(Ended::Lost(reason)) {
            Ok(()) => {}
            Err(Ended::Lost(before)) => return Some(before),
            Err(_) => return None,
        }
        let (kind, label) = (self.sync.kind().name(), observe::reason(reason));
        self.core.tell(|sink| sink.lost(kind, label));
        self.tell_ended();
        tracing::warn!(name = %self.sync.name(), owner = %self.debt.owner, %reason, "hold lost");
        self.may_be_there(reason);
        // P4: the first task that notices the loss wakes the waiters, because no other task may do so.
        self.queue.freed(self, End::Unknown);
        Some(reason)
    }

    /// Records that the server may still have the hold, although it was lost and its guards have not ended.
    fn may_be_there(&self, reason: LostReason) {
        let there = match reason {
            LostReason::Expired | LostReason::MaxHold | LostReason::Shutdown => {
                self.sync.hold().is_some()
            }
            LostReason::Gone => self.sync.about().in_parts(),
        };
        if there {
            let (now, free_by) = (self.core.clock.now(), self.free_by().bound());
            let loss = Loss {
                hold: Some(self.this.clone()),
                name: self.sync.name().clone(),
                owner: self.debt.owner.clone(),
                gone: free_by.map_or(Moment::FAR, |time| now + time),
            };
            self.core.losses.add(loss, now);
        }
    }

    /// Records the failure of a request of an operation.
    pub(super) fn failed(&self, outage: &Outage) {
        self.shared().outage = Some(Box::new(outage.clone()));
    }

    /// Takes the last failure of a request of the operation under way.
    pub(super) fn take_outage(&self) -> Option<Outage> {
        self.shared().outage.take().map(|outage| *outage)
    }

    /// Changes the phase from held to released. Returns the reason if the hold is lost instead.
    pub(crate) fn end(&self) -> Result<(), LostReason> {
        // P8: a hold whose lease has ended is not reported as released, even if no task has declared it lost.
        if let Some(reason) = self.lost_reason(self.core.clock.now()) {
            return Err(reason);
        }
        match self.over(Ended::Released) {
            Ok(()) => self.tell_ended(),
            // The hold has ended since the check above: it was lost, or another guard released it.
            Err(Ended::Lost(reason)) => return Err(reason),
            Err(Ended::Released) => {}
        }
        Ok(())
    }

    /// Reports the end to the sink of metrics. Called once, by the task that has ended the hold.
    fn tell_ended(&self) {
        let kind = self.sync.kind().name();
        // Without a sink a release does not read the clock.
        self.core.tell(|sink| {
            if self.sync.hold().is_some() {
                self.core.counts.ended(kind);
            }
            sink.held(kind, self.age());
        });
    }

    /// Extends the hold after a successful renewal that was sent at `sent`.
    pub(crate) fn renewed(&self, sent: Moment) {
        // P1: by the usual lease, even if a longer first lease was requested. The holder may count on a shorter time
        // than the server keeps the hold, but never on a longer one.
        self.change(|life| life.renewed(self.terms.lease, sent));
    }

    /// Declares the hold lost because the server no longer has it.
    pub(crate) fn gone(&self) -> LeaseLost {
        // `None`: the hold was released while this answer was in flight.
        let reason = self.lose(LostReason::Gone).unwrap_or(LostReason::Gone);
        self.lease_lost(reason)
    }

    /// Enters the next moment of the hold in the timetable, and removes a hold that has ended. `taken`: the timetable has taken its entry out.
    fn plan(&self, shared: &mut Shared, taken: bool) {
        let at = shared.life.next();
        if !taken && at == shared.slot.map(|(at, _)| at) {
            return;
        }
        let (table, slot) = (&self.core.timetable, shared.slot.take());
        match at {
            Some(at) => {
                let item = Item::Hold(self.this.clone());
                shared.slot = Some(table.replace(slot, at, item));
            }
            None => slot.into_iter().for_each(|slot| table.remove(slot)),
        }
    }

    /// Runs an operation on this hold in `span`, and records its end there.
    pub(super) fn traced<T, E: spans::SpanEnd, F: Future<Output = Result<T, E>>>(
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
        Some(self.last_end()).filter(|end| *end != Moment::FAR)
    }

    /// The end of the hold without a release: the end of its lease if it is renewed manually, otherwise the end set by `max_hold`.
    pub(crate) fn ends(&self) -> Option<Moment> {
        match self.terms.renewal {
            Renewal::Manual => Some(self.valid_until()),
            Renewal::Watchdog => Some(self.last_end()),
        }
        .filter(|end| *end != Moment::FAR)
    }

    /// The seat in which `owner` finds this hold.
    pub(crate) fn seat_of(&self, owner: &Owner) -> Arc<Seat> {
        owner.seat(&self.core.realm, Subject::of(&*self.sync))
    }

    /// An upper bound on the time for which the server may still know this hold, even if no more messages arrive.
    pub(crate) fn free_by(&self) -> FreeBy {
        let by_lease = self.debt.free_by();
        let ends = self.last_end();
        if ends == Moment::FAR || self.terms.has_first_lease() {
            return by_lease;
        }
        // No request set a lease longer than the rest of `max_hold`, and the last request may run late (P10).
        let whole = Lease::MAX.within(self.began, ends);
        let last = self.began + self.terms.asked_for(whole).length();
        let last = last.max(ends) + self.core.config.silence_limit();
        by_lease.min(last.since(self.core.clock.now()).into())
    }

    /// Waits for this owner's turn: its operations run one at a time.
    pub(crate) async fn turn(&self) -> tokio::sync::MutexGuard<'_, u32> {
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
        let mut shared = self.shared();
        shared.reentries.retain(|it| it.strong_count() > 0);
        shared.reentries.push(Arc::downgrade(reentry));
    }

    /// Moves the re-entries that are not being polled to the background, because one of them may have the turn.
    fn finish_parked(&self) {
        let of = |shared: &Shared| shared.reentries.iter().filter_map(Weak::upgrade).collect();
        let all: Vec<_> = of(&self.shared());
        for reentry in all {
            reentry.finish(&self.core.runner);
        }
    }

    /// The way in which the hold has ended, if it has.
    pub(crate) fn ended(&self) -> Option<Ended> {
        if self.life().ended() == Some(Ended::Released) {
            return Some(Ended::Released);
        }
        self.lost_reason(self.core.clock.now()).map(Ended::Lost)
    }
}

impl fmt::Debug for HoldState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hold")
            .field("name", self.sync.name())
            .field("owner", &self.debt.owner)
            .field("token", &self.token)
            .finish_non_exhaustive()
    }
}
