//! Latches that end when nobody uses them: every few seconds another one, which one process arms, and others count down, wait for, or
//! forget.

use std::collections::BTreeMap;
use std::time::Duration;

use stanchion::embedded::{Engine, Reply};
use stanchion::{AcquireError, CountDownLatch, IdleExpiry, QueryError, Rejection};
use tokio::time::{sleep, timeout};

use super::{Play, Work, end_of, explain, may_act_until, progress};
use crate::deeds::{Call, Deed, Pending, Saw};
use crate::held::OPERATION;
use crate::ledger::Ledger;
use crate::scenario::Scenario;
use crate::simulate::Finished;
use crate::time::Time;
use crate::work::Worker;

pub(crate) const LATCH: Play = Play {
    work,
    judge,
    look: Some(look),
    // They end a minute after their last waiter: that they do is judged by looking.
    stays: |_, key, _| key.starts_with(PREFIX) || key.contains(":{cargo-"),
};

const PREFIX: &str = "cargo-";

/// The time between two latches.
const EVERY: Duration = Duration::from_secs(6);

/// Without use for so long one ends.
const IDLE: Duration = Duration::from_secs(4);

/// After a question of a waiter it stays for twice the poll interval (5 s at most here) and the outage tolerance (30 s).
const KEPT: (Duration, Duration) = (Duration::from_secs(60), Duration::from_secs(70));

/// In calm weather a request is answered, and a waiter told, within this.
const PROMPT: Duration = Duration::from_secs(1);

/// The count of a latch.
fn count_of(number: u64) -> u64 {
    2 + number % 3
}

fn work(mut worker: Worker) -> Work {
    Box::pin(async move {
        let ledger = std::sync::Arc::clone(&worker.ledger);
        let clients = u64::from(worker.scenario.clients);
        // OK: at least a second.
        let Ok(idle) = IdleExpiry::after(IDLE) else {
            return ledger.complain("its idle time is none");
        };
        let since = |at: Duration| at.saturating_sub(Time::at(Duration::ZERO));
        while !ledger.is_ending() {
            let number = since(ledger.time.now()).as_secs() / EVERY.as_secs() + 1;
            let begin = Time::at(EVERY * u32::try_from(number).unwrap_or(u32::MAX));
            sleep(begin.saturating_sub(ledger.time.now())).await;
            let name = format!("{PREFIX}{number}");
            let Ok(latch) = CountDownLatch::new(&worker.client, &name) else {
                return ledger.complain("the latch has no name");
            };
            // One process arms it, once; the others do not know that it is one that ends.
            if worker.task == 0 && number % clients == u64::from(worker.process / 1_000) {
                let latch = latch.clone().ephemeral(idle);
                arm(&worker, &ledger, &latch, number).await;
            }
            sleep(worker.millis(100, EVERY / 2)).await;
            match worker.rng.u8(..10) {
                0..4 => count_down(&worker, &ledger, &latch, number).await,
                4..9 => wait(&mut worker, &ledger, &latch, number).await,
                _ => {}
            }
        }
    })
}

async fn arm(worker: &Worker, ledger: &Ledger, latch: &CountDownLatch, number: u64) {
    let who = (worker.process, worker.task);
    let call = Pending::begin(ledger, who, Call::Arm(number));
    let began = call.began;
    let armed = latch.arm(count_of(number)).await;
    ledger.check_bound("arm", began, OPERATION);
    call.end(match armed {
        Ok(true) => Saw::Done,
        Ok(false) => {
            ledger.complain("P6: it was armed before, by nobody");
            Saw::Unknown
        }
        Err(error) => unanswered(ledger, &error),
    });
}

async fn count_down(worker: &Worker, ledger: &Ledger, latch: &CountDownLatch, number: u64) {
    let who = (worker.process, worker.task);
    let call = Pending::begin(ledger, who, Call::CountDown(number));
    let began = call.began;
    let counted = latch.count_down().await;
    ledger.check_bound("count_down", began, OPERATION);
    call.end(match counted {
        Ok(left) => {
            ledger.count("counted down");
            Saw::Left(left)
        }
        Err(error) => unanswered(ledger, &error),
    });
}

async fn wait(worker: &mut Worker, ledger: &Ledger, latch: &CountDownLatch, number: u64) {
    let limit = worker.millis(0, EVERY * 2);
    let cancelled = worker.rng.u8(..4) == 0;
    let who = (worker.process, worker.task);
    let call = Pending::begin(ledger, who, Call::Await(number));
    let began = call.began;
    let waited = if cancelled {
        timeout(limit, latch.wait()).await.ok()
    } else {
        let waited = latch.wait_timeout(limit).await;
        ledger.check_bound("wait_timeout", began, limit);
        Some(waited)
    };
    call.end(match waited {
        Some(Ok(())) => {
            ledger.count("opened");
            Saw::Done
        }
        None | Some(Err(AcquireError::TimedOut { .. })) => Saw::Nothing,
        Some(Err(AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        })) => {
            ledger.count("ended");
            Saw::Gone
        }
        Some(Err(AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. })) => {
            ledger.count("unavailable");
            Saw::Unknown
        }
        Some(Err(error)) => {
            ledger.complain(format!("P8: {error}"));
            Saw::Unknown
        }
    });
}

fn unanswered(ledger: &Ledger, error: &QueryError) -> Saw {
    if let QueryError::Rejected { .. } = error {
        ledger.complain(format!("P8: {error}"));
    }
    ledger.count("unanswered");
    Saw::Unknown
}

/// Which latches there are; none without an end.
fn look(engine: &Engine, _: &Scenario, ledger: &Ledger) {
    let there: Vec<String> = engine
        .keys()
        .iter()
        .map(|key| String::from_utf8_lossy(key).into_owned())
        .filter(|key| key.starts_with(PREFIX))
        .collect();
    for key in &there {
        if engine.execute(&["PTTL", key]) == Reply::Int(-1) {
            ledger.complain_of("Endless", key);
        }
    }
    let now = ledger.time.now();
    let mut notes = ledger.notes();
    let mut known: BTreeMap<String, bool> = BTreeMap::new();
    for (_, key, is_there) in &notes.sights {
        known.insert(key.clone(), *is_there);
    }
    for key in &there {
        if known.get(key) != Some(&true) {
            notes.sights.push((now, key.clone(), true));
        }
    }
    for (key, is_there) in known {
        if is_there && !there.contains(&key) {
            notes.sights.push((now, key, false));
        }
    }
}

/// One latch and what was done with it.
struct Story<'a> {
    run: &'a Finished,
    number: u64,
    deeds: Vec<&'a Deed>,
    /// The one call that armed it, if it certainly has.
    arm: Option<&'a Deed>,
    calms: Vec<(Duration, Duration)>,
}

fn judge(run: &Finished) -> Vec<String> {
    let deeds = run.ledger.deeds().clone();
    let mut stories: BTreeMap<u64, Vec<&Deed>> = BTreeMap::new();
    for deed in &deeds {
        if let Call::Arm(number) | Call::CountDown(number) | Call::Await(number) = deed.call {
            stories.entry(number).or_default().push(deed);
        }
    }
    let mut faults = Vec::new();
    for (number, deeds) in stories {
        let arm = deeds
            .iter()
            .copied()
            .find(|deed| deed.call == Call::Arm(number) && deed.saw() == Saw::Done);
        let story = Story {
            run,
            number,
            deeds,
            arm,
            calms: run.ledger.notes().calms.clone(),
        };
        story.judge(&mut faults);
    }
    faults.extend(progress(run, "latches opened", |deed| {
        matches!(deed.call, Call::Await(_)) && deed.saw() == Saw::Done
    }));
    faults
}

impl Story<'_> {
    fn count_downs(&self) -> impl Iterator<Item = &&Deed> {
        let call = Call::CountDown(self.number);
        self.deeds.iter().filter(move |deed| deed.call == call)
    }

    /// The number of count-downs that may have been counted by then.
    fn counted_by(&self, at: Duration) -> u64 {
        self.count_downs().filter(|deed| deed.began <= at).count() as u64
    }

    /// Until when it lives, if it is not counted down, by what was certainly done to it before `at`.
    fn lives_until(&self, at: Duration) -> Duration {
        let Some(arm) = self.arm.filter(|arm| arm.ended() <= at) else {
            return Duration::ZERO;
        };
        let mut uses: Vec<(Duration, Duration, Duration)> = self
            .deeds
            .iter()
            .filter_map(|deed| match (deed.call, deed.saw()) {
                (Call::CountDown(_), Saw::Left(_)) => Some((deed.ended(), deed.began, IDLE)),
                // In calm weather its first question is there within a second.
                (Call::Await(_), _) => {
                    let asked = deed.began + PROMPT;
                    let calm = self
                        .calms
                        .iter()
                        .any(|(from, to)| *from <= deed.began && asked <= *to);
                    let sure = calm && end_of(self.run, deed) >= asked;
                    sure.then_some((asked, deed.began, KEPT.0))
                }
                _ => None,
            })
            .filter(|(done, ..)| *done <= at)
            .collect();
        uses.sort_unstable();
        let mut until = arm.began + IDLE;
        for (done, began, keeps) in uses {
            if done <= until && began >= arm.ended() {
                until = until.max(began + keeps);
            }
        }
        until
    }

    fn judge(&self, faults: &mut Vec<String>) {
        let n = count_of(self.number);
        let mut fault = |rule: &str, at: Duration, detail: String| {
            let detail = format!("latch {} of {n}: {detail}", self.number);
            faults.push(explain(self.run, rule, at, &detail));
        };
        let Some(arm) = self.arm else {
            return;
        };
        for deed in self.deeds.iter().filter(|deed| deed.began >= arm.ended()) {
            let Some((end, saw)) = deed.end else {
                continue;
            };
            let alive = self.lives_until(end) > end;
            match (deed.call, saw) {
                (Call::Await(_), Saw::Done) if alive && self.counted_by(end) < n => {
                    fault("OpenedEarly", end, format!("{deed:?}"));
                }
                (Call::Await(_), Saw::Gone) if alive => {
                    fault("EndedInUse", end, format!("{deed:?}"));
                }
                (Call::CountDown(_), Saw::Left(left)) if alive => {
                    let before = self
                        .count_downs()
                        .filter(|other| {
                            matches!(other.saw(), Saw::Left(_))
                                && other.began >= arm.ended()
                                && other.ended() < deed.began
                        })
                        .count() as u64;
                    let most = n.saturating_sub(before + 1);
                    let least = n.saturating_sub(self.counted_by(end));
                    if !(least..=most).contains(&left) {
                        fault(
                            "Miscounted",
                            end,
                            format!("{deed:?}, not {least} to {most}"),
                        );
                    }
                }
                _ => {}
            }
        }
        self.told(arm, &mut fault);
        self.ended(n, &mut fault);
    }

    /// Who waits is told in calm weather that it is open.
    fn told(&self, arm: &Deed, fault: &mut impl FnMut(&str, Duration, String)) {
        let opened = self
            .count_downs()
            .filter(|deed| deed.began >= arm.ended() && deed.saw() == Saw::Left(0))
            .map(|deed| deed.ended())
            .min();
        let Some(opened) = opened else {
            return;
        };
        for deed in &self.deeds {
            for (from, to) in &self.calms {
                let since = opened.max(deed.began).max(*from);
                let until = end_of(self.run, deed).min(*to);
                if matches!(deed.call, Call::Await(_)) && until > since + PROMPT {
                    fault("Stuck", until, format!("{deed:?} waits since {since:?}"));
                }
            }
        }
    }

    /// It ends when nobody uses it, and not before.
    fn ended(&self, n: u64, fault: &mut impl FnMut(&str, Duration, String)) {
        let name = format!("{PREFIX}{}", self.number);
        let sights = self.run.ledger.notes().sights.clone();
        let gone = sights
            .iter()
            .find(|(_, key, there)| *key == name && !there)
            .map(|(at, ..)| *at);
        if let Some(at) = gone {
            // It was looked for some moments before.
            let last = at.saturating_sub(2 * super::LOOK);
            if self.counted_by(at) < n && self.lives_until(last) > at {
                fault("EndedInUse", at, "its key".to_owned());
            }
        }
        let last = self
            .deeds
            .iter()
            .map(|deed| {
                let keeps = match deed.call {
                    Call::Await(_) => KEPT.1,
                    _ => IDLE,
                };
                may_act_until(self.run, deed) + keeps
            })
            .max();
        let end = gone.unwrap_or_else(|| Time::at(self.run.scenario.length));
        let there = sights.iter().any(|(_, key, there)| *key == name && *there);
        if there && last.is_some_and(|last| end > last + PROMPT) {
            fault("Lingers", end, format!("its last use ended it by {last:?}"));
        }
    }
}
