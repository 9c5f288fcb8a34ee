//! The loop of an acquire: a waiter joins the queue, sends requests at its turns, and handles their outcomes.

use std::task::Poll;
use std::time::Duration;

use stanchion_client::Reply as Parsed;
use stanchion_client::local_queue::{Begin, Refused, Stay, Turn, hear};
use stanchion_client::primitive::{Placed, Reason, Role};
use stanchion_explorer::{Micros, Output, Reply};

use super::line::Subscribed;
use super::model::{Debt, Model, Taken, Wanted, moment};
use super::{AGAIN, Ask, BOTH, Client, FIRST, Kind, MS, SILENCE, Step, Waiter, number};

/// Reads a refusal, cut as by [`Process::reads`].
fn placed(parts: &[Reply]) -> Option<Placed> {
    let [_, arrived, spread, told, ..] = parts else {
        return None;
    };
    let parsed = |reply: &Reply| match reply {
        Reply::Int(n) => Parsed::Int(*n),
        _ => Parsed::Nil,
    };
    Placed::read(&[
        parsed(arrived),
        Parsed::Int(0),
        parsed(spread),
        parsed(told),
    ])
}

impl<K: Kind> Client<K> {
    pub(super) fn index(&self, place: u64) -> Option<usize> {
        let is_it = |it: &Waiter<K>| it.name == self.at && it.place == place;
        self.waiters.iter().position(is_it)
    }

    /// Runs the task of a waiter: it takes its turn, if it has one and no request in flight.
    pub(super) fn poll(&mut self, step: &mut Step, place: u64) {
        let Some(index) = self.index(place) else {
            return;
        };
        if self.waiters[index].asking.is_some() {
            return;
        }
        match self.event(step, |it, cx| it.here().queue.take_turn(cx, place, place)) {
            Poll::Ready(Turn::Try(reason)) => self.ask(step, place, reason),
            Poll::Ready(Turn::Take(hold)) => self.take(step, place, &hold),
            Poll::Ready(_) => self.join_again(step, place),
            Poll::Pending => {}
        }
    }

    /// The waiter has got the hold of `hold`.
    pub(super) fn take(&mut self, step: &mut Step, place: u64, hold: &Taken<K>) {
        let Some(index) = self.index(place) else {
            return;
        };
        let owner = Self::number_of(&hold.owner);
        let own = self.waiters[index].owner;
        let now = step.now;
        // The hold takes over what earlier requests of its owner may have left.
        let owed = self.debts.remove(&owner).and_then(|it| it.unanswered_until);
        let Some(taken) = self.hold_of(owner).filter(|it| now < it.valid_until) else {
            // It has ended, and may have been removed.
            let until = self.hold_of(owner).and_then(|it| it.unanswered_until);
            self.holds.retain(|it| it.owner != owner);
            self.sweep(step, owner, until.max(owed));
            return self.join_again(step, place);
        };
        taken.unanswered_until = taken.unanswered_until.max(owed);
        taken.claimed = true;
        let token = taken.token;
        self.waiters.remove(index);
        step.outputs.push(Output::Granted { token });
        if let Some(own) = own.filter(|own| *own != owner) {
            self.settle(step, own);
        }
    }

    /// The waiter starts again, with a new owner.
    pub(super) fn join_again(&mut self, step: &mut Step, place: u64) {
        let Some(index) = self.index(place) else {
            return;
        };
        let waiter = self.waiters.remove(index);
        self.event(step, |it, cx| it.here().queue.leave(cx, place));
        if let Some(owner) = waiter.owner {
            self.settle(step, owner);
        }
        self.join(step, waiter.kind, waiter.began);
    }

    pub(super) fn join(&mut self, step: &mut Step, kind: K, began: Micros) {
        self.at = kind.first_name();
        // The first request of a waiter is sent at once if each has an entry.
        let own = kind.keeps_waiters().then_some(self.owners + 1);
        let place = self.enter(step, kind, began, own);
        self.owners = own.unwrap_or(self.owners);
        if self.here().queue.must_wait(place) {
            self.subscribe(step);
        }
        self.poll(step, place);
    }

    /// Adds a waiter to the local queue. Returns its place.
    fn enter(&mut self, step: &mut Step, kind: K, began: Micros, owner: Option<u64>) -> u64 {
        let name = self.at;
        let wire = self.wire(owner.unwrap_or(self.owners + 1));
        let stay = Stay {
            began: moment(began),
            deadline: moment(began) + Duration::from_secs(9_999),
        };
        let want = Wanted(kind);
        let place = self.event(step, |it, cx| {
            it.here().queue.join(cx, want, wire, (), stay)
        });
        self.waiters.push(Waiter {
            kind,
            name,
            place,
            began,
            owner,
            asking: None,
        });
        place
    }

    /// The waiter at `place` of the present queue goes on in the queue of `name`, with the entry of `owner` there.
    fn move_to(&mut self, step: &mut Step, place: u64, name: usize, owner: u64) {
        let Some(index) = self.index(place) else {
            return;
        };
        let waiter = self.waiters.remove(index);
        let from = std::mem::replace(&mut self.at, name);
        let there = self.enter(step, waiter.kind, waiter.began, Some(owner));
        self.at = from;
        self.event(step, |it, cx| it.here().queue.leave(cx, place));
        self.at = name;
        let debt = Debt {
            want: Wanted(waiter.kind),
            owner: self.wire(owner),
        };
        self.event(step, |it, cx| {
            if !it.here().queue.bring(cx, there, debt)
                && let Some(index) = it.index(there)
            {
                it.waiters[index].owner = None;
            }
        });
        if self.here().queue.must_wait(there) {
            self.subscribe(step);
        }
        self.poll(step, there);
    }

    /// Subscribes for a waiter. Returns whether the subscription is confirmed.
    pub(super) fn subscribe(&mut self, step: &mut Step) -> bool {
        if self.polls {
            return false;
        }
        if self.here().subscribed == Subscribed::No {
            self.here().subscribed = Subscribed::Sent;
            step.outputs.push(self.subscription());
        }
        if std::mem::take(&mut self.here().unheard) {
            self.event(step, |it, _| it.here().queue.admit(Reason::Resubscribed));
        }
        self.here().subscribed == Subscribed::Confirmed
    }

    /// Sends a request of a waiter, for `reason`.
    pub(super) fn ask(&mut self, step: &mut Step, place: u64, reason: Reason) {
        let Some(index) = self.index(place) else {
            return;
        };
        let (own, wanted) = (self.waiters[index].owner, self.waiters[index].kind);
        // A new owner counts only if its request is sent.
        let number = own.unwrap_or(self.owners + 1);
        let debt = Debt {
            want: Wanted(wanted),
            owner: self.wire(number),
        };
        let (standing, first) =
            self.event(step, |it, _| it.here().queue.request(place, &debt, reason));
        let owner = standing.map_or(number, |debt| Self::number_of(&debt.owner));
        if let Some(own) = own.filter(|own| *own != owner) {
            self.settle(step, own);
        }
        self.owners = self.owners.max(owner);
        self.set_kind(owner, wanted);
        let now = step.now;
        let waiter = &mut self.waiters[index];
        (waiter.owner, waiter.asking) = (Some(owner), Some(now));
        let began = waiter.began.to_string();
        let hears = self.here().subscribed == Subscribed::Confirmed;
        let arrived = self.debts.entry(owner).or_default().arrived;
        let word = match reason {
            _ if !first => "try",
            Reason::Told => "ask",
            Reason::Look => "look",
            Reason::Turn if arrived.is_some() => "ask",
            _ => "new",
        };
        let word = match (word, arrived, self.polls) {
            ("try", ..) | ("new", None, false) => word.to_owned(),
            (_, _, polls) => {
                let arrived = arrived.map(|it| it.to_string()).unwrap_or_default();
                let hears = u8::from(self.relays == Subscribed::Confirmed && !arrived.is_empty());
                format!("{word} {arrived} {hears} {}", if polls { "?" } else { "" })
            }
        };
        let kind = if arrived.is_none() { FIRST } else { AGAIN };
        let ask = Ask {
            owner: self.wire(owner),
            word,
            not_after: (now + SILENCE).to_string(),
            began,
            arrived: arrived.unwrap_or_default(),
            hears,
        };
        let from = self.both.as_mut().filter(|(_, to)| *to == 0);
        let from = from.map(|(from, to)| {
            *to = owner;
            *from
        });
        let both = from.and_then(|from| wanted.release_and_acquire(&self.wire(from), &ask));
        match both {
            Some(call) => self.send(step, BOTH, owner, call),
            None => self.send(step, kind, owner, wanted.acquire(&ask)),
        }
    }

    pub(super) fn message(&mut self, step: &mut Step, payload: &str) {
        let heard = hear(payload.as_bytes());
        let mut parts = payload.split(' ').skip(2).map_while(|it| it.parse().ok());
        let numbers: [Micros; 3] = [(); 3].map(|()| parts.next().unwrap_or_default());
        let mut begun = None;
        self.event(step, |it, cx| {
            let mut queue = std::mem::take(&mut it.here().queue);
            let subscribed = it.here().subscribed == Subscribed::Confirmed;
            queue.message(cx, None, subscribed, heard, |grant: Begin<'_, Model<K>>| {
                let owner = match &grant.debt {
                    Some(debt) => Self::number_of(&debt.owner),
                    None => Self::number_of(grant.waiter.owner()),
                };
                let [token, us, ms] = numbers;
                let hold = it.begin(owner, token, us / MS * MS, Some(ms * MS));
                begun = grant.debt.map(|_| owner);
                Some(hold)
            });
            it.here().queue = queue;
        });
        // A grant to the entry has ended it on the server.
        if let Some(owed) = begun.and_then(|owner| self.debts.get_mut(&owner)) {
            owed.arrived = None;
        }
    }

    /// The outcome of a request of `owner`.
    pub(super) fn answered(&mut self, step: &mut Step, owner: u64, queued: bool, reply: &Reply) {
        let asks = |it: &&mut Waiter<K>| it.asking.is_some() && it.owner == Some(owner);
        let Some(waiter) = self.waiters.iter_mut().find(asks) else {
            // The acquire was dropped: its hold or its entry is given back.
            let until = self.debts.remove(&owner).and_then(|it| it.unanswered_until);
            self.sweeps.extend(until.map(|at| (at, owner)));
            return match reply {
                Reply::Int(..0) if !queued => {}
                Reply::Int(0..) => self.release(step, owner, false),
                _ => self.release(step, owner, true),
            };
        };
        let (place, sent) = (waiter.place, waiter.asking.take().unwrap_or_default());
        match reply {
            Reply::Int(-1) => self.event(step, |it, _| it.here().queue.undecided(place)),
            // Refused without an entry.
            Reply::Int(..=-3) => self.refused(step, place, owner, std::slice::from_ref(reply)),
            Reply::Int(_) => {
                // A grant by message that crossed the reply has begun a hold of the same owner, which is dropped below.
                let crossed = self.holds.iter().any(|it| it.owner == owner);
                let hold = match crossed {
                    true => self.begin_again(owner, number(reply), sent),
                    false => self.begin(owner, number(reply), sent, None),
                };
                let owed = self.debts.get(&owner);
                let waited = owed.is_some_and(|it| it.arrived.is_some());
                let other = self.event(step, |it, cx| {
                    it.here().queue.acquired(cx, place, &hold, None, waited)
                });
                self.take(step, place, &hold);
                if let Some(other) = other.filter(|other| other.owner != hold.owner) {
                    self.release_hold(step, Self::number_of(&other.owner));
                }
            }
            Reply::Array(parts) => self.refused(step, place, owner, parts),
            _ => {}
        }
        self.poll(step, place);
    }

    /// `parts`: see [`Process::reads`].
    pub(super) fn refused(&mut self, step: &mut Step, place: u64, owner: u64, parts: &[Reply]) {
        let placed = placed(parts);
        let kind = self.kind_of(owner);
        let busy = parts.get(4).filter(|_| kind.is_of_several());
        // Names count from 1, among those that the request wants.
        let name = busy.and_then(|it| usize::try_from(number(it)).ok()?.checked_sub(1));
        if let Some(name) = name.map(|it| kind.first_name() + it)
            && name != self.at
        {
            let owed = self.debts.entry(owner).or_default();
            owed.arrived = placed.map(|it| it.arrived);
            return self.move_to(step, place, name, owner);
        }
        let subscribed = self.subscribe(step);
        if let Some(Reply::Int(role)) = parts.get(4).filter(|_| kind.is_beside_redisson()) {
            self.play(step, Role::read(Some(*role)));
        }
        let ttl = match parts.first() {
            Some(Reply::Int(n)) => u64::try_from(-4 - n).ok().map(Duration::from_millis),
            _ => None,
        };
        let owed = self.debts.entry(owner).or_default();
        owed.arrived = placed.map(|it| it.arrived).or(owed.arrived);
        let has_entry = owed.arrived.is_some() && !kind.keeps_waiters();
        let granted = match parts.get(4) {
            Some(Reply::Bulk(owner)) if !owner.is_empty() => String::from_utf8(owner.clone()).ok(),
            _ => None,
        };
        let refused = Refused {
            ttl,
            placed,
            debt: Debt {
                want: Wanted(kind),
                owner: self.wire(owner),
            },
            has_entry,
            granted,
            forgotten: parts.get(5) == Some(&Reply::Int(1)),
            subscribed,
        };
        let stands = self.event(step, |it, cx| {
            let stands = it.here().queue.refused(cx, place, refused);
            if let Some(index) = it.index(place).filter(|_| stands) {
                // The queue has this owner now. The waiter's next request may have another.
                it.waiters[index].owner = None;
            }
            stands
        });
        debug_assert!(!stands || has_entry);
    }

    pub(super) fn unanswered(&mut self, step: &mut Step, owner: u64) {
        let until = step.now + SILENCE + 2 * MS;
        let asks = |it: &&mut Waiter<K>| it.asking.is_some() && it.owner == Some(owner);
        let Some(waiter) = self.waiters.iter_mut().find(asks) else {
            self.debts.remove(&owner);
            return self.sweep(step, owner, Some(until));
        };
        let (place, sent) = (waiter.place, waiter.asking.take().unwrap_or_default());
        let until = sent + SILENCE + 2 * MS;
        self.debts.entry(owner).or_default().unanswered_until = Some(until);
        self.event(step, |it, cx| {
            it.here()
                .queue
                .unanswered(cx, place, Duration::from_secs(9_999), &());
            it.here().queue.undecided(place);
        });
        self.poll(step, place);
    }
}
