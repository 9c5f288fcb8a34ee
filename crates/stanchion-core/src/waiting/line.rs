//! The place of this process in a line that the server keeps.
//!
//! One place for all waiters of a queue: [`Queue::standing`] has it while no request is under way in its name, otherwise that request
//! has. A grant by message is for the place, and goes to the first waiter. The last waiter that leaves gives the place up.

use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::lock_entry::LockEntry;
use super::queue::{Queue, Room, Turn, Wakers};
use super::subscriptions::Ear;
use super::ticket::{Ticket, after_expiry};
use crate::description::{Granted, Heard, ServerLine, Sharing, Synchronizer};
use crate::hold::handle::Hold;
use crate::hold::state::{Grant, HoldState};
use crate::hold::sweep::{Debt, finished};
use crate::line::{Placed, Reason, Role};
use crate::shared::Core;
use crate::token::FencingToken;
use crate::waiting::End;
use stanchion_transport::{Moment, Path};

/// Returns whether this is a release of Redisson's. What stanchion says to its clients has a zero in front, which they read as the same.
fn is_redissons(payload: &[u8]) -> bool {
    payload.len() < 2 || !payload.starts_with(b"0")
}

impl Ticket {
    /// Takes the place of this process for a request of this waiter, whose own owner is that of `own`; and the reason of the request.
    pub(crate) fn step_up(&self, own: &Arc<Debt>) -> (Option<Arc<Debt>>, Reason) {
        if self.applicant.sync.line().is_none() {
            return (None, Reason::Turn);
        }
        let mut queue = self.entry.queue();
        let standing = queue.standing.take();
        let (standing, unfit) = match standing {
            Some(debt) if serves(&debt, &*self.applicant.sync) => (Some(debt), None),
            unfit => (None, unfit),
        };
        // By the owner that it asks for, a grant which crosses the request finds it.
        let owner = standing.as_ref().unwrap_or(own).owner.clone();
        let mut reason = std::mem::take(&mut queue.reason);
        if let Some(waiter) = self.place.and_then(|place| queue.waiters.get_mut(&place)) {
            waiter.owner = owner;
            let joins =
                waiter.reason == Reason::Reply && waiter.sync.sharing() == Sharing::Together;
            if joins && reason == Reason::Turn {
                reason = Reason::Reply;
            }
        }
        drop(queue);
        // A place for another kind of waiter is given up, outside the mutex.
        drop(unfit);
        (standing, reason)
    }
}

/// Returns whether the place of `debt` can be that of a waiter for `sync`: a grant to it is what that waiter waits for.
fn serves(debt: &Debt, sync: &dyn Synchronizer) -> bool {
    let common = sync.line().is_some_and(ServerLine::is_common);
    common && debt.sync.kind() == sync.kind() && debt.sync.fence() == sync.fence()
        || std::ptr::addr_eq(Arc::as_ptr(&debt.sync), std::ptr::from_ref(sync))
}

impl Queue {
    /// Takes the place of this process, if the first waiter cannot take a grant to it, or there is none.
    pub(super) fn forsaken_place(&mut self) -> Option<Arc<Debt>> {
        let fits = |debt: &Debt| {
            self.waiters
                .first_key_value()
                .is_some_and(|(_, first)| serves(debt, &*first.sync))
        };
        let forsaken = self.standing.as_ref().is_some_and(|debt| !fits(debt));
        forsaken.then(|| self.standing.take()).flatten()
    }
}

impl LockEntry {
    /// Returns whether this client hears the releases of Redisson's clients.
    pub(crate) fn hears_for_line(&self, core: &Core, sync: &dyn Synchronizer) -> bool {
        let channel = sync.line().and_then(|line| line.neighbours(self.name()));
        channel.is_some_and(|channel| core.subscriptions.hears(channel))
    }

    /// Begins or ends hearing the releases of Redisson's clients, as the server has asked. Not to be called under a queue's mutex.
    pub(super) fn play(self: &Arc<Self>, core: &Core, sync: &dyn Synchronizer, role: Role) {
        let Some(channel) = sync.line().and_then(|line| line.neighbours(self.name())) else {
            return;
        };
        match role {
            // Who hears keeps hearing while it waits: its subscription may be one that lingers, and the server counts on it.
            Role::Keep if !core.subscriptions.hears(channel) => {}
            Role::Keep | Role::Take => drop(core.subscriptions.want_for(self, &Ear::Line, channel)),
            Role::Leave => core.subscriptions.forget_for(self, &Ear::Line, channel),
        }
    }

    /// Hears the releases of Redisson's clients: who did so for the others was served.
    pub(super) fn stand_sentry(&self, sync: &dyn Synchronizer) {
        if let (Some(core), Some(entry)) = (self.core.upgrade(), self.this.upgrade()) {
            entry.play(&core, sync, Role::Take);
        }
    }

    /// Handles a message of Redisson's: one process looks after the lock for the whole line.
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
    /// A grant to an owner that is not here any more is returned by the sweep of its debt (P3, F6). A second copy is dropped (L10).
    pub(super) fn granted(&self, mut queue: MutexGuard<'_, Queue>, granted: &Granted<'_>) {
        let (Some(core), Some(entry)) = (self.core.upgrade(), self.this.upgrade()) else {
            return;
        };
        // P1: the first copy has made a hold, or has been given back.
        if queue.grants.is_copy(granted, core.clock.now()) {
            return;
        }
        let mut wakers = Wakers::default();
        // The waiter that asked for this owner, perhaps some time ago; or the place of this process, which its first waiter has.
        let asked = match queue.by_owner.get(granted.owner) {
            Some(place) => Some(*place),
            None => queue
                .first()
                .filter(|(_, first)| first.asked && first.owner.as_str() == granted.owner)
                .map(|(place, _)| place),
        };
        let standing = queue
            .standing
            .take_if(|standing| standing.owner.as_str() == granted.owner);
        let place = asked.or_else(|| Some(queue.first().filter(|_| standing.is_some())?.0));
        let mut unfit = None;
        if let Some(place) = place
            && let Some(waiter) = queue.waiters.get(&place)
            && !matches!(waiter.turn, Some(Turn::Take(_)))
        {
            let sync = &waiter.sync;
            // P2: minted by a user of another counter, or of none. Then this one's own request finds the grant, and mints.
            let own = sync.fence().unwrap_or(b"-");
            let token = granted.fence.is_none_or(|fence| fence.as_bytes() == own);
            if token && standing.as_ref().is_none_or(|debt| serves(debt, &**sync)) {
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
                    // A waiter that asked takes its debt over when it takes the hold (`Asking::given`).
                    unanswered_until: standing.map_or(Moment::ZERO, |debt| debt.settle()),
                    due: Moment::ZERO,
                    next: None,
                };
                let hold = Hold::begin(&core, sync, &entry, grant);
                let in_line = sync.line().is_some();
                queue.holder = hold.weak();
                if in_line {
                    queue.handed = 0;
                    queue.again = 0;
                    queue.head_look = None;
                }
                queue.tell(place, Turn::Take(hold.unclaimed()), &mut wakers);
            } else {
                // The first waiter's request finds the grant, or gives it back.
                if standing.is_some() {
                    queue.standing = standing;
                }
                wakers = queue.admit(Room::Unknown);
            }
        } else {
            unfit = standing;
            if queue.handing.is_some() {
                // The place may be that of a hand-off whose answer is on its way: see `passed_on`.
                queue.again = queue.again.max(1);
            }
        }
        drop(queue);
        wakers.call();
        // Nobody here can take it: its sweep passes it on.
        drop(unfit);
    }

    /// Records that this process is the head of the line: nobody else looks when the holder's time is over.
    pub(super) fn head(&self, queue: &mut Queue, at: Moment) {
        queue.head_look = Some(at);
        if queue.asking == 0 && queue.handing.is_none() {
            queue.poll_reason = Reason::Look;
            self.schedule_poll(queue, at);
        }
    }

    /// Plans the next look at a line, after a reply that gave this process its place.
    pub(super) fn plan_look(
        &self,
        core: &Core,
        queue: &mut Queue,
        ttl: Option<Duration>,
        placed: Placed,
        longest: Duration,
    ) {
        let ttl = ttl.unwrap_or(longest);
        let pause = if placed.spread {
            ttl.mul_f64(0.1) + core.jitter(ttl.mul_f64(0.9))
        } else {
            after_expiry(core, ttl)
        };
        let now = core.clock.now();
        let mut at = now + pause.min(longest);
        // It became the head while its request was under way.
        if let Some(look) = queue.head_look.take_if(|look| *look > now) {
            at = at.min(look);
        }
        queue.poll_reason = if placed.asks {
            Reason::Told
        } else {
            Reason::Look
        };
        if let Some(told) = queue.told_at.take_if(|told| *told > now && *told <= at) {
            at = told;
            queue.poll_reason = Reason::Told;
        }
        self.schedule_poll(queue, at);
    }

    /// Ends a hand-off of `hold` in which another process was ahead: the successor's `debt` is the place of this process.
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
        let again = std::mem::take(&mut queue.again);
        let mut wakers = Wakers::default();
        if !queue.waiters.is_empty() {
            queue.standing = Some(Arc::clone(debt));
            self.plan_look(core, &mut queue, ttl, placed, core.poll_interval());
            if again > 0 {
                // A message overtook the answer: the grant to this place, or a hint for it.
                wakers = queue.admit(Room::Unknown);
            }
        }
        self.freed_in(queue, core, hold, End::Released);
        wakers.call();
    }
}

/// Reads a message to a process: of a line, or the number of permits that may be free. One that is not understood lets the first waiter
/// ask.
pub(super) fn hear(payload: &[u8]) -> Heard<'_> {
    read(payload).unwrap_or_else(|| Heard::free(payload))
}

fn read(payload: &[u8]) -> Option<Heard<'_>> {
    // The counter is the last part, and a name may have spaces.
    let mut parts = std::str::from_utf8(payload).ok()?.splitn(6, ' ');
    let number = |text: Option<&str>| text?.parse::<u64>().ok();
    let heard = match parts.next()? {
        "G" => Heard::Granted(Granted {
            owner: parts.next()?,
            token: FencingToken::new(number(parts.next())?),
            now: number(parts.next())?,
            lease: Duration::from_millis(number(parts.next())?),
            fence: Some(parts.next()?),
        }),
        "N" => Heard::Head(Duration::from_millis(number(parts.next())?)),
        "P" => Heard::Open(Duration::from_millis(number(parts.next())?)),
        "H" => Heard::Hear,
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
        assert_eq!(hear(b"N 30000"), Heard::Head(Duration::from_secs(30)));
        assert_eq!(hear(b"P 0"), Heard::Open(Duration::ZERO));
        assert_eq!(hear(b"H"), Heard::Hear);
        for odd in [
            &b"A"[..],
            b"",
            b"0",
            b"G u:7 9 5 1500",
            b"G u:7 x 5 1500 -",
            b"N -1",
            b"P x",
            b"\xff",
        ] {
            assert_eq!(hear(odd), Heard::Free(1), "{odd:?}");
        }
    }
}
