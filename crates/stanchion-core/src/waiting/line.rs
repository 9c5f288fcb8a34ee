//! The entry of this process in the queue that the server keeps for a name.
//!
//! One entry for all waiters of a local queue: [`Queue::entry`] has it while no request is under way in its name, otherwise that request
//! has. Each message names the entry that it is about; one about another entry is ignored. A grant goes to the first waiter. The last
//! waiter that leaves gives the entry up.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::{Asked, Entry, Queue, Turn, Waiter, Wakers};
use super::subscriptions::Ear;
use super::ticket::{POLL_UNSUBSCRIBED, Ticket, after_expiry, spin};
use crate::description::{Granted, Heard, ServerLine, Sharing, Synchronizer};
use crate::hold::handle::Hold;
use crate::hold::state::{Grant, HoldState};
use crate::hold::sweep::{Debt, finished};
use crate::line::{Placed, Reason, Role};
use crate::shared::Core;
use crate::token::FencingToken;
use crate::waiting::End;
use stanchion_transport::{Moment, Path, Wake};

/// The interval at which a queue on the server polls as a whole, if no shorter one is configured: see `line.lua`.
const POLL: Duration = Duration::from_secs(5);

/// The time after which the server takes a grant of plain permits back that was not confirmed (0.5 s), and a little more.
const UNCONFIRMED: Duration = Duration::from_millis(510);

/// Returns whether this is a release of Redisson's. Payloads of stanchion have a zero in front, which Redisson's clients read as the same.
fn is_redissons(payload: &[u8]) -> bool {
    payload.len() < 2 || !payload.starts_with(b"0")
}

impl Ticket {
    /// Takes the entry of this process for a request of this waiter, whose own debt is `own`. Returns the debt of the requesting owner, if
    /// it is not `own`, and whether the request may get an entry.
    pub(crate) fn step_up(&self, own: &Arc<Debt>, reason: Reason) -> (Option<Arc<Debt>>, bool) {
        let sync = &*self.applicant.sync;
        let mut queue = self.entry.queue();
        let is_first = queue.first().map(|(first, _)| first) == self.place;
        // A waiter that was notified, or whose poll is due, replaces the first waiter, which may never take its reply.
        let has_entry = is_first || reason != Reason::Turn;
        let entry = queue.entry.take_if(|_| has_entry && sync.line().is_some());
        let (standing, unfit) = match entry {
            Some(Entry { debt, .. }) if is_for(&debt, sync) => (Some(debt), None),
            Some(Entry { debt, .. }) if serves(&debt, sync) => (Some(debt.pass_to(own)), None),
            unfit => (None, unfit),
        };
        // A message that crosses the request finds the waiter by this owner.
        let owner = standing.as_ref().unwrap_or(own).owner.clone();
        if let Some(waiter) = self.place.and_then(|key| queue.waiters.get_mut(&key)) {
            waiter.owner = owner;
            waiter.asked = if has_entry {
                Asked::First
            } else {
                Asked::Behind
            };
        }
        drop(queue);
        // An entry for another kind of waiter is given up, outside the mutex.
        drop(unfit);
        (standing, has_entry)
    }
}

impl Ticket {
    /// Brings the entry of `debt`, which a request from another queue got. Returns whether this waiter sends the next request, for that
    /// entry. Otherwise this queue keeps the entry if its first waiter can use it, or the entry is given up.
    pub(crate) fn brings(&self, debt: &Arc<Debt>) -> bool {
        let mut queue = self.entry.queue();
        let Some((first, waiter)) = queue.first() else {
            return false;
        };
        if Some(first) == self.place && queue.is_told() {
            return true;
        }
        if queue.entry.is_none() && serves(debt, &*waiter.sync) {
            let debt = Arc::clone(debt);
            queue.entry = Some(Entry { debt, off: false });
        }
        let wakers = queue.make_known();
        drop(queue);
        wakers.call();
        false
    }
}

/// Returns whether a waiter for `sync` can use the entry of `debt`, that is, take a grant to it.
fn serves(debt: &Debt, sync: &dyn Synchronizer) -> bool {
    // An entry for several names is not granted, but notified.
    let notified = debt.sync.in_parts() && sync.in_parts() && !debt.is_unanswered();
    notified && debt.sync.kind() == sync.kind() || is_for(debt, sync)
}

/// Returns whether the entry of `debt` is that of a waiter for `sync`, or the same as its own would be.
fn is_for(debt: &Debt, sync: &dyn Synchronizer) -> bool {
    let common = sync.line().is_some_and(ServerLine::is_common);
    let same = debt.sync.kind() == sync.kind() && debt.sync.fence() == sync.fence();
    common && same && debt.sync.sharing() == sync.sharing()
        || std::ptr::addr_eq(Arc::as_ptr(&debt.sync), std::ptr::from_ref(sync))
}

impl Queue {
    /// Takes the entry of this process, if the first waiter cannot take a grant to it, or there is none.
    pub(super) fn forsaken_entry(&mut self) -> Option<Arc<Debt>> {
        let first = self.waiters.first_key_value().map(|(_, first)| first);
        let forsaken = self
            .entry
            .take_if(|entry| first.is_none_or(|first| !serves(&entry.debt, &*first.sync)));
        forsaken.map(|entry| entry.debt)
    }

    /// Finds the waiter that takes a grant to `owner`: the one with a request of that owner, or the first that can use the entry.
    fn taker(&self, owner: &str) -> Option<u64> {
        let entry = self.entry.as_ref().map(|entry| &entry.debt);
        let entry = entry.filter(|debt| debt.owner.as_str() == owner);
        let takes = |it: &Waiter| {
            // Another waiter may have used this owner before, and is parked now.
            let asks = it.asking && it.asked == Asked::First && it.owner.as_str() == owner;
            let waits = !it.asking && entry.is_some_and(|debt| serves(debt, &*it.sync));
            !it.has_hold() && (asks || waits)
        };
        let (place, _) = self.waiters.iter().find(|(_, waiter)| takes(waiter))?;
        Some(*place)
    }
}

impl LockEntry {
    /// Returns whether this client is subscribed to the releases of Redisson's clients.
    pub(crate) fn hears_for_line(&self, core: &Core, sync: &dyn Synchronizer) -> bool {
        let channel = sync.line().and_then(|line| line.neighbours(self.name()));
        channel.is_some_and(|channel| core.subscriptions.hears(channel))
    }

    /// Becomes the relay, or stops being it, as the server's reply demands. Not to be called under a queue's mutex.
    pub(super) fn play(self: &Arc<Self>, core: &Core, sync: &dyn Synchronizer, role: Role) {
        let Some(channel) = sync.line().and_then(|line| line.neighbours(self.name())) else {
            return;
        };
        match role {
            // A relay stays subscribed while it waits: its subscription may be one that lingers, and the server relies on it.
            Role::Keep if !core.subscriptions.hears(channel) => {}
            Role::Keep | Role::Take => drop(core.subscriptions.want_for(self, &Ear::Line, channel)),
            Role::Leave => core.subscriptions.forget_for(self, &Ear::Line, channel),
        }
    }

    /// Handles a release of Redisson's: the relay serves the queue on the server.
    pub(super) fn heard_for_line(&self, sync: &Arc<dyn Synchronizer>, payload: &[u8]) {
        let (Some(core), true) = (self.core.upgrade(), is_redissons(payload)) else {
            return;
        };
        let Some(call) = sync.line().and_then(|line| line.tend(true)) else {
            return self.ask_again(Reason::Told);
        };
        let (runner, sync) = (Arc::clone(&core.runner), Arc::clone(sync));
        runner.serve(async move {
            if let Ok(reply) = core.call(Path::Background, &call).await {
                finished(&core, &*sync, reply);
            }
        });
    }

    /// Handles a grant by message. The hold begins here, not when its waiter is polled, so that the watchdog extends the short
    /// lease of a grant at once.
    ///
    /// A grant to an owner that has left is given back by the sweep of its debt (P3, F6). A second copy is dropped (L10).
    pub(super) fn granted(&self, mut queue: MutexGuard<'_, Queue>, granted: &Granted<'_>) {
        let (Some(core), Some(entry)) = (self.core.upgrade(), self.this.upgrade()) else {
            return;
        };
        // P1: the first copy has made a hold, or has been given back.
        if queue.grants.is_copy(granted, core.clock.now()) {
            return;
        }
        let mut wakers = Wakers::default();
        let place = match queue.kept.by_owner.get(granted.owner) {
            Some(place) => Some(*place),
            None => queue.taker(granted.owner),
        };
        let entry_is = |entry: &mut Entry| entry.debt.owner.as_str() == granted.owner;
        let mut standing = queue.entry.take_if(entry_is).map(|entry| entry.debt);
        if let Some(place) = place
            && let Some(waiter) = queue.waiters.get(&place)
            && !waiter.has_hold()
        {
            let sync = &waiter.sync;
            // P2: a user of another counter, or of none, may have minted. Then the waiter's own request finds the grant, and mints.
            let own = sync.fence().unwrap_or(b"-");
            if granted.fence.is_none_or(|fence| fence.as_bytes() == own) {
                let grant = Grant {
                    owner: match &standing {
                        Some(debt) => debt.owner.clone(),
                        None => waiter.owner.clone(),
                    },
                    token: granted.token,
                    terms: waiter.terms,
                    // P1: the lease runs since the server's decision. `when` errs to the early side.
                    sent: core.when(sync.name(), granted.now),
                    first: Some(granted.lease),
                    // A waiter with a request takes its debt over when it takes the hold (`Asking::given`).
                    unanswered_until: standing.take().map_or(Moment::ZERO, |debt| debt.settle()),
                    due: Moment::ZERO,
                    next: None,
                };
                let hold = Hold::begin(&core, sync, &entry, grant);
                let sharing = hold.sharing();
                if sharing.has_one_holder() {
                    queue.holder = hold.weak();
                    queue.due = None;
                }
                // Won on the server, so this process has its whole turn of hand-offs again.
                queue.handed = 0;
                queue.answered();
                queue.tell(place, Turn::Take(hold.unclaimed()), &mut wakers);
                if !sharing.has_one_holder() {
                    // Other waiters may hold concurrently, and the grant has used up the entry of this process.
                    wakers.0.extend(queue.granted(sharing, 0).0);
                }
            } else {
                // The first waiter's request finds the grant, or gives it back.
                queue.entry = standing.take().map(|debt| Entry { debt, off: true });
                wakers = queue.admit(Reason::Turn);
            }
        } else if queue.handing.is_some() {
            // The entry may be that of a hand-off whose reply is in flight: see `passed_on`.
            queue.remember(Moment::ZERO, Reason::Turn);
        }
        drop(queue);
        wakers.call();
        // No waiter here takes the grant: the sweep of its debt passes it on.
        drop(standing);
    }

    /// Lets the first waiter send a request at `at` for `reason`, after a message about the entry of `owner`. Another entry has
    /// been given up already.
    pub(super) fn is_due(
        &self,
        mut queue: MutexGuard<'_, Queue>,
        owner: &str,
        at: Moment,
        reason: Reason,
    ) {
        if !queue.is_about(owner) && queue.handing.is_none() {
            return;
        }
        queue.refused = 0;
        let mut wakers = Wakers::default();
        if queue.handing.is_some() || !queue.first_is_parked() {
            queue.remember(at, reason);
            if let (Some(Sharing::Permits(_)), Some(core)) =
                (queue.first_sharing(), self.core.upgrade())
            {
                // The requesting waiter may never take its reply (invariant 3). Another retries after the server has taken the grant back.
                self.poll_by(&mut queue, core.clock.now() + UNCONFIRMED, reason);
            }
        } else if at == Moment::ZERO {
            wakers = queue.admit(reason);
        } else {
            self.schedule_poll(&mut queue, at, reason);
        }
        drop(queue);
        wakers.call();
    }

    /// Plans the next poll, after a reply that gave this process its entry. `due`: the poll that a message demanded during the request.
    pub(super) fn plan_look(
        &self,
        core: &Core,
        queue: &mut Queue,
        ttl: Option<Duration>,
        placed: Placed,
        subscribed: bool,
        due: Option<(Moment, Reason)>,
    ) {
        let interval = core.poll_interval();
        let pause = match ttl {
            _ if core.config.wake == Wake::Poll => {
                let pause = spin(core, queue.refused);
                ttl.map_or(pause, |ttl| after_expiry(core, ttl).min(pause))
            }
            _ if !subscribed => ttl.map_or(POLL_UNSUBSCRIBED, |ttl| {
                after_expiry(core, ttl).min(POLL_UNSUBSCRIBED)
            }),
            // At a random moment: the queue as a whole polls once in an interval.
            Some(ttl) if placed.spread => {
                let shortened = ttl.mul_f64((interval.as_secs_f64() / POLL.as_secs_f64()).min(1.0));
                // While a client of Redisson's holds, the head gets its own pause, which is not that of the whole queue.
                core.jitter(shortened.max(ttl.min(interval)))
            }
            Some(ttl) => after_expiry(core, ttl).min(interval),
            None => interval,
        };
        let reason = if placed.asks {
            Reason::Told
        } else {
            Reason::Look
        };
        let mut planned = (core.clock.now() + pause, reason);
        if let Some(due) = due.filter(|(at, _)| *at <= planned.0) {
            planned = due;
        }
        self.schedule_poll(queue, planned.0, planned.1);
    }

    /// Ends a hand-off of `hold` in which another process was ahead: the successor's `debt` becomes the entry of this process.
    pub(crate) fn passed_on(
        &self,
        hold: &HoldState,
        debt: &Arc<Debt>,
        ttl: Option<Duration>,
        placed: Placed,
    ) {
        let core = &hold.core;
        let mut queue = self.queue();
        queue.handing = None;
        let due = queue.due.take();
        let mut wakers = Wakers::default();
        if !queue.waiters.is_empty() {
            let debt = Arc::clone(debt);
            queue.entry = Some(Entry { debt, off: false });
            // A message may have overtaken the reply: the grant to this entry, or a hint for it.
            match due {
                Some((at, reason)) if at <= core.clock.now() => wakers = queue.admit(reason),
                _ => self.plan_look(core, &mut queue, ttl, placed, true, due),
            }
        }
        self.freed_in(queue, core, hold, End::Released);
        wakers.call();
    }
}

/// Reads a message about an entry of this process. After one that is not understood, the first waiter sends a request.
pub(super) fn hear(payload: &[u8]) -> Heard<'_> {
    read(payload).unwrap_or(Heard::Free)
}

fn read(payload: &[u8]) -> Option<Heard<'_>> {
    // The counter is the last part, and a name may have spaces.
    let mut parts = std::str::from_utf8(payload).ok()?.splitn(6, ' ');
    let number = |text: Option<&str>| text?.parse::<u64>().ok();
    let (word, owner) = (parts.next()?, parts.next()?);
    let heard = match word {
        "G" => Heard::Granted(Granted {
            owner,
            token: FencingToken::new(number(parts.next())?),
            now: number(parts.next())?,
            lease: Duration::from_millis(number(parts.next())?),
            fence: Some(parts.next()?),
        }),
        "N" => Heard::Head(owner, Duration::from_millis(number(parts.next())?)),
        "P" => Heard::Try(owner, Duration::from_millis(number(parts.next())?)),
        _ => return None,
    };
    parts.next().is_none().then_some(heard)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_that_is_not_understood_wakes_the_first() {
        let granted = Heard::Granted(Granted {
            owner: "u:7",
            token: FencingToken::new(9),
            now: 5,
            lease: Duration::from_millis(1500),
            fence: Some("the counter"),
        });
        assert_eq!(hear(b"G u:7 9 5 1500 the counter"), granted);
        let head = Heard::Head("u:7", Duration::from_secs(30));
        assert_eq!(hear(b"N u:7 30000"), head);
        assert_eq!(hear(b"P u:7 0"), Heard::Try("u:7", Duration::ZERO));
        for odd in [
            &b"A"[..],
            b"",
            b"0",
            b"G u:7 9 5 1500",
            b"G u:7 x 5 1500 -",
            b"N u:7 -1",
            b"N 30000",
            b"P u:7 x",
            b"\xff",
        ] {
            assert_eq!(hear(odd), Heard::Free, "{odd:?}");
        }
    }
}
