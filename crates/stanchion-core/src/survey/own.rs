//! Warns of a wait for a hold of the waiting task or scope itself: every acquire without an owner is a new one, and waits for the old hold.
//!
//! Only a hint, because the guard may have moved to a task that will release the hold: one event for each name, and no error.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use stanchion_transport::Printable;

use super::SurveyedClient;
use crate::description::Synchronizer;
use crate::holders::Holders;
use crate::options::HoldTerms;
use crate::shared::Core;
use crate::waiting::LockEntry;

/// The maximum number of names that are remembered. There is no warning for further names.
const MOST: usize = 1024;

/// The names for which a warning was logged.
#[derive(Debug, Default)]
pub(crate) struct OwnHolds(Mutex<HashSet<Vec<u8>>>);

impl OwnHolds {
    fn warn(&self, name: &[u8]) {
        let mut names = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(name) || names.len() >= MOST {
            return;
        }
        names.insert(name.to_vec());
        drop(names);
        let name = Printable::new(name);
        tracing::warn!(
            %name,
            "this task holds {name:?} already, and waits for it as another owner; to hold it twice, re-enter or pass an Owner"
        );
    }
}

/// Checks for such a wait when it begins. Finds one exclusive holder, which the local queue of the name knows, so the check costs nothing.
///
/// A hold that its caller has not taken yet does not count. On another thread the waiter's own grant may arrive just before the check,
/// and a hand-off gives that hold a new owner.
pub(crate) fn at_once(core: &Core, sync: &dyn Synchronizer, entry: &LockEntry, terms: &HoldTerms) {
    let permits = sync.holders() == Holders::Permits;
    if let Some(actor) = terms.actor
        && !permits
        && entry.is_held_by(actor)
    {
        core.own.warn(entry.name().as_bytes());
    }
}

/// Checks all holds and waits of this process, when they are collected for a record anyway.
pub(super) fn among(core: &Core, seen: &SurveyedClient) {
    let readers = |holders: &Holders| *holders == Holders::Readers;
    for wait in seen.waits.iter().filter(|it| it.actor.is_some()) {
        let own = seen.holds.iter().any(|hold| {
            (&hold.name, &hold.actor) == (&wait.name, &wait.actor)
                && !matches!(hold.holders, Holders::Untold | Holders::Permits)
                && !(readers(&hold.holders) && readers(&wait.holders))
        });
        if own {
            core.own.warn(wait.name.as_bytes());
        }
    }
}
