//! One waiter's place in a local queue.
//!
//! [`LockEntries::join`](super::LockEntries::join) creates a [`Ticket`]. The acquire loop then alternates: it awaits [`Ticket::turn`],
//! sends a request when the turn is [`Turn::Try`], and reports the reply with [`Ticket::busy`], [`Ticket::again`],
//! [`Ticket::unanswered`] or [`Ticket::acquired`]. The place ends with `acquired`, with any turn but `Try`, or with the drop of
//! the ticket, which passes an untaken wake or hold to the next waiter.

use std::future::poll_fn;
use std::sync::{Arc, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::{Entry, Queue, Turn, Waiter, Wakers};
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
pub(super) const POLL_UNSUBSCRIBED: Duration = Duration::from_millis(250);

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

/// The pause until a key with `ttl` left has expired: an expiry sends no message. One millisecond more, because a key still
/// exists during its last one; and a jitter, so that processes do not send requests at the same instant.
pub(super) fn after_expiry(core: &Core, ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1) + core.jitter(Duration::from_millis(2))
}

/// The pause of a client that polls, after so many refusals in a row.
pub(super) fn spin(core: &Core, refused: u32) -> Duration {
    let doublings = refused.saturating_sub(1).min(7);
    let longest = (SPIN.0 * (1 << doublings)).min(SPIN.1);
    // Half of it at random: processes that were refused together must not retry together.
    longest / 2 + core.jitter(longest / 2)
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
    /// Its key in `Queue::waiters`; `None` once the waiter was removed.
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
            let next = queue.next_place();
            // Removed by `forsake` (invariant 5).
            let Some(waiter) = queue.waiters.get_mut(&place) else {
                self.place = None;
                return Poll::Ready(Turn::Missed);
            };
            match waiter.turn.take() {
                Some(Turn::Try(reason)) => {
                    waiter.asking = true;
                    // P8: fixed before the request is sent. A waiter that joins later may wait for a later event.
                    waiter.asked_before = next;
                    queue.asking += 1;
                    Poll::Ready(Turn::Try(reason))
                }
                Some(turn) => {
                    // Without its turn the waiter counts as parked, unless it is requesting, and `remove` subtracts it.
                    if !waiter.asking {
                        queue.count_parked(1);
                    }
                    self.place = None;
                    let removed = queue.remove(place);
                    let wakers = match turn {
                        // Invariant 2: waiters that joined later have time left, and one of them must send a request.
                        Turn::OutOfReach(_) => queue.admit(Reason::Turn),
                        // The hold ended before it was taken, and no other waiter was woken.
                        Turn::Take(ref hold) if !hold.is_held() => queue.admit(Reason::Turn),
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

    /// Returns whether its turn has not come yet.
    pub(crate) fn must_wait(&self) -> bool {
        let queue = self.entry.queue();
        self.place
            .and_then(|place| queue.waiters.get(&place))
            .is_some_and(|waiter| waiter.turn.is_none())
    }

    /// Parks the waiter after a refusal. A message or a poll lets it retry: after `ttl`, or the poll interval if that is
    /// shorter.
    ///
    /// Returns whether the queue has taken `debt`, that of the request, as the entry of this process on the server.
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
        // An entry that this one replaces is given up after the queue is unlocked.
        let mut _replaced = None;
        let mut queue = self.entry.queue();
        queue.came_back(place);
        // A refusal is an answer, too.
        queue.outage_since = None;
        let due = queue.due.take();
        // Under the same lock: a grant by message finds the request until now, and the entry from here on. If it came during the
        // request, this waiter has the hold and keeps the debt.
        let waits = |waiter: &Waiter| !waiter.has_hold();
        // R8: at maxmemory an entry cannot be renewed, and is still there.
        let placed_by_now = placed.is_some() || debt.arrived() > 0;
        let stands = placed_by_now && queue.waiters.get(&place).is_some_and(waits);
        if stands {
            _replaced = queue.entry.replace(Entry {
                debt: Arc::clone(debt),
                off: false,
            });
        }
        // A grant that the hint reports is ignored here: the grant's own message is faster than a request of that waiter would be. If the
        // message is lost, the next heartbeat's answer reports the grant.
        let mut wakers = Wakers::default();
        if *hint == Hint::Forgotten {
            wakers = queue.admit_all();
        }
        // Invariant 2: a wake came during the attempt, and the answer may be older than it.
        if wakers.0.is_empty() {
            wakers = match due {
                Some((at, reason)) if at <= now => queue.admit(reason),
                _ => queue.make_known(),
            };
        }
        queue.refused = queue.refused.saturating_add(1);
        // A waiter sends a request now, and its reply plans the next poll.
        if queue.is_told() && *hint != Hint::Forgotten {
            drop(queue);
            wakers.call();
            return stands;
        }
        let pause = self.pause(&queue, ttl, subscribed);
        let sharing = self.applicant.sync.sharing();
        let several = matches!(sharing, Sharing::Queued | Sharing::Permits(_))
            || sharing == Sharing::Together && self.applicant.sync.line().is_some();
        match placed {
            Some(placed) => {
                // A request that was due by now has its turn, or is remembered again.
                let due = due.filter(|(at, _)| *at > now);
                self.entry
                    .plan_look(&self.core, &mut queue, ttl, placed, subscribed, due);
            }
            // If several waiters send requests, one with a long pause must not delay the poll of another.
            None if several => self.entry.poll_by(&mut queue, now + pause, Reason::Turn),
            None => self
                .entry
                .schedule_poll(&mut queue, now + pause, Reason::Turn),
        }
        drop(queue);
        wakers.call();
        stands
    }

    /// The pause until the next poll, where the server keeps no entry for this process.
    pub(super) fn pause(&self, queue: &Queue, ttl: Option<Duration>, subscribed: bool) -> Duration {
        let sync = &self.applicant.sync;
        let mut pause = if self.core.config.wake == Wake::Poll {
            spin(&self.core, queue.refused)
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

    /// Lets the waiter retry after an attempt without a decision.
    pub(crate) fn again(&self) {
        let Some(place) = self.place else { return };
        let mut queue = self.entry.queue();
        queue.came_back(place);
        // Under the same lock: no other waiter gets the turn in between.
        let wakers = queue.nudge(place);
        drop(queue);
        wakers.call();
    }

    /// Records that the attempt was not answered. Returns whether this waiter must give up; others that have waited for too long
    /// get that turn at the same time.
    pub(crate) fn unanswered(&self, outage: &Outage) -> bool {
        let Some(place) = self.place else {
            return false;
        };
        let now = self.core.clock.now();
        let tolerance = self.core.config.outage_tolerance;
        // The waiter counts as requesting until `again`: if the first sends the requests for all, only it retries at a silent server.
        let mut queue = self.entry.queue();
        let (is_over, wakers) = queue.unanswered(place, now, tolerance, outage);
        drop(queue);
        wakers.call();
        is_over
    }

    /// Leaves the queue with `hold`, and wakes the waiters that may hold concurrently.
    pub(crate) fn acquired(&mut self, hold: &Hold) {
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
        // A wake-up during the attempt was for this hold. If others may hold concurrently, `granted` keeps the wake-up.
        let wakers = match hold.next().filter(|_| !queue.waiters.is_empty()) {
            Some(next) => {
                queue.answered();
                self.entry.poll_by(&mut queue, next, Reason::Turn);
                Wakers::default()
            }
            None => queue.granted(sharing, asked_before),
        };
        self.leave(queue, place, wakers);
        // A grant by message crossed this reply. If both are of one owner, the release of one would free the other. A second permit is
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
    /// Leaves the queue. Returns the entry of this process on the server, if no waiter is left that can take a grant to it.
    pub(crate) fn quit(mut self) -> Option<Arc<Debt>> {
        self.depart()
    }

    fn depart(&mut self) -> Option<Arc<Debt>> {
        let place = self.place.take()?;
        let mut queue = self.entry.queue();
        let was_first = queue.first().is_some_and(|(first, _)| first == place);
        // Forsaken: the others were called when it was removed.
        let waiter = queue.remove(place)?;
        let forsaken = queue.forsaken_entry();
        // Invariant 2: this waiter may have taken a wake, or delayed those behind it. Its attempt, if one is under way, ends in
        // the background and a grant is released there; the next attempt follows it on the same connection.
        let mattered = was_first || !waiter.is_parked() || forsaken.is_some();
        let wakers = match self.applicant.sync.sharing() {
            // The server calls the next one, when the sweep of this waiter's debt gives its place up (P3, F6).
            Sharing::Queued => Wakers::default(),
            // A waiter behind the first delayed no other, and a local holder calls the next one at its end (invariant 3).
            _ if !mattered || queue.has_live_holder() => Wakers::default(),
            // The entry stays, and its message goes to the first waiter of that time.
            _ if waiter.is_parked() && queue.stands() => Wakers::default(),
            _ => {
                let reason = match waiter.turn {
                    Some(Turn::Try(reason)) => reason,
                    _ => Reason::Turn,
                };
                if waiter.asking && !matches!(self.applicant.sync.sharing(), Sharing::Permits(_)) {
                    // The attempt that follows is newer than every wake so far.
                    queue.due = None;
                }
                queue.admit(reason)
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
        // After the queue is unlocked: the drop of the debt gives the entry up (P3).
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
        queue.uses.visitors -= 1;
        self.entry.rest_if_idle(&self.core, queue);
    }
}
