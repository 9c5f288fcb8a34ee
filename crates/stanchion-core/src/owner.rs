//! Owners as users share them.
//!
//! An [`Owner`] is an actor in this process that may hold many names, and re-enters what it holds. It has a [`Place`] for each
//! subject it acquires (a [`Seat`](crate::seat::Seat)): created at the first acquire, and removed from the owner's table once it is
//! vacant and unused. This file knows no holds.

use std::any::Any;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use crate::description::Subject;
use crate::wire_owner::WireOwner;
use stanchion_transport::Realm;

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
    /// This owner's place at each subject of each realm. Locked only to find or add one; no other mutex is waited for under it.
    places: Mutex<HashMap<(Realm, Subject), Arc<dyn Place>>>,
}

/// The part of an owner that belongs to one subject.
pub(crate) trait Place: Any + Send + Sync {
    /// Whether the owner would miss nothing without it.
    fn is_vacant(&self) -> bool;
}

impl Owner {
    pub(crate) fn new(name: WireOwner) -> Self {
        Self(Arc::new(Inner {
            name,
            places: Mutex::default(),
        }))
    }

    /// This owner's place at `subject`. All its places are of one type.
    pub(crate) fn place<T: Place + Default>(&self, realm: &Realm, subject: Subject) -> Arc<T> {
        let at = (realm.clone(), subject);
        let mut places = self.0.places.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(place) = places.get(&at) {
            let place: Arc<dyn Any + Send + Sync> = Arc::<dyn Place>::clone(place);
            if let Ok(place) = place.downcast() {
                return place;
            }
        }
        // Forget the names this owner no longer holds before the table grows.
        places.retain(|_, place| Arc::strong_count(place) > 1 || !place.is_vacant());
        let place = Arc::<T>::default();
        places.insert(at, Arc::clone(&place) as Arc<dyn Place>);
        place
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
