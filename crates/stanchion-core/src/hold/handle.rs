//! One count of a hold: the part that a guard wraps.

use std::fmt;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Weak};
use std::task::Poll;
use std::time::Duration;

use tokio::sync::Notify;

use crate::about::Sharing;
use crate::description::End;
use crate::error::{Rejection, ReleaseError, RenewError};
use crate::hold::debt::Debt;
use crate::hold::ended::Ended;
use crate::hold::guarded::Guarded;
use crate::hold::life::Life;
use crate::hold::queue::HoldQueue;
use crate::hold::renew::{in_time, keep, reenter, renew};
use crate::hold::request::ReleaseRequest;
use crate::hold::spent::Spent;
use crate::hold::state::{Grant, HoldState};
use crate::hold::{hand_off, release};
use crate::lease::Lease;
use crate::name::Name;
use crate::observe::span;
use crate::owner::Owner;
use crate::token::FencingToken;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Call, Moment, Path, Persistent, sleep};

/// One count of a hold, wrapped by a guard. Dropping it releases that count in the background.
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct Hold {
    state: Option<Arc<HoldState>>,
}

impl Hold {
    /// Begins the hold of the owner of `debt` with `grant`, and returns its first count. From then on the watchdog tends the hold.
    pub(crate) fn begin(debt: &Arc<Debt>, queue: Arc<dyn HoldQueue>, grant: Grant) -> Self {
        Self {
            state: Some(HoldState::begin(Arc::clone(debt), queue, grant)),
        }
    }

    fn state(&self) -> &Arc<HoldState> {
        match &self.state {
            Some(state) => state,
            // OK: `state` is taken only by `drop` and by methods that consume the hold.
            None => unreachable!("a hold is used after it was consumed"),
        }
    }

    /// Marks this count as given to a caller that has not taken it yet.
    pub(super) fn leave_untaken(&self) {
        self.state().change(Life::give);
    }

    /// Records that the caller has taken this count. From then on the watchdog renews the hold.
    pub(crate) fn taken(&self) {
        self.state().taken();
    }

    /// Returns whether this is a count of `state`.
    pub(crate) fn is(&self, state: &HoldState) -> bool {
        self.state
            .as_ref()
            .is_some_and(|own| std::ptr::eq(Arc::as_ptr(own), state))
    }

    /// Ends this state without releasing the hold: the same grant arrived twice, and another guard has it.
    pub(crate) fn disown(mut self) {
        if let Some(state) = self.state.take() {
            // Ended but not freed: the queue and the server know the other hold of the same owner.
            state.end().ok();
        }
    }

    /// Ends the hold at once, and releases it in the background.
    pub(crate) fn give_back(self) {
        let state = self.into_state();
        if state.end().is_ok() {
            state.debt.sweep();
        }
    }

    pub(crate) fn is_held_at(&self, now: Moment) -> bool {
        self.state().is_held_at(now)
    }

    pub(crate) fn weak(&self) -> Weak<HoldState> {
        Arc::downgrade(self.state())
    }

    /// Makes a guard's count of a hold that the server has already counted.
    pub(crate) fn another(state: &Arc<HoldState>) -> Self {
        Self {
            state: Some(Arc::clone(state)),
        }
    }

    /// The owner of this hold, for re-entry.
    #[must_use]
    pub fn owner(&self) -> &Owner {
        let state = self.state();
        state.public_owner.get_or_init(|| {
            let owner = Owner::new(state.debt.owner.clone());
            // No other code has this owner yet, so its seat is free.
            if let Some(mut seat) = state.seat_of(&owner).try_take() {
                *seat.of(state.sync.sharing()) = Arc::downgrade(state);
            }
            owner
        })
    }

    /// Stores the explicit owner for which this hold was acquired.
    pub(crate) fn adopt(&self, owner: &Owner) {
        drop(self.state().public_owner.set(owner.clone()));
    }

    /// Gives this count to the caller, which must end it.
    pub(super) fn into_state(mut self) -> Arc<HoldState> {
        // OK: taken only by methods that consume the hold.
        let state = Arc::clone(self.state());
        self.state = None;
        state
    }

    /// The way in which holders of this kind share, and the number of permits of this hold.
    #[must_use]
    pub fn sharing(&self) -> Sharing {
        self.state().sync.sharing()
    }

    /// The number of permits of this hold; one for a hold of another kind.
    #[must_use]
    pub fn permits(&self) -> u32 {
        self.sharing().permits().unwrap_or(1)
    }

    /// The owner that Redis stores as the holder.
    #[must_use]
    pub fn wire_owner(&self) -> &WireOwner {
        &self.state().debt.owner
    }

    /// The token of this hold, if its synchronizer mints tokens.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.state().token
    }

    /// Returns a view of the hold that does not keep it alive.
    #[must_use]
    pub fn watch(&self) -> Watch {
        Watch::of(self.state())
    }

    /// As [`requested`](Guarded::requested), for the requests that `read` understands: those that candidates send, not those of operators.
    pub fn requested_as<T: Send + 'static>(
        &self,
        read: fn(&ReleaseRequest) -> Option<T>,
    ) -> impl Future<Output = T> + Send + 'static + use<T> {
        let state = self.state();
        // Subscribes now, not only after the hold has lasted for a while, because the caller waits for requests.
        state.listen();
        let mut requests = state.requests().subscribe();
        async move {
            let mut read_last = None;
            let understood = requests.wait_for(|request| {
                read_last = request.as_ref().and_then(read);
                read_last.is_some()
            });
            if understood.await.is_ok()
                && let Some(it) = read_last
            {
                return it;
            }
            drop(requests);
            std::future::pending().await
        }
    }

    /// Re-enters: adds one more hold by the same owner.
    ///
    /// # Errors
    /// [`RenewError`].
    pub async fn reenter(&self) -> Result<Self, RenewError> {
        reenter(self.state(), Arc::clone(&self.state().core)).await
    }

    /// Turns an exclusive hold into a shared hold in one step: see [`Holdable::downgraded`](crate::primitive::Holdable::downgraded).
    ///
    /// # Errors
    /// [`ReleaseError`]; then this hold is being released.
    pub async fn downgrade(mut self) -> Result<Self, ReleaseError> {
        // OK: taken only by methods that consume the hold.
        let state = Arc::clone(self.state());
        let hold = state.sync.hold();
        let Some(to) = hold.and_then(|it| it.downgraded()) else {
            return Err(ReleaseError::Rejected {
                name: state.sync.name().clone(),
                rejection: Rejection::InvalidOption {
                    rule: format!("a {} cannot be downgraded", state.sync.kind().name()),
                },
            });
        };
        // From here on `work` owns this count. Dropping `self` must not release it a second time.
        self.state = None;
        let owner = state.public_owner.get().cloned();
        let span = span!("downgrade", to);
        let work = state.traced(span, hand_off::downgrade(Arc::clone(&state), to, owner));
        // `begun`: the guard is consumed, so the work continues even if the future is never polled again.
        let work = Persistent::begun(&state.core.runner, work);
        in_time(state, work).await
    }

    /// Ends this hold without releasing it. See the guards' documentation.
    pub fn leave(mut self) {
        let Some(state) = self.state.take() else {
            return;
        };
        // If other guards or an operation in flight still use the hold, the last of them ends the renewals.
        let last = state.count.try_lock().is_ok_and(|count| *count <= 1);
        if last && state.end().is_ok() {
            if state.life().is_provisional() {
                // A shutdown waits for this renewal.
                let runner = Arc::clone(&state.core.runner);
                runner.finish(keep(Arc::clone(&state)));
            }
            // The server keeps the hold. The waiters send a request now, and the refusal says when the lease ends.
            state.queue.freed(&state, End::Unknown);
        }
    }

    /// The moment from which the hold counts: see [`Dated`](crate::primitive::Dated).
    #[must_use]
    pub fn due(&self) -> Moment {
        self.state().dates().0
    }

    /// The call that checks whether the grant is still valid after this `wait`; `None` if no check is needed.
    pub(crate) fn confirmation(&self, wait: Duration) -> Option<Call> {
        let state = self.state();
        state.sync.hold()?.confirm(&state.debt.owner, wait)
    }

    pub(crate) fn next(&self) -> Option<Moment> {
        self.state().dates().1
    }

    /// Marks the hold as part of a call that is still waiting: a shutdown ends the call and releases the hold. `false`: the caller has it.
    pub fn withhold(&self, withheld: bool) {
        self.state().withhold(withheld);
    }

    /// Subscribes to the notices for this client now, not only after the hold has lasted for a second. For primitives whose holds are long by nature.
    pub fn listen(&self) {
        self.state().listen();
    }

    /// Returns whether an unanswered request of this owner may still run on the server.
    #[must_use]
    pub fn is_owed_an_answer(&self) -> bool {
        let state = self.state();
        state.core.clock.now() < state.debt.claim().until()
    }

    /// Ends the hold as used up, without a release and without waking a waiter. [`Spent::give_back`] can release it later.
    #[must_use]
    pub fn spend(self) -> Spent {
        Spent::new(self.into_state())
    }
}

impl Guarded for Hold {
    fn members(&self) -> &[Self] {
        std::slice::from_ref(self)
    }

    fn name(&self) -> &Name {
        self.state().sync.name()
    }

    fn valid_until(&self) -> Moment {
        self.state().valid_until()
    }

    fn remaining(&self) -> Duration {
        let state = self.state();
        if state.is_held() {
            state.valid_until().since(state.core.clock.now())
        } else {
            Duration::ZERO
        }
    }

    fn is_held(&self) -> bool {
        self.state().is_held()
    }

    fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.watch().ended()
    }

    fn requested(&self) -> impl Future<Output = ReleaseRequest> + Send + 'static {
        self.requested_as(|request| Some(request.clone()))
    }

    fn request(&self) -> Option<ReleaseRequest> {
        self.state().last_request()
    }

    async fn renew(&self, lease: Option<Lease>) -> Result<(), RenewError> {
        let state = Arc::clone(self.state());
        // If the caller drops the future, the work continues: the server may have renewed, and only the answer moves `valid_until`.
        let span = span!("renew", state.sync);
        let work = state.traced(span, renew(Arc::clone(&state), lease));
        let work = Persistent::new(&state.core.runner, work);
        in_time(state, work).await
    }

    async fn release(mut self) -> Result<(), ReleaseError> {
        let Some(state) = self.state.take() else {
            return Ok(());
        };
        // As in `downgrade`: dropping the future only stops the wait for the answer.
        let span = span!("release", state.sync);
        let work = state.traced(span, release::one(Arc::clone(&state), Path::Direct));
        let work = Persistent::begun(&state.core.runner, work);
        in_time(state, work).await
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        if let Some(state) = self.state.take() {
            // P9: a drop must not wait, and its runtime may be ending. The background sends the release on a connection of its own.
            let runner = Arc::clone(&state.core.runner);
            runner.finish(async move {
                if let Err(error) = release::one(state, Path::Background).await {
                    // The guard no longer exists, so the error is only logged. A lease ends any hold that is left on the server.
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

/// Counts as work under these holds until it is dropped.
pub(crate) struct Working<'a>(&'a [Hold]);

impl<'a> Working<'a> {
    pub(super) fn under(holds: &'a [Hold]) -> Self {
        for hold in holds {
            hold.state().begin_work();
        }
        Self(holds)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        for hold in self.0 {
            hold.state().end_work();
        }
    }
}

/// A view of a hold that does not keep it alive, for work that must know whether it may go on. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Watch {
    hold: Weak<HoldState>,
    over: Arc<Notify>,
}

impl Watch {
    fn of(state: &Arc<HoldState>) -> Self {
        Self {
            hold: Arc::downgrade(state),
            over: state.bell(),
        }
    }

    /// Returns a view of `state` while work runs under it.
    pub(crate) fn of_work(state: &Arc<HoldState>) -> Option<Self> {
        state.has_work().then(|| Self::of(state))
    }

    /// Returns whether the hold is still held, by the clock (P5).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.upgrade().is_some_and(|hold| hold.is_held())
    }

    /// Resolves when the hold is released or lost (P5).
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static + use<> {
        ended(Weak::clone(&self.hold), Arc::clone(&self.over))
    }
}

/// Resolves with the end of `hold`. Keeps nothing alive while it waits.
async fn ended(hold: Weak<HoldState>, over: Arc<Notify>) -> Ended {
    loop {
        let mut told = pin!(over.notified());
        // Enabled before the state is read, so that an end in between notifies this future.
        told.as_mut().enable();
        // Each strong reference ends with its statement, because a watcher must not postpone the end. A renewal may
        // move the end while the timer runs. The next round then sleeps until the new end.
        let left = hold.upgrade().map_or(Duration::ZERO, |hold| {
            hold.valid_until().since(hold.core.clock.now())
        });
        let mut timer = pin!(sleep(left));
        let end = poll_fn(|cx| {
            // P5: every poll compares the clock first, even if the wake-up was for another future. A state that no
            // longer exists was released by its holder.
            if let Some(end) = hold
                .upgrade()
                .map_or(Some(Ended::Released), |hold| hold.ended())
            {
                return Poll::Ready(Some(end));
            }
            if told.as_mut().poll(cx).is_ready() || timer.as_mut().poll(cx).is_ready() {
                return Poll::Ready(None);
            }
            Poll::Pending
        })
        .await;
        if let Some(end) = end {
            return end;
        }
    }
}
