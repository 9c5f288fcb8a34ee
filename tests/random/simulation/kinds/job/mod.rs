//! Jobs: each host has a wall clock that is wrong by up to a second, and a timer that requests each tick.

mod judge;

use std::time::Duration;

use stanchion::jobs::{Begun, Outcome};
use stanchion::{AcquireError, AcquireOptions, Job, Lease, Tick};
use stanchion_testkit::{Kind, Mode};
use tokio::time::{sleep, timeout};

use super::{Work, Workload};
use crate::simulation::held::{End, Held, OPERATION_TIMEOUT, Step};
use crate::simulation::ledger::{Ledger, Scribe};
use crate::simulation::operations::{Call, CallResult, Pending};
use crate::simulation::primitives::{Contested, Guard};
use crate::simulation::work::Worker;

pub(crate) const JOB: Workload = Workload {
    work,
    judge: judge::judge,
    inspect: None,
    // The record of the last run may_remain for days.
    may_remain: |_, key, _| key.starts_with("stanchion_job_last:"),
};

const NAME: &str = "nightly";

/// The time between two ticks.
const PERIOD: Duration = Duration::from_secs(3);

/// A host's wall clock is fast or slow by at most this.
const SKEW: Duration = Duration::from_secs(1);

/// Timers fire late by at most this.
const LATE: Duration = Duration::from_millis(100);

/// The least time of a run, in every other seed.
fn least(seed: u64) -> Duration {
    if seed.is_multiple_of(2) {
        Duration::from_millis(800)
    } else {
        Duration::ZERO
    }
}

fn work(worker: Worker) -> Work {
    Box::pin(async move {
        let lease = worker.scenario.leases[0];
        let mut options = AcquireOptions::new();
        // OK: the scenarios' leases are leases, and the name has letters only.
        if let Ok(lease) = Lease::new(lease) {
            options = options.lease(lease);
        }
        let Ok(job) = Job::new(&worker.client, NAME) else {
            return worker.ledger.complain("the name of the job is rejected");
        };
        let job = job.options(options).at_least(least(worker.scenario.seed));
        Machine { worker, job, lease }.run().await;
    })
}

struct Machine {
    worker: Worker,
    job: Job,
    lease: Duration,
}

impl Machine {
    async fn run(mut self) {
        let ledger = std::sync::Arc::clone(&self.worker.ledger);
        let host = u64::from(self.worker.process / 1_000);
        let mut clock = fastrand::Rng::with_seed(self.worker.scenario.seed * 131 + host);
        // The first host is off by up to 1 s, the others by up to 100 ms, so that they send requests at nearly the same time.
        let most = if host == 0 { SKEW } else { LATE };
        let ahead = SKEW + Duration::from_millis(clock.u64(0..=2 * millis(most))) - most;
        let shown = || ledger.time.date() + ahead - SKEW;
        let mut next = millis(shown()) / millis(PERIOD) + 1;
        while !ledger.is_ending() {
            let tick = next * millis(PERIOD);
            next += 1;
            sleep(Duration::from_millis(tick).saturating_sub(shown())).await;
            sleep(self.worker.millis(0, LATE)).await;
            if self.request(&ledger, tick).await == CallResult::Skipped
                && self.worker.rng.u8(..3) == 0
            {
                // The run in progress may end soon.
                sleep(Duration::from_millis(400)).await;
                self.request(&ledger, tick).await;
            }
        }
    }

    /// Requests the tick once, by a random method.
    async fn request(&mut self, ledger: &Ledger, tick: u64) -> CallResult {
        let length = match self.worker.rng.u8(..10) {
            0..8 => self.worker.millis(1, Duration::from_millis(300)),
            8 => self.worker.millis(1, self.lease * 2),
            _ => self.worker.millis(1, PERIOD + SKEW),
        };
        let caller = (self.worker.process, self.worker.task);
        let call = Pending::begin(ledger, caller, Call::Tick(tick));
        let Ok(at) = Tick::from_unix_millis(tick) else {
            ledger.complain("the tick is rejected");
            return CallResult::Nothing;
        };
        let result = match self.worker.rng.u8(..6) {
            0 => self.begin(ledger, caller, tick, at, length).await,
            1 => {
                let patience = self.worker.millis(0, length + LATE);
                let run = self.run_tick(ledger, caller, tick, at, length);
                timeout(patience, run).await.unwrap_or(CallResult::Unknown)
            }
            _ => self.run_tick(ledger, caller, tick, at, length).await,
        };
        call.end(result);
        result
    }

    async fn run_tick(
        &self,
        ledger: &Ledger,
        caller: (u32, u32),
        tick: u64,
        at: Tick,
        length: Duration,
    ) -> CallResult {
        let requested = ledger.time.now();
        let outcome = self.job.run_tick(at, |run| async move {
            let _running = Running::begin(ledger, caller, tick, run.fencing_token());
            sleep(length).await;
        });
        let outcome = outcome.await;
        let ran = matches!(&outcome, Ok(Outcome::Done(())) | Ok(Outcome::Lost { .. }));
        if !ran {
            ledger.check_bound("run_tick", requested, OPERATION_TIMEOUT);
        }
        match outcome {
            Ok(Outcome::Done(())) => CallResult::Done,
            Ok(Outcome::Lost { .. }) => CallResult::Lost,
            Ok(Outcome::Skipped { .. }) => CallResult::Skipped,
            Ok(Outcome::Already { tick, .. }) => already(tick),
            Err(error) => failed(ledger, &error),
            Ok(other) => {
                ledger.complain(format!("unexpected result: {other:?}"));
                CallResult::Unknown
            }
        }
    }

    /// Runs with a guard. The checker of holds checks it.
    async fn begin(
        &self,
        ledger: &Ledger,
        caller: (u32, u32),
        tick: u64,
        at: Tick,
        length: Duration,
    ) -> CallResult {
        let scribe = scribe(ledger, caller);
        let requested = ledger.time.now();
        let begun = self.job.begin_tick(at).await;
        ledger.check_bound("begin_tick", requested, OPERATION_TIMEOUT);
        match begun {
            Ok(Begun::Running(guard)) => {
                let run = Pending::begin(ledger, caller, Call::Run(tick));
                scribe.record(Kind::Invoke);
                let held = Held {
                    guard: Guard::Run(guard),
                    lock: &Contested::Nothing,
                    lease: self.lease,
                    clock: &self.worker.clock,
                    reckoning: self.worker.scenario.reckoning,
                    scribe,
                    from_reply: std::sync::Mutex::default(),
                };
                let fault_mode = self.worker.scenario.fault_mode;
                held.use_it(&[Step::Sleep(length)], End::Release, fault_mode)
                    .await;
                run.end(CallResult::Done);
                CallResult::Done
            }
            Ok(Begun::Skipped { .. }) => CallResult::Skipped,
            Ok(Begun::Already { tick, .. }) => already(tick),
            Err(error) => failed(ledger, &error),
            Ok(other) => {
                ledger.complain(format!("unexpected result: {other:?}"));
                CallResult::Unknown
            }
        }
    }
}

fn already(tick: Tick) -> CallResult {
    let since = tick.time().duration_since(std::time::UNIX_EPOCH);
    CallResult::Already(millis(since.unwrap_or_default()))
}

fn failed(ledger: &Ledger, error: &AcquireError) -> CallResult {
    match error {
        AcquireError::Unavailable { .. } => {
            ledger.count("run: unavailable");
            CallResult::Unknown
        }
        AcquireError::Ambiguous { .. } | AcquireError::TimedOut { .. } => {
            ledger.count("run: ambiguous");
            CallResult::Unknown
        }
        error => {
            ledger.complain(format!("P8: {error}"));
            CallResult::Unknown
        }
    }
}

fn scribe<'a>(ledger: &'a Ledger, (process, task): (u32, u32)) -> Scribe<'a> {
    Scribe {
        ledger,
        process,
        task,
        name: NAME,
        mode: Mode::Write,
    }
}

/// The work of a tick, from its first step to the drop of its future.
struct Running<'a> {
    scribe: Scribe<'a>,
    run: Option<Pending<'a>>,
}

impl<'a> Running<'a> {
    fn begin(
        ledger: &'a Ledger,
        caller: (u32, u32),
        tick: u64,
        token: Option<stanchion::FencingToken>,
    ) -> Self {
        ledger.count("runs");
        let scribe = scribe(ledger, caller);
        if token.is_none() {
            scribe.complain("P2: no fencing token");
        }
        scribe.record(Kind::Invoke);
        let moment = ledger.time.now() + Duration::from_micros(1);
        let token = token.map(stanchion::FencingToken::get);
        // Without a guard the end of the hold is unknown, so the hold is recorded as the time of the work, which must not overlap.
        scribe.record_with(Kind::Granted, token, Some(moment));
        scribe.record(Kind::Enter);
        Self {
            scribe,
            run: Some(Pending::begin(ledger, caller, Call::Run(tick))),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.scribe.record(Kind::Exit);
        self.scribe.record(Kind::ReleaseInvoke);
        if let Some(run) = self.run.take() {
            run.end(CallResult::Done);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
