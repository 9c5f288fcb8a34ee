//! Several holds that count as one.

use std::fmt;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::error::{LeaseLost, LostReason, ReleaseError, RenewError};
use crate::hold::ended::{Ended, lost};
use crate::hold::handle::Hold;
use crate::lease::Lease;
use crate::name::Name;
use crate::notice::ReleaseRequest;
use stanchion_transport::Moment;

/// Several holds of which at least `needed` must last: all holds of a multi-lock, a quorum of a RedLock.
///
/// Has the methods of [`Hold`], so that guards can wrap it. Dropping it releases every hold in the background.
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct HoldSet {
    holds: Vec<Hold>,
    needed: usize,
}

impl HoldSet {
    /// Makes a set of which all `holds` must last; `None` when there are none.
    #[must_use]
    pub fn all(holds: Vec<Hold>) -> Option<Self> {
        let needed = holds.len();
        Self::some(holds, needed)
    }

    /// Makes a set of one hold.
    pub(crate) fn one(hold: Hold) -> Self {
        Self {
            holds: vec![hold],
            needed: 1,
        }
    }

    /// Makes a set of which `needed` of the `holds` must last; `None` when there are fewer.
    #[must_use]
    pub fn some(holds: Vec<Hold>, needed: usize) -> Option<Self> {
        (needed > 0 && holds.len() >= needed).then_some(Self { holds, needed })
    }

    /// The holds.
    pub fn holds(&self) -> &[Hold] {
        &self.holds
    }

    fn first(&self) -> &Hold {
        // OK: `some` takes at least one.
        &self.holds[0]
    }

    /// The name of the first hold.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.first().name()
    }

    /// The end of the time for which this holder may count on enough of the holds (P1, P5).
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        let mut ends: Vec<Moment> = self
            .holds
            .iter()
            .filter(|hold| hold.is_held())
            .map(Hold::valid_until)
            .collect();
        ends.sort_unstable();
        // Until the `needed`-th end, counted from the latest, at least `needed` holds last.
        ends.len()
            .checked_sub(self.needed)
            .map_or(Moment::ZERO, |i| ends[i])
    }

    /// The time left until [`valid_until`](Self::valid_until); zero when lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        let mut left: Vec<Duration> = self.holds.iter().map(Hold::remaining).collect();
        left.sort_unstable();
        left.len()
            .checked_sub(self.needed)
            .map_or(Duration::ZERO, |i| left[i])
    }

    /// Returns whether enough of the holds are still held, by the clock (P5).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.holds.iter().filter(|hold| hold.is_held()).count() >= self.needed
    }

    /// Resolves when too few of the holds are left (P5), with the last reason; never after a release. Keeps nothing alive.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        lost(self.ended())
    }

    /// Resolves when the holds are released, or too few of them are left (P5). Keeps nothing alive.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        let mut ends: Vec<_> = self
            .holds
            .iter()
            .map(|hold| Box::pin(hold.ended()))
            .collect();
        let mut bearable = self.holds.len() - self.needed;
        poll_fn(move |cx| {
            let mut end = None;
            // P5: every member is polled at every poll. After a pause of the process no timer has fired yet, so a set
            // that polls only the woken members would miss the loss.
            ends.retain_mut(|member| {
                let Poll::Ready(ended) = member.as_mut().poll(cx) else {
                    return true;
                };
                match (ended, bearable.checked_sub(1)) {
                    (Ended::Lost(_), Some(left)) => bearable = left,
                    // One released member is enough: a set is released as a whole.
                    _ => end = Some(ended),
                }
                false
            });
            end.map_or(Poll::Pending, Poll::Ready)
        })
    }

    /// Resolves when a release of any of the holds is requested. Keeps nothing alive.
    pub fn requested(&self) -> impl Future<Output = ReleaseRequest> + Send + 'static {
        let each = self.holds.iter().map(|hold| Box::pin(hold.requested()));
        let mut each: FuturesUnordered<_> = each.collect();
        async move {
            match each.next().await {
                Some(request) => request,
                // OK: a set has at least one hold.
                None => std::future::pending().await,
            }
        }
    }

    /// A request to give one of the holds back: the last request for the first hold that has one.
    #[must_use]
    pub fn request(&self) -> Option<ReleaseRequest> {
        self.holds.iter().find_map(Hold::request)
    }

    /// Runs `work` as long as enough of the holds last; drops `work` when they do not.
    ///
    /// # Errors
    /// [`LeaseLost`]: the work was dropped at an await point, in time.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        let lost = self.lost();
        tokio::select! {
            // The loss first: after a pause of the process, the work must not take another step.
            biased;
            reason = lost => Err(LeaseLost { name: self.name().clone(), reason }),
            output = work => Ok(output),
        }
    }

    /// Renews all holds now, concurrently; returns when enough of them are renewed.
    ///
    /// # Errors
    /// An error of one of them, when too few were renewed.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.renew_each(Hold::renew).await
    }

    /// As [`renew`](Self::renew), each for `lease`.
    ///
    /// # Errors
    /// As [`renew`](Self::renew).
    pub async fn renew_for(&self, lease: Lease) -> Result<(), RenewError> {
        self.renew_each(|hold| hold.renew_for(lease)).await
    }

    async fn renew_each<'a, F>(&'a self, renew: impl Fn(&'a Hold) -> F) -> Result<(), RenewError>
    where
        F: Future<Output = Result<(), RenewError>> + 'a,
    {
        let mut renewals: FuturesUnordered<_> = self.holds.iter().map(renew).collect();
        let mut renewed = 0;
        let mut failure = None;
        while let Some(outcome) = renewals.next().await {
            match outcome {
                Ok(()) => renewed += 1,
                Err(error) => failure = Some(error),
            }
            if renewed >= self.needed {
                // The renewals in flight continue in the background, so a silent server does not delay the caller.
                return Ok(());
            }
        }
        // OK: with `needed` of them answered and none failed, the loop has returned.
        failure.map_or(Ok(()), Err)
    }

    /// Releases all holds concurrently, and waits until the needed number of releases is confirmed. The others continue in the background.
    ///
    /// # Errors
    /// An error of one of them, when fewer releases than needed were confirmed.
    pub async fn release(self) -> Result<(), ReleaseError> {
        let needed = self.needed;
        let mut releases: FuturesUnordered<_> = self.holds.into_iter().map(Hold::release).collect();
        let mut released = 0;
        let mut failure = None;
        while let Some(outcome) = releases.next().await {
            match outcome {
                Ok(()) => released += 1,
                Err(error) => failure = Some(error),
            }
            if released >= needed {
                // The dropped releases continue in the background, like every release that has begun.
                return Ok(());
            }
        }
        failure.map_or(Ok(()), Err)
    }
}

impl fmt::Debug for HoldSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HoldSet")
            .field("needed", &self.needed)
            .field("holds", &self.holds)
            .finish()
    }
}
