//! The guard of a term.

use std::sync::Arc;

use stanchion_core::primitive::{Handle, Hold, Reply, unexpected};
use stanchion_core::{
    FencingToken, Outage, QueryError, Rejection, ReleaseError, ReleaseRequest, RenewError,
    WireOwner, define_guard,
};

use crate::options::LONGEST_VALUE;
use crate::scripts::Campaign;

define_guard! {
    /// A term as the leader of an [`Election`](crate::Election). Step down, or drop it: the resignation then runs in the background.
    ///
    /// `Send + Sync + 'static`, and not `Clone`. A term is one hold: what is lost stays lost, and the next term is another guard.
    /// Dropping never blocks, needs no runtime and never panics (P9). After its end this process lets other candidates go first
    /// for a moment, see [`CampaignOptions::rest`](crate::CampaignOptions::rest).
    pub struct Leadership over hold with campaign: Arc<Campaign> with handle: Handle;

    /// # use std::time::Duration as Time;
    /// # use stanchion_election::{AcquireOptions, Client, Election, Ended, Lease, LostReason, Renewal};
    /// # let client = Client::connect("memory://election-leadership").await?;
    /// # let indexer = Election::new(&client, "indexer")?.with_lease(Lease::new(Time::from_secs(30))?);
    example indexer.campaign("10.0.0.7:9000"), indexer.campaign_with("10.0.0.7:9000", options);
}

/// What can be done with a term besides holding it: shared by the guard and by the work that [`Election::lead`](crate::Election::lead)
/// runs, which must not keep the term alive.
#[derive(Clone, Debug)]
pub(crate) struct Office {
    handle: Handle,
    campaign: Arc<Campaign>,
    owner: WireOwner,
}

impl Office {
    pub(crate) async fn proclaim(&self, value: &[u8]) -> Result<(), RenewError> {
        let name = || self.campaign.keys.name().clone();
        check(value).map_err(|rejection| RenewError::Rejected {
            name: name(),
            rejection,
        })?;
        let operation = self.handle.operation().await;
        let operation = operation.map_err(|error| self.failed(error))?;
        let call = self.campaign.proclaim(&self.owner, value, &operation);
        match self.handle.operate(&operation, &call).await {
            Ok(Reply::Int(0)) => Ok(()),
            Ok(Reply::Int(-2)) => Err(RenewError::Lost(Handle::gone(self.campaign.keys.name()))),
            Ok(Reply::Int(-1)) => Err(RenewError::Unavailable {
                name: name(),
                outage: Outage::Unanswered {
                    detail: "the request reached the server too late".into(),
                },
            }),
            Ok(reply) => Err(self.failed(unexpected(&reply))),
            Err(error) => Err(self.failed(error)),
        }
    }

    fn failed(&self, error: QueryError) -> RenewError {
        let name = self.campaign.keys.name().clone();
        match error {
            QueryError::Unavailable { outage } | QueryError::Unanswered { outage } => {
                RenewError::Unavailable { name, outage }
            }
            QueryError::Rejected { rejection } => RenewError::Rejected { name, rejection },
            other => RenewError::Rejected {
                name,
                rejection: Rejection::Other {
                    detail: other.to_string(),
                },
            },
        }
    }
}

/// Refuses a value that is too long.
pub(crate) fn check(value: &[u8]) -> Result<(), Rejection> {
    if value.len() <= LONGEST_VALUE {
        return Ok(());
    }
    let rule = format!(
        "a value of {} bytes: a candidate's has at most {LONGEST_VALUE}",
        value.len()
    );
    Err(Rejection::InvalidOption { rule })
}

/// A candidate of a higher priority waits for the end of this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// Its priority.
    pub priority: i32,
}

impl Challenge {
    /// Reads what the script `election/campaign` sends.
    fn read(request: &ReleaseRequest) -> Option<Self> {
        let rest = request.reason.strip_prefix("a candidate of priority ")?;
        let priority = rest.strip_suffix(" waits")?.parse().ok()?;
        Some(Self { priority })
    }
}

impl Leadership {
    pub(crate) fn new(hold: Hold, campaign: Arc<Campaign>, handle: Handle) -> Self {
        // P5: terms are long, so a leader need not be old to be worth a subscription.
        hold.listen();
        Self {
            hold,
            campaign,
            handle,
        }
    }

    pub(crate) fn office(&self) -> Office {
        Office {
            handle: self.handle.clone(),
            campaign: Arc::clone(&self.campaign),
            owner: self.hold.wire_owner().clone(),
        }
    }

    /// Returns the id of this leader: the [`Leader::id`](crate::Leader::id) that others see.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://leadership-id").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let term = indexer.campaign("10.0.0.7:9000").await?;
    /// assert_eq!(indexer.leader().await?.ok_or("vacant")?.id, term.id());
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn id(&self) -> &str {
        self.hold.wire_owner().as_str()
    }

    /// Returns the fencing token of this term; `None` with [`Fencing::Off`](crate::Fencing::Off).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://leadership-fencing_token").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let first = indexer.campaign("a").await?;
    /// let stale = first.fencing_token();
    /// first.step_down().await?;
    /// let second = indexer.campaign("b").await?;
    /// assert!(second.fencing_token() > stale); // a store that has seen this one refuses `stale`
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P2: larger than that of every earlier term, also after the server lost its data, as long as its clock is not set back.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing_token()
    }

    /// Changes the value that others see, without a new election. At most 4096 bytes; anybody who may read the key can read it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://leadership-proclaim").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let term = indexer.campaign("10.0.0.7:9000").await?;
    /// term.proclaim("10.0.0.7:9001").await?;
    /// let leader = indexer.leader().await?.ok_or("vacant")?;
    /// assert_eq!(leader.value.as_deref(), Some(b"10.0.0.7:9001".as_slice()));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P6: a change takes effect once. Of several, the one that was called last stays, in whatever order they arrive.
    ///
    /// # Errors
    /// [`RenewError::Lost`]: this term has ended, and nothing was written. After [`RenewError::Unavailable`] it may have been changed.
    /// [`RenewError::Rejected`]: the value is too long, or the server refuses.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have changed it.
    ///
    /// # On the wire
    /// One script, sent again after a lost reply. It publishes to those who look on.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), RenewError> {
        let done = self.office().proclaim(value.as_ref()).await;
        if matches!(done, Err(RenewError::Lost(_))) {
            // The hold has not noticed yet: asked itself, it ends now, and with the true reason.
            self.hold.renew().await?;
        }
        done
    }

    /// Resolves when a candidate of a higher priority waits; at once if one did; never after the end of the term. Nobody takes the
    /// term away: step down when it is convenient.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://leadership-challenged").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let term = indexer.campaign("a").await?;
    /// tokio::select! {
    ///     challenge = term.challenged() => println!("priority {} waits", challenge.priority),
    ///     () = async { /* the work */ } => {}
    /// }
    /// term.step_down().await?;
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe; any number of these futures may exist, and they keep nothing alive.
    ///
    /// # On the wire
    /// As [`requested`](Self::requested): a challenge is such a request, which an operator may send, too. Candidates repeat it with
    /// each of their polls, so one that is not heard costs at most a poll interval (5 s).
    pub fn challenged(&self) -> impl Future<Output = Challenge> + Send + 'static + use<> {
        self.hold.requested_as(Challenge::read)
    }

    /// Ends the term, and waits for the server's answer. Other candidates go first: this process rests.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://leadership-step_down").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let term = indexer.campaign("a").await?;
    /// term.step_down().await?;
    /// assert!(indexer.leader().await?.is_none());
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`release`](Self::release), which it is.
    ///
    /// # Cancel safety
    /// Safe: the resignation continues in the background.
    ///
    /// # On the wire
    /// One script, which tells all candidates; each of their processes asks once.
    pub async fn step_down(self) -> Result<(), ReleaseError> {
        self.release().await
    }

    /// Ends the term for the candidate with this [id](crate::Candidate::id): for half a second nobody else is elected. If it does
    /// not come, anybody is.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election};
    /// # let client = Client::connect("memory://leadership-hand_over").await?;
    /// # let other = Client::connect("memory://leadership-hand_over").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// # let elsewhere = Election::new(&other, "indexer")?;
    /// let term = indexer.campaign("a").await?;
    /// # let next = tokio::spawn(elsewhere.campaign("b"));
    /// # while indexer.candidates().await?.is_empty() { tokio::task::yield_now().await; }
    /// let candidates = indexer.candidates().await?;
    /// let successor = candidates.first().ok_or("nobody else")?;
    /// term.hand_over(&successor.id).await?;
    /// # assert_eq!(next.await??.id(), successor.id);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`release`](Self::release).
    ///
    /// # Cancel safety
    /// Safe: it continues in the background.
    ///
    /// # On the wire
    /// As [`step_down`](Self::step_down).
    pub async fn hand_over(self, candidate: &str) -> Result<(), ReleaseError> {
        // A first value stays: there is none, because this consumes the term.
        let _ = self.campaign.heir.set(candidate.to_owned());
        self.release().await
    }
}
