//! The local queue of one subject. A channel does not identify it: several names may share one.
//!
//! All waiters of one subject in one process share one [`LockEntry`]: one subscription, one poll timer. The first waiter or visitor
//! creates it in [`LockEntries`]; when the last one has left and no holder of this process is alive, it is marked `retired` and
//! removed from the table. A caller that looked it up in between sees the mark and looks it up again.
//!
//! Which waiters ask the server depends on the [`Sharing`] of the synchronizer:
//!
//! * `Exclusive`: only the first; the next moves up when it leaves.
//! * `Together`: the first; a grant to it lets the others of its kind behind it ask.
//! * `Permits`: as many from the front as a message announces permits for.
//! * `Event`: the first; what it sees holds for all that waited when it asked. Where messages are facts, nobody after them.
//! * `Queued`: all of them, at once. The server keeps the queue and grants by message.
//!
//! # Invariants
//! 1. While an exclusive waiter asks or is being handed the hold, no other waiter of its queue asks, and it was the first when
//!    that began. Otherwise the waiters of one process would compete on the server.
//! 2. A wake is never lost (P4). One that comes while a waiter asks is remembered in `again`; when a waiter with the turn to ask
//!    leaves without having acquired, the next one gets the turn.
//! 3. While there are waiters, something will make the first one ask: a local holder (its end calls [`LockEntry::freed`]), a poll in
//!    the timetable, or a `Try` already given. A wake by message alone is not enough: messages can be lost.
//! 4. No hold is dropped and no waker is called, cloned or dropped while the queue's mutex is held: it may own anything.
//! 5. A hold that its waiter never takes moves on. Until the waiter takes it, it is not renewed beyond its first lease, and one without
//!    a lease ends after that time, too; then that waiter loses its place.
//! 6. The first waiter for several permits asks once when it has become the first, and takes its place in line on the server;
//!    no waiter behind it has one. So the places of a process on the server are in the order of its queue.
//!
//! Long: every event that wakes a local waiter, under one mutex.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;

use super::line;
use super::permits;
use super::queue::{Queue, Room, Turn, Waiter, Wakers};
use super::subscriptions::Ear;
use super::ticket::{Applicant, Stay, Ticket, Visit};
use crate::actor::ActorId;
use crate::agenda::{Agenda, Item};
use crate::description::{Heard, Sharing, Subject, Synchronizer, Tenure};
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::hold::sweep::{Debt, GATHERED, Gathered, Leftover};
use crate::line::Reason;
use crate::name::Name;
use crate::options::HoldTerms;
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use stanchion_transport::Moment;

/// The interval at which every waiter asks again where the server keeps the queue: a quarter of the time after which Redisson
/// takes a waiter for dead (its `fairLockWaitTimeout`, 300 s).
const RESTAMP: Duration = Duration::from_secs(75);

/// The end of a hold, as the server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A release was answered: who is next is told by message.
    Released,
    /// A release was answered: so many permits are free, and no process waits but this one.
    Left(u32),
    /// No answer: perhaps nothing was published.
    Unknown,
}

/// The number of idle queues that a client keeps: one that is made and forgotten in every cycle costs three allocations and two changes of
/// the table. Some 2.6 KB each.
const WARM: usize = 256;

/// All queues of a client.
#[derive(Debug, Default)]
pub(crate) struct LockEntries {
    pub(super) table: DashMap<Subject, Arc<LockEntry>>,
    /// Queues that have been idle since they came in here, or were at some time, in that order.
    warm: Mutex<VecDeque<Arc<LockEntry>>>,
}

impl LockEntries {
    fn get(&self, core: &Arc<Core>, subject: &Subject, channel: &[u8]) -> Arc<LockEntry> {
        // A shared look first: `entry` locks the shard for writing, and most callers find the queue there.
        if let Some(entry) = self.table.get(subject) {
            return Arc::clone(&entry);
        }
        Arc::clone(
            &self
                .table
                .entry(subject.clone())
                .or_insert_with(|| LockEntry::new(subject, channel, core)),
        )
    }

    /// Takes a place in the queue of the applicant's own name.
    pub(crate) fn join(
        core: &Arc<Core>,
        applicant: Applicant,
        stay: Stay,
        terms: &HoldTerms,
    ) -> Ticket {
        let sync = Arc::clone(&applicant.sync);
        Self::join_at(core, sync.name(), sync.channel(), applicant, stay, terms)
    }

    /// Takes a place in the queue of `name`.
    pub(crate) fn join_at(
        core: &Arc<Core>,
        name: &Name,
        channel: &[u8],
        applicant: Applicant,
        stay: Stay,
        terms: &HoldTerms,
    ) -> Ticket {
        let subject = Subject::named(&*applicant.sync, name);
        loop {
            let entry = core.entries.get(core, &subject, channel);
            if let Some(place) = entry.join(core, &applicant, stay, terms) {
                return Ticket {
                    core: Arc::clone(core),
                    entry,
                    applicant,
                    place: Some(place),
                };
            }
            // The entry was retired between the look-up and the join. The next look-up creates a new one.
        }
    }

    /// Keeps an idle entry for a while, and removes the one that has been kept for longest from the table.
    fn keep_warm(&self, entry: Arc<LockEntry>) {
        let mut warm = self.warm.lock().unwrap_or_else(PoisonError::into_inner);
        warm.push_back(entry);
        let oldest = (warm.len() > WARM).then(|| warm.pop_front()).flatten();
        drop(warm);
        let Some(oldest) = oldest else { return };
        let mut queue = oldest.queue();
        queue.warm = false;
        // Before the mutex is unlocked: a caller that has already looked this entry up must see it.
        queue.retired = queue.is_idle();
        let retired = queue.retired;
        // The table's shard is locked after the queue is unlocked: elsewhere a queue is locked under its shard.
        drop(queue);
        if retired {
            // By identity: an entry that was retired before may have a successor.
            self.table
                .remove_if(&oldest.subject, |_, entry| Arc::ptr_eq(entry, &oldest));
        }
    }

    /// Keeps the entry in the table without a place in its queue: for an attempt that does not wait.
    pub(crate) fn visit(core: &Arc<Core>, sync: &dyn Synchronizer) -> Visit {
        let subject = Subject::of(sync);
        loop {
            let entry = core.entries.get(core, &subject, sync.channel());
            let mut queue = entry.queue();
            // Decided under the mutex that `keep_warm` marks it under. An entry that is leaving the table must not gain a
            // user: the next look-up creates a new one.
            if !queue.retired {
                queue.visitors += 1;
                drop(queue);
                return Visit {
                    core: Arc::clone(core),
                    entry,
                };
            }
        }
    }

    /// The leftovers on the server of waiters that have asked. Locks each queue under its shard.
    pub(crate) fn places(&self) -> Vec<(Arc<dyn Synchronizer>, Leftover)> {
        let mut places = Vec::new();
        for entry in &self.table {
            let queue = entry.queue();
            // Only a request leaves something, and only where a refusal leaves a sign.
            let asked = |waiter: &&Waiter| waiter.asked && waiter.sync.leaves_sign();
            places.extend(queue.waiters.values().filter(asked).map(|waiter| {
                let leftover = Leftover {
                    owner: waiter.owner.clone(),
                    lease: waiter.terms.asked_for(waiter.terms.lease),
                    // A request under way has a debt of its own, which is swept after it.
                    unanswered_until: Moment::ZERO,
                    queued: true,
                };
                (Arc::clone(&waiter.sync), leftover)
            }));
        }
        places
    }

    /// The queue for the name of `sync`, if there is one.
    fn of(&self, sync: &dyn Synchronizer) -> Option<Arc<LockEntry>> {
        let entry = self.table.get(&Subject::named(sync, sync.name()));
        // Outside the shard: wakers may run foreign code.
        entry.map(|entry| Arc::clone(&entry))
    }

    /// Lets the first waiter for the name of `sync` ask, if there is one.
    pub(crate) fn ask_again(&self, sync: &dyn Synchronizer) {
        if let Some(entry) = self.of(sync) {
            entry.ask_again(Reason::Anew);
        }
    }

    /// Handles a grant in a reply as one by message. Nobody may wait any more: then its sweep follows (P3).
    pub(crate) fn granted(&self, core: &Core, sync: &dyn Synchronizer, grant: &[u8]) {
        if let Some(entry) = self.of(sync) {
            entry.woken(core.clock.now(), &Ear::Queue, grant);
        }
    }

    /// Takes the places in lines and crowds on the server. The caller drops them after the queues are unlocked, which gives them up.
    pub(crate) fn standing(&self) -> Vec<(Option<Arc<Debt>>, Option<Gathered>)> {
        let taken = |entry: RefMulti<'_, Subject, Arc<LockEntry>>| {
            let mut queue = entry.queue();
            (queue.standing.take(), queue.gathered.take())
        };
        self.table.iter().map(taken).collect()
    }

    /// Takes the holds that were handed or granted to waiters which have not been polled since. The caller drops them after
    /// the queues are unlocked (invariant 4).
    pub(crate) fn unclaimed(&self) -> Vec<Hold> {
        let mut holds = Vec::new();
        for entry in &self.table {
            let queue = &mut *entry.queue();
            for waiter in queue.waiters.values_mut() {
                match waiter.turn.take() {
                    Some(Turn::Take(hold)) => {
                        holds.push(hold);
                        // A grant by message may cross the request of its waiter, which then still counts as asking.
                        if !waiter.asking {
                            queue.parked += 1;
                        }
                    }
                    turn => waiter.turn = turn,
                }
            }
        }
        holds
    }

    pub(crate) fn waiters(&self) -> usize {
        self.table
            .iter()
            .map(|entry| entry.queue().waiters.len())
            .sum()
    }
}

/// The queue of one subject.
#[derive(Debug)]
pub(crate) struct LockEntry {
    /// Itself, for the timetable and for holds that begin here. Weak: the table, the tickets and the holds keep the entry alive.
    pub(super) this: Weak<Self>,
    /// Fixed, as the channel is.
    subject: Subject,
    channel: Vec<u8>,
    /// Locked for decisions only, never across an await. See the lock order in [`super`].
    pub(super) queue: Mutex<Queue>,
    /// Weak, because the core owns the table of entries. Every ticket and visit holds it strongly, so an upgrade succeeds while
    /// there are waiters.
    pub(super) core: Weak<Core>,
    pub(super) timetable: Arc<Agenda>,
}

impl LockEntry {
    fn new(subject: &Subject, channel: &[u8], core: &Arc<Core>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            subject: subject.clone(),
            channel: channel.to_vec(),
            queue: Mutex::default(),
            core: Arc::downgrade(core),
            timetable: Arc::clone(&core.timetable),
        })
    }

    /// Returns whether `actor` has the exclusive hold and has taken it, as far as this process knows.
    pub(crate) fn is_held_by(&self, actor: ActorId) -> bool {
        let holder = self.queue().holder.upgrade();
        holder.is_some_and(|it| it.is_held() && it.is_claimed() && it.terms.actor == Some(actor))
    }

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(
        &self,
        core: &Core,
        applicant: &Applicant,
        stay: Stay,
        terms: &HoldTerms,
    ) -> Option<u64> {
        let mut queue = self.queue();
        // Under the mutex that marks it: whoever joins first keeps the entry in the table.
        if queue.retired {
            return None;
        }
        let place = queue.last_place();
        let sharing = applicant.sync.sharing();
        // A newcomer that would be among the first to ask asks at once, unless a local holder is known to be in the way.
        let asks = match sharing {
            // Invariant 1.
            Sharing::Exclusive => queue.waiters.is_empty(),
            // Readers ask side by side, but not past one that was refused, nor past a writer: these came first.
            Sharing::Together => queue.parked == 0 && queue.exclusives == 0,
            Sharing::Permits(_) => !queue.permits_wanted(),
            // A parked waiter has no request under way. Its next one is sent after this waiter has joined, so the answer is for
            // both.
            // To whom facts are told, it need not ask: it joins before what it waits for can happen.
            Sharing::Event => queue.parked == 0 && applicant.sync.facts().is_none(),
            Sharing::Queued => true,
        };
        // A request beside a local holder or a hand-off would only be refused: `freed` or `not_handed` gives the turn. A fair
        // waiter asks all the same, because only its request gives it a place in the server's queue.
        let asks = asks
            && (sharing == Sharing::Queued || queue.handing.is_none() && !queue.has_live_holder());
        if sharing == Sharing::Exclusive {
            queue.exclusives += 1;
        }
        queue.facts |= applicant.sync.facts().is_some();
        if sharing == Sharing::Queued {
            // Each waiter's own first request sets its deadline on the server (F7), so the interval begins with the first of
            // them.
            if queue.waiters.is_empty() {
                queue.restamp = core.clock.now() + RESTAMP;
            }
            queue.by_owner.insert(applicant.owner.clone(), place);
        }
        if !asks {
            // Not `aside`: a newcomer has not been passed over.
            queue.parked += 1;
        }
        queue.waiters.insert(
            place,
            Waiter {
                sync: Arc::clone(&applicant.sync),
                owner: applicant.owner.clone(),
                terms: *terms,
                joined: core.clock.now(),
                stay,
                turn: asks.then_some(Turn::Try),
                asking: false,
                handed: false,
                asked: false,
                reason: Reason::Anew,
                asked_with_others: false,
                asked_before: 0,
                parted: 0,
                refused: false,
                asked_first: false,
                waker: None,
            },
        );
        Some(place)
    }

    /// Keeps the entry in the table as long as a subscription lasts, so that its messages find the waiters who come meanwhile.
    pub(super) fn keep(&self) {
        self.queue().subscribed = true;
    }

    /// Ends [`LockEntry::keep`].
    pub(super) fn unkept(&self) {
        let mut queue = self.queue();
        queue.subscribed = false;
        if let Some(core) = self.core.upgrade() {
            self.rest_if_idle(&core, queue);
        }
    }

    /// Handles a message: a hint to try (P4), or a grant. Returns whether anybody waits.
    pub(crate) fn woken(&self, now: Moment, whom: &Ear, payload: &[u8]) -> bool {
        let queue = self.queue();
        // A subscription lingers after its last waiter. The listener remembers the message for the next one (`unheard`).
        // Nobody who comes later needs to be told a fact.
        let waits = !queue.waiters.is_empty() || queue.facts;
        self.heard(queue, now, whom, payload);
        waits
    }

    fn heard(&self, mut queue: MutexGuard<'_, Queue>, now: Moment, whom: &Ear, payload: &[u8]) {
        // The first waiter stands for all: where the server keeps a queue, the family has one kind only.
        let Some(sync) = queue.first().map(|(_, first)| Arc::clone(&first.sync)) else {
            if let (Ear::Queue, Heard::Granted(granted)) = (whom, line::hear(payload))
                && let Some(sync) = &queue.waited
                && sync.tenure() == Tenure::Leased
                && permits::is_of(&granted, sync.name())
            {
                self.granted_permit(queue, &granted);
            }
            return;
        };
        let mut wakers = Wakers::default();
        if *whom == Ear::Line {
            drop(queue);
            return self.heard_for_line(&sync, payload);
        }
        if queue.facts {
            return self.tell(queue, payload);
        }
        let heard = match sync.server_queue() {
            Some(server_queue) => server_queue.hear(payload),
            None => line::hear(payload),
        };
        let room = match heard {
            Heard::Granted(granted) if matches!(sync.sharing(), Sharing::Permits(_)) => {
                if !permits::is_of(&granted, sync.name()) {
                    return;
                }
                if sync.tenure() == Tenure::Leased {
                    return self.granted_permit(queue, &granted);
                }
                // It has taken this process out of the crowd in which it stood for these waiters, too (invariant 3).
                1
            }
            Heard::Granted(granted) => return self.granted(queue, &granted),
            Heard::Head(pause) => {
                return self.head(&mut queue, now + pause + Duration::from_millis(1));
            }
            // Another poll may be due sooner.
            Heard::Open(pause) if matches!(sync.sharing(), Sharing::Permits(_)) => {
                return self.poll_by(&mut queue, now + pause);
            }
            Heard::Open(pause) if pause > Duration::ZERO => {
                if queue.asking > 0 {
                    // Others have a head start now, whatever the request under way is answered.
                    queue.told_at = Some(now + pause);
                    return;
                }
                queue.poll_reason = Reason::Told;
                return self.schedule_poll(&mut queue, now + pause);
            }
            Heard::Open(_) => 1,
            Heard::Hear => {
                drop(queue);
                return self.stand_sentry(&*sync);
            }
            Heard::Free(room) => room,
        };
        // Redisson's release on a waiter's own channel is for that waiter, wherever it stands in this queue.
        if let Ear::Waiter(owner) = whom {
            if let Some(place) = queue.by_owner.get(owner).copied() {
                wakers = queue.nudge(place);
            }
            drop(queue);
            return wakers.call();
        }
        queue.refused = 0;
        queue.reason = Reason::Told;
        let gathered = queue.gathered.take();
        let wakers = queue.admit_told(room);
        drop(queue);
        // The message ended it.
        if let Some(gathered) = gathered {
            gathered.ended();
        }
        wakers.call();
    }

    /// Lets the first waiters ask because the poll timer has fired.
    pub(crate) fn poll_now(&self, core: &Arc<Core>) {
        let now = core.clock.now();
        let mut queue = self.queue();
        queue.poll = None;
        // For this poll alone: one that is planned for no reason gives no right to a free lock.
        let reason = std::mem::take(&mut queue.poll_reason);
        let wakers = match queue.first_sharing() {
            None => return,
            Some(Sharing::Queued) => {
                // One heartbeat keeps all places. Single waiters ask only to set their deadlines anew (F7).
                self.attend(core, &mut queue, now);
                if now >= queue.restamp {
                    queue.restamp = now + RESTAMP;
                    queue.admit_all()
                } else {
                    Wakers::default()
                }
            }
            // Also while others ask: several ask at once here, and the first may have a place to keep on the server.
            Some(Sharing::Permits(_)) => {
                // Invariant 3: those who ask now may never take their answers, which would plan the next.
                self.schedule_poll(&mut queue, now + core.poll_interval());
                queue.admit_by_poll()
            }
            // A place ends unless its process asks now and then; where the next waiter is handed the hold, it is not needed.
            Some(_) if queue.asking == 0 && queue.handing.is_none() && queue.needs_its_place() => {
                queue.admit(Room::Unknown)
            }
            // A live local holder will call `freed` (invariant 3), so a request now would only be refused.
            Some(_) if queue.asking > 0 || queue.handing.is_some() || queue.has_live_holder() => {
                // What it was told is for the next that asks. A look is not: it would be one at another time.
                if reason == Reason::Told {
                    queue.reason = reason;
                }
                if queue.standing.is_some() {
                    queue.poll_reason = Reason::Look;
                    self.schedule_poll(&mut queue, now + core.poll_interval());
                }
                return;
            }
            Some(_) => queue.admit(Room::Unknown),
        };
        queue.reason = reason;
        drop(queue);
        wakers.call();
    }

    /// Lets the first waiter ask because the subscription was confirmed, or lost.
    pub(crate) fn listening_changed(&self) {
        self.ask_again(Reason::Anew);
    }

    /// Lets the first waiter ask for that reason.
    pub(super) fn ask_again(&self, reason: Reason) {
        let mut queue = self.queue();
        // One that was told, or whose time has come, has not asked yet: it keeps its better reason.
        if queue.first().is_some_and(|(_, first)| first.is_parked()) {
            queue.reason = reason;
        }
        // Confirmed: a message may have been missed before. Lost: the server may be unreachable, and waiters poll more often
        // from now on. The first waiter is enough also where the server keeps the queue: its answer names the waiter of this
        // process that was granted.
        let wakers = queue.admit(Room::Unknown);
        drop(queue);
        wakers.call();
    }

    /// Lets `owner` ask because the subscription to its own channel was confirmed.
    pub(crate) fn listening_for(&self, owner: &WireOwner) {
        let mut queue = self.queue();
        let wakers = match queue.by_owner.get(owner).copied() {
            Some(place) => queue.nudge(place),
            None => Wakers::default(),
        };
        drop(queue);
        wakers.call();
    }

    /// Records a hold that was acquired without a place in the queue.
    pub(crate) fn acquired(&self, hold: &Hold, left: u32) {
        let mut queue = self.queue();
        let sharing = hold.sharing();
        // Beside a reader or a permit there may be room, so these keep nobody from asking.
        if sharing.has_one_holder() {
            queue.holder = hold.weak();
        }
        // P8: 0, because it is not known who had joined when a visitor asked, so nobody is told what it saw.
        let wakers = queue.granted(sharing, left, 0);
        drop(queue);
        wakers.call();
    }

    /// Records that `hold` has ended. The next waiter asks, unless the release has told who is next.
    pub(crate) fn freed(&self, core: &Core, hold: &HoldState, end: End) {
        let queue = self.queue();
        if queue.retired {
            drop(queue);
            // Who reads or has a permit does not keep its queue, so those who wait may have a new one.
            let current = core
                .entries
                .table
                .get(&self.subject)
                .map(|it| Arc::clone(&it));
            match current {
                Some(current) => current.freed_in(current.queue(), core, hold, end),
                None => self.left_to_others(core, end),
            }
            return;
        }
        self.freed_in(queue, core, hold, end);
    }

    /// Passes on what a release left to the waiters of this process, none of whom is here: the other kind of semaphore has the same permits,
    /// and hears the same messages.
    fn left_to_others(&self, core: &Core, end: End) {
        if matches!(end, End::Left(_)) {
            for entry in core.subscriptions.queues_of(&self.channel) {
                entry.ask_again(Reason::Told);
            }
        }
    }

    pub(super) fn freed_in(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        core: &Core,
        hold: &HoldState,
        end: End,
    ) {
        let now = core.clock.now();
        // Invariant 5: otherwise the waiters behind it would wait for a task that nobody polls.
        let forsaken = queue.forsake(hold);
        if let Some(waiter) = &forsaken {
            self.departed(core, &mut queue, &*waiter.sync, &waiter.owner);
        }
        if let Sharing::Permits(_) = hold.sync.sharing() {
            // The server has told of it, so this process has its whole turn of hand-offs again.
            queue.handed = 0;
        }
        // By identity: a late end of an old hold must not free the queue of its successor.
        if std::ptr::eq(queue.holder.as_ptr(), hold) {
            queue.holder = Weak::new();
        }
        let wakers = match (hold.sync.sharing(), end) {
            (_, End::Left(free)) => queue.admit(Room::For(free)),
            (Sharing::Exclusive, _) => {
                if queue.has_live_holder() {
                    // Invariant 4: what was forsaken is dropped after the queue is unlocked.
                    drop(queue);
                    return;
                }
                queue.handed = 0;
                // P4: a message that lets a process try takes a place for several names off the line, and who was told has not asked, but
                // was handed the hold. Who asks is at work on it.
                let told = queue.reason == Reason::Told;
                let is_off = |debt: &Arc<Debt>| {
                    told && debt.sync.line().is_some_and(|line| !line.is_common())
                };
                let stands =
                    queue.standing.as_ref().is_some_and(|it| !is_off(it)) || queue.asking > 0;
                if hold.sync.line().is_some() && stands && end == End::Released {
                    // The release has granted to the head of the line, where this process has its place. Nothing is missed by
                    // message alone (invariant 3).
                    self.poll_by(&mut queue, now + core.poll_interval());
                    Wakers::default()
                } else {
                    queue.admit(Room::Unknown)
                }
            }
            // Otherwise the release's own message wakes the waiters.
            (Sharing::Together | Sharing::Permits(_), _)
                if end == End::Unknown || !core.subscriptions.reaches(self) =>
            {
                queue.admit(Room::Unknown)
            }
            // The reply to a release without an answer may have been a grant to one of these (P4).
            (Sharing::Queued, End::Unknown) => queue.admit(Room::Unknown),
            // Nobody holds an event, and where the server keeps the queue the release itself grants to the next.
            _ => Wakers::default(),
        };
        let is_empty = queue.waiters.is_empty();
        self.rest_if_idle(core, queue);
        wakers.call();
        if is_empty {
            self.left_to_others(core, end);
        }
        // Invariant 4.
        drop(forsaken);
    }

    /// Cleans up after a waiter that was removed: its subscriptions, and the poll that the others rely on.
    pub(super) fn departed(
        &self,
        core: &Core,
        queue: &mut Queue,
        sync: &dyn Synchronizer,
        owner: &WireOwner,
    ) {
        let server_queue = sync.server_queue();
        let shared = sync.sharing() != Sharing::Exclusive;
        if shared && !queue.waiters.is_empty() && queue.poll.is_none() {
            // Invariant 3: the poll that it planned served all waiters, and no local holder's end calls the next.
            let longest = core.poll_interval();
            let pause = server_queue.map_or(longest, |it| it.beat().min(longest));
            self.schedule_poll(queue, core.clock.now() + pause);
        }
        if let Some(server_queue) = server_queue {
            queue.by_owner.remove(owner);
            let own = server_queue.channel_of(owner);
            let whom = Ear::Waiter(owner.clone());
            core.subscriptions.forget_for(self, &whom, &own);
        }
        if queue.waiters.is_empty() {
            core.subscriptions.forget(self);
            if let Some(channel) = sync.line().and_then(|line| line.neighbours(self.name())) {
                core.subscriptions.forget_for(self, &Ear::Line, channel);
            }
        }
    }

    /// Records that the server has this process in its crowd. Called by the request, because its caller may have gone.
    pub(crate) fn gathered(&self, place: Gathered) {
        let mut queue = self.queue();
        // A grant is of one permit.
        if place.sync().sharing() == Sharing::Permits(1) && queue.waited.is_none() {
            queue.waited = Some(Arc::clone(place.sync()));
        }
        // Without a waiter nobody is left here who would take what is announced: it is dropped, outside the mutex.
        if !queue.waiters.is_empty()
            && let Some(former) = queue.gathered.replace(place)
        {
            drop(queue);
            former.ended();
        }
    }

    /// Plans a poll at `at`, unless one is planned sooner.
    pub(super) fn poll_by(&self, queue: &mut Queue, at: Moment) {
        if queue.poll.is_none_or(|(planned, _)| at < planned) {
            self.schedule_poll(queue, at);
        }
    }

    /// Plans the next poll at `at`, in place of the one planned so far.
    pub(super) fn schedule_poll(&self, queue: &mut Queue, mut at: Moment) {
        // The wait set on the server ends after its TTL, and each poll renews it.
        if let (Some(Sharing::Permits(_)), Some(core)) =
            (queue.first_sharing(), self.core.upgrade())
        {
            at = at.min(core.clock.now() + GATHERED / 2);
        }
        if let Some(slot) = queue.poll.take() {
            self.timetable.remove(slot);
        }
        queue.poll = Some(self.timetable.insert(at, Item::Poll(self.this.clone())));
    }

    /// Unlocks the queue. If nothing refers to it, it is as a new one, and leaves the table when 256 others have become idle after it.
    pub(super) fn rest_if_idle(&self, core: &Core, mut queue: MutexGuard<'_, Queue>) {
        if !queue.waiters.is_empty() {
            return;
        }
        // A wake is kept for waiters only: whoever joins an empty queue asks at once, or has a local holder to wait for.
        queue.again = 0;
        // P3: the last waiter has left, so the place in the line is given up.
        let standing = (queue.standing.take(), queue.gathered.take());
        queue.reason = Reason::Turn;
        queue.head_look = None;
        if let Some(slot) = queue.poll.take() {
            core.timetable.remove(slot);
        }
        let idle = queue.is_idle();
        let newly = idle && !queue.warm;
        if idle {
            queue.reset();
        }
        drop(queue);
        if newly && let Some(this) = self.this.upgrade() {
            core.entries.keep_warm(this);
        }
        drop(standing);
    }

    pub(crate) fn name(&self) -> &Name {
        self.subject.name()
    }

    pub(crate) fn channel(&self) -> &[u8] {
        &self.channel
    }

    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Returns whether this is the queue of `name` in the family of `sync`.
    pub(crate) fn is_for(&self, sync: &dyn Synchronizer, name: &Name) -> bool {
        self.subject == Subject::named(sync, name)
    }
}
