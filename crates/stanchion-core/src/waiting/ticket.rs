//! A place in a queue, and what its holder may do with it.

use std::future::poll_fn;
use std::sync::{Arc, MutexGuard};
use std::task::Poll;
use std::time::Duration;

use super::entry::Entry;
use super::queue::{Queue, Room, Turn, Wakers};
use crate::client::Core;
use crate::hold::Hold;
use crate::options::HoldTerms;
use crate::owner::WireOwner;
use crate::primitive::{Hint, Sharing, Synchronizer};
use stanchion_transport::Outage;
use stanchion_transport::Wake;

/// Without a confirmed subscription nothing wakes a waiter but its own asking.
const POLL_UNSUBSCRIBED: Duration = Duration::from_millis(250);

/// The first and the longest pause of [`Wake::Poll`].
const SPIN: (Duration, Duration) = (Duration::from_millis(1), Duration::from_millis(128));

/// Who wants a place in a queue.
#[derive(Clone, Debug)]
pub(crate) struct Applicant {
    pub(crate) sync: Arc<dyn Synchronizer>,
    pub(crate) owner: WireOwner,
    pub(crate) terms: HoldTerms,
}

/// An expiry sends no message. One millisecond more, because a key lives through the last one.
pub(super) fn after_expiry(core: &Core, ttl: Duration) -> Duration {
    ttl + Duration::from_millis(1) + core.jitter(Duration::from_millis(2))
}

/// A place in a queue. Dropped, it is given up and whatever it was told is passed on.
#[derive(Debug)]
pub(crate) struct Ticket {
    pub(super) core: Arc<Core>,
    pub(super) entry: Arc<Entry>,
    pub(super) applicant: Applicant,
    pub(super) place: Option<u64>,
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
            // Invariant 4.
            let waker = cx.waker().clone();
            let mut queue = self.entry.queue();
            let next = queue.next_place();
            let Some(waiter) = queue.waiters.get_mut(&place) else {
                self.place = None;
                return Poll::Ready(Turn::Missed);
            };
            match waiter.turn.take() {
                Some(Turn::Try) => {
                    waiter.asking = true;
                    waiter.asked = true;
                    waiter.asked_before = next;
                    queue.asking += 1;
                    Poll::Ready(Turn::Try)
                }
                Some(turn) => {
                    queue.parked += 1;
                    self.place = None;
                    let removed = queue.remove(place);
                    let wakers = match turn {
                        // Invariant 2: whoever came later goes on asking.
                        Turn::OutOfReach(_) => queue.admit(Room::Unknown),
                        _ => Wakers::default(),
                    };
                    self.leave(queue, place, wakers);
                    drop(removed);
                    if let Some(hold) = turn.hold() {
                        hold.claim();
                    }
                    Poll::Ready(turn)
                }
                None => {
                    let old = waiter.waker.replace(waker);
                    drop(queue);
                    drop(old);
                    Poll::Pending
                }
            }
        })
        .await
    }

    /// For permits: whether nobody of this process comes before it.
    pub(crate) fn is_first(&self) -> bool {
        let (Some(place), Sharing::Permits(_)) = (self.place, self.applicant.sync.sharing()) else {
            return false;
        };
        let mut queue = self.entry.queue();
        let first = queue.first().is_some_and(|(first, _)| first == place);
        if let Some(waiter) = queue.waiters.get_mut(&place) {
            waiter.asked_first |= first;
        }
        first
    }

    /// Whether it would have to wait for its turn now.
    pub(crate) fn must_wait(&self) -> bool {
        let queue = self.entry.queue();
        self.place
            .and_then(|place| queue.waiters.get(&place))
            .is_some_and(|waiter| waiter.turn.is_none())
    }

    /// The try found no room: wait for a message, at most for as long as the server said or the poll interval.
    pub(crate) fn busy(&mut self, ttl: Option<Duration>, hint: &Hint) {
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
        queue.outage_since = None;
        let again = std::mem::take(&mut queue.again);
        // A grant to another of us is not heeded here: its message is faster than that waiter's own question would be. If it is
        // lost, the next sign of life tells of it.
        let mut wakers = match self.applicant.sync.sharing() {
            _ if hint.forgotten => queue.admit_all(),
            Sharing::Permits(_) => {
                let (to, wakers) = queue.refused_permits(place, hint);
                self.place = Some(to);
                if !wakers.0.is_empty() {
                    queue.again = again;
                }
                wakers
            }
            _ => Wakers::default(),
        };
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

    /// The try was not answered. Whether this waiter has seen enough of that; all who have are told together.
    pub(crate) fn unanswered(&self, outage: &Outage) -> bool {
        let Some(place) = self.place else {
            return false;
        };
        let now = self.core.clock.now();
        let tolerance = self.core.config.outage_tolerance;
        let mut queue = self.entry.queue();
        let (is_over, wakers) = queue.unanswered(place, now, tolerance, outage);
        drop(queue);
        wakers.call();
        is_over
    }

    /// The try has acquired.
    pub(crate) fn acquired(&mut self, hold: &Hold, left: u32) {
        let Some(place) = self.place.take() else {
            return;
        };
        let mut queue = self.entry.queue();
        let sharing = self.applicant.sync.sharing();
        if sharing == Sharing::Exclusive {
            queue.holder = hold.weak();
        }
        let removed = queue.remove(place);
        let asked_before = removed.as_ref().map_or(0, |waiter| waiter.asked_before);
        // Whatever was heard during the try was about the time before it, unless there is more than one to be had.
        let wakers = queue.granted(sharing, left, asked_before);
        self.leave(queue, place, wakers);
        if let Some(Turn::Granted(same)) = removed.and_then(|waiter| waiter.turn) {
            same.disown();
        }
    }

    /// Removes a waiter that has what it came for, or has gone.
    fn leave(&self, mut queue: MutexGuard<'_, Queue>, place: u64, wakers: Wakers) {
        let removed = queue.remove(place);
        let Applicant { sync, owner, .. } = &self.applicant;
        self.entry.departed(&self.core, &mut queue, &**sync, owner);
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
            Sharing::Permits(_) => queue.admit(Room::Unknown),
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
    pub(super) core: Arc<Core>,
    pub(super) entry: Arc<Entry>,
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
