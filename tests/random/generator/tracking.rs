//! Records that outlive a single hold: permits over time, ticks, tickets, hand-overs, barrier rounds and observers.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stanchion::barrier::BrokenBy;
use stanchion::{HoldTicket, Moment};
use tokio::time::Instant;

use crate::generator::program::Target;
use crate::generator::resource::{Resource, Use};
use crate::generator::state::Actor;

#[derive(Default)]
pub(crate) struct Tracking {
    pub(crate) rates: BTreeMap<Resource, Rate>,
    pub(crate) ticks: BTreeMap<Resource, Ticks>,
    /// The names of jobs.
    pub(crate) jobs: BTreeSet<&'static str>,
    pub(crate) detached_holds: Vec<DetachedHold>,
    pub(crate) heirs: BTreeMap<Resource, Heir>,
    pub(crate) rests: Vec<Rest>,
    pub(crate) observers: Vec<Observer>,
    /// The latest end of each guard.
    pub(crate) valid: BTreeMap<u64, Moment>,
    /// The number of the last value that a leader published.
    pub(crate) values: u64,
    pub(crate) rounds: BTreeMap<Resource, Rounds>,
    /// Latches with an idle expiry, and the earliest times of their end.
    pub(crate) idle: BTreeMap<Resource, Instant>,
    /// Another program armed a latch.
    pub(crate) armed: bool,
    /// Since when the actors of each set have waited for each other.
    pub(crate) deadlocked: BTreeMap<BTreeSet<Actor>, Instant>,
}

/// The rounds of one barrier.
#[derive(Default)]
pub(crate) struct Rounds {
    /// The numbers of parties that calls have used or set.
    pub(crate) parties: BTreeSet<u32>,
    /// A wait breaks the round if its party leaves.
    pub(crate) breaks: bool,
    /// A call has broken a round by force.
    pub(crate) forced: bool,
    /// The present round when the last such call began.
    pub(crate) force: u64,
    pub(crate) results: BTreeMap<u64, RoundResult>,
    pub(crate) departures: Vec<Departure>,
    /// Since when the counts of a client do not match, by rule and client.
    pub(crate) odd: BTreeMap<(&'static str, u8), Instant>,
    /// The time until which places may count that belong to no call or guard.
    pub(crate) unsure: Option<Instant>,
    pub(crate) checked: Option<Instant>,
    /// Parties that have left a round that breaks: the time, the client, and the round.
    pub(crate) breaking: Vec<(Instant, u8, u64)>,
    /// Calls that leave, with their rounds.
    pub(crate) leaving: BTreeMap<u64, u64>,
    /// The time at which the server lost the barrier.
    pub(crate) lost: Option<Instant>,
}

/// The result of a round, as its parties reported it.
pub(crate) struct RoundResult {
    pub(crate) at: Instant,
    pub(crate) parties: u32,
    /// The arrival numbers of the parties, and the times at which their calls began.
    pub(crate) arrivals: Vec<(u32, Instant)>,
    pub(crate) broken: Option<BrokenBy>,
}

/// A wait that ended without its round.
pub(crate) struct Departure {
    pub(crate) at: Instant,
    pub(crate) client: u8,
    pub(crate) lease: Duration,
}

/// The permits of one limiter.
pub(crate) struct Rate {
    /// Grants that callers have received: the time from which they count, the permits, and the guard.
    pub(crate) grants: Vec<(Instant, u32, u64)>,
    /// The entries of the server's log, including earlier ones: entry, time in milliseconds, permits.
    pub(crate) seen: BTreeMap<Vec<u8>, (i64, i64)>,
    /// Grants that count from an earlier time are not judged.
    pub(crate) from: Instant,
    /// The quota was set, or the limiter was deleted, so refunds may come too late.
    pub(crate) changed: bool,
    /// The last time of a grant, or of another event that lets waiters proceed.
    pub(crate) moved: Instant,
}

impl Rate {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            grants: Vec::new(),
            seen: BTreeMap::new(),
            from: now,
            changed: false,
            moved: now,
        }
    }

    /// Forgets all grants: the server lost them, or they count at other times. Earlier bookings may be used for the time `bookings`.
    pub(crate) fn forget(&mut self, bookings: Duration) {
        let now = Instant::now();
        self.grants.clear();
        self.seen.clear();
        self.from = self.from.max(now + bookings);
        self.changed = true;
        self.moved = now;
    }
}

/// The ticks of one job.
#[derive(Default)]
pub(crate) struct Ticks {
    pub(crate) begun: BTreeSet<u64>,
}

/// A detached hold.
pub(crate) struct DetachedHold {
    pub(crate) number: u8,
    pub(crate) ticket: HoldTicket,
    pub(crate) target: Target,
    pub(crate) used: Use,
    pub(crate) actor: Actor,
    /// The server keeps the hold until then.
    pub(crate) until: Instant,
    /// A call has tried to adopt the hold, or another event may have ended it.
    pub(crate) uncertain: bool,
    pub(crate) adopted: u32,
}

/// The candidate to which a leader hands over.
#[derive(Clone, Copy)]
pub(crate) struct Heir {
    pub(crate) client: u8,
    pub(crate) since: Instant,
    /// `None` until the call of the leader has returned.
    pub(crate) until: Option<Instant>,
}

/// A name that stays taken after the death of its holder.
pub(crate) struct Rest {
    pub(crate) resource: Resource,
    pub(crate) until: Instant,
}

/// A task that observes an election.
pub(crate) struct Observer {
    pub(crate) client: u8,
    pub(crate) resource: Resource,
    /// The last leader: its id, its fencing token, and the number of its value.
    pub(crate) last: Option<(String, Option<u64>, u64)>,
    pub(crate) vacant: bool,
    /// A leader that the observer does not know, and since when.
    pub(crate) missed: Option<(String, Instant)>,
    pub(crate) ended: bool,
}

impl Tracking {
    pub(crate) fn rate(&mut self, resource: Resource) -> &mut Rate {
        self.rates.entry(resource).or_insert_with(Rate::new)
    }

    /// Records that the server may have lost the data of these resources.
    pub(crate) fn taint(&mut self, which: impl Fn(&Resource) -> bool) {
        for detached_hold in self
            .detached_holds
            .iter_mut()
            .filter(|it| which(&it.used.resource))
        {
            detached_hold.uncertain = true;
        }
        self.heirs.retain(|resource, _| !which(resource));
        self.rests.retain(|rest| !which(&rest.resource));
    }

    /// Records that the clock of the server was stepped, or that the server lost its data.
    pub(crate) fn note_time_jump(&mut self, server: u8) {
        let here = |resource: &Resource| resource.server == server;
        for (_, rate) in self.rates.iter_mut().filter(|(resource, _)| here(resource)) {
            rate.forget(Duration::from_secs(25));
        }
        for observer in self.observers.iter_mut().filter(|it| here(&it.resource)) {
            observer.last = None;
        }
        for (_, rounds) in self
            .rounds
            .iter_mut()
            .filter(|(resource, _)| here(resource))
        {
            // If the clock is stepped back by 20 s, a place lasts longer by the same time.
            rounds.unsure = Some(Instant::now() + Duration::from_secs(45));
        }
        self.taint(here);
    }

    /// Records that the server lost its data.
    pub(crate) fn note_data_loss(&mut self, server: u8) {
        self.note_time_jump(server);
        self.ticks.retain(|resource, _| resource.server != server);
        let here = |resource: &Resource| resource.server == server;
        for (_, rounds) in self
            .rounds
            .iter_mut()
            .filter(|(resource, _)| here(resource))
        {
            rounds.lost = Some(Instant::now());
        }
    }
}
