//! Runs the steps of a program.
//!
//! Long: one table, or one case for each step.

use std::sync::Arc;
use std::time::Duration;

use stanchion::RenewError;
use stanchion::client::Clock as _;
use tokio::time::Instant;

use crate::generator::calls::{OPERATION, masked};
use crate::generator::fault::{Effect, Fault, Reason};
use crate::generator::guards::Acquired;
use crate::generator::judge;
use crate::generator::program::{CallOptions, Polled, Step, Target, Verb};
use crate::generator::resource::{Use, uses};
use crate::generator::run::{Content, Runner, Slots, Work, poll_parked, run_in_slot};
use crate::generator::span;
use crate::generator::state::{Held, Op, OpKind, Shared, State, Ticket};

/// The future of an acquire, which puts its guard into the slot.
fn acquire_future(
    shared: &Shared,
    slots: &Slots,
    slot: u8,
    client: u8,
    target: &Target,
    opts: CallOptions,
) -> Option<(u64, Work)> {
    let mut acquire = shared.start_acquire(client, target, opts)?;
    let id = acquire.ticket.id();
    let (shared, slots) = (shared.clone(), slots.clone());
    let work = async move {
        let outcome = (&mut acquire.call).await;
        let guard = shared.acquired(acquire, outcome);
        Runner::fulfil(&shared, &slots, slot, id, guard);
    };
    Some((id, Box::pin(work)))
}

impl Shared {
    /// Begins or ends the black hole of one client.
    fn freeze(&self, client: u8, on: bool) {
        let mut state = self.lock();
        let now = Instant::now();
        let Some(process) = state.processes.get_mut(usize::from(client)) else {
            return;
        };
        let (label, server) = (process.wire.label().to_owned(), process.spec.server);
        process.trouble = now;
        process.frozen = on.then(|| process.frozen.unwrap_or(now));
        let faults = state.engines[usize::from(server)].faults();
        if on {
            faults.freeze(Some(&label));
        } else {
            faults.thaw(Some(&label));
        }
    }
}

impl Runner {
    pub(crate) async fn step(&mut self, step: &Step) {
        match step {
            Step::Pass(millis) => self.pass(span(*millis)).await,
            Step::Take {
                slot,
                client,
                target,
                opts,
                polled,
            } => self.take(*slot, *client, target, *opts, *polled).await,
            Step::Use(slot, verb) => self.apply(*slot, *verb).await,
            Step::Manage(client, manage) => self.manage(*client, manage),
            Step::Worker {
                client,
                target,
                opts,
                rounds,
                hold,
                pause,
            } => self.worker(*client, target, *opts, *rounds, [*hold, *pause]),
            Step::Connect(spec) => drop(self.connect(*spec).await),
            Step::Shutdown(client, grace) => self.shutdown(*client, span(*grace)),
            Step::DropClient(client) => {
                let process = |state: &mut State| {
                    let process = state.processes.get_mut(usize::from(*client))?;
                    process.client.take()
                };
                let client = process(&mut self.shared.lock());
                drop(client);
            }
            Step::Kill(client) => self.kill(*client).await,
            Step::KillGroup {
                client,
                processes,
                target,
                live,
            } => self.kill_group(*client, *processes, target, *live).await,
            Step::Fault(server, fault) => {
                let mut state = self.shared.lock();
                let Some(engine) = state.engines.get(usize::from(*server)).cloned() else {
                    return;
                };
                fault.inject(&engine);
                if *fault == Fault::Cleared {
                    engine.faults().delay(None, self.latency());
                }
                state.apply_effect(*server, fault.effect());
                if let Fault::Stepped(millis) = fault {
                    // Leases end later by the same time.
                    let by = Duration::from_millis(millis.unsigned_abs().into());
                    state.ends_later(*server, by);
                }
            }
            Step::Freeze(client) => self.shared.freeze(*client, true),
            Step::Thaw(client) => self.shared.freeze(*client, false),
            Step::Partition(client, millis) => {
                let (shared, client, length) = (self.shared.clone(), *client, span(*millis));
                shared.freeze(client, true);
                self.spawn(async move {
                    tokio::time::sleep(length).await;
                    shared.freeze(client, false);
                });
            }
            Step::Suspend(millis) => self.suspend(*millis),
            Step::Stall(millis) => self.stall(span(*millis)).await,
            Step::Java(server, java) => {
                crate::generator::java::apply(&mut self.shared.lock(), *server, *java);
            }
            Step::Adopt {
                slot,
                client,
                ticket,
                opts,
                polled,
            } => self.adopt(*slot, *client, *ticket, *opts, *polled).await,
            Step::Work {
                slot,
                client,
                target,
                work,
                polled,
            } => self.work(*slot, *client, target, *work, *polled).await,
            Step::Observe(client, name) => self.observe(*client, name),
        }
    }

    async fn take(
        &mut self,
        slot: u8,
        client: u8,
        target: &Target,
        opts: CallOptions,
        polled: Polled,
    ) {
        self.empty(slot);
        if let Some((call, work)) =
            acquire_future(&self.shared, &self.slots, slot, client, target, opts)
        {
            run_in_slot(self, slot, call, work, polled).await;
        }
    }

    /// The slot for a verb: if the guard of `slot` lacks the verb, the first slot whose guard has it.
    fn slot_for(&self, slot: u8, verb: Verb) -> u8 {
        let wanted: fn(&Acquired) -> bool = match verb {
            Verb::Detach(..) => {
                |acquired| matches!(acquired, Acquired::Lock(_) | Acquired::Fair(_))
            }
            Verb::Proclaim | Verb::Resign => |acquired| matches!(acquired, Acquired::Term(_)),
            _ => return slot,
        };
        let fits = |slot: &u8| {
            let guard = self.slots.guard(*slot);
            let state = self.shared.lock();
            let held = guard.and_then(|guard| state.held.get(&guard));
            held.is_some_and(|held| wanted(&held.acquired))
        };
        let mut all = std::iter::once(slot).chain(self.slots.numbers());
        all.find(fits).unwrap_or(slot)
    }

    async fn apply(&mut self, slot: u8, verb: Verb) {
        let slot = self.slot_for(slot, verb);
        match (verb, self.slots.guard(slot)) {
            (Verb::Discard, _) => self.empty(slot),
            (Verb::PollAgain | Verb::Resume, None) => match self.slots.take(slot) {
                Some(Content::Parked(call, work)) if verb == Verb::PollAgain => {
                    poll_parked(self, slot, call, work).await;
                }
                Some(Content::Parked(call, work)) => {
                    if let Some(op) = self.shared.lock().ops.get_mut(&call) {
                        op.parked = false;
                    }
                    run_in_slot(self, slot, call, work, Polled::Always).await;
                }
                Some(other) => self.slots.put(slot, other),
                None => {}
            },
            (_, None) | (Verb::PollAgain | Verb::Resume, _) => {}
            (Verb::Release | Verb::ReleaseOnce, Some(id)) => {
                self.end_runs(id).await;
                self.slots.take(slot);
                let Some(release) = self.shared.releasing(id) else {
                    return;
                };
                if verb == Verb::Release {
                    self.spawn(release);
                } else {
                    let call = self.shared.lock().next;
                    let call = self.newest(OpKind::Release).unwrap_or(call);
                    run_in_slot(self, slot, call, Box::pin(release), Polled::Once).await;
                }
            }
            (Verb::HandOver(millis), Some(id)) => {
                self.slots.take(slot);
                let shared = self.shared.clone();
                let task = self.spawn(async move {
                    tokio::time::sleep(span(millis)).await;
                    drop(shared.remove_guard(id));
                });
                self.tasks.push((u8::MAX, task));
            }
            (Verb::Forget, Some(id)) => {
                self.slots.take(slot);
                self.forget(id);
            }
            (Verb::Downgrade(into), Some(id)) => {
                self.end_runs(id).await;
                self.slots.take(slot);
                self.downgrade(id, into);
            }
            (Verb::Renew, Some(id)) => {
                self.renewing(id, "renewal", |it| async move { it.renew().await });
            }
            (Verb::Reenter(into), Some(id)) => self.reenter(id, into),
            (Verb::Watch, Some(id)) => self.watch(id),
            (Verb::Run(millis), Some(id)) => self.run_work(id, span(millis)),
            (Verb::RenewFor(millis), Some(id)) => self.renew_for(id, millis),
            (Verb::Proclaim, Some(id)) => self.proclaim(id),
            (Verb::Detach(number, millis), Some(id)) => {
                self.end_runs(id).await;
                self.detach(id, number, millis);
            }
            (Verb::Resign, Some(id)) => {
                self.end_runs(id).await;
                self.resign(id);
            }
        }
    }

    fn newest(&self, kind: OpKind) -> Option<u64> {
        let state = self.shared.lock();
        let newest = state.ops.iter().rev().find(|(_, op)| op.kind == kind);
        newest.map(|(id, _)| *id)
    }

    /// Aborts the work under a guard, which must end before the guard can be moved.
    async fn end_runs(&self, id: u64) {
        let runs = match self.shared.lock().held.get_mut(&id) {
            Some(held) => std::mem::take(&mut held.runs),
            None => return,
        };
        if runs.is_empty() {
            return;
        }
        for run in runs {
            run.abort();
        }
        for _ in 0..3 {
            tokio::task::yield_now().await;
        }
    }

    fn forget(&self, id: u64) {
        let mut state = self.shared.lock();
        let Some(held) = state.held.get_mut(&id) else {
            return;
        };
        held.forgotten = true;
        for used in held.uses.clone() {
            state.record(used.resource).forgotten = true;
        }
    }

    /// A copy of the record of a guard, for a call about the guard.
    pub(crate) fn guard_copy(&self, id: u64) -> Option<Held> {
        let state = self.shared.lock();
        let held = state.held.get(&id)?;
        Some(held.with(Arc::clone(&held.acquired)))
    }

    /// Begins a call about a guard.
    fn about_guard(&self, id: u64, what: &str, held: &Held) -> Ticket {
        let label = format!("{what} of guard {id}, {:?}", held.target);
        let shared = &self.shared;
        shared.about(label, OpKind::Guard, &held.uses, OPERATION)
    }

    /// Runs a call about a guard that may fail with a `RenewError`.
    pub(crate) fn renewing<F>(&self, id: u64, what: &str, call: impl FnOnce(Arc<Acquired>) -> F)
    where
        F: Future<Output = Result<(), RenewError>> + Send + 'static,
    {
        let Some(held) = self.guard_copy(id) else {
            return;
        };
        let ticket = self.about_guard(id, what, &held);
        let (shared, tainted, call) = (self.shared.clone(), held.tainted, call(held.acquired));
        self.spawn(async move {
            let outcome = call.await;
            shared.renewed(&ticket, outcome.as_ref().copied(), tainted);
        });
    }

    /// Puts a guard into the slot of its call, or drops it.
    pub(crate) fn fulfil(shared: &Shared, slots: &Slots, slot: u8, call: u64, guard: Option<u64>) {
        if let Some(guard) = guard
            && !slots.fulfil(slot, call, guard)
        {
            drop(shared.remove_guard(guard));
        }
    }

    fn reenter(&self, id: u64, into: u8) {
        let held = self.guard_copy(id);
        let Some(held) = held.filter(|held| held.acquired.is_reentrant()) else {
            return;
        };
        if self.slots.guard(into) == Some(id) {
            return;
        }
        self.empty(into);
        let ticket = self.about_guard(id, "re-entry", &held);
        let (shared, slots, call) = (self.shared.clone(), self.slots.clone(), ticket.id());
        let task = self.spawn(async move {
            let Some(outcome) = held.acquired.reenter().await else {
                return;
            };
            let tainted = held.tainted;
            let (result, acquired) = match outcome {
                Ok(acquired) => (Ok(()), Some(acquired)),
                Err(error) => (Err(error), None),
            };
            let guard = acquired.map(|acquired| shared.joined(&held, acquired));
            drop(held);
            shared.renewed(&ticket, result.as_ref().copied(), tainted);
            Self::fulfil(&shared, &slots, into, call, guard);
        });
        self.slots.put(into, Content::Pending(call, task));
    }

    fn downgrade(&self, id: u64, into: u8) {
        let Some(mut held) = self.shared.remove_guard(id) else {
            return;
        };
        let mut copy = held.with(Arc::new(Acquired::Passed));
        copy.uses = State::reads(&held.uses);
        let Ok(Acquired::Write(guard)) = Arc::try_unwrap(std::mem::replace(
            &mut held.acquired,
            Arc::new(Acquired::Passed),
        )) else {
            return;
        };
        self.empty(into);
        let ticket = self.about_guard(id, "downgrade", &held);
        let (shared, slots, call) = (self.shared.clone(), self.slots.clone(), ticket.id());
        let task = self.spawn(async move {
            let outcome = guard.downgrade().await;
            let answer = match &outcome {
                Ok(_) => "done".into(),
                Err(error) => masked(error),
            };
            let guard = outcome
                .ok()
                .map(|guard| shared.joined(&copy, Acquired::Read(guard)));
            let op = {
                let mut state = shared.lock();
                state.log(format!("downgrade of guard {id}: {answer}"));
                state.ops.remove(&ticket.id())
            };
            drop(op);
            Self::fulfil(&shared, &slots, into, call, guard);
        });
        self.slots.put(into, Content::Pending(call, task));
    }

    fn watch(&mut self, id: u64) {
        let Some(held) = self.guard_copy(id) else {
            return;
        };
        let Some(lost) = held.acquired.lost() else {
            return;
        };
        let shared = self.shared.clone();
        drop(held);
        let task = self.spawn(async move {
            let reason = lost.await;
            let mut state = shared.lock();
            state.log(format!("guard {id}: lost() says: {reason}"));
            let held = state.held.get(&id);
            if held.is_some_and(|held| held.acquired.is_held()) {
                let text = format!("P5: guard {id} is held, and its lost() says: {reason}");
                state.report("LostEarly", text);
            }
        });
        self.tasks.push((u8::MAX, task));
    }

    fn run_work(&self, id: u64, length: Duration) {
        let Some(held) = self.guard_copy(id) else {
            return;
        };
        if !held.acquired.runs() {
            return;
        }
        let shared = self.shared.clone();
        let task = self.spawn(async move {
            let until = Instant::now() + length;
            let work = async {
                while Instant::now() < until {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    if !held.acquired.is_held() {
                        let text = format!(
                            "P5: work under guard {id} ({:?}) goes on after the hold",
                            held.target
                        );
                        shared.lock().report("WorkGoesOn", text);
                    }
                }
            };
            held.acquired.run(work).await;
        });
        if let Some(held) = self.shared.lock().held.get_mut(&id) {
            held.runs.push(task);
        }
    }

    fn worker(
        &mut self,
        client: u8,
        target: &Target,
        opts: CallOptions,
        rounds: u16,
        times: [u8; 2],
    ) {
        let (shared, target) = (self.shared.clone(), target.clone());
        let [hold, pause] = times.map(|millis| Duration::from_millis(millis.into()));
        let task = self.spawn(async move {
            for _ in 0..rounds {
                let stopping = {
                    let state = shared.lock();
                    state.stopping || state.finding.is_some()
                };
                let Some(mut acquire) = shared
                    .start_acquire(client, &target, opts)
                    .filter(|_| !stopping)
                else {
                    return;
                };
                let outcome = (&mut acquire.call).await;
                let failed = outcome.is_err();
                if let Some(guard) = shared.acquired(acquire, outcome) {
                    tokio::time::sleep(hold).await;
                    if matches!(target, Target::Rate(..) | Target::Bucket(..)) {
                        // Workers use up permits of limiters. Guards of a `Take` may refund theirs.
                        drop(shared.remove_guard(guard));
                    } else if let Some(release) = shared.releasing(guard) {
                        release.await;
                    }
                }
                let pause = if failed {
                    pause + Duration::from_millis(100)
                } else {
                    pause + Duration::from_micros(500)
                };
                tokio::time::sleep(pause).await;
            }
        });
        self.tasks.push((client, task));
    }

    fn shutdown(&self, client: u8, grace: Duration) {
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let spec = {
            let mut state = self.shared.lock();
            let process = &mut state.processes[usize::from(client)];
            process.closing = true;
            process.spec
        };
        let ticket = {
            let label = format!("shutdown of client {client}");
            self.shared.begin(Op {
                client,
                limit: Some(grace + Duration::from_millis(20)),
                ..Op::about(label, OpKind::Shutdown, &[])
            })
        };
        let shared = self.shared.clone();
        self.spawn(async move {
            let report = it.shutdown(grace).await;
            drop(it);
            let mut state = shared.lock();
            state.ops.remove(&ticket.id());
            state.log(format!(
                "client {client}: shut down, {} unfinished, {} abandoned",
                report.unfinished,
                report.abandoned.len()
            ));
            judge::shutdown::ended(&mut state, client, spec, &report);
        });
    }

    pub(crate) async fn kill(&mut self, client: u8) {
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let through = |uses: &[Use]| uses.iter().any(|used| used.client == client);
        let guards: Vec<u64> = {
            let mut state = self.shared.lock();
            state.deaths = true;
            let process = &mut state.processes[usize::from(client)];
            process.wire.die();
            process.killed = true;
            process.client = None;
            state.note_death(client);
            let mine = state.held.iter().filter(|(_, held)| through(&held.uses));
            mine.map(|(id, _)| *id).collect()
        };
        let of_tasks = self.tasks.iter().chain(&self.observer_tasks);
        for (_, task) in of_tasks.filter(|(task_client, _)| *task_client == client) {
            task.abort();
        }
        let calls: Vec<u64> = {
            let state = self.shared.lock();
            let mine = state.ops.iter().filter(|(_, op)| through(&op.uses));
            mine.map(|(id, _)| *id).collect()
        };
        for slot in self.slots.numbers() {
            match self.slots.take(slot) {
                Some(Content::Pending(call, task)) if calls.contains(&call) => task.abort(),
                Some(Content::Parked(call, work)) if calls.contains(&call) => drop(work),
                Some(other) => self.slots.put(slot, other),
                None => {}
            }
        }
        for guard in guards {
            drop(self.shared.remove_guard(guard));
        }
        // The process is dead, so the shutdown has no effect on servers. The call ends tasks that would run indefinitely.
        it.shutdown(Duration::ZERO).await;
    }

    async fn kill_group(&mut self, like: u8, processes: u8, target: &Target, live: u16) {
        let Some(spec) = self.shared.lock().specs().get(usize::from(like)).copied() else {
            return;
        };
        let mut group = Vec::new();
        for _ in 0..processes {
            let Some(client) = self.connect(spec).await else {
                continue;
            };
            group.push(client);
            self.worker(client, target, CallOptions::default(), 1, [255, 0]);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.pass(span(live)).await;
        for client in group {
            self.kill(client).await;
        }
    }

    /// Suspends all processes and servers: the clocks jump, the timers do not.
    fn suspend(&self, millis: u16) {
        let mut state = self.shared.lock();
        let now = Instant::now();
        for engine in &state.engines {
            engine.faults().step_clock(millis.into());
        }
        state.time_jumped = true;
        for server in 0..state.engines.len() {
            state
                .tracking
                .note_time_jump(u8::try_from(server).unwrap_or(u8::MAX));
        }
        for process in &mut state.processes {
            process.clock.jump(millis.into());
            process.trouble = now;
        }
        let text = state
            .processes
            .first()
            .map(|process| format!("client 0's clock shows {:?}", process.clock.now()));
        state.log(text.unwrap_or_default());
    }

    async fn stall(&self, length: Duration) {
        {
            let mut state = self.shared.lock();
            state.time_jumped = true;
            for op in state.ops.values_mut() {
                op.limit = op.limit.map(|limit| limit + length);
            }
        }
        tokio::time::advance(length).await;
        let mut state = self.shared.lock();
        let now = Instant::now();
        state.stalls.push((now, length));
        for process in &mut state.processes {
            process.trouble = now;
        }
    }

    /// Ends all faults, drops all guards, and judges that nothing is left.
    pub(crate) async fn settle(&mut self) {
        crate::generator::settle::settle(self).await;
    }

    /// The uses of `target` through a client, for a step without a guard.
    pub(crate) fn uses_of(&self, target: &Target, client: u8) -> Vec<Use> {
        let state = self.shared.lock();
        uses(target, client, &state.specs(), &state.nodes())
    }

    /// Ends all faults, and all black holes of clients.
    pub(crate) fn clear_faults(&self) {
        let mut state = self.shared.lock();
        for server in 0..state.engines.len() {
            let engine = state.engines[server].clone();
            let was_fault_free = state.fault_states[server].reasons.is_empty();
            engine.faults().clear();
            engine.faults().delay(None, self.latency());
            if let (false, Ok(server)) = (was_fault_free, u8::try_from(server)) {
                state.apply_effect(server, Effect::Clears);
            }
            state.fault_states[server].reasons.remove(&Reason::Counted);
        }
        let now = Instant::now();
        for process in &mut state.processes {
            if process.frozen.take().is_some() {
                process.trouble = now;
            }
        }
    }
}
