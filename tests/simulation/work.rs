//! What the tasks of a client do, and what they check while they do it.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use stanchion::{
    AcquireError, AcquireOptions, Lease, Lock, LockGuard, LostReason, ReleaseError, RenewError,
    Renewal,
};
use stanchion_testkit::Kind;
use tokio::time::{sleep, timeout};

use crate::ledger::{Ledger, Scribe};
use crate::scenario::{Reckoning, Scenario, Weather};
use crate::time::SkewedClock;

/// The bound on calls that have no deadline of their own: the default operation timeout.
const OPERATION: Duration = Duration::from_secs(5);

/// How often a holder looks whether its lease was renewed.
const LOOK: Duration = Duration::from_millis(50);

/// How soon a holder that counts from replies notices one.
const TURN: Duration = Duration::from_millis(2);

/// One task.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) clock: SkewedClock,
    pub(crate) process: u32,
    pub(crate) task: u32,
    pub(crate) rng: fastrand::Rng,
}

/// How to ask for the lock.
#[derive(Clone, Copy, Debug)]
enum Ask {
    Patiently,
    Within(Duration),
    Once,
    /// The caller drops the call after this long.
    Cancelled(Duration),
}

/// One step of protected work.
#[derive(Clone, Copy, Debug)]
enum Step {
    Sleep(Duration),
    Run(Duration),
    Reenter(Duration),
    Renew,
}

/// How to give the lock back.
#[derive(Clone, Copy, Debug)]
enum End {
    Release,
    Drop,
    /// The caller drops the release after this long.
    Cancelled(Duration),
}

impl Worker {
    /// Works until the simulation ends.
    pub(crate) async fn work(mut self, locks: Vec<Lock>) {
        while !self.ledger.is_ending() {
            sleep(self.millis(0, self.scenario.think)).await;
            let chosen = self.rng.usize(..locks.len());
            self.hold_once(&locks[chosen], self.scenario.clone().names[chosen])
                .await;
        }
    }

    async fn hold_once(&mut self, lock: &Lock, name: &str) {
        let lease = self.scenario.leases[self.rng.usize(..self.scenario.leases.len())];
        let ask = self.ask();
        let mut options = AcquireOptions::new();
        // OK: the scenarios' leases are between 10 ms and 30 days.
        if let Ok(lease) = Lease::new(lease) {
            options = options.lease(lease);
        }
        if !self.is_gentle() && self.rng.u8(..10) == 0 {
            options = options.renewal(Renewal::Manual);
        }
        if !self.is_gentle() && self.rng.u8(..20) == 0 {
            options = options.max_hold(lease * 3 / 2);
        }
        let steps = self.steps(lease);
        let end = self.end();
        let ledger = Arc::clone(&self.ledger);
        let scribe = Scribe {
            ledger: &ledger,
            process: self.process,
            task: self.task,
            name,
        };
        let Some(guard) = self.acquire(lock, options, ask, lease, scribe).await else {
            return;
        };
        let hold = Held {
            guard,
            lease,
            clock: &self.clock,
            reckoning: self.scenario.reckoning,
            scribe,
            granted: ledger.time.now(),
        };
        hold.use_it(&steps, end, self.scenario.weather).await;
    }

    async fn acquire(
        &self,
        lock: &Lock,
        options: AcquireOptions,
        ask: Ask,
        lease: Duration,
        scribe: Scribe<'_>,
    ) -> Option<LockGuard> {
        let ledger = scribe.ledger;
        // What a request under way may still become: run as late as it may, and then held for a lease.
        let leftover = || Some(ledger.time.now() + self.scenario.response_timeout * 2 + lease);
        scribe.record(Kind::Invoke);
        let started = ledger.time.now();
        let answer = match ask {
            Ask::Patiently => lock.acquire_with(options).await.map(Some),
            Ask::Within(limit) => {
                let answer = lock.acquire_with(options.timeout(limit)).await.map(Some);
                scribe.check_bound("acquire_timeout", started, limit);
                answer
            }
            Ask::Once => {
                let answer = lock.try_acquire_with(options).await;
                scribe.check_bound("try_acquire", started, OPERATION);
                answer
            }
            Ask::Cancelled(limit) => match timeout(limit, lock.acquire_with(options)).await {
                Ok(answer) => answer.map(Some),
                Err(_) => {
                    ledger.count("acquire cancelled");
                    scribe.record_with(Kind::Ambiguous, None, leftover());
                    return None;
                }
            },
        };
        match answer {
            Ok(Some(guard)) => {
                ledger.count("granted");
                return Some(guard);
            }
            Ok(None) => {
                ledger.count("busy");
                scribe.record(Kind::Failed);
            }
            Err(AcquireError::TimedOut { free_by: None, .. }) => {
                ledger.count("timed out");
                scribe.record(Kind::TimedOut);
            }
            Err(
                AcquireError::TimedOut {
                    free_by: Some(_), ..
                }
                | AcquireError::Ambiguous { .. },
            ) => {
                ledger.count("ambiguous");
                scribe.record_with(Kind::Ambiguous, None, leftover());
            }
            Err(AcquireError::Unavailable { .. }) => {
                ledger.count("unavailable");
                scribe.record(Kind::Failed);
            }
            Err(error) => {
                scribe.complain(&format!("P8: {error}"));
                scribe.record(Kind::Failed);
            }
        }
        None
    }

    /// In fair weather everybody says when a hold or a wait is over: then it is known to the millisecond when the lock
    /// is free, and a waiter's promptness can be judged.
    fn is_gentle(&self) -> bool {
        self.scenario.weather == Weather::Fair
    }

    fn millis(&mut self, from: u64, to: Duration) -> Duration {
        let to = u64::try_from(to.as_millis()).unwrap_or(u64::MAX).max(from);
        Duration::from_millis(self.rng.u64(from..=to))
    }

    fn ask(&mut self) -> Ask {
        if self.is_gentle() {
            return if self.rng.u8(..4) == 0 { Ask::Once } else { Ask::Patiently };
        }
        match self.rng.u8(..10) {
            0..4 => Ask::Patiently,
            4..7 => Ask::Within(self.millis(0, Duration::from_millis(2_500))),
            7..9 => Ask::Once,
            _ => Ask::Cancelled(self.millis(0, Duration::from_millis(800))),
        }
    }

    fn steps(&mut self, lease: Duration) -> Vec<Step> {
        // Most holds are short; some outlive their lease and live on renewals.
        let longest = match self.rng.u8(..10) {
            0..6 => Duration::from_millis(60),
            6..9 => Duration::from_millis(400),
            _ => (lease * 2).min(Duration::from_secs(4)),
        };
        (0..self.rng.usize(1..=2))
            .map(|_| {
                let time = self.millis(1, longest);
                match self.rng.u8(..8) {
                    0..5 => Step::Sleep(time),
                    5 => Step::Run(time),
                    6 => Step::Reenter(time),
                    _ => Step::Renew,
                }
            })
            .collect()
    }

    fn end(&mut self) -> End {
        if self.is_gentle() {
            return End::Release;
        }
        match self.rng.u8(..10) {
            0..6 => End::Release,
            6..9 => End::Drop,
            _ => End::Cancelled(self.millis(0, Duration::from_millis(40))),
        }
    }
}

/// A guard and what its holder knows about it.
struct Held<'a> {
    guard: LockGuard,
    lease: Duration,
    clock: &'a SkewedClock,
    reckoning: Reckoning,
    scribe: Scribe<'a>,
    /// For the planted bug: the guard's last word, and what the holder made of it.
    from_reply: Mutex<(Duration, Duration)>,
}

impl Held<'_> {
    async fn use_it(self, steps: &[Step], end: End, weather: Weather) {
        let scribe = self.scribe;
        let Some(token) = self.guard.fencing_token() else {
            return scribe.complain("P2: no fencing token");
        };
        let mut safe_until = self.safe_until();
        scribe.record_with(Kind::Granted, Some(token.get()), Some(safe_until));
        scribe.record(Kind::Enter);
        let lost = tokio::select! {
            biased;
            reason = self.lost() => Some(reason),
            () = self.watch(&mut safe_until) => None,
            () = self.protected(steps) => None,
        };
        self.note_renewal(&mut safe_until);
        scribe.record(Kind::Exit);
        if let Some(reason) = lost {
            scribe.ledger.count("lost");
            scribe.record(Kind::Lost);
            self.check_reason(reason, safe_until, weather);
            // Dropped or released, it must do no harm to whoever holds now.
            if matches!(end, End::Release) {
                let released = self.guard.release().await;
                if !matches!(released, Err(ReleaseError::Lost(_))) {
                    scribe.complain(&format!(
                        "P8: the release of a lost hold gave {released:?}, steps {steps:?}"
                    ));
                }
            }
            return;
        }
        self.give_back(end, safe_until, weather).await;
    }

    async fn give_back(self, end: End, safe_until: Duration, weather: Weather) {
        let Self { guard, scribe, .. } = self;
        let started = scribe.ledger.time.now();
        scribe.record(Kind::ReleaseInvoke);
        let released = match end {
            End::Drop => return drop(guard),
            End::Cancelled(limit) => match timeout(limit, guard.release()).await {
                Ok(released) => released,
                Err(_) => return,
            },
            End::Release => guard.release().await,
        };
        scribe.check_bound("release", started, OPERATION);
        match released {
            Ok(()) => scribe.record(Kind::Released),
            Err(ReleaseError::Ambiguous { .. }) => {
                scribe.ledger.count("release ambiguous");
                scribe.record(Kind::Ambiguous);
            }
            Err(ReleaseError::Lost(_)) => {
                if weather != Weather::Forgetful && scribe.ledger.time.now() < safe_until {
                    scribe.complain(&format!(
                        "a release found nothing to release before {safe_until:?}"
                    ));
                }
                scribe.record(Kind::Failed);
            }
            Err(error) => scribe.complain(&format!("P8: {error}")),
        }
    }

    /// Until when the holder believes in its hold, in true time.
    fn safe_until(&self) -> Duration {
        let by_guard = self.clock.true_time(self.guard.valid_until());
        if self.reckoning == Reckoning::ByGuard {
            return by_guard;
        }
        let mut believed = self.from_reply.lock().unwrap_or_else(PoisonError::into_inner);
        if by_guard > believed.0 {
            // The planted bug: the guard has just heard of a grant or a renewal, and the lease is counted from now.
            let margin = (self.lease / 100).max(Duration::from_millis(2));
            *believed = (by_guard, self.scribe.ledger.time.now() + self.lease - margin);
        }
        believed.1
    }

    /// Resolves when the hold is lost.
    async fn lost(&self) -> LostReason {
        while self.reckoning == Reckoning::FromReply && self.safe_until() > self.scribe.ledger.time.now() {
            sleep(TURN).await;
        }
        self.guard.lost().await
    }

    /// Writes every renewal down before the end it moves.
    async fn watch(&self, safe_until: &mut Duration) {
        loop {
            let left =
                safe_until.saturating_sub(self.scribe.ledger.time.now() + Duration::from_millis(2));
            sleep(left.clamp(Duration::from_millis(1), LOOK)).await;
            self.note_renewal(safe_until);
        }
    }

    fn note_renewal(&self, safe_until: &mut Duration) {
        let now = self.safe_until();
        if now > *safe_until {
            *safe_until = now;
            self.scribe.record_with(Kind::Renewed, None, Some(now));
        }
    }

    async fn protected(&self, steps: &[Step]) {
        for step in steps {
            match *step {
                Step::Sleep(time) => sleep(time).await,
                // A loss is seen by whoever runs this.
                Step::Run(time) => drop(self.guard.run(sleep(time)).await),
                Step::Reenter(time) => self.reenter(time).await,
                Step::Renew => {
                    let started = self.scribe.ledger.time.now();
                    let renewed = self.guard.renew().await;
                    self.scribe.check_bound("renew", started, OPERATION);
                    self.check_renewal(renewed);
                }
            }
        }
    }

    async fn reenter(&self, time: Duration) {
        let started = self.scribe.ledger.time.now();
        let inner = self.guard.reenter().await;
        self.scribe.check_bound("reenter", started, OPERATION);
        match inner {
            Ok(inner) => {
                if inner.fencing_token() != self.guard.fencing_token() {
                    self.scribe.complain("a re-entry has a token of its own");
                }
                sleep(time).await;
                // Its fate is that of the outer guard.
                drop(inner.release().await);
            }
            Err(error) => self.check_renewal(Err(error)),
        }
    }

    fn check_renewal(&self, renewed: Result<(), RenewError>) {
        if let Err(error @ RenewError::Rejected { .. }) = renewed {
            self.scribe.complain(&format!("P8: {error}"));
        }
    }

    fn check_reason(&self, reason: LostReason, safe_until: Duration, weather: Weather) {
        let now = self.scribe.ledger.time.now();
        // The clock of the guard has a finer grain than timers and the true time.
        let early = now + Duration::from_millis(1) < safe_until;
        let may = match reason {
            LostReason::Expired | LostReason::MaxHold => !early,
            LostReason::Gone => !early || weather == Weather::Forgetful,
            _ => false,
        };
        if !may {
            self.scribe.complain(&format!(
                "P5: lost ({reason}) at {now:?}, though valid until {safe_until:?}"
            ));
        }
    }
}
