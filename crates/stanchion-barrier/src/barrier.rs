//! The cyclic barrier.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stanchion_core::primitive::{Handle, Hold, Reply, Synchronizer};
use stanchion_core::{AcquireError, AcquireOptions, Client, InvalidName, Lease, Name, Rejection};

use crate::error::BarrierError;
use crate::scripts::{Arrival, Arrived, Keys, Round};

/// The time in which a call that has timed out learns whether its round has tripped: below the 50 ms of P9.
const LAST_WORD: Duration = Duration::from_millis(45);

/// The most parties.
const MOST: u32 = 10_000;

/// A barrier at which `n` parties meet, again and again. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * A round trips when n places of it are taken. Each wait takes one place in one round; generations only grow.
/// * P6: an arrival whose answer is lost counts once, and gets the same answer, also after its round has tripped.
/// * P3: a wait that ends otherwise gives its place back: within a round trip, else when its lease (15 s) has passed. So long a
///   place of a process that died counts, and a round may trip with it.
/// * P4: all waiters are told by one message; a lost one delays them until the next poll (5 s).
///
/// # On the wire
/// `stanchion_barrier:{name}` and `stanchion_barrier_in:{name}`, for an hour after the last arrival or look;
/// `stanchion_once:{name}:<owner>` for two minutes; the channels `stanchion_barrier:{name}:<generation>`.
#[derive(Clone, Debug)]
pub struct CyclicBarrier {
    handle: Handle,
    keys: Arc<Keys>,
    parties: u32,
    lease: Lease,
}

/// A round that has tripped, as one of its parties sees it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    generation: u64,
    arrival: u32,
    last: bool,
}

impl Passed {
    /// The number of the round: larger than that of every round before.
    #[must_use]
    pub const fn generation(&self) -> u64 {
        self.generation
    }

    /// The number of places that were taken when this party arrived, its own included: 1 to n. When others withdrew before it
    /// came, two may have the same.
    #[must_use]
    pub const fn arrival(&self) -> u32 {
        self.arrival
    }

    /// Returns whether this party tripped the round: true for exactly one arrival of a round.
    #[must_use]
    pub const fn is_last(&self) -> bool {
        self.last
    }
}

impl CyclicBarrier {
    /// Returns a handle to the barrier called `name`, for `parties` (1 to 10 000, the same for all). Sends nothing.
    ///
    /// # Errors
    /// [`InvalidName`]: a barrier's name has at most 489 bytes, so that each of its rounds has a name, too.
    pub fn new(client: &Client, name: impl AsRef<[u8]>, parties: u32) -> Result<Self, InvalidName> {
        let handle = Handle::of(client);
        let keys = Keys::new(&handle, client.name(name)?)?;
        Ok(Self {
            handle,
            keys: Arc::new(keys),
            parties,
            lease: Lease::new(Duration::from_secs(15)).unwrap_or_default(),
        })
    }

    /// Sets the lease of a place: the time for which that of a process that died still counts. Default: 15 s.
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// The name, key prefix included.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.keys.name
    }

    /// Waits until all parties of a round are here.
    ///
    /// # Errors
    /// [`BarrierError`]. [`Rejection::InvalidOption`] for another number of parties, before anything is sent; [`Rejection::Deleted`]: the barrier was deleted, or lost by the server, during the wait.
    ///
    /// # Cancel safety
    /// A dropped wait gives its place back in the background. If its round trips first, that round has counted it.
    ///
    /// # On the wire
    /// One script, and for those who do not trip the round one subscription and three looks of the process.
    pub async fn wait(&self) -> Result<Passed, BarrierError> {
        self.wait_for(None).await
    }

    /// As [`wait`](Self::wait), for at most `timeout`.
    ///
    /// # Errors
    /// As [`wait`](Self::wait); [`AcquireError::TimedOut`] at most 50 ms after the deadline (P9). Without `free_by` the place does not
    /// count; with it, it may until then.
    ///
    /// # Cancel safety
    /// As [`wait`](Self::wait).
    pub async fn wait_timeout(&self, timeout: Duration) -> Result<Passed, BarrierError> {
        self.wait_for(Some(timeout)).await
    }

    async fn wait_for(&self, timeout: Option<Duration>) -> Result<Passed, BarrierError> {
        if !(1..=MOST).contains(&self.parties) {
            let rule = format!("parties {}: a barrier has 1 to {MOST}", self.parties);
            return Err(self.rejected(Rejection::InvalidOption { rule }));
        }
        let client = self.handle.client();
        let began = client.now();
        let arrival = Arc::new(Arrival {
            keys: Arc::clone(&self.keys),
            parties: self.parties,
            arrived: OnceLock::new(),
            theirs: OnceLock::new(),
        });
        let sync = Arc::clone(&arrival) as Arc<dyn Synchronizer>;
        let mut options = AcquireOptions::new();
        if let Some(timeout) = timeout {
            options = options.timeout(timeout);
        }
        let place = self.handle.acquire(&sync, &options, self.lease).await;
        if let Some(theirs) = arrival.theirs.get() {
            return Err(BarrierError::Parties {
                name: self.name().clone(),
                ours: self.parties,
                theirs: *theirs,
            });
        }
        let place = place?;
        let Some(&arrived) = arrival.arrived.get() else {
            return Err(self.rejected(Rejection::Other {
                detail: "an answer without a generation".into(),
            }));
        };
        let passed = Passed::of(arrived);
        if arrived.last {
            return Ok(passed.with(place));
        }
        let round = Round::new(&self.keys, arrived.generation).map_err(|error| {
            self.rejected(Rejection::Other {
                detail: error.to_string(),
            })
        })?;
        let round = Arc::new(round) as Arc<dyn Synchronizer>;
        let left = timeout.map(|timeout| timeout.saturating_sub(client.now().since(began)));
        let ended = tokio::select! {
            biased;
            ended = self.handle.wait(&round, left) => ended.map(|()| true),
            _ = place.lost() => Ok(false),
        };
        match ended {
            Ok(true) => Ok(passed.with(place)),
            Ok(false) => self.after_a_loss(place, passed).await,
            Err(AcquireError::TimedOut { .. }) => {
                let waited = client.now().since(began);
                self.after_the_deadline(place, passed, waited).await
            }
            // P3: dropped, the place is given back.
            Err(error) => Err(self.named(error).into()),
        }
    }

    /// The place is gone: because its round has tripped, or because its lease had ended.
    async fn after_a_loss(&self, place: Hold, passed: Passed) -> Result<Passed, BarrierError> {
        let generation = passed.generation;
        let call = self.keys.look(generation);
        let answer = self.handle.query_within(&call, LAST_WORD).await;
        drop(place);
        match answer {
            Some(Ok(Reply::Int(0))) => Ok(passed),
            Some(Ok(Reply::Int(-2))) => Err(self.rejected(Rejection::Deleted)),
            _ => Err(BarrierError::Lost {
                name: self.name().clone(),
                generation,
            }),
        }
    }

    /// Either the place is given back, and nobody counts it, or its round has tripped with it.
    async fn after_the_deadline(
        &self,
        place: Hold,
        passed: Passed,
        waited: Duration,
    ) -> Result<Passed, BarrierError> {
        let call = self.keys.withdraw(place.wire_owner(), passed.generation);
        let answer = self.handle.query_within(&call, LAST_WORD).await;
        let free_by = match answer {
            Some(Ok(Reply::Int(0))) => return Ok(passed.with(place)),
            Some(Ok(_)) => None,
            _ => Some(self.lease.length()),
        };
        // Where no answer came, its drop gives it back (P3).
        drop(place);
        Err(AcquireError::TimedOut {
            name: self.name().clone(),
            waited,
            free_by,
        }
        .into())
    }

    fn rejected(&self, rejection: Rejection) -> BarrierError {
        let name = self.name().clone();
        AcquireError::Rejected { name, rejection }.into()
    }

    /// The error of a wait for a round, with the name of the barrier.
    fn named(&self, error: AcquireError) -> AcquireError {
        let ours = self.name().clone();
        match error {
            AcquireError::Unavailable { outage, .. } => {
                AcquireError::Unavailable { name: ours, outage }
            }
            AcquireError::Rejected { rejection, .. } => AcquireError::Rejected {
                name: ours,
                rejection,
            },
            AcquireError::Shutdown { .. } => AcquireError::Shutdown { name: ours },
            other => other,
        }
    }
}

impl Passed {
    const fn of(arrived: Arrived) -> Self {
        Self {
            generation: arrived.generation,
            arrival: arrived.arrival,
            last: arrived.last,
        }
    }

    /// Ends the place with its round: the server has ended it already.
    fn with(self, place: Hold) -> Self {
        drop(place.spend());
        self
    }
}
