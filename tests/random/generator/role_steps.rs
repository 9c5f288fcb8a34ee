//! Steps of leaders, jobs and tickets: work, observers, values, hand-overs, detached holds and adoptions.
//!
//! Long: one case for each step.

use std::sync::Arc;
use std::time::Duration;

use stanchion::election::{Stop, Term};
use stanchion::jobs::{JobRun, Outcome};
use stanchion::{AdoptError, FairLock, Lock};
use tokio::time::Instant;

use crate::generator::calls::{OPERATION, PendingAcquire, masked};
use crate::generator::guards::{Acquired, lease, options};
use crate::generator::judge;
use crate::generator::program::{CallOptions, Polled, Target};
use crate::generator::resource::{Use, uses};
use crate::generator::run::{Runner, run_in_slot};
use crate::generator::state::{Actor, Held, Op, OpKind, Shared};
use crate::generator::tracking::{DetachedHold, Heir, Observer};
use crate::generator::{roles, span};

/// The record of work that runs. When the work ends, its guard is removed from the state.
struct WorkEntry(Shared, u64);

impl Drop for WorkEntry {
    fn drop(&mut self) {
        drop(self.0.remove_guard(self.1));
    }
}

/// Works for `length`, or until a stop is requested.
async fn work(
    shared: &Shared,
    acquired: Acquired,
    op: &Op,
    target: &Target,
    length: Duration,
    stop: Stopped,
) {
    let acquired = Arc::new(acquired);
    let id = {
        let mut state = shared.lock();
        let id = state.number();
        state.log(format!("{}: works as guard {id}", op.label));
        let tainted = state.is_stale(op);
        let held = Held::new(Arc::clone(&acquired), op, target, Actor::Fresh(id), tainted);
        judge::ticks::begun(&mut state, op, target, acquired.is_held());
        state.insert_guard(id, held);
        judge::holders::granted(&mut state, id, op);
        judge::terms::elected(&mut state, op, target);
        id
    };
    let _entry = WorkEntry(shared.clone(), id);
    let until = Instant::now() + length;
    while Instant::now() < until && !stop.0.as_ref().is_some_and(Stop::is_requested) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if !acquired.is_held() {
            let text = format!("P5: work of guard {id} ({target:?}) goes on after the hold");
            shared.lock().report("WorkGoesOn", text);
        }
    }
}

struct Stopped(Option<Stop>);

impl Runner {
    /// Runs a job, or leads whenever elected.
    pub(crate) async fn work(
        &mut self,
        slot: u8,
        client: u8,
        target: &Target,
        length: u16,
        polled: Polled,
    ) {
        self.empty(slot);
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let uses = self.uses_of(target, client);
        if let Target::Job(name, ..) = target {
            self.shared.lock().tracking.jobs.insert(name);
        }
        let label = format!("client {client}: work of {target:?}");
        let op = Op {
            client,
            limit: None,
            ..Op::about(label, OpKind::Work, &uses)
        };
        let ticket = self.shared.begin(op.clone());
        let (shared, target, length) = (self.shared.clone(), target.clone(), span(length));
        let call = ticket.id();
        let op = self.shared.lock().ops.get(&call).cloned().unwrap_or(op);
        let work = async move {
            let answer = match &target {
                Target::Leader(name, priority) => {
                    lead(&shared, &it, name, *priority, &target, &op, length).await
                }
                Target::Job(name, tick, least) => {
                    let Some(job) = roles::job(&it, name, *least, CallOptions::default()) else {
                        return;
                    };
                    let (inner, of, as_op) = (shared.clone(), target.clone(), op.clone());
                    let run = move |run: JobRun| async move {
                        work(
                            &inner,
                            Acquired::Run(run),
                            &as_op,
                            &of,
                            length,
                            Stopped(None),
                        )
                        .await;
                    };
                    let outcome = match tick.and_then(roles::tick) {
                        Some(tick) => job.run_tick(tick, run).await,
                        None => job.run(run).await,
                    };
                    let mut state = shared.lock();
                    match outcome {
                        Ok(Outcome::Already { tick, .. }) => {
                            judge::ticks::ran(&mut state, &op, &target, tick);
                            format!("{tick} has run")
                        }
                        Ok(other) => format!("{other:?}"),
                        Err(error) => {
                            judge::truth::acquired(&mut state, &op, &Err(error.clone()));
                            masked(&error)
                        }
                    }
                }
                _ => return,
            };
            drop(it);
            let mut state = shared.lock();
            state.log(format!("{}: {answer}", op.label));
            state.ops.remove(&ticket.id());
            state.ended(&op.uses);
        };
        run_in_slot(self, slot, call, Box::pin(work), polled).await;
    }

    /// Observes the leader in a task, until the end of the program.
    pub(crate) fn observe(&mut self, client: u8, name: &'static str) {
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let (Some(election), Some(used)) = (
            roles::election(&it, name),
            self.uses_of(&Target::Leader(name, 0), client)
                .first()
                .copied(),
        ) else {
            return;
        };
        drop(it);
        let mut leaders = election.observe();
        drop(election);
        let shared = self.shared.clone();
        let number = {
            let mut state = shared.lock();
            state.record(used.resource);
            state.tracking.observers.push(Observer {
                client,
                resource: used.resource,
                last: None,
                vacant: false,
                missed: None,
                ended: false,
            });
            state.tracking.observers.len() - 1
        };
        let task = self.spawn(async move {
            while let Some(observed) = leaders.next().await {
                judge::terms::observed(&mut shared.lock(), number, &observed);
            }
            if let Some(it) = shared.lock().tracking.observers.get_mut(number) {
                it.ended = true;
            }
        });
        self.observer_tasks.push((client, task));
    }

    pub(crate) fn renew_for(&self, id: u64, millis: u16) {
        if let Some(held) = self.guard_copy(id) {
            self.record_lease(&held.uses, millis);
            let renews = |it: Arc<Acquired>| async move { it.renew_for(millis).await };
            self.renewing(id, "longer renewal", renews);
        }
    }

    /// Records that holds of these resources may last for so long.
    fn record_lease(&self, uses: &[Use], millis: u16) {
        let mut state = self.shared.lock();
        for used in uses {
            let record = state.record(used.resource);
            record.lease = record.lease.max(span(millis));
        }
    }

    /// Moves a guard of the wanted kind out of the state.
    fn take_apart(&self, id: u64, wanted: fn(&Acquired) -> bool) -> Option<(Held, Acquired)> {
        let held = self.guard_copy(id).filter(|held| wanted(&held.acquired))?;
        drop(held);
        let mut held = self.shared.remove_guard(id)?;
        let acquired = std::mem::replace(&mut held.acquired, Arc::new(Acquired::Passed));
        let acquired = Arc::try_unwrap(acquired).ok()?;
        Some((held, acquired))
    }

    pub(crate) fn detach(&self, id: u64, number: u8, millis: Option<u16>) {
        let wanted =
            |acquired: &Acquired| matches!(acquired, Acquired::Lock(_) | Acquired::Fair(_));
        let Some((held, acquired)) = self.take_apart(id, wanted) else {
            return;
        };
        let label = format!("detaching of guard {id}, {:?}", held.target);
        let about = self
            .shared
            .about(label, OpKind::Guard, &held.uses, OPERATION);
        self.record_lease(&held.uses, millis.unwrap_or_default());
        let (shared, began) = (self.shared.clone(), Instant::now());
        self.spawn(async move {
            let outcome = match (acquired, millis.map(lease)) {
                (Acquired::Lock(guard), None) => guard.detach().await,
                (Acquired::Lock(guard), Some(lease)) => guard.detach_for(lease).await,
                (Acquired::Fair(guard), None) => guard.detach().await,
                (Acquired::Fair(guard), Some(lease)) => guard.detach_for(lease).await,
                _ => return,
            };
            let mut state = shared.lock();
            let op = state.ops.remove(&about.id());
            let Some(op) = op else { return };
            state.ended(&op.uses);
            let ticket = match outcome {
                Ok(ticket) => ticket,
                Err(error) => return state.log(format!("{}: {}", op.label, masked(&error))),
            };
            state.log(format!("{}: {ticket}", op.label));
            let kept = state.record(op.uses[0].resource).lease;
            let length = ticket.lease().length();
            let rest = span(held.opts.rest.unwrap_or_default());
            let end = Instant::now() + length.max(kept) + rest + Duration::from_secs(2);
            let record = state.record(op.uses[0].resource);
            record.dead_until = record.dead_until.max(end);
            // A fault or a forced release during the call may have ended the hold.
            let sure = state.fault_free(&op.uses) > op.started.elapsed() && !held.tainted;
            let record = state.record(op.uses[0].resource);
            let forced = record.tainted.is_some_and(|at| at >= began);
            state.tracking.detached_holds.push(DetachedHold {
                number,
                ticket,
                target: held.target,
                used: op.uses[0],
                actor: held.actor,
                until: began + length - length / 100 - Duration::from_millis(12),
                uncertain: forced || !sure,
                adopted: 0,
            });
        });
    }

    pub(crate) async fn adopt(
        &mut self,
        slot: u8,
        client: u8,
        ticket: u8,
        opts: CallOptions,
        polled: Polled,
    ) {
        self.empty(slot);
        let (detached_hold, good, adopts) = {
            let mut state = self.shared.lock();
            let detached_holds = &state.tracking.detached_holds;
            let numbered = detached_holds
                .iter()
                .rposition(|detached_hold| detached_hold.number == ticket);
            // The hold with this number, or the last one.
            let at = numbered.or_else(|| detached_holds.len().checked_sub(1));
            let (Some(it), Some(at)) = (state.client(client), at) else {
                return;
            };
            let detached_hold = &mut state.tracking.detached_holds[at];
            let good = !std::mem::replace(&mut detached_hold.uncertain, true);
            // An adoption has a fresh owner and never waits.
            let plain = CallOptions {
                owner: None,
                tries: true,
                fails: false,
                ..opts
            };
            let terms = options(plain, None).lease(lease(
                plain.lease.unwrap_or(crate::generator::guards::LEASE),
            ));
            let (ticket, target) = (detached_hold.ticket.clone(), detached_hold.target.clone());
            (at, good, (it, target, ticket, plain, terms))
        };
        let (it, target, ticket, opts, terms) = adopts;
        let uses = {
            let state = self.shared.lock();
            uses(&target, client, &state.specs(), &state.nodes())
        };
        let label = format!("client {client}: adopts {ticket}");
        let op = Op {
            client,
            opts,
            ..Op::about(label, OpKind::Try, &uses)
        };
        let about = self.shared.begin(op);
        let (shared, slots, call) = (self.shared.clone(), self.slots.clone(), about.id());
        let work = async move {
            let adopted = match &target {
                Target::Fair(name) => match FairLock::new(&it, name) {
                    Ok(lock) => lock.adopt_with(&ticket, terms).await.map(Acquired::Fair),
                    Err(_) => return,
                },
                Target::Lock(name) => match Lock::new(&it, name) {
                    Ok(lock) => lock.adopt_with(&ticket, terms).await.map(Acquired::Lock),
                    Err(_) => return,
                },
                _ => return,
            };
            drop(it);
            let outcome = match adopted {
                Ok(acquired) => {
                    judge::detached::adopted(&mut shared.lock(), detached_hold);
                    Ok(Some(acquired))
                }
                Err(AdoptError::Gone { .. }) => {
                    let mut state = shared.lock();
                    if let Some(op) = state.ops.get(&about.id()).cloned() {
                        judge::detached::reported_gone(&mut state, &op, detached_hold, good);
                    }
                    Ok(None)
                }
                Err(AdoptError::Failed(error)) => Err(error),
                Err(other) => {
                    shared.lock().report("Untrue", format!("P8: {other}"));
                    Ok(None)
                }
            };
            let acquire = PendingAcquire::adopting(about, target);
            let guard = shared.acquired(acquire, outcome);
            Self::fulfil(&shared, &slots, slot, call, guard);
        };
        run_in_slot(self, slot, call, Box::pin(work), polled).await;
    }

    pub(crate) fn proclaim(&self, id: u64) {
        let held = self.guard_copy(id);
        if !held.is_some_and(|held| matches!(&*held.acquired, Acquired::Term(_))) {
            return;
        }
        let value = {
            let mut state = self.shared.lock();
            state.tracking.values += 1;
            format!("v{}", state.tracking.values)
        };
        self.renewing(id, "proclamation", |it| async move {
            match &*it {
                Acquired::Term(term) => term.proclaim(value).await,
                _ => Ok(()),
            }
        });
    }

    /// Hands over to the last candidate. Without the hand-over, another candidate would be elected first.
    pub(crate) fn resign(&self, id: u64) {
        let Some((held, acquired)) =
            self.take_apart(id, |acquired| matches!(acquired, Acquired::Term(_)))
        else {
            return;
        };
        let Acquired::Term(term) = acquired else {
            return;
        };
        let used = held.uses[0];
        let it = self.shared.lock().client(used.client);
        let election = it.and_then(|it| roles::election(&it, used.resource.name));
        let label = format!("resignation of guard {id}");
        let about = self
            .shared
            .about(label, OpKind::Release, &held.uses, OPERATION * 2);
        let shared = self.shared.clone();
        self.spawn(async move {
            let there = match election {
                Some(election) => election.candidates().await.unwrap_or_default(),
                None => Vec::new(),
            };
            let began = Instant::now();
            let outcome = match there.last() {
                Some(heir) => {
                    shared.record_heir(used, &heir.id, began, term.is_held() && !held.tainted);
                    term.hand_over(&heir.id).await
                }
                None => term.step_down().await,
            };
            let mut state = shared.lock();
            let Some(op) = state.ops.remove(&about.id()) else {
                return;
            };
            state.log(format!("{}: {outcome:?}", op.label));
            state.ended(&op.uses);
            state.record(used.resource).released = Instant::now();
            // The reservation may have begun right after `began`, because the reply may belong to a retry.
            let until = began + Duration::from_millis(450);
            match (outcome, state.tracking.heirs.get_mut(&used.resource)) {
                (Ok(()), Some(heir)) if heir.since == began => heir.until = Some(until),
                (Err(_), Some(_)) => drop(state.tracking.heirs.remove(&used.resource)),
                _ => {}
            }
        });
    }
}

impl Shared {
    /// Records that a leader is about to hand over to this candidate.
    fn record_heir(&self, used: Use, heir: &str, since: Instant, sure: bool) {
        let mut state = self.lock();
        state.log(format!("a leader hands over to {heir}"));
        let mut processes = state.processes.iter();
        let client = processes.position(|process| heir.starts_with(&process.id));
        if let Some(client) = client.and_then(|it| u8::try_from(it).ok()).filter(|_| sure) {
            let heir = Heir {
                client,
                since,
                until: None,
            };
            state.tracking.heirs.insert(used.resource, heir);
        }
    }
}

/// Leads whenever elected, until the program settles.
async fn lead(
    shared: &Shared,
    client: &stanchion::Client,
    name: &str,
    priority: i8,
    target: &Target,
    op: &Op,
    length: Duration,
) -> String {
    let Some(election) = roles::election(client, name) else {
        return String::new();
    };
    let (inner, of, as_op) = (shared.clone(), target.clone(), op.clone());
    let leading = move |term: Term, stop: Stop| {
        let (shared, target, op) = (inner.clone(), of.clone(), as_op.clone());
        async move {
            work(
                &shared,
                Acquired::TermView(term),
                &op,
                &target,
                length,
                Stopped(Some(stop)),
            )
            .await;
            Ok(())
        }
    };
    let watched = shared.clone();
    let until = async move {
        while !watched.lock().stopping {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    let options = roles::campaigning(priority, options(op.opts, None));
    let led = election.lead("v0", leading).options(options).until(until);
    match led.grace(Duration::from_secs(2)).await {
        Ok(end) => format!("{end:?}"),
        Err(error) => masked(&error),
    }
}
