//! The parts of a local queue in the explorer: what `stanchion_core::local_queue` stores and does not look into.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::{self, Debug};
use std::marker::PhantomData;
use std::time::Duration;

use stanchion_client::Moment;
use stanchion_client::local_queue::{Context, EndedHold, Held, Holder, Owed, Parts, Want};
use stanchion_client::primitive::Sharing;
use stanchion_explorer::Micros;

use super::{Kind, MS};

pub(crate) fn moment(at: Micros) -> Moment {
    Moment::ZERO + Duration::from_micros(at)
}

/// The parts of the queue of a synchronizer of the kind `K`.
#[derive(Clone, Debug)]
pub(crate) struct Model<K>(PhantomData<K>);

impl<K: Kind> Parts for Model<K> {
    type Want = Wanted<K>;
    type Owner = String;
    type Terms = ();
    type Debt = Debt<K>;
    type Hold = Taken<K>;
    type Holder = Known;
    type Ended = Taken<K>;
    type Waker = u64;
    type Outage = ();
    type Answer = ();
}

/// What a waiter wants.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wanted<K>(pub(crate) K);

impl<K: Kind> Want for Wanted<K> {
    fn sharing(&self) -> Sharing {
        self.0.sharing()
    }

    fn is_in_line(&self) -> bool {
        !self.0.keeps_waiters()
    }

    fn is_fact(&self) -> bool {
        false
    }

    fn fence(&self) -> &[u8] {
        self.0.fence().as_bytes()
    }

    fn is_handed(&self, held: &Self) -> bool {
        self.0 == held.0
    }

    fn shares_entry(&self, other: &Self) -> bool {
        self.0 == other.0
    }

    fn continues_entry(&self, other: &Self) -> bool {
        self.0.is_of_several() && other.0.is_of_several()
    }
}

/// The right of an owner to its entry. The client keeps what that owner has on the server.
#[derive(Clone, Debug)]
pub(crate) struct Debt<K> {
    pub(crate) want: Wanted<K>,
    pub(crate) owner: String,
}

impl<K: Kind> Owed<Model<K>> for Debt<K> {
    fn want(&self) -> &Wanted<K> {
        &self.want
    }

    fn owner(&self) -> &String {
        &self.owner
    }

    fn is_unanswered(&self) -> bool {
        false
    }

    fn pass_to(&self, _: &Self) -> Self {
        self.clone()
    }
}

thread_local! {
    /// The holds of the process whose step runs: the end of their leases, by owner. A queue refers to a hold by its owner alone, because
    /// copies of a state must not share it.
    static HOLDS: RefCell<BTreeMap<String, Micros>> = const { RefCell::new(BTreeMap::new()) };
}

/// Sets the holds of the process whose step runs.
pub(crate) fn set_holds(holds: BTreeMap<String, Micros>) {
    HOLDS.with_borrow_mut(|known| *known = holds);
}

fn end_of(owner: &str) -> Option<Micros> {
    HOLDS.with_borrow(|holds| holds.get(owner).copied())
}

fn is_held(owner: &str, now: Moment) -> bool {
    end_of(owner).is_some_and(|end| now < moment(end))
}

/// A hold, by its owner.
#[derive(Clone)]
pub(crate) struct Taken<K> {
    pub(crate) want: Wanted<K>,
    pub(crate) owner: String,
    /// True if its waiter has not taken it.
    pub(crate) untaken: bool,
}

impl<K> Debug for Taken<K> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.owner.fmt(f)
    }
}

impl<K: Kind> Held<Model<K>> for Taken<K> {
    fn sharing(&self) -> Sharing {
        self.want.sharing()
    }

    fn is_held(&self, now: Moment) -> bool {
        is_held(&self.owner, now)
    }

    fn holder(&self) -> Known {
        Known(Some(self.owner.clone()))
    }

    fn is(&self, ended: &Self) -> bool {
        self.owner == ended.owner
    }
}

impl<K: Kind> EndedHold<Model<K>> for Taken<K> {
    fn want(&self) -> &Wanted<K> {
        &self.want
    }

    fn owner(&self) -> &String {
        &self.owner
    }

    fn is_untaken(&self) -> bool {
        self.untaken
    }
}

/// A hold of this process that the queue knows.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known(Option<String>);

impl<K: Kind> Holder<Model<K>> for Known {
    fn is_held(&self, now: Moment) -> bool {
        self.0.as_ref().is_some_and(|owner| is_held(owner, now))
    }

    fn exists(&self) -> bool {
        self.0.as_ref().and_then(|owner| end_of(owner)).is_some()
    }

    fn is(&self, ended: &Taken<K>) -> bool {
        self.0.as_ref() == Some(&ended.owner)
    }
}

/// The clock, the configuration and the owners of a client. A random pause is the longest one.
pub(crate) struct Settings {
    pub(crate) now: Micros,
    pub(crate) polls: bool,
    pub(crate) uuid: &'static str,
    /// The number of owners so far.
    pub(crate) owners: Cell<u64>,
}

impl<K: Kind> Context<Model<K>> for Settings {
    fn now(&self) -> Moment {
        moment(self.now)
    }

    fn poll_interval(&self) -> Duration {
        Duration::from_secs(5)
    }

    fn polls(&self) -> bool {
        self.polls
    }

    fn jitter(&self, most: Duration) -> Duration {
        // The world counts whole milliseconds, and so does the pause behind the end of a lease without this.
        if most < Duration::from_micros(3 * MS) {
            Duration::ZERO
        } else {
            most
        }
    }

    fn owe(&self, want: &Wanted<K>, (): &()) -> Debt<K> {
        self.owners.set(self.owners.get() + 1);
        Debt {
            want: *want,
            owner: format!("{}:{}", self.uuid, self.owners.get()),
        }
    }
}
