//! The execution of each step.
//!
//! Long: one table, or one case for each step.

use std::sync::Arc;
use std::time::Duration;

use stanchion::Clock as _;
use tokio::time::Instant;

use crate::calls::{OPERATION, masked};
use crate::judge;
use crate::program::{Ask, Polled, Step, Verb, What};
use crate::run::{Content, Hands, Runner, Work, attend, poll_left};
use crate::span;
use crate::spot::uses;
use crate::state::{Held, OpKind, Shared};
use crate::things::Thing;
use crate::weather::Reason;

/// The future of an acquire: it puts its guard into the hand that it is for.
fn taking(
    shared: &Shared,
    hands: &Hands,
    hand: u8,
    client: u8,
    what: &What,
    ask: Ask,
) -> Option<(u64, Work)> {
    let mut asking = shared.ask(client, what, ask)?;
    let id = asking.ticket.id();
    let (shared, hands) = (shared.clone(), hands.clone());
    let work = async move {
        let outcome = (&mut asking.call).await;
        if let Some(guard) = shared.acquired(asking, outcome)
            && !hands.fulfil(hand, id, guard)
        {
            drop(shared.let_go(guard));
        }
    };
    Some((id, Box::pin(work)))
}

impl Runner {
    pub(crate) async fn step(&mut self, step: &Step) {
        match step {
            Step::Pass(millis) => self.pass(span(*millis)).await,
            Step::Take {
                hand,
                client,
                what,
                ask,
                polled,
            } => self.take(*hand, *client, what, *ask, *polled).await,
            Step::Use(hand, verb) => self.apply(*hand, *verb).await,
            Step::Manage(client, manage) => self.manage(*client, manage),
            Step::Worker {
                client,
                what,
                ask,
                rounds,
                hold,
                pause,
            } => self.worker(*client, what, *ask, *rounds, [*hold, *pause]),
            Step::Connect(seat) => drop(self.connect(*seat).await),
            Step::Shutdown(client, grace) => self.shutdown(*client, span(*grace)),
            Step::LetClient(client) => {
                let process = |state: &mut crate::state::State| {
                    let process = state.processes.get_mut(usize::from(*client))?;
                    process.client.take()
                };
                let client = process(&mut self.shared.lock());
                drop(client);
            }
            Step::Kill(client) => self.kill(*client).await,
            Step::Doomed {
                client,
                processes,
                what,
                live,
            } => self.doomed(*client, *processes, what, *live).await,
            Step::Weather(server, weather) => {
                let mut state = self.shared.lock();
                let Some(engine) = state.engines.get(usize::from(*server)).cloned() else {
                    return;
                };
                weather.strike(&engine);
                if *weather == crate::weather::Weather::Calm {
                    engine.faults().delay(None, self.latency());
                }
                state.struck(*server, weather.effect());
                if let crate::weather::Weather::Stepped(millis) = weather {
                    // Leases end later by as much.
                    let by = Duration::from_millis(millis.unsigned_abs().into());
                    state.ends_later(*server, by);
                }
            }
            Step::Freeze(client) => self.freeze(*client, true),
            Step::Thaw(client) => self.freeze(*client, false),
            Step::Suspend(millis) => self.suspend(*millis),
            Step::Stall(millis) => self.stall(span(*millis)).await,
            Step::Java(server, java) => {
                crate::java::happens(&mut self.shared.lock(), *server, *java);
            }
            Step::Adopt {
                hand,
                client,
                ticket,
                ask,
                polled,
            } => self.adopt(*hand, *client, *ticket, *ask, *polled).await,
            Step::Work {
                hand,
                client,
                what,
                work,
                polled,
            } => self.work(*hand, *client, what, *work, *polled).await,
            Step::Observe(client, name) => self.observe(*client, name),
        }
    }

    async fn take(&mut self, hand: u8, client: u8, what: &What, ask: Ask, polled: Polled) {
        self.empty(hand);
        if let Some((call, work)) = taking(&self.shared, &self.hands, hand, client, what, ask) {
            attend(self, hand, call, work, polled).await;
        }
    }

    /// The hand that a verb is for: if what it has does not know this verb, the first whose content does.
    fn suited(&self, hand: u8, verb: Verb) -> u8 {
        let wanted: fn(&Thing) -> bool = match verb {
            Verb::Detach(..) => |thing| matches!(thing, Thing::Lock(_) | Thing::Fair(_)),
            Verb::Proclaim | Verb::Resign => |thing| matches!(thing, Thing::Term(_)),
            _ => return hand,
        };
        let fits = |hand: &u8| {
            let guard = self.hands.guard(*hand);
            let state = self.shared.lock();
            let held = guard.and_then(|guard| state.held.get(&guard));
            held.is_some_and(|held| wanted(&held.thing))
        };
        let mut all = std::iter::once(hand).chain(self.hands.numbers());
        all.find(fits).unwrap_or(hand)
    }

    async fn apply(&mut self, hand: u8, verb: Verb) {
        let hand = self.suited(hand, verb);
        match (verb, self.hands.guard(hand)) {
            (Verb::Let, _) => self.empty(hand),
            (Verb::PollAgain | Verb::Resume, None) => match self.hands.take(hand) {
                Some(Content::Left(call, work)) if verb == Verb::PollAgain => {
                    poll_left(self, hand, call, work).await;
                }
                Some(Content::Left(call, work)) => {
                    if let Some(op) = self.shared.lock().ops.get_mut(&call) {
                        op.parked = false;
                    }
                    attend(self, hand, call, work, Polled::Always).await;
                }
                Some(other) => self.hands.put(hand, other),
                None => {}
            },
            (_, None) | (Verb::PollAgain | Verb::Resume, _) => {}
            (Verb::Release | Verb::ReleaseOnce, Some(id)) => {
                self.end_runs(id).await;
                self.hands.take(hand);
                let Some(release) = self.shared.releasing(id) else {
                    return;
                };
                if verb == Verb::Release {
                    self.spawn(release);
                } else {
                    let call = self.shared.lock().next;
                    let call = self.newest(OpKind::Release).unwrap_or(call);
                    attend(self, hand, call, Box::pin(release), Polled::Once).await;
                }
            }
            (Verb::HandOver(millis), Some(id)) => {
                self.hands.take(hand);
                let shared = self.shared.clone();
                let task = self.spawn(async move {
                    tokio::time::sleep(span(millis)).await;
                    drop(shared.let_go(id));
                });
                self.tasks.push((u8::MAX, task));
            }
            (Verb::Forget, Some(id)) => {
                self.hands.take(hand);
                self.forget(id);
            }
            (Verb::Downgrade(into), Some(id)) => {
                self.end_runs(id).await;
                self.hands.take(hand);
                self.downgrade(id, into);
            }
            (Verb::Renew, Some(id)) => self.renew(id),
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

    /// Work under a guard uses it, and must have gone before the guard can be given away.
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
            state.place(used.spot).forgotten = true;
        }
    }

    /// The needs of a call about a guard.
    pub(crate) fn of_guard(&self, id: u64) -> Option<Held> {
        let state = self.shared.lock();
        let held = state.held.get(&id)?;
        Some(Held {
            thing: Arc::clone(&held.thing),
            what: held.what.clone(),
            uses: held.uses.clone(),
            actor: held.actor,
            ask: held.ask,
            since: held.since,
            tainted: held.tainted,
            forgotten: false,
            runs: Vec::new(),
            over: held.over,
        })
    }

    fn renew(&self, id: u64) {
        let Some(held) = self.of_guard(id) else {
            return;
        };
        let label = format!("renewal of guard {id}, {:?}", held.what);
        let ticket = self
            .shared
            .about(label, OpKind::Guard, &held.uses, OPERATION);
        let shared = self.shared.clone();
        self.spawn(async move {
            let outcome = held.thing.renew().await;
            let tainted = held.tainted;
            drop(held);
            shared.renewed(&ticket, outcome.as_ref().copied(), tainted);
        });
    }

    fn reenter(&self, id: u64, into: u8) {
        let Some(held) = self.of_guard(id).filter(|held| held.thing.is_reentrant()) else {
            return;
        };
        if self.hands.guard(into) == Some(id) {
            return;
        }
        self.empty(into);
        let label = format!("re-entry of guard {id}, {:?}", held.what);
        let ticket = self
            .shared
            .about(label, OpKind::Guard, &held.uses, OPERATION);
        let (shared, hands, call) = (self.shared.clone(), self.hands.clone(), ticket.id());
        let task = self.spawn(async move {
            let Some(outcome) = held.thing.reenter().await else {
                return;
            };
            let tainted = held.tainted;
            let (result, thing) = match outcome {
                Ok(thing) => (Ok(()), Some(thing)),
                Err(error) => (Err(error), None),
            };
            let guard = thing.map(|thing| shared.joined(&held, thing));
            drop(held);
            shared.renewed(&ticket, result.as_ref().copied(), tainted);
            if let Some(guard) = guard
                && !hands.fulfil(into, call, guard)
            {
                drop(shared.let_go(guard));
            }
        });
        self.hands.put(into, Content::Pending(call, task));
    }

    fn downgrade(&self, id: u64, into: u8) {
        let Some(mut held) = self.shared.let_go(id) else {
            return;
        };
        let copy = Held {
            thing: Arc::new(Thing::Passed),
            what: held.what.clone(),
            uses: crate::state::State::reads(&held.uses),
            actor: held.actor,
            ask: held.ask,
            since: held.since,
            tainted: held.tainted,
            forgotten: false,
            runs: Vec::new(),
            over: None,
        };
        let Ok(Thing::Write(guard)) =
            Arc::try_unwrap(std::mem::replace(&mut held.thing, Arc::new(Thing::Passed)))
        else {
            return;
        };
        self.empty(into);
        let label = format!("downgrade of guard {id}, {:?}", held.what);
        let ticket = self
            .shared
            .about(label, OpKind::Guard, &held.uses, OPERATION);
        let (shared, hands, call) = (self.shared.clone(), self.hands.clone(), ticket.id());
        let task = self.spawn(async move {
            let outcome = guard.downgrade().await;
            let said = match &outcome {
                Ok(_) => "done".into(),
                Err(error) => masked(error),
            };
            let guard = outcome
                .ok()
                .map(|guard| shared.joined(&copy, Thing::Read(guard)));
            let op = {
                let mut state = shared.lock();
                state.tell(format!("downgrade of guard {id}: {said}"));
                state.ops.remove(&ticket.id())
            };
            drop(op);
            if let Some(guard) = guard
                && !hands.fulfil(into, call, guard)
            {
                drop(shared.let_go(guard));
            }
        });
        self.hands.put(into, Content::Pending(call, task));
    }

    fn watch(&mut self, id: u64) {
        let Some(held) = self.of_guard(id) else {
            return;
        };
        let Some(lost) = held.thing.lost() else {
            return;
        };
        let shared = self.shared.clone();
        drop(held);
        let task = self.spawn(async move {
            let reason = lost.await;
            let mut state = shared.lock();
            state.tell(format!("guard {id}: lost() says: {reason}"));
            let held = state.held.get(&id);
            if held.is_some_and(|held| held.thing.is_held()) {
                let text = format!("P5: guard {id} is held, and its lost() says: {reason}");
                state.report("LostEarly", text);
            }
        });
        self.tasks.push((u8::MAX, task));
    }

    fn run_work(&self, id: u64, length: Duration) {
        let Some(held) = self.of_guard(id) else {
            return;
        };
        if !held.thing.runs() {
            return;
        }
        let shared = self.shared.clone();
        let task = self.spawn(async move {
            let until = Instant::now() + length;
            let work = async {
                while Instant::now() < until {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                    if !held.thing.is_held() {
                        let text = format!(
                            "P5: work under guard {id} ({:?}) goes on after the hold",
                            held.what
                        );
                        shared.lock().report("WorkGoesOn", text);
                    }
                }
            };
            held.thing.run(work).await;
        });
        if let Some(held) = self.shared.lock().held.get_mut(&id) {
            held.runs.push(task);
        }
    }

    fn worker(&mut self, client: u8, what: &What, ask: Ask, rounds: u16, times: [u8; 2]) {
        let (shared, what) = (self.shared.clone(), what.clone());
        let [hold, pause] = times.map(|millis| Duration::from_millis(millis.into()));
        let task = self.spawn(async move {
            for _ in 0..rounds {
                let stopping = {
                    let state = shared.lock();
                    state.stopping || state.finding.is_some()
                };
                let Some(mut asking) = shared.ask(client, &what, ask).filter(|_| !stopping) else {
                    return;
                };
                let outcome = (&mut asking.call).await;
                let failed = outcome.is_err();
                if let Some(guard) = shared.acquired(asking, outcome) {
                    tokio::time::sleep(hold).await;
                    if matches!(what, What::Rate(..) | What::Bucket(..)) {
                        // Permits are used up; those of a `Take` are given back now and then.
                        drop(shared.let_go(guard));
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
        let seat = {
            let mut state = self.shared.lock();
            let process = &mut state.processes[usize::from(client)];
            process.closing = true;
            process.seat
        };
        let ticket = {
            let label = format!("shutdown of client {client}");
            let mut op = crate::state::Op {
                client,
                ..crate::state::Op::about(label, OpKind::Shutdown, &[])
            };
            op.limit = Some(grace + Duration::from_millis(20));
            self.shared.begin(op)
        };
        let shared = self.shared.clone();
        self.spawn(async move {
            let report = it.shutdown(grace).await;
            drop(it);
            let mut state = shared.lock();
            state.ops.remove(&ticket.id());
            state.tell(format!(
                "client {client}: shut down, {} unfinished, {} abandoned",
                report.unfinished,
                report.abandoned.len()
            ));
            judge::shutdown::ended(&mut state, client, seat, &report);
        });
    }

    pub(crate) async fn kill(&mut self, client: u8) {
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let through = |uses: &[crate::spot::Use]| uses.iter().any(|used| used.client == client);
        let guards: Vec<u64> = {
            let mut state = self.shared.lock();
            state.deaths = true;
            let process = &mut state.processes[usize::from(client)];
            process.wire.die();
            process.killed = true;
            process.client = None;
            state.dies(client);
            let mine = state.held.iter().filter(|(_, held)| through(&held.uses));
            mine.map(|(id, _)| *id).collect()
        };
        let of_tasks = self.tasks.iter().chain(&self.lookers);
        for (_, task) in of_tasks.filter(|(whose, _)| *whose == client) {
            task.abort();
        }
        let calls: Vec<u64> = {
            let state = self.shared.lock();
            let mine = state.ops.iter().filter(|(_, op)| through(&op.uses));
            mine.map(|(id, _)| *id).collect()
        };
        for hand in self.hands.numbers() {
            match self.hands.take(hand) {
                Some(Content::Pending(call, task)) if calls.contains(&call) => task.abort(),
                Some(Content::Left(call, work)) if calls.contains(&call) => drop(work),
                Some(other) => self.hands.put(hand, other),
                None => {}
            }
        }
        for guard in guards {
            drop(self.shared.let_go(guard));
        }
        // Nothing of it reaches anybody; it only ends what would go on for ever here.
        it.shutdown(Duration::ZERO).await;
    }

    async fn doomed(&mut self, like: u8, processes: u8, what: &What, live: u16) {
        let Some(seat) = self.shared.lock().seats().get(usize::from(like)).copied() else {
            return;
        };
        let mut crowd = Vec::new();
        for _ in 0..processes {
            let Some(client) = self.connect(seat).await else {
                continue;
            };
            crowd.push(client);
            self.worker(client, what, Ask::default(), 1, [255, 0]);
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        self.pass(span(live)).await;
        for client in crowd {
            self.kill(client).await;
        }
    }

    fn freeze(&self, client: u8, on: bool) {
        let mut state = self.shared.lock();
        let now = Instant::now();
        let Some(process) = state.processes.get_mut(usize::from(client)) else {
            return;
        };
        let (label, server) = (process.wire.label().to_owned(), process.seat.server);
        process.trouble = now;
        process.frozen = on.then(|| process.frozen.unwrap_or(now));
        let faults = state.engines[usize::from(server)].faults();
        if on {
            faults.freeze(Some(&label));
        } else {
            faults.thaw(Some(&label));
        }
    }

    /// Everything is suspended and wakes up: the clocks have gone on, the timers have not.
    fn suspend(&self, millis: u16) {
        let mut state = self.shared.lock();
        let now = Instant::now();
        for engine in &state.engines {
            engine.faults().step_clock(millis.into());
        }
        state.leapt = true;
        for server in 0..state.engines.len() {
            state.books.leapt(u8::try_from(server).unwrap_or(u8::MAX));
        }
        for process in &mut state.processes {
            process.clock.jump(millis.into());
            process.trouble = now;
        }
        let text = state
            .processes
            .first()
            .map(|process| format!("client 0's clock shows {:?}", process.clock.now()));
        state.tell(text.unwrap_or_default());
    }

    async fn stall(&self, length: Duration) {
        {
            let mut state = self.shared.lock();
            state.leapt = true;
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

    /// Everything is calm again, everybody lets go, and nothing may be left.
    pub(crate) async fn settle(&mut self) {
        crate::settle::settle(self).await;
    }

    /// The uses of `what` by a hand's client, for a step that has no guard.
    pub(crate) fn uses_of(&self, what: &What, client: u8) -> Vec<crate::spot::Use> {
        let state = self.shared.lock();
        uses(what, client, &state.seats(), &state.nodes())
    }

    /// Ends every black hole.
    pub(crate) fn calm(&self) {
        let mut state = self.shared.lock();
        for server in 0..state.engines.len() {
            let engine = state.engines[server].clone();
            let was_calm = state.skies[server].reasons.is_empty();
            engine.faults().clear();
            engine.faults().delay(None, self.latency());
            if let (false, Ok(server)) = (was_calm, u8::try_from(server)) {
                state.struck(server, crate::weather::Effect::Calms);
            }
            state.skies[server].reasons.remove(&Reason::Counted);
        }
        let now = Instant::now();
        for process in &mut state.processes {
            if process.frozen.take().is_some() {
                process.trouble = now;
            }
        }
    }
}
