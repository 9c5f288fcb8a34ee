//! The life of a hold: it begins, is renewed, handed to another waiter, released or lost.

use std::time::Duration;

use stanchion_client::life::{Life, Start};
use stanchion_client::local_queue::End;
use stanchion_client::primitive::{Reason, Tenure};
use stanchion_client::{Ended, Lease, Moment};
use stanchion_explorer::{Micros, Reply};

use super::model::{Taken, Wanted, moment};
use super::{
    Ask, Client, GONE, HAND_OFF, HAND_OFFS, Handing, Hold, Kind, LEASE_US, MS, RENEW, SILENCE, Step,
};

impl<K: Kind> Client<K> {
    pub(super) fn hold_of(&mut self, owner: u64) -> Option<&mut Hold> {
        self.holds.iter_mut().find(|it| it.owner == owner)
    }

    pub(super) fn ended(&self, hold: &Hold) -> Taken<K> {
        Taken {
            want: Wanted(self.kind_of(hold.owner)),
            owner: self.wire(hold.owner),
            untaken: hold.life.is_untaken(),
        }
    }

    /// Ends a hold: that of the user, or one that its waiter has not taken.
    pub(super) fn release_hold(&mut self, step: &mut Step, owner: u64) {
        let Some(taken) = self.end_hold(step, owner) else {
            return;
        };
        if taken && self.kind_of(owner).is_handed_off() && self.hand_off(step, owner) {
            return;
        }
        self.release(step, owner, false);
        // With no waiter now or later, and no sweep that follows it, the end of the release changes nothing. This saves states.
        let is_final = self.claim_of(owner).until() == Moment::ZERO;
        if is_final && self.waiters.is_empty() && self.acquires == 0 {
            self.released(step, owner, &Reply::Nil);
        }
    }

    /// Ends a hold on the client's side. Returns whether the user had it; `None` if it has ended before.
    pub(super) fn end_hold(&mut self, step: &Step, owner: u64) -> Option<bool> {
        let hold = self.hold_of(owner)?;
        hold.life.end(Ended::Released).ok()?;
        hold.release_sent = Some(step.now);
        let taken = !hold.life.is_untaken();
        self.claim_of(owner).ends();
        Some(taken)
    }

    /// Removes a hold that is over.
    fn remove_hold(&mut self, owner: u64) {
        let sent = self.hold_of(owner).and_then(|it| it.release_sent);
        self.holds.retain(|it| it.owner != owner);
        if let Some(sent) = sent {
            self.claim_of(owner).released(moment(sent));
        }
    }

    /// The release of a hold was answered.
    pub(super) fn released(&mut self, step: &mut Step, owner: u64, reply: &Reply) {
        self.served(step, reply);
        if let Some(hold) = self.hold_of(owner).map(|it| it.clone()) {
            let ended = self.ended(&hold);
            self.remove_hold(owner);
            let end = match *reply == Reply::Int(GONE) {
                true => End::Unknown,
                false => End::Released,
            };
            self.event(step, |it, cx| it.here().queue.freed(cx, &ended, end));
            self.give_up(step, owner);
        }
    }

    /// Passes a grant in the reply to a release on to its waiter.
    pub(super) fn served(&mut self, step: &mut Step, reply: &Reply) {
        if let Reply::Array(parts) = reply
            && let [_, _, Reply::Bulk(grant)] = parts.as_slice()
        {
            self.message(step, &String::from_utf8_lossy(grant));
        }
    }

    /// Returns whether a new waiter's first request can go with a release.
    pub(super) fn goes_with(&self) -> bool {
        let ask = Ask::default();
        self.both.is_none() && self.kind.release_and_acquire("", &ask).is_some()
    }

    /// The outcome of a release that made the first request of `owner`, too. Without a reply the release is sent alone.
    pub(super) fn released_and_answered(
        &mut self,
        step: &mut Step,
        owner: u64,
        reply: Option<Reply>,
    ) {
        let Some((from, _)) = self.both.take() else {
            return;
        };
        match reply {
            Some(Reply::Array(replies)) if replies.len() == 2 => {
                self.released(step, from, &replies[0]);
                self.answered(step, owner, &replies[1]);
            }
            _ => {
                self.release(step, from, false);
                self.unanswered(step, owner);
            }
        }
    }

    /// Hands the hold of `from` to a waiter of this process, if there is one: in this local queue, or in that of another of its names.
    pub(super) fn hand_off(&mut self, step: &mut Step, from: u64) -> bool {
        let (kind, own) = (self.kind_of(from), self.at);
        let handed = self.here().queue.hand_offs().0;
        if handed >= HAND_OFFS {
            return false;
        }
        let others = (0..self.lines.len()).filter(|name| kind.is_of_several() && *name != own);
        let names: Vec<_> = [own].into_iter().chain(others).collect();
        // Past other waiters once.
        let ways = [false, true];
        let ways = &ways[..1 + usize::from(kind.is_of_several() && handed == 0)];
        let found = ways.iter().find_map(|past| {
            names.iter().find_map(|name| {
                self.at = *name;
                self.event(step, |it, cx| {
                    it.here().queue.reserve(cx, &Wanted(kind), *past)
                })
                .map(|place| (*name, place))
            })
        });
        let Some((name, place)) = found else {
            self.at = own;
            return false;
        };
        self.owners += 1;
        let to = self.owners;
        self.set_kind(to, kind);
        self.handing = Some(Handing {
            from,
            to,
            name,
            place,
            handed,
            sent: step.now,
        });
        self.send_hand_off(step);
        true
    }

    pub(super) fn send_hand_off(&mut self, step: &mut Step) {
        let Some(handing) = &mut self.handing else {
            return;
        };
        handing.sent = step.now;
        let (from, to) = (handing.from, handing.to);
        let not_after = (step.now + SILENCE).to_string();
        let call = self
            .kind_of(to)
            .hand_off(&self.wire(from), &self.wire(to), &not_after);
        if let Some(call) = call {
            self.send(step, HAND_OFF, to, call);
        }
    }

    /// The outcome of a hand-off. Without a reply it is sent again.
    pub(super) fn handed_off(&mut self, step: &mut Step, reply: Option<&Reply>) {
        let Some(Reply::Int(code)) = reply else {
            if K::CONFIRMS {
                return self.not_handed(step, false);
            }
            if let Some((to, sent)) = self.handing.as_ref().map(|it| (it.to, it.sent)) {
                let until = moment(sent + SILENCE + 2 * MS);
                self.claim_of(to).unanswered(until);
            }
            return self.send_hand_off(step);
        };
        if *code < 0 && *code != GONE {
            return self.not_handed(step, true);
        }
        let Some(handing) = self.handing.take() else {
            return;
        };
        let Handing {
            from,
            to,
            place,
            handed,
            sent,
            ..
        } = handing;
        let Some(old) = self.hold_of(from).map(|it| it.clone()) else {
            return;
        };
        self.remove_hold(from);
        if let Ok(token) = u64::try_from(*code) {
            let hold = self.begin(step.now, to, token, sent, None);
            self.event(step, |it, cx| {
                it.here().queue.hand_over(cx, place, hold, handed + 1);
            });
            if old.name != self.at {
                let ended = self.ended(&old);
                self.at = old.name;
                self.event(step, |it, cx| {
                    it.here().queue.freed(cx, &ended, End::Released);
                });
            }
            return self.give_up(step, from);
        }
        // The sweep begins before the next waiter's request.
        self.settle(step, to);
        let ended = self.ended(&old);
        self.event(step, |it, cx| {
            it.here().queue.end_hand_off(cx, place, None);
            if it.at != old.name {
                it.here().queue.admit(cx, Reason::Turn);
            }
        });
        self.at = old.name;
        self.event(step, |it, cx| {
            it.here().queue.freed(cx, &ended, End::Unknown);
        });
        self.give_up(step, from);
    }

    /// The hand-off did nothing; or that of a permit, which is tried once, was not answered. The hold is released instead.
    fn not_handed(&mut self, step: &mut Step, is_answered: bool) {
        let Some(Handing {
            from,
            to,
            place,
            sent,
            ..
        }) = self.handing.take()
        else {
            return;
        };
        if !is_answered {
            let until = moment(sent + SILENCE + 2 * MS);
            self.claim_of(to).unanswered(until);
        }
        self.settle(step, to);
        self.event(step, |it, cx| {
            it.here().queue.end_hand_off(cx, place, None);
            it.here().queue.admit(cx, Reason::Turn);
        });
        self.release(step, from, false);
    }

    pub(super) fn renew(&mut self, step: &mut Step, owner: u64) {
        let not_after = (step.now + SILENCE).to_string();
        let call = self.kind_of(owner).renew(&self.wire(owner), &not_after);
        if let Some(hold) = self.hold_of(owner) {
            hold.renewal_sent = Some(step.now);
            self.send(step, RENEW, owner, call);
        }
    }

    /// Begins a hold of `owner`. `first`: the short lease of a grant by message.
    pub(super) fn begin(
        &mut self,
        now: Micros,
        owner: u64,
        token: u64,
        sent: Micros,
        first: Option<Micros>,
    ) -> Taken<K> {
        let tenure = match K::CONFIRMS {
            true => Tenure::Unleased,
            false => Tenure::Leased,
        };
        let life = Life::begin(Start {
            now: moment(now),
            sent: moment(sent),
            tenure,
            leases: [Lease::default(); 2],
            short: first.map(Duration::from_micros),
            is_watched: true,
            ends: Moment::FAR,
            is_given: true,
            keeps: false,
        });
        self.claim_of(owner).granted();
        let hold = Hold {
            owner,
            name: self.at,
            token,
            life,
            renewal_sent: None,
            release_sent: None,
        };
        let taken = self.ended(&hold);
        self.holds.push(hold);
        self.set_holds();
        taken
    }

    /// Replaces the hold that a message began by that of a reply to the same owner.
    pub(super) fn begin_again(
        &mut self,
        now: Micros,
        owner: u64,
        token: u64,
        sent: Micros,
    ) -> Taken<K> {
        self.holds.retain(|it| it.owner != owner);
        self.begin(now, owner, token, sent, None)
    }

    pub(super) fn renewed(&mut self, step: &mut Step, owner: u64, reply: Option<&Reply>) {
        let now = step.now;
        let Some(hold) = self.hold_of(owner) else {
            return;
        };
        let Some(sent) = hold.renewal_sent.take() else {
            return;
        };
        if hold.life.ended().is_some() {
            return;
        }
        match reply {
            // The user sees the loss. The server has nothing left.
            Some(Reply::Array(items)) if items.contains(&Reply::Int(0)) => {
                if self.kind_of(owner).is_of_several() {
                    // The others may be left.
                    self.release(step, owner, true);
                }
                self.lose(step, owner);
            }
            Some(Reply::Array(_)) => {
                hold.life.renewed(Lease::default(), moment(sent));
                hold.life.renew_at(moment(sent + LEASE_US / 3));
            }
            _ => hold.life.renew_at(moment(now + 200 * MS)),
        }
    }

    /// Ends a hold that was lost, without a release.
    pub(super) fn lose(&mut self, step: &mut Step, owner: u64) {
        if let Some(hold) = self.hold_of(owner).map(|it| it.clone()) {
            let ended = self.ended(&hold);
            self.holds.retain(|it| it.owner != owner);
            self.event(step, |it, cx| {
                it.here().queue.freed(cx, &ended, End::Unknown);
            });
            self.give_up(step, owner);
        }
    }

    /// The task of its waiter has not taken the hold in time.
    pub(super) fn leave_untaken(&mut self, step: &mut Step, owner: u64) {
        if let Some(hold) = self.hold_of(owner).map(|it| it.clone()) {
            let ended = self.ended(&hold);
            self.at = hold.name;
            self.event(step, |it, _| it.here().queue.untaken(&ended));
        }
    }
}
