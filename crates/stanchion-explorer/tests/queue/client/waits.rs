//! An acquire: a waiter joins the queue, which sends its requests, and the outcomes of the requests.

use std::task::Poll;
use std::time::Duration;

use stanchion_client::Reply as Parsed;
use stanchion_client::local_queue::{Ask as Request, Begin, News, Outcome, Refused, Stay, hear};
use stanchion_client::primitive::{Placed, Reason, Role};
use stanchion_explorer::{Micros, Output, Reply};

use super::line::Subscribed;
use super::model::{Debt, Model, Taken, Wanted, moment};
use super::{
    AGAIN, Ask, Asking, BOTH, Client, FIRST, Hold, Kind, MS, SILENCE, Step, Waiter, number,
};

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

    /// Runs the task of a waiter: it takes its news.
    pub(super) fn poll(&mut self, step: &mut Step, place: u64) {
        while self.index(place).is_some_and(|it| !self.waiters[it].sleeps) {
            match self.event(step, |it, cx| it.here().queue.poll(cx, place, place)) {
                Poll::Ready(News::Waits) => {}
                Poll::Ready(News::Over(Outcome::Granted(hold))) => self.take(step, place, &hold),
                Poll::Ready(News::Over(_)) => self.join_again(step, place),
                Poll::Pending => return,
            }
        }
    }

    /// The waiter has got the hold of `hold`.
    pub(super) fn take(&mut self, step: &mut Step, place: u64, hold: &Taken<K>) {
        let Some(index) = self.index(place) else {
            return;
        };
        let owner = Self::number_of(&hold.owner);
        let now = moment(step.now);
        let lives = |it: &&mut Hold| now < it.life.held_until();
        let Some(hold) = self.hold_of(owner).filter(lives) else {
            // It has ended, and may have been removed.
            self.holds.retain(|it| it.owner != owner);
            self.sweep_all(step, owner);
            self.debts.remove(&owner);
            return self.join_again(step, place);
        };
        hold.life.take(now);
        let token = hold.token;
        self.waiters.remove(index);
        step.outputs.push(Output::Granted { token });
    }

    /// The waiter starts again, with a new owner.
    pub(super) fn join_again(&mut self, step: &mut Step, place: u64) {
        if let Some(index) = self.index(place) {
            let waiter = self.waiters.remove(index);
            self.join(step, waiter.kind, waiter.began);
        }
    }

    pub(super) fn join(&mut self, step: &mut Step, kind: K, began: Micros) {
        self.at = kind.first_name();
        let debt = self.event(step, |_, cx| cx.owe(&Wanted(kind), &()));
        let place = self.enter(step, kind, began, debt);
        self.poll(step, place);
    }

    /// Adds a waiter to the local queue, as the owner of `debt`. Returns its place.
    fn enter(&mut self, step: &mut Step, kind: K, began: Micros, debt: Debt<K>) -> u64 {
        let name = self.at;
        let stay = Stay {
            began: moment(began),
            deadline: moment(began) + Duration::from_secs(9_999),
        };
        let (place, ask) = self.event(step, |it, cx| it.here().queue.join(cx, debt, (), stay));
        self.waiters.push(Waiter {
            kind,
            name,
            place,
            began,
            asking: None,
            sleeps: false,
        });
        match ask {
            Some(ask) => self.ask(step, ask),
            None => drop(self.subscribe(step)),
        }
        place
    }

    /// The waiter at `place` of the present queue goes on in the queue of `name`, with the entry of `owner` there.
    fn move_to(&mut self, step: &mut Step, place: u64, name: usize, owner: u64) {
        let Some(index) = self.index(place) else {
            return;
        };
        let waiter = self.waiters.remove(index);
        let from = std::mem::replace(&mut self.at, name);
        let debt = Debt {
            want: Wanted(waiter.kind),
            owner: self.wire(owner),
        };
        let there = self.enter(step, waiter.kind, waiter.began, debt);
        self.event(step, |it, cx| it.here().queue.bring(cx, there));
        self.at = from;
        self.event(step, |it, cx| {
            it.here().queue.answer(cx, place, ());
            let _ = it.here().queue.poll(cx, place, place);
        });
        self.at = name;
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
            self.event(step, |it, cx| {
                it.here().queue.admit(cx, Reason::Resubscribed);
            });
        }
        self.here().subscribed == Subscribed::Confirmed
    }

    /// Sends a request of a waiter.
    pub(super) fn ask(&mut self, step: &mut Step, request: Request<Model<K>>) {
        let owner = Self::number_of(&request.debt.owner);
        let asking = Asking {
            owner,
            sent: step.now,
            first: request.first,
            reason: request.reason,
        };
        self.send_ask(step, request.place, asking);
    }

    fn send_ask(&mut self, step: &mut Step, place: u64, asking: Asking) {
        let Some(index) = self.index(place) else {
            return;
        };
        let Asking {
            owner,
            first,
            reason,
            ..
        } = asking;
        let (wanted, now) = (self.waiters[index].kind, step.now);
        self.set_kind(owner, wanted);
        let waiter = &mut self.waiters[index];
        waiter.asking = Some(Asking {
            sent: now,
            ..asking
        });
        let began = waiter.began.to_string();
        let hears = self.here().subscribed == Subscribed::Confirmed;
        let claim = self.claim_of(owner);
        claim.sends(moment(now + SILENCE + 2 * MS));
        let arrived = Some(claim.arrived()).filter(|it| *it > 0);
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
        let now = step.now;
        self.event(step, |it, cx| {
            let mut queue = std::mem::take(&mut it.here().queue);
            let subscribed = it.here().subscribed == Subscribed::Confirmed;
            queue.message(cx, None, subscribed, heard, |grant: Begin<'_, Model<K>>| {
                let owner = Self::number_of(&grant.debt.owner);
                let [token, us, ms] = numbers;
                Some(it.begin(now, owner, token, us / MS * MS, Some(ms * MS)))
            });
            it.here().queue = queue;
        });
    }

    /// The outcome of a request of `owner`.
    pub(super) fn answered(&mut self, step: &mut Step, owner: u64, reply: &Reply) {
        let asks = |it: &&mut Waiter<K>| it.asking.is_some_and(|it| it.owner == owner);
        let found = self.waiters.iter_mut().find(asks);
        let found = found.and_then(|it| Some((it.place, it.asking.take()?)));
        self.claim_of(owner).answered();
        let Some((waiter, asking)) = found else {
            // The acquire was dropped: its hold or its entry is given back.
            match reply {
                Reply::Int(0..) => {
                    self.begin_again(step.now, owner, number(reply), step.now);
                    return self.release_hold(step, owner);
                }
                Reply::Array(parts) => self.placed(owner, placed(parts)),
                _ => {}
            }
            return self.give_up(step, owner);
        };
        let (place, sent) = (waiter, asking.sent);
        match reply {
            Reply::Int(-1) => self.again(step, place, asking),
            // Refused without an entry.
            Reply::Int(..=-3) => self.refused(step, place, owner, std::slice::from_ref(reply)),
            Reply::Int(_) => {
                // A grant by message that crossed the reply has begun a hold of the same owner, which is dropped below.
                let crossed = self.holds.iter().any(|it| it.owner == owner);
                let hold = match crossed {
                    true => self.begin_again(step.now, owner, number(reply), sent),
                    false => self.begin(step.now, owner, number(reply), sent, None),
                };
                let given = hold.clone();
                let other = self.event(step, |it, cx| {
                    it.here().queue.granted(cx, place, given, None)
                });
                if let Some(other) = other.filter(|other| other.owner != hold.owner) {
                    self.release_hold(step, Self::number_of(&other.owner));
                }
            }
            Reply::Array(parts) => self.refused(step, place, owner, parts),
            _ => {}
        }
        self.poll(step, place);
    }

    /// Records the place in the queue that `owner` has got or kept.
    fn placed(&mut self, owner: u64, placed: Option<Placed>) {
        if let Some(placed) = placed {
            self.claim_of(owner).placed(placed.arrived);
        }
    }

    /// Sends the request again, after an attempt without a decision.
    fn again(&mut self, step: &mut Step, place: u64, asking: Asking) {
        if let Some(_debt) = self.event(step, |it, cx| it.here().queue.undecided(cx, place)) {
            self.send_ask(step, place, asking);
        }
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
            self.placed(owner, placed);
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
        self.placed(owner, placed);
        let has_entry = self.claim_of(owner).arrived() > 0 && !kind.keeps_waiters();
        let granted = match parts.get(4) {
            Some(Reply::Bulk(owner)) if !owner.is_empty() => String::from_utf8(owner.clone()).ok(),
            _ => None,
        };
        let refused = Refused {
            ttl,
            placed,
            has_entry,
            granted,
            forgotten: parts.get(5) == Some(&Reply::Int(1)),
            subscribed,
        };
        self.event(step, |it, cx| it.here().queue.refused(cx, place, refused));
    }

    pub(super) fn unanswered(&mut self, step: &mut Step, owner: u64) {
        let claim = self.claim_of(owner);
        let until = claim.until();
        claim.answered();
        claim.unanswered(until);
        let asks = |it: &&mut Waiter<K>| it.asking.is_some_and(|it| it.owner == owner);
        let found = self.waiters.iter_mut().find(asks);
        let Some((place, asking)) = found.and_then(|it| Some((it.place, it.asking.take()?))) else {
            return self.give_up(step, owner);
        };
        let tolerance = Duration::from_secs(9_999);
        self.event(step, |it, cx| {
            it.here().queue.unanswered(cx, place, tolerance, &())
        });
        self.again(step, place, asking);
        self.poll(step, place);
    }
}
