//! Observers: the leaders of an election, as a stream.

use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures_util::future::poll_fn;
use futures_util::stream::{Stream, StreamExt as _, unfold};
use stanchion_client::primitive::{Handle, Resend, Synchronizer};
use stanchion_client::{AcquireError, Moment, QueryError};

use crate::election::Election;
use crate::leader::{Leader, Sight};
use crate::scripts::{Keys, Watch};

/// The time after which a stream reads the leader, even if the wait that it shares with other streams reports no change.
const PATIENCE: Duration = Duration::from_secs(15);

/// The pause between two reads in an outage.
const PAUSE: Duration = Duration::from_secs(1);

/// An item of the stream of an observer.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Observed {
    /// The process that leads, with its value.
    Leader(Leader),
    /// There is no leader.
    Vacant,
    /// Unknown: the server is out of reach, and the lease of the leader that was reported last may have ended since.
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
            // A poll after the end returns the end again, and does not panic.
            stream: Box::pin(stream.fuse()),
        }
    }

    /// Waits for the next change, and returns it; the first call returns the present state. `None` after the client was shut down,
    /// and after the server has rejected a request, which is the last [`Observed::Unknown`].
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
    /// The last report; `Err` for an unknown leader.
    last: Option<Result<Sight, ()>>,
    /// The end of the lease that was read last. Until then there is no other leader, even if the server is out of reach.
    holds_until: Moment,
    /// The server has rejected a request, and that was the last report.
    refused: bool,
}

impl Lookout {
    /// Reads the leader, and waits for a change if the stream has already reported that leader.
    ///
    /// It reads first, because the shared wait may have seen a state that this stream does not know.
    async fn next(&mut self) -> Option<Observed> {
        loop {
            if self.refused {
                return None;
            }
            let asked = self.handle.now();
            let sight = match self.read().await {
                Ok(sight) => sight,
                Err(QueryError::Shutdown) => return None,
                Err(error) => {
                    self.refused = matches!(error, QueryError::Rejected { .. });
                    let known = match &self.last {
                        Some(Ok(sight)) => sight.clone(),
                        _ => Sight::default(),
                    };
                    let holds = self.holds_until.since(self.handle.now());
                    let told = matches!(self.last, Some(Err(())));
                    if self.refused || holds.is_zero() && !told {
                        self.last = Some(Err(()));
                        return Some(Observed::Unknown(error));
                    }
                    // The wait sets the pace, and also ends when the client is closed.
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

    /// Waits until the leader on the server differs from `known`, or for `patience`. `None`: the client was shut down.
    async fn wait(&self, known: &Sight, patience: Duration) -> Option<()> {
        let watch: Arc<dyn Synchronizer> = Arc::new(Watch {
            keys: Arc::clone(&self.keys),
            owner: known.owner().to_owned(),
            change: known.change.clone(),
        });
        match self.handle.wait(&watch, Some(patience)).await {
            Err(AcquireError::Shutdown { .. }) => None,
            // All other results are ignored, because the next read shows the state.
            _ => Some(()),
        }
    }
}
