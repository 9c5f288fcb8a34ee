//! The calls of a program: recorded when they begin, and judged when they end.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use stanchion::{AcquireError, ReleaseError, RenewError};
use tokio::time::Instant;

use crate::generator::guards::{Acquired, Call, call};
use crate::generator::judge;
use crate::generator::program::{CallOptions, Target};
use crate::generator::resource::{Resource, Side, Use, uses};
use crate::generator::run::Work;
use crate::generator::span;
use crate::generator::state::{Actor, Held, Op, OpKind, Shared, State, Ticket};

/// The timeouts that the clients of a run are configured with.
pub(crate) const OPERATION: Duration = Duration::from_secs(5);
pub(crate) const TOLERANCE: Duration = Duration::from_secs(6);

/// An acquire that has begun, with its future.
pub(crate) struct PendingAcquire {
    pub(crate) call: Call,
    pub(crate) ticket: Ticket,
    target: Target,
    actor: Option<u8>,
}

impl PendingAcquire {
    /// The record of an adoption: it ends as an acquire of `target` does, but has no acquire future.
    pub(crate) fn adopting(ticket: Ticket, target: Target) -> Self {
        Self {
            call: Box::pin(std::future::pending()),
            ticket,
            target,
            actor: None,
        }
    }
}

impl Op {
    /// A call that begins now and is bounded by the operation timeout.
    pub(crate) fn about(label: String, kind: OpKind, uses: &[Use]) -> Self {
        Self {
            label,
            kind,
            client: uses.first().map_or(0, |used| used.client),
            uses: uses.to_vec(),
            opts: CallOptions::default(),
            started: Instant::now(),
            limit: Some(OPERATION),
            parked: false,
            was_parked: false,
            starving: None,
            hindered: None,
            closed_at_start: false,
        }
    }
}

impl Shared {
    /// Begins the call for `target`. Returns `None` if the client has ended.
    pub(crate) fn start_acquire(
        &self,
        client: u8,
        target: &Target,
        opts: CallOptions,
    ) -> Option<PendingAcquire> {
        let (uses, owner, nodes) = {
            let mut state = self.lock();
            let nodes = state.nodes();
            let uses = uses(target, client, &state.specs(), &nodes);
            let nodes: Option<Vec<_>> = nodes.iter().map(|node| state.client(*node)).collect();
            let maker = state.client(client)?;
            let owner = opts.owner.map(|number| {
                let owner = state.owners.entry(number);
                owner.or_insert_with(|| maker.owner()).clone()
            });
            (uses, owner, nodes?)
        };
        let clients = |number| self.lock().client(number);
        let call = call(&clients, client, &nodes, target, opts, owner.as_ref())?;
        // Waits at latches and barriers, and for a free lock, have no try form. A job never waits for its lock.
        let tries = match target {
            Target::Latch(_)
            | Target::WaitFree(_)
            | Target::Barrier(..)
            | Target::DoubleBarrier(..) => false,
            Target::Job(..) => true,
            _ => opts.tries,
        };
        let opts = CallOptions { tries, ..opts };
        let members = u32::try_from(uses.len()).unwrap_or(1).max(1);
        let patience = opts.timeout.map(span);
        let limit = if opts.tries {
            Some(OPERATION * members)
        } else {
            patience
        };
        let closed_at_start = judge::latch::is_shut(&self.lock(), target, &uses);
        judge::barriers::wait_begins(&mut self.lock(), target, &uses);
        if let Target::Leader(..) = target {
            self.lock()
                .campaigns
                .extend(uses.iter().map(|used| used.resource));
        }
        if let Target::Job(_, _, least) = target {
            for used in &uses {
                let mut state = self.lock();
                state.tracking.jobs.insert(used.resource.name);
                let record = state.record(used.resource);
                record.lease = record.lease.max(span(*least));
            }
        }
        let kind = if opts.tries {
            OpKind::Try
        } else {
            OpKind::Wait
        };
        let label = format!("client {client}: {target:?} {opts:?}");
        let ticket = self.begin(Op {
            closed_at_start,
            client,
            opts,
            limit,
            ..Op::about(label, kind, &uses)
        });
        Some(PendingAcquire {
            call,
            ticket,
            target: target.clone(),
            actor: opts.owner,
        })
    }

    /// Records and judges the end of an acquire. Returns the number of the guard, if there is one.
    pub(crate) fn acquired(
        &self,
        acquire: PendingAcquire,
        outcome: Result<Option<Acquired>, AcquireError>,
    ) -> Option<u64> {
        let PendingAcquire {
            call,
            ticket,
            target,
            actor,
        } = acquire;
        // The future is dropped before the state is locked, because its destructors may lock the state, too.
        drop(call);
        let mut state = self.lock();
        let op = state.ops.remove(&ticket.id())?;
        judge::truth::acquired(&mut state, &op, &outcome);
        judge::barriers::ended(&mut state, &op, &target, &outcome);
        state.ended(&op.uses);
        match outcome {
            Ok(Some(Acquired::Passed)) => {
                state.log(format!("{}: passed", op.label));
                judge::latch::passed(&mut state, &op);
                None
            }
            Ok(Some(Acquired::BarrierEnd(barrier_end))) => {
                judge::barriers::barrier_end(&mut state, &op, &target, &barrier_end);
                None
            }
            Ok(Some(Acquired::Ran(tick))) => {
                state.log(format!("{}: {tick} has run", op.label));
                judge::ticks::ran(&mut state, &op, &target, tick);
                None
            }
            Ok(Some(Acquired::Skipped)) => {
                state.log(format!("{}: skipped", op.label));
                judge::ticks::skipped(&mut state, &op);
                None
            }
            Ok(Some(acquired)) => {
                let id = state.number();
                state.log(format!("{}: guard {id}", op.label));
                let tainted = state.is_stale(&op);
                let is_held = acquired.is_held();
                let spent = match &acquired {
                    Acquired::Grant(grant) => Some((grant.due(), grant.permits())),
                    _ => None,
                };
                let by = actor.map_or(Actor::Fresh(id), Actor::Shared);
                let held = Held::new(Arc::new(acquired), &op, &target, by, tainted);
                state.insert_guard(id, held);
                let due = spent.and_then(|(due, permits)| {
                    Some((judge::detached::instant(&state, op.client, due)?, permits))
                });
                if let Some((due, permits)) = due {
                    judge::rates::granted(&mut state, &op, id, due, permits);
                }
                judge::ticks::begun(&mut state, &op, &target, is_held);
                judge::terms::elected(&mut state, &op, &target);
                judge::barriers::entered(&mut state, &op, id);
                if is_held && !tainted {
                    judge::detached::granted(&mut state, &op, by);
                }
                judge::holders::granted(&mut state, id, &op);
                judge::waiting::granted(&mut state, &op);
                Some(id)
            }
            Ok(None) => {
                state.log(format!("{}: busy", op.label));
                None
            }
            Err(error) => {
                state.log(format!("{}: {}", op.label, masked(&error)));
                None
            }
        }
    }

    /// Begins a call that uses a guard.
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

    /// Removes a guard from the state, so that the caller can end it.
    pub(crate) fn remove_guard(&self, id: u64) -> Option<Held> {
        let mut state = self.lock();
        let held = state.held.remove(&id)?;
        state.ended(&held.uses);
        let now = Instant::now();
        for used in &held.uses {
            let record = state.record(used.resource);
            if held.acquired.is_held() {
                record.released = now;
            }
        }
        for run in &held.runs {
            run.abort();
        }
        Some(held)
    }

    /// Releases a guard and judges the answer.
    pub(crate) fn releasing(&self, id: u64) -> Option<Work> {
        let mut held = self.remove_guard(id)?;
        let acquired = std::mem::replace(&mut held.acquired, Arc::new(Acquired::Passed));
        let acquired = match Arc::try_unwrap(acquired) {
            Ok(Acquired::Inside(inside)) => return Some(self.leaving(held, inside, id)),
            Ok(acquired) => acquired,
            // Another call still uses the guard, and drops it at its end.
            Err(_) => return None,
        };
        let was_held = acquired.is_held() && !held.tainted;
        let label = format!("release of guard {id}, {:?}", held.target);
        let ticket = self.about(label, OpKind::Release, &held.uses, OPERATION);
        let shared = self.clone();
        if matches!(acquired, Acquired::Grant(_)) {
            // A refund may come too late. The judge does not count the grant in either case.
            for used in &held.uses {
                let rate = self.lock();
                forget_grant(rate, used.resource, id);
            }
        }
        let release = acquired.release();
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
        let answer = outcome
            .as_ref()
            .map_or_else(|error| masked(error), |()| "released".into());
        state.log(format!("{}: {answer}", op.label));
        judge::truth::released(&mut state, &op, outcome, was_held);
        state.ended(&op.uses);
        for used in &op.uses {
            state.record(used.resource).released = Instant::now();
        }
    }

    /// Ends a call about a guard that can fail with a `RenewError`.
    pub(crate) fn renewed(&self, ticket: &Ticket, outcome: Result<(), &RenewError>, tainted: bool) {
        let mut state = self.lock();
        let Some(op) = state.ops.remove(&ticket.id()) else {
            return;
        };
        let answer = outcome.map_or_else(|error| masked(error), |()| "done".into());
        state.log(format!("{}: {answer}", op.label));
        if let Err(error) = outcome {
            judge::truth::renewal_failed(&mut state, &op, error, tainted);
        }
        state.note_change(&op.uses);
    }

    /// Records another guard of the same hold.
    pub(crate) fn joined(&self, of: &Held, acquired: Acquired) -> u64 {
        let mut state = self.lock();
        let id = state.number();
        state.log(format!("guard {id}, of the same hold"));
        let held = of.with(Arc::new(acquired));
        state.insert_guard(id, held);
        id
    }
}

/// Removes a grant whose permits are refunded.
fn forget_grant(mut state: MutexGuard<'_, State>, resource: Resource, id: u64) {
    let rate = state.tracking.rate(resource);
    rate.grants.retain(|(_, _, guard)| *guard != id);
    rate.moved = Instant::now();
}

impl State {
    pub(crate) fn insert_guard(&mut self, id: u64, held: Held) {
        let now = Instant::now();
        self.note_change(&held.uses);
        for used in &held.uses {
            let record = self.record(used.resource);
            record.granted = now;
            record.grants += 1;
            record.asleep = None;
            record.blocked = None;
        }
        self.held.insert(id, held);
    }

    /// The uses of the guard that a downgrade returns.
    pub(crate) fn reads(uses: &[Use]) -> Vec<Use> {
        let reads = |used: &Use| Use {
            side: Side::Shared,
            ..*used
        };
        uses.iter().map(reads).collect()
    }
}

/// The text of an error, cut after 160 characters.
pub(crate) fn masked(error: &dyn std::error::Error) -> String {
    let text = error.to_string();
    text.chars().take(160).collect()
}
