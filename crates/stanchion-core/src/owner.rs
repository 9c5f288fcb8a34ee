//! Identity: owners as Redis stores them, and owners as users share them.
//!
//! A [`WireOwner`] identifies one outermost hold of one name, and is used once. An [`Owner`] is an actor in this process that
//! may hold many names, and re-enters what it holds. It has a [`Seat`] for each subject it acquires: created at the first
//! acquire, locked by each acquire from its start to its end, and removed from the owner's table once it is empty and unused.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{MutexGuard, watch};
use uuid::Uuid;

use crate::hold::HoldState;
use crate::primitive::{Sharing, Subject};
use stanchion_transport::Realm;

/// The owner that Redis stores as the holder: `<client uuid>:<number>`.
///
/// A wire owner lives for one outermost hold of one name and is never used again, so that a request that arrives late
/// can never touch a newer hold (rule R1 of `docs/protocol.md`).
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct WireOwner(Arc<str>);

impl WireOwner {
    pub(crate) fn new(client: &Uuid, number: u64) -> Self {
        use std::fmt::Write as _;
        let mut text = String::with_capacity(36 + 1 + 20);
        // OK: writing to a String cannot fail.
        let _ = write!(text, "{client}:{number}");
        Self(text.into())
    }

    /// The text as stored.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// Lets a map of owners be searched by text. The derived hash is that of the text, as this requires.
impl Borrow<str> for WireOwner {
    fn borrow(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for WireOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for WireOwner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// An actor that may hold, and hold again what it holds already.
///
/// Every acquire without an owner is a new owner. Tasks that share one are one actor: a task that acquires a name which another
/// of them holds re-enters that hold. Cheap to clone; clones are the same owner.
///
/// An owner may be used with any client. A hold belongs to a name and a kind on one server and database: the same name on
/// another server or in another database is acquired separately. Through another client of the same server a hold is re-entered
/// after that server has confirmed it; the hold stays with the client that acquired it.
#[derive(Clone)]
pub struct Owner(Arc<Inner>);

struct Inner {
    name: WireOwner,
    /// This owner's seat at each subject of each realm. Locked only to find or add a seat; no other mutex is waited for under it.
    seats: Mutex<HashMap<(Realm, Subject), Arc<Seat>>>,
}

/// An owner's place at one subject. An acquire as that owner locks it first.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    /// The owner's holds. An acquire keeps it locked from its start to its end, across its waits, so that two acquires by one
    /// owner take turns and the second finds the first one's hold. Re-entry waits for [`HoldState::turn`] under it.
    seated: tokio::sync::Mutex<Seated>,
    /// True while the task that has `seated` waits for another holder, perhaps for long. Set by that task only.
    in_line: watch::Sender<bool>,
}

impl Seat {
    pub(crate) async fn take(&self) -> MutexGuard<'_, Seated> {
        self.seated.lock().await
    }

    /// Waits for other attempts of this owner, which are short; `None` when one of them waits in line.
    pub(crate) async fn take_now(&self) -> Option<MutexGuard<'_, Seated>> {
        let mut in_line = self.in_line.subscribe();
        tokio::select! {
            biased;
            seated = self.take() => Some(seated),
            _ = in_line.wait_for(|waits| *waits) => None,
        }
    }

    pub(crate) fn try_take(&self) -> Option<MutexGuard<'_, Seated>> {
        self.seated.try_lock().ok()
    }

    /// Marks that the task with `seated` waits for another holder, until the returned value is dropped.
    pub(crate) fn in_line(&self) -> InLine<'_> {
        self.in_line.send_replace(true);
        InLine(self)
    }
}

/// The mark of [`Seat::in_line`].
pub(crate) struct InLine<'a>(&'a Seat);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.in_line.send_replace(false);
    }
}

/// An owner's holds of one subject: it may hold both at once, because a writer may also read. Weak, so that an owner keeps no
/// hold alive.
#[derive(Debug, Default)]
pub(crate) struct Seated {
    pub(crate) exclusive: Weak<HoldState>,
    pub(crate) shared: Weak<HoldState>,
}

impl Seated {
    pub(crate) fn of(&mut self, sharing: Sharing) -> &mut Weak<HoldState> {
        match sharing {
            Sharing::Together => &mut self.shared,
            _ => &mut self.exclusive,
        }
    }

    fn is_empty(&self) -> bool {
        self.exclusive.strong_count() == 0 && self.shared.strong_count() == 0
    }
}

/// The hold, if it is still held.
pub(crate) fn live(hold: &Weak<HoldState>) -> Option<Arc<HoldState>> {
    hold.upgrade().filter(|state| state.is_held())
}

impl Owner {
    pub(crate) fn new(name: WireOwner) -> Self {
        Self(Arc::new(Inner {
            name,
            seats: Mutex::default(),
        }))
    }

    pub(crate) fn seat(&self, realm: &Realm, subject: Subject) -> Arc<Seat> {
        let place = (realm.clone(), subject);
        let mut seats = self.0.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = seats.get(&place) {
            return Arc::clone(seat);
        }
        // Forget the names that this owner no longer holds before the table grows. A seat that another task has is kept.
        seats.retain(|_, seat| {
            Arc::strong_count(seat) > 1 || seat.try_take().is_none_or(|seated| !seated.is_empty())
        });
        let seat = Arc::<Seat>::default();
        seats.insert(place, Arc::clone(&seat));
        seat
    }
}

impl PartialEq for Owner {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }
}

impl Eq for Owner {}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.name.fmt(f)
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Owner({})", self.0.name)
    }
}
