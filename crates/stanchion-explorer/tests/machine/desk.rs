//! A local queue on its own, with parts that are plain values, and transcripts of what its events cause.
//!
//! ```text
//! a wake-up during a request is kept until its reply
//! join lock lock | a Turn
//! try 0 0; a queued 90000 | a Told
//!
//! the next case, on an empty queue
//! ```
//!
//! Empty lines separate cases. The first line of a case is its title. Each other line has events, and after `|` **all** that they cause:
//!
//! * `a Turn`: the waiter `a` sends a request for this reason. ` as 7`: with the owner 7, not with its own. ` behind`: not as the first waiter.
//! * `a takes 7`, `a Seen`, `a Missed`, `a OutOfReach`, `a error`: the wait ends, and its task was woken.
//! * `gives up 7`: an owner's right. `drops 7`: a hold, or an error, that no task takes.
//! * `poll 703`: a poll is planned, so many ms from now. `entry`: this process has an entry on the server. `no poll`, `no entry` at the end of a line.
//! * The others are the results of the methods of [`Queue`].
//!
//! Waiters are `a`, `b`, … by place, and their first owners `0`, `1`, …. Times are milliseconds. [`Desk::event`] has the events. On a
//! difference the test prints the text with the actual effects.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::task::Poll;

use stanchion_client::Moment;
use stanchion_client::local_queue::{Ask, Effect, End, News, Outcome, Queue, Refused, Stay};
use stanchion_client::primitive::{Granted, Heard, Placed, Reply};

use crate::parts::{Clock, Hold, Plain, at, ms};
use crate::wish::{Right, Wish};

/// A queue and its clock.
struct Desk {
    queue: Queue<Plain>,
    now: u64,
    /// The client receives no messages.
    polls: bool,
    /// The synchronizers of the waiters, by place.
    wants: Vec<Wish>,
    /// The wakers of the tasks, by place. A task with a waker does not run.
    wakers: BTreeMap<u64, u64>,
    last_waker: u64,
    /// The waiters whose tasks do not run, or have ended.
    stopped: BTreeSet<u64>,
    /// The waiters whose tasks know that they wait.
    informed: BTreeSet<u64>,
    caused: Vec<String>,
}

/// Runs all cases of a transcript.
#[track_caller]
pub(crate) fn check(text: &str) {
    let cases: Vec<_> = text.trim().split("\n\n").map(run).collect();
    let actual = cases.join("\n\n");
    let expected: Vec<_> = text.trim().lines().map(str::trim).collect();
    assert!(
        actual == expected.join("\n"),
        "the actual effects:\n{actual}\n"
    );
}

/// Runs a case, and returns its actual text.
fn run(case: &str) -> String {
    let mut desk = Desk {
        queue: Queue::default(),
        now: 1000,
        polls: false,
        wants: Vec::new(),
        wakers: BTreeMap::new(),
        last_waker: 0,
        stopped: BTreeSet::new(),
        informed: BTreeSet::new(),
        caused: Vec::new(),
    };
    let mut lines = case.trim().lines().map(str::trim);
    let mut actual = lines.next().unwrap_or_default().to_owned();
    for line in lines {
        let events = line.split('|').next().unwrap_or_default().trim();
        let effects = desk.line(events);
        let bar = if effects.is_empty() { "" } else { " | " };
        actual += &format!("\n{events}{bar}{effects}");
    }
    actual
}

fn letter(place: u64) -> char {
    char::from(b'a' + u8::try_from(place).unwrap_or_default())
}

fn number(word: &str) -> u64 {
    word.parse().unwrap_or_else(|_| panic!("no number: {word}"))
}

impl Desk {
    /// Returns what the events of a line cause.
    fn line(&mut self, events: &str) -> String {
        let before = (self.poll_in().is_some(), self.queue.hand_offs().1);
        for event in events.split("; ") {
            let words: Vec<_> = event.split(' ').collect();
            let planned = self.queue.next_poll();
            self.event(&words);
            self.settle();
            if self.queue.next_poll() != planned {
                let poll = self.poll_in();
                self.caused.extend(poll.map(|ms| format!("poll {ms}")));
            }
        }
        let after = (self.poll_in().is_some(), self.queue.hand_offs().1);
        if before.0 && !after.0 {
            self.cause("no poll");
        }
        if before.1 != after.1 {
            self.cause(if after.1 { "entry" } else { "no entry" });
        }
        std::mem::take(&mut self.caused).join(", ")
    }

    fn event(&mut self, words: &[&str]) {
        let clock = self.clock();
        match *words {
            ["join", ref wants @ ..] => {
                for want in wants {
                    self.join(want, self.wants.len());
                }
            }
            // A waiter joins that brings the entry of `owner` from another queue.
            ["bring", want, owner] => {
                let place = self.join(want, owner);
                self.queue.bring(&clock, place);
            }
            ["polls"] => self.polls = true,
            ["pass", ms] => self.now += number(ms),
            // At the planned poll, or later.
            ["timer"] => {
                self.now += self.poll_in().unwrap_or_default();
                self.queue.timer(&self.clock());
            }
            ["free"] => self.message(None, Heard::Free),
            ["free", owner] => self.message(Some(owner), Heard::Free),
            ["try", owner, pause] => self.message(None, Heard::Try(owner, ms(number(pause)))),
            ["head", owner, pause] => self.message(None, Heard::Head(owner, ms(number(pause)))),
            ["grant", owner] => self.grant(owner, "-"),
            ["grant", owner, "other"] => self.grant(owner, "other"),
            // Holds of this process, without a waiter here.
            ["holds", want, owner, lease] => {
                let hold = self.hold(Wish::of(want), owner, number(lease));
                self.queue.acquired_without_place(&clock, &hold);
            }
            [end @ ("released" | "ended" | "missed"), want, owner] => {
                let mut hold = self.hold(Wish::of(want), owner, 0);
                hold.untaken = end == "missed";
                let end = if end == "released" {
                    End::Released
                } else {
                    End::Unknown
                };
                self.queue.freed(&clock, &hold, end);
            }
            ["reserve", want] => {
                let place = self.queue.reserve(&clock, &Wish::of(want), false);
                let reserved = place.map(|it| format!("reserves {}", letter(it)));
                self.cause(reserved.unwrap_or_else(|| "reserves none".into()));
            }
            ["hand-offs"] => self.cause(self.queue.hand_offs().0),
            ["take-entry"] => drop(self.queue.take_entry()),
            ["shutdown"] => {
                let owners = self.queue.take_untaken().into_iter().map(|it| it.owner);
                self.caused.extend(owners);
            }
            ["rest"] => self.queue.rest(),
            ["reset"] => self.queue.reset(),
            // A fact: the event of all waiters has happened, or they have to look, or it is about another event.
            ["fact", what] => {
                let news = (what != "other").then_some(what == "happened");
                self.queue.pass_fact(&clock, |_| news);
            }
            ["has", owner] => self.cause(self.queue.has_debt_of(owner)),
            ["is", what] => self.cause(match what {
                "idle" => self.queue.is_idle(),
                "attended" => self.queue.is_attended(),
                "for-facts" => self.queue.is_for_facts(),
                "held" => self.queue.may_have_holder(clock.now),
                "waited-for" => self.queue.is_waited_for(),
                "out" => self.queue.outage().is_some(),
                _ => panic!("unknown: {what}"),
            }),
            [waiter, ref event @ ..] => {
                self.of_waiter(u64::from(waiter.as_bytes()[0] - b'a'), event);
            }
            [] => {}
        }
    }

    fn of_waiter(&mut self, place: u64, event: &[&str]) {
        let clock = self.clock();
        match *event {
            // A refusal, without an entry on the server or with one. The lease ends in `ttl` ms.
            [refused @ ("refused" | "queued"), ttl, ref more @ ..] => {
                let has = |word| more.contains(&word);
                let flag = |word| Reply::Int(i64::from(has(word)));
                let reply = [Reply::Int(1), Reply::Int(0), flag("spread"), flag("asks")];
                let refused = Refused {
                    ttl: Some(ms(number(ttl))),
                    placed: (refused == "queued")
                        .then(|| Placed::read(&reply))
                        .flatten(),
                    has_entry: refused == "queued" && self.want(place).in_line,
                    granted: more
                        .first()
                        .and_then(|it| it.strip_prefix("granted="))
                        .map(str::to_owned),
                    forgotten: has("forgotten"),
                    subscribed: !has("unsubscribed"),
                };
                self.queue.refused(&clock, place, refused);
                self.settle();
                let knows = self.informed.contains(&place) || self.stopped.contains(&place);
                assert!(knows, "the task was not woken to learn that it waits");
            }
            // `next`: the ms after which the next waiter can be granted.
            ["granted", ref next @ ..] => {
                let next = next.first().map(|it| at(self.now + number(it)));
                let waiter = self.queue.waiter(place);
                let owner = waiter.map_or_else(|| place.to_string(), |it| it.owner().clone());
                let hold = self.hold(self.want(place), owner, 10_000);
                let other = self.queue.granted(&clock, place, hold, next);
                self.caused
                    .extend(other.map(|it| format!("also {}", it.owner)));
            }
            ["error"] => self.queue.answer(&clock, place, "error"),
            ["undecided"] => {
                let debt = self.queue.undecided(&clock, place);
                self.cause(debt.map_or_else(|| "over".into(), |it| format!("again as {}", it.1)));
            }
            ["unanswered"] => {
                if self.queue.unanswered(&clock, place, ms(3000), &()) {
                    self.cause("fails");
                }
            }
            ["leaves"] => {
                self.stopped.insert(place);
                let (own, entry) = self.queue.leave(&clock, place);
                let debts = own.into_iter().chain(entry);
                self.caused
                    .extend(debts.map(|it| format!("gives up {}", it.1)));
            }
            // A hand-off to the waiter, which ends so many in a row.
            ["handed", owner, lease, count] => {
                let hold = self.hold(self.want(place), owner, number(lease));
                let count = u32::try_from(number(count)).unwrap_or_default();
                self.queue.hand_over(&clock, place, hold, count);
            }
            ["failed"] => self.queue.end_hand_off(&clock, place, None),
            // Another process was ahead.
            ["passed", owner, ref ttl @ ..] => {
                let debt = Right(self.want(place), owner.to_owned());
                let ttl = ttl.first().map(|it| ms(number(it)));
                if let Some(placed) = Placed::read(&[1, 0, 0, 0].map(Reply::Int)) {
                    self.queue.passed_on(&clock, debt, ttl, placed);
                }
            }
            ["begins"] => self.queue.attend(&clock, place, false),
            ["begins", "looks"] => self.queue.attend(&clock, place, true),
            ["sleeps"] => drop(self.stopped.insert(place)),
            // By another task.
            ["runs"] => {
                self.stopped.remove(&place);
                self.wakers.remove(&place);
            }
            _ => panic!("unknown: {event:?}"),
        }
    }

    /// Carries the effects of an event out: woken tasks run.
    fn settle(&mut self) {
        loop {
            for effect in self.queue.take_effects() {
                match effect {
                    Effect::Send(ask) => self.sends(&ask),
                    Effect::Wake(waker) => self.wakers.retain(|_, it| *it != waker),
                    Effect::GiveUp(right) => self.cause(format!("gives up {}", right.1)),
                    Effect::Untaken(Outcome::Granted(hold)) => {
                        self.cause(format!("drops {}", hold.owner));
                    }
                    Effect::Untaken(Outcome::Answered(answer)) => {
                        self.cause(format!("drops {answer}"));
                    }
                    Effect::Untaken(_) | Effect::Left(_) | Effect::Forget(_) => {}
                }
            }
            let places = 0..self.wants.len() as u64;
            let runs = |it: &u64| !self.stopped.contains(it) && !self.wakers.contains_key(it);
            let Some(place) = places.into_iter().find(runs) else {
                return;
            };
            self.last_waker += 1;
            match self.queue.poll(&self.clock(), place, self.last_waker) {
                Poll::Pending => drop(self.wakers.insert(place, self.last_waker)),
                Poll::Ready(News::Waits) => drop(self.informed.insert(place)),
                Poll::Ready(News::Over(outcome)) => {
                    self.stopped.insert(place);
                    let end = match outcome {
                        Outcome::Granted(hold) => format!("takes {}", hold.owner),
                        Outcome::Seen => "Seen".into(),
                        Outcome::Missed => "Missed".into(),
                        Outcome::OutOfReach(..) => "OutOfReach".into(),
                        Outcome::Answered(answer) => answer.into(),
                    };
                    self.cause(format!("{} {end}", letter(place)));
                }
            }
        }
    }

    fn cause(&mut self, what: impl Display) {
        self.caused.push(what.to_string());
    }

    fn sends(&mut self, ask: &Ask<Plain>) {
        let own = ask.debt.1 == ask.place.to_string();
        let owner = if own {
            String::new()
        } else {
            format!(" as {}", ask.debt.1)
        };
        let behind = if ask.first { "" } else { " behind" };
        self.cause(format!(
            "{} {:?}{owner}{behind}",
            letter(ask.place),
            ask.reason
        ));
    }

    fn join(&mut self, want: &str, owner: impl Display) -> u64 {
        let (clock, want) = (self.clock(), Wish::of(want));
        self.wants.push(want);
        let stay = Stay {
            began: clock.now,
            deadline: Moment::FAR,
        };
        let right = Right(want, owner.to_string());
        let (place, ask) = self.queue.join(&clock, right, (), stay);
        if let Some(ask) = ask {
            self.sends(&ask);
        }
        place
    }

    fn message(&mut self, to: Option<&str>, heard: Heard<'_>) {
        let clock = self.clock();
        self.queue.message(&clock, to, true, heard, |_| None);
    }

    /// A grant by message, with a lease of 1.5 s.
    fn grant(&mut self, owner: &str, fence: &str) {
        let (clock, hold) = (self.clock(), self.hold(self.want(0), owner, 1500));
        let heard = Heard::Granted(Granted {
            owner,
            token: None,
            now: 0,
            lease: ms(1500),
            fence,
        });
        self.queue
            .message(&clock, None, true, heard, |_| Some(hold));
    }

    fn clock(&self) -> Clock {
        Clock {
            now: at(self.now),
            polls: self.polls,
        }
    }

    fn want(&self, place: u64) -> Wish {
        self.wants[usize::try_from(place).unwrap_or_default()]
    }

    fn hold(&self, want: Wish, owner: impl Display, lease: u64) -> Hold {
        Hold {
            want,
            owner: owner.to_string(),
            until: at(self.now + lease),
            untaken: false,
        }
    }

    /// The ms until the planned poll.
    fn poll_in(&self) -> Option<u64> {
        let pause = self.queue.next_poll()?.since(at(self.now));
        Some(u64::try_from(pause.as_millis()).unwrap_or(u64::MAX))
    }
}
