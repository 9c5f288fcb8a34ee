//! An arrival, as the core sees it: the acquire of a place. A place is a hold with a lease.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stanchion_client::primitive::{
    About, Call, Dated, Hint, Holdable, Item, Reply, Request, Synchronizer,
};
use stanchion_client::{Lease, WireOwner};

use crate::error::BrokenBy;
use crate::fact::Place;
use crate::keys::{Ask, Keys, Policy};

/// The answer to an arrival.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrived {
    pub(crate) place: Place,
    pub(crate) arrival: u32,
    pub(crate) last: bool,
    /// True if a party that leaves breaks the round.
    pub(crate) breaks: bool,
    /// The time until the first lease in the round ends, if the waiter must poll then.
    pub(crate) look: Option<Duration>,
}

/// One arrival.
#[derive(Debug)]
pub(crate) struct Arrival {
    pub(crate) keys: Arc<Keys>,
    pub(crate) parties: u32,
    pub(crate) policy: Policy,
    answer: Mutex<Answer>,
}

#[derive(Debug, Default)]
struct Answer {
    arrived: Option<Arrived>,
    /// The server's number of parties, if it differs from ours.
    theirs: Option<u32>,
}

impl Arrival {
    pub(crate) fn new(keys: &Arc<Keys>, parties: u32, policy: Policy) -> Self {
        Self {
            keys: Arc::clone(keys),
            parties,
            policy,
            answer: Mutex::default(),
        }
    }

    pub(crate) fn arrived(&self) -> Option<Arrived> {
        self.answer().arrived
    }

    pub(crate) fn theirs(&self) -> Option<u32> {
        self.answer().theirs
    }

    fn answer(&self) -> MutexGuard<'_, Answer> {
        self.answer.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn number(rest: &[Reply], at: usize) -> Option<u64> {
    rest.get(at)?.as_int()?.try_into().ok()
}

fn small(rest: &[Reply], at: usize) -> Option<u32> {
    number(rest, at)?.try_into().ok()
}

fn read(rest: &[Reply]) -> Option<Arrived> {
    Some(Arrived {
        place: Place {
            first: number(rest, 0)?,
            round: number(rest, 1)?,
        },
        arrival: small(rest, 2)?,
        last: number(rest, 3)? == 1,
        breaks: number(rest, 4) == Some(1),
        look: number(rest, 5).map(Duration::from_millis),
    })
}

impl Synchronizer for Arrival {
    fn about(&self) -> &About {
        &self.keys.arrival
    }

    fn acquire(&self, request: &Request<'_>) -> Call {
        self.keys.arrive(&Ask {
            owner: request.owner,
            lease: request.lease,
            not_after: request.not_after,
            parties: self.parties,
            policy: self.policy,
        })
    }

    fn hold(&self) -> Option<&dyn Holdable> {
        Some(self)
    }

    fn hint(&self, rest: &[Reply]) -> Hint {
        let Some(theirs) = small(rest, 0) else {
            // A round of the double barrier is in progress.
            return Hint::None;
        };
        self.answer().theirs = Some(theirs);
        // A retry would not help.
        Hint::TooLate
    }

    fn dated(&self, rest: &[Reply]) -> Dated {
        if let Some(arrived) = read(rest) {
            self.answer().arrived = Some(arrived);
        }
        Dated::default()
    }
}

impl Holdable for Arrival {
    fn release(&self, owner: &WireOwner, _count: u32, _lease: Lease) -> Call {
        self.keys.give_back(owner, BrokenBy::Left, LAST_ROUND)
    }

    fn renewals(&self, owner: &WireOwner, lease: Lease) -> Vec<Item> {
        // A place in a double barrier outlasts the round in which it was taken: it counts until the party leaves.
        let round = self.arrived().map_or(0, |arrived| arrived.place.round);
        let until = if self.keys.family.double {
            LAST_ROUND
        } else {
            round
        };
        vec![self.keys.renew(owner, lease, until)]
    }
}

/// The largest number that Lua represents exactly.
pub(crate) const LAST_ROUND: u64 = (1 << 53) - 1;
