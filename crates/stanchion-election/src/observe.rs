//! Looking on: the leaders of an election, one after the other.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::poll_fn;
use futures_util::stream::{Stream, StreamExt as _, unfold};
use stanchion_core::primitive::{Handle, Resend, Synchronizer};
use stanchion_core::{AcquireError, Moment, QueryError};

use crate::election::Election;
use crate::leader::{Leader, Sight};
use crate::scripts::{Keys, Watch};

/// The time after which a stream looks for itself, whatever the wait that it shares with others says.
const PATIENCE: Duration = Duration::from_secs(15);

/// The pause between two looks in an outage.
const PAUSE: Duration = Duration::from_secs(1);

/// What an observer is told.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// This one leads, with this value.
    Leader(Leader),
    /// Nobody leads.
    Vacant,
    /// Nobody knows: the server cannot be asked, and the lease of the leader that was reported last may have ended since.
    Unknown(QueryError),
}

/// The leaders of an election, one after the other: see [`Election::observe`](crate::Election::observe). A
/// [`Stream`](futures_util::Stream), which does nothing unless polled.
#[must_use = "a stream does nothing unless polled"]
pub struct Leaders {
    stream: Pin<Box<dyn Stream<Item = Observed> + Send>>,
}

impl Leaders {
    pub(crate) fn of(election: &Election) -> Self {
        let lookout = Lookout {
            handle: election.handle.clone(),
            keys: Arc::clone(&election.keys),
            last: None,
            holds_until: Moment::ZERO,
            refused: false,
        };
        let stream = unfold(lookout, |mut lookout| async move {
            let next = lookout.next().await?;
            Some((next, lookout))
        });
        Self {
            // Polled after its end it has ended still, and does not panic.
            stream: Box::pin(stream.fuse()),
        }
    }

    /// Waits for the next change, and returns it; at first the present state. `None` after the client was shut down, and after a
    /// refusal by the server, which is the last [`Observed::Unknown`].
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election, Observed};
    /// # let client = Client::connect("memory://leaders-next").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// let mut leaders = indexer.observe();
    /// assert_eq!(leaders.next().await, Some(Observed::Vacant));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe: a change is reported by the next call.
    pub async fn next(&mut self) -> Option<Observed> {
        poll_fn(|cx| self.stream.as_mut().poll_next(cx)).await
    }
}

impl Stream for Leaders {
    type Item = Observed;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Observed>> {
        self.stream.as_mut().poll_next(cx)
    }
}

impl fmt::Debug for Leaders {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Leaders").finish_non_exhaustive()
    }
}

/// The state of one stream.
struct Lookout {
    handle: Handle,
    keys: Arc<Keys>,
    /// What was reported last; `Err`: that nobody knows.
    last: Option<Result<Sight, ()>>,
    /// The end of the lease that was read last: until then nobody else leads, whether the server can be asked or not.
    holds_until: Moment,
    /// The server has refused: that was the last report.
    refused: bool,
}

impl Lookout {
    /// Reads, and waits for a change while what is read was reported before.
    ///
    /// It reads first: what the wait of another stream of this process has seen need not be what this one knows.
    async fn next(&mut self) -> Option<Observed> {
        loop {
            if self.refused {
                return None;
            }
            let asked = self.handle.client().now();
            let sight = match self.read().await {
                Ok(sight) => sight,
                Err(QueryError::Shutdown) => return None,
                Err(error) => {
                    self.refused = matches!(error, QueryError::Rejected { .. });
                    let known = match &self.last {
                        Some(Ok(sight)) => sight.clone(),
                        _ => Sight::default(),
                    };
                    let holds = self.holds_until.since(self.handle.client().now());
                    let told = matches!(self.last, Some(Err(())));
                    if self.refused || holds.is_zero() && !told {
                        self.last = Some(Err(()));
                        return Some(Observed::Unknown(error));
                    }
                    // Paced by the wait, which also ends when the client is closed.
                    self.wait(&known, holds.max(PAUSE)).await?;
                    continue;
                }
            };
            let left = sight.leader.as_ref().and_then(|leader| leader.remaining);
            self.holds_until = asked + left.unwrap_or_default();
            let same = |last: &Sight| last.owner() == sight.owner() && last.change == sight.change;
            if !matches!(&self.last, Some(Ok(last)) if same(last)) {
                let observed = match &sight.leader {
                    Some(leader) => Observed::Leader(leader.clone()),
                    None => Observed::Vacant,
                };
                self.last = Some(Ok(sight));
                return Some(observed);
            }
            self.wait(&sight, PATIENCE).await?;
        }
    }

    async fn read(&self) -> Result<Sight, QueryError> {
        let call = self.keys.leader();
        let reply = self.handle.query(&call, Resend::UntilAnswered).await?;
        Sight::read(&reply)
    }

    /// Waits until the server says that it is not as it was, or for `patience`. `None`: the client was shut down.
    async fn wait(&self, known: &Sight, patience: Duration) -> Option<()> {
        let watch: Arc<dyn Synchronizer> = Arc::new(Watch {
            keys: Arc::clone(&self.keys),
            owner: known.owner().to_owned(),
            change: known.change.clone(),
        });
        match self.handle.wait(&watch, Some(patience)).await {
            Err(AcquireError::Shutdown { .. }) => None,
            // Whatever it is: the next read says.
            _ => Some(()),
        }
    }
}
