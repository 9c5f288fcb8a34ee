//! The tasks of a client, and the ways in which they acquire.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Client, Lease, Renewal};
use stanchion_testkit::Kind;
use tokio::time::{sleep, timeout};

use crate::simulation::held::{End, Held, OPERATION_TIMEOUT, Step};
use crate::simulation::kinds::ticket;
use crate::simulation::ledger::{Ledger, Scribe};
use crate::simulation::primitives::{Contested, Guard, Primitive};
use crate::simulation::scenario::{FaultMode, Scenario};
use crate::simulation::time::SkewedClock;

/// The longest lease of a ticket.
const TICKET: Duration = Duration::from_secs(4);

/// One task.
#[derive(Debug)]
pub(crate) struct Worker {
    pub(crate) ledger: Arc<Ledger>,
    pub(crate) scenario: Arc<Scenario>,
    pub(crate) client: Client,
    pub(crate) clock: SkewedClock,
    pub(crate) process: u32,
    pub(crate) task: u32,
    pub(crate) rng: fastrand::Rng,
}

/// The time for which a call waits.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    Unlimited,
    Timeout(Duration),
    Once,
    /// The caller drops the call after this long.
    Cancelled(Duration),
}

impl Worker {
    /// Acquires, holds and releases, until the simulation ends.
    pub(crate) async fn hold_until_the_end(mut self, locks: Vec<Contested>) {
        while !self.ledger.is_ending() {
            sleep(self.millis(0, self.scenario.think)).await;
            let chosen = self.rng.usize(..locks.len());
            self.hold_once(&locks[chosen], self.scenario.clone().names[chosen])
                .await;
        }
    }

    async fn hold_once(&mut self, lock: &Contested, name: &str) {
        let lease = self.scenario.leases[self.rng.usize(..self.scenario.leases.len())];
        let patience = self.patience();
        let lock = &lock.for_one_call(&mut self.rng);
        let mut options = AcquireOptions::new();
        // OK: the scenarios' leases are between 10 ms and 30 days.
        if let Ok(lease) = Lease::new(lease) {
            options = options.lease(lease);
        }
        let unrenewed = self.rng.u8(..10) < self.scenario.unrenewed;
        if unrenewed {
            options = options.renewal(Renewal::Manual);
        }
        if !self.is_gentle() && self.rng.u8(..20) == 0 {
            options = options.max_hold(lease * 3 / 2);
        }
        let steps = self.steps(lease, unrenewed);
        let end = self.end();
        let ledger = Arc::clone(&self.ledger);
        let scribe = Scribe {
            ledger: &ledger,
            process: self.process,
            task: self.task,
            name,
            mode: lock.choose(&mut self.rng),
        };
        let offered = match self.scenario.tickets {
            true => ticket::take(&mut self.rng, &ledger, name),
            false => None,
        };
        let granted = match &offered {
            Some(offered) => ticket::adopt(lock, offered, options, patience, lease, scribe).await,
            None => self.acquire(lock, options, patience, lease, scribe).await,
        };
        let Some(guard) = granted else {
            return;
        };
        let hold = Held {
            guard,
            lock,
            lease,
            clock: &self.clock,
            reckoning: self.scenario.reckoning,
            scribe,
            from_reply: Mutex::default(),
        };
        hold.use_it(&steps, end, self.scenario.fault_mode).await;
    }

    async fn acquire(
        &self,
        lock: &Contested,
        options: AcquireOptions,
        patience: Patience,
        lease: Duration,
        scribe: Scribe<'_>,
    ) -> Option<Guard> {
        let ledger = scribe.ledger;
        // The end of a hold that a request in flight may still acquire: the request may run this late, and the hold lasts for a lease.
        let leftover = || Some(ledger.time.now() + self.scenario.response_timeout * 2 + lease);
        let mode = scribe.mode;
        scribe.record(Kind::Invoke);
        let started = ledger.time.now();
        let answer = match patience {
            Patience::Unlimited => lock.acquire(mode, options).await.map(Some),
            Patience::Timeout(limit) => {
                let answer = lock.acquire(mode, options.timeout(limit)).await.map(Some);
                scribe.check_bound("acquire_timeout", started, limit);
                answer
            }
            Patience::Once => {
                let answer = lock.try_acquire(mode, options).await;
                scribe.check_bound("try_acquire", started, OPERATION_TIMEOUT);
                answer
            }
            Patience::Cancelled(limit) => match timeout(limit, lock.acquire(mode, options)).await {
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

    /// Without faults every hold ends with a release and no wait is dropped. The checker then knows to the millisecond when the lock is
    /// free, and can check the delay of a waiter.
    fn is_gentle(&self) -> bool {
        self.scenario.fault_mode == FaultMode::Off
    }

    pub(crate) fn millis(&mut self, from: u64, to: Duration) -> Duration {
        let to = u64::try_from(to.as_millis()).unwrap_or(u64::MAX).max(from);
        Duration::from_millis(self.rng.u64(from..=to))
    }

    fn patience(&mut self) -> Patience {
        if self.is_gentle() {
            return if self.rng.u8(..4) == 0 {
                Patience::Once
            } else {
                Patience::Unlimited
            };
        }
        match self.rng.u8(..10) {
            0..4 => Patience::Unlimited,
            4..7 => Patience::Timeout(self.millis(0, Duration::from_millis(2_500))),
            7..9 => Patience::Once,
            _ => Patience::Cancelled(self.millis(0, Duration::from_millis(800))),
        }
    }

    fn steps(&mut self, lease: Duration, unrenewed: bool) -> Vec<Step> {
        if unrenewed && self.rng.bool() {
            return vec![Step::Sleep(lease * 2)];
        }
        // Most holds are short. Some last longer than their lease and need renewals.
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
        if self.scenario.tickets && self.rng.bool() {
            // OK: between 10 ms and 30 days.
            return End::Detach(Lease::new(self.millis(800, TICKET)).unwrap_or_default());
        }
        if self.scenario.primitive == Primitive::Election && self.rng.u8(..3) == 0 {
            return End::HandOver;
        }
        match self.rng.u8(..10) {
            0..6 => End::Release,
            6..9 => End::Drop,
            _ => End::Cancelled(self.millis(0, Duration::from_millis(40))),
        }
    }
}
