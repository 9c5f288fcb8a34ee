//! Records the calls of tasks and their results, for the checks of kinds that have no holds.

use std::time::Duration;

use stanchion::barrier::BrokenBy;

use crate::simulation::ledger::Ledger;

/// One call of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Operation {
    pub(crate) process: u32,
    pub(crate) task: u32,
    pub(crate) began: Duration,
    pub(crate) call: Call,
    /// The time and the result. `None` if the process was killed during the call.
    pub(crate) end: Option<(Duration, CallResult)>,
}

/// The method that was called, with its arguments.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// An observer of an election waits for the next change.
    Observe,
    /// A hold is detached as the ticket with this number.
    Detach(u64),
    /// The ticket with this number is adopted.
    Adopt(u64),
    /// A request to run this tick of the job.
    Tick(u64),
    /// The work of this tick.
    Run(u64),
    /// A request for so many permits of a limiter.
    Permits(u32),
    /// The refund of the last permits of this task.
    Refund,
    /// A wait at a barrier. `breaks`: a party that leaves breaks the round.
    Arrive {
        breaks: bool,
    },
    /// A place inside a double barrier, from the entry until the party leaves.
    Inside(u64),
    /// A party leaves the double barrier and waits for the others.
    Leave(u64),
    /// The latch with this number is armed, counted down, or awaited.
    Arm(u64),
    CountDown(u64),
    Await(u64),
}

/// The result of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CallResult {
    /// The call had no effect.
    Nothing,
    /// The call may have had its effect, or may still have it.
    Unknown,
    /// The call succeeded.
    Done,
    /// An observer: the term with this token, and the number of its value.
    Leader(u64, u64),
    /// An observer: there is no leader.
    Vacant,
    /// The ticket's hold had ended.
    Gone,
    /// A job: the tick with this number, or a later one, had run.
    Already(u64),
    /// A job: another run is in progress, or the job rests.
    Skipped,
    /// A limiter: granted. The permits count from this true time on, by the caller's clock.
    Granted(Duration),
    /// A party: its round is complete.
    Passed {
        generation: u64,
        arrival: u32,
        last: bool,
    },
    /// A party: its round is broken.
    Broken(u64, BrokenBy),
    /// The place, the hold or the wait was lost.
    Lost,
    /// A count-down: the remaining count.
    Left(u64),
}

impl Operation {
    /// Returns the result. A call that a kill interrupted may have had its effect.
    pub(crate) fn result(&self) -> CallResult {
        self.end.map_or(CallResult::Unknown, |(_, result)| result)
    }

    /// Returns the end of the call as its caller sees it.
    pub(crate) fn ended(&self) -> Duration {
        self.end.map_or(Duration::MAX, |(at, _)| at)
    }
}

/// A call in progress. If dropped without an end, the call is recorded as interrupted.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    ledger: &'a Ledger,
    index: usize,
    pub(crate) began: Duration,
}

impl<'a> Pending<'a> {
    /// Records the beginning of a call.
    pub(crate) fn begin(ledger: &'a Ledger, (process, task): (u32, u32), call: Call) -> Self {
        let began = ledger.time.now();
        let mut operations = ledger.operations();
        let index = operations.len();
        operations.push(Operation {
            process,
            task,
            began,
            call,
            end: None,
        });
        Self {
            ledger,
            index,
            began,
        }
    }

    /// Records the end of the call.
    pub(crate) fn end(self, result: CallResult) {
        let now = self.ledger.time.now();
        self.end_at(now, result);
    }

    /// Records an end at an earlier time.
    pub(crate) fn end_at(self, at: Duration, result: CallResult) {
        if let Some(operation) = self.ledger.operations().get_mut(self.index) {
            operation.end = Some((at, result));
        }
    }
}
