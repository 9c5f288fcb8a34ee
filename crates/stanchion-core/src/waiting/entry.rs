//! The local queue of one subject: of what is locked, not of the channel, which several names may share.
//!
//! All waiters of one subject in one process share one [`Entry`]: one subscription, one poll timer. Who asks the server
//! depends on how holders get along ([`Sharing`]): of those who exclude each other only the first, the others move up
//! when it leaves; those who hold together follow the first of them; permits go to as many from the front as a message
//! announces; and where the server keeps the queue, everybody asks at once and is granted by message.
//!
//! # Invariants
//! 1. While an exclusive waiter asks, or is being handed the hold, nobody else of its queue asks, and it was the first
//!    when that began.
//! 2. A wake is never lost (P4): if it comes while somebody asks, `again` remembers it; if a waiter that was told to
//!    ask leaves without having acquired, the next one is told.
//! 3. While there are waiters, something will make the first one ask: a local holder (its end calls [`Entry::freed`]),
//!    a poll in the timetable, or a `Try` already given.
//! 4. No hold is dropped and no waker is called, cloned or dropped while the queue's mutex is held: it may own anything.
//! 5. What nobody comes for goes on: a hold that a waiter was given is not renewed beyond its first lease until the waiter
//!    takes it, and when it has run out its waiter loses its place.
//! 6. The first waiter for several permits asks once when it has become the first, and takes its place in line on the server;
//!    nobody behind it has one. So the order of the places of a process is that of its queue.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;

use dashmap::DashMap;

use super::queue::{Queue, Room, Turn, Waiter, Wakers};
use super::ticket::{Applicant, Ticket, Visit};
use crate::client::Core;
use crate::hold::{Grant, Hold, HoldState};
use crate::name::Name;
use crate::options::HoldTerms;
use crate::owner::WireOwner;
use crate::primitive::{Heard, Sharing, Subject, Synchronizer};
use crate::release::Leftover;
use crate::timetable::{Item, Timetable};
use stanchion_transport::Moment;

/// Hand-offs in a row before the lock is released in public.
///
/// Alone, that costs 2 commands in 17. When other processes are known to wait, turns are short.
const TURN_ALONE: u32 = 16;
const TURN_AMONG_RIVALS: u32 = 8;

/// How many releases of others a process lets pass, at most, after it had its turn. The server tells its subscribers in
/// a fixed order, so without this the first two would pass the lock to and fro.
const MOST_OWED: u32 = 16;

/// After a public release that others heard they get this head start; the local queue is always nearer.
const YIELD: Duration = Duration::from_millis(1);

/// Where the server keeps the queue, every waiter asks again after this long: a quarter of the time after which
/// Redisson takes a waiter for dead (its `fairLockWaitTimeout`, 300 s).
const RESTAMP: Duration = Duration::from_secs(75);

/// Whether other processes heard of a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rivals {
    /// So many at most.
    Present(u32),
    Absent,
    /// Nothing was published, so nothing is known.
    Unknown,
}

/// The waiter a hold is about to be passed to.
#[derive(Clone, Debug)]
pub(crate) struct Successor {
    place: u64,
    /// What it waits for: the same name, with its own way of minting tokens.
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) terms: HoldTerms,
}

/// All queues of a client.
#[derive(Debug, Default)]
pub(crate) struct Entries(DashMap<Subject, Arc<Entry>>);

impl Entries {
    fn get(&self, core: &Arc<Core>, subject: &Subject, channel: &[u8]) -> Arc<Entry> {
        if let Some(entry) = self.0.get(subject) {
            return Arc::clone(&entry);
        }
        Arc::clone(
            &self
                .0
                .entry(subject.clone())
                .or_insert_with(|| Entry::new(subject, channel, core)),
        )
    }

    /// Takes a place in the queue of what is asked for.
    pub(crate) fn join(core: &Arc<Core>, applicant: Applicant) -> Ticket {
        let sync = Arc::clone(&applicant.sync);
        Self::join_at(core, sync.name(), sync.channel(), applicant)
    }

    /// Takes a place in the queue of `name`.
    pub(crate) fn join_at(
        core: &Arc<Core>,
        name: &Name,
        channel: &[u8],
        applicant: Applicant,
    ) -> Ticket {
        let subject = Subject::named(&*applicant.sync, name);
        loop {
            let entry = core.entries.get(core, &subject, channel);
            if let Some(place) = entry.join(core, &applicant) {
                return Ticket {
                    core: Arc::clone(core),
                    entry,
                    applicant,
                    place: Some(place),
                };
            }
            // It was retired between the look-up and the join: the next look-up makes a new one.
        }
    }

    /// Keeps the entry in the table without queueing: for an attempt that does not wait.
    pub(crate) fn visit(core: &Arc<Core>, sync: &dyn Synchronizer) -> Visit {
        let subject = Subject::of(sync);
        loop {
            let entry = core.entries.get(core, &subject, sync.channel());
            let mut queue = entry.queue();
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

    /// What waiters that have asked may have left on the server.
    pub(crate) fn places(&self) -> Vec<(Arc<dyn Synchronizer>, Leftover)> {
        let mut places = Vec::new();
        for entry in &self.0 {
            let queue = entry.queue();
            let asked = |waiter: &&Waiter| waiter.asked && waiter.sync.leaves_sign();
            places.extend(queue.waiters.values().filter(asked).map(|waiter| {
                let leftover = Leftover {
                    owner: waiter.owner.clone(),
                    lease: waiter.terms.lease,
                    unanswered_until: Moment::ZERO,
                };
                (Arc::clone(&waiter.sync), leftover)
            }));
        }
        places
    }

    /// Holds that were passed or granted to waiters which have not looked yet.
    pub(crate) fn unclaimed(&self) -> Vec<Hold> {
        let mut holds = Vec::new();
        for entry in &self.0 {
            let queue = &mut *entry.queue();
            for waiter in queue.waiters.values_mut() {
                match waiter.turn.take() {
                    Some(Turn::Handed(hold) | Turn::Granted(hold)) => {
                        holds.push(hold);
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
        self.0.iter().map(|entry| entry.queue().waiters.len()).sum()
    }
}

/// The queue of one subject.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(super) this: Weak<Self>,
    subject: Subject,
    channel: Vec<u8>,
    pub(super) queue: Mutex<Queue>,
    pub(super) core: Weak<Core>,
    pub(super) timetable: Arc<Timetable>,
}

impl Entry {
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

    pub(super) fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn join(&self, core: &Core, applicant: &Applicant) -> Option<u64> {
        let mut queue = self.queue();
        if queue.retired {
            return None;
        }
        let place = queue.last_place();
        let sharing = applicant.sync.sharing();
        // Whoever would be among the first to ask does so at once, unless one of us is known to be in the way.
        let asks = match sharing {
            Sharing::Exclusive => queue.waiters.is_empty(),
            Sharing::Together => queue.parked == 0 && queue.exclusives == 0,
            Sharing::Permits(_) => !queue.permits_wanted(),
            Sharing::Event => queue.parked == 0,
            Sharing::Queued => true,
        };
        let asks = asks
            && (sharing == Sharing::Queued || queue.handing.is_none() && !queue.has_live_holder());
        if sharing == Sharing::Exclusive {
            queue.exclusives += 1;
        }
        if sharing == Sharing::Queued {
            if queue.waiters.is_empty() {
                queue.restamp = core.clock.now() + RESTAMP;
            }
            queue.by_owner.insert(applicant.owner.clone(), place);
        }
        if !asks {
            queue.parked += 1;
        }
        queue.waiters.insert(
            place,
            Waiter {
                sync: Arc::clone(&applicant.sync),
                owner: applicant.owner.clone(),
                terms: applicant.terms,
                joined: core.clock.now(),
                turn: asks.then_some(Turn::Try),
                asking: false,
                asked: false,
                asked_before: 0,
                refused: false,
                asked_first: false,
                waker: None,
            },
        );
        Some(place)
    }

    /// A message: a hint to try (P4), or a grant. `whom`: it came on a channel of one waiter's own.
    pub(crate) fn woken(&self, now: Moment, whom: Option<&WireOwner>, payload: &[u8]) {
        let mut queue = self.queue();
        let Some((_, first)) = queue.first() else {
            return;
        };
        let sync = Arc::clone(&first.sync);
        let mut wakers = Wakers::default();
        let room = match sync.hear(payload) {
            Heard::Granted {
                owner,
                token,
                now,
                lease,
            } => {
                // The hold begins here, not when its waiter is polled: the short lease of a grant is made a whole one at once.
                if let (Some(core), Some(entry), Some(place)) = (
                    self.core.upgrade(),
                    self.this.upgrade(),
                    queue.by_owner.get(owner).copied(),
                ) && let Some(waiter) = queue.waiters.get(&place)
                    && !matches!(waiter.turn, Some(Turn::Granted(_)))
                {
                    let grant = Grant {
                        owner: waiter.owner.clone(),
                        token,
                        terms: waiter.terms,
                        sent: core.when(sync.name(), now),
                        first: Some(lease),
                        unanswered_until: Moment::ZERO,
                    };
                    let hold = HoldState::begin(&core, &waiter.sync, &entry, grant);
                    queue.tell(place, Turn::Granted(hold.unclaimed()), &mut wakers);
                }
                drop(queue);
                return wakers.call();
            }
            Heard::Free(room) => room,
        };
        if let Some(owner) = whom {
            if let Some(place) = queue.by_owner.get(owner).copied() {
                wakers = queue.nudge(place);
            }
            drop(queue);
            return wakers.call();
        }
        if let Some(until) = queue.deaf_until
            && now < until
        {
            if queue.asking > 0 || queue.handing.is_some() {
                queue.again = queue.again.max(room);
            } else if until == Moment::FAR {
                // Our release is still unanswered, perhaps for long. The others have their start from now on.
                queue.deaf_until = Some(now + YIELD);
                self.schedule_poll(&mut queue, now + YIELD);
            }
            return;
        }
        if queue.owed > 0 && queue.asking == 0 && queue.handing.is_none() {
            queue.owed -= 1;
            return self.schedule_poll(&mut queue, now + YIELD);
        }
        queue.refused = 0;
        let wakers = queue.admit(Room::For(room));
        drop(queue);
        wakers.call();
    }

    /// The poll timer rang.
    pub(crate) fn poll_now(&self, core: &Arc<Core>) {
        let now = core.clock.now();
        let mut queue = self.queue();
        queue.poll = None;
        queue.deaf_until = None;
        let wakers = match queue.first_sharing() {
            None => return,
            Some(Sharing::Queued) => {
                self.attend(core, &mut queue, now);
                if now >= queue.restamp {
                    queue.restamp = now + RESTAMP;
                    queue.admit_all()
                } else {
                    Wakers::default()
                }
            }
            // Several ask at once there, and the first may have a place to keep on the server.
            Some(Sharing::Permits(_)) => {
                let mut wakers = queue.admit(Room::Unknown);
                wakers.0.extend(queue.offer_passed().0);
                wakers
            }
            // A live local holder will call `freed`; asking the server meanwhile would be noise (invariant 3).
            Some(_) if queue.asking > 0 || queue.handing.is_some() || queue.has_live_holder() => {
                return;
            }
            Some(_) => queue.admit(Room::Unknown),
        };
        drop(queue);
        wakers.call();
    }

    /// Subscribed (again), or deaf from now on.
    pub(crate) fn listening_changed(&self) {
        let mut queue = self.queue();
        // Confirmed: something may have happened before. Lost: the server may be gone, and the pace changes. Where the
        // server keeps the queue, one answer tells of a grant to any of us.
        let wakers = queue.admit(Room::Unknown);
        drop(queue);
        wakers.call();
    }

    /// The channel of one waiter's own is subscribed to.
    pub(crate) fn listening_for(&self, owner: &WireOwner) {
        let mut queue = self.queue();
        let wakers = match queue.by_owner.get(owner).copied() {
            Some(place) => queue.nudge(place),
            None => Wakers::default(),
        };
        drop(queue);
        wakers.call();
    }

    /// Whoever is first, to be passed the hold of `sync` that is about to be given up; it will not try by itself
    /// meanwhile.
    pub(crate) fn successor(&self, sync: &dyn Synchronizer) -> Option<Successor> {
        let mut queue = self.queue();
        let turn = if queue.rivals {
            TURN_AMONG_RIVALS
        } else {
            TURN_ALONE
        };
        if queue.asking > 0 || queue.handing.is_some() || queue.handed >= turn {
            return None;
        }
        let (place, waiter) = queue.first()?;
        if !sync.hands_off() || waiter.sync.kind() != sync.kind() {
            return None;
        }
        let successor = Successor {
            place,
            sync: Arc::clone(&waiter.sync),
            terms: waiter.terms,
        };
        queue.handing = Some(place);
        // A `Try` given before is void: the hold comes by itself.
        if let Some(waiter) = queue.waiters.get_mut(&place)
            && waiter.turn.take().is_some()
        {
            queue.parked += 1;
        }
        Some(successor)
    }

    /// A public release is about to be sent. Its message may come back to us before its answer, and must not give our
    /// first waiter the start that belongs to others: [`Entry::freed`] decides when it tries.
    pub(crate) fn releasing(&self) {
        self.queue().deaf_until = Some(Moment::FAR);
    }

    /// Passes the hold on. A successor that has left in the meantime does not take it: dropped here, it goes to the next.
    pub(crate) fn hand_over(&self, successor: Successor, hold: Hold) {
        let mut queue = self.queue();
        queue.handing = None;
        queue.again = 0;
        queue.handed += 1;
        queue.holder = hold.weak();
        if !queue.waiters.contains_key(&successor.place) {
            drop(queue);
            return drop(hold);
        }
        let mut wakers = Wakers::default();
        queue.tell(successor.place, Turn::Handed(hold.unclaimed()), &mut wakers);
        drop(queue);
        wakers.call();
    }

    /// A hold has been acquired by asking the server, without a place in the queue.
    pub(crate) fn acquired(&self, hold: &Hold, left: u32) {
        let mut queue = self.queue();
        let sharing = hold.sharing();
        if sharing == Sharing::Exclusive {
            queue.holder = hold.weak();
        }
        let wakers = queue.granted(sharing, left, 0);
        drop(queue);
        wakers.call();
    }

    /// `hold` is over here. The next waiter tries, at once or after a head start for others.
    pub(crate) fn freed(&self, core: &Core, hold: &HoldState, rivals: Rivals) {
        let now = core.clock.now();
        let mut queue = self.queue();
        let forsaken = queue.forsake(hold);
        if let Some(waiter) = &forsaken {
            self.departed(core, &mut queue, &*waiter.sync, &waiter.owner);
        }
        let wakers = match hold.sync.sharing() {
            Sharing::Exclusive => {
                queue.deaf_until = None;
                if std::ptr::eq(queue.holder.as_ptr(), hold) {
                    queue.holder = Weak::new();
                } else if queue.has_live_holder() {
                    return;
                }
                queue.handed = 0;
                if rivals != Rivals::Unknown {
                    queue.rivals = matches!(rivals, Rivals::Present(_));
                }
                if let Rivals::Present(others) = rivals
                    && !queue.waiters.is_empty()
                    && queue.asking == 0
                    && queue.handing.is_none()
                {
                    queue.owed = others.saturating_sub(1).min(MOST_OWED);
                    queue.deaf_until = Some(now + YIELD);
                    self.schedule_poll(&mut queue, now + YIELD);
                    Wakers::default()
                } else {
                    queue.admit(Room::Unknown)
                }
            }
            // Its message comes back to us, if we listen.
            Sharing::Together | Sharing::Permits(_)
                if rivals == Rivals::Unknown || !core.subscriptions.reaches(self) =>
            {
                queue.admit(Room::Unknown)
            }
            _ => Wakers::default(),
        };
        self.retire_if_idle(core, queue);
        wakers.call();
        // Invariant 4.
        drop(forsaken);
    }

    /// A waiter has left the queue.
    pub(super) fn departed(
        &self,
        core: &Core,
        queue: &mut Queue,
        sync: &dyn Synchronizer,
        owner: &WireOwner,
    ) {
        let sharing = sync.sharing();
        if sharing != Sharing::Exclusive && !queue.waiters.is_empty() && queue.poll.is_none() {
            // Invariant 3: its poll was everybody's, and no holder here calls the next.
            let longest = core.poll_interval();
            let pause = if sharing == Sharing::Queued {
                sync.beat().min(longest)
            } else {
                longest
            };
            self.schedule_poll(queue, core.clock.now() + pause);
        }
        if sharing == Sharing::Queued {
            queue.by_owner.remove(owner);
            if let Some(own) = sync.channel_of(owner) {
                core.subscriptions.forget_for(self, owner, &own);
            }
        }
        if queue.waiters.is_empty() {
            core.subscriptions.forget(self);
        }
    }

    /// A hand-off came to nothing.
    pub(crate) fn not_handed(&self) {
        let mut queue = self.queue();
        queue.handing = None;
        let wakers = queue.admit(Room::Unknown);
        drop(queue);
        wakers.call();
    }

    /// A poll at `at`, unless one comes sooner.
    pub(super) fn poll_by(&self, queue: &mut Queue, at: Moment) {
        if queue.poll.is_none_or(|(planned, _)| at < planned) {
            self.schedule_poll(queue, at);
        }
    }

    pub(super) fn schedule_poll(&self, queue: &mut Queue, at: Moment) {
        if let Some(slot) = queue.poll.take() {
            self.timetable.remove(slot);
        }
        queue.poll = Some(self.timetable.insert(at, Item::Poll(self.this.clone())));
    }

    pub(super) fn retire_if_idle(&self, core: &Core, mut queue: MutexGuard<'_, Queue>) {
        if !queue.waiters.is_empty() {
            return;
        }
        queue.again = 0;
        if let Some(slot) = queue.poll.take() {
            core.timetable.remove(slot);
        }
        let idle = queue.is_idle();
        queue.retired = idle;
        drop(queue);
        if idle {
            core.entries.0.remove_if(&self.subject, |_, entry| {
                std::ptr::eq(Arc::as_ptr(entry), self)
            });
        }
    }

    pub(crate) fn channel(&self) -> &[u8] {
        &self.channel
    }

    pub(crate) fn subject(&self) -> &Subject {
        &self.subject
    }

    /// Whether it is the queue of `name`, for `sync` or another of its family.
    pub(crate) fn is_for(&self, sync: &dyn Synchronizer, name: &Name) -> bool {
        self.subject == Subject::named(sync, name)
    }
}
