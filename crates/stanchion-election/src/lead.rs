//! Leading whenever elected: the work of a leader is started, stopped and waited for here, before anybody else may lead.

use std::fmt;
use std::future::{IntoFuture, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use stanchion_core::primitive::sleep;
use stanchion_core::{AcquireError, FencingToken, LostReason, Rejection, ReleaseError};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::election::Election;
use crate::leadership::Leadership;
use crate::options::CampaignOptions;
use crate::term::{Stop, Term};

/// The first and the longest pause after a term that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The time for which the work may go on after it was asked to stop.
const GRACE: Duration = Duration::from_secs(10);

/// The end of [`Lead`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LeadEnd {
    /// The number of terms.
    pub terms: u64,
    /// The number of terms whose work failed.
    pub failed: u64,
    /// The number of terms whose work panicked.
    pub panicked: u64,
    /// The end of the last term.
    pub last: TermEnd,
}

/// The end of one term of [`Lead`].
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum TermEnd {
    /// There was none.
    NeverElected,
    /// The work returned, and this process stepped down.
    Ended,
    /// The work returned an error, and this process stepped down.
    Failed(String),
    /// The work panicked, with this message, and this process stepped down.
    Panicked(String),
    /// The leadership was lost, and the work dropped if it was not over.
    Lost(LostReason),
    /// The work was still going on at the end of the [grace](Lead::grace). It was dropped, and this process stepped down.
    Dropped,
}

/// Leads whenever elected: see [`Election::lead`](crate::Election::lead). Await it.
#[must_use = "nothing happens until it is awaited"]
pub struct Lead<W> {
    election: Election,
    value: Vec<u8>,
    work: W,
    options: CampaignOptions,
    until: Pin<Box<dyn Future<Output = ()> + Send>>,
    grace: Duration,
    drain: Duration,
    once: bool,
}

impl Election {
    /// Leads whenever elected: campaigns, runs `work`, steps down when it returns, and campaigns again. `value` is what others see of
    /// the leader.
    ///
    /// The work owns nothing that lasts longer than its term. When the leadership is lost, it is dropped at its await point, before
    /// anybody else can lead. When [`until`](Lead::until) resolves, it is asked to [stop](Stop), the lease is renewed until it has
    /// returned, and only then others may lead. Work that returns an error, or panics, ends its term, too; the next
    /// campaign begins after a pause of 1 s, then 2 s, to 30 s at most.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election, FencingToken, Stop, TermEnd};
    /// # let client = Client::connect("memory://election-lead").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// # async fn index(token: Option<FencingToken>, stop: Stop) -> Result<(), std::io::Error> {
    /// #     stop.requested().await;
    /// #     Ok(())
    /// # }
    /// # let sigterm = tokio::time::sleep(std::time::Duration::from_millis(50));
    /// use std::time::Duration;
    ///
    /// let end = indexer
    ///     .lead("10.0.0.7:9000", |term, stop| index(term.fencing_token(), stop))
    ///     .until(sigterm)
    ///     .grace(Duration::from_secs(20))
    ///     .await?;
    /// assert_eq!((end.terms, end.last), (1, TermEnd::Ended));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lead<W, F, E>(&self, value: impl AsRef<[u8]>, work: W) -> Lead<W>
    where
        W: FnMut(Term, Stop) -> F + Send + 'static,
        F: Future<Output = Result<(), E>> + Send + 'static,
        E: fmt::Display + Send + 'static,
    {
        Lead {
            election: self.clone(),
            value: value.as_ref().to_vec(),
            work,
            options: CampaignOptions::new(),
            until: Box::pin(pending()),
            grace: GRACE,
            drain: Duration::ZERO,
            once: false,
        }
    }
}

impl<W> Lead<W> {
    /// Sets the options of its campaigns. With a timeout it ends with
    /// [`AcquireError::TimedOut`] when it was not elected for so long.
    pub fn options(mut self, options: CampaignOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets what ends it: a signal, mostly. Default: nothing.
    pub fn until(mut self, until: impl Future<Output = ()> + Send + 'static) -> Self {
        self.until = Box::pin(until);
        self
    }

    /// Sets the time for which the work may go on after it was asked to stop, leading all the time. Then it is dropped. Default 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets the time before a loss at which the work is asked to stop, if the loss announces itself: the lease is not renewed.
    /// At most half of the lease counts. Default: none, the work is dropped in time.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Ends after one term, however that ends.
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }
}

/// # Errors
/// [`AcquireError`], but never for an outage or a full server: then it goes on trying.
///
/// # Cancel safety
/// Dropped, it drops the work, and then steps down in the background.
impl<W, F, E> IntoFuture for Lead<W>
where
    W: FnMut(Term, Stop) -> F + Send + 'static,
    F: Future<Output = Result<(), E>> + Send + 'static,
    E: fmt::Display + Send + 'static,
{
    type Output = Result<LeadEnd, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<W> Lead<W> {
    async fn run<F, E>(mut self) -> Result<LeadEnd, AcquireError>
    where
        W: FnMut(Term, Stop) -> F,
        F: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let mut end = LeadEnd {
            terms: 0,
            failed: 0,
            panicked: 0,
            last: TermEnd::NeverElected,
        };
        let client = self.election.handle.client().clone();
        let mut failures = 0;
        loop {
            let campaign = self
                .election
                .campaign_with(&self.value, self.options.clone());
            let elected = tokio::select! {
                biased;
                () = &mut self.until => return Ok(end),
                elected = campaign => elected,
            };
            match elected {
                Ok(term) => {
                    let elected_at = client.now();
                    let (last, over) = self.serve(term).await;
                    end.terms += 1;
                    let is_bad = matches!(last, TermEnd::Failed(_) | TermEnd::Panicked(_));
                    end.failed += u64::from(matches!(last, TermEnd::Failed(_)));
                    end.panicked += u64::from(matches!(last, TermEnd::Panicked(_)));
                    self.election.handle.tell(|it| it.term(word(&last)));
                    end.last = last;
                    if over || self.once {
                        return Ok(end);
                    }
                    if !is_bad {
                        failures = 0;
                        continue;
                    }
                    // One that went well for a while does not count as another failure in a row.
                    if client.now().since(elected_at) > PAUSES.1 {
                        failures = 0;
                    }
                }
                Err(error) if !passes(&error) => return Err(error),
                Err(_) => {}
            }
            let pause = pause_after(failures);
            failures += 1;
            tokio::select! {
                biased;
                () = &mut self.until => return Ok(end),
                () = sleep(pause) => {}
            }
        }
    }

    /// Runs the work of one term. Returns how it ended, and whether it is the last one.
    async fn serve<F, E>(&mut self, term: Leadership) -> (TermEnd, bool)
    where
        W: FnMut(Term, Stop) -> F,
        F: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let (ask, asked) = watch::channel(false);
        // Declared before the work: should this future be dropped, the work goes first, and then the term.
        let term = Arc::new(term);
        let mut over = false;
        let last = {
            let work = &mut self.work;
            let view = Term::of(&term);
            // What the work logs stands in the span of its term.
            let span = tracing::debug_span!(
                "term",
                kind = "election",
                name = %term.name(),
                token = term.fencing_token().map(FencingToken::get),
            );
            let work = async { work(view, Stop::new(asked)).await };
            let mut work = pin!(caught(work).instrument(span));
            let mut lost = pin!(term.lost());
            // The loss first: after a pause of the process the work must not take another step (P5).
            let mut stopped = tokio::select! {
                biased;
                reason = &mut lost => Some(TermEnd::Lost(reason)),
                last = &mut work => Some(last),
                () = &mut self.until => {
                    over = true;
                    None
                }
                () = overdue(&term, self.drain) => None,
            };
            if stopped.is_none() {
                ask.send_replace(true);
            }
            if stopped.is_none() && !over {
                stopped = tokio::select! {
                    biased;
                    reason = &mut lost => Some(TermEnd::Lost(reason)),
                    last = &mut work => Some(last),
                    () = &mut self.until => {
                        over = true;
                        None
                    }
                };
            }
            match stopped {
                Some(last) => last,
                // The lease is renewed meanwhile: nobody else leads while this one still works.
                None => tokio::select! {
                    biased;
                    reason = &mut lost => TermEnd::Lost(reason),
                    last = &mut work => last,
                    () = sleep(self.grace) => TermEnd::Dropped,
                },
            }
        };
        // The work is gone. A view of it that is being used in another thread ends the term in the background.
        let released = match Arc::into_inner(term) {
            Some(term) if !matches!(last, TermEnd::Lost(_)) => term.step_down().await,
            _ => Ok(()),
        };
        match released {
            // It had ended before the work did.
            Err(ReleaseError::Lost(lost)) => (TermEnd::Lost(lost.reason), over),
            _ => (last, over),
        }
    }
}

impl<W> fmt::Debug for Lead<W> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lead")
            .field("election", &self.election)
            .field("options", &self.options)
            .field("grace", &self.grace)
            .field("drain", &self.drain)
            .field("once", &self.once)
            .finish_non_exhaustive()
    }
}

/// The label of an end.
const fn word(end: &TermEnd) -> &'static str {
    match end {
        // None that this is asked of.
        TermEnd::NeverElected | TermEnd::Ended => "ended",
        TermEnd::Failed(_) => "failed",
        TermEnd::Panicked(_) => "panicked",
        TermEnd::Lost(_) => "lost",
        TermEnd::Dropped => "dropped",
    }
}

/// Returns whether what failed a campaign may pass by itself.
fn passes(error: &AcquireError) -> bool {
    matches!(
        error,
        AcquireError::Unavailable { .. }
            | AcquireError::Ambiguous { .. }
            | AcquireError::Rejected {
                rejection: Rejection::OutOfMemory { .. },
                ..
            }
    )
}

/// The pause after that many failures in a row: doubled each time, and half of it at random, so that processes do not fail together.
fn pause_after(failures: u32) -> Duration {
    let pause = (PAUSES.0 * 2_u32.saturating_pow(failures.min(5))).min(PAUSES.1);
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Resolves when no more than `drain` is left of the lease: it was not renewed. Never with a drain of zero.
async fn overdue(term: &Leadership, drain: Duration) {
    if drain.is_zero() {
        return pending().await;
    }
    // While renewals succeed, two thirds are left at any time.
    let drain = drain.min(term.remaining() / 2);
    while let Some(left) = term.remaining().checked_sub(drain)
        && !left.is_zero()
    {
        sleep(left).await;
    }
}

/// Runs the work; a panic of it ends it, and nothing else.
async fn caught<E: fmt::Display>(work: impl Future<Output = Result<(), E>>) -> TermEnd {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| {
        // What the work leaves broken is its own: it is dropped, and never polled again.
        match catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx))) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(Ok(()))) => Poll::Ready(TermEnd::Ended),
            Ok(Poll::Ready(Err(error))) => Poll::Ready(TermEnd::Failed(error.to_string())),
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                Poll::Ready(TermEnd::Panicked(text.unwrap_or_default()))
            }
        }
    })
    .await
}
