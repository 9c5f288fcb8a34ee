//! The calls of a program: put on the books, run, and judged when they end.

use std::sync::Arc;
use std::time::Duration;

use stanchion::{AcquireError, ReleaseError, RenewError};
use tokio::time::Instant;

use crate::judge;
use crate::program::{Ask, What};
use crate::run::Work;
use crate::span;
use crate::spot::{Side, Spot, Use, uses};
use crate::state::{Actor, Held, Op, OpKind, Shared, Ticket};
use crate::things::{Call, Thing, call};

/// The timeouts that the clients of a run are configured with.
pub(crate) const OPERATION: Duration = Duration::from_secs(5);
pub(crate) const TOLERANCE: Duration = Duration::from_secs(6);

/// An acquire that can be polled.
pub(crate) struct Asking {
    pub(crate) call: Call,
    pub(crate) ticket: Ticket,
    what: What,
    ask: Ask,
    actor: Option<u8>,
}

impl Asking {
    /// The end of a call that is no acquire of `what`, and gives its guard.
    pub(crate) fn adopting(ticket: Ticket, what: What, ask: Ask) -> Self {
        Self {
            call: Box::pin(std::future::pending()),
            ticket,
            what,
            ask,
            actor: None,
        }
    }
}

impl Op {
    /// A call that has begun now, with the bound of an operation.
    pub(crate) fn about(label: String, kind: OpKind, uses: &[Use]) -> Self {
        Self {
            label,
            kind,
            client: uses.first().map_or(0, |used| used.client),
            uses: uses.to_vec(),
            ask: Ask::default(),
            started: Instant::now(),
            limit: Some(OPERATION),
            parked: false,
            was_parked: false,
            starving: None,
            hindered: None,
            shut_out: false,
        }
    }
}

impl Shared {
    /// Makes the call for `what`; `None` when its client has gone.
    pub(crate) fn ask(&self, client: u8, what: &What, ask: Ask) -> Option<Asking> {
        let (uses, owner, nodes) = {
            let mut state = self.lock();
            let nodes = state.nodes();
            let uses = uses(what, client, &state.seats(), &nodes);
            let nodes: Option<Vec<_>> = nodes.iter().map(|node| state.client(*node)).collect();
            let maker = state.client(client)?;
            let owner = ask.owner.map(|number| {
                let owner = state.owners.entry(number);
                owner.or_insert_with(|| maker.owner()).clone()
            });
            (uses, owner, nodes?)
        };
        let clients = |number| self.lock().client(number);
        let call = call(&clients, client, &nodes, what, ask, owner.as_ref())?;
        // A latch is waited for, and a job is not.
        let tries = match what {
            What::Latch(_) | What::Free(_) | What::Meet(..) | What::Inside(..) => false,
            What::Job(..) => true,
            _ => ask.tries,
        };
        let ask = Ask { tries, ..ask };
        let members = u32::try_from(uses.len()).unwrap_or(1).max(1);
        let patience = ask.timeout.map(span);
        let limit = if ask.tries {
            Some(OPERATION * members)
        } else {
            patience
        };
        let shut_out = judge::latch::is_shut(&self.lock(), what, &uses);
        judge::meetings::asked(&mut self.lock(), what, &uses);
        if let What::Leader(..) = what {
            self.lock()
                .campaigns
                .extend(uses.iter().map(|used| used.spot));
        }
        if let What::Job(_, _, least) = what {
            for used in &uses {
                let mut state = self.lock();
                state.books.jobs.insert(used.spot.name);
                let place = state.place(used.spot);
                place.lease = place.lease.max(span(*least));
            }
        }
        let ticket = self.begin(Op {
            label: format!("client {client}: {what:?} {ask:?}"),
            kind: if ask.tries { OpKind::Try } else { OpKind::Wait },
            shut_out,
            uses,
            client,
            ask,
            started: Instant::now(),
            limit,
            parked: false,
            was_parked: false,
            starving: None,
            hindered: None,
        });
        Some(Asking {
            call,
            ticket,
            what: what.clone(),
            ask,
            actor: ask.owner,
        })
    }

    /// Books the end of an acquire; the number of the guard if it gave one.
    pub(crate) fn acquired(
        &self,
        asking: Asking,
        outcome: Result<Option<Thing>, AcquireError>,
    ) -> Option<u64> {
        let Asking {
            call,
            ticket,
            what,
            ask,
            actor,
        } = asking;
        // The future first: it has ended, but what it owns must not be dropped under the lock.
        drop(call);
        let mut state = self.lock();
        let op = state.ops.remove(&ticket.id())?;
        judge::truth::acquired(&mut state, &op, &outcome);
        judge::meetings::ended(&mut state, &op, &what, &outcome);
        state.ended(&op.uses);
        match outcome {
            Ok(Some(Thing::Passed)) => {
                state.tell(format!("{}: passed", op.label));
                judge::latch::passed(&mut state, &op);
                None
            }
            Ok(Some(Thing::Met(met))) => {
                judge::meetings::met(&mut state, &op, &what, &met);
                None
            }
            Ok(Some(Thing::Ran(tick))) => {
                state.tell(format!("{}: {tick} has run", op.label));
                judge::ticks::ran(&mut state, &op, &what, tick);
                None
            }
            Ok(Some(Thing::Skipped)) => {
                state.tell(format!("{}: skipped", op.label));
                judge::ticks::skipped(&mut state, &op);
                None
            }
            Ok(Some(thing)) => {
                let id = state.number();
                state.tell(format!("{}: guard {id}", op.label));
                let tainted = state.is_stale(&op);
                let is_held = thing.is_held();
                let spent = match &thing {
                    Thing::Grant(grant) => Some((grant.due(), grant.permits())),
                    _ => None,
                };
                let held = Held {
                    thing: Arc::new(thing),
                    what: what.clone(),
                    uses: op.uses.clone(),
                    actor: actor.map_or(Actor::Fresh(id), Actor::Shared),
                    ask,
                    since: Instant::now(),
                    tainted,
                    forgotten: false,
                    runs: Vec::new(),
                    over: None,
                };
                let by = held.actor;
                state.took(id, held);
                let due = spent.and_then(|(due, permits)| {
                    Some((judge::rests::instant(&state, op.client, due)?, permits))
                });
                if let Some((due, permits)) = due {
                    judge::rates::granted(&mut state, &op, id, due, permits);
                }
                judge::ticks::begun(&mut state, &op, &what, is_held);
                judge::terms::elected(&mut state, &op, &what);
                judge::meetings::entered(&mut state, &op, id);
                if is_held && !tainted {
                    judge::rests::granted(&mut state, &op, by);
                }
                judge::holders::granted(&mut state, id, &op);
                judge::waiting::granted(&mut state, &op);
                Some(id)
            }
            Ok(None) => {
                state.tell(format!("{}: busy", op.label));
                None
            }
            Err(error) => {
                state.tell(format!("{}: {}", op.label, masked(&error)));
                None
            }
        }
    }

    /// Begins a call about a guard.
    pub(crate) fn about(
        &self,
        label: String,
        kind: OpKind,
        uses: &[Use],
        limit: Duration,
    ) -> Ticket {
        self.begin(Op {
            limit: Some(limit),
            ..Op::about(label, kind, uses)
        })
    }

    /// Takes a guard out of the books, to end it.
    pub(crate) fn let_go(&self, id: u64) -> Option<Held> {
        let mut state = self.lock();
        let held = state.held.remove(&id)?;
        state.ended(&held.uses);
        let now = Instant::now();
        for used in &held.uses {
            let place = state.place(used.spot);
            if held.thing.is_held() {
                place.released = now;
            }
        }
        for run in &held.runs {
            run.abort();
        }
        Some(held)
    }

    /// Releases a guard, and judges the answer.
    pub(crate) fn releasing(&self, id: u64) -> Option<Work> {
        let mut held = self.let_go(id)?;
        let thing = std::mem::replace(&mut held.thing, Arc::new(Thing::Passed));
        let thing = match Arc::try_unwrap(thing) {
            Ok(Thing::Inside(inside)) => return Some(self.leaving(held, inside, id)),
            Ok(thing) => thing,
            // Another call still uses it: that drops it.
            Err(_) => return None,
        };
        let was_held = thing.is_held() && !held.tainted;
        let label = format!("release of guard {id}, {:?}", held.what);
        let ticket = self.about(label, OpKind::Release, &held.uses, OPERATION);
        let shared = self.clone();
        if matches!(thing, Thing::Grant(_)) {
            // Whether it was too late for that, or not: it is not counted on.
            for used in &held.uses {
                let rate = self.lock();
                forget_grant(rate, used.spot, id);
            }
        }
        let release = thing.release();
        Some(Box::pin(async move {
            let outcome = release.await;
            shared.released(&ticket, &outcome, was_held);
        }))
    }

    fn released(&self, ticket: &Ticket, outcome: &Result<(), ReleaseError>, was_held: bool) {
        let mut state = self.lock();
        let Some(op) = state.ops.remove(&ticket.id()) else {
            return;
        };
        let said = outcome
            .as_ref()
            .map_or_else(|error| masked(error), |()| "released".into());
        state.tell(format!("{}: {said}", op.label));
        judge::truth::released(&mut state, &op, outcome, was_held);
        state.ended(&op.uses);
        for used in &op.uses {
            state.place(used.spot).released = Instant::now();
        }
    }

    /// Ends a call about a guard that could fail as a renewal does.
    pub(crate) fn renewed(&self, ticket: &Ticket, outcome: Result<(), &RenewError>, tainted: bool) {
        let mut state = self.lock();
        let Some(op) = state.ops.remove(&ticket.id()) else {
            return;
        };
        let said = outcome.map_or_else(|error| masked(error), |()| "done".into());
        state.tell(format!("{}: {said}", op.label));
        if let Err(error) = outcome {
            judge::truth::renewal_failed(&mut state, &op, error, tainted);
        }
        state.stir(&op.uses);
    }

    /// One more guard of the same hold.
    pub(crate) fn joined(&self, of: &Held, thing: Thing) -> u64 {
        let mut state = self.lock();
        let id = state.number();
        state.tell(format!("guard {id}, of the same hold"));
        let held = Held {
            thing: Arc::new(thing),
            what: of.what.clone(),
            uses: of.uses.clone(),
            actor: of.actor,
            ask: of.ask,
            since: of.since,
            tainted: of.tainted,
            forgotten: false,
            runs: Vec::new(),
            over: None,
        };
        state.took(id, held);
        id
    }
}

/// Permits that are given back.
fn forget_grant(mut state: std::sync::MutexGuard<'_, crate::state::State>, spot: Spot, id: u64) {
    let rate = state.books.rate(spot);
    rate.told.retain(|(_, _, guard)| *guard != id);
    rate.moved = Instant::now();
}

impl crate::state::State {
    pub(crate) fn took(&mut self, id: u64, held: Held) {
        let now = Instant::now();
        self.stir(&held.uses);
        for used in &held.uses {
            let place = self.place(used.spot);
            place.granted = now;
            place.grants += 1;
            place.asleep = None;
            place.blocked = None;
        }
        self.held.insert(id, held);
    }

    /// The side a guard has after a downgrade.
    pub(crate) fn reads(uses: &[Use]) -> Vec<Use> {
        let reads = |used: &Use| Use {
            side: Side::Together,
            ..*used
        };
        uses.iter().map(reads).collect()
    }
}

/// An error without the client's random parts: these are fixed in a run, but long.
pub(crate) fn masked(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    text.chars().take(160).collect()
}
