//! Checks each latch.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{IDLE, KEPT, PREFIX, PROMPT, count_of};
use crate::simulation::kinds::{INSPECTION, end_of, explain, may_act_until, progress};
use crate::simulation::operations::{Call, CallResult, Operation};
use crate::simulation::simulate::Finished;
use crate::simulation::time::Time;

/// One latch and its calls.
struct LatchHistory<'a> {
    run: &'a Finished,
    number: u64,
    operations: Vec<&'a Operation>,
    /// The call that armed the latch, if it certainly succeeded.
    arm: Option<&'a Operation>,
    calms: Vec<(Duration, Duration)>,
}

pub(super) fn judge(run: &Finished) -> Vec<String> {
    let operations = run.ledger.operations().clone();
    let mut histories: BTreeMap<u64, Vec<&Operation>> = BTreeMap::new();
    for operation in &operations {
        if let Call::Arm(number) | Call::CountDown(number) | Call::Await(number) = operation.call {
            histories.entry(number).or_default().push(operation);
        }
    }
    let mut faults = Vec::new();
    for (number, operations) in histories {
        let arm = operations.iter().copied().find(|operation| {
            operation.call == Call::Arm(number) && operation.result() == CallResult::Done
        });
        let history = LatchHistory {
            run,
            number,
            operations,
            arm,
            calms: run.ledger.notes().calms.clone(),
        };
        history.judge(&mut faults);
    }
    faults.extend(progress(run, "latches opened", |operation| {
        matches!(operation.call, Call::Await(_)) && operation.result() == CallResult::Done
    }));
    faults
}

impl LatchHistory<'_> {
    fn count_downs(&self) -> impl Iterator<Item = &&Operation> {
        let call = Call::CountDown(self.number);
        self.operations
            .iter()
            .filter(move |operation| operation.call == call)
    }

    /// Returns the number of count-downs that may have taken effect by `at`.
    fn counted_by(&self, at: Duration) -> u64 {
        self.count_downs()
            .filter(|operation| operation.began <= at)
            .count() as u64
    }

    /// Returns the time until which the latch exists unless it is counted down, by the calls that certainly took effect before `at`.
    fn lives_until(&self, at: Duration) -> Duration {
        let Some(arm) = self.arm.filter(|arm| arm.ended() <= at) else {
            return Duration::ZERO;
        };
        let mut uses: Vec<(Duration, Duration, Duration)> = self
            .operations
            .iter()
            .filter_map(|operation| match (operation.call, operation.result()) {
                (Call::CountDown(_), CallResult::Left(_)) => {
                    Some((operation.ended(), operation.began, IDLE))
                }
                // In a calm phase the first request of a waiter reaches the server within a second.
                (Call::Await(_), _) => {
                    let registered = operation.began + PROMPT;
                    let calm = self
                        .calms
                        .iter()
                        .any(|(from, to)| *from <= operation.began && registered <= *to);
                    let sure = calm && end_of(self.run, operation) >= registered;
                    sure.then_some((registered, operation.began, KEPT.0))
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
        for operation in self
            .operations
            .iter()
            .filter(|operation| operation.began >= arm.ended())
        {
            let Some((end, result)) = operation.end else {
                continue;
            };
            let alive = self.lives_until(end) > end;
            match (operation.call, result) {
                (Call::Await(_), CallResult::Done) if alive && self.counted_by(end) < n => {
                    fault("OpenedEarly", end, format!("{operation:?}"));
                }
                (Call::Await(_), CallResult::Gone) if alive => {
                    fault("EndedInUse", end, format!("{operation:?}"));
                }
                (Call::CountDown(_), CallResult::Left(left)) if alive => {
                    let before = self
                        .count_downs()
                        .filter(|other| {
                            matches!(other.result(), CallResult::Left(_))
                                && other.began >= arm.ended()
                                && other.ended() < operation.began
                        })
                        .count() as u64;
                    let most = n.saturating_sub(before + 1);
                    let least = n.saturating_sub(self.counted_by(end));
                    if !(least..=most).contains(&left) {
                        fault(
                            "Miscounted",
                            end,
                            format!("{operation:?}, not {least} to {most}"),
                        );
                    }
                }
                _ => {}
            }
        }
        self.check_wake_ups(arm, &mut fault);
        self.check_expiry(n, &mut fault);
    }

    /// In a calm phase a waiter is notified that the latch is open.
    fn check_wake_ups(&self, arm: &Operation, fault: &mut impl FnMut(&str, Duration, String)) {
        let opened = self
            .count_downs()
            .filter(|operation| {
                operation.began >= arm.ended() && operation.result() == CallResult::Left(0)
            })
            .map(|operation| operation.ended())
            .min();
        let Some(opened) = opened else {
            return;
        };
        for operation in &self.operations {
            for (from, to) in &self.calms {
                let since = opened.max(operation.began).max(*from);
                let until = end_of(self.run, operation).min(*to);
                if matches!(operation.call, Call::Await(_)) && until > since + PROMPT {
                    fault(
                        "Stuck",
                        until,
                        format!("{operation:?} waits since {since:?}"),
                    );
                }
            }
        }
    }

    /// A latch expires when it is idle, and not before.
    fn check_expiry(&self, n: u64, fault: &mut impl FnMut(&str, Duration, String)) {
        let name = format!("{PREFIX}{}", self.number);
        let key_changes = self.run.ledger.notes().key_changes.clone();
        let gone = key_changes
            .iter()
            .find(|(_, key, there)| *key == name && !there)
            .map(|(at, ..)| *at);
        if let Some(at) = gone {
            // The latch may have expired between the two last inspections.
            let last = at.saturating_sub(2 * INSPECTION);
            if self.counted_by(at) < n && self.lives_until(last) > at {
                fault("EndedInUse", at, "its key".to_owned());
            }
        }
        let last = self
            .operations
            .iter()
            .map(|operation| {
                let keeps = match operation.call {
                    Call::Await(_) => KEPT.1,
                    _ => IDLE,
                };
                may_act_until(self.run, operation) + keeps
            })
            .max();
        let end = gone.unwrap_or_else(|| Time::at(self.run.scenario.length));
        let there = key_changes
            .iter()
            .any(|(_, key, there)| *key == name && *there);
        if there && last.is_some_and(|last| end > last + PROMPT) {
            fault(
                "Lingers",
                end,
                format!("the last use keeps it until {last:?}"),
            );
        }
    }
}
