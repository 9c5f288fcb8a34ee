//! The local queue of one name.
//!
//! All waiters of one name in one process share one [`Entry`]: one subscription, one poll timer. Who asks the server
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
//! 4. No hold is dropped and no waker is called while the queue's mutex is held.

use std::collections::{BTreeMap, HashMap};
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use dashmap::DashMap;

use crate::client::{Core, Path};
use crate::clock::Moment;
use crate::config::Wake;
use crate::hold::{Grant, Hold, HoldState};
use crate::options::HoldTerms;
use crate::owner::WireOwner;
use crate::primitive::{
    Heard, Hint, Reply, Request, Sharing, Synchronizer, Verdict, now_of, rest_of,
};
use crate::timetable::{Item, Slot, Timetable};
use crate::transport::Failure;

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

/// Without a confirmed subscription nothing wakes a waiter but its own asking.
const POLL_UNSUBSCRIBED: Duration = Duration::from_millis(250);

/// The first and the longest pause of [`Wake::Poll`].
const SPIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(128));

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

/// What a waiter is told.
#[derive(Debug)]
pub(crate) enum Turn {
    /// Ask the server.
    Try,
    /// The hold was passed on to it.
    Handed(Hold),
    /// What it waits for has happened.
    Seen,
    /// The server has granted to it, by message.
    Granted(Hold),
}

/// For how much a wake announces room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Room {
    For(u32),
    Unknown,
}

/// Who wants a place in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) owner: WireOwner,
    pub(crate) terms: HoldTerms,
}

/// The waiter a hold is about to be passed to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Successor {
    place: u64,
    pub(crate) terms: HoldTerms,
}

/// All queues of a client, by channel.
#[derive(Debug, Default)]
pub(crate) struct Entries(DashMap<Vec<u8>, Arc<Entry>>);

impl Entries {
    fn get(&self, core: &Arc<Core>, channel: &[u8]) -> Arc<Entry> {
        if let Some(entry) = self.0.get(channel) {
            return Arc::clone(&entry);
        }
        Arc::clone(
            &self
                .0
                .entry(channel.to_vec())
                .or_insert_with(|| Entry::new(channel, core)),
        )
    }

    /// Takes a place in the queue of `channel`.
    pub(crate) fn join(core: &Arc<Core>, channel: &[u8], applicant: Applicant) -> Ticket {
        loop {
            let entry = core.entries.get(core, channel);
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

    /// Keeps the entry of `channel` in the table without queueing: for an attempt that does not wait.
    pub(crate) fn visit(core: &Arc<Core>, channel: &[u8]) -> Visit {
        loop {
            let entry = core.entries.get(core, channel);
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

    pub(crate) fn waiters(&self) -> usize {
        self.0.iter().map(|entry| entry.queue().waiters.len()).sum()
    }
}

/// The queue of one name.
#[derive(Debug)]
pub(crate) struct Entry {
    this: Weak<Self>,
    channel: Vec<u8>,
    queue: Mutex<Queue>,
    core: Weak<Core>,
    timetable: Arc<Timetable>,
}

#[derive(Debug, Default)]
struct Queue {
    /// No longer in the table of entries: nobody may join.
    retired: bool,
    /// By order of arrival.
    waiters: BTreeMap<u64, Waiter>,
    next: u64,
    /// Waiters that neither ask nor have been told anything.
    parked: usize,
    exclusives: usize,
    /// Waiters that ask the server.
    asking: usize,
    /// The holder passes its hold to the waiter at this place.
    handing: Option<u64>,
    /// Attempts under way that have no place in the queue.
    visitors: u32,
    /// For so much a wake announced room while others asked.
    again: u32,
    /// Permits: each grant lets the next one ask, until one is refused. Nothing was said about how many are free.
    chain: bool,
    /// The exclusive holder, if it is of this process.
    holder: Weak<HoldState>,
    /// Hand-offs since the last public release.
    handed: u32,
    rivals: bool,
    /// Wakes before this moment are our own echo, or meant for others first.
    deaf_until: Option<Moment>,
    /// Messages that are for others first: answered after a head start.
    owed: u32,
    poll: Option<Slot>,
    /// Refusals in a row, for [`Wake::Poll`].
    refused: u32,
    /// Waiters of a queue that the server keeps.
    by_owner: HashMap<WireOwner, u64>,
    restamp: Moment,
    /// A sign of life is under way.
    attending: bool,
}

#[derive(Debug)]
struct Waiter {
    sync: Arc<dyn Synchronizer>,
    owner: WireOwner,
    terms: HoldTerms,
    turn: Option<Turn>,
    asking: bool,
    /// It has asked at least once.
    asked: bool,
    waker: Option<Waker>,
}

impl Waiter {
    fn is_parked(&self) -> bool {
        self.turn.is_none() && !self.asking
    }
}

/// Wakers to be called when the queue is unlocked.
#[derive(Debug, Default)]
#[must_use]
struct Wakers(Vec<Waker>);

impl Wakers {
    fn call(self) {
        for waker in self.0 {
            waker.wake();
        }
    }
}

impl Queue {
    fn first(&self) -> Option<(u64, &Waiter)> {
        self.waiters
            .first_key_value()
            .map(|(place, waiter)| (*place, waiter))
    }

    fn first_sharing(&self) -> Option<Sharing> {
        self.first().map(|(_, waiter)| waiter.sync.sharing())
    }

    fn has_live_holder(&self) -> bool {
        self.holder.upgrade().is_some_and(|hold| hold.is_held())
    }

    /// Tells a waiter that has nothing to do yet.
    fn tell(&mut self, place: u64, turn: Turn, wakers: &mut Wakers) {
        if let Some(waiter) = self.waiters.get_mut(&place) {
            if waiter.is_parked() {
                self.parked -= 1;
            }
            waiter.turn = Some(turn);
            wakers.0.extend(waiter.waker.take());
        }
    }

    /// Tells those at the front for whom there may be room to ask.
    fn admit(&mut self, room: Room) -> Wakers {
        let mut wakers = Wakers::default();
        let mut left = match room {
            Room::For(n) => n,
            Room::Unknown => 1,
        };
        if self.handing.is_none() {
            let mut told = Vec::new();
            for (place, waiter) in &self.waiters {
                let sharing = waiter.sync.sharing();
                if waiter.is_parked() {
                    if let (Sharing::Permits(wanted), Room::For(_)) = (sharing, room) {
                        if wanted > left {
                            // First come, first served: those behind it wait for it.
                            break;
                        }
                        left -= wanted;
                    } else {
                        left = 0;
                    }
                    told.push(*place);
                }
                if left == 0 || !matches!(sharing, Sharing::Permits(_)) {
                    break;
                }
            }
            for place in told {
                self.tell(place, Turn::Try, &mut wakers);
            }
        }
        if left > 0 && (self.asking > 0 || self.handing.is_some()) {
            // Invariant 2.
            self.again = self.again.max(left);
        }
        wakers
    }

    fn admit_all(&mut self) -> Wakers {
        let mut wakers = Wakers::default();
        let parked: Vec<u64> = self
            .waiters
            .iter()
            .filter(|(_, waiter)| waiter.is_parked())
            .map(|(place, _)| *place)
            .collect();
        for place in parked {
            self.tell(place, Turn::Try, &mut wakers);
        }
        wakers
    }

    /// What a grant to one waiter means for those behind it.
    fn granted(&mut self, sharing: Sharing) -> Wakers {
        let mut wakers = Wakers::default();
        self.refused = 0;
        match sharing {
            // They are called when the hold ends.
            Sharing::Exclusive => {
                self.again = 0;
                self.handed = 0;
                self.owed = 0;
            }
            Sharing::Together => {
                self.again = 0;
                let mut group = Vec::new();
                for (place, waiter) in &self.waiters {
                    let together = waiter.sync.sharing() == Sharing::Together;
                    // An exclusive one that has not asked yet must, for the server to know of it.
                    let newcomer = !waiter.asked && self.asking == 0 && group.is_empty();
                    if waiter.is_parked() && (together || newcomer) {
                        group.push(*place);
                    }
                    if !together {
                        break;
                    }
                }
                for place in group {
                    self.tell(place, Turn::Try, &mut wakers);
                }
            }
            Sharing::Permits(_) => {
                let heard = std::mem::take(&mut self.again);
                if heard > 0 {
                    wakers = self.admit(Room::For(heard));
                } else if self.chain {
                    wakers = self.admit(Room::Unknown);
                }
            }
            Sharing::Event => {
                let places: Vec<u64> = self.waiters.keys().copied().collect();
                for place in places {
                    self.tell(place, Turn::Seen, &mut wakers);
                }
            }
            Sharing::Queued => {}
        }
        wakers
    }

    /// Takes a waiter out, with what it was told.
    fn remove(&mut self, place: u64) -> Option<Waiter> {
        let waiter = self.waiters.remove(&place)?;
        if waiter.is_parked() {
            self.parked -= 1;
        }
        if waiter.asking {
            self.asking -= 1;
        }
        if waiter.sync.sharing() == Sharing::Exclusive {
            self.exclusives -= 1;
        }
        Some(waiter)
    }

    /// An attempt brought no grant.
    fn came_back(&mut self, place: u64) {
        if let Some(waiter) = self.waiters.get_mut(&place)
            && waiter.asking
        {
            waiter.asking = false;
            self.asking -= 1;
            if waiter.turn.is_none() {
                self.parked += 1;
            }
        }
    }

    fn is_idle(&self) -> bool {
        self.waiters.is_empty()
            && self.visitors == 0
            && self.handing.is_none()
            && self.holder.strong_count() == 0
    }
}

impl Entry {
    fn new(channel: &[u8], core: &Arc<Core>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            channel: channel.to_vec(),
            queue: Mutex::default(),
            core: Arc::downgrade(core),
            timetable: Arc::clone(&core.timetable),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, core: &Core, applicant: &Applicant) -> Option<u64> {
        let mut queue = self.queue();
        if queue.retired {
            return None;
        }
        let place = queue.next;
        queue.next += 1;
        let sharing = applicant.sync.sharing();
        // Whoever would be among the first to ask does so at once, unless one of us is known to be in the way.
        let asks = match sharing {
            Sharing::Exclusive => queue.waiters.is_empty(),
            Sharing::Together => queue.parked == 0 && queue.exclusives == 0,
            Sharing::Permits(_) | Sharing::Event => queue.parked == 0,
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
                turn: asks.then_some(Turn::Try),
                asking: false,
                asked: false,
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
                // The hold begins here, not when its waiter is polled: it is renewed however long that takes (P10).
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
                        sent: core.when(now),
                        first: Some(lease),
                        unanswered_until: Moment::ZERO,
                    };
                    let hold = HoldState::begin(&core, &waiter.sync, &entry, grant);
                    queue.tell(place, Turn::Granted(hold), &mut wakers);
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
            // A live local holder will call `freed`; asking the server meanwhile would be noise (invariant 3).
            Some(_) if queue.asking > 0 || queue.handing.is_some() || queue.has_live_holder() => {
                return;
            }
            Some(_) => {
                queue.chain = true;
                queue.admit(Room::Unknown)
            }
        };
        drop(queue);
        wakers.call();
    }

    /// Subscribed (again), or deaf from now on.
    pub(crate) fn listening_changed(&self) {
        let mut queue = self.queue();
        queue.chain = true;
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

    /// Sends a sign of life from the background, where no executor of a user's can delay it, and plans the next.
    fn attend(&self, core: &Arc<Core>, queue: &mut Queue, now: Moment) {
        let Some((_, first)) = queue.first() else {
            return;
        };
        let (sync, owner, lease) = (
            Arc::clone(&first.sync),
            first.owner.clone(),
            first.terms.lease,
        );
        self.schedule_poll(queue, now + sync.beat());
        let Some(entry) = self.this.upgrade().filter(|_| !queue.attending) else {
            return;
        };
        queue.attending = true;
        let core = Arc::clone(core);
        let runner = Arc::clone(&core.runner);
        runner.serve(async move {
            let request = Request {
                owner: &owner,
                lease,
                not_after: core.not_after(now),
                waits: true,
                queued: true,
                within: None,
            };
            let answer = match sync.attend(&request) {
                Some(call) => core.link(Path::Background).call(&call).await,
                None => return,
            };
            if let Some(server) = answer.as_ref().ok().and_then(now_of) {
                core.observe(server, now);
            }
            entry.attended(&core, &*sync, &owner, answer);
        });
    }

    fn attended(
        &self,
        core: &Core,
        sync: &dyn Synchronizer,
        owner: &WireOwner,
        answer: Result<Reply, Failure>,
    ) {
        let mut queue = self.queue();
        queue.attending = false;
        // Whoever has left or was granted meanwhile is missing on the server for a reason.
        if !queue.by_owner.contains_key(owner) {
            return;
        }
        let wakers = match answer {
            Ok(reply) => {
                if let Some(Verdict::Busy(Some(ttl))) = Verdict::read(&reply) {
                    let at = core.clock.now() + after_expiry(core, Duration::from_millis(ttl));
                    self.poll_by(&mut queue, at);
                }
                queue.heed(&sync.hint(rest_of(&reply)))
            }
            // Who waits is to learn it from an answer of its own.
            Err(Failure::Rejected(_)) => queue.admit(Room::Unknown),
            Err(_) => Wakers::default(),
        };
        drop(queue);
        wakers.call();
    }

    /// A poll at `at`, unless one comes sooner.
    fn poll_by(&self, queue: &mut Queue, at: Moment) {
        if queue.poll.is_none_or(|(planned, _)| at < planned) {
            self.schedule_poll(queue, at);
        }
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
        queue.tell(successor.place, Turn::Handed(hold), &mut wakers);
        drop(queue);
        wakers.call();
    }

    /// A hold has been acquired by asking the server, without a place in the queue.
    pub(crate) fn acquired(&self, hold: &Hold) {
        let mut queue = self.queue();
        let sharing = hold.sharing();
        if sharing == Sharing::Exclusive {
            queue.holder = hold.weak();
        }
        let wakers = queue.granted(sharing);
        drop(queue);
        wakers.call();
    }

    /// `hold` is over here. The next waiter tries, at once or after a head start for others.
    pub(crate) fn freed(&self, core: &Core, hold: &Arc<HoldState>, rivals: Rivals) {
        let now = core.clock.now();
        let mut queue = self.queue();
        let wakers = match hold.sync.sharing() {
            Sharing::Exclusive => {
                queue.deaf_until = None;
                if std::ptr::eq(queue.holder.as_ptr(), Arc::as_ptr(hold)) {
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
                if rivals == Rivals::Unknown || !core.subscriptions.hears(&self.channel) =>
            {
                queue.chain = true;
                queue.admit(Room::Unknown)
            }
            _ => Wakers::default(),
        };
        self.retire_if_idle(core, queue);
        wakers.call();
    }

    /// A hand-off came to nothing.
    pub(crate) fn not_handed(&self) {
        let mut queue = self.queue();
        queue.handing = None;
        let wakers = queue.admit(Room::Unknown);
        drop(queue);
        wakers.call();
    }

    fn schedule_poll(&self, queue: &mut Queue, at: Moment) {
        if let Some(slot) = queue.poll.take() {
            self.timetable.remove(slot);
        }
        queue.poll = Some(self.timetable.insert(at, Item::Poll(self.this.clone())));
    }

    fn retire_if_idle(&self, core: &Core, mut queue: MutexGuard<'_, Queue>) {
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
            core.entries.0.remove_if(&self.channel, |_, entry| {
                std::ptr::eq(Arc::as_ptr(entry), self)
            });
        }
    }

    pub(crate) fn channel(&self) -> &[u8] {
        &self.channel
    }
}

/// An expiry sends no message. One millisecond more, because a key lives through the last one.
fn after_expiry(core: &Core, ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1) + core.jitter(Duration::from_millis(2))
}

impl Queue {
    /// What an answer about a queue that the server keeps means for the waiters.
    fn heed(&mut self, hint: &Hint) -> Wakers {
        if hint.forgotten {
            return self.admit_all();
        }
        let granted = hint.granted.as_deref();
        match granted.and_then(|owner| self.by_owner.get(owner).copied()) {
            Some(place) => self.nudge(place),
            None => Wakers::default(),
        }
    }

    /// Lets one waiter ask, or ask again when it is asking.
    fn nudge(&mut self, place: u64) -> Wakers {
        let mut wakers = Wakers::default();
        if self
            .waiters
            .get(&place)
            .is_some_and(|waiter| waiter.turn.is_none())
        {
            self.tell(place, Turn::Try, &mut wakers);
        }
        wakers
    }
}

/// A place in a queue. Dropped, it is given up and whatever it was told is passed on.
#[derive(Debug)]
pub(crate) struct Ticket {
    core: Arc<Core>,
    entry: Arc<Entry>,
    applicant: Applicant,
    place: Option<u64>,
}

impl Ticket {
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }

    /// Waits for this waiter's turn. Cancel safe: the turn stays until it is taken.
    pub(crate) async fn turn(&mut self) -> Turn {
        poll_fn(|cx| {
            let Some(place) = self.place else {
                return Poll::Pending;
            };
            let mut queue = self.entry.queue();
            let Some(waiter) = queue.waiters.get_mut(&place) else {
                return Poll::Pending;
            };
            match waiter.turn.take() {
                Some(Turn::Try) => {
                    waiter.asking = true;
                    waiter.asked = true;
                    queue.asking += 1;
                    Poll::Ready(Turn::Try)
                }
                Some(turn) => {
                    queue.parked += 1;
                    self.place = None;
                    self.leave(queue, place, Wakers::default());
                    Poll::Ready(turn)
                }
                None => {
                    if !waiter
                        .waker
                        .as_ref()
                        .is_some_and(|waker| waker.will_wake(cx.waker()))
                    {
                        waiter.waker = Some(cx.waker().clone());
                    }
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Whether it would have to wait for its turn now.
    pub(crate) fn must_wait(&self) -> bool {
        let queue = self.entry.queue();
        self.place
            .and_then(|place| queue.waiters.get(&place))
            .is_some_and(|waiter| waiter.turn.is_none())
    }

    /// The try found no room: wait for a message, at most for as long as the server said or the poll interval.
    pub(crate) fn busy(&self, ttl: Option<Duration>, hint: &Hint) {
        let Some(place) = self.place else { return };
        let subscribed = self.core.subscriptions.want(&self.entry);
        if hint.foreign
            && let Some(own) = self.applicant.sync.channel_of(&self.applicant.owner)
        {
            let owner = &self.applicant.owner;
            self.core.subscriptions.want_for(&self.entry, owner, &own);
        }
        let now = self.core.clock.now();
        let mut queue = self.entry.queue();
        queue.came_back(place);
        queue.chain = false;
        let again = std::mem::take(&mut queue.again);
        let mut wakers = queue.heed(hint);
        if wakers.0.is_empty() && again > 0 {
            // Invariant 2.
            wakers = queue.admit(Room::For(again));
            if !wakers.0.is_empty() || queue.parked == 0 {
                drop(queue);
                return wakers.call();
            }
        }
        queue.refused = queue.refused.saturating_add(1);
        let pause = self.pause(&queue, ttl, subscribed);
        let at = now + pause;
        // Where several ask, one that may wait long must not put off another's poll.
        let several = matches!(
            self.applicant.sync.sharing(),
            Sharing::Queued | Sharing::Permits(_)
        );
        if several {
            self.entry.poll_by(&mut queue, at);
        } else {
            self.entry.schedule_poll(&mut queue, at);
        }
        drop(queue);
        wakers.call();
    }

    fn pause(&self, queue: &Queue, ttl: Option<Duration>, subscribed: bool) -> Duration {
        let sync = &self.applicant.sync;
        let mut pause = if self.core.config.wake == Wake::Poll {
            let doublings = queue.refused.saturating_sub(1).min(7);
            let longest = (SPIN.0 * (1 << doublings)).min(SPIN.1);
            longest / 2 + self.core.jitter(longest / 2)
        } else if subscribed {
            self.core.poll_interval()
        } else {
            POLL_UNSUBSCRIBED
        };
        if sync.sharing() == Sharing::Queued {
            pause = pause.min(sync.beat());
        }
        if let Some(ttl) = ttl {
            pause = pause.min(after_expiry(&self.core, ttl));
        }
        pause
    }

    /// The try brought no answer: try again.
    pub(crate) fn again(&self) {
        let Some(place) = self.place else { return };
        let mut queue = self.entry.queue();
        queue.came_back(place);
        let wakers = queue.nudge(place);
        drop(queue);
        wakers.call();
    }

    /// The try has acquired.
    pub(crate) fn acquired(&mut self, hold: &Hold) {
        let Some(place) = self.place.take() else {
            return;
        };
        let mut queue = self.entry.queue();
        let sharing = self.applicant.sync.sharing();
        if sharing == Sharing::Exclusive {
            queue.holder = hold.weak();
        }
        let removed = queue.remove(place);
        // Whatever was heard during the try was about the time before it, unless there is more than one to be had.
        let wakers = queue.granted(sharing);
        self.leave(queue, place, wakers);
        if let Some(Turn::Granted(same)) = removed.and_then(|waiter| waiter.turn) {
            same.disown();
        }
    }

    /// Removes a waiter that has what it came for, or has gone.
    fn leave(&self, mut queue: MutexGuard<'_, Queue>, place: u64, wakers: Wakers) {
        let removed = queue.remove(place);
        if self.applicant.sync.sharing() == Sharing::Queued {
            queue.by_owner.remove(&self.applicant.owner);
            if !queue.waiters.is_empty() && queue.poll.is_none() {
                // Invariant 3: its poll was everybody's.
                let at = self.core.clock.now() + self.applicant.sync.beat();
                self.entry.schedule_poll(&mut queue, at);
            }
            if let Some(own) = self.applicant.sync.channel_of(&self.applicant.owner) {
                self.core.subscriptions.forget_channel(&own);
            }
        }
        if queue.waiters.is_empty() {
            self.core.subscriptions.forget(&self.entry);
        }
        self.entry.retire_if_idle(&self.core, queue);
        wakers.call();
        // Invariant 4.
        drop(removed);
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        let mut queue = self.entry.queue();
        let was_first = queue.first().is_some_and(|(first, _)| first == place);
        let Some(waiter) = queue.remove(place) else {
            return;
        };
        // Invariant 2: this waiter may have consumed a wake, or kept those behind it. Its attempt, if one is under way,
        // ends in the background and is released there; the next attempt comes after it on the same connection.
        let mattered = was_first || !waiter.is_parked();
        let wakers = match self.applicant.sync.sharing() {
            Sharing::Queued => Wakers::default(),
            _ if !mattered || queue.has_live_holder() => Wakers::default(),
            Sharing::Permits(_) => {
                queue.chain = true;
                queue.admit(Room::Unknown)
            }
            _ => {
                if waiter.asking {
                    queue.again = 0;
                }
                queue.admit(Room::Unknown)
            }
        };
        self.leave(queue, place, wakers);
        // Outside the mutex (invariant 4): a hold that was handed to a waiter that has gone is released, to the next.
        drop(waiter);
    }
}

/// See [`Entries::visit`].
#[derive(Debug)]
pub(crate) struct Visit {
    core: Arc<Core>,
    entry: Arc<Entry>,
}

impl Visit {
    pub(crate) fn entry(&self) -> &Arc<Entry> {
        &self.entry
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut queue = self.entry.queue();
        queue.visitors -= 1;
        self.entry.retire_if_idle(&self.core, queue);
    }
}
