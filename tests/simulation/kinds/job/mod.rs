//! Jobs: each host has a timer, by a wall clock that is wrong by up to a second, and asks to run each tick.

mod judge;

use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Begun, Job, Lease, Outcome, Tick};
use stanchion_testkit::{Kind, Mode};
use tokio::time::{sleep, timeout};

use super::{Play, Work};
use crate::deeds::{Call, Pending, Saw};
use crate::family::{Contested, Guard};
use crate::held::{End, Held, OPERATION, Step};
use crate::ledger::{Ledger, Scribe};
use crate::work::Worker;

pub(crate) const JOB: Play = Play {
    work,
    judge: judge::judge,
    look: None,
    // The record of the last run stays for days.
    stays: |_, key, _| key.starts_with("stanchion_job_last:"),
};

const NAME: &str = "nightly";

/// The time between two ticks.
const PERIOD: Duration = Duration::from_secs(3);

/// By so much a host's wall clock may be ahead, or behind.
const SKEW: Duration = Duration::from_secs(1);

/// Timers fire late by up to this.
const LATE: Duration = Duration::from_millis(100);

/// How long others are kept off from the beginning of a run: in every other seed.
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
            return worker.ledger.complain("the job has no name");
        };
        let job = job
            .with_options(options)
            .at_least(least(worker.scenario.seed));
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
        // A second less, plus up to two; most are off by less, so that many ask at one time.
        let most = if host == 0 { SKEW } else { LATE };
        let ahead = SKEW + Duration::from_millis(clock.u64(0..=2 * millis(most))) - most;
        let shown = || ledger.time.date() + ahead - SKEW;
        let mut next = millis(shown()) / millis(PERIOD) + 1;
        while !ledger.is_ending() {
            let tick = next * millis(PERIOD);
            next += 1;
            sleep(Duration::from_millis(tick).saturating_sub(shown())).await;
            sleep(self.worker.millis(0, LATE)).await;
            if self.ask(&ledger, tick).await == Saw::Skipped && self.worker.rng.u8(..3) == 0 {
                // Perhaps it is over soon.
                sleep(Duration::from_millis(400)).await;
                self.ask(&ledger, tick).await;
            }
        }
    }

    /// Asks once, in one of the ways.
    async fn ask(&mut self, ledger: &Ledger, tick: u64) -> Saw {
        let length = match self.worker.rng.u8(..10) {
            0..8 => self.worker.millis(1, Duration::from_millis(300)),
            8 => self.worker.millis(1, self.lease * 2),
            _ => self.worker.millis(1, PERIOD + SKEW),
        };
        let who = (self.worker.process, self.worker.task);
        let call = Pending::begin(ledger, who, Call::Tick(tick));
        let Ok(at) = Tick::from_unix_millis(tick) else {
            ledger.complain("a tick of these days is refused");
            return Saw::Nothing;
        };
        let saw = match self.worker.rng.u8(..6) {
            0 => self.begin(ledger, who, tick, at, length).await,
            1 => {
                let patience = self.worker.millis(0, length + LATE);
                let run = self.run_tick(ledger, who, tick, at, length);
                timeout(patience, run).await.unwrap_or(Saw::Unknown)
            }
            _ => self.run_tick(ledger, who, tick, at, length).await,
        };
        call.end(saw);
        saw
    }

    async fn run_tick(
        &self,
        ledger: &Ledger,
        who: (u32, u32),
        tick: u64,
        at: Tick,
        length: Duration,
    ) -> Saw {
        let asked = ledger.time.now();
        let outcome = self.job.run_tick(at, |run| async move {
            let _running = Running::begin(ledger, who, tick, run.fencing_token());
            sleep(length).await;
        });
        let outcome = outcome.await;
        let ran = matches!(&outcome, Ok(Outcome::Done(())) | Ok(Outcome::Lost { .. }));
        if !ran {
            ledger.check_bound("run_tick", asked, OPERATION);
        }
        match outcome {
            Ok(Outcome::Done(())) => Saw::Done,
            Ok(Outcome::Lost { .. }) => Saw::Lost,
            Ok(Outcome::Skipped { .. }) => Saw::Skipped,
            Ok(Outcome::Already { tick, .. }) => already(tick),
            Err(error) => failed(ledger, &error),
            Ok(other) => {
                ledger.complain(format!("{other:?} is not known"));
                Saw::Unknown
            }
        }
    }

    /// With a guard, which is judged as other guards are.
    async fn begin(
        &self,
        ledger: &Ledger,
        who: (u32, u32),
        tick: u64,
        at: Tick,
        length: Duration,
    ) -> Saw {
        let scribe = scribe(ledger, who);
        let asked = ledger.time.now();
        let begun = self.job.begin_tick(at).await;
        ledger.check_bound("begin_tick", asked, OPERATION);
        match begun {
            Ok(Begun::Running(guard)) => {
                let run = Pending::begin(ledger, who, Call::Run(tick));
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
                let weather = self.worker.scenario.weather;
                held.use_it(&[Step::Sleep(length)], End::Release, weather)
                    .await;
                run.end(Saw::Done);
                Saw::Done
            }
            Ok(Begun::Skipped { .. }) => Saw::Skipped,
            Ok(Begun::Already { tick, .. }) => already(tick),
            Err(error) => failed(ledger, &error),
            Ok(other) => {
                ledger.complain(format!("{other:?} is not known"));
                Saw::Unknown
            }
        }
    }
}

fn already(tick: Tick) -> Saw {
    let since = tick.time().duration_since(std::time::UNIX_EPOCH);
    Saw::Already(millis(since.unwrap_or_default()))
}

fn failed(ledger: &Ledger, error: &AcquireError) -> Saw {
    match error {
        AcquireError::Unavailable { .. } => {
            ledger.count("run: unavailable");
            Saw::Unknown
        }
        AcquireError::Ambiguous { .. } | AcquireError::TimedOut { .. } => {
            ledger.count("run: ambiguous");
            Saw::Unknown
        }
        error => {
            ledger.complain(format!("P8: {error}"));
            Saw::Unknown
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
        who: (u32, u32),
        tick: u64,
        token: Option<stanchion::FencingToken>,
    ) -> Self {
        ledger.count("runs");
        let scribe = scribe(ledger, who);
        if token.is_none() {
            scribe.complain("P2: no fencing token");
        }
        scribe.record(Kind::Invoke);
        let moment = ledger.time.now() + Duration::from_micros(1);
        let token = token.map(stanchion::FencingToken::get);
        // Who has a future alone knows no end of the hold: the work itself is what may not overlap.
        scribe.record_with(Kind::Granted, token, Some(moment));
        scribe.record(Kind::Enter);
        Self {
            scribe,
            run: Some(Pending::begin(ledger, who, Call::Run(tick))),
        }
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.scribe.record(Kind::Exit);
        self.scribe.record(Kind::ReleaseInvoke);
        if let Some(run) = self.run.take() {
            run.end(Saw::Done);
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
