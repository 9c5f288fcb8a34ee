//! A place inside a double barrier.

use std::fmt;
use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Facts as _, Guarded as _, Handle, Hold, Reply, Synchronizer};
use stanchion_client::{AcquireError, LeaseLost, LostReason, Name, Rejection};

use crate::arrival::{Arrived, LAST_ROUND};
use crate::error::{BarrierError, BrokenBy};
use crate::fact::{End, Place};
use crate::keys::Keys;
use crate::meeting::LAST_WORD;
use crate::round::Round;

/// The time until a leaving party polls. The reply says if the others have left, and when the lease of a dead party ends.
const FIRST_LOOK: Duration = Duration::from_millis(100);

/// A party that is inside a [`DoubleBarrier`](crate::DoubleBarrier). A drop leaves the barrier, and does not wait for the others.
#[must_use = "a party that is not bound to a name leaves at once: `let inside = …`, not `let _ = …`"]
pub struct Inside {
    hold: Hold,
    arrived: Arrived,
    handle: Handle,
    keys: Arc<Keys>,
}

impl Inside {
    pub(crate) fn new(hold: Hold, arrived: Arrived, handle: Handle, keys: Arc<Keys>) -> Self {
        hold.withhold(false);
        Self {
            hold,
            arrived,
            handle,
            keys,
        }
    }

    /// Returns the name of the barrier.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.keys.name
    }

    /// Returns the number of the round: larger than that of every round before.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.arrived.place.round / 2
    }

    /// Returns the number of parties that had entered when this one did, itself included: 1 to n. Two parties may get the same
    /// number, if another gave up before the later one arrived.
    #[must_use]
    pub const fn arrival(&self) -> u32 {
        self.arrived.arrival
    }

    /// Returns whether this party made the round complete: true for exactly one party of a round.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.arrived.last
    }

    /// Returns whether the others still wait for this party, by this process's clock (P5).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Returns the time left until the place ends unless it is renewed; zero when it is lost.
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Resolves when the place is lost: from then on the others may continue without this party (P5). The future keeps nothing alive.
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.hold.lost()
    }

    /// Runs `work` while the place lasts; drops `work` when the place is lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, DoubleBarrier};
    /// # let client = Client::connect("memory://inside-run").await?;
    /// # let alone = DoubleBarrier::new(&client, "load-test", 1)?;
    /// let inside = alone.enter().await?;
    /// let answer = inside.run(async { 6 * 7 }).await?;
    /// assert_eq!(answer, 42);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`LeaseLost`]: the work was dropped at an await point, in time.
    ///
    /// # Cancel safety
    /// A dropped call drops the work. The party stays inside.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        self.hold.run(work).await
    }

    /// Leaves, and waits until all parties have left, or died.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, DoubleBarrier};
    /// # let client = Client::connect("memory://inside-leave").await?;
    /// # let alone = DoubleBarrier::new(&client, "load-test", 1)?;
    /// alone.enter().await?.leave().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BarrierError::Release`]: the place was lost before, and the others may have continued; or the server has not confirmed that
    /// the place is given back. [`BarrierError::Acquire`]: as for every wait; the party has left nevertheless.
    ///
    /// # Cancel safety
    /// A dropped call has left, or leaves in the background, and does not wait for the others.
    ///
    /// # On the wire
    /// One script for each party, and one message when the last has left. For each process one poll after 100 ms, one when a lease of
    /// those inside would end, and one every 5 s.
    pub async fn leave(self) -> Result<(), BarrierError> {
        self.leave_within(None).await
    }

    /// Leaves, and waits for at most `timeout` until all have left, or died. The party leaves in any case. Zero sends one request.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, DoubleBarrier};
    /// # let client = Client::connect("memory://inside-leave-timeout").await?;
    /// # let phase = DoubleBarrier::new(&client, "load-test", 2)?;
    /// use std::time::Duration;
    ///
    /// let (one, other) = tokio::join!(phase.enter(), phase.enter());
    /// let _other = other?;
    /// assert!(one?.leave_timeout(Duration::from_millis(20)).await.is_err()); // the other is still inside
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`leave`](Self::leave); [`BarrierError::TimedOut`] at most 50 ms after the deadline (P9).
    ///
    /// # Cancel safety
    /// As [`leave`](Self::leave).
    pub async fn leave_timeout(self, timeout: Duration) -> Result<(), BarrierError> {
        self.leave_within(Some(timeout)).await
    }

    async fn leave_within(self, timeout: Option<Duration>) -> Result<(), BarrierError> {
        let Self {
            hold,
            arrived,
            handle,
            keys,
        } = self;
        let round = Arc::new(Round::new(&keys));
        round.is(Place {
            round: arrived.place.round + 1,
            ..arrived.place
        });
        let sync = Arc::clone(&round) as Arc<dyn Synchronizer>;
        let owner = hold.wire_owner().clone();
        // P4: subscribe before leaving, so that this process receives the message of the last party.
        let standby = handle.stand_by(&sync)?;
        standby.ask_within(FIRST_LOOK);
        let mut all_out = pin!(standby.wait(timeout, false));
        let mut answered = false;
        let out = tokio::select! {
            biased;
            released = hold.release() => match released {
                Ok(()) => {
                    answered = true;
                    all_out.await
                }
                Err(error) => return Err(error.into()),
            },
            // The release future is dropped here, and the release continues in the background.
            out = &mut all_out => out,
        };
        let late = matches!(out, Err(AcquireError::TimedOut { .. }));
        if late && !answered && round.end().is_none() {
            // Only the reply to its own request shows the last party that all have left, and that reply is late. A resend has no effect (P6).
            let call = keys.give_back(&owner, BrokenBy::Left, LAST_ROUND);
            let reply = handle.query_within(&call, LAST_WORD).await;
            if let Ok(Reply::Array(parts)) = reply
                && let Some(Reply::Bulk(fact)) = parts.get(2)
            {
                round.told(fact);
            }
        }
        match (round.end(), out) {
            (Some(End::Complete), _) | (None, Ok(())) => Ok(()),
            (_, Err(error)) => Err(error.into()),
            // The server has lost the barrier, and its list of the parties inside.
            (Some(_), Ok(())) => Err(AcquireError::Rejected {
                name: keys.name.clone(),
                rejection: Rejection::Deleted,
            }
            .into()),
        }
    }
}

impl fmt::Debug for Inside {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inside")
            .field("name", self.name())
            .field("generation", &self.generation())
            .finish_non_exhaustive()
    }
}
