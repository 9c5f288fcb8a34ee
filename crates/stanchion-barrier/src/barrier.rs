//! The cyclic barrier.

use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Hold, Reply, Resend, unexpected};
use stanchion_client::{Client, Events, Name, Outage, QueryError, Rejection};

use crate::arrival::Arrived;
use crate::danger::BarrierDanger;
use crate::error::{BarrierError, InvalidBarrier};
use crate::keys::CYCLIC;
use crate::meeting::{MOST, Site};
use crate::options::WaitOptions;
use crate::status::BarrierStatus;

/// A barrier at which `n` parties meet, again and again. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * A round is complete when n places of it are taken at one time. Each wait takes one place in one round. Round numbers only grow,
///   also after the server has lost the barrier.
/// * P6: an arrival whose reply is lost counts once, and a resend gets the same answer, also when its round is over by then.
/// * P3: a wait that ends otherwise gives its place back within a round trip, or else when its lease (15 s) has passed. Until then
///   the place of a dead process counts, and may complete a round.
/// * P4: one message wakes all waiters; if it is lost, they learn of the end at the next poll (5 s).
/// * A lost place (its process was paused for longer than its lease) does not count; the wait takes another place, once.
///
/// # On the wire
/// `stanchion_barrier:{name}` and `stanchion_barrier_in:{name}`, until an hour after the last use, and a channel with the name of the
/// former. `stanchion_once:{name}:<owner>`, the answer to one arrival, until a later arrival of this handle or its clones, at most
/// two minutes. Redisson has no barrier.
#[derive(Clone, Debug)]
pub struct CyclicBarrier {
    pub(crate) site: Site,
}

/// A round that is complete, as one of its parties sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    generation: u64,
    arrival: u32,
    last: bool,
}

impl Passed {
    /// Ends the place locally: the server has already ended it with the round.
    pub(crate) fn of(arrived: Arrived, place: Hold) -> Self {
        drop(place.spend());
        Self {
            generation: arrived.place.round,
            arrival: arrived.arrival,
            last: arrived.last,
        }
    }

    /// Returns the number of the round: larger than that of every round before.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// Returns the number of places that were taken when this party arrived, its own included: 1 to n. Two parties may get the same
    /// number, if a place was given back before the later one arrived.
    #[must_use]
    pub const fn arrival(&self) -> u32 {
        self.arrival
    }

    /// Returns whether this party made the round complete: true for exactly one party of a round.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.last
    }
}

impl CyclicBarrier {
    /// Returns a handle to the barrier called `name`, for `parties` (1 to 10 000, the same for all). Sends nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, CyclicBarrier};
    /// # let client = Client::connect("memory://barrier-new").await?;
    /// let checkpoint = CyclicBarrier::new(&client, "checkpoint", 2)?;
    /// let (one, other) = tokio::join!(checkpoint.wait(), checkpoint.wait());
    /// assert_eq!(one?.generation(), other?.generation());
    /// # Ok(())
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
        let site = Site::of(client, name, parties, &CYCLIC)?;
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

    /// Waits until all parties of a round have arrived.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, CyclicBarrier};
    /// # let client = Client::connect("memory://barrier-wait").await?;
    /// let alone = CyclicBarrier::new(&client, "checkpoint", 1)?;
    /// let (first, second) = (alone.wait().await?, alone.wait().await?);
    /// assert_eq!(second.generation(), first.generation() + 1);
    /// assert!(second.is_last() && second.arrival() == 1);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`BarrierError`]. [`Rejection::Deleted`]: the barrier was deleted, or lost by the server, during a wait under
    /// [`OnLeave::Break`](crate::OnLeave::Break). Under [`OnLeave::Free`](crate::OnLeave::Free) the wait takes a place in the new
    /// barrier. [`AcquireError::Ambiguous`](stanchion_client::AcquireError::Ambiguous): during the wait, the server was out of reach
    /// for the lease and 5 s longer. It is unknown if the round was complete.
    ///
    /// # Cancel safety
    /// A dropped wait gives its place back in the background. If its round is complete before that, the place has counted.
    ///
    /// # On the wire
    /// One script for each party, and one message for the round. For each process one subscription, which stays for a while, and one
    /// poll: when the subscription is confirmed or lost, and every 5 s while a party waits.
    pub async fn wait(&self) -> Result<Passed, BarrierError> {
        self.wait_with(WaitOptions::new()).await
    }

    /// Waits for at most `timeout`. Zero sends one request, and does not wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{BarrierError, Client, CyclicBarrier};
    /// # let client = Client::connect("memory://barrier-wait-timeout").await?;
    /// # let checkpoint = CyclicBarrier::new(&client, "checkpoint", 2)?;
    /// use std::time::Duration;
    ///
    /// let alone = checkpoint.wait_timeout(Duration::from_millis(20)).await;
    /// assert!(matches!(alone, Err(BarrierError::TimedOut { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`BarrierError::TimedOut`] at most 50 ms after the deadline (P9).
    /// Without `free_by` the place does not count; with it, a round may count the place until then.
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    pub async fn wait_timeout(&self, timeout: Duration) -> Result<Passed, BarrierError> {
        self.wait_with(WaitOptions::new().timeout(timeout)).await
    }

    /// Waits with `options`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{BarrierError, Client, CyclicBarrier};
    /// # let client = Client::connect("memory://barrier-wait-with").await?;
    /// # let checkpoint = CyclicBarrier::new(&client, "checkpoint", 3)?;
    /// use std::time::Duration;
    /// use stanchion_barrier::{BrokenBy, OnLeave, WaitOptions};
    ///
    /// let all_or_none = WaitOptions::new().on_leave(OnLeave::Break);
    /// let hasty = all_or_none.timeout(Duration::from_millis(20));
    /// let (patient, _) = tokio::join!(checkpoint.wait_with(all_or_none), checkpoint.wait_with(hasty));
    /// assert!(matches!(patient, Err(BarrierError::Broken { by: BrokenBy::TimedOut, .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`wait`](Self::wait) and [`wait_timeout`](Self::wait_timeout); [`BarrierError::Broken`].
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait). If the rule of the round is [`OnLeave::Break`](crate::OnLeave::Break), a dropped wait breaks the round.
    pub async fn wait_with(&self, options: WaitOptions) -> Result<Passed, BarrierError> {
        let meeting = self.site.meeting(options.on_leave, options.timeout);
        meeting.pass().await
    }

    /// Returns the state of the barrier; `None` if it does not exist: no party has arrived for an hour.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, CyclicBarrier};
    /// # let client = Client::connect("memory://barrier-status").await?;
    /// let alone = CyclicBarrier::new(&client, "checkpoint", 1)?;
    /// assert!(alone.status().await?.is_none());
    /// let passed = alone.wait().await?;
    /// let status = alone.status().await?.ok_or("no barrier")?;
    /// assert_eq!((status.waiting, status.generation), (0, passed.generation() + 1));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`] if the key has another type.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script.
    pub async fn status(&self) -> Result<Option<BarrierStatus>, QueryError> {
        let call = self.site.keys.status();
        let reply = self.site.handle.query(&call, Resend::UntilAnswered).await?;
        BarrierStatus::read(&reply)
    }

    /// Sets the number of parties on the server: at once if no party waits, otherwise from the next round on. Returns whether it was
    /// set at once. From then on, handles with another number get [`BarrierError::Parties`]: make new handles.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{BarrierError, Client, CyclicBarrier};
    /// # let client = Client::connect("memory://barrier-set-parties").await?;
    /// let pair = CyclicBarrier::new(&client, "checkpoint", 2)?;
    /// assert!(pair.set_parties(1).await?); // nobody waits
    /// assert!(matches!(pair.wait().await, Err(BarrierError::Parties { theirs: 1, .. })));
    /// CyclicBarrier::new(&client, "checkpoint", 1)?.wait().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::InvalidOption`] for a number outside 1 to 10 000, before anything is sent.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have set it.
    ///
    /// # On the wire
    /// One script. If it runs twice, it takes effect once.
    pub async fn set_parties(&self, parties: u32) -> Result<bool, QueryError> {
        if !(1..=MOST).contains(&parties) {
            let rule = format!("parties {parties}: a barrier has 1 to {MOST}");
            let rejection = Rejection::InvalidOption { rule };
            return Err(QueryError::Rejected { rejection });
        }
        let Site { handle, keys, .. } = &self.site;
        let operation = handle.operation().await?;
        let call = keys.set_parties(parties, &operation);
        match handle.operate(&operation, &call).await? {
            Reply::Int(1) => Ok(true),
            Reply::Int(0) => Ok(false),
            // An earlier attempt may have set it.
            Reply::Int(-1) => Err(QueryError::Unanswered {
                outage: Outage::Unanswered {
                    detail: "the request reached the server too late".into(),
                },
            }),
            reply => Err(unexpected(&reply)),
        }
    }

    /// Returns the events of the barrier from now on: rounds, and the number of parties that wait.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_barrier::{Client, CyclicBarrier, Event};
    /// # let client = Client::connect("memory://barrier-events").await?;
    /// let checkpoint = CyclicBarrier::new(&client, "checkpoint", 2)?;
    /// let mut events = checkpoint.events();
    /// assert!(matches!(events.next().await, Some(Event::Now(state)) if state.round.is_none())); // no party has come yet
    /// let first = tokio::spawn({ let checkpoint = checkpoint.clone(); async move { checkpoint.wait().await } });
    /// assert!(matches!(events.next().await, Some(Event::Round(_))));
    /// assert_eq!(events.next().await, Some(Event::Parties(1)));
    /// checkpoint.wait().await?;
    /// assert_eq!(events.next().await, Some(Event::Round(first.await??.generation() + 1)));
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

    /// Returns the operations that end the waits of others.
    #[must_use]
    pub const fn danger(&self) -> BarrierDanger<'_> {
        BarrierDanger::of(self)
    }
}
