//! Leading whenever elected: starts the work of a leader, stops it, and waits for its end before another process may lead.

use std::fmt;
use std::future::{IntoFuture, pending};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use stanchion_client::primitive::sleep;
use stanchion_client::{AcquireError, FencingToken, LostReason, Rejection, ReleaseError};
use tokio::sync::watch;
use tracing::Instrument as _;

use crate::election::Election;
use crate::leadership::Leadership;
use crate::options::CampaignOptions;
use crate::term::{Stop, Term};

/// The first and the longest pause after a term that failed.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The time for which the work may continue after the request to stop.
const GRACE: Duration = Duration::from_secs(10);

/// The error of the work of a leader: any error, or a text. One type, so that the compiler needs no annotation for work that loops, that ends with
/// `Ok(())`, or that uses `?`.
pub type WorkError = Box<dyn std::error::Error + Send + Sync>;

/// The result of [`Lead`].
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
    /// The process never led.
    NeverElected,
    /// The work returned, and this process stepped down.
    Ended,
    /// The work returned an error, and this process stepped down.
    Failed(String),
    /// The work panicked, with this message, and this process stepped down.
    Panicked(String),
    /// The leadership was lost. The work was dropped, unless it had ended.
    Lost(LostReason),
    /// The work was still running at the end of the [grace](Lead::grace). It was dropped, and this process stepped down.
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
    /// Leads whenever elected: campaigns, runs `work`, steps down when it returns, and campaigns again. `value` is visible to others.
    ///
    /// The work owns nothing that lasts longer than its term. When the leadership is lost, the work is dropped at its await point,
    /// before another process can lead. When [`until`](Lead::until) resolves, the work gets a request to [stop](Stop). The lease is
    /// renewed until the work has returned, and only then others may lead. Work that returns an error, or panics, also ends its term.
    /// The next campaign then begins after a pause of 1 s, then 2 s, up to 30 s.
    ///
    /// In the work, `?` converts any error. For a function with an error type of its own write `async move { Ok(index(term, stop).await?) }`.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_election::{Client, Election, FencingToken, TermEnd};
    /// # let client = Client::connect("memory://election-lead").await?;
    /// # let indexer = Election::new(&client, "indexer")?;
    /// # async fn index_next(token: Option<FencingToken>) -> Result<(), std::io::Error> {
    /// #     tokio::task::yield_now().await;
    /// #     Ok(())
    /// # }
    /// # let sigterm = tokio::time::sleep(std::time::Duration::from_millis(50));
    /// use std::time::Duration;
    ///
    /// let end = indexer
    ///     .lead("10.0.0.7:9000", |term, stop| async move {
    ///         while !stop.is_requested() {
    ///             index_next(term.fencing_token()).await?;
    ///         }
    ///         Ok(())
    ///     })
    ///     .until(sigterm)
    ///     .grace(Duration::from_secs(20))
    ///     .await?;
    /// assert_eq!((end.terms, end.last), (1, TermEnd::Ended));
    /// # Ok(())
    /// # }
    /// ```
    pub fn lead<W, F>(&self, value: impl AsRef<[u8]>, work: W) -> Lead<W>
    where
        W: FnMut(Term, Stop) -> F + Send + 'static,
        F: Future<Output = Result<(), WorkError>> + Send + 'static,
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
    /// Sets the options of the campaigns. If they have a timeout, `Lead` ends with [`AcquireError::TimedOut`] when it was not elected
    /// for that time.
    pub fn options(mut self, options: CampaignOptions) -> Self {
        self.options = options;
        self
    }

    /// Sets the future that ends `Lead`, usually a signal. Default: none.
    pub fn until(mut self, until: impl Future<Output = ()> + Send + 'static) -> Self {
        self.until = Box::pin(until);
        self
    }

    /// Sets the time for which the work may continue, still as the leader, after a request to stop. Then it is dropped. Default 10 s.
    pub fn grace(mut self, grace: Duration) -> Self {
        self.grace = grace;
        self
    }

    /// Sets how long before a foreseeable loss, which is a lease that is not renewed, the work gets a request to stop. At most half
    /// of the lease counts. Default: none, the work is dropped in time.
    pub fn drain(mut self, drain: Duration) -> Self {
        self.drain = drain;
        self
    }

    /// Ends after one term, for whatever reason that term ends.
    pub fn once(mut self) -> Self {
        self.once = true;
        self
    }
}

/// # Errors
/// [`AcquireError`], but never for an outage or a full server: then `Lead` retries.
///
/// # Cancel safety
/// A drop drops the work first. The process then steps down in the background.
impl<W, F> IntoFuture for Lead<W>
where
    W: FnMut(Term, Stop) -> F + Send + 'static,
    F: Future<Output = Result<(), WorkError>> + Send + 'static,
{
    type Output = Result<LeadEnd, AcquireError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(self.run())
    }
}

impl<W> Lead<W> {
    async fn run<F>(mut self) -> Result<LeadEnd, AcquireError>
    where
        W: FnMut(Term, Stop) -> F,
        F: Future<Output = Result<(), WorkError>>,
    {
        let mut end = LeadEnd {
            terms: 0,
            failed: 0,
            panicked: 0,
            last: TermEnd::NeverElected,
        };
        let client = self.election.handle.clone();
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
                    // A failure after a term of more than 30 s does not count as another failure in a row.
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

    /// Runs the work of one term. Returns how the term ended, and whether it is the last one.
    async fn serve<F>(&mut self, term: Leadership) -> (TermEnd, bool)
    where
        W: FnMut(Term, Stop) -> F,
        F: Future<Output = Result<(), WorkError>>,
    {
        let (ask, asked) = watch::channel(false);
        // Declared before the work: if this future is dropped, the work is dropped first, and then the term.
        let term = Arc::new(term);
        let mut over = false;
        let last = {
            let work = &mut self.work;
            let view = Term::of(&term);
            // The span of the term contains the log messages of the work.
            let span = tracing::debug_span!(
                "term",
                kind = "election",
                name = %term.name(),
                token = term.fencing_token().map(FencingToken::get),
            );
            let work = async { work(view, Stop::new(asked)).await };
            let mut work = pin!(caught(work).instrument(span));
            let mut lost = pin!(term.lost());
            // The loss comes first: after a pause of the process, the work must not be polled again (P5).
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
                // The lease is renewed during the grace, so no other process leads while this work still runs.
                None => tokio::select! {
                    biased;
                    reason = &mut lost => TermEnd::Lost(reason),
                    last = &mut work => last,
                    () = sleep(self.grace) => TermEnd::Dropped,
                },
            }
        };
        // The work is dropped. If another thread is using a view of the term, the term ends in the background.
        let released = match Arc::into_inner(term) {
            Some(term) if !matches!(last, TermEnd::Lost(_)) => term.step_down().await,
            _ => Ok(()),
        };
        match released {
            // The term had ended before the work did.
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
        // `NeverElected` does not occur here.
        TermEnd::NeverElected | TermEnd::Ended => "ended",
        TermEnd::Failed(_) => "failed",
        TermEnd::Panicked(_) => "panicked",
        TermEnd::Lost(_) => "lost",
        TermEnd::Dropped => "dropped",
    }
}

/// Returns whether a campaign may succeed later although it failed with `error`.
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

/// The pause after `failures` failures in a row. It doubles each time, and half of it is random, so that processes do not retry together.
fn pause_after(failures: u32) -> Duration {
    let pause = (PAUSES.0 * 2_u32.saturating_pow(failures.min(5))).min(PAUSES.1);
    pause.mul_f64(0.5 + fastrand::f64() / 2.0)
}

/// Resolves when at most `drain` is left of the lease, which was not renewed. Never resolves with a drain of zero.
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

/// Runs the work. A panic ends the work only.
async fn caught(work: impl Future<Output = Result<(), WorkError>>) -> TermEnd {
    let mut work = pin!(work);
    std::future::poll_fn(|cx| {
        // A panic can leave only the work's own state broken, and the work is dropped and never polled again.
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
