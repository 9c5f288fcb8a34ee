//! Several holds that count as one.

use std::fmt;
use std::future::{Future, poll_fn};
use std::task::Poll;
use std::time::Duration;

use futures_util::stream::{FuturesUnordered, StreamExt as _};

use crate::error::{ReleaseError, RenewError};
use crate::hold::ended::Ended;
use crate::hold::guarded::Guarded;
use crate::hold::handle::Hold;
use crate::hold::request::ReleaseRequest;
use crate::lease::Lease;
use crate::name::Name;
use stanchion_transport::Moment;

/// Several holds of which at least `needed` must last: all holds of a multi-lock, a quorum of a RedLock.
///
/// Dropping it releases every hold in the background.
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
    pub fn one(hold: Hold) -> Self {
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
}

impl Guarded for HoldSet {
    fn members(&self) -> &[Hold] {
        &self.holds
    }

    fn name(&self) -> &Name {
        self.first().name()
    }

    fn valid_until(&self) -> Moment {
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

    fn remaining(&self) -> Duration {
        let mut left: Vec<Duration> = self.holds.iter().map(Hold::remaining).collect();
        left.sort_unstable();
        left.len()
            .checked_sub(self.needed)
            .map_or(Duration::ZERO, |i| left[i])
    }

    fn is_held(&self) -> bool {
        self.holds.iter().filter(|hold| hold.is_held()).count() >= self.needed
    }

    fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
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

    fn requested(&self) -> impl Future<Output = ReleaseRequest> + Send + 'static {
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

    fn request(&self) -> Option<ReleaseRequest> {
        self.holds.iter().find_map(Hold::request)
    }

    async fn renew(&self, lease: Option<Lease>) -> Result<(), RenewError> {
        let mut renewals: FuturesUnordered<_> =
            self.holds.iter().map(|hold| hold.renew(lease)).collect();
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

    async fn release(self) -> Result<(), ReleaseError> {
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
