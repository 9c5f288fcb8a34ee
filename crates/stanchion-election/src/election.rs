//! The election.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stanchion_core::primitive::{Handle, Resend, Synchronizer};
use stanchion_core::{
    AcquireError, Asked, Client, Fencing, InvalidName, Lease, Name, QueryError, Rejection,
};

use crate::danger::ElectionDanger;
use crate::leader::{Candidate, Leader, Sight};
use crate::leadership::{Leadership, check};
use crate::observe::Leaders;
use crate::options::{CampaignOptions, LONGEST_REST};
use crate::scripts::{Campaign, Keys};

/// The lease of a term: a third of a minute at most without a leader after a crash, and time for a failover of the server.
const LEASE: Duration = Duration::from_secs(15);

/// An election that processes share by its name: one of them leads at a time. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * P1: at most one leads at a time, until its [`valid_until`](Leadership::valid_until).
/// * P2: [fencing tokens](Leadership::fencing_token) grow from term to term.
/// * P3: a campaign that returns no [`Leadership`] leaves no candidate behind: it is gone in one round trip if the server answers,
///   otherwise 15 s after its last request.
/// * P4: a resignation makes a live candidate the leader within about two round trips; after a lost message at the next poll (5 s);
///   after a crash when the lease has passed. A candidate with the highest priority that does not answer costs half a second once.
/// * Nobody preempts: a leader is only [told](Leadership::challenged) of a candidate with a higher priority.
/// * Every campaign is a new candidate: two calls on one handle exclude each other. Of those in one process one at a time is a
///   candidate on the server, in order of arrival, and none while this process leads.
///
/// # On the wire
/// The leader is the holder of Redisson's `RLock` `name`: a Java process may be a candidate without a value. What only this library
/// knows is beside it: `stanchion_leader`, `stanchion_candidates`, `…_candidate_seen`, `…_candidate_rank` and `stanchion_heir`. A candidate
/// that waits costs one script every 5 s.
#[derive(Clone, Debug)]
pub struct Election {
    pub(crate) handle: Handle,
    pub(crate) keys: Arc<Keys>,
    pub(crate) lease: Lease,
}

impl Election {
    /// Creates a handle to the election called `name`. Sends nothing.
    ///
    /// A name has 1 to 512 bytes with the client's key prefix; on a cluster it has no braces, or exactly one non-empty `{tag}`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-new").await?;
    /// let indexer = Election::new(&client, "indexer")?;
    /// let same = Election::new(&client, "indexer")?; // one name, one election
    /// let _term = indexer.campaign("10.0.0.7:9000").await?;
    /// assert!(same.try_campaign("10.0.0.8:9000").await?.is_none());
    /// assert!(Election::new(&client, "").is_err());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let handle = Handle::of(client);
        let keys = Arc::new(Keys::new(&handle, client.name(name)?, Fencing::default()));
        // OK: a constant that is a lease.
        let lease = Lease::new(LEASE).unwrap_or_default();
        Ok(Self {
            handle,
            keys,
            lease,
        })
    }

    /// Returns the same election with tokens from another source. All users of a name must agree on it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-with_fencing").await?;
    /// use stanchion_election::Fencing;
    ///
    /// let poller = Election::new(&client, "poller")?.with_fencing(Fencing::Off);
    /// let term = poller.campaign("a").await?;
    /// assert_eq!(term.fencing_token(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_fencing(mut self, fencing: Fencing) -> Self {
        let name = self.name().clone();
        self.keys = Arc::new(Keys::new(&self.handle, name, fencing));
        self
    }

    /// Returns the same election with another lease for campaigns that set none. Default 15 s: a crashed leader is replaced 10 to
    /// 15 s after its last sign of life.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-with_lease").await?;
    /// use std::time::Duration;
    /// use stanchion_election::Lease;
    ///
    /// let quick = Election::new(&client, "indexer")?.with_lease(Lease::new(Duration::from_secs(3))?);
    /// let term = quick.campaign("a").await?;
    /// assert!(term.remaining() <= Duration::from_secs(3));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn with_lease(mut self, lease: Lease) -> Self {
        self.lease = lease;
        self
    }

    /// Returns the name, key prefix included.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-name").await?;
    /// let indexer = Election::new(&client, "indexer")?;
    /// assert_eq!(indexer.name().to_string(), "indexer");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn name(&self) -> &Name {
        self.keys.name()
    }

    /// Waits until this campaign has won. `value`, at most 4096 bytes, is what others see of the leader: its address. It is no
    /// place for a secret.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-campaign").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let term = indexer.campaign("10.0.0.7:9000").await?;
    /// term.run(async { /* index, and send term.fencing_token() with each write */ }).await?;
    /// term.step_down().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::Rejected`]: the request cannot succeed as it is. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server has been out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the candidate is taken off; a request already sent is awaited in the background and its grant
    /// released (P3).
    ///
    /// # On the wire
    /// One script when nobody leads. Otherwise one subscription for all candidates of the process, and one script for each message,
    /// each poll (5 s), and at the end of the leader's lease.
    pub fn campaign(
        &self,
        value: impl AsRef<[u8]>,
    ) -> impl Future<Output = Result<Leadership, AcquireError>> + Send + 'static {
        self.campaign_with(value, CampaignOptions::new())
    }

    /// Campaigns for at most `timeout`. Zero asks the server once.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{AcquireError, Client, Election};
    /// # let client = Client::connect("memory://election-campaign_timeout").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// use std::time::Duration;
    ///
    /// let _term = indexer.campaign("a").await?;
    /// let other = indexer.campaign_timeout("b", Duration::from_millis(50)).await;
    /// assert!(matches!(other, Err(AcquireError::TimedOut { .. })));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError::TimedOut`], at most 50 ms after the deadline on any network (P9); otherwise as [`campaign`](Self::campaign).
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub fn campaign_timeout(
        &self,
        value: impl AsRef<[u8]>,
        timeout: Duration,
    ) -> impl Future<Output = Result<Leadership, AcquireError>> + Send + 'static {
        self.campaign_with(value, CampaignOptions::new().timeout(timeout))
    }

    /// Campaigns with `options`: of this crate, or those that all acquires have.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-campaign_with").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// use stanchion_election::CampaignOptions;
    ///
    /// let preferred = CampaignOptions::new().priority(10);
    /// let term = indexer.campaign_with("10.0.0.7:9000", preferred).await?;
    /// assert_eq!(indexer.leader().await?.ok_or("vacant")?.priority, 10);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`campaign`](Self::campaign) and [`campaign_timeout`](Self::campaign_timeout).
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub fn campaign_with(
        &self,
        value: impl AsRef<[u8]>,
        options: impl Into<CampaignOptions>,
    ) -> impl Future<Output = Result<Leadership, AcquireError>> + Send + 'static {
        let options = options.into();
        let asked = self.stand(value.as_ref(), &options);
        let (handle, lease) = (self.handle.clone(), self.lease);
        async move {
            let campaign = asked?;
            let sync = Arc::clone(&campaign) as Arc<dyn Synchronizer>;
            let hold = handle.acquire(&sync, &options.acquire, lease).await?;
            Ok(Leadership::new(hold, campaign, handle))
        }
    }

    /// Asks once, without waiting; `Ok(None)` when somebody else leads, or the vacancy is kept for somebody else.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-try_campaign").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let term = indexer.try_campaign("a").await?.ok_or("somebody else leads")?;
    /// assert!(indexer.try_campaign("b").await?.is_none()); // answered at once
    /// # drop(term);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    ///
    /// # On the wire
    /// One script. It is sent again after a lost reply, with the effect of once (P6).
    pub fn try_campaign(
        &self,
        value: impl AsRef<[u8]>,
    ) -> impl Future<Output = Result<Option<Leadership>, AcquireError>> + Send + 'static {
        self.try_campaign_with(value, CampaignOptions::new())
    }

    /// Asks once, with `options`. Their timeout limits the wait for the server's reply.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-try_campaign_with").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// use std::time::Duration;
    /// use stanchion_election::CampaignOptions;
    ///
    /// let hour = CampaignOptions::new().max_term(Duration::from_secs(3600));
    /// assert!(indexer.try_campaign_with("a", hour).await?.is_some());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`try_campaign`](Self::try_campaign).
    ///
    /// # Cancel safety
    /// As [`campaign`](Self::campaign).
    pub fn try_campaign_with(
        &self,
        value: impl AsRef<[u8]>,
        options: impl Into<CampaignOptions>,
    ) -> impl Future<Output = Result<Option<Leadership>, AcquireError>> + Send + 'static {
        let options = options.into();
        let asked = self.stand(value.as_ref(), &options);
        let (handle, lease) = (self.handle.clone(), self.lease);
        async move {
            let campaign = asked?;
            let sync = Arc::clone(&campaign) as Arc<dyn Synchronizer>;
            let hold = handle.try_acquire(&sync, &options.acquire, lease).await?;
            Ok(hold.map(|hold| Leadership::new(hold, campaign, handle)))
        }
    }

    /// Checks what a campaign says, and describes it to the core.
    fn stand(
        &self,
        value: &[u8],
        options: &CampaignOptions,
    ) -> Result<Arc<Campaign>, AcquireError> {
        let rested = if options.rest > LONGEST_REST {
            let rule = format!("a rest of {:?}: at most an hour", options.rest);
            Err(Rejection::InvalidOption { rule })
        } else {
            Ok(())
        };
        check(value)
            .and(rested)
            .map_err(|rejection| AcquireError::Rejected {
                name: self.name().clone(),
                rejection,
            })?;
        Ok(Arc::new(Campaign {
            keys: Arc::clone(&self.keys),
            value: value.to_vec(),
            priority: options.priority,
            rest: options.rest,
            heir: OnceLock::new(),
            changes: AtomicU64::new(0),
        }))
    }

    /// Returns the leader; `None` when nobody leads.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-leader").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// assert!(indexer.leader().await?.is_none());
    /// let term = indexer.campaign("10.0.0.7:9000").await?;
    /// let leader = indexer.leader().await?.ok_or("vacant")?;
    /// assert_eq!(leader.value.as_deref(), Some(b"10.0.0.7:9000".as_slice()));
    /// assert_eq!(leader.token, term.fencing_token());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`] when the name belongs to something else.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script.
    pub async fn leader(&self) -> Result<Option<Leader>, QueryError> {
        let reply = self
            .handle
            .query(&self.keys.leader(), Resend::UntilAnswered)
            .await?;
        Ok(Sight::read(&reply)?.leader)
    }

    /// Returns the processes that campaign, 256 at most, those first that asked longest ago. The leader is none of them.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-candidates").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let _term = indexer.campaign("a").await?;
    /// assert!(indexer.candidates().await?.is_empty());
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
    pub async fn candidates(&self) -> Result<Vec<Candidate>, QueryError> {
        let call = self.keys.candidates();
        let reply = self.handle.query(&call, Resend::UntilAnswered).await?;
        Candidate::read_all(&reply)
    }

    /// Returns the leaders, one after the other: the present one first, or that there is none.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-observe").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// use stanchion_election::Observed;
    ///
    /// let mut leaders = indexer.observe();
    /// assert!(matches!(leaders.next().await, Some(Observed::Vacant)));
    /// let term = indexer.campaign("10.0.0.7:9000").await?;
    /// match leaders.next().await {
    ///     Some(Observed::Leader(leader)) => assert_eq!(leader.id, term.id()),
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// The latest leader is always reported, within about two round trips of a message, and within 5 s of a lost one; terms that were
    /// over by then are skipped. A vacancy is reported if it lasts that long. Of one term, no older value follows a newer one.
    ///
    /// # On the wire
    /// One subscription and one script every 5 s for all observers of the process; two scripts every 15 s, and for each change, for each
    /// stream.
    pub fn observe(&self) -> Leaders {
        Leaders::of(self)
    }

    /// Asks the leader to step down, with a reason of at most 200 bytes. It decides, and need not answer: its guard shows the
    /// [request](Leadership::requested).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-request_release").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// assert_eq!(indexer.request_release("a migration waits").await?.holders, 0); // nobody leads
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`].
    ///
    /// # Cancel safety
    /// A dropped call may or may not have asked.
    ///
    /// # On the wire
    /// One script, which publishes to the leader's process. It subscribes when it has led for a second (in a cluster for a third of its
    /// lease), or when its guard's `requested` is called: before, `heard` is 0, and the caller sends the request again.
    pub async fn request_release(&self, reason: &str) -> Result<Asked, QueryError> {
        self.handle
            .request_release(self.name(), reason, false)
            .await
    }

    /// Returns the operations that break guarantees.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-danger").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let danger = indexer.danger(); // a word to look for in reviews
    /// assert!(!danger.depose().await?); // nobody led
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub const fn danger(&self) -> ElectionDanger<'_> {
        ElectionDanger::of(self)
    }
}
