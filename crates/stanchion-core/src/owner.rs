//! The public type of owners.
//!
//! An [`Owner`] is an actor in this process that may hold many names and re-enter its own holds. An owner has a [`Seat`] for each
//! subject that it acquires. A seat is created at the first acquire, and removed from the owner's table once it is vacant and unused.

use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::actor::mark_of;
use crate::description::Subject;
use crate::seat::Seat;
use crate::wire_owner::WireOwner;
use stanchion_transport::Realm;

/// An actor that may hold, and re-enter its own holds.
///
/// Every acquire without an owner creates a new owner. Tasks that share an owner are one actor: if one task holds a
/// name, an acquire of that name by another task re-enters the hold. Cheap to clone; clones are the same owner.
///
/// An owner may be used with any client. A hold belongs to a name and a kind on one server and database: the same
/// name on another server or in another database is acquired separately. A re-entry through another client of the
/// same server needs that server's confirmation. The hold stays with the client that acquired it.
#[derive(Clone)]
pub struct Owner(Arc<Inner>);

struct Inner {
    name: WireOwner,
    /// Distinguishes this owner from other owners, in this process and in others.
    mark: u64,
    /// This owner's seat at each subject of each realm. Locked only to find or add one; no other mutex is waited for under it.
    seats: Mutex<HashMap<(Realm, Subject), Arc<Seat>>>,
}

impl Owner {
    pub(crate) fn new(name: WireOwner) -> Self {
        Self(Arc::new(Inner {
            mark: mark_of(name.as_str().as_bytes()),
            name,
            seats: Mutex::default(),
        }))
    }

    pub(crate) fn mark(&self) -> u64 {
        self.0.mark
    }

    /// This owner's seat at `subject`, created at the first use.
    pub(crate) fn seat(&self, realm: &Realm, subject: Subject) -> Arc<Seat> {
        let place = (realm.clone(), subject);
        let mut seats = self.0.seats.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(seat) = seats.get(&place) {
            return Arc::clone(seat);
        }
        // Removes the seats that are no longer used before the table grows. A seat that another acquire refers to
        // stays: that acquire will lock it, and two seats at one subject would be two turns.
        seats.retain(|_, seat| Arc::strong_count(seat) > 1 || !seat.is_vacant());
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
