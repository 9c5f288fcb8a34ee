//! Identity: who holds.

use std::borrow::Borrow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError, Weak};

use uuid::Uuid;

use crate::hold::HoldState;
use crate::primitive::{Sharing, Subject};

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
    seats: Mutex<HashMap<(Realm, Subject), Seat>>,
}

/// A set of keys: a server (or a set of servers with one content) and a database. Clients of equal realms share it, as far
/// as they could tell when they connected; the server has the last word (see `as_owner`).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Realm(Arc<str>);

impl Realm {
    pub(crate) fn new(text: String) -> Self {
        Self(text.into())
    }
}

/// An owner's place at one subject.
pub(crate) type Seat = Arc<tokio::sync::Mutex<Seated>>;

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

    pub(crate) fn seat(&self, realm: &Realm, subject: Subject) -> Seat {
        let place = (realm.clone(), subject);
        let mut seats = self.0.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = seats.get(&place) {
            return Arc::clone(seat);
        }
        // Forget the names this owner no longer holds before the table grows.
        seats.retain(|_, seat| {
            Arc::strong_count(seat) > 1 || seat.try_lock().map_or(true, |seated| !seated.is_empty())
        });
        let seat = Seat::default();
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
