//! Warns of a wait for a hold of the waiting task or scope itself: every acquire without an owner is a new one, and waits for the old hold.
//!
//! Only a hint, because the guard may have moved to a task that will release the hold: one event for each name, and no error.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use stanchion_core::primitive::{Holders, Queued};
use stanchion_transport::Printable;

use crate::SurveyedClient;

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

/// Checks for such a wait when it begins. The local queue of the name knows one exclusive holder, so the check costs nothing.
pub(crate) fn at_once(own: &OwnHolds, call: &Queued<'_>) {
    if call.holds_itself && call.sync.holders() != Holders::Permits {
        own.warn(call.name);
    }
}

/// Checks all holds and waits of this process, when they are collected for a record anyway.
pub(crate) fn among(warnings: &OwnHolds, seen: &SurveyedClient) {
    let readers = |holders: &Holders| *holders == Holders::Readers;
    for wait in seen.waits.iter().filter(|it| it.actor.is_some()) {
        let own = seen.holds.iter().any(|hold| {
            (&hold.name, &hold.actor) == (&wait.name, &wait.actor)
                && !matches!(hold.holders, Holders::Untold | Holders::Permits)
                && !(readers(&hold.holders) && readers(&wait.holders))
        });
        if own {
            warnings.warn(wait.name.as_bytes());
        }
    }
}
