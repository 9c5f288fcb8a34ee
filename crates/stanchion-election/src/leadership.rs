//! The guard of a term.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use stanchion_client::primitive::{Guarded as _, Handle, Hold, Reply, lease_for, unexpected};
use stanchion_client::{
    Ended, FencingToken, Guard, LeaseLost, LostReason, Moment, Name, Outage, Owner, QueryError,
    Rejection, ReleaseError, ReleaseRequest, RenewError, WireOwner,
};

use crate::options::LONGEST_VALUE;
use crate::scripts::Campaign;

/// A term as the leader of an [`Election`](crate::Election). Step down, or drop the guard: it then resigns in the background.
///
/// `Send + Sync + 'static`, and not `Clone`. A term is one hold: a lost term stays lost, and the next term has another guard.
/// Dropping never blocks, needs no runtime and never panics (P9). After the end of a term, this process lets other candidates go
/// first for a short time, see [`CampaignOptions::cooldown`](crate::CampaignOptions::cooldown).
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct Leadership {
    hold: Hold,
    campaign: Arc<Campaign>,
    handle: Handle,
}

/// The operations of a term other than holding it. The guard shares them with the work that [`Election::lead`](crate::Election::lead)
/// runs, because the work must not keep the term alive.
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

/// Rejects a value that is too long.
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

/// A notification: a candidate of a higher priority waits for the end of this term.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Challenge {
    /// The priority of the candidate.
    pub priority: i32,
}

impl Challenge {
    /// Reads the notice that the script `election/campaign` sends.
    fn read(request: &ReleaseRequest) -> Option<Self> {
        let rest = request.reason.strip_prefix("a candidate of priority ")?;
        let priority = rest.strip_suffix(" waits")?.parse().ok()?;
        Some(Self { priority })
    }
}

impl Leadership {
    pub(crate) fn new(hold: Hold, campaign: Arc<Campaign>, handle: Handle) -> Self {
        // P5: terms are long, so even a young leader is worth a subscription.
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
    /// P2: larger than the token of every earlier term. This holds also after the server lost its data, unless its clock is set back.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing_token()
    }

    /// Changes the value that others see, without a new election. At most 4096 bytes. All clients with read access to the key can read it.
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
    /// P6: a change takes effect once. Of several changes, the one that was called last stays, in whatever order they arrive.
    ///
    /// # Errors
    /// [`RenewError::Lost`]: this term has ended, and nothing was written. After [`RenewError::Unavailable`] it may have been
    /// changed. [`RenewError::Rejected`]: the value is too long, or the server rejects it.
    ///
    /// # Cancel safety
    /// A dropped call may or may not have changed it.
    ///
    /// # On the wire
    /// One script, sent again after a lost reply. It publishes a message to the observers.
    pub async fn proclaim(&self, value: impl AsRef<[u8]>) -> Result<(), RenewError> {
        let done = self.office().proclaim(value.as_ref()).await;
        if matches!(done, Err(RenewError::Lost(_))) {
            // The hold has not noticed the loss yet. A renewal ends it now, with the true reason.
            self.hold.renew(None).await?;
        }
        done
    }

    /// Resolves when a candidate of a higher priority waits; at once if one did; never after the end of the term. The term continues:
    /// step down when it is convenient.
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
    /// As [`requested`](Self::requested): a challenge is such a request, and an operator may send one, too. Candidates repeat it with
    /// each of their polls, so a lost message delays it by at most a poll interval (5 s).
    pub fn challenged(&self) -> impl Future<Output = Challenge> + Send + 'static + use<> {
        self.hold.requested_as(Challenge::read)
    }

    /// Ends the term, and waits for the server's reply. Other candidates go first, during its [cooldown](crate::CampaignOptions::cooldown).
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
    /// As [`release`](Self::release), because it is a release.
    ///
    /// # Cancel safety
    /// Safe: the resignation continues in the background.
    ///
    /// # On the wire
    /// One script, which wakes all candidates; each of their processes sends one request.
    pub async fn step_down(self) -> Result<(), ReleaseError> {
        self.release().await
    }

    /// Ends the term, and reserves the vacancy for the candidate with this [id](crate::Candidate::id) for half a second. If that
    /// candidate does not come, all candidates may win.
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
        // The cell is empty here, because `hand_over` consumes the term and is the only writer.
        let _ = self.campaign.heir.set(candidate.to_owned());
        self.release().await
    }

    /// The name that is held, with the client's key prefix. See [`Held::name`](stanchion_client::Held::name).
    #[must_use]
    pub fn name(&self) -> &Name {
        self.hold.name()
    }

    /// The owner of the hold. See [`Held::owner`](stanchion_client::Held::owner).
    #[must_use]
    pub fn owner(&self) -> &Owner {
        self.hold.owner()
    }

    /// The end of the time in which the holder may rely on the term (P1). See [`Held::valid_until`](stanchion_client::Held::valid_until).
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.hold.valid_until()
    }

    /// The time left until then; zero once lost. See [`Held::remaining`](stanchion_client::Held::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Returns whether the term still lasts (P5). See [`Held::is_held`](stanchion_client::Held::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Resolves when the term is lost, with the reason; never after a release (P5). See [`Held::lost`](stanchion_client::Held::lost).
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.hold.lost()
    }

    /// Resolves when the term is released or lost. See [`Held::ended`](stanchion_client::Held::ended).
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.hold.ended()
    }

    /// Resolves with the last request to give it back. See [`Held::requested`](stanchion_client::Held::requested).
    pub fn requested(&self) -> impl Future<Output = ReleaseRequest> + Send + 'static {
        self.hold.requested()
    }

    /// The last request to give it back. See [`Held::request`](stanchion_client::Held::request).
    #[must_use]
    pub fn request(&self) -> Option<ReleaseRequest> {
        self.hold.request()
    }

    /// Runs `work` while the term lasts; drops `work` when it is lost. See [`Held::run`](stanchion_client::Held::run).
    ///
    /// # Errors
    /// [`LeaseLost`]: the work did not finish.
    ///
    /// # Cancel safety
    /// As that of `work`.
    pub async fn run<F: Future>(&self, work: F) -> Result<F::Output, LeaseLost> {
        self.hold.run(work).await
    }

    /// Renews the lease now. Never shortens it. See [`Held::renew`](stanchion_client::Held::renew).
    ///
    /// # Errors
    /// [`RenewError::Lost`] when the term has ended; the other errors leave it as it was.
    ///
    /// # Cancel safety
    /// Safe: a renewal that was sent may still take effect.
    pub async fn renew(&self) -> Result<(), RenewError> {
        self.hold.renew(None).await
    }

    /// Renews now, once for `lease` instead of the usual one. See [`Held::renew_for`](stanchion_client::Held::renew_for).
    ///
    /// # Errors
    /// As [`renew`](Self::renew).
    ///
    /// # Cancel safety
    /// As [`renew`](Self::renew).
    pub async fn renew_for(&self, lease: impl Into<Duration>) -> Result<(), RenewError> {
        let lease = lease_for(self.name(), lease.into())?;
        self.hold.renew(Some(lease)).await
    }

    /// Ends the term, and waits for the server's answer. Dropping the guard does the same in the background. See [`Held::release`](stanchion_client::Held::release).
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the term had ended before. [`ReleaseError::Ambiguous`]: no answer within the operation timeout; the release continues in the background.
    ///
    /// # Cancel safety
    /// Safe: the release continues in the background.
    pub async fn release(self) -> Result<(), ReleaseError> {
        self.hold.release().await
    }

    /// Ends it without a release: it ends with its lease. See [`Held::leave`](stanchion_client::Held::leave).
    pub fn leave(self) {
        self.hold.leave();
    }
}

impl From<Leadership> for Guard {
    fn from(term: Leadership) -> Self {
        term.hold.into()
    }
}

impl fmt::Debug for Leadership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Leadership").field(&self.hold).finish()
    }
}
