//! Identity: who holds.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use tokio::sync::{MutexGuard, watch};
use uuid::Uuid;

use crate::hold::HoldState;
use crate::primitive::{Sharing, Subject};
use stanchion_transport::Realm;

/// What Redis stores as the holder: `<client uuid>:<number>`.
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

/// Looked up by its text. The derived hash is that of the text.
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
/// Every acquire without an owner is a new owner. Sharing one makes its users one actor: whoever acquires a name that
/// another of them holds re-enters that hold. Cheap to clone; clones are the same owner.
///
/// It may be used with any client. A hold is one of a name of a kind on a server and in a database: the same name elsewhere is
/// acquired for itself. Through another client of the same server it is re-entered after that server has confirmed the hold;
/// the hold stays with the client that acquired it.
#[derive(Clone)]
pub struct Owner(Arc<Inner>);

struct Inner {
    name: WireOwner,
    /// What this owner holds of each subject of each realm. The async mutex makes two acquires by one owner take turns.
    seats: Mutex<HashMap<(Realm, Subject), Arc<Seat>>>,
}

/// An owner's place at one subject. Whoever has it may acquire there.
#[derive(Debug, Default)]
pub(crate) struct Seat {
    seated: tokio::sync::Mutex<Seated>,
    /// Whoever has it waits in line.
    in_line: watch::Sender<bool>,
}

impl Seat {
    pub(crate) async fn take(&self) -> MutexGuard<'_, Seated> {
        self.seated.lock().await
    }

    /// Takes turns with others that ask, but does not wait behind one that waits: then `None`.
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

    /// From here on whoever has it waits for somebody else, until this is dropped.
    pub(crate) fn in_line(&self) -> InLine<'_> {
        self.in_line.send_replace(true);
        InLine(self)
    }
}

/// See [`Seat::in_line`].
pub(crate) struct InLine<'a>(&'a Seat);

impl Drop for InLine<'_> {
    fn drop(&mut self) {
        self.0.in_line.send_replace(false);
    }
}

/// What an owner holds of one name: a writer may read, too.
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
        // Forget the names this owner no longer holds before the table grows.
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
