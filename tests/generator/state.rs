//! The knowledge of a run: holders, waiters, the weather. The judges read it.
//!
//! Long: the books of one run, which the judges read together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stanchion::embedded::Engine;
use stanchion::{Client, Owner};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::books::Books;
use crate::history::History;
use crate::process::{JumpingClock, Wire};
use crate::program::{Ask, Seat, What};
use crate::spot::{Family, Queue, Side, Spot, Use};
use crate::things::Thing;
use crate::weather::{Effect, Reason};

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

/// The process of one client.
pub(crate) struct Process {
    pub(crate) client: Option<Client>,
    /// The first part of its owners.
    pub(crate) id: String,
    pub(crate) seat: Seat,
    pub(crate) clock: JumpingClock,
    pub(crate) wire: Wire,
    pub(crate) killed: bool,
    /// A shutdown has begun.
    pub(crate) closing: bool,
    /// The black hole of its own began then.
    pub(crate) frozen: Option<Instant>,
    pub(crate) trouble: Instant,
}

/// Which actor a hold counts for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    Shared(u8),
    Fresh(u64),
}

/// A guard that the program has.
pub(crate) struct Held {
    pub(crate) thing: Arc<Thing>,
    pub(crate) what: What,
    pub(crate) uses: Vec<Use>,
    pub(crate) actor: Actor,
    pub(crate) ask: Ask,
    pub(crate) since: Instant,
    /// The server may rightly have forgotten it, or given it to somebody else.
    pub(crate) tainted: bool,
    pub(crate) forgotten: bool,
    /// Work that runs under it.
    pub(crate) runs: Vec<AbortHandle>,
    /// When it was first seen not to be held any more.
    pub(crate) over: Option<Instant>,
}

/// A call under way.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) label: String,
    pub(crate) kind: OpKind,
    pub(crate) uses: Vec<Use>,
    pub(crate) client: u8,
    pub(crate) ask: Ask,
    pub(crate) started: Instant,
    /// The time after which it must have ended.
    pub(crate) limit: Option<Duration>,
    /// Nobody polls it.
    pub(crate) parked: bool,
    /// Somebody did not, once.
    pub(crate) was_parked: bool,
    /// Since when it could be served, and how many grants there had been at its spots.
    pub(crate) starving: Option<(Instant, u64)>,
    /// When a call of its client that nobody polls was last seen in its way.
    pub(crate) hindered: Option<Instant>,
    /// Of a latch: it was armed when this began, and nothing has happened since that could open it.
    pub(crate) shut_out: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    /// An acquire, or a latch's wait.
    Wait,
    Try,
    /// Something about a guard that the hand has.
    Guard,
    Release,
    Manage,
    Shutdown,
    /// A job or a leader with its work.
    Work,
}

/// The knowledge of one spot.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    /// Something about it ended, or was granted.
    pub(crate) stirred: Instant,
    pub(crate) granted: Instant,
    /// The moment whose holds may be gone, or somebody else's.
    pub(crate) tainted: Option<Instant>,
    /// A held guard of it was released, or something else happened that tells waiters.
    pub(crate) released: Instant,
    /// Fair locks and others meet here: they exclude, and do not wake, each other.
    pub(crate) mixed: bool,
    queue: Option<Queue>,
    /// A RedLock uses it.
    pub(crate) of_quorum: bool,
    /// Permits were taken away below what is held, or another program deleted the key under its holders.
    pub(crate) reduced: bool,
    /// The number of grants so far.
    pub(crate) grants: u64,
    /// A waiter could be served, and is not, since then.
    pub(crate) asleep: Option<Instant>,
    /// Nobody known holds it, it is not free, and somebody waits, since then.
    pub(crate) blocked: Option<Instant>,
    /// Nobody knows of it, and it is there, since then.
    pub(crate) orphaned: Option<Instant>,
    /// The numbers do not add up since then.
    pub(crate) miscounted: Option<Instant>,
    /// Somebody who will never release has it until then.
    pub(crate) dead_until: Instant,
    /// Guards of it were forgotten.
    pub(crate) forgotten: bool,
    /// The longest lease asked for.
    pub(crate) lease: Duration,
    /// The number of permits, if it is known.
    pub(crate) total: Option<i64>,
    pub(crate) java_permits: i64,
    /// The last tokens, by where they come from.
    pub(crate) tokens: BTreeMap<u8, u64>,
}

impl Place {
    fn new(now: Instant) -> Self {
        Self {
            stirred: now,
            granted: now,
            tainted: None,
            released: now,
            mixed: false,
            queue: None,
            of_quorum: false,
            reduced: false,
            grants: 0,
            asleep: None,
            blocked: None,
            orphaned: None,
            miscounted: None,
            dead_until: now,
            forgotten: false,
            lease: Duration::from_millis(crate::things::LEASE.into()),
            total: None,
            java_permits: 0,
            tokens: BTreeMap::new(),
        }
    }
}

/// The weather over one server.
#[derive(Clone, Debug)]
pub(crate) struct Sky {
    /// Why requests may fail now.
    pub(crate) reasons: BTreeSet<Reason>,
    /// When they last could.
    pub(crate) last: Instant,
    /// The server answers nobody since then.
    pub(crate) dark: Option<Instant>,
    pub(crate) deaf: Instant,
    pub(crate) stepped: bool,
}

pub(crate) struct State {
    pub(crate) began: Instant,
    pub(crate) engines: Vec<Engine>,
    pub(crate) skies: Vec<Sky>,
    pub(crate) processes: Vec<Process>,
    pub(crate) owners: BTreeMap<u8, Owner>,
    pub(crate) held: BTreeMap<u64, Held>,
    pub(crate) ops: BTreeMap<u64, Op>,
    pub(crate) places: BTreeMap<Spot, Place>,
    pub(crate) books: Books,
    pub(crate) history: History,
    pub(crate) finding: Option<Finding>,
    /// Rules that are not judged.
    pub(crate) ignored: &'static [&'static str],
    /// Past holdings, with their ends: calls and guards that have ended.
    pub(crate) ended: Vec<(u8, &'static str, Instant)>,
    /// Clients whose shutdown said that nothing is left.
    pub(crate) clean: Vec<(u8, Instant)>,
    /// A shutdown said that it leaves something.
    pub(crate) left: bool,
    /// Some process died.
    pub(crate) deaths: bool,
    /// Some call was left unpolled.
    pub(crate) ever_parked: bool,
    /// Clocks jumped, or nobody ran for a while.
    pub(crate) leapt: bool,
    /// When nobody had run for a while, and for how long.
    pub(crate) stalls: Vec<(Instant, Duration)>,
    /// Where anybody campaigned.
    pub(crate) campaigns: BTreeSet<Spot>,
    /// Workers stop.
    pub(crate) stopping: bool,
    pub(crate) next: u64,
}

/// The state, and whoever runs beside the program.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// Nothing that may call back is dropped while this is locked: not a guard, not a future.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Long ago: for times that nothing has happened at yet.
const LONG: Duration = Duration::from_secs(3600);

impl State {
    pub(crate) fn new(engines: Vec<Engine>, ignored: &'static [&'static str]) -> Self {
        let now = Instant::now();
        let past = now.checked_sub(LONG).unwrap_or(now);
        let sky = Sky {
            reasons: BTreeSet::new(),
            last: past,
            dark: None,
            deaf: past,
            stepped: false,
        };
        Self {
            began: now,
            skies: vec![sky; engines.len()],
            engines,
            processes: Vec::new(),
            owners: BTreeMap::new(),
            held: BTreeMap::new(),
            ops: BTreeMap::new(),
            places: BTreeMap::new(),
            books: Books::default(),
            history: History::default(),
            finding: None,
            ignored,
            ended: Vec::new(),
            clean: Vec::new(),
            left: false,
            deaths: false,
            ever_parked: false,
            leapt: false,
            stalls: Vec::new(),
            campaigns: BTreeSet::new(),
            stopping: false,
            next: 0,
        }
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub(crate) fn tell(&mut self, event: impl Into<String>) {
        let at = self.began.elapsed();
        self.history.push(at, event.into());
    }

    /// A promise is broken. The first finding stays.
    pub(crate) fn report(&mut self, rule: &'static str, text: String) {
        if self.finding.is_none() && !self.ignored.contains(&rule) {
            self.tell(format!("FOUND {rule}: {text}"));
            self.finding = Some(Finding { rule, text });
        }
    }

    pub(crate) fn place(&mut self, spot: Spot) -> &mut Place {
        let now = Instant::now();
        self.places.entry(spot).or_insert_with(|| Place::new(now))
    }

    pub(crate) fn stir(&mut self, uses: &[Use]) {
        let now = Instant::now();
        for used in uses {
            let place = self.place(used.spot);
            place.stirred = now;
            place.orphaned = None;
            place.miscounted = None;
        }
    }

    /// A call or a guard is over.
    pub(crate) fn ended(&mut self, uses: &[Use]) {
        let now = Instant::now();
        self.stir(uses);
        for used in uses {
            self.ended.push((used.client, used.spot.base(), now));
        }
        if self.ended.len() > 500 {
            self.ended.drain(..250);
        }
    }

    pub(crate) fn seats(&self) -> Vec<Seat> {
        self.processes.iter().map(|process| process.seat).collect()
    }

    /// One client for each server, for a RedLock: the first that lives.
    pub(crate) fn nodes(&self) -> Vec<u8> {
        (0..self.engines.len())
            .filter_map(|server| {
                self.processes.iter().position(|process| {
                    usize::from(process.seat.server) == server
                        && process.client.is_some()
                        && !process.killed
                })
            })
            .filter_map(|client| u8::try_from(client).ok())
            .collect()
    }

    pub(crate) fn client(&self, number: u8) -> Option<Client> {
        let process = self.processes.get(usize::from(number))?;
        process.client.clone().filter(|_| !process.killed)
    }

    /// The time for which nothing has stood between these and their servers.
    pub(crate) fn calm(&self, uses: &[Use]) -> Duration {
        uses.iter()
            .map(|used| self.calm_of(used.spot.server, used.client))
            .min()
            .unwrap_or(LONG)
    }

    pub(crate) fn calm_of(&self, server: u8, client: u8) -> Duration {
        let sky = &self.skies[usize::from(server)];
        let above = if sky.reasons.is_empty() {
            sky.last.elapsed()
        } else {
            Duration::ZERO
        };
        let own = match self.processes.get(usize::from(client)) {
            Some(process) if process.frozen.is_some() => Duration::ZERO,
            Some(process) => process.trouble.elapsed(),
            None => LONG,
        };
        above.min(own)
    }

    /// The time for which nothing has stood between a server and anybody.
    pub(crate) fn calm_over(&self, server: u8) -> Duration {
        (0..self.processes.len())
            .filter_map(|client| u8::try_from(client).ok())
            .filter(|client| {
                let process = &self.processes[usize::from(*client)];
                process.seat.server == server && !process.killed
            })
            .map(|client| self.calm_of(server, client))
            .min()
            .unwrap_or(LONG)
    }

    /// Since when a server has not answered this client.
    pub(crate) fn dark_since(&self, server: u8, client: u8) -> Option<Instant> {
        let sky = self.skies.get(usize::from(server))?.dark;
        let own = self.processes.get(usize::from(client))?.frozen;
        match (sky, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(crate) fn struck(&mut self, server: u8, effect: Effect) {
        let now = Instant::now();
        let Some(sky) = self.skies.get_mut(usize::from(server)) else {
            return;
        };
        if !matches!(effect, Effect::None | Effect::Deaf) {
            sky.last = now;
        }
        match effect {
            Effect::None | Effect::Moment => {}
            Effect::Begins(reason) => {
                sky.reasons.insert(reason);
            }
            Effect::Ends(reason) => {
                sky.reasons.remove(&reason);
            }
            Effect::Calms => sky.reasons.clear(),
            Effect::Deaf => sky.deaf = now,
            Effect::DataLost => {
                self.taint(|spot| spot.server == server);
                self.books.lost(server);
            }
            Effect::ClockStepped => {
                sky.stepped = true;
                self.taint(|spot| spot.server == server);
                self.books.leapt(server);
            }
        }
        let sky = &mut self.skies[usize::from(server)];
        let dark = |reason| matches!(reason, &Reason::Frozen | &Reason::Refused);
        sky.dark = if sky.reasons.iter().any(dark) {
            Some(sky.dark.unwrap_or(now))
        } else {
            None
        };
        if matches!(effect, Effect::Calms | Effect::Ends(Reason::Frozen)) {
            // A general thaw ends everybody's black hole.
            for process in &mut self.processes {
                if process.seat.server == server && process.frozen.take().is_some() {
                    process.trouble = now;
                }
            }
        }
        for (spot, place) in &mut self.places {
            if spot.server == server && effect != Effect::None {
                place.asleep = None;
                place.blocked = None;
                place.orphaned = None;
                place.miscounted = None;
            }
            if spot.server == server && effect == Effect::DataLost {
                place.java_permits = 0;
                place.total = None;
            }
        }
        self.latches_may_open(|spot| spot.server == server);
    }

    /// Notes that what is held of these spots may be gone, or somebody else's.
    pub(crate) fn taint(&mut self, which: impl Fn(&Spot) -> bool) {
        let now = Instant::now();
        for (_, place) in self.places.iter_mut().filter(|(spot, _)| which(spot)) {
            place.tainted = Some(now);
        }
        for held in self.held.values_mut() {
            if held.uses.iter().any(|used| which(&used.spot)) {
                held.tainted = true;
            }
        }
        self.books.taint(which);
    }

    /// Notes that holds of those who do not release, on this server, end with the leases, and `by` later.
    pub(crate) fn ends_later(&mut self, server: u8, by: Duration) {
        let leases = self.places.values().map(|place| place.lease).max();
        let end = Instant::now() + leases.unwrap_or_default() + Duration::from_secs(4) + by;
        for (spot, place) in &mut self.places {
            if spot.server == server {
                place.dead_until = place.dead_until.max(end);
            }
        }
    }

    /// The process of `client` is dead: what it has ends with its leases.
    pub(crate) fn dies(&mut self, client: u8) {
        crate::judge::rests::note(self, client);
        self.ends_later(
            self.processes[usize::from(client)].seat.server,
            Duration::ZERO,
        );
        for held in self.held.values_mut() {
            if held.uses.iter().any(|used| used.client == client) {
                held.tainted = true;
            }
        }
    }

    pub(crate) fn latches_may_open(&mut self, which: impl Fn(&Spot) -> bool) {
        self.books.idle.retain(|spot, _| !which(spot));
        for op in self.ops.values_mut() {
            if op.uses.iter().any(|used| which(&used.spot)) {
                op.shut_out = false;
            }
        }
    }

    /// Returns whether a grant that this call has got may have been taken away before it was told.
    pub(crate) fn is_stale(&self, op: &Op) -> bool {
        let forced = |used: &Use| {
            let same = |spot: Spot| {
                (spot.server, spot.database, spot.name)
                    == (used.spot.server, used.spot.database, used.spot.name)
            };
            let by_hand = |other: &Op| {
                other.kind == OpKind::Manage && other.uses.iter().any(|used| same(used.spot))
            };
            let under_way = self.ops.values().any(by_hand);
            let lately = self
                .places
                .get(&used.spot)
                .and_then(|place| place.tainted)
                .is_some_and(|at| {
                    at.elapsed() < Duration::from_millis(300)
                        || at > op.started && self.calm(&op.uses) < op.started.elapsed()
                        || at > op.started && op.was_parked
                });
            under_way || lately
        };
        op.uses.iter().any(forced)
    }

    /// Returns whether a call of `client` that nobody polls has a place at this spot, or one that shares its channel.
    pub(crate) fn parked_at(&self, spot: Spot, client: u8) -> bool {
        self.ops.values().any(|op| {
            op.parked
                && op.uses.iter().any(|used| {
                    used.client == client
                        && used.spot.server == spot.server
                        && used.spot.base() == spot.base()
                })
        })
    }
}

/// Takes a call off the books when its future goes.
pub(crate) struct Ticket {
    id: u64,
    shared: Shared,
}

impl Ticket {
    /// By a method, so that a task that needs the number takes the ticket with it.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(op) = state.ops.remove(&self.id) {
            state.ended(&op.uses);
            state.tell(format!("{} is dropped", op.label));
            crate::judge::meetings::gone(&mut state, &op);
        }
    }
}

impl Shared {
    /// Puts a call on the books.
    pub(crate) fn begin(&self, mut op: Op) -> Ticket {
        let mut state = self.lock();
        let id = state.number();
        state.stir(&op.uses);
        let rest = crate::span(op.ask.rest.unwrap_or_default());
        let lease = crate::span(op.ask.lease.unwrap_or(crate::things::LEASE)) + rest;
        for used in &op.uses {
            let place = state.place(used.spot);
            place.lease = place.lease.max(lease);
            place.of_quorum |= used.side == Side::Quorum;
            place.mixed |= place.queue.is_some_and(|queue| queue != used.queue);
            place.queue = Some(used.queue);
        }
        op.label = format!("#{id} {}", op.label);
        let limited = op.uses.iter().map(|used| used.spot);
        let limited = limited.filter(|spot| matches!(spot.family, Family::Rate | Family::Bucket));
        for spot in limited {
            state.books.rate(spot);
        }
        state.tell(op.label.clone());
        state.ops.insert(id, op);
        drop(state);
        Ticket {
            id,
            shared: self.clone(),
        }
    }
}
