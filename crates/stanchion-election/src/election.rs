//! The election.

use std::sync::atomic::AtomicU64;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use stanchion_client::primitive::{Handle, Resend, Synchronizer};
use stanchion_client::{AcquireError, Asked, Client, Fencing, InvalidName, Name, QueryError};

use crate::danger::ElectionDanger;
use crate::leader::{Candidate, Leader, Sight};
use crate::leadership::{Leadership, check};
use crate::observe::Leaders;
use crate::options::CampaignOptions;
use crate::scripts::{Campaign, Keys};

/// The default lease of a term. After a crash there is no leader for 20 s at most, and the server has time for a failover.
const LEASE: Duration = Duration::from_secs(15);

/// An election that processes share by its name: one of them leads at a time. Cheap to clone; handles have no state.
///
/// # Guarantees
/// * P1: at most one process leads at a time, until its [`valid_until`](Leadership::valid_until).
/// * P2: [fencing tokens](Leadership::fencing_token) grow from term to term.
/// * P3: a campaign that returns no [`Leadership`] leaves no candidate on the server: it is removed within one round trip if the server
///   replies, otherwise 15 s after its last request.
/// * P4: a resignation makes a live candidate the leader within about two round trips; after a lost message at the next poll (5 s); after a
///   crash when the lease has passed. If the candidate of the highest priority does not respond, this takes 0.5 s longer, once.
/// * No candidate preempts a leader: the leader only gets a [notification](Leadership::challenged) of a higher priority.
/// * Every campaign is a new candidate: two calls on one handle exclude each other. A process has one candidate at a time on the server, in
///   order of arrival, and none while it leads.
///
/// # On the wire
/// The leader is the holder of Redisson's `RLock` `name`: a Java process may be a candidate without a value. The state of this
/// library is in further keys: `stanchion_leader`, `stanchion_candidates`, `…_candidate_seen`, `…_candidate_rank` and
/// `stanchion_heir`. A candidate that waits sends one script every 5 s.
#[derive(Clone, Debug)]
pub struct Election {
    pub(crate) handle: Handle,
    pub(crate) keys: Arc<Keys>,
    pub(crate) lease: Duration,
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
        Ok(Self {
            handle,
            keys,
            lease: LEASE,
        })
    }

    /// Returns the same election with another source of tokens. All users of a name must agree on it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-fencing").await?;
    /// use stanchion_election::Fencing;
    ///
    /// let poller = Election::new(&client, "poller")?.fencing(Fencing::Off);
    /// let term = poller.campaign("a").await?;
    /// assert_eq!(term.fencing_token(), None);
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn fencing(mut self, fencing: Fencing) -> Self {
        let name = self.name().clone();
        self.keys = Arc::new(Keys::new(&self.handle, name, fencing));
        self
    }

    /// Returns the same election with another lease for campaigns that set none: 10 ms to 30 days, checked by the campaigns. Default
    /// 15 s: a crashed leader is replaced after 10 to 15 s.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://election-lease").await?;
    /// use std::time::Duration;
    ///
    /// let quick = Election::new(&client, "indexer")?.lease(Duration::from_secs(3));
    /// let term = quick.campaign("a").await?;
    /// assert!(term.remaining() <= Duration::from_secs(3));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.lease = lease.into();
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

    /// Waits until this campaign has won. `value`, at most 4096 bytes, is visible to others: it is meant for the leader's address,
    /// and must not contain a secret.
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
    /// [`AcquireError::Rejected`]: the request cannot succeed in this form. [`AcquireError::Unavailable`] or
    /// [`AcquireError::Ambiguous`]: the server has been out of reach for the outage tolerance (30 s).
    ///
    /// # Cancel safety
    /// Safe at every await point: the candidate is removed. If a request is in flight, the background waits for its reply and
    /// releases its grant (P3).
    ///
    /// # On the wire
    /// One script if there is no leader. Otherwise one subscription for all candidates of the process, and one script for each
    /// message, each poll (5 s), and at the end of the leader's lease.
    pub fn campaign(
        &self,
        value: impl AsRef<[u8]>,
    ) -> impl Future<Output = Result<Leadership, AcquireError>> + Send + 'static {
        self.campaign_with(value, CampaignOptions::new())
    }

    /// Campaigns for at most `timeout`. Zero sends one request, and does not wait.
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

    /// Campaigns with `options`: the options of this crate, or those that all acquires have.
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

    /// Sends one request, and does not wait; `Ok(None)` if there is another leader, or if the vacancy is reserved for another candidate.
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
    /// One script, resent after a lost reply; it takes effect once (P6).
    pub fn try_campaign(
        &self,
        value: impl AsRef<[u8]>,
    ) -> impl Future<Output = Result<Option<Leadership>, AcquireError>> + Send + 'static {
        self.try_campaign_with(value, CampaignOptions::new())
    }

    /// Sends one request, with `options`. Their timeout limits the wait for the server's reply.
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

    /// Checks the arguments of a campaign, and builds its description for the core.
    fn stand(
        &self,
        value: &[u8],
        options: &CampaignOptions,
    ) -> Result<Arc<Campaign>, AcquireError> {
        let checked = check(value).and_then(|()| options.check());
        checked.map_err(|rejection| AcquireError::Rejected {
            name: self.name().clone(),
            rejection,
        })?;
        Ok(Arc::new(Campaign {
            keys: Arc::clone(&self.keys),
            value: value.to_vec(),
            priority: options.priority,
            cooldown: options.cooldown,
            heir: OnceLock::new(),
            changes: AtomicU64::new(0),
        }))
    }

    /// Returns the leader; `None` if there is none.
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
    /// [`QueryError`]; [`Rejection::WrongType`](stanchion_client::Rejection::WrongType) if the key of this name has another type.
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

    /// Returns the candidates, 256 at most, in the order of their last requests, the oldest first. The leader is not among them.
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

    /// Returns a stream of the leaders: first the present leader, or that there is none, and then each change.
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
    /// The stream always reports the latest leader: within about two round trips of a message, and within 5 s if the message is lost. Terms
    /// that ended before that are skipped. A vacancy is reported if it lasts that long. In one term, no older value follows a newer one.
    ///
    /// # On the wire
    /// For all observers of the process together, one subscription and one script every 5 s. In addition, for each stream, two
    /// scripts every 15 s and at each change.
    pub fn observe(&self) -> Leaders {
        Leaders::of(self)
    }

    /// Requests that the leader steps down, with a reason of at most 200 bytes. The leader decides, and need not reply: its guard
    /// shows the [request](Leadership::requested).
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
    /// A dropped call may or may not have sent the request.
    ///
    /// # On the wire
    /// One script, which publishes to the leader's process. That process subscribes when it has led for a second (in a cluster for a third of
    /// its lease), or when its guard's `requested` is called. Before that, `heard` is 0, and the caller sends the request again.
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
