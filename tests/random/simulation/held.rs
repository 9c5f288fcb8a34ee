//! A holder: its work under the hold, its checks of the hold, and the end of the hold.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use stanchion::{FencingToken, Lease, LostReason, ReleaseError, RenewError};
use stanchion_testkit::Kind;
use tokio::time::{sleep, timeout};

use crate::simulation::kinds::ticket;
use crate::simulation::ledger::Scribe;
use crate::simulation::primitives::{Contested, Guard};
use crate::simulation::scenario::{FaultMode, Reckoning};
use crate::simulation::time::SkewedClock;

/// The bound on calls without a deadline: the default operation timeout.
pub(crate) const OPERATION_TIMEOUT: Duration = Duration::from_secs(5);

/// The interval at which a holder checks its lease for a renewal.
const RENEWAL_CHECK: Duration = Duration::from_millis(50);

/// The interval at which a holder with the planted bug checks for a renewal.
const TURN: Duration = Duration::from_millis(2);

/// One step of protected work.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    Sleep(Duration),
    Run(Duration),
    Reenter(Duration),
    Renew,
}

/// A way to end the hold.
#[derive(Clone, Copy, Debug)]
pub(crate) enum End {
    Release,
    Drop,
    /// The caller drops the release after this long.
    Cancelled(Duration),
    /// Hands the hold over to a candidate, if one is known.
    HandOver,
    /// Detaches the hold as a ticket with this lease.
    Detach(Lease),
}

/// A guard, and the state of its holder.
pub(crate) struct Held<'a> {
    pub(crate) guard: Guard,
    pub(crate) lock: &'a Contested,
    pub(crate) lease: Duration,
    pub(crate) clock: &'a SkewedClock,
    pub(crate) reckoning: Reckoning,
    pub(crate) scribe: Scribe<'a>,
    /// For the planted bug: the end of the hold by the guard, and the end that the holder assumes.
    pub(crate) from_reply: Mutex<(Duration, Duration)>,
}

impl Held<'_> {
    /// Works under the hold and ends it. Records both in the history.
    pub(crate) async fn use_it(self, steps: &[Step], end: End, fault_mode: FaultMode) {
        let scribe = self.scribe;
        let token = self.guard.fencing_token().map(FencingToken::get);
        if token.is_none() && self.guard.is_exclusive() {
            return scribe.complain("P2: no fencing token");
        }
        let mut safe_until = self.safe_until();
        scribe.record_with(Kind::Granted, token, Some(safe_until));
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
            self.check_reason(reason, safe_until, fault_mode);
            // The drop or release of a lost hold must not affect the current holder.
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
        self.give_back(end, safe_until, fault_mode).await;
    }

    async fn give_back(self, end: End, safe_until: Duration, fault_mode: FaultMode) {
        let Self {
            guard,
            lock,
            scribe,
            ..
        } = self;
        let successor = match end {
            End::HandOver => lock.successor().await,
            _ => None,
        };
        let started = scribe.ledger.time.now();
        scribe.record(Kind::ReleaseInvoke);
        let released = match end {
            End::Drop => return drop(guard),
            End::Cancelled(limit) => match timeout(limit, guard.release()).await {
                Ok(released) => released,
                Err(_) => return,
            },
            End::Release => guard.release().await,
            End::HandOver => guard.hand_over(successor).await,
            End::Detach(lease) => return ticket::detach(guard, lease, scribe).await,
        };
        scribe.check_bound("release", started, OPERATION_TIMEOUT);
        match released {
            Ok(()) => scribe.record(Kind::Released),
            Err(ReleaseError::Ambiguous { .. }) => {
                scribe.ledger.count("release ambiguous");
                scribe.record(Kind::Ambiguous);
            }
            Err(ReleaseError::Lost(_)) => {
                if fault_mode != FaultMode::AllWithDataLoss && scribe.ledger.time.now() < safe_until
                {
                    scribe.complain(&format!(
                        "a release found nothing to release before {safe_until:?}"
                    ));
                }
                scribe.record(Kind::Failed);
            }
            Err(error) => scribe.complain(&format!("P8: {error}")),
        }
    }

    /// Returns the true time until which the holder relies on its hold.
    fn safe_until(&self) -> Duration {
        let by_guard = self.clock.true_time(self.guard.valid_until());
        if self.reckoning == Reckoning::ByGuard {
            return by_guard;
        }
        let mut believed = self
            .from_reply
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        if by_guard > believed.0 {
            // The planted bug: the lease counts from the receipt of the grant or renewal.
            let margin = (self.lease / 100).max(Duration::from_millis(2));
            *believed = (
                by_guard,
                self.scribe.ledger.time.now() + self.lease - margin,
            );
        }
        believed.1
    }

    /// Resolves when the hold is lost.
    async fn lost(&self) -> LostReason {
        while self.reckoning == Reckoning::FromReply
            && self.safe_until() > self.scribe.ledger.time.now()
        {
            sleep(TURN).await;
        }
        self.guard.lost().await
    }

    /// Records every renewal before the previous end of the hold.
    async fn watch(&self, safe_until: &mut Duration) {
        loop {
            let left =
                safe_until.saturating_sub(self.scribe.ledger.time.now() + Duration::from_millis(2));
            sleep(left.clamp(Duration::from_millis(1), RENEWAL_CHECK)).await;
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
        for (number, step) in (1..).zip(steps) {
            match *step {
                Step::Sleep(time) => sleep(time).await,
                Step::Run(time) => self.guard.run(sleep(time)).await,
                Step::Reenter(time) => {
                    self.check_renewal(self.guard.proclaim(number).await);
                    self.reenter(time).await;
                }
                Step::Renew => {
                    let started = self.scribe.ledger.time.now();
                    let renewed = self.guard.renew().await;
                    self.scribe.check_bound("renew", started, OPERATION_TIMEOUT);
                    self.check_renewal(renewed);
                }
            }
        }
    }

    async fn reenter(&self, time: Duration) {
        let started = self.scribe.ledger.time.now();
        let inner = self.guard.reenter().await;
        self.scribe
            .check_bound("reenter", started, OPERATION_TIMEOUT);
        match inner {
            None => sleep(time).await,
            Some(Ok(inner)) => {
                if inner.fencing_token() != self.guard.fencing_token() {
                    self.scribe
                        .complain("a re-entry has another token than its hold");
                }
                sleep(time).await;
                // A loss of the outer guard is reported elsewhere.
                drop(inner.release().await);
            }
            Some(Err(error)) => self.check_renewal(Err(error)),
        }
    }

    fn check_renewal(&self, renewed: Result<(), RenewError>) {
        if let Err(error @ RenewError::Rejected { .. }) = renewed {
            self.scribe.complain(&format!("P8: {error}"));
        }
    }

    fn check_reason(&self, reason: LostReason, safe_until: Duration, fault_mode: FaultMode) {
        let now = self.scribe.ledger.time.now();
        // The guard's clock has a finer resolution than timers and the true time.
        let early = now + Duration::from_millis(1) < safe_until;
        let may = match reason {
            LostReason::Expired | LostReason::MaxHold => !early,
            LostReason::Gone => !early || fault_mode == FaultMode::AllWithDataLoss,
            _ => false,
        };
        if !may {
            self.scribe.complain(&format!(
                "P5: lost ({reason}) at {now:?}, though valid until {safe_until:?}"
            ));
        }
    }
}
