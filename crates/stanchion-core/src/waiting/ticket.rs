//! One waiter's place in a local queue.
//!
//! [`LockEntries::join`](super::LockEntries::join) creates a [`Ticket`]. The acquire loop then alternates: it awaits [`Ticket::turn`],
//! asks the server when the turn is [`Turn::Try`], and reports the answer with [`Ticket::busy`], [`Ticket::again`],
//! [`Ticket::unanswered`] or [`Ticket::acquired`]. The place ends with `acquired`, with any turn but `Try`, or with the drop of
//! the ticket, which passes an untaken wake or hold to the next waiter.

use std::future::poll_fn;
use std::sync::{Arc, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::{Queue, Room, Turn, Waiter, Wakers};
use super::subscriptions::Ear;
use crate::description::{Sharing, Synchronizer};
use crate::hint::Hint;
use crate::hold::guarded::Guarded as _;
use crate::hold::handle::Hold;
use crate::hold::sweep::Debt;
use crate::line::Reason;
use crate::shared::Core;
use crate::wire_owner::WireOwner;
use stanchion_transport::{Moment, Outage, Wake};

/// The poll interval without a confirmed subscription, when no message can wake a waiter.
const POLL_UNSUBSCRIBED: Duration = Duration::from_millis(250);

/// The first and the longest pause between polls with [`Wake::Poll`].
const SPIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(128));

/// The synchronizer and the owner that a place in a queue is taken for.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) owner: WireOwner,
}

/// The call that a place is taken for: its start, and its end at the latest.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Stay {
    pub(crate) began: Moment,
    pub(crate) deadline: Moment,
}

/// The position of a waiter for permits when it asks.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Position {
    /// True when no other waiter of this process is ahead.
    pub(crate) first: bool,
    /// The reason for which a waiter for permits asks; `None` elsewhere.
    pub(crate) reason: Option<Reason>,
    /// True when others of this process do not ask now.
    pub(crate) others: bool,
    /// The permits that this process was told of and has nobody for.
    pub(crate) surplus: u32,
}

/// The pause until a key with `ttl` left has expired: an expiry sends no message. One millisecond more, because a key still
/// exists during its last one; and a jitter, so that processes do not ask at the same instant.
pub(super) fn after_expiry(core: &Core, ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1) + core.jitter(Duration::from_millis(2))
}

/// A place in a queue. Dropping it leaves the queue and passes an untaken turn on.
///
/// Keeps the core and the entry alive while its waiter is in the queue. Owned by one acquire; only the waiter's state in the
/// queue is shared, under the queue's mutex.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) entry: Arc<LockEntry>,
    pub(super) applicant: Applicant,
    /// Its key in `Queue::waiters`; `None` once the waiter was removed. Only [`Ticket::busy`] changes it to another place.
    pub(super) place: Option<u64>,
}

impl Ticket {
    pub(crate) fn entry(&self) -> &Arc<LockEntry> {
        &self.entry
    }

    /// Waits for this waiter's turn. Cancel safe: the turn stays in the queue until it is taken.
    pub(crate) async fn turn(&mut self) -> Turn {
        poll_fn(|cx| {
            let Some(place) = self.place else {
                return Poll::Pending;
            };
            // Before the mutex is locked (invariant 4).
            let waker = cx.waker().clone();
            let mut queue = self.entry.queue();
            let (next, parted) = (queue.next_place(), queue.parted);
            // Removed by `forsake` (invariant 5).
            let Some(waiter) = queue.waiters.get_mut(&place) else {
                self.place = None;
                return Poll::Ready(Turn::Missed);
            };
            match waiter.turn.take() {
                Some(Turn::Try) => {
                    waiter.asking = true;
                    waiter.asked = true;
                    // P8: fixed before the request is sent. Whoever joins later may wait for a later event.
                    waiter.asked_before = next;
                    waiter.parted = parted;
                    queue.asking += 1;
                    Poll::Ready(Turn::Try)
                }
                Some(turn) => {
                    // Without its turn it looks parked, and `remove` counts it out again.
                    queue.count_parked(place, 1);
                    self.place = None;
                    let removed = queue.remove(place);
                    let wakers = match turn {
                        // Invariant 2: waiters that joined later still have patience, and one of them must ask.
                        Turn::OutOfReach(_) => queue.admit(Room::Unknown),
                        // It ended while this waiter asked, and nobody was told.
                        Turn::Take(ref hold) if !hold.is_held() => queue.admit(Room::Unknown),
                        _ => Wakers::default(),
                    };
                    self.leave(queue, place, wakers);
                    // Not under the mutex: its waker may own anything (invariant 4).
                    drop(removed);
                    // Invariant 5: from here on it is renewed as any other.
                    if let Some(hold) = turn.hold() {
                        hold.claim();
                    }
                    Poll::Ready(turn)
                }
                None => {
                    // The future may have moved to another task since the last poll.
                    let old = waiter.waker.replace(waker);
                    drop(queue);
                    drop(old);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// Returns its position among the waiters for permits in this process, and records that it asks in it.
    pub(crate) fn position(&self) -> Position {
        // Elsewhere only the first asks, or the server keeps the order: nobody needs to be told.
        let (Some(place), Sharing::Permits(_)) = (self.place, self.applicant.sync.sharing()) else {
            return Position::default();
        };
        let mut queue = self.entry.queue();
        let mut position = Position {
            first: queue.first().is_some_and(|(first, _)| first == place),
            others: queue.parked > 0,
            ..Position::default()
        };
        if let Some(waiter) = queue.waiters.get_mut(&place) {
            waiter.asked_first |= position.first;
            waiter.asked_with_others = position.others;
            position.reason = Some(waiter.reason);
            if waiter.reason == Reason::Told {
                position.surplus = queue.useless();
            }
        }
        position
    }

    /// Returns whether its turn has not come yet.
    pub(crate) fn must_wait(&self) -> bool {
        let queue = self.entry.queue();
        self.place
            .and_then(|place| queue.waiters.get(&place))
            .is_some_and(|waiter| waiter.turn.is_none())
    }

    /// Parks the waiter after a refusal. A message or a poll lets it ask again: after `ttl`, or the poll interval if that is
    /// shorter.
    ///
    /// Returns whether the queue has taken `debt`, that of the request, as the place of this process in the server's line.
    pub(crate) fn busy(&mut self, ttl: Option<Duration>, hint: &Hint, debt: &Arc<Debt>) -> bool {
        let Some(place) = self.place else {
            return false;
        };
        // P4: subscribed before the waiter is parked. A release after the refusal either is a message for this queue, or is found
        // by the try that follows the confirmation. Before the queue is locked, because `want` may lock it.
        let subscribed = self.core.subscriptions.want(&self.entry);
        let Applicant { sync, owner, .. } = &self.applicant;
        // Only Redisson wakes a waiter on its own channel. Without its clients the client's one channel is enough.
        if let (Hint::Queue { foreign: true, .. }, Some(server_queue)) = (hint, sync.server_queue())
        {
            let own = server_queue.channel_of(owner);
            let whom = Ear::Waiter(owner.clone());
            self.core.subscriptions.want_for(&self.entry, &whom, &own);
        }
        let placed = hint.placed();
        self.entry.play(&self.core, &**sync, hint.role());
        let now = self.core.clock.now();
        // A place that this one replaces is given up after the queue is unlocked.
        let mut _replaced = None;
        let mut queue = self.entry.queue();
        queue.came_back(place);
        let overtaken = queue.overtaken(place);
        // A refusal is an answer, too.
        queue.outage_since = None;
        let again = std::mem::take(&mut queue.again);
        // Under the same lock: a grant by message finds the request until now, and the place from here on. If it came during the
        // request, this waiter has the hold and keeps the debt.
        let waits = |waiter: &Waiter| !matches!(waiter.turn, Some(Turn::Take(_)));
        let stands = placed.is_some() && queue.waiters.get(&place).is_some_and(waits);
        if stands {
            _replaced = queue.standing.replace(Arc::clone(debt));
        }
        // A grant that the hint reports is ignored here: the grant's own message is faster than a request of that waiter would be. If the
        // message is lost, the next heartbeat's answer reports the grant.
        let mut wakers = match self.applicant.sync.sharing() {
            _ if *hint == Hint::Forgotten => queue.admit_all(),
            Sharing::Permits(_) => {
                let (to, wakers) = queue.refused_permits(place, hint.sign());
                self.place = Some(to);
                if !wakers.0.is_empty() {
                    queue.again = again;
                }
                wakers
            }
            _ => Wakers::default(),
        };
        // Else the refusal has put this process into the crowd.
        queue.unknown &= overtaken;
        let told = queue.surplus > 0;
        if wakers.0.is_empty() && (again > 0 || told || overtaken) {
            // Invariant 2: a wake came during the attempt, and the answer may be older than it.
            wakers = queue.admit_again(again);
            // Invariant 3: the refusal added this process to the wait set, and a later grant or message removed it.
            let reason = if told { Reason::Told } else { Reason::Anew };
            queue.make_known(reason, &mut wakers);
            // Somebody asks now, and its answer plans the next poll. The second case: this waiter itself, whose waker was taken
            // when it was told.
            if !wakers.0.is_empty() || queue.parked == 0 {
                drop(queue);
                wakers.call();
                return stands;
            }
        }
        queue.refused = queue.refused.saturating_add(1);
        if let Some(placed) = placed {
            let longest = if subscribed {
                self.core.poll_interval()
            } else {
                POLL_UNSUBSCRIBED
            };
            self.entry
                .plan_look(&self.core, &mut queue, ttl, placed, longest);
            drop(queue);
            wakers.call();
            return stands;
        }
        queue.poll_reason = Reason::Turn;
        let pause = self.pause(&queue, ttl, subscribed);
        let at = now + pause;
        // Where several waiters ask, one with a long pause must not delay the poll of another.
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
        stands
    }

    /// The pause until the next poll.
    pub(super) fn pause(&self, queue: &Queue, ttl: Option<Duration>, subscribed: bool) -> Duration {
        let sync = &self.applicant.sync;
        let mut pause = if self.core.config.wake == Wake::Poll {
            let doublings = queue.refused.saturating_sub(1).min(7);
            let longest = (SPIN.0 * (1 << doublings)).min(SPIN.1);
            // Half of it at random: processes that were refused together must not ask together again.
            longest / 2 + self.core.jitter(longest / 2)
        } else if subscribed {
            self.core.poll_interval()
        } else {
            POLL_UNSUBSCRIBED
        };
        if let Some(server_queue) = sync.server_queue() {
            // The poll of such a queue is its heartbeat. Without it the server takes this process for dead (P7).
            pause = pause.min(server_queue.beat());
        }
        if let Some(ttl) = ttl {
            pause = pause.min(after_expiry(&self.core, ttl));
        }
        pause
    }

    /// Lets the waiter ask again after an attempt that was not decided.
    pub(crate) fn again(&self) {
        let Some(place) = self.place else { return };
        let mut queue = self.entry.queue();
        queue.came_back(place);
        // Under the same lock: nobody else gets the turn in between.
        let wakers = queue.nudge(place);
        drop(queue);
        wakers.call();
    }

    /// Records that the attempt was not answered. Returns whether this waiter must give up; the others whose patience has ended
    /// get that turn at the same time.
    pub(crate) fn unanswered(&self, outage: &Outage) -> bool {
        let Some(place) = self.place else {
            return false;
        };
        let now = self.core.clock.now();
        let tolerance = self.core.config.outage_tolerance;
        // It still counts as asking, until `again`: where the first asks for all, only it looks for a silent server.
        let mut queue = self.entry.queue();
        let (is_over, wakers) = queue.unanswered(place, now, tolerance, outage);
        drop(queue);
        wakers.call();
        is_over
    }

    /// Leaves the queue with `hold`, and tells the waiters that may hold beside it, with `left` permits still free.
    pub(crate) fn acquired(&mut self, hold: &Hold, left: u32) {
        let Some(place) = self.place.take() else {
            return;
        };
        let mut queue = self.entry.queue();
        let sharing = self.applicant.sync.sharing();
        if sharing.has_one_holder() {
            queue.holder = hold.weak();
        }
        let removed = queue.remove(place);
        let asked_before = removed.as_ref().map_or(0, |waiter| waiter.asked_before);
        // A wake during the attempt was for what it acquired, unless there is more than one to acquire: then `granted` keeps it.
        let mut wakers = queue.granted(sharing, left, asked_before);
        // Invariant 3: who came during the attempt, and waits, is not known to the server yet.
        let unknown = removed.as_ref().is_some_and(|it| !it.asked_with_others);
        let gathered = unknown.then(|| queue.gathered.take()).flatten();
        if let (Sharing::Permits(_), Some(removed)) = (sharing, &removed) {
            queue.note_crowd(unknown, removed.parted);
            queue.make_known(Reason::Anew, &mut wakers);
        }
        if let Some(next) = hold.next()
            && !queue.waiters.is_empty()
        {
            self.entry.poll_by(&mut queue, next);
        }
        self.leave(queue, place, wakers);
        // The grant ended it on the server.
        if let Some(gathered) = gathered {
            gathered.ended();
        }
        // A grant by message crossed this answer. Where both are of one owner, releasing the one would free the other; a second permit is
        // released.
        if let Some(Turn::Take(other)) = removed.and_then(|waiter| waiter.turn)
            && other.wire_owner() == hold.wire_owner()
        {
            other.disown();
        }
    }

    /// Removes the waiter, cleans up after it, and unlocks the queue before it calls wakers (invariant 4).
    fn leave(&self, mut queue: MutexGuard<'_, Queue>, place: u64, wakers: Wakers) {
        let removed = queue.remove(place);
        let Applicant { sync, owner, .. } = &self.applicant;
        self.entry.departed(&self.core, &mut queue, &**sync, owner);
        self.entry.rest_if_idle(&self.core, queue);
        wakers.call();
        // After the queue is unlocked (invariant 4).
        drop(removed);
    }
}

impl Ticket {
    /// Leaves the queue. Returns the place of this process in the server's line, if nobody is left here to whom a grant could go.
    pub(crate) fn quit(mut self) -> Option<Arc<Debt>> {
        self.depart()
    }

    fn depart(&mut self) -> Option<Arc<Debt>> {
        let place = self.place.take()?;
        let mut queue = self.entry.queue();
        let was_first = queue.first().is_some_and(|(first, _)| first == place);
        // Forsaken: the others were called when it was removed.
        let waiter = queue.remove(place)?;
        let forsaken = queue.forsaken_place();
        // Invariant 2: this waiter may have taken a wake, or delayed those behind it. Its attempt, if one is under way, ends in
        // the background and a grant is released there; the next attempt follows it on the same connection.
        let mattered = was_first || !waiter.is_parked();
        let wakers = match self.applicant.sync.sharing() {
            // The server calls the next one, when the sweep of this waiter's debt gives its place up (P3, F6).
            Sharing::Queued => Wakers::default(),
            // A waiter behind the first delayed nobody, and a local holder calls the next one at its end (invariant 3).
            _ if !mattered || queue.has_live_holder() => Wakers::default(),
            // The place in the line stays, and its message is for whoever is the first then.
            _ if waiter.is_parked() && queue.standing.is_some() => Wakers::default(),
            Sharing::Permits(_) => {
                let mut wakers = queue.told_in_vain(&waiter);
                wakers.0.extend(queue.admit(Room::Unknown).0);
                wakers
            }
            _ => {
                if waiter.asking {
                    // The attempt that follows is newer than every wake so far.
                    queue.again = 0;
                }
                queue.admit(Room::Unknown)
            }
        };
        self.leave(queue, place, wakers);
        // After the queue is unlocked (invariant 4): a hold that was given to this waiter is released, to the next one.
        drop(waiter);
        forsaken
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // After the queue is unlocked: its drop gives the place up (P3).
        drop(self.depart());
    }
}

/// An attempt without a place in the queue; see [`LockEntries::visit`](super::LockEntries::visit). Keeps the entry in the table.
#[derive(Debug)]
pub(crate) struct Visit {
    pub(super) core: Arc<Core>,
    pub(super) entry: Arc<LockEntry>,
}

impl Visit {
    pub(crate) fn entry(&self) -> &Arc<LockEntry> {
        &self.entry
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        let mut queue = self.entry.queue();
        queue.visitors -= 1;
        self.entry.rest_if_idle(&self.core, queue);
    }
}
