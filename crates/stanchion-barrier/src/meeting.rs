//! One wait at a barrier: the parts that both kinds share.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Facts as _, Handle, Hold, Reply, Synchronizer};
use stanchion_client::{
    AcquireError, AcquireOptions, Client, FreeBy, Moment, Outage, QueryError, Rejection,
};

use crate::arrival::{Arrival, Arrived};
use crate::error::{BarrierError, BrokenBy, InvalidBarrier};
use crate::fact::End;
use crate::keys::{Family, Keys, Policy};
use crate::options::OnLeave;
use crate::round::Round;

/// The time after the deadline in which a timed-out call may still learn if its round is over: below the 50 ms of P9.
pub(crate) const LAST_WORD: Duration = Duration::from_millis(45);

/// The time in which a wait without a deadline may learn what happened to a lost place.
const LOOK: Duration = Duration::from_secs(5);

/// The most parties.
pub(crate) const MOST: u32 = 10_000;

/// The lease of a place: the time for which the place of a dead process still counts.
const LEASE: Duration = Duration::from_secs(15);

/// The parts that the handles of both kinds share.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) handle: Handle,
    pub(crate) keys: Arc<Keys>,
    parties: u32,
    pub(crate) lease: Duration,
}

impl Site {
    pub(crate) fn of(
        client: &Client,
        name: impl AsRef<[u8]>,
        parties: u32,
        family: &'static Family,
    ) -> Result<Self, InvalidBarrier> {
        if !(1..=MOST).contains(&parties) {
            return Err(InvalidBarrier::Parties { parties });
        }
        let handle = Handle::of(client);
        let keys = Arc::new(Keys::new(&handle, client.name(name)?, family));
        Ok(Self {
            handle,
            keys,
            parties,
            lease: LEASE,
        })
    }

    /// Begins a wait.
    pub(crate) fn meeting(&self, on_leave: OnLeave, timeout: Option<Duration>) -> Meeting<'_> {
        Meeting {
            site: self,
            policy: on_leave.policy(),
            began: self.handle.now(),
            timeout,
        }
    }
}

/// One wait, which may arrive twice, because a lost place is replaced once.
pub(crate) struct Meeting<'a> {
    pub(crate) site: &'a Site,
    policy: Policy,
    began: Moment,
    timeout: Option<Duration>,
}

/// The outcome for a place that was given back.
pub(crate) enum Settled {
    /// The place does not count.
    GivenBack,
    /// The round has begun with the place, and the place is still there.
    Kept,
    /// The round of the place was over.
    Ended(End),
    /// The place did not exist.
    Gone,
}

impl Meeting<'_> {
    fn waited(&self) -> Duration {
        self.site.handle.now().since(self.began)
    }

    /// The time left.
    pub(crate) fn left(&self) -> Option<Duration> {
        let waited = self.waited();
        self.timeout.map(|timeout| timeout.saturating_sub(waited))
    }

    /// Takes a place.
    pub(crate) async fn arrive(&self) -> Result<(Hold, Arrived), BarrierError> {
        let Site {
            handle,
            keys,
            parties,
            lease,
        } = self.site;
        let arrival = Arc::new(Arrival::new(keys, *parties, self.policy));
        let sync = Arc::clone(&arrival) as Arc<dyn Synchronizer>;
        let mut options = AcquireOptions::new();
        if let Some(left) = self.left() {
            options = options.timeout(left);
        }
        let place = handle.acquire(&sync, &options, *lease).await;
        if let Some(theirs) = arrival.theirs() {
            return Err(BarrierError::Parties {
                name: keys.name.clone(),
                ours: *parties,
                theirs,
            });
        }
        let place = place?;
        // P3: a shutdown gives the place back.
        place.withhold(true);
        // P6: resends get the stored answer. Without it, a request that may still run would take another place.
        if !place.is_owed_an_answer() {
            keys.answered(place.wire_owner());
        }
        match arrival.arrived() {
            Some(arrived) => Ok((place, arrived)),
            None => Err(self.rejected(Rejection::Other {
                detail: "an answer without a round".into(),
            })),
        }
    }

    /// Gives the place back, and learns from the reply what happened to it (P8).
    pub(crate) async fn settle(
        &self,
        round: &Round,
        place: &Hold,
        arrived: Arrived,
        why: BrokenBy,
    ) -> Result<Settled, BarrierError> {
        let Site { handle, keys, .. } = self.site;
        let call = keys.give_back(place.wire_owner(), why, arrived.place.round);
        // P9: the limit counts from the deadline, not from now, because the previous request may have used a part of that time.
        let within = match self.timeout {
            Some(timeout) => (timeout.saturating_add(LAST_WORD)).saturating_sub(self.waited()),
            None => LOOK,
        };
        let reply = match handle.query_within(&call, within).await {
            Ok(reply) => reply,
            // The drop of the place gives it back (P3).
            Err(error) => {
                // P8: a reason of the server helps more than the time that has passed.
                let outage = match error {
                    QueryError::Unavailable { outage }
                        if !matches!(outage, Outage::Unanswered { .. }) =>
                    {
                        outage
                    }
                    _ if self.timeout.is_some() => {
                        return Err(self.timed_out(Some(self.site.lease.into())));
                    }
                    _ => Outage::Unanswered {
                        detail: "what became of the place at the barrier".into(),
                    },
                };
                return Err(AcquireError::Ambiguous {
                    name: self.site.keys.name.clone(),
                    free_by: self.site.lease.into(),
                    outage,
                }
                .into());
            }
        };
        let parts = reply.as_array().unwrap_or_default();
        if let Some(Reply::Bulk(fact)) = parts.get(2) {
            round.told(fact);
        }
        Ok(match parts.first().and_then(Reply::as_int) {
            Some(1) => Settled::GivenBack,
            Some(0) => Settled::Kept,
            _ => round.end().map_or(Settled::Gone, Settled::Ended),
        })
    }

    pub(crate) fn timed_out(&self, free_by: Option<FreeBy>) -> BarrierError {
        BarrierError::TimedOut {
            name: self.site.keys.name.clone(),
            waited: self.waited(),
            free_by,
        }
    }

    pub(crate) fn shut_down(&self) -> BarrierError {
        let name = self.site.keys.name.clone();
        AcquireError::Shutdown { name }.into()
    }

    pub(crate) fn rejected(&self, rejection: Rejection) -> BarrierError {
        let name = self.site.keys.name.clone();
        AcquireError::Rejected { name, rejection }.into()
    }

    pub(crate) fn lost(&self, generation: u64) -> BarrierError {
        let name = self.site.keys.name.clone();
        BarrierError::Lost { name, generation }
    }
}

/// Returns whether the barrier of the wait does not exist any more.
pub(crate) const fn is_deleted(error: &AcquireError) -> bool {
    matches!(
        error,
        AcquireError::Rejected {
            rejection: Rejection::Deleted,
            ..
        }
    )
}
