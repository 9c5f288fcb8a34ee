//! Steps of what outlives a call: work of leaders and jobs, tickets, heirs, values, those who look on.

use std::sync::Arc;
use std::time::Duration;

use stanchion::{AdoptError, FairLock, JobRun, Lock, Outcome, Stop, Term};
use tokio::time::Instant;

use crate::books::{Heir, Lookout, Slip};
use crate::calls::{Asking, OPERATION, masked};
use crate::judge;
use crate::program::{Ask, Polled, What};
use crate::run::{Runner, attend};
use crate::spot::{Use, uses};
use crate::state::{Actor, Held, Op, OpKind, Shared};
use crate::things::{Thing, lease, options};
use crate::{roles, span};

/// The books' entry of work that runs; dropped with it.
struct Reign(Shared, u64);

impl Drop for Reign {
    fn drop(&mut self) {
        drop(self.0.let_go(self.1));
    }
}

/// Works for `length`, or until it is asked to stop.
async fn work(
    shared: &Shared,
    thing: Thing,
    op: &Op,
    what: &What,
    length: Duration,
    stop: Stopped,
) {
    let thing = Arc::new(thing);
    let id = {
        let mut state = shared.lock();
        let id = state.number();
        state.tell(format!("{}: works as guard {id}", op.label));
        let tainted = state.is_stale(op);
        let held = Held {
            thing: Arc::clone(&thing),
            what: what.clone(),
            uses: op.uses.clone(),
            actor: Actor::Fresh(id),
            ask: op.ask,
            since: Instant::now(),
            tainted,
            forgotten: false,
            runs: Vec::new(),
            over: None,
        };
        judge::ticks::begun(&mut state, op, what, thing.is_held());
        state.took(id, held);
        judge::holders::granted(&mut state, id, op);
        judge::terms::elected(&mut state, op, what);
        id
    };
    let _reign = Reign(shared.clone(), id);
    let until = Instant::now() + length;
    while Instant::now() < until && !stop.0.as_ref().is_some_and(Stop::is_requested) {
        tokio::time::sleep(Duration::from_millis(10)).await;
        if !thing.is_held() {
            let text = format!("P5: work of guard {id} ({what:?}) goes on after the hold");
            shared.lock().report("WorkGoesOn", text);
        }
    }
}

struct Stopped(Option<Stop>);

impl Runner {
    /// A job or a leader works.
    pub(crate) async fn work(
        &mut self,
        hand: u8,
        client: u8,
        what: &What,
        length: u16,
        polled: Polled,
    ) {
        self.empty(hand);
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let uses = self.uses_of(what, client);
        if let What::Job(name, ..) = what {
            self.shared.lock().books.jobs.insert(name);
        }
        let label = format!("client {client}: work of {what:?}");
        let op = Op {
            client,
            limit: None,
            ..Op::about(label, OpKind::Work, &uses)
        };
        let ticket = self.shared.begin(op.clone());
        let (shared, what, length) = (self.shared.clone(), what.clone(), span(length));
        let call = ticket.id();
        let op = self.shared.lock().ops.get(&call).cloned().unwrap_or(op);
        let work = async move {
            let said = match &what {
                What::Leader(name, priority) => {
                    lead(&shared, &it, name, *priority, &what, &op, length).await
                }
                What::Job(name, tick, least) => {
                    let Some(job) = roles::job(&it, name, *least, Ask::default()) else {
                        return;
                    };
                    let (inner, of, as_op) = (shared.clone(), what.clone(), op.clone());
                    let run = move |run: JobRun| async move {
                        work(&inner, Thing::Run(run), &as_op, &of, length, Stopped(None)).await;
                    };
                    let outcome = match tick.and_then(roles::tick) {
                        Some(tick) => job.run_tick(tick, run).await,
                        None => job.run(run).await,
                    };
                    let mut state = shared.lock();
                    match outcome {
                        Ok(Outcome::Already { tick, .. }) => {
                            judge::ticks::ran(&mut state, &op, &what, tick);
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
            state.tell(format!("{}: {said}", op.label));
            state.ops.remove(&ticket.id());
            state.ended(&op.uses);
        };
        attend(self, hand, call, Box::pin(work), polled).await;
    }

    /// Somebody looks who leads, until the end.
    pub(crate) fn observe(&mut self, client: u8, name: &'static str) {
        let Some(it) = self.shared.lock().client(client) else {
            return;
        };
        let (Some(election), Some(used)) = (
            roles::election(&it, name),
            self.uses_of(&What::Leader(name, 0), client)
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
            state.place(used.spot);
            state.books.lookouts.push(Lookout {
                client,
                spot: used.spot,
                last: None,
                vacant: false,
                ended: false,
            });
            state.books.lookouts.len() - 1
        };
        let task = self.spawn(async move {
            while let Some(observed) = leaders.next().await {
                judge::terms::observed(&mut shared.lock(), number, &observed);
            }
            if let Some(it) = shared.lock().books.lookouts.get_mut(number) {
                it.ended = true;
            }
        });
        self.lookers.push((client, task));
    }

    pub(crate) fn renew_for(&self, id: u64, millis: u16) {
        let Some(held) = self.of_guard(id) else {
            return;
        };
        let label = format!("renewal of guard {id} for {millis} ms, {:?}", held.what);
        let about = self
            .shared
            .about(label, OpKind::Guard, &held.uses, OPERATION);
        self.lasts(&held.uses, millis);
        let shared = self.shared.clone();
        self.spawn(async move {
            let outcome = held.thing.renew_for(millis).await;
            let tainted = held.tainted;
            drop(held);
            shared.renewed(&about, outcome.as_ref().copied(), tainted);
        });
    }

    /// Notes that a hold of these may last so long.
    fn lasts(&self, uses: &[Use], millis: u16) {
        let mut state = self.shared.lock();
        for used in uses {
            let place = state.place(used.spot);
            place.lease = place.lease.max(span(millis));
        }
    }

    /// Takes the guard apart; only what can be detached, or be stepped down from.
    fn taken(&self, id: u64, wanted: fn(&Thing) -> bool) -> Option<(Held, Thing)> {
        let held = self.of_guard(id).filter(|held| wanted(&held.thing))?;
        drop(held);
        let mut held = self.shared.let_go(id)?;
        let thing = std::mem::replace(&mut held.thing, Arc::new(Thing::Passed));
        let thing = Arc::try_unwrap(thing).ok()?;
        Some((held, thing))
    }

    pub(crate) fn detach(&self, id: u64, number: u8, millis: Option<u16>) {
        let wanted = |thing: &Thing| matches!(thing, Thing::Lock(_) | Thing::Fair(_));
        let Some((held, thing)) = self.taken(id, wanted) else {
            return;
        };
        let label = format!("detaching of guard {id}, {:?}", held.what);
        let about = self
            .shared
            .about(label, OpKind::Guard, &held.uses, OPERATION);
        self.lasts(&held.uses, millis.unwrap_or_default());
        let (shared, began) = (self.shared.clone(), Instant::now());
        self.spawn(async move {
            let outcome = match (thing, millis.map(lease)) {
                (Thing::Lock(guard), None) => guard.detach().await,
                (Thing::Lock(guard), Some(lease)) => guard.detach_for(lease).await,
                (Thing::Fair(guard), None) => guard.detach().await,
                (Thing::Fair(guard), Some(lease)) => guard.detach_for(lease).await,
                _ => return,
            };
            let mut state = shared.lock();
            let op = state.ops.remove(&about.id());
            let Some(op) = op else { return };
            state.ended(&op.uses);
            let ticket = match outcome {
                Ok(ticket) => ticket,
                Err(error) => return state.tell(format!("{}: {}", op.label, masked(&error))),
            };
            state.tell(format!("{}: {ticket}", op.label));
            let kept = state.place(op.uses[0].spot).lease;
            let length = ticket.lease().length();
            let rest = span(held.ask.rest.unwrap_or_default());
            let end = Instant::now() + length.max(kept) + rest + Duration::from_secs(2);
            let place = state.place(op.uses[0].spot);
            place.dead_until = place.dead_until.max(end);
            // What happened to the server or the hold meanwhile may have ended it.
            let sure = state.calm(&op.uses) > op.started.elapsed() && !held.tainted;
            let place = state.place(op.uses[0].spot);
            let forced = place.tainted.is_some_and(|at| at >= began);
            state.books.slips.push(Slip {
                number,
                ticket,
                what: held.what,
                used: op.uses[0],
                actor: held.actor,
                until: began + length - length / 100 - Duration::from_millis(12),
                loose: forced || !sure,
                adopted: 0,
            });
        });
    }

    pub(crate) async fn adopt(
        &mut self,
        hand: u8,
        client: u8,
        ticket: u8,
        ask: Ask,
        polled: Polled,
    ) {
        self.empty(hand);
        let (slip, good, adopts) = {
            let mut state = self.shared.lock();
            let slips = &state.books.slips;
            let numbered = slips.iter().rposition(|slip| slip.number == ticket);
            // One of that number, or the last.
            let at = numbered.or_else(|| slips.len().checked_sub(1));
            let (Some(it), Some(at)) = (state.client(client), at) else {
                return;
            };
            let slip = &mut state.books.slips[at];
            let good = !std::mem::replace(&mut slip.loose, true);
            // A call as its own owner, by the terms of this one.
            let plain = Ask {
                owner: None,
                tries: true,
                fails: false,
                ..ask
            };
            let terms =
                options(plain, None).lease(lease(plain.lease.unwrap_or(crate::things::LEASE)));
            let (ticket, what) = (slip.ticket.clone(), slip.what.clone());
            (at, good, (it, what, ticket, plain, terms))
        };
        let (it, what, ticket, ask, terms) = adopts;
        let uses = {
            let state = self.shared.lock();
            uses(&what, client, &state.seats(), &state.nodes())
        };
        let label = format!("client {client}: adopts {ticket}");
        let op = Op {
            client,
            ask,
            ..Op::about(label, OpKind::Try, &uses)
        };
        let about = self.shared.begin(op);
        let (shared, hands, call) = (self.shared.clone(), self.hands.clone(), about.id());
        let work = async move {
            let adopted = match &what {
                What::Fair(name) => match FairLock::new(&it, name) {
                    Ok(lock) => lock.adopt_with(&ticket, terms).await.map(Thing::Fair),
                    Err(_) => return,
                },
                What::Lock(name) => match Lock::new(&it, name) {
                    Ok(lock) => lock.adopt_with(&ticket, terms).await.map(Thing::Lock),
                    Err(_) => return,
                },
                _ => return,
            };
            drop(it);
            let outcome = match adopted {
                Ok(thing) => {
                    judge::rests::adopted(&mut shared.lock(), slip);
                    Ok(Some(thing))
                }
                Err(AdoptError::Gone { .. }) => {
                    let mut state = shared.lock();
                    if let Some(op) = state.ops.get(&about.id()).cloned() {
                        judge::rests::gone(&mut state, &op, slip, good);
                    }
                    Ok(None)
                }
                Err(AdoptError::Failed(error)) => Err(error),
                Err(other) => {
                    shared.lock().report("Untrue", format!("P8: {other}"));
                    Ok(None)
                }
            };
            let asking = Asking::adopting(about, what, ask);
            if let Some(guard) = shared.acquired(asking, outcome)
                && !hands.fulfil(hand, call, guard)
            {
                drop(shared.let_go(guard));
            }
        };
        attend(self, hand, call, Box::pin(work), polled).await;
    }

    pub(crate) fn proclaim(&self, id: u64) {
        let Some(held) = self.of_guard(id) else {
            return;
        };
        if !matches!(&*held.thing, Thing::Term(_)) {
            return;
        }
        let label = format!("proclamation of guard {id}");
        let about = self
            .shared
            .about(label, OpKind::Guard, &held.uses, OPERATION);
        let shared = self.shared.clone();
        let value = {
            let mut state = shared.lock();
            state.books.values += 1;
            format!("v{}", state.books.values)
        };
        self.spawn(async move {
            let Thing::Term(term) = &*held.thing else {
                return;
            };
            let outcome = term.proclaim(value).await;
            let tainted = held.tainted;
            drop(held);
            shared.renewed(&about, outcome.as_ref().copied(), tainted);
        });
    }

    /// Steps down for the last candidate that is there: without the office kept for it, another would come first.
    pub(crate) fn resign(&self, id: u64) {
        let Some((held, thing)) = self.taken(id, |thing| matches!(thing, Thing::Term(_))) else {
            return;
        };
        let Thing::Term(term) = thing else { return };
        let used = held.uses[0];
        let it = self.shared.lock().client(used.client);
        let election = it.and_then(|it| roles::election(&it, used.spot.name));
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
                    shared.inherits(used, &heir.id, began, term.is_held() && !held.tainted);
                    term.hand_over(&heir.id).await
                }
                None => term.step_down().await,
            };
            let mut state = shared.lock();
            let Some(op) = state.ops.remove(&about.id()) else {
                return;
            };
            state.tell(format!("{}: {outcome:?}", op.label));
            state.ended(&op.uses);
            state.place(used.spot).released = Instant::now();
            // Asked again in a storm, it may have begun at any time.
            let until = began + Duration::from_millis(450);
            match (outcome, state.books.heirs.get_mut(&used.spot)) {
                (Ok(()), Some(heir)) if heir.since == began => heir.until = Some(until),
                (Err(_), Some(_)) => drop(state.books.heirs.remove(&used.spot)),
                _ => {}
            }
        });
    }
}

impl Shared {
    /// A leader is about to step down for that candidate.
    fn inherits(&self, used: Use, heir: &str, since: Instant, sure: bool) {
        let mut state = self.lock();
        state.tell(format!("somebody steps down for {heir}"));
        let mut processes = state.processes.iter();
        let client = processes.position(|process| heir.starts_with(&process.id));
        if let Some(client) = client.and_then(|it| u8::try_from(it).ok()).filter(|_| sure) {
            let heir = Heir {
                client,
                since,
                until: None,
            };
            state.books.heirs.insert(used.spot, heir);
        }
    }
}

/// Leads whenever elected, until the program settles.
async fn lead(
    shared: &Shared,
    client: &stanchion::Client,
    name: &str,
    priority: i8,
    what: &What,
    op: &Op,
    length: Duration,
) -> String {
    let Some(election) = roles::election(client, name) else {
        return String::new();
    };
    let (inner, of, as_op) = (shared.clone(), what.clone(), op.clone());
    let leading = move |term: Term, stop: Stop| {
        let (shared, what, op) = (inner.clone(), of.clone(), as_op.clone());
        async move {
            work(
                &shared,
                Thing::Reign(term),
                &op,
                &what,
                length,
                Stopped(Some(stop)),
            )
            .await;
            Ok::<(), std::convert::Infallible>(())
        }
    };
    let watched = shared.clone();
    let until = async move {
        while !watched.lock().stopping {
            tokio::time::sleep(Duration::from_millis(250)).await;
        }
    };
    let options = roles::campaigning(priority, options(op.ask, None));
    let led = election.lead("v0", leading).options(options).until(until);
    match led.grace(Duration::from_secs(2)).await {
        Ok(end) => format!("{end:?}"),
        Err(error) => masked(&error),
    }
}
