//! The calls of those who use what is simulated, and what each of them saw: for the judges of kinds that are no holds.

use std::time::Duration;

use stanchion::BrokenBy;

use crate::ledger::Ledger;

/// One call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Deed {
    pub(crate) process: u32,
    pub(crate) task: u32,
    pub(crate) began: Duration,
    pub(crate) call: Call,
    /// When and how it ended; `None` where its process was killed during it.
    pub(crate) end: Option<(Duration, Saw)>,
}

/// What was called.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Call {
    /// An observer of an election looks on.
    Observe,
    /// A hold becomes the ticket with this number.
    Detach(u64),
    /// That ticket is adopted.
    Adopt(u64),
    /// The job is asked to run this tick.
    Tick(u64),
    /// The work of this tick runs.
    Run(u64),
    /// So many permits of a limiter are asked for.
    Permits(u32),
    /// The last permits of this task are given back.
    Refund,
    /// A wait at a barrier. `breaks`: who leaves breaks its round.
    Arrive {
        breaks: bool,
    },
    /// A place inside a double barrier, from the entry to the leaving.
    Inside(u64),
    /// The place is left, and the others are waited for.
    Leave(u64),
    /// The latch of this number is armed, counted down, waited for.
    Arm(u64),
    CountDown(u64),
    Await(u64),
}

/// How it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Saw {
    /// Certainly without an effect.
    Nothing,
    /// It may have had its effect, or may still have it.
    Unknown,
    /// It did what it says.
    Done,
    /// An observer: the term with this token, and the number of its value.
    Leader(u64, u64),
    /// An observer: nobody leads.
    Vacant,
    /// The ticket's hold had ended.
    Gone,
    /// A job: this tick, or a later one, had run.
    Already(u64),
    /// A job: somebody runs it, or it rests.
    Skipped,
    /// A limiter: granted, and counted from this true time on, by the caller's clock.
    Granted(Duration),
    /// A party's round: complete.
    Passed {
        generation: u64,
        arrival: u32,
        last: bool,
    },
    /// A party's round: broken.
    Broken(u64, BrokenBy),
    /// A place, or what was waited for, was lost.
    Lost,
    /// A count-down: so many are left.
    Left(u64),
}

impl Deed {
    /// Returns how it ended; a call that was cut short by a kill may have had its effect.
    pub(crate) fn saw(&self) -> Saw {
        self.end.map_or(Saw::Unknown, |(_, saw)| saw)
    }

    /// Returns when it ended, as far as its caller is concerned.
    pub(crate) fn ended(&self) -> Duration {
        self.end.map_or(Duration::MAX, |(at, _)| at)
    }
}

/// A call under way. Dropped without an end, it stays one that was cut short.
#[derive(Debug)]
pub(crate) struct Pending<'a> {
    ledger: &'a Ledger,
    index: usize,
    pub(crate) began: Duration,
}

impl<'a> Pending<'a> {
    /// Notes the beginning of a call.
    pub(crate) fn begin(ledger: &'a Ledger, (process, task): (u32, u32), call: Call) -> Self {
        let began = ledger.time.now();
        let mut deeds = ledger.deeds();
        let index = deeds.len();
        deeds.push(Deed {
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

    /// Notes its end.
    pub(crate) fn end(self, saw: Saw) {
        let now = self.ledger.time.now();
        self.end_at(now, saw);
    }

    /// Notes an end that has been at another time.
    pub(crate) fn end_at(self, at: Duration, saw: Saw) {
        if let Some(deed) = self.ledger.deeds().get_mut(self.index) {
            deed.end = Some((at, saw));
        }
    }
}
