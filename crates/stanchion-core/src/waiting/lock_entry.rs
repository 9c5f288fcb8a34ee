//! The local queue of one subject: the state machine [`Queue`](super::queue::Queue) behind a mutex, its timer and its messages. A channel
//! does not identify it: several names may share one.
//!
//! All waiters of one subject in one process share one [`LockEntry`]: one subscription, one poll timer. This file locks the queue, passes
//! an event to it, and carries out the effects ([`LockEntry::event`]). The queue decides.
//!
//! The waiters that send requests depend on the [`Sharing`](crate::description::Sharing) of the synchronizer:
//!
//! * `Exclusive`: only the first; the next moves up when it leaves.
//! * `Together`, `Permits`: new waiters concurrently, until one is refused. Then the first; a grant to it lets the next send a request.
//! * `Event`: the first; its reply counts for all that waited when its request was sent. With facts, none while messages arrive.
//! * `Queued`: all of them, at once. The server keeps the queue and grants by message.
//!
//! The server has one entry for this local queue in its queue, that of the first waiter (see `queue/entry.rs`).
//!
//! # Invariants
//! 1. While an exclusive waiter has a request in flight or is being handed the hold, no other waiter of its queue sends a request, and it
//!    was the first when that began. Otherwise the waiters of one process would compete on the server.
//! 2. A wake-up is never lost (P4). During a request it is remembered in `due`; when a waiter with a request in flight leaves
//!    without a hold, the next one sends a request.
//! 3. While there are waiters, a request or a hand-off is in flight, a local holder exists, which calls [`LockEntry::freed`] at its end, or a
//!    poll is in the timetable. A wake-up by message alone is not enough: messages can be lost.
//! 4. No hold is dropped and no waker is called, cloned or dropped while the queue's mutex is held: it may own anything.
//! 5. A hold that its waiter never takes moves on. Until the waiter takes it, it is not renewed beyond its first lease, and one without
//!    a lease ends after that time, too; then that waiter starts again.

use std::sync::{Arc, Weak};
use std::task::Waker;

use super::piggyback::FirstRequest;
use super::queue::{self, Ask, Begin, Context, Effect, Effects, Refused};
use super::sending;
use super::shared::{Host, State};
use super::shell::{LocalQueue, Shell};
use super::sync::{Mutex, MutexGuard};
use crate::actor::ActorId;
use crate::agenda::{Agenda, Item, Polling};
use crate::description::{Heard, Subject, Synchronizer, has_one_entry};
use crate::hint::{Hint, Refusal};
use crate::hold::debt::Debt;
use crate::hold::handle::Hold;
use crate::hold::holds::Holds;
use crate::hold::state::Grant;
use crate::line::Reason;
use crate::name::Name;
use crate::receiver::{Part, Receiver};
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Listen, Moment, Persistent, Slot};

/// The other data under the mutex of a queue.
#[derive(Debug, Default)]
pub(super) struct More {
    /// The poll in the timetable: that of the queue at the last event.
    slot: Option<Slot>,
    /// A state of the name that a wait cannot end, in the last refusal.
    pub(super) remark: Option<&'static str>,
    /// The first request of a waiter, which a release may make. Here for one turn of the tasks.
    pub(super) piggyback: Option<FirstRequest>,
    /// The requests that the tasks of their waiters send, by place. They go on in the background as soon as another waiter depends on them.
    pub(super) flights: Vec<(u64, Persistent<()>)>,
}

/// The queue of one subject.
#[derive(Debug)]
pub(crate) struct LockEntry {
    /// Itself, for the timetable and for holds that begin here. Weak: the table, the tickets and the holds keep the entry alive.
    pub(super) this: Weak<Self>,
    /// Fixed, as the channel is.
    pub(super) subject: Subject,
    pub(super) channel: Vec<u8>,
    /// The channel of all processes that wait for the name, if `channel` is that of this client (L15).
    all: Option<Vec<u8>>,
    /// Locked for one event, never across an await. See the lock order in [`super`].
    state: Mutex<State<Self>>,
    /// Weak, because the core owns the table of entries. Every ticket and visit holds it strongly, so an upgrade succeeds while
    /// there are waiters.
    pub(super) core: Weak<Core>,
    timetable: Arc<Agenda>,
}

impl Host for LockEntry {
    type Parts = Shell;
    type Key = Subject;
    type More = More;

    fn key(&self) -> &Subject {
        &self.subject
    }

    fn mutex(&self) -> &Mutex<State<Self>> {
        &self.state
    }

    fn this(&self) -> Option<Arc<Self>> {
        self.this.upgrade()
    }

    type Later = Vec<(u64, Persistent<()>)>;

    fn ended(&self, state: &mut State<Self>, effects: &Effects<Shell>) -> Self::Later {
        for effect in effects {
            if let Effect::Left(waiter) = effect {
                self.unsubscribe(&*waiter.want, &waiter.owner, state.queue.is_empty());
            }
        }
        self.set_timer(state);
        let (queue, flights) = (&state.queue, &mut state.more.flights);
        let all = queue.is_waited_for();
        let goes_on = |(place, _): &mut (u64, _)| all || queue.waiter(*place).is_none();
        // The drop of the rest of a request moves it to the background.
        flights.extract_if(.., goes_on).collect()
    }

    fn send(&self, ask: Ask<Shell>) {
        if let (Some(core), Some(entry)) = (self.core.upgrade(), self.this()) {
            drop(sending::begin(&core, entry, ask));
        }
    }

    fn wake(waker: Waker) {
        waker.wake();
    }
}

impl Polling for LockEntry {
    fn poll_now(&self) {
        if let Some(core) = self.core.upgrade() {
            self.event(&core, LocalQueue::timer);
        }
    }
}

impl Listen<Receiver> for LockEntry {
    fn keep(&self) {
        self.state().uses.subscribed = true;
    }

    fn unkept(&self, receiver: &Receiver) {
        // A channel of one waiter, or of Redisson's, may end before the queue's own.
        if receiver.part != Part::Queue {
            return;
        }
        let mut state = self.state();
        state.uses.subscribed = false;
        if let Some(core) = self.core.upgrade() {
            self.carry_out(&core, state);
        }
    }

    fn woken(&self, receiver: &Receiver, payload: &[u8]) -> bool {
        self.woken(&receiver.part, payload)
    }

    fn listening_changed(&self, receiver: &Receiver, confirmed: bool) {
        match &receiver.part {
            Part::Queue => self.admit_first(Reason::Resubscribed),
            Part::Line if confirmed => self.admit_first(Reason::Resubscribed),
            Part::Waiter(owner) if confirmed => {
                if let Some(core) = self.core.upgrade() {
                    self.event(&core, |queue, cx| queue.nudge_owner(cx, owner.as_str()));
                }
            }
            // The queue of a relay, or of a single waiter, listens to the client's own channel, too.
            Part::Line | Part::Waiter(_) => {}
        }
    }

    fn missed(&self) {
        self.admit_first(Reason::Resubscribed);
    }
}

impl LockEntry {
    pub(super) fn new(subject: &Subject, channel: &[u8], core: &Arc<Core>) -> Arc<Self> {
        let base = channel.strip_suffix(core.id.to_string().as_bytes());
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            subject: subject.clone(),
            channel: channel.to_vec(),
            all: base.map(|base| [base, b"all:stanchion"].concat()),
            state: Mutex::default(),
            core: Arc::downgrade(core),
            timetable: Arc::clone(&core.timetable),
        })
    }

    /// The receiver of messages to this part of the queue.
    pub(super) fn receiver(&self, part: Part) -> Receiver {
        Receiver {
            subject: self.subject.clone(),
            part,
        }
    }

    /// Subscribes the queue, unless it is subscribed. Returns whether the server has confirmed. Not to be called under a queue's mutex.
    pub(crate) fn want(self: &Arc<Self>, core: &Holds) -> bool {
        let queue = self.receiver(Part::Queue);
        core.subscriptions
            .want(self, &queue, &self.channel, self.all.as_deref())
    }

    /// Handles a message to `part`. Returns whether a waiter was there to receive it.
    pub(super) fn woken(&self, part: &Part, payload: &[u8]) -> bool {
        let state = self.state();
        // A subscription lingers after its last waiter. The listener remembers the message for the next one (`unheard`).
        // A later waiter does not need an earlier fact.
        let waits = !state.queue.is_empty() || state.queue.is_for_facts();
        self.heard(state, part, payload);
        waits
    }

    /// Passes an event to the queue, and carries out its effects.
    pub(super) fn event<R>(
        &self,
        core: &Arc<Core>,
        event: impl FnOnce(&mut LocalQueue, &dyn Context<Shell>) -> R,
    ) -> R {
        core.entries
            .table
            .event(self, |state| event(&mut state.queue, core))
    }

    /// Takes the request that the task of the waiter at `place` is about to poll, unless it goes on in the background.
    pub(super) fn take_flight(&self, place: u64) -> Option<Persistent<()>> {
        let mut state = self.state();
        let at = state.more.flights.iter().position(|(it, _)| *it == place)?;
        let (_, flight) = state.more.flights.swap_remove(at);
        let waker = state.queue.runs(place);
        // Invariant 4.
        drop(state);
        drop(waker);
        Some(flight)
    }

    /// Carries out the effects of the events so far, and unlocks the queue.
    pub(super) fn carry_out(&self, core: &Core, state: MutexGuard<'_, State<Self>>) {
        core.entries.table.carry_out(self, state);
    }

    /// Moves the poll in the timetable to that of the queue.
    fn set_timer(&self, state: &mut State<Self>) {
        let at = state.queue.next_poll();
        if state.more.slot.map(|(at, _)| at) == at {
            return;
        }
        if let Some(slot) = state.more.slot.take() {
            self.timetable.remove(slot);
        }
        state.more.slot = at.map(|at| {
            let poll = Item::Poll(Weak::clone(&self.this) as _);
            self.timetable.insert(at, poll)
        });
    }

    /// Ends the subscriptions of a waiter that has left.
    fn unsubscribe(&self, sync: &dyn Synchronizer, owner: &WireOwner, was_last: bool) {
        let Some(core) = self.core.upgrade() else {
            return;
        };
        let end = |part, channel: &[u8]| core.subscriptions.forget(&self.receiver(part), channel);
        let own = || sync.server_queue()?.channel_of(owner);
        if let Some(own) = own() {
            end(Part::Waiter(owner.clone()), &own);
        }
        if was_last {
            end(Part::Queue, &self.channel);
            if let Some(channel) = self.neighbours(sync) {
                end(Part::Line, channel);
            }
        }
    }

    /// Returns whether `actor` has the exclusive hold and has taken it, as far as this process knows.
    pub(crate) fn is_held_by(&self, actor: ActorId) -> bool {
        let holder = self.state().queue.holder().upgrade();
        holder.is_some_and(|it| it.is_held() && it.is_taken() && it.terms.actor == Some(actor))
    }

    fn heard(&self, mut state: MutexGuard<'_, State<Self>>, part: &Part, payload: &[u8]) {
        // The kind of one waiter applies to the whole queue: if the server keeps the queue, the family has one kind only.
        let sync = state.queue.waiters().next();
        let sync = sync.map(|first| Arc::clone(&first.want));
        let (Some(sync), Some(core)) = (sync, self.core.upgrade()) else {
            return;
        };
        if *part == Part::Line {
            drop(state);
            return self.heard_for_line(&core, &sync, payload);
        }
        if state.queue.is_for_facts() {
            return self.tell(&core, state, payload);
        }
        let heard = queue::hear(payload);
        let to = match part {
            Part::Waiter(owner) => Some(owner.as_str()),
            Part::Queue | Part::Line => None,
        };
        let begin = |it: Begin<'_, Shell>| self.begin(&core, &heard, it);
        let subscribed =
            sync.sharing().keeps_each_waiter() && core.subscriptions.hears(&self.channel);
        state.queue.message(&core, to, subscribed, heard, begin);
        self.carry_out(&core, state);
    }

    /// Begins the hold of a grant by message.
    fn begin(&self, core: &Arc<Core>, heard: &Heard<'_>, begin: Begin<'_, Shell>) -> Option<Hold> {
        let (Heard::Granted(granted), Some(entry)) = (heard, self.this.upgrade()) else {
            return None;
        };
        let Begin { waiter, debt } = begin;
        let sync = &waiter.want;
        let grant = Grant {
            token: granted.token,
            terms: waiter.terms,
            // P1: the lease runs since the server's decision. `when` errs to the early side.
            sent: core.when(sync.name(), granted.now),
            first: Some(granted.lease),
            given: true,
            due: Moment::ZERO,
            next: None,
        };
        core.tell(|sink| sink.woken(sync.kind().name(), true));
        Some(Hold::begin(&debt, entry, grant))
    }

    /// Handles the refusal of a request of `debt`, which the waiter at `place` has sent.
    pub(super) fn refused(
        self: &Arc<Self>,
        core: &Arc<Core>,
        place: u64,
        debt: &Debt,
        refusal: &Refusal,
    ) {
        let (sync, owner, hint) = (&*debt.sync, &debt.owner, &refusal.hint);
        // P4: subscribed before the waiter is parked. A release after the refusal either is a message for this queue, or is found
        // by the request that follows the confirmation. Before the queue is locked, because `want` may lock it.
        let subscribed = self.want(core);
        // Only Redisson wakes a waiter on its own channel. Without its clients the client's one channel is enough.
        let own = || sync.server_queue()?.channel_of(owner);
        if let Hint::Queue { foreign: true, .. } = hint
            && let Some(own) = own()
        {
            let waiter = self.receiver(Part::Waiter(owner.clone()));
            core.subscriptions.want(self, &waiter, &own, None);
        }
        let placed = hint.placed();
        let (granted, forgotten) = match hint {
            Hint::Queue {
                granted, forgotten, ..
            } => (granted.clone(), *forgotten),
            _ => (None, false),
        };
        self.play(core, sync, hint.role());
        let remark = sync.remark(refusal.rest());
        let refused = Refused {
            ttl: refusal.after,
            placed,
            // R8: at maxmemory an entry cannot be renewed, and is still there.
            has_entry: has_one_entry(sync) && (placed.is_some() || debt.claim().arrived() > 0),
            granted,
            forgotten,
            subscribed,
        };
        let before = core.entries.table.event(self, |state| {
            let queue = &mut state.queue;
            queue.refused(core, place, refused);
            // The waiter has left during the request, before it was subscribed.
            if queue.waiter(place).is_none() {
                self.unsubscribe(sync, owner, queue.is_empty());
            }
            std::mem::replace(&mut state.more.remark, remark)
        });
        // Invariant 4: a subscriber of the log may own anything.
        if let (None, Some(remark)) = (before, remark) {
            tracing::warn!(name = %self.name(), "an acquire waits, and {remark}");
        }
    }

    /// Lets the first waiter send a request for `reason`.
    pub(super) fn admit_first(&self, reason: Reason) {
        // Confirmed: a message may have been missed before. Lost: the server may be unreachable, and waiters poll more often
        // from now on. The first waiter is enough also where the server keeps the queue: its reply names the waiter of this
        // process that was granted, and reports that the server has removed entries.
        if let Some(core) = self.core.upgrade() {
            self.event(&core, |queue, cx| queue.admit(cx, reason));
        }
    }

    pub(crate) fn name(&self) -> &Name {
        self.subject.name()
    }

    /// Returns whether this is the queue of `name` in the family of `sync`.
    pub(crate) fn is_for(&self, sync: &dyn Synchronizer, name: &Name) -> bool {
        self.subject == Subject::queue_of(sync, name)
    }
}
