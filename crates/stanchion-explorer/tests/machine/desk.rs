//! A local queue on its own, with parts that are plain values.

use std::task::Poll;
use std::time::Duration;

use stanchion_client::Moment;
use stanchion_client::local_queue::{
    Begin, Context, Effects, Ended, Held, Holder, Owed, Parts, Queue, Refused, Stay, Turn, Want,
};
use stanchion_client::primitive::{Granted, Heard, Placed, Reply, Sharing};

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

impl Context for Clock {
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
}

/// A queue and its clock. The first owner of a waiter is its place.
pub(crate) struct Desk {
    pub(crate) queue: Queue<Plain>,
    now: u64,
    /// The client receives no messages.
    pub(crate) polls: bool,
    wants: Vec<Wish>,
}

impl Desk {
    /// A queue with these waiters, which have joined at the same time.
    pub(crate) fn of<const N: usize>(wants: [Wish; N]) -> (Self, [u64; N]) {
        let mut desk = Self {
            queue: Queue::default(),
            now: 1000,
            polls: false,
            wants: Vec::new(),
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
        let (owner, clock) = (self.wants.len().to_string(), self.clock());
        self.wants.push(want);
        let stay = Stay {
            began: clock.now(),
            deadline: Moment::FAR,
        };
        self.queue.join(&clock, want, owner, (), stay)
    }

    /// The turn that the waiter takes. It sends a request if it may.
    pub(crate) fn turn(&mut self, place: u64) -> String {
        let clock = self.clock();
        match self.queue.take_turn(&clock, place, place) {
            Poll::Pending => "none".into(),
            Poll::Ready(Turn::Try(reason)) => {
                let want = self.wants[index(place)];
                let own = Right(want, place.to_string());
                self.queue.request(place, &own, reason);
                format!("{reason:?}")
            }
            Poll::Ready(Turn::Take(hold)) => format!("takes {}", hold.owner),
            Poll::Ready(turn) => format!("{turn:?}"),
        }
    }

    /// The turns that these waiters take.
    pub(crate) fn turns<const N: usize>(&mut self, places: [u64; N]) -> [String; N] {
        places.map(|place| self.turn(place))
    }

    /// For each of these waiters: whether it has a turn, which it keeps.
    pub(crate) fn called<const N: usize>(&self, places: [u64; N]) -> [bool; N] {
        places.map(|place| !self.queue.must_wait(place))
    }

    /// Refuses the request of the waiter. The lease ends in `ttl` ms, and the server has no entry.
    pub(crate) fn refuse(&mut self, place: u64, want: Wish, ttl: u64) {
        let refused = refused(want, place, ttl);
        assert!(!self.refuse_with(place, refused));
    }

    /// The same, with an entry on the server. `spread`: the next poll is at a random moment. `asks`: it counts as a response.
    pub(crate) fn stand(&mut self, place: u64, want: Wish, ttl: u64, spread: bool, asks: bool) {
        let refused = Refused {
            placed: placed(spread, asks),
            has_entry: true,
            ..refused(want, place, ttl)
        };
        assert!(self.refuse_with(place, refused));
    }

    pub(crate) fn refuse_with(&mut self, place: u64, refused: Refused<Plain>) -> bool {
        let clock = self.clock();
        self.queue.refused(&clock, place, refused)
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
        self.effects().entry.map(|right| right.1)
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
        let other = self
            .queue
            .acquired(&clock, place, &hold, next.map(at), true);
        assert!(other.is_none());
        hold
    }

    pub(crate) fn effects(&mut self) -> Effects<Plain> {
        self.queue.take_effects().unwrap_or_default()
    }

    /// The tasks that the events since the last call have woken.
    pub(crate) fn woken(&mut self) -> Vec<u64> {
        self.effects().wakers
    }
}

/// Places count from 0.
fn index(place: u64) -> usize {
    usize::try_from(place).unwrap_or(usize::MAX)
}

pub(crate) fn placed(spread: bool, asks: bool) -> Option<Placed> {
    let number = |flag| Reply::Int(i64::from(flag));
    Placed::read(&[Reply::Int(1), Reply::Int(0), number(spread), number(asks)])
}

/// A refusal without an entry.
pub(crate) fn refused(want: Wish, place: u64, ttl: u64) -> Refused<Plain> {
    Refused {
        ttl: Some(ms(ttl)),
        placed: None,
        debt: Right(want, place.to_string()),
        has_entry: false,
        granted: None,
        forgotten: false,
        subscribed: true,
    }
}
