//! What must be true of each latch.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{IDLE, KEPT, PREFIX, PROMPT, count_of};
use crate::deeds::{Call, Deed, Saw};
use crate::kinds::{LOOK, end_of, explain, may_act_until, progress};
use crate::simulate::Finished;
use crate::time::Time;

/// One latch and what was done with it.
struct Story<'a> {
    run: &'a Finished,
    number: u64,
    deeds: Vec<&'a Deed>,
    /// The one call that armed it, if it certainly has.
    arm: Option<&'a Deed>,
    calms: Vec<(Duration, Duration)>,
}

pub(super) fn judge(run: &Finished) -> Vec<String> {
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
            let last = at.saturating_sub(2 * LOOK);
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
