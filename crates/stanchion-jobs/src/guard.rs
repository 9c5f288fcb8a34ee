//! The guard of a run, for its caller, and the view of the run for its work.

use stanchion_client::primitive::{Hold, Watch};
use stanchion_client::{Ended, FencingToken, Name, define_guard};

use crate::tick::Tick;

define_guard! {
    /// A run that has begun: see [`Job::begin`](crate::Job::begin). Releasing or dropping the guard ends the run. The job then rests
    /// until its least time has passed.
    ///
    /// `Send + Sync + 'static`, and not `Clone`. Dropping never blocks, needs no runtime and never panics (P9).
    pub struct JobGuard over hold with tick: Option<Tick>;

    /// # use stanchion_jobs::{AcquireError, AcquireOptions, Begun, Client, Ended, Job, JobGuard, LostReason, Renewal};
    /// # async fn run_of(begun: impl Future<Output = Result<Begun, AcquireError>>) -> Result<JobGuard, Box<dyn std::error::Error>> {
    /// #     match begun.await? { Begun::Running(guard) => Ok(guard), other => Err(format!("{other:?}").into()) }
    /// # }
    /// # let client = Client::connect("memory://job-guard").await?;
    /// # let job = Job::new(&client, "nightly")?;
    example run_of(job.begin()), run_of(job.with_options(options).begin());
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
