//! The local queue of one subject. A channel does not identify it: several names may share one.
//!
//! All waiters of one subject in one process share one [`LockEntry`]: one subscription, one poll timer. The first waiter or visitor
//! creates it in [`LockEntries`]; when the last one has left and no holder of this process is alive, it is marked `retired` and
//! removed from the table. A caller that looked it up in between sees the mark and looks it up again.
//!
//! The waiters that send requests depend on the [`Sharing`] of the synchronizer:
//!
//! * `Exclusive`: only the first; the next moves up when it leaves.
//! * `Together`, `Permits`: new waiters concurrently, until one is refused. Then the first; a grant to it lets the next send a request.
//! * `Event`: the first; its reply counts for all that waited when its request was sent. With facts, none while messages arrive.
//! * `Queued`: all of them, at once. The server keeps the queue and grants by message.
//!
//! The server has one entry for this local queue in its queue, that of the first waiter (see [`super::line`]).
//!
//! # Invariants
//! 1. While an exclusive waiter has a request in flight or is being handed the hold, no other waiter of its queue sends a request, and it
//!    was the first when that began. Otherwise the waiters of one process would compete on the server.
//! 2. A wake-up is never lost (P4). During a request it is remembered in `due`; when a waiter with the turn to send a request leaves
//!    without a hold, the next one gets the turn.
//! 3. While there are waiters, the first one will send a request: after the end of a local holder, which calls [`LockEntry::freed`], at a
//!    poll in the timetable, or for a `Try` already given. A wake-up by message alone is not enough: messages can be lost.
//! 4. No hold is dropped and no waker is called, cloned or dropped while the queue's mutex is held: it may own anything.
//! 5. A hold that its waiter never takes moves on. Until the waiter takes it, it is not renewed beyond its first lease, and one without
//!    a lease ends after that time, too; then that waiter loses its place.
//!
//! Long: every event that wakes a local waiter, under one mutex.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dashmap::DashMap;
use dashmap::mapref::multiple::RefMulti;

use super::line;
use super::queue::{Asked, Entry, Queue, Turn, Waiter, Wakers};
use super::subscriptions::Ear;
use super::ticket::{Applicant, Stay, Ticket, Visit};
use crate::actor::ActorId;
use crate::agenda::{Agenda, Item};
use crate::description::{Heard, Sharing, Subject, Synchronizer};
use crate::hold::handle::Hold;
use crate::hold::state::HoldState;
use crate::hold::sweep::Leftover;
use crate::line::Reason;
use crate::name::Name;
use crate::options::HoldTerms;
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use stanchion_transport::Moment;

/// The interval at which every waiter sends its request again if the server keeps the queue: a quarter of the time after which Redisson
/// takes a waiter for dead (its `fairLockWaitTimeout`, 300 s).
const RESTAMP: Duration = Duration::from_secs(75);

/// The end of a hold, as the server has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// A release was answered: the next waiter is notified by message.
    Released,
    /// No reply: perhaps no message was published.
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
        let subject = Subject::queue_of(&*applicant.sync, name);
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
        queue.uses.warm = false;
        // Before the mutex is unlocked: a caller that has already looked this entry up must see it.
        queue.uses.retired = queue.is_idle();
        let retired = queue.uses.retired;
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
        let subject = Subject::queue_of(sync, sync.name());
        loop {
            let entry = core.entries.get(core, &subject, sync.channel());
            let mut queue = entry.queue();
            // Decided under the mutex that `keep_warm` marks it under. An entry that is leaving the table must not gain a
            // user: the next look-up creates a new one.
            if !queue.uses.retired {
                queue.uses.visitors += 1;
                drop(queue);
                return Visit {
                    core: Arc::clone(core),
                    entry,
                };
            }
        }
    }

    /// Returns the leftovers on the server of waiters that have sent requests. Locks each queue under its shard.
    pub(crate) fn places(&self) -> Vec<(Arc<dyn Synchronizer>, Leftover)> {
        let mut places = Vec::new();
        for entry in &self.table {
            let queue = entry.queue();
            // Only a request has leftovers, and only if a refusal leaves a sign.
            let asked =
                |waiter: &&Waiter| waiter.asked != Asked::Never && waiter.sync.leaves_sign();
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
        let entry = self.table.get(&Subject::queue_of(sync, sync.name()));
        // Outside the shard: wakers may run foreign code.
        entry.map(|entry| Arc::clone(&entry))
    }

    /// Handles a grant in a reply like one by message. If no waiter is left, the sweep of its debt gives the grant back (P3).
    pub(crate) fn granted(&self, core: &Core, sync: &dyn Synchronizer, grant: &[u8]) {
        if let Some(entry) = self.of(sync) {
            entry.woken(core.clock.now(), &Ear::Queue, grant);
        }
    }

    /// Takes the entries in the queues on the server. The caller drops them after the queues are unlocked, which gives them up.
    pub(crate) fn standing(&self) -> Vec<Entry> {
        let taken = |entry: RefMulti<'_, Subject, Arc<LockEntry>>| entry.queue().entry.take();
        self.table.iter().filter_map(taken).collect()
    }

    /// Takes the holds that were handed or granted to waiters which have not been polled since. The caller drops them after
    /// the queues are unlocked (invariant 4).
    pub(crate) fn unclaimed(&self) -> Vec<Hold> {
        let mut holds = Vec::new();
        for entry in &self.table {
            let queue = &mut *entry.queue();
            let mut parked = 0;
            for waiter in queue.waiters.values_mut() {
                match waiter.turn.take() {
                    Some(Turn::Take(hold)) => {
                        holds.push(hold);
                        // A grant by message may cross the request of its waiter, which then still counts as requesting.
                        parked += isize::from(!waiter.asking);
                    }
                    turn => waiter.turn = turn,
                }
            }
            queue.count_parked(parked);
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
        // Under the mutex of the mark: a waiter that joins before it keeps the entry in the table.
        if queue.uses.retired {
            return None;
        }
        let place = queue.last_place();
        let sharing = applicant.sync.sharing();
        let asks = queue.admits(&*applicant.sync);
        queue.facts |= applicant.sync.facts().is_some();
        if sharing == Sharing::Queued {
            // Each waiter's own first request sets its deadline on the server (F7), so the interval begins with the first of
            // them.
            if queue.waiters.is_empty() {
                queue.kept.restamp = core.clock.now() + RESTAMP;
            }
            queue.kept.by_owner.insert(applicant.owner.clone(), place);
        }
        if !asks {
            queue.count_parked(1);
        }
        queue.waiters.insert(
            place,
            Waiter {
                sync: Arc::clone(&applicant.sync),
                owner: applicant.owner.clone(),
                terms: *terms,
                stay,
                turn: asks.then_some(Turn::Try(Reason::Turn)),
                asking: false,
                asked: Asked::Never,
                asked_before: 0,
                waker: None,
            },
        );
        Some(place)
    }

    /// Keeps the entry in the table as long as a subscription lasts, so that its messages find the waiters that join in that time.
    pub(super) fn keep(&self) {
        self.queue().uses.subscribed = true;
    }

    /// Ends [`LockEntry::keep`].
    pub(super) fn unkept(&self) {
        let mut queue = self.queue();
        queue.uses.subscribed = false;
        if let Some(core) = self.core.upgrade() {
            self.rest_if_idle(&core, queue);
        }
    }

    /// Handles a message: a hint to try (P4), or a grant. Returns false if the message must be remembered for the next waiter.
    pub(crate) fn woken(&self, now: Moment, whom: &Ear, payload: &[u8]) -> bool {
        let queue = self.queue();
        // A subscription lingers after its last waiter. The listener remembers the message for the next one (`unheard`).
        // A later waiter does not need an earlier fact.
        let waits = !queue.waiters.is_empty() || queue.facts;
        self.heard(queue, now, whom, payload);
        waits
    }

    fn heard(&self, mut queue: MutexGuard<'_, Queue>, now: Moment, whom: &Ear, payload: &[u8]) {
        // The first waiter's kind applies to the whole queue: if the server keeps the queue, the family has one kind only.
        let Some(sync) = queue.first().map(|(_, first)| Arc::clone(&first.sync)) else {
            return;
        };
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
        match (heard, whom) {
            (Heard::Granted(granted), _) => self.granted(queue, &granted),
            (Heard::Head(owner, pause), _) => {
                // P4: the head polls at least once in this interval.
                let longest = self
                    .core
                    .upgrade()
                    .map_or(pause, |core| core.poll_interval());
                let at = now + (pause + Duration::from_millis(1)).min(longest);
                self.is_due(queue, owner, at, Reason::Look);
            }
            (Heard::Try(owner, pause), _) => {
                let at = if pause.is_zero() {
                    queue.taken_off(owner);
                    Moment::ZERO
                } else {
                    now + pause
                };
                self.is_due(queue, owner, at, Reason::Told);
            }
            // Redisson's release on a waiter's own channel is for that waiter, at any place in this queue.
            (Heard::Free, Ear::Waiter(owner)) => {
                let place = queue.kept.by_owner.get(owner).copied();
                let wakers = place.map(|place| queue.nudge(place));
                drop(queue);
                wakers.into_iter().for_each(Wakers::call);
            }
            (Heard::Free, _) => {
                queue.refused = 0;
                let wakers = queue.admit(Reason::Told);
                drop(queue);
                wakers.call();
            }
        }
    }

    /// Lets the first waiter send a request because the poll timer has fired.
    pub(crate) fn poll_now(&self, core: &Arc<Core>) {
        let now = core.clock.now();
        let mut queue = self.queue();
        let Some((_, reason)) = queue.poll.take() else {
            return;
        };
        let under_way = queue.asking > 0 || queue.handing.is_some();
        let wakers = match queue.first_sharing() {
            None => return,
            Some(Sharing::Queued) => {
                // One heartbeat keeps the places of all waiters on the server. A waiter's own request only renews its deadline (F7).
                self.attend(core, &mut queue, now);
                if now >= queue.kept.restamp {
                    queue.kept.restamp = now + RESTAMP;
                    queue.admit_all()
                } else {
                    Wakers::default()
                }
            }
            // The requesting waiters may never take their replies (invariant 3), so another sends a request, too.
            Some(Sharing::Permits(_)) if under_way => {
                self.schedule_poll(&mut queue, now + core.poll_interval(), reason);
                queue.admit_another(Reason::Look)
            }
            // A live local holder will call `freed` (invariant 3), so a request now would only be refused. If its release serves the queue
            // on the server instead of a hand-off, this process needs its entry there, which expires without requests.
            Some(_) if under_way || queue.has_live_holder() && !queue.needs_its_entry() => {
                // A wake-up is remembered for the next request. A due poll is not, because it would come at another time.
                if under_way && reason == Reason::Told {
                    queue.remember(Moment::ZERO, reason);
                } else if queue.stands() {
                    self.schedule_poll(&mut queue, now + core.poll_interval(), Reason::Look);
                }
                return;
            }
            Some(_) => queue.admit(reason),
        };
        drop(queue);
        wakers.call();
    }

    /// Lets the first waiter send a request because the subscription was confirmed, or lost.
    pub(crate) fn listening_changed(&self) {
        self.ask_again(Reason::Anew);
    }

    /// Lets the first waiter send a request for `reason`. A waiter that has not taken its turn yet keeps the reason of that turn.
    pub(super) fn ask_again(&self, reason: Reason) {
        let mut queue = self.queue();
        // Confirmed: a message may have been missed before. Lost: the server may be unreachable, and waiters poll more often
        // from now on. The first waiter is enough also where the server keeps the queue: its answer names the waiter of this
        // process that was granted.
        let wakers = queue.admit(reason);
        drop(queue);
        wakers.call();
    }

    /// Lets `owner` send a request because the subscription to its own channel was confirmed.
    pub(crate) fn listening_for(&self, owner: &WireOwner) {
        let mut queue = self.queue();
        let wakers = match queue.kept.by_owner.get(owner).copied() {
            Some(place) => queue.nudge(place),
            None => Wakers::default(),
        };
        drop(queue);
        wakers.call();
    }

    /// Records a hold that was acquired without a place in the queue.
    pub(crate) fn acquired(&self, hold: &Hold) {
        let mut queue = self.queue();
        let sharing = hold.sharing();
        // A reader or a permit may leave room for others, so these do not stop requests.
        if sharing.has_one_holder() {
            queue.holder = hold.weak();
        }
        // P8: 0, because a visitor does not record which waiters had joined before its request. No waiter gets its result.
        let wakers = queue.granted(sharing, 0);
        drop(queue);
        wakers.call();
    }

    /// Records that `hold` has ended. The next waiter sends a request, unless the release has notified it.
    pub(crate) fn freed(&self, core: &Core, hold: &HoldState, end: End) {
        let queue = self.queue();
        if queue.uses.retired {
            drop(queue);
            // A reader or a permit does not keep its queue, so the waiters may have a new one.
            let current = core.entries.table.get(&self.subject);
            // Outside the shard.
            let current = current.map(|it| Arc::clone(&it));
            if let Some(current) = current {
                current.freed_in(current.queue(), core, hold, end);
            }
            return;
        }
        self.freed_in(queue, core, hold, end);
    }

    pub(super) fn freed_in(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        core: &Core,
        hold: &HoldState,
        end: End,
    ) {
        let now = core.clock.now();
        // Invariant 5: otherwise the waiters behind it would wait for a task that is not polled.
        let forsaken = queue.forsake(hold);
        if let Some(waiter) = &forsaken {
            self.departed(core, &mut queue, &*waiter.sync, &waiter.owner);
        }
        // By identity: a late end of an old hold must not free the queue of its successor.
        if std::ptr::eq(queue.holder.as_ptr(), hold) {
            queue.holder = Weak::new();
        }
        // A request in flight may have put the entry into the queue.
        let stands = queue.stands() || queue.asking > 0;
        let in_line = hold.sync.line().is_some();
        let wakers = match hold.sync.sharing() {
            Sharing::Exclusive if queue.has_live_holder() => {
                // Invariant 4: `forsaken` is dropped after the queue is unlocked.
                drop(queue);
                return;
            }
            // An answered release has granted to the next waiter. A lost reply may have contained a grant to a waiter here (P4).
            Sharing::Queued if end == End::Released => Wakers::default(),
            // An event has no holder.
            Sharing::Event => Wakers::default(),
            // The message of the release wakes the waiters.
            Sharing::Together | Sharing::Permits(_) if !in_line && end == End::Released => {
                Wakers::default()
            }
            // The release has granted to the head of the queue, where this process has its entry. A poll follows (invariant 3).
            _ if in_line && stands && end == End::Released => {
                queue.handed = 0;
                self.poll_by(&mut queue, now + core.poll_interval(), Reason::Look);
                Wakers::default()
            }
            // Its waiter may never take a reply again (invariant 3), so another sends a request.
            Sharing::Permits(_) if in_line && hold.is_unclaimed() => {
                queue.admit_another(Reason::Look)
            }
            _ => {
                queue.handed = 0;
                queue.admit(Reason::Turn)
            }
        };
        self.rest_if_idle(core, queue);
        wakers.call();
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
            self.schedule_poll(queue, core.clock.now() + pause, Reason::Look);
        }
        if let Some(server_queue) = server_queue {
            queue.kept.by_owner.remove(owner);
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

    /// Plans a poll at `at`, unless one is planned sooner.
    pub(super) fn poll_by(&self, queue: &mut Queue, at: Moment, reason: Reason) {
        if queue.poll.is_none_or(|((planned, _), _)| at < planned) {
            self.schedule_poll(queue, at, reason);
        }
    }

    /// Plans the next poll at `at`, in place of the one planned so far.
    pub(super) fn schedule_poll(&self, queue: &mut Queue, at: Moment, reason: Reason) {
        if let Some((slot, _)) = queue.poll.take() {
            self.timetable.remove(slot);
        }
        let slot = self.timetable.insert(at, Item::Poll(self.this.clone()));
        queue.poll = Some((slot, reason));
    }

    /// Unlocks the queue. If no user refers to it, resets it; it leaves the table when 256 others have become idle after it.
    pub(super) fn rest_if_idle(&self, core: &Core, mut queue: MutexGuard<'_, Queue>) {
        if !queue.waiters.is_empty() {
            return;
        }
        // A wake-up is kept for waiters only: a waiter that joins an empty queue sends a request at once, or waits for a local holder.
        queue.due = None;
        // P3: the last waiter has left, so the entry on the server is given up.
        let entry = queue.entry.take();
        if let Some((slot, _)) = queue.poll.take() {
            core.timetable.remove(slot);
        }
        let idle = queue.is_idle();
        let newly = idle && !queue.uses.warm;
        if idle {
            queue.reset();
        }
        drop(queue);
        if newly && let Some(this) = self.this.upgrade() {
            core.entries.keep_warm(this);
        }
        drop(entry);
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
        self.subject == Subject::queue_of(sync, name)
    }
}
