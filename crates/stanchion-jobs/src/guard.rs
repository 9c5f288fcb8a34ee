//! The guard of a run, for its caller, and the view of the run for its work.

use std::time::Duration;

use stanchion_client::primitive::{Guarded as _, Hold, Watch, lease_for};
use stanchion_client::{
    Ended, FencingToken, Guard, LeaseLost, LostReason, Moment, Name, Owner, ReleaseError,
    ReleaseRequest, RenewError,
};

use crate::tick::Tick;

/// A run that has begun: see [`Job::begin`](crate::Job::begin). Releasing or dropping the guard ends the run. The job then rests
/// until its least time has passed.
///
/// `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and never panics (P9).
#[derive(Debug)]
#[must_use = "a guard that is not bound to a name is dropped at once, and what it holds is free again: `let guard = …`, not `let _ = …`"]
pub struct JobGuard {
    hold: Hold,
    tick: Option<Tick>,
}

impl JobGuard {
    pub(crate) fn new(hold: Hold, tick: Option<Tick>) -> Self {
        Self { hold, tick }
    }

    /// Returns the fencing token of this run; `None` with [`Fencing::Off`](crate::Fencing::Off).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_jobs::{Begun, Client, Job};
    /// # let client = Client::connect("memory://job-fencing_token").await?;
    /// # let job = Job::new(&client, "nightly")?;
    /// let Begun::Running(run) = job.begin().await? else { return Ok(()) };
    /// let stale = run.fencing_token();
    /// run.release().await?;
    /// let Begun::Running(run) = job.begin().await? else { return Ok(()) };
    /// assert!(run.fencing_token() > stale);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Guarantees
    /// P2: larger than the token of every earlier run, and of every earlier holder of a lock of this name.
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.hold.fencing_token()
    }

    /// The tick of this run; `None` for a run without a tick.
    #[must_use]
    pub fn tick(&self) -> Option<Tick> {
        self.tick
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

    /// The end of the time in which the holder may rely on the run (P1). See [`Held::valid_until`](stanchion_client::Held::valid_until).
    #[must_use]
    pub fn valid_until(&self) -> Moment {
        self.hold.valid_until()
    }

    /// The time left until then; zero once lost. See [`Held::remaining`](stanchion_client::Held::remaining).
    #[must_use]
    pub fn remaining(&self) -> Duration {
        self.hold.remaining()
    }

    /// Returns whether the run still lasts (P5). See [`Held::is_held`](stanchion_client::Held::is_held).
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.hold.is_held()
    }

    /// Resolves when the run is lost, with the reason; never after a release (P5). See [`Held::lost`](stanchion_client::Held::lost).
    pub fn lost(&self) -> impl Future<Output = LostReason> + Send + 'static {
        self.hold.lost()
    }

    /// Resolves when the run is released or lost. See [`Held::ended`](stanchion_client::Held::ended).
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

    /// Runs `work` while the run lasts; drops `work` when it is lost. See [`Held::run`](stanchion_client::Held::run).
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
    /// [`RenewError::Lost`] when the run has ended; the other errors leave it as it was.
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

    /// Ends the run, and waits for the server's answer. Dropping the guard does the same in the background. See [`Held::release`](stanchion_client::Held::release).
    ///
    /// # Errors
    /// [`ReleaseError::Lost`]: the run had ended before. [`ReleaseError::Ambiguous`]: no answer within the operation timeout; the release continues in the background.
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

    /// Returns the view of this run for the work.
    pub(crate) fn seen(&self) -> JobRun {
        JobRun {
            name: self.name().clone(),
            token: self.fencing_token(),
            tick: self.tick,
            watch: self.hold.watch(),
        }
    }
}

impl From<JobGuard> for Guard {
    fn from(guard: JobGuard) -> Self {
        guard.hold.into()
    }
}

/// A run, as its work sees it. Cheap to clone. A clone does not keep the run alive.
#[derive(Clone, Debug)]
pub struct JobRun {
    name: Name,
    token: Option<FencingToken>,
    tick: Option<Tick>,
    watch: Watch,
}

impl JobRun {
    /// The name of the job, with the client's key prefix.
    #[must_use]
    pub fn name(&self) -> &Name {
        &self.name
    }

    /// The fencing token of the run: see [`JobGuard::fencing_token`].
    #[must_use]
    pub fn fencing_token(&self) -> Option<FencingToken> {
        self.token
    }

    /// The tick of this run; `None` for a run without a tick.
    #[must_use]
    pub fn tick(&self) -> Option<Tick> {
        self.tick
    }

    /// Returns whether the run is still in progress, by the clock (P5). For work that cannot be dropped at an await point: a loop in
    /// `spawn_blocking` checks it before each step.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_jobs::{Client, Job, Outcome};
    /// # let client = Client::connect("memory://job-run-is_held").await?;
    /// let nightly = Job::new(&client, "nightly")?;
    /// let outcome = nightly.run(|run| async move {
    ///     let steps = tokio::task::spawn_blocking(move || {
    ///         (0..3).take_while(|_| run.is_held()).count()
    ///     });
    ///     steps.await
    /// });
    /// assert!(matches!(outcome.await?, Outcome::Done(Ok(3))));
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn is_held(&self) -> bool {
        self.watch.is_held()
    }

    /// Resolves when the run has ended, or was lost.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_jobs::{Client, Ended, Job, Outcome};
    /// # let client = Client::connect("memory://job-run-ended").await?;
    /// let nightly = Job::new(&client, "nightly")?;
    /// let Outcome::Done(watched) = nightly.run(|run| async move { tokio::spawn(run.ended()) }).await? else {
    ///     return Ok(()); // somebody else runs it
    /// };
    /// assert_eq!(watched.await?, Ended::Released);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Cancel safety
    /// Safe; any number of these futures may exist.
    pub fn ended(&self) -> impl Future<Output = Ended> + Send + 'static {
        self.watch.ended()
    }
}
