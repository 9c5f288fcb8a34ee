//! A local queue on its own, with parts that are plain values.

use std::collections::BTreeMap;
use std::task::Poll;
use std::time::Duration;

use stanchion_client::Moment;
use stanchion_client::local_queue::{
    Ask, Begin, Context, Effect, Ended, Held, Holder, News, Outcome, Owed, Parts, Queue, Refused,
    Stay, Want,
};
use stanchion_client::primitive::{Granted, Heard, Placed, Reason, Reply, Sharing};

#[derive(Debug)]
pub(crate) struct Plain;

impl Parts for Plain {
    type Want = Wish;
    type Owner = String;
    type Terms = ();
    type Debt = Right;
    type Hold = Hold;
    type Holder = Option<Hold>;
    type Ended = Hold;
    type Waker = u64;
    type Outage = ();
    type Answer = &'static str;
}

/// A synchronizer.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Wish {
    pub(crate) sharing: Sharing,
    /// The server keeps a queue of processes.
    pub(crate) in_line: bool,
    pub(crate) is_fact: bool,
    /// The counter of its tokens.
    pub(crate) fence: &'static str,
}

/// One holder at a time, and a queue on the server.
pub(crate) const LOCK: Wish = of(Sharing::Exclusive);
/// A permit, with a queue on the server.
pub(crate) const PERMIT: Wish = of(Sharing::Permits(1));
/// A reader, with a queue on the server.
pub(crate) const READER: Wish = of(Sharing::Together);
/// A fair lock, of which the server keeps every waiter.
pub(crate) const FAIR: Wish = Wish {
    in_line: false,
    ..of(Sharing::Queued)
};
/// An event that requests find.
pub(crate) const EVENT: Wish = Wish {
    in_line: false,
    ..of(Sharing::Event)
};

const fn of(sharing: Sharing) -> Wish {
    Wish {
        sharing,
        in_line: true,
        is_fact: false,
        fence: "-",
    }
}

impl Want for Wish {
    fn sharing(&self) -> Sharing {
        self.sharing
    }

    fn is_in_line(&self) -> bool {
        self.in_line
    }

    fn is_fact(&self) -> bool {
        self.is_fact
    }

    fn fence(&self) -> &[u8] {
        self.fence.as_bytes()
    }

    fn is_handed(&self, held: &Self) -> bool {
        self.sharing == held.sharing
    }

    fn shares_entry(&self, other: &Self) -> bool {
        self.sharing == other.sharing
    }

    fn continues_entry(&self, _: &Self) -> bool {
        false
    }
}

/// The right to an entry.
#[derive(Clone, Debug)]
pub(crate) struct Right(pub(crate) Wish, pub(crate) String);

impl Owed<Plain> for Right {
    fn want(&self) -> &Wish {
        &self.0
    }

    fn owner(&self) -> &String {
        &self.1
    }

    fn is_unanswered(&self) -> bool {
        false
    }

    fn pass_to(&self, _: &Self) -> Self {
        self.clone()
    }
}

/// A hold, and the end of its lease.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) want: Wish,
    pub(crate) owner: String,
    pub(crate) until: Moment,
    pub(crate) unclaimed: bool,
}

impl Held<Plain> for Hold {
    fn sharing(&self) -> Sharing {
        self.want.sharing
    }

    fn is_held(&self, now: Moment) -> bool {
        now < self.until
    }

    fn holder(&self) -> Option<Self> {
        Some(self.clone())
    }

    fn settle(&self, _: &Right) {}

    fn is(&self, ended: &Self) -> bool {
        self.owner == ended.owner
    }
}

impl Ended<Plain> for Hold {
    fn want(&self) -> &Wish {
        &self.want
    }

    fn owner(&self) -> &String {
        &self.owner
    }

    fn is_unclaimed(&self) -> bool {
        self.unclaimed
    }
}

impl Holder<Plain> for Option<Hold> {
    fn is_held(&self, now: Moment) -> bool {
        self.as_ref().is_some_and(|hold| now < hold.until)
    }

    fn exists(&self) -> bool {
        self.is_some()
    }

    fn is(&self, ended: &Hold) -> bool {
        self.as_ref().is_some_and(|hold| hold.owner == ended.owner)
    }
}

pub(crate) const fn ms(ms: u64) -> Duration {
    Duration::from_millis(ms)
}

pub(crate) fn at(millis: u64) -> Moment {
    Moment::ZERO + ms(millis)
}

/// The clock of a client. A random pause is the longest one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Clock {
    now: Moment,
    polls: bool,
}

impl Context<Plain> for Clock {
    fn now(&self) -> Moment {
        self.now
    }

    fn poll_interval(&self) -> Duration {
        ms(5000)
    }

    fn polls(&self) -> bool {
        self.polls
    }

    fn jitter(&self, most: Duration) -> Duration {
        most
    }

    fn owe(&self, want: &Wish, (): &()) -> Right {
        Right(*want, "fresh".into())
    }
}

/// A queue and its clock. The first owner of a waiter is its place.
pub(crate) struct Desk {
    pub(crate) queue: Queue<Plain>,
    now: u64,
    /// The client receives no messages.
    pub(crate) polls: bool,
    wants: Vec<Wish>,
    /// The requests that the queue has sent since the last [`Desk::turn`] of their waiters: by place, with owner and reason, and whether they may get an entry.
    sent: BTreeMap<u64, (String, Reason, bool)>,
    woken: Vec<u64>,
    given_up: Vec<String>,
    /// The owners of the holds that no waiter has taken.
    untaken: Vec<String>,
}

impl Desk {
    /// A queue with these waiters, which have joined at the same time.
    pub(crate) fn of<const N: usize>(wants: [Wish; N]) -> (Self, [u64; N]) {
        let mut desk = Self {
            queue: Queue::default(),
            now: 1000,
            polls: false,
            wants: Vec::new(),
            sent: BTreeMap::new(),
            woken: Vec::new(),
            given_up: Vec::new(),
            untaken: Vec::new(),
        };
        let places = wants.map(|want| desk.join(want));
        (desk, places)
    }

    pub(crate) fn clock(&self) -> Clock {
        Clock {
            now: at(self.now),
            polls: self.polls,
        }
    }

    /// The moment after `millis`.
    pub(crate) fn after(&self, millis: u64) -> Moment {
        at(self.now + millis)
    }

    pub(crate) fn pass(&mut self, millis: u64) {
        self.now += millis;
    }

    pub(crate) fn join(&mut self, want: Wish) -> u64 {
        let owner = self.wants.len().to_string();
        self.join_as(want, owner)
    }

    /// A waiter joins that brings the entry of `owner` from another queue.
    pub(crate) fn bring(&mut self, want: Wish, owner: &str) -> u64 {
        let place = self.join_as(want, owner.into());
        let clock = self.clock();
        self.queue.bring(&clock, place);
        place
    }

    fn join_as(&mut self, want: Wish, owner: String) -> u64 {
        let clock = self.clock();
        self.wants.push(want);
        let stay = Stay {
            began: clock.now(),
            deadline: Moment::FAR,
        };
        let (place, ask) = self.queue.join(&clock, Right(want, owner), (), stay);
        self.note(ask);
        place
    }

    fn note(&mut self, ask: Option<Ask<Plain>>) {
        let noted = ask.map(|ask| (ask.place, (ask.debt.1, ask.reason, ask.first)));
        self.sent.extend(noted);
    }

    /// Collects the effects of the events so far.
    fn look(&mut self) {
        for effect in self.queue.take_effects() {
            match effect {
                Effect::Send(ask) => self.note(Some(ask)),
                Effect::Wake(place) => self.woken.push(place),
                Effect::GiveUp(right) => self.given_up.push(right.1),
                Effect::Untaken(Outcome::Granted(hold)) => self.untaken.push(hold.owner),
                Effect::Untaken(_) | Effect::Left(_) | Effect::Forget(_) => {}
            }
        }
    }

    /// The request that the waiter has sent: its owner, and whether it may get an entry.
    pub(crate) fn request(&mut self, place: u64) -> Option<(String, bool)> {
        self.look();
        let (owner, _, first) = self.sent.remove(&place)?;
        Some((owner, first))
    }

    /// The news of the waiter: the reason of the request that it has sent, or the end of its wait.
    pub(crate) fn turn(&mut self, place: u64) -> String {
        self.look();
        if let Some((_, reason, _)) = self.sent.remove(&place) {
            return format!("{reason:?}");
        }
        let clock = self.clock();
        loop {
            return match self.queue.poll(&clock, place, place) {
                Poll::Pending => "none".into(),
                Poll::Ready(News::Waits) => continue,
                Poll::Ready(News::Over(outcome)) => match outcome {
                    Outcome::Granted(hold) => format!("takes {}", hold.owner),
                    Outcome::Seen => "Seen".into(),
                    Outcome::Missed => "Missed".into(),
                    Outcome::OutOfReach(..) => "OutOfReach".into(),
                    Outcome::Answered(answer) => answer.into(),
                },
            };
        }
    }

    /// The news of these waiters.
    pub(crate) fn turns<const N: usize>(&mut self, places: [u64; N]) -> [String; N] {
        places.map(|place| self.turn(place))
    }

    /// For each of these waiters: whether there is news, which stays.
    pub(crate) fn called<const N: usize>(&mut self, places: [u64; N]) -> [bool; N] {
        self.look();
        places.map(|it| self.sent.contains_key(&it) || self.queue.waiter(it).is_none())
    }

    /// Refuses the request of the waiter. The lease ends in `ttl` ms, and the server has no entry.
    pub(crate) fn refuse(&mut self, place: u64, ttl: u64) {
        self.refuse_with(place, refused(ttl));
    }

    /// The same, with an entry on the server. `spread`: the next poll is at a random moment. `asks`: it counts as a response.
    pub(crate) fn stand(&mut self, place: u64, ttl: u64, spread: bool, asks: bool) {
        let refused = Refused {
            placed: placed(spread, asks),
            has_entry: true,
            ..refused(ttl)
        };
        self.refuse_with(place, refused);
    }

    pub(crate) fn refuse_with(&mut self, place: u64, refused: Refused) {
        self.look();
        self.sent.remove(&place);
        let clock = self.clock();
        self.queue.refused(&clock, place, refused);
    }

    /// Records a hold that was acquired without a place.
    pub(crate) fn acquired_elsewhere(&mut self, hold: &Hold) {
        let clock = self.clock();
        self.queue.acquired_without_place(&clock, hold);
    }

    /// A message about the entry of `owner`.
    pub(crate) fn hear(&mut self, heard: Heard<'_>) {
        let clock = self.clock();
        self.queue.message(&clock, None, true, heard, |_| None);
    }

    /// A grant by message, with a lease of 1.5 s.
    pub(crate) fn hear_grant(&mut self, owner: u64, fence: &str) {
        let (clock, until, owner) = (self.clock(), self.after(1500), owner.to_string());
        let heard = Heard::Granted(Granted {
            owner: &owner,
            token: None,
            now: 0,
            lease: ms(1500),
            fence,
        });
        let want = self.wants[0];
        let begin = |_: Begin<'_, Plain>| {
            Some(Hold {
                want,
                owner: owner.clone(),
                until,
                unclaimed: true,
            })
        };
        self.queue.message(&clock, None, true, heard, begin);
    }

    /// The owner whose entry the last events have given up.
    pub(crate) fn given_up(&mut self) -> Option<String> {
        self.look();
        std::mem::take(&mut self.given_up).pop()
    }

    /// The owners of the holds that no waiter takes.
    pub(crate) fn untaken(&mut self) -> Vec<String> {
        self.look();
        std::mem::take(&mut self.untaken)
    }

    /// Forgets the effects so far.
    pub(crate) fn forget(&mut self) {
        self.look();
        (self.given_up, self.woken) = (Vec::new(), Vec::new());
    }

    /// The entry of this process on the server is there, as far as the queue knows.
    pub(crate) fn stands(&self) -> bool {
        self.queue.hand_offs().1
    }

    /// The ms until the planned poll.
    pub(crate) fn poll_in(&self) -> Option<u64> {
        let pause = self.queue.next_poll()?.since(self.after(0));
        Some(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX))
    }

    /// The planned poll is due.
    pub(crate) fn poll(&mut self) {
        self.pass(self.poll_in().unwrap_or_default());
        let clock = self.clock();
        self.queue.timer(&clock);
    }

    pub(crate) fn hold(&self, want: Wish, owner: u64, lease: u64) -> Hold {
        Hold {
            want,
            owner: owner.to_string(),
            until: at(self.now + lease),
            unclaimed: false,
        }
    }

    /// Grants the request of the waiter, for 10 s. `next`: the moment at which the next waiter can be granted.
    pub(crate) fn grant(&mut self, place: u64, want: Wish, next: Option<u64>) -> Hold {
        let (clock, hold) = (self.clock(), self.hold(want, place, 10_000));
        self.look();
        self.sent.remove(&place);
        let granted = hold.clone();
        let other = self.queue.granted(&clock, place, granted, next.map(at));
        assert!(other.is_none());
        assert_eq!(self.turn(place), format!("takes {place}"));
        hold
    }

    /// The tasks that the events since the last call have woken.
    pub(crate) fn woken(&mut self) -> Vec<u64> {
        self.look();
        std::mem::take(&mut self.woken)
    }
}

pub(crate) fn placed(spread: bool, asks: bool) -> Option<Placed> {
    let number = |flag| Reply::Int(i64::from(flag));
    Placed::read(&[Reply::Int(1), Reply::Int(0), number(spread), number(asks)])
}

/// A refusal without an entry.
pub(crate) fn refused(ttl: u64) -> Refused {
    Refused {
        ttl: Some(ms(ttl)),
        placed: None,
        has_entry: false,
        granted: None,
        forgotten: false,
        subscribed: true,
    }
}
