//! The state of a run: guards, calls, resources and faults.
//!
//! Long: the records of one run, which the judges read together.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stanchion::embedded::Engine;
use stanchion::{Client, Owner};
use tokio::task::AbortHandle;
use tokio::time::Instant;

use crate::generator::fault::{Effect, Reason};
use crate::generator::guards::Acquired;
use crate::generator::history::History;
use crate::generator::planted::Planted;
use crate::generator::process::{JumpingClock, Wire};
use crate::generator::program::{CallOptions, ClientSpec, Target};
use crate::generator::resource::{Family, Queue, Resource, Side, Use};
use crate::generator::tracking::Tracking;

/// A promise that was broken.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Finding {
    pub(crate) rule: &'static str,
    pub(crate) text: String,
}

/// The process of one client.
pub(crate) struct Process {
    pub(crate) client: Option<Client>,
    /// The prefix of its owners' names.
    pub(crate) id: String,
    pub(crate) spec: ClientSpec,
    pub(crate) clock: JumpingClock,
    pub(crate) wire: Wire,
    pub(crate) killed: bool,
    /// A shutdown has begun.
    pub(crate) closing: bool,
    /// The time at which its own black hole began.
    pub(crate) frozen: Option<Instant>,
    pub(crate) trouble: Instant,
}

/// The owner of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Actor {
    Shared(u8),
    Fresh(u64),
}

/// A guard of the program.
pub(crate) struct Held {
    pub(crate) acquired: Arc<Acquired>,
    pub(crate) target: Target,
    pub(crate) uses: Vec<Use>,
    pub(crate) actor: Actor,
    pub(crate) opts: CallOptions,
    pub(crate) since: Instant,
    /// The server may have lost the hold, or granted it to another owner, without breaking a promise.
    pub(crate) tainted: bool,
    pub(crate) forgotten: bool,
    /// Work that runs under the guard.
    pub(crate) runs: Vec<AbortHandle>,
    /// The time at which a judge first saw that the guard is not held any more.
    pub(crate) over: Option<Instant>,
}

impl Held {
    /// A guard that the call `op` returned.
    pub(crate) fn new(
        acquired: Arc<Acquired>,
        op: &Op,
        target: &Target,
        actor: Actor,
        tainted: bool,
    ) -> Self {
        Self {
            acquired,
            target: target.clone(),
            uses: op.uses.clone(),
            actor,
            opts: op.opts,
            since: Instant::now(),
            tainted,
            forgotten: false,
            runs: Vec::new(),
            over: None,
        }
    }

    /// The record of another guard of the same hold.
    pub(crate) fn with(&self, acquired: Arc<Acquired>) -> Self {
        Self {
            acquired,
            target: self.target.clone(),
            uses: self.uses.clone(),
            runs: Vec::new(),
            forgotten: false,
            over: None,
            ..*self
        }
    }
}

/// A call in flight.
#[derive(Clone, Debug)]
pub(crate) struct Op {
    pub(crate) label: String,
    pub(crate) kind: OpKind,
    pub(crate) uses: Vec<Use>,
    pub(crate) client: u8,
    pub(crate) opts: CallOptions,
    pub(crate) started: Instant,
    /// The time within which the call must end.
    pub(crate) limit: Option<Duration>,
    /// No task polls the call.
    pub(crate) parked: bool,
    /// The call was not polled for some time.
    pub(crate) was_parked: bool,
    /// Since when the call could be served, and the number of grants at its resources at that time.
    pub(crate) starving: Option<(Instant, u64)>,
    /// The last time at which a call of the same client that is not polled was in the way.
    pub(crate) hindered: Option<Instant>,
    /// The latch was closed when the call began, and no event since then can have opened it.
    pub(crate) closed_at_start: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OpKind {
    /// An acquire, or a wait at a latch.
    Wait,
    Try,
    /// A call about a guard of a slot.
    Guard,
    Release,
    Manage,
    Shutdown,
    /// A job or a leader, with its work.
    Work,
}

/// The state of one resource.
#[derive(Clone, Debug)]
pub(crate) struct Record {
    /// The last time at which a call began or ended, or a hold was granted or ended.
    pub(crate) last_change: Instant,
    pub(crate) granted: Instant,
    /// The last time at which holds may have been lost, or granted to another owner.
    pub(crate) tainted: Option<Instant>,
    /// The last time at which a held guard was released, or another event notified waiters.
    pub(crate) released: Instant,
    /// Fair locks and other locks use this name. They exclude each other, but do not wake each other.
    pub(crate) mixed: bool,
    queue: Option<Queue>,
    /// A RedLock uses the resource.
    pub(crate) of_quorum: bool,
    /// Permits were taken away below the number that is held, or another program deleted the key of held permits.
    pub(crate) reduced: bool,
    /// The number of grants so far.
    pub(crate) grants: u64,
    /// Since when a waiter could be served, but is not.
    pub(crate) asleep: Option<Instant>,
    /// Since when the resource is not free and has no known holder, although a call waits.
    pub(crate) blocked: Option<Instant>,
    /// Since when the counts do not match.
    pub(crate) miscounted: Option<Instant>,
    /// The time until which a holder that will never release may hold the resource.
    pub(crate) dead_until: Instant,
    /// A guard of the resource was forgotten.
    pub(crate) forgotten: bool,
    /// The longest lease of the calls.
    pub(crate) lease: Duration,
    /// The number of permits, if it is known.
    pub(crate) total: Option<i64>,
    pub(crate) java_permits: i64,
    /// The last fencing token of each source.
    pub(crate) tokens: BTreeMap<u8, u64>,
}

impl Record {
    fn new(now: Instant) -> Self {
        Self {
            last_change: now,
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
            miscounted: None,
            dead_until: now,
            forgotten: false,
            lease: Duration::from_millis(crate::generator::guards::LEASE.into()),
            total: None,
            java_permits: 0,
            tokens: BTreeMap::new(),
        }
    }
}

/// The faults of one server.
#[derive(Clone, Debug)]
pub(crate) struct FaultState {
    /// The reasons why requests may fail now.
    pub(crate) reasons: BTreeSet<Reason>,
    /// The last time at which requests could fail.
    pub(crate) last: Instant,
    /// Since when the server answers no client.
    pub(crate) unanswered: Option<Instant>,
    pub(crate) messages_lost: Instant,
    pub(crate) stepped: bool,
}

pub(crate) struct State {
    pub(crate) began: Instant,
    pub(crate) engines: Vec<Engine>,
    pub(crate) fault_states: Vec<FaultState>,
    pub(crate) processes: Vec<Process>,
    pub(crate) owners: BTreeMap<u8, Owner>,
    pub(crate) held: BTreeMap<u64, Held>,
    pub(crate) ops: BTreeMap<u64, Op>,
    pub(crate) records: BTreeMap<Resource, Record>,
    pub(crate) tracking: Tracking,
    pub(crate) history: History,
    pub(crate) finding: Option<Finding>,
    /// Rules that are not judged.
    pub(crate) ignored: &'static [&'static str],
    pub(crate) planted: Planted,
    /// Calls and guards that have ended: the client, the base of the name, and the time.
    pub(crate) ended: Vec<(u8, &'static str, Instant)>,
    /// Clients whose shutdown reported that nothing is left.
    pub(crate) clean: Vec<(u8, Instant)>,
    /// A shutdown reported that something is left.
    pub(crate) left: bool,
    /// A process was killed.
    pub(crate) deaths: bool,
    /// A call was kept without being polled.
    pub(crate) ever_parked: bool,
    /// Clocks jumped, or no task ran for a while.
    pub(crate) time_jumped: bool,
    /// The ends of stalls, and their lengths.
    pub(crate) stalls: Vec<(Instant, Duration)>,
    /// The resources with a campaign.
    pub(crate) campaigns: BTreeSet<Resource>,
    /// Workers must stop.
    pub(crate) stopping: bool,
    pub(crate) next: u64,
}

/// The state, shared by the program and its tasks.
#[derive(Clone)]
pub(crate) struct Shared(Arc<Mutex<State>>);

impl Shared {
    pub(crate) fn new(state: State) -> Self {
        Self(Arc::new(Mutex::new(state)))
    }

    /// Guards and futures must not be dropped while the state is locked, because their destructors may lock it, too.
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A long time ago, for events that have not happened.
const LONG: Duration = Duration::from_secs(3600);

impl State {
    pub(crate) fn new(
        engines: Vec<Engine>,
        ignored: &'static [&'static str],
        planted: Planted,
    ) -> Self {
        let now = Instant::now();
        let past = now.checked_sub(LONG).unwrap_or(now);
        let fault_state = FaultState {
            reasons: BTreeSet::new(),
            last: past,
            unanswered: None,
            messages_lost: past,
            stepped: false,
        };
        Self {
            began: now,
            fault_states: vec![fault_state; engines.len()],
            engines,
            processes: Vec::new(),
            owners: BTreeMap::new(),
            held: BTreeMap::new(),
            ops: BTreeMap::new(),
            records: BTreeMap::new(),
            tracking: Tracking::default(),
            history: History::default(),
            finding: None,
            ignored,
            planted,
            ended: Vec::new(),
            clean: Vec::new(),
            left: false,
            deaths: false,
            ever_parked: false,
            time_jumped: false,
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

    pub(crate) fn log(&mut self, event: impl Into<String>) {
        let at = self.began.elapsed();
        self.history.push(at, event.into());
    }

    /// Records a broken promise. Only the first finding is kept.
    pub(crate) fn report(&mut self, rule: &'static str, text: String) {
        if self.finding.is_none() && !self.ignored.contains(&rule) {
            self.log(format!("FOUND {rule}: {text}"));
            self.finding = Some(Finding { rule, text });
        }
    }

    pub(crate) fn record(&mut self, resource: Resource) -> &mut Record {
        let now = Instant::now();
        self.records
            .entry(resource)
            .or_insert_with(|| Record::new(now))
    }

    pub(crate) fn note_change(&mut self, uses: &[Use]) {
        let now = Instant::now();
        for used in uses {
            let record = self.record(used.resource);
            record.last_change = now;
            record.miscounted = None;
        }
    }

    /// Records the end of a call or of a guard.
    pub(crate) fn ended(&mut self, uses: &[Use]) {
        let now = Instant::now();
        self.note_change(uses);
        for used in uses {
            self.ended.push((used.client, used.resource.base(), now));
        }
        if self.ended.len() > 500 {
            self.ended.drain(..250);
        }
    }

    pub(crate) fn specs(&self) -> Vec<ClientSpec> {
        self.processes.iter().map(|process| process.spec).collect()
    }

    /// The first live client of each server, for a RedLock.
    pub(crate) fn nodes(&self) -> Vec<u8> {
        (0..self.engines.len())
            .filter_map(|server| {
                self.processes.iter().position(|process| {
                    usize::from(process.spec.server) == server
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

    /// The time since the last fault between these clients and their servers.
    pub(crate) fn fault_free(&self, uses: &[Use]) -> Duration {
        uses.iter()
            .map(|used| self.fault_free_between(used.resource.server, used.client))
            .min()
            .unwrap_or(LONG)
    }

    pub(crate) fn fault_free_between(&self, server: u8, client: u8) -> Duration {
        let fault_state = &self.fault_states[usize::from(server)];
        let above = if fault_state.reasons.is_empty() {
            fault_state.last.elapsed()
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

    /// The time since the last fault between a server and any of its live clients.
    pub(crate) fn fault_free_server(&self, server: u8) -> Duration {
        (0..self.processes.len())
            .filter_map(|client| u8::try_from(client).ok())
            .filter(|client| {
                let process = &self.processes[usize::from(*client)];
                process.spec.server == server && !process.killed
            })
            .map(|client| self.fault_free_between(server, client))
            .min()
            .unwrap_or(LONG)
    }

    /// Since when a server has not answered this client.
    pub(crate) fn unanswered_since(&self, server: u8, client: u8) -> Option<Instant> {
        let fault_state = self.fault_states.get(usize::from(server))?.unanswered;
        let own = self.processes.get(usize::from(client))?.frozen;
        match (fault_state, own) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        }
    }

    pub(crate) fn apply_effect(&mut self, server: u8, effect: Effect) {
        let now = Instant::now();
        let Some(fault_state) = self.fault_states.get_mut(usize::from(server)) else {
            return;
        };
        if !matches!(effect, Effect::None | Effect::LosesMessages) {
            fault_state.last = now;
        }
        match effect {
            Effect::None | Effect::Interrupts => {}
            Effect::Begins(reason) => {
                fault_state.reasons.insert(reason);
            }
            Effect::Ends(reason) => {
                fault_state.reasons.remove(&reason);
            }
            Effect::Clears => fault_state.reasons.clear(),
            Effect::LosesMessages => fault_state.messages_lost = now,
            Effect::DataLost => {
                self.taint(|resource| resource.server == server);
                self.tracking.note_data_loss(server);
            }
            Effect::ClockStepped => {
                fault_state.stepped = true;
                self.taint(|resource| resource.server == server);
                self.tracking.note_time_jump(server);
            }
        }
        let fault_state = &mut self.fault_states[usize::from(server)];
        let unanswered = |reason| matches!(reason, &Reason::Frozen | &Reason::Refused);
        fault_state.unanswered = if fault_state.reasons.iter().any(unanswered) {
            Some(fault_state.unanswered.unwrap_or(now))
        } else {
            None
        };
        if matches!(effect, Effect::Clears | Effect::Ends(Reason::Frozen)) {
            // A general thaw ends the black holes of all clients.
            for process in &mut self.processes {
                if process.spec.server == server && process.frozen.take().is_some() {
                    process.trouble = now;
                }
            }
        }
        for (resource, record) in &mut self.records {
            if resource.server == server && effect != Effect::None {
                record.asleep = None;
                record.blocked = None;
                record.miscounted = None;
            }
            if resource.server == server && effect == Effect::DataLost {
                record.java_permits = 0;
                record.total = None;
            }
        }
        self.latches_may_open(|resource| resource.server == server);
    }

    /// Records that the holds of these resources may be lost, or belong to another owner.
    pub(crate) fn taint(&mut self, which: impl Fn(&Resource) -> bool) {
        let now = Instant::now();
        for (_, record) in self
            .records
            .iter_mut()
            .filter(|(resource, _)| which(resource))
        {
            record.tainted = Some(now);
        }
        for held in self.held.values_mut() {
            if held.uses.iter().any(|used| which(&used.resource)) {
                held.tainted = true;
            }
        }
        self.tracking.taint(which);
    }

    /// Records that holds on this server that are never released end with their leases, and `by` later.
    pub(crate) fn ends_later(&mut self, server: u8, by: Duration) {
        let leases = self.records.values().map(|record| record.lease).max();
        let end = Instant::now() + leases.unwrap_or_default() + Duration::from_secs(4) + by;
        for (resource, record) in &mut self.records {
            if resource.server == server {
                record.dead_until = record.dead_until.max(end);
            }
        }
    }

    /// Records that the process of `client` is dead. Its holds end with their leases.
    pub(crate) fn note_death(&mut self, client: u8) {
        crate::generator::judge::detached::note_rests(self, client);
        self.ends_later(
            self.processes[usize::from(client)].spec.server,
            Duration::ZERO,
        );
        for held in self.held.values_mut() {
            if held.uses.iter().any(|used| used.client == client) {
                held.tainted = true;
            }
        }
    }

    pub(crate) fn latches_may_open(&mut self, which: impl Fn(&Resource) -> bool) {
        self.tracking.idle.retain(|resource, _| !which(resource));
        for op in self.ops.values_mut() {
            if op.uses.iter().any(|used| which(&used.resource)) {
                op.closed_at_start = false;
            }
        }
    }

    /// Returns whether the grant of this call may have been taken away before its reply arrived.
    pub(crate) fn is_stale(&self, op: &Op) -> bool {
        let forced = |used: &Use| {
            let same = |resource: Resource| {
                (resource.server, resource.database, resource.name)
                    == (
                        used.resource.server,
                        used.resource.database,
                        used.resource.name,
                    )
            };
            let by_hand = |other: &Op| {
                other.kind == OpKind::Manage && other.uses.iter().any(|used| same(used.resource))
            };
            let under_way = self.ops.values().any(by_hand);
            let recently = self
                .records
                .get(&used.resource)
                .and_then(|record| record.tainted)
                .is_some_and(|at| {
                    at.elapsed() < Duration::from_millis(300)
                        || at > op.started && self.fault_free(&op.uses) < op.started.elapsed()
                        || at > op.started && op.was_parked
                });
            under_way || recently
        };
        op.uses.iter().any(forced)
    }

    /// Returns whether `client` has a call that is not polled at this resource, or at one that shares its channel.
    pub(crate) fn parked_at(&self, resource: Resource, client: u8) -> bool {
        self.ops.values().any(|op| {
            op.parked
                && op.uses.iter().any(|used| {
                    used.client == client
                        && used.resource.server == resource.server
                        && used.resource.base() == resource.base()
                })
        })
    }
}

/// Removes a call from the state when its future is dropped.
pub(crate) struct Ticket {
    id: u64,
    shared: Shared,
}

impl Ticket {
    /// A method, so that a task that needs the number captures the whole ticket.
    pub(crate) fn id(&self) -> u64 {
        self.id
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.shared.lock();
        if let Some(op) = state.ops.remove(&self.id) {
            state.ended(&op.uses);
            state.log(format!("{} is dropped", op.label));
            crate::generator::judge::barriers::left_early(&mut state, &op);
        }
    }
}

impl Shared {
    /// Records a call that begins.
    pub(crate) fn begin(&self, mut op: Op) -> Ticket {
        let mut state = self.lock();
        let id = state.number();
        state.note_change(&op.uses);
        let rest = crate::generator::span(op.opts.rest.unwrap_or_default());
        let lease =
            crate::generator::span(op.opts.lease.unwrap_or(crate::generator::guards::LEASE)) + rest;
        for used in &op.uses {
            let record = state.record(used.resource);
            record.lease = record.lease.max(lease);
            record.of_quorum |= used.side == Side::Quorum;
            record.mixed |= record.queue.is_some_and(|queue| queue != used.queue);
            record.queue = Some(used.queue);
        }
        op.label = format!("#{id} {}", op.label);
        let limited = op.uses.iter().map(|used| used.resource);
        let limited =
            limited.filter(|resource| matches!(resource.family, Family::Rate | Family::Bucket));
        for resource in limited {
            state.tracking.rate(resource);
        }
        state.log(op.label.clone());
        state.ops.insert(id, op);
        drop(state);
        Ticket {
            id,
            shared: self.clone(),
        }
    }
}
