//! The knowledge of a run about what lasts beyond a hold: permits over time, ticks, tickets, heirs, those who look on.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use stanchion::{BrokenBy, HoldTicket, Moment};
use tokio::time::Instant;

use crate::program::What;
use crate::spot::{Spot, Use};
use crate::state::Actor;

#[derive(Default)]
pub(crate) struct Books {
    pub(crate) rates: BTreeMap<Spot, Rate>,
    pub(crate) ticks: BTreeMap<Spot, Ticks>,
    /// Names of jobs.
    pub(crate) jobs: BTreeSet<&'static str>,
    pub(crate) slips: Vec<Slip>,
    pub(crate) heirs: BTreeMap<Spot, Heir>,
    pub(crate) rests: Vec<Rest>,
    pub(crate) lookouts: Vec<Lookout>,
    /// The latest moments until which guards were valid.
    pub(crate) valid: BTreeMap<u64, Moment>,
    /// The number of the last value that a leader was given.
    pub(crate) values: u64,
    pub(crate) rounds: BTreeMap<Spot, Rounds>,
    /// Latches that end without use, and how long they live at least.
    pub(crate) idle: BTreeMap<Spot, Instant>,
    /// Another program armed a latch.
    pub(crate) armed: bool,
    /// Actors that wait for each other, since then.
    pub(crate) tangled: BTreeMap<BTreeSet<Actor>, Instant>,
}

/// The rounds of one barrier.
#[derive(Default)]
pub(crate) struct Rounds {
    /// The numbers of parties that anybody asked for, or set.
    pub(crate) parties: BTreeSet<u32>,
    /// Somebody asked to break the round when one leaves.
    pub(crate) breaks: bool,
    /// Somebody broke it by force.
    pub(crate) forced: bool,
    /// The present round when somebody last began to.
    pub(crate) force: u64,
    pub(crate) told: BTreeMap<u64, Told>,
    pub(crate) gone: Vec<Gone>,
    /// Sums that do not add up, by client, since then.
    pub(crate) odd: BTreeMap<(&'static str, u8), Instant>,
    /// Places of before may count until then, although nobody knows of them.
    pub(crate) unsure: Option<Instant>,
    pub(crate) looked: Option<Instant>,
    /// Rounds that somebody left then who breaks them so: the client, and the round.
    pub(crate) breaking: Vec<(Instant, u8, u64)>,
    /// Calls that leave, with their rounds.
    pub(crate) leaving: BTreeMap<u64, u64>,
    /// The server has lost it since then.
    pub(crate) lost: Option<Instant>,
}

/// What parties were told of a round.
pub(crate) struct Told {
    pub(crate) at: Instant,
    pub(crate) parties: u32,
    /// The numbers of those who arrived, and when their calls began.
    pub(crate) arrivals: Vec<(u32, Instant)>,
    pub(crate) broken: Option<BrokenBy>,
}

/// A wait that ended otherwise than with its round.
pub(crate) struct Gone {
    pub(crate) at: Instant,
    pub(crate) client: u8,
    pub(crate) lease: Duration,
}

/// The permits of one limiter.
pub(crate) struct Rate {
    /// Grants told to callers: from when they count, how much, and the guard.
    pub(crate) told: Vec<(Instant, u32, u64)>,
    /// Entries that the server has, or had: entry, moment in its milliseconds, permits.
    pub(crate) seen: BTreeMap<Vec<u8>, (i64, i64)>,
    /// Nothing is judged that counts from an earlier moment.
    pub(crate) from: Instant,
    /// The quota was set, or the limiter deleted: refunds may be too late.
    pub(crate) changed: bool,
    /// When somebody was last granted, or something else happened that moves others.
    pub(crate) moved: Instant,
}

impl Rate {
    pub(crate) fn new() -> Self {
        let now = Instant::now();
        Self {
            told: Vec::new(),
            seen: BTreeMap::new(),
            from: now,
            changed: false,
            moved: now,
        }
    }

    /// Forgets the grants: they are gone on the server, or count at other moments. Earlier bookings may be used for the time `bookings`.
    pub(crate) fn forget(&mut self, bookings: Duration) {
        let now = Instant::now();
        self.told.clear();
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
pub(crate) struct Slip {
    pub(crate) number: u8,
    pub(crate) ticket: HoldTicket,
    pub(crate) what: What,
    pub(crate) used: Use,
    pub(crate) actor: Actor,
    /// The server keeps it until then.
    pub(crate) until: Instant,
    /// Somebody tries, or tried, to adopt it, or it may be gone for another reason.
    pub(crate) loose: bool,
    pub(crate) adopted: u32,
}

/// For whom a leader stepped down.
#[derive(Clone, Copy)]
pub(crate) struct Heir {
    pub(crate) client: u8,
    pub(crate) since: Instant,
    /// `None`: it has not been told yet.
    pub(crate) until: Option<Instant>,
}

/// A name that stays taken after the death of its holder.
pub(crate) struct Rest {
    pub(crate) spot: Spot,
    pub(crate) until: Instant,
}

/// One who looks on.
pub(crate) struct Lookout {
    pub(crate) client: u8,
    pub(crate) spot: Spot,
    /// The last leader: who, the token, the number of its value.
    pub(crate) last: Option<(String, Option<u64>, u64)>,
    pub(crate) vacant: bool,
    pub(crate) ended: bool,
}

impl Books {
    pub(crate) fn rate(&mut self, spot: Spot) -> &mut Rate {
        self.rates.entry(spot).or_insert_with(Rate::new)
    }

    /// Notes that the server may have lost the data of these.
    pub(crate) fn taint(&mut self, which: impl Fn(&Spot) -> bool) {
        for slip in self.slips.iter_mut().filter(|it| which(&it.used.spot)) {
            slip.loose = true;
        }
        self.heirs.retain(|spot, _| !which(spot));
        self.rests.retain(|rest| !which(&rest.spot));
    }

    /// The server's clock was stepped, or it has lost its data.
    pub(crate) fn leapt(&mut self, server: u8) {
        let here = |spot: &Spot| spot.server == server;
        for (_, rate) in self.rates.iter_mut().filter(|(spot, _)| here(spot)) {
            rate.forget(Duration::from_secs(25));
        }
        for lookout in self.lookouts.iter_mut().filter(|it| here(&it.spot)) {
            lookout.last = None;
        }
        for (_, rounds) in self.rounds.iter_mut().filter(|(spot, _)| here(spot)) {
            // A clock that is stepped back by 20 s lets a place last longer by as much.
            rounds.unsure = Some(Instant::now() + Duration::from_secs(45));
        }
        self.taint(here);
    }

    /// The server has lost its data.
    pub(crate) fn lost(&mut self, server: u8) {
        self.leapt(server);
        self.ticks.retain(|spot, _| spot.server != server);
        let here = |spot: &Spot| spot.server == server;
        for (_, rounds) in self.rounds.iter_mut().filter(|(spot, _)| here(spot)) {
            rounds.lost = Some(Instant::now());
        }
    }
}
