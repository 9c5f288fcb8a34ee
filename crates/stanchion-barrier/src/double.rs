//! The double barrier: parties enter together, and leave together.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Guarded as _, Hold, Resend, Synchronizer};
use stanchion_client::{AcquireError, Client, Events, LostReason, Name, QueryError};

use crate::arrival::Arrived;
use crate::error::{BarrierError, BrokenBy, InvalidBarrier};
use crate::fact::{End, Place};
use crate::inside::Inside;
use crate::keys::DOUBLE;
use crate::meeting::{Meeting, Settled, Site, is_deleted};
use crate::options::OnLeave;
use crate::round::Round;
use crate::status::DoubleStatus;

/// A barrier that `n` parties enter together and leave together: no party works before all are in, and none continues before all are
/// out. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * A round begins when n places are taken at one time. Then exactly n parties are inside, and a later party waits for the next round.
/// * It ends when all have left. The place of a dead process counts as left when its lease (15 s) has passed.
/// * No place counts in the next round: after all processes died inside, the next round needs n new entries.
/// * P5: a party that is inside learns of a loss before its place ends: [`Inside::lost`].
/// * P3, P6: as for a [`CyclicBarrier`](crate::CyclicBarrier).
/// * P4: one message wakes all waiters, to enter or to leave; if it is lost, they learn of it at the next poll (5 s).
///
/// # On the wire
/// `stanchion_double:{name}` and `stanchion_double_in:{name}`, until an hour after the last use, and a channel with the name of the
/// former. `stanchion_once:{name}:<owner>` as for a [`CyclicBarrier`](crate::CyclicBarrier). Redisson has no barrier.
#[derive(Clone, Debug)]
pub struct DoubleBarrier {
    site: Site,
}

impl DoubleBarrier {
    /// Returns a handle to the barrier called `name`, for `parties` (1 to 10 000, the same for all). Sends nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, DoubleBarrier};
    /// # let client = Client::connect("memory://double-new").await?;
    /// let phase = DoubleBarrier::new(&client, "load-test", 2)?;
    /// let work = async || -> Result<(), Box<dyn std::error::Error>> {
    ///     let inside = phase.enter().await?; // both are in
    ///     inside.run(async { /* the load */ }).await?;
    ///     Ok(inside.leave().await?) // both are out
    /// };
    /// let (one, other) = tokio::join!(work(), work());
    /// one.and(other)
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidBarrier`]: the name, or the number of parties.
    pub fn new(
        client: &Client,
        name: impl AsRef<[u8]>,
        parties: u32,
    ) -> Result<Self, InvalidBarrier> {
        let site = Site::of(client, name, parties, &DOUBLE)?;
        Ok(Self { site })
    }

    /// Returns the same barrier with another lease of a place: the time for which the place of a dead process still counts, 10 ms to
    /// 30 days, checked by the waits. Default: 15 s.
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.site.lease = lease.into();
        self
    }

    /// Returns the name, key prefix included.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.site.keys.name
    }

    /// Waits until all parties are in. While a round is in progress, the call waits for the next one.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, DoubleBarrier};
    /// # let client = Client::connect("memory://double-enter").await?;
    /// let alone = DoubleBarrier::new(&client, "load-test", 1)?;
    /// let first = alone.enter().await?;
    /// let number = first.generation();
    /// first.leave().await?;
    /// assert_eq!(alone.enter().await?.generation(), number + 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BarrierError`], but never [`BarrierError::Broken`].
    ///
    /// # Cancel safety
    /// A dropped call gives its place back in the background. If the round begins before that, the party was in it, and has left.
    ///
    /// # On the wire
    /// One script for each party, another for each but the last, and one message for the round. For each process one subscription,
    /// which stays for a while, and one poll every 5 s while a party waits.
    pub async fn enter(&self) -> Result<Inside, BarrierError> {
        self.enter_within(None).await
    }

    /// Enters, waiting for at most `timeout`. Zero sends one request, and does not wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, DoubleBarrier};
    /// # let client = Client::connect("memory://double-enter-timeout").await?;
    /// # let phase = DoubleBarrier::new(&client, "load-test", 2)?;
    /// use std::time::Duration;
    ///
    /// assert!(phase.enter_timeout(Duration::from_millis(20)).await.is_err()); // nobody else came
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`enter`](Self::enter); [`BarrierError::TimedOut`] at most 50 ms after the deadline (P9). Without `free_by` the place does
    /// not count; with it, a round may count the place until then.
    ///
    /// # Cancel safety
    /// As [`enter`](Self::enter).
    pub async fn enter_timeout(&self, timeout: Duration) -> Result<Inside, BarrierError> {
        self.enter_within(Some(timeout)).await
    }

    /// Returns the state of the barrier; `None` if it does not exist: it was not used for an hour.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, DoubleBarrier};
    /// # let client = Client::connect("memory://double-status").await?;
    /// let alone = DoubleBarrier::new(&client, "load-test", 1)?;
    /// assert!(alone.status().await?.is_none());
    /// let inside = alone.enter().await?;
    /// let status = alone.status().await?.ok_or("no barrier")?;
    /// assert!(status.under_way && status.generation == inside.generation());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`].
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script.
    pub async fn status(&self) -> Result<Option<DoubleStatus>, QueryError> {
        let call = self.site.keys.status();
        let reply = self.site.handle.query(&call, Resend::UntilAnswered).await?;
        DoubleStatus::read(&reply)
    }

    /// Returns the events of the barrier from now on: rounds, and the number of parties that wait to enter or are inside.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, DoubleBarrier, Event};
    /// # let client = Client::connect("memory://double-events").await?;
    /// let alone = DoubleBarrier::new(&client, "load-test", 1)?;
    /// let mut events = alone.events();
    /// assert!(matches!(events.next().await, Some(Event::Now(state)) if state.round.is_none())); // no party has come yet
    /// let inside = alone.enter().await?;
    /// assert_eq!(events.next().await, Some(Event::Round(inside.generation())));
    /// assert_eq!(events.next().await, Some(Event::Parties(1)));
    /// let next = inside.generation() + 1;
    /// inside.leave().await?;
    /// assert_eq!(events.next().await, Some(Event::Round(next)));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe; it only reads. Dropping the stream stops the reads.
    ///
    /// # On the wire
    /// Nothing until the stream is polled. Then, once for all listeners of this process: `CLIENT TRACKING ON` and `EXISTS` on the
    /// connection for messages. A script reads the state after each change and each renewal of a place, and once in each poll interval.
    pub fn events(&self) -> Events {
        Events::of(&self.site.handle, Arc::clone(&self.site.keys) as _)
    }

    async fn enter_within(&self, timeout: Option<Duration>) -> Result<Inside, BarrierError> {
        let meeting = self.site.meeting(OnLeave::Free, timeout);
        match meeting.enter_once().await? {
            Ok(inside) => Ok(inside),
            // A lost place is replaced once.
            Err(_) => {
                let again = meeting.enter_once().await?;
                again.map_err(|place| meeting.lost(place.round / 2))
            }
        }
    }
}

impl Meeting<'_> {
    /// `Ok(Err(…))`: the place was lost, and does not count.
    async fn enter_once(&self) -> Result<Result<Inside, Place>, BarrierError> {
        let (place, arrived) = self.arrive().await?;
        if arrived.last {
            return self.entered(End::Complete, place, arrived);
        }
        let round = Arc::new(Round::new(&self.site.keys));
        round.is(arrived.place);
        let sync = Arc::clone(&round) as Arc<dyn Synchronizer>;
        // Registers after the arrival, because the arrival may wait for a round. Therefore this wait polls once at its start.
        let standby = self.site.handle.stand_by(&sync)?;
        let ended = tokio::select! {
            biased;
            ended = standby.wait(self.left(), true) => Ok(ended),
            lost = place.lost() => Err(lost),
        };
        if let Some(end) = round.end() {
            return self.entered(end, place, arrived);
        }
        let why = match ended {
            Ok(Err(AcquireError::TimedOut { .. })) => BrokenBy::TimedOut,
            Ok(Err(error)) if !is_deleted(&error) => return Err(error.into()),
            Ok(_) => return self.entered(End::Forgotten, place, arrived),
            Err(LostReason::Shutdown) => return Err(self.shut_down()),
            Err(_) => BrokenBy::Died,
        };
        match self.settle(&round, &place, arrived, why).await? {
            Settled::Kept if place.is_held() => Ok(Ok(self.inside(place, arrived))),
            // P3: the drop gives the place back.
            _ if why == BrokenBy::TimedOut => {
                drop(place.spend());
                Err(self.timed_out(None))
            }
            _ => Ok(Err(arrived.place)),
        }
    }

    fn entered(
        &self,
        end: End,
        place: Hold,
        arrived: Arrived,
    ) -> Result<Result<Inside, Place>, BarrierError> {
        // The round began without this party, because its lease had ended (P5).
        if end != End::Complete || !place.is_held() {
            return Ok(Err(arrived.place));
        }
        Ok(Ok(self.inside(place, arrived)))
    }

    fn inside(&self, place: Hold, arrived: Arrived) -> Inside {
        Inside::new(
            place,
            arrived,
            self.site.handle.clone(),
            Arc::clone(&self.site.keys),
        )
    }
}
