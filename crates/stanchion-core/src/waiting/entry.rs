//! The local queue of one name.
//!
//! All waiters of one name in one process share one [`Entry`]: one subscription, one poll timer, one attempt in
//! flight. Only the first waiter asks the server; the others move up when it leaves, first come, first served.
//!
//! # Invariants
//! 1. At most one waiter is *trying* or is *being handed* the hold ([`Busy`]), and it was the first when that began.
//! 2. A wake is never lost (P4): if it comes while busy, `again` remembers it; if the first waiter leaves without
//!    having acquired, the next one tries.
//! 3. While there are waiters, something will make the first one try: a local holder (its end calls [`Entry::freed`]),
//!    a poll in the timetable, or a `Try` already given.
//! 4. No hold is dropped and no waker is called while the queue's mutex is held.

use std::collections::BTreeMap;
use std::future::poll_fn;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::task::{Poll, Waker};
use std::time::Duration;

use dashmap::DashMap;

use crate::client::Core;
use crate::clock::Moment;
use crate::hold::{Hold, HoldState};
use crate::options::HoldTerms;
use crate::timetable::{Item, Slot, Timetable};

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
    fn get(&self, core: &Core, channel: &[u8]) -> Arc<Entry> {
        if let Some(entry) = self.0.get(channel) {
            return Arc::clone(&entry);
        }
        Arc::clone(
            &self
                .0
                .entry(channel.to_vec())
                .or_insert_with(|| Entry::new(channel, &core.timetable)),
        )
    }

    /// Takes a place in the queue of `channel`.
    pub(crate) fn join(core: &Arc<Core>, channel: &[u8], terms: HoldTerms) -> Ticket {
        loop {
            let entry = core.entries.get(core, channel);
            if let Some(place) = entry.join(terms) {
                return Ticket {
                    core: Arc::clone(core),
                    entry,
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
    timetable: Arc<Timetable>,
}

#[derive(Debug, Default)]
struct Queue {
    /// No longer in the table of entries: nobody may join.
    retired: bool,
    /// By order of arrival.
    waiters: BTreeMap<u64, Waiter>,
    next: u64,
    /// Attempts under way that have no place in the queue.
    visitors: u32,
    busy: Busy,
    /// A wake came while busy.
    again: bool,
    holder: Weak<HoldState>,
    /// Hand-offs since the last public release.
    handed: u32,
    rivals: bool,
    /// Wakes before this moment are our own echo, or meant for others first.
    deaf_until: Option<Moment>,
    /// Messages that are for others first: answered after a head start.
    owed: u32,
    poll: Option<Slot>,
}

/// What the first waiter is in the middle of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Busy {
    #[default]
    No,
    /// The waiter at this place asks the server.
    Trying(u64),
    /// The holder passes its hold to the waiter at this place.
    Handing(u64),
}

#[derive(Debug)]
struct Waiter {
    terms: HoldTerms,
    turn: Option<Turn>,
    waker: Option<Waker>,
}

impl Queue {
    fn first(&self) -> Option<u64> {
        self.waiters.first_key_value().map(|(place, _)| *place)
    }

    fn has_live_holder(&self) -> bool {
        self.holder.upgrade().is_some_and(|hold| hold.is_held())
    }

    /// Lets the first waiter try. The waker is to be called after unlocking.
    #[must_use]
    fn let_first_try(&mut self) -> Option<Waker> {
        let mut first = self.waiters.first_entry()?;
        if self.busy != Busy::No {
            self.again = true;
            return None;
        }
        let waiter = first.get_mut();
        if waiter.turn.is_none() {
            waiter.turn = Some(Turn::Try);
        }
        waiter.waker.take()
    }

    fn is_idle(&self) -> bool {
        self.waiters.is_empty()
            && self.visitors == 0
            && self.busy == Busy::No
            && self.holder.strong_count() == 0
    }
}

fn wake(waker: Option<Waker>) {
    if let Some(waker) = waker {
        waker.wake();
    }
}

impl Entry {
    fn new(channel: &[u8], timetable: &Arc<Timetable>) -> Arc<Self> {
        Arc::new_cyclic(|this| Self {
            this: this.clone(),
            channel: channel.to_vec(),
            queue: Mutex::default(),
            timetable: Arc::clone(timetable),
        })
    }

    fn queue(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn join(&self, terms: HoldTerms) -> Option<u64> {
        let mut queue = self.queue();
        if queue.retired {
            return None;
        }
        let place = queue.next;
        queue.next += 1;
        // The first to come tries at once, unless the holder is known to be one of us.
        let free = queue.waiters.is_empty() && queue.busy == Busy::No && !queue.has_live_holder();
        queue.waiters.insert(
            place,
            Waiter {
                terms,
                turn: free.then_some(Turn::Try),
                waker: None,
            },
        );
        Some(place)
    }

    /// A message, a confirmed subscription, or an operator's release: a hint to try (P4).
    pub(crate) fn woken(&self, now: Moment) {
        let mut queue = self.queue();
        if let Some(until) = queue.deaf_until
            && now < until
        {
            if queue.busy != Busy::No {
                queue.again = true;
            } else if until == Moment::FAR && !queue.waiters.is_empty() {
                // Our release is still unanswered, perhaps for long. The others have their start from now on.
                queue.deaf_until = Some(now + YIELD);
                self.schedule_poll(&mut queue, now + YIELD);
            }
            return;
        }
        if queue.owed > 0 && queue.busy == Busy::No && !queue.waiters.is_empty() {
            queue.owed -= 1;
            return self.schedule_poll(&mut queue, now + YIELD);
        }
        let waker = queue.let_first_try();
        drop(queue);
        wake(waker);
    }

    /// The poll timer rang.
    pub(crate) fn poll_now(&self) {
        let mut queue = self.queue();
        queue.poll = None;
        queue.deaf_until = None;
        // A live local holder will call `freed`; asking the server meanwhile would be noise (invariant 3).
        let waker = if queue.busy != Busy::No || queue.has_live_holder() {
            None
        } else {
            queue.let_first_try()
        };
        drop(queue);
        wake(waker);
    }

    /// Subscribed (again), or deaf from now on.
    pub(crate) fn listening_changed(&self) {
        let mut queue = self.queue();
        // Confirmed: something may have happened before. Lost: the server may be gone, and the pace changes.
        let waker = queue.let_first_try();
        drop(queue);
        wake(waker);
    }

    /// Whoever is first, to be passed the hold that `holder` is about to give up; it will not try by itself meanwhile.
    pub(crate) fn successor(&self) -> Option<Successor> {
        let mut queue = self.queue();
        let turn = if queue.rivals {
            TURN_AMONG_RIVALS
        } else {
            TURN_ALONE
        };
        if queue.busy != Busy::No || queue.handed >= turn {
            return None;
        }
        let (place, waiter) = queue.waiters.first_key_value()?;
        let successor = Successor {
            place: *place,
            terms: waiter.terms,
        };
        queue.busy = Busy::Handing(successor.place);
        // A `Try` given before is void: the hold comes by itself.
        if let Some(waiter) = queue.waiters.get_mut(&successor.place) {
            waiter.turn = None;
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
        queue.busy = Busy::No;
        queue.again = false;
        queue.handed += 1;
        queue.holder = hold.weak();
        let Some(waiter) = queue.waiters.get_mut(&successor.place) else {
            drop(queue);
            return drop(hold);
        };
        waiter.turn = Some(Turn::Handed(hold));
        let waker = waiter.waker.take();
        drop(queue);
        wake(waker);
    }

    /// A hold has been acquired by asking the server.
    pub(crate) fn acquired(&self, hold: &Hold) {
        let mut queue = self.queue();
        queue.holder = hold.weak();
        queue.handed = 0;
        queue.owed = 0;
    }

    /// `hold` is over here. The next waiter tries, at once or after a head start for others.
    pub(crate) fn freed(&self, core: &Core, hold: &Arc<HoldState>, rivals: Rivals) {
        let now = core.clock.now();
        let mut queue = self.queue();
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
        let waker = if let Rivals::Present(others) = rivals
            && !queue.waiters.is_empty()
            && queue.busy == Busy::No
        {
            queue.owed = others.saturating_sub(1).min(MOST_OWED);
            queue.deaf_until = Some(now + YIELD);
            self.schedule_poll(&mut queue, now + YIELD);
            None
        } else {
            queue.let_first_try()
        };
        self.retire_if_idle(core, queue);
        wake(waker);
    }

    /// A hand-off came to nothing.
    pub(crate) fn not_handed(&self) {
        let mut queue = self.queue();
        queue.busy = Busy::No;
        let waker = queue.let_first_try();
        drop(queue);
        wake(waker);
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

/// A place in a queue. Dropped, it is given up and whatever it was told is passed on.
#[derive(Debug)]
pub(crate) struct Ticket {
    core: Arc<Core>,
    entry: Arc<Entry>,
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
                    queue.busy = Busy::Trying(place);
                    Poll::Ready(Turn::Try)
                }
                Some(Turn::Handed(hold)) => {
                    self.place = None;
                    self.leave(queue, place);
                    Poll::Ready(Turn::Handed(hold))
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

    /// The try found the lock taken: wait for a message, at most for as long as the holder's TTL or the poll interval.
    pub(crate) fn busy(&self, ttl: Option<Duration>) {
        let subscribed = self.core.subscriptions.want(&self.entry);
        let now = self.core.clock.now();
        let mut queue = self.entry.queue();
        queue.busy = Busy::No;
        if std::mem::take(&mut queue.again) {
            // Invariant 2. We are first, so our own task runs on by itself.
            return wake_after(queue);
        }
        let mut pause = if subscribed {
            self.core.poll_interval()
        } else {
            POLL_UNSUBSCRIBED
        };
        if let Some(ttl) = ttl {
            // An expiry sends no message. One millisecond more, because a key lives through the last one.
            pause = pause
                .min(ttl + Duration::from_millis(1) + self.core.jitter(Duration::from_millis(2)));
        }
        self.entry.schedule_poll(&mut queue, now + pause);
    }

    /// The try brought no answer: try again.
    pub(crate) fn again(&self) {
        let mut queue = self.entry.queue();
        queue.busy = Busy::No;
        wake_after(queue);
    }

    /// The try has acquired.
    pub(crate) fn acquired(&mut self, hold: &Hold) {
        let Some(place) = self.place.take() else {
            return;
        };
        let mut queue = self.entry.queue();
        queue.busy = Busy::No;
        // Whatever was heard during the try was about the time before it.
        queue.again = false;
        queue.holder = hold.weak();
        queue.handed = 0;
        queue.owed = 0;
        self.leave(queue, place);
    }

    /// Removes a waiter that has what it came for.
    fn leave(&self, mut queue: MutexGuard<'_, Queue>, place: u64) {
        queue.waiters.remove(&place);
        if queue.waiters.is_empty() {
            self.core.subscriptions.forget(&self.entry);
        }
        self.entry.retire_if_idle(&self.core, queue);
    }
}

fn wake_after(mut queue: MutexGuard<'_, Queue>) {
    let waker = queue.let_first_try();
    drop(queue);
    wake(waker);
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let Some(place) = self.place.take() else {
            return;
        };
        let mut queue = self.entry.queue();
        let was_first = queue.first() == Some(place);
        let turn = queue.waiters.remove(&place).and_then(|waiter| waiter.turn);
        if queue.busy == Busy::Trying(place) {
            queue.busy = Busy::No;
            queue.again = false;
        }
        // Invariant 2: this waiter may have consumed a wake. Its attempt, if one is under way, ends in the background
        // and is released there; the next waiter's attempt comes after it on the same connection.
        let waker = if was_first && !queue.has_live_holder() {
            queue.let_first_try()
        } else {
            None
        };
        if queue.waiters.is_empty() {
            self.core.subscriptions.forget(&self.entry);
        }
        self.entry.retire_if_idle(&self.core, queue);
        wake(waker);
        // Outside the mutex (invariant 4): a hold that was handed to a waiter that has gone is released, to the next.
        drop(turn);
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
