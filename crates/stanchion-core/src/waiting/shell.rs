//! The types of the core in a local queue: [`Parts`] of [`super::queue`].

use std::sync::{Arc, Weak};
use std::time::Duration;

use super::queue::{self, Context, Held, Holder, Owed, Parts, Queue, Waiter, Want};
use super::ticket::Ticket;
use crate::about::Sharing;
use crate::description::{Synchronizer, has_one_entry};
use crate::error::AcquireError;
use crate::hold::debt::Debt;
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::shared::Core;
use crate::terms::HoldTerms;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Moment, Outage, Wake};

/// The parts of a local queue in a client.
#[derive(Debug)]
pub(crate) enum Shell {}

pub(super) type LocalQueue = Queue<Shell>;
pub(super) type LocalWaiter = Waiter<Shell>;

impl Parts for Shell {
    type Want = Arc<dyn Synchronizer>;
    type Owner = WireOwner;
    type Terms = HoldTerms;
    type Debt = Arc<Debt>;
    type Hold = Hold;
    type Holder = Weak<HoldState>;
    type Ended = HoldState;
    type Waker = std::task::Waker;
    type Outage = Outage;
    type Answer = Answer;
}

/// The end of a wait that a reply has decided.
#[derive(Debug)]
pub(crate) enum Answer {
    /// The acquire fails.
    Failed(AcquireError),
    /// The acquire starts again: the reply took longer than the lease, and the hold is being released (R1).
    Restart,
    /// The acquire goes on in the queue of another name.
    Moved(Box<Ticket>),
}

impl Want for Arc<dyn Synchronizer> {
    fn sharing(&self) -> Sharing {
        (**self).sharing()
    }

    fn is_in_line(&self) -> bool {
        has_one_entry(&**self)
    }

    fn is_fact(&self) -> bool {
        self.facts().is_some()
    }

    fn fence(&self) -> &[u8] {
        (**self).fence().unwrap_or(b"-")
    }

    fn is_handed(&self, held: &Self) -> bool {
        let several = held.about().in_parts() || self.about().in_parts();
        held.kind() == self.kind() && (!several || held.names() == self.names())
    }

    fn shares_entry(&self, other: &Self) -> bool {
        let common = self.server_queue().is_some() && self.about().has_common_entry();
        let same = other.kind() == self.kind() && Want::fence(other) == Want::fence(self);
        common && same && Want::sharing(other) == Want::sharing(self) || Self::ptr_eq(self, other)
    }

    fn continues_entry(&self, other: &Self) -> bool {
        // An entry for several names is not granted, but notified.
        other.about().in_parts() && self.about().in_parts() && other.kind() == self.kind()
    }
}

impl Owed<Shell> for Arc<Debt> {
    fn want(&self) -> &Arc<dyn Synchronizer> {
        &self.sync
    }

    fn owner(&self) -> &WireOwner {
        &self.owner
    }

    fn is_unanswered(&self) -> bool {
        self.claim().is_unanswered()
    }

    fn pass_to(&self, own: &Self) -> Self {
        (**self).pass_to(own)
    }
}

impl Held<Shell> for Hold {
    fn sharing(&self) -> Sharing {
        self.sharing()
    }

    fn is_held(&self, now: Moment) -> bool {
        self.is_held_at(now)
    }

    fn holder(&self) -> Weak<HoldState> {
        self.weak()
    }

    fn is(&self, ended: &HoldState) -> bool {
        self.is(ended)
    }
}

impl Holder<Shell> for Weak<HoldState> {
    fn is_held(&self, now: Moment) -> bool {
        self.upgrade().is_some_and(|hold| hold.is_held_at(now))
    }

    fn exists(&self) -> bool {
        self.strong_count() > 0
    }

    fn is(&self, ended: &HoldState) -> bool {
        std::ptr::eq(self.as_ptr(), ended)
    }
}

impl queue::EndedHold<Shell> for HoldState {
    fn want(&self) -> &Arc<dyn Synchronizer> {
        &self.sync
    }

    fn owner(&self) -> &WireOwner {
        &self.debt.owner
    }

    fn is_untaken(&self) -> bool {
        // A late grant is for its caller, even if no lease is left of it.
        self.life().is_untaken() && !self.sync.about().keeps_late_grants
    }
}

impl Context<Shell> for Arc<Core> {
    fn now(&self) -> Moment {
        self.clock.now()
    }

    fn poll_interval(&self) -> Duration {
        self.holds.poll_interval()
    }

    fn polls(&self) -> bool {
        self.config.wake == Wake::Poll
    }

    fn jitter(&self, most: Duration) -> Duration {
        self.holds.jitter(most)
    }

    fn owe(&self, want: &Arc<dyn Synchronizer>, terms: &HoldTerms) -> Arc<Debt> {
        let lease = terms.first_asked(self.clock.now());
        Arc::new(Debt::new(self.base(), want, lease))
    }
}
