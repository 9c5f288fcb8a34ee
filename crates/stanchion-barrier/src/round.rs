//! The wait for the end of one round. All waiters of this process share the messages and replies.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use stanchion_client::primitive::{About, Call, Facts, Request, Synchronizer, Told};

use crate::fact::{End, Fact, Place};
use crate::keys::Keys;

/// The wait for one round. It may begin before the number of the round is known.
#[derive(Debug)]
pub(crate) struct Round {
    keys: Arc<Keys>,
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    place: Option<Place>,
    /// The newest fact that arrived before the place was known.
    told: Option<Fact>,
    end: Option<End>,
}

impl Known {
    fn look(&mut self) -> Told {
        if let (Some(place), Some(told)) = (self.place, &self.told) {
            self.end = self.end.or_else(|| told.end_of(place));
        }
        match self.end {
            Some(_) => Told::Over,
            None => Told::Nothing,
        }
    }
}

impl Round {
    pub(crate) fn new(keys: &Arc<Keys>) -> Self {
        Self {
            keys: Arc::clone(keys),
            known: Mutex::default(),
        }
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the round of this wait. Returns whether that round is over already.
    pub(crate) fn is(&self, place: Place) -> bool {
        let mut known = self.known();
        known.place = Some(place);
        known.look() == Told::Over
    }

    /// The end of the round, if a message or a reply has reported it.
    pub(crate) fn end(&self) -> Option<End> {
        self.known().end
    }
}

impl Facts for Round {
    fn told(&self, fact: &[u8]) -> Told {
        let Some(fact) = Fact::read(fact) else {
            return Told::Nothing;
        };
        let mut known = self.known();
        if known
            .told
            .as_ref()
            .is_none_or(|told| fact.is_newer_than(told))
        {
            known.told = Some(fact);
        }
        known.look()
    }
}

impl Synchronizer for Round {
    fn about(&self) -> &About {
        &self.keys.round
    }

    fn acquire(&self, _request: &Request<'_>) -> Call {
        let place = self.known().place;
        // Before the place is known, any round number works: the core passes the reply on to the other waiters.
        self.keys
            .look(place.unwrap_or(Place { first: 0, round: 0 }))
    }

    fn facts(&self) -> Option<&dyn Facts> {
        Some(self)
    }
}
