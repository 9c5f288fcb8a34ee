//! The parts of a queue, as plain values.

use std::time::Duration;

use stanchion_client::Moment;
use stanchion_client::local_queue::{Context, EndedHold, Held, Holder, Parts};
use stanchion_client::primitive::Sharing;

use crate::wish::{Right, Wish};

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

impl Wish {
    /// `*`: the server keeps no queue of processes.
    pub(crate) fn of(word: &str) -> Self {
        let (name, in_line) = word
            .strip_suffix('*')
            .map_or((word, true), |it| (it, false));
        let (sharing, in_line) = match name {
            "lock" => (Sharing::Exclusive, in_line),
            "permit" => (Sharing::Permits(1), in_line),
            "reader" => (Sharing::Together, in_line),
            "fair" => (Sharing::Queued, false),
            "event" | "fact" => (Sharing::Event, false),
            _ => panic!("unknown: {word}"),
        };
        Self {
            sharing,
            in_line,
            is_fact: name == "fact",
        }
    }
}

/// A hold, and the end of its lease.
#[derive(Clone, Debug)]
pub(crate) struct Hold {
    pub(crate) want: Wish,
    pub(crate) owner: String,
    pub(crate) until: Moment,
    pub(crate) untaken: bool,
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

impl EndedHold<Plain> for Hold {
    fn want(&self) -> &Wish {
        &self.want
    }

    fn owner(&self) -> &String {
        &self.owner
    }

    fn is_untaken(&self) -> bool {
        self.untaken
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
    pub(crate) now: Moment,
    pub(crate) polls: bool,
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
