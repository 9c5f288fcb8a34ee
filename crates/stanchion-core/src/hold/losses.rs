//! Lost holds whose guards were still alive at the loss, and that the server may still have.

use std::any::Any;
use std::sync::{Mutex, MutexGuard, PoisonError, Weak};

use crate::free_by::FreeBy;
use crate::name::Name;
use crate::wire_owner::WireOwner;
use stanchion_transport::Moment;

/// A hold whose guard outlived its client. The hold may have been lost before, but the server may keep it until its lease ends.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct AbandonedHold {
    /// The name that was held.
    pub name: Name,
    /// The owner that held it.
    pub owner: WireOwner,
    /// The time after which the lease has ended.
    pub free_by: FreeBy,
}

/// The lost holds of a client. Locked to add or read them; under this lock no other mutex is taken, and no hold is dropped.
#[derive(Debug, Default)]
pub(crate) struct Losses(Mutex<Vec<Loss>>);

#[derive(Debug)]
pub(super) struct Loss {
    /// The state of the hold: the drop of its last guard gives the hold back. `None` once the client is closing: from then on no drop does.
    pub(super) hold: Option<Weak<dyn Any + Send + Sync>>,
    pub(super) name: Name,
    pub(super) owner: WireOwner,
    /// The moment from which the server no longer has the hold.
    pub(super) gone: Moment,
}

impl Loss {
    fn lasts(&self, now: Moment) -> bool {
        let kept = |hold: &Weak<dyn Any + Send + Sync>| hold.strong_count() > 0;
        self.gone > now && self.hold.as_ref().is_none_or(kept)
    }
}

impl Losses {
    fn all(&self) -> MutexGuard<'_, Vec<Loss>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a hold that was just lost.
    pub(super) fn add(&self, loss: Loss, now: Moment) {
        let mut all = self.all();
        // Filters only when the list would grow: if a thousand holds are lost together, each is checked only a few times.
        if all.len() == all.capacity() {
            all.retain(|loss| loss.lasts(now));
        }
        all.push(loss);
    }

    /// Returns the holds that the server may still have at `now`, because no guard's drop has given them back. From then on no drop does.
    pub(crate) fn abandon(&self, now: Moment) -> Vec<AbandonedHold> {
        let mut all = self.all();
        all.retain(|loss| loss.lasts(now));
        let report = |loss: &mut Loss| {
            loss.hold = None;
            AbandonedHold {
                name: loss.name.clone(),
                owner: loss.owner.clone(),
                // Without a lease only a release ends the hold.
                free_by: match loss.gone {
                    Moment::FAR => FreeBy::Unbounded,
                    gone => FreeBy::After(gone.since(now)),
                },
            }
        };
        all.iter_mut().map(report).collect()
    }
}
