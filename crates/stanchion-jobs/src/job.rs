//! The job.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use stanchion_client::primitive::{Handle, ReadOptions as _, Resend, Synchronizer, bounded};
use stanchion_client::{
    AcquireError, AcquireOptions, Client, Fencing, FencingToken, InvalidName, Lease, Name,
    QueryError, Rejection, ReleaseError,
};
use stanchion_lock::Lock;
use tracing::Instrument as _;

use crate::guard::{JobGuard, JobRun};
use crate::outcome::{Begun, JobStatus, Outcome, Refused, Unknown, refused};
use crate::scripts::{AHEAD, Keys, Run};
use crate::tick::{InvalidTick, Tick};

/// The default time for which the server remembers which ticks have run.
const REMEMBER: Duration = Duration::from_secs(7 * 86_400);

/// A job that processes share by its name: at most one of them runs it at a time, the others skip it. Cheap to clone; handles
/// have no state.
///
/// # Guarantees
/// * P1: at most one process runs it at a time, until its [`valid_until`](JobGuard::valid_until). No process runs it while a
///   [`Lock`] of the same name is held.
/// * [`run_tick`](Self::run_tick) begins at most one run for each tick, and exactly one if any caller finds the job free. This
///   does not depend on the machines' clocks or on the length of the run. It also holds when the run fails, and after a failover
///   as long as the server keeps its data. A tick whose run dies is not run again.
/// * [`at_least`](Self::at_least): no other run begins until this time has passed since the beginning of the run, on the server's
///   clock, also when the process of the run is killed.
/// * P2: [fencing tokens](JobRun::fencing_token) grow. P3: a run that was dropped before its work was called leaves neither a
///   hold nor a claim of its tick.
/// * No call waits for another run: on contention it returns at once.
///
/// # On the wire
/// Uses the hash, the queue and the channels of the [`Lock`] of this name, so the job and Redisson's `RLock` exclude each other.
/// The hash `stanchion_job_last:{name}` stores the last tick and the last run. A run sends two commands.
#[derive(Clone, Debug)]
pub struct Job {
    handle: Handle,
    lock: Lock,
    keys: Arc<Keys>,
    options: AcquireOptions,
    least: Duration,
    remember: Duration,
}

impl Job {
    /// Returns a handle to the job called `name`. The rules for names are those of a [`Lock`]. Sends nothing.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// use std::time::Duration;
    /// use stanchion_jobs::{Client, Job, Outcome};
    ///
    /// # let url = "memory://job-new";
    /// let client = Client::connect(url).await?; // redis://…
    /// let nightly = Job::new(&client, "nightly")?
    ///     .at_least(Duration::from_secs(5 * 60)) // more than the clocks of the machines differ by
    ///     .max_run(Duration::from_secs(3600));
    /// match nightly.run(|_| async { "report" }).await? {
    ///     Outcome::Done(report) => println!("{report}"),
    ///     Outcome::Skipped { holder, .. } => println!("{} runs it, or has run it", holder.owner),
    ///     other => println!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidName`].
    pub fn new(client: &Client, name: impl AsRef<[u8]>) -> Result<Self, InvalidName> {
        let handle = Handle::of(client);
        let lock = Lock::new(client, name)?;
        Ok(Self {
            keys: Arc::new(Keys::new(&handle, &lock, Fencing::default())),
            handle,
            lock,
            options: AcquireOptions::new(),
            least: Duration::ZERO,
            remember: REMEMBER,
        })
    }

    /// Returns the same job with a least time, at most 30 days: after a run began, no other run begins until this time has passed.
    ///
    /// For jobs that several machines start at the same time by clocks that differ. Choose more than the difference, and less than
    /// the time between two starts. If a run ends sooner, the job rests: no process holds it, and the process of the run may exit.
    /// The server frees it after the time has passed. [`run_tick`](Self::run_tick) does not need a least time.
    #[must_use]
    pub fn at_least(mut self, least: Duration) -> Self {
        self.least = least;
        self
    }

    /// Returns the same job with a longest time for a run. Then the work is dropped at an await point, and the outcome is
    /// [`Outcome::Lost`] with [`LostReason::MaxHold`](crate::LostReason::MaxHold). Default: none; a run lasts as long as its work.
    #[must_use]
    pub fn max_run(mut self, most: Duration) -> Self {
        self.options = self.options.max_hold(most);
        self
    }

    /// Returns the same job with other options for its runs: lease, renewal, longest hold, timeout of the request.
    #[must_use]
    pub fn options(mut self, options: AcquireOptions) -> Self {
        self.options = options;
        self
    }

    /// Returns the same job with another lease: the time after which the job is free if its process dies, 10 ms to 30 days, checked by the runs.
    /// Default 30 s.
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.options = self.options.lease(lease);
        self
    }

    /// Returns the same job with tokens from another source. All users of a name must agree on it.
    #[must_use]
    pub fn fencing(mut self, fencing: Fencing) -> Self {
        self.keys = Arc::new(Keys::new(&self.handle, &self.lock, fencing));
        self
    }

    /// Returns the same job with another time for which the server remembers the ticks that have run, and the last run.
    /// Default 7 days. Choose more than the age of the oldest tick that a machine may request; older ticks are rejected. 1 s to 10 years:
    /// otherwise the runs are rejected ([`Rejection::InvalidOption`]).
    #[must_use]
    pub fn remember(mut self, time: Duration) -> Self {
        self.remember = time;
        self
    }

    /// Returns the name, key prefix included.
    #[must_use]
    pub fn name(&self) -> &Name {
        self.keys.name()
    }

    /// Returns the [tick](Tick::rounded_down) of the server's clock, as this client knows it. Sends nothing.
    ///
    /// For programs whose timers do not follow the machine's clock, as in virtual time: [`Tick::every`] reads the machine's clock,
    /// and a tick that is more than an hour ahead of the server's clock is rejected.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use stanchion_jobs::{Client, Job, Outcome};
    /// # let client = Client::connect("memory://job-tick").await?;
    /// let invoices = Job::new(&client, "invoices")?;
    /// let tick = invoices.tick(Duration::from_secs(15 * 60))?;
    /// let here = invoices.run_tick(tick, |_| async { "sent" }).await?;
    /// assert_eq!(here, Outcome::Done("sent"));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`InvalidTick`] for a period below 1 ms or above 28 days.
    pub fn tick(&self, period: Duration) -> Result<Tick, InvalidTick> {
        let time = UNIX_EPOCH + self.handle.server_time(self.name());
        Tick::rounded_down(time, period)
    }

    /// Runs `work`, unless the job runs elsewhere or rests.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use stanchion_jobs::{Activity, Client, Job, Outcome};
    /// # let client = Client::connect("memory://job-run").await?;
    /// let mail = Job::new(&client, "mail")?.at_least(Duration::from_secs(60));
    /// let first = mail.run(|run| async move { run.fencing_token() }).await?;
    /// assert!(matches!(first, Outcome::Done(Some(_token))));
    /// match mail.run(|_| async { "again" }).await? { // on another machine, whose clock is late
    ///     Outcome::Skipped { holder, free_by } => {
    ///         assert_eq!(holder.activity, Activity::Resting);
    ///         assert!(free_by > Some(Duration::from_secs(50)));
    ///     }
    ///     other => panic!("{other:?}"),
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`]: `work` was not called. Contention is not an error.
    ///
    /// # Cancel safety
    /// A call that is dropped before `work` was called leaves nothing (P3). If it is dropped later, the run ends as if the work had
    /// ended: the job rests until its least time has passed.
    ///
    /// # On the wire
    /// One script before `work`, one after it, and the renewals.
    pub fn run<F, Fut>(
        &self,
        work: F,
    ) -> impl Future<Output = Result<Outcome<Fut::Output>, AcquireError>> + use<F, Fut>
    where
        F: FnOnce(JobRun) -> Fut,
        Fut: Future,
    {
        let job = self.clone();
        async move { job.run_of(None, work).await }
    }

    /// Runs `work` if `tick` has not run yet, and the job does not run elsewhere.
    ///
    /// If a later tick has run, all ticks before it count as run. While a run is in progress, of this tick or another, the call is
    /// skipped. A call after that run either reports that the tick has run, or runs it.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use stanchion_jobs::{Client, Job, Outcome, Tick};
    /// # let client = Client::connect("memory://job-run_tick").await?;
    /// let invoices = Job::new(&client, "invoices")?;
    /// // A timer on each machine, every quarter of an hour. Their clocks differ.
    /// let tick = Tick::every(Duration::from_secs(15 * 60))?;
    /// let here = invoices.run_tick(tick, |_| async { "sent" }).await?;
    /// assert_eq!(here, Outcome::Done("sent"));
    /// let there = invoices.run_tick(tick, |_| async { "sent twice" }).await?; // a moment or a minute later
    /// assert!(matches!(there, Outcome::Already { .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run`](Self::run). [`Rejection::InvalidOption`](crate::Rejection::InvalidOption) for a tick more than an hour ahead of the
    /// server's clock, and for one that is older than the job [remembers](Self::remember).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run): the claim of the tick is undone if `work` was not called.
    ///
    /// # On the wire
    /// As [`run`](Self::run): the tick is claimed in the script that acquires.
    pub fn run_tick<F, Fut>(
        &self,
        tick: Tick,
        work: F,
    ) -> impl Future<Output = Result<Outcome<Fut::Output>, AcquireError>> + use<F, Fut>
    where
        F: FnOnce(JobRun) -> Fut,
        Fut: Future,
    {
        let job = self.clone();
        async move { job.run_of(Some(tick), work).await }
    }

    async fn run_of<F, Fut>(
        &self,
        tick: Option<Tick>,
        work: F,
    ) -> Result<Outcome<Fut::Output>, AcquireError>
    where
        F: FnOnce(JobRun) -> Fut,
        Fut: Future,
    {
        let guard = match self.ask(tick).await? {
            Begun::Running(guard) => guard,
            Begun::Skipped { holder, free_by } => return Ok(Outcome::Skipped { holder, free_by }),
            Begun::Already { tick, at } => return Ok(Outcome::Already { tick, at }),
        };
        let run = guard.seen();
        // The call of `work` is part of the work, because the call may block or panic, too. The span of the run contains the log
        // messages of the work.
        let span = tracing::debug_span!(
            "run",
            kind = "job",
            name = %self.name(),
            tick = tick.map(tracing::field::display),
            token = guard.fencing_token().map(FencingToken::get),
        );
        let work = async { work(run).await }.instrument(span);
        let worked = guard.run(work).await;
        let out = match worked {
            Ok(out) => out,
            Err(lost) => {
                let reason = lost.reason;
                self.handle.tell(|observer| observer.job("lost"));
                return Ok(Outcome::Lost { reason, done: None });
            }
        };
        let released = guard.release().await;
        let outcome = match &released {
            Err(ReleaseError::Lost(_)) => "lost",
            _ => "done",
        };
        self.handle.tell(|observer| observer.job(outcome));
        match released {
            Ok(()) => Ok(Outcome::Done(out)),
            // P8: when the work ended, another owner may have held the job already.
            Err(ReleaseError::Lost(lost)) => Ok(Outcome::Lost {
                reason: lost.reason,
                done: Some(out),
            }),
            // The work is done. The rest on the server ends through the background release or through the lease.
            Err(error) => {
                tracing::warn!(name = %self.name(), %error, "the end of a job's run is not confirmed");
                Ok(Outcome::Done(out))
            }
        }
    }

    /// Begins a run, for code that is not a single future. The run lasts until the guard is released or dropped.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_jobs::{Begun, Client, Job};
    /// # let client = Client::connect("memory://job-begin").await?;
    /// let nightly = Job::new(&client, "nightly")?;
    /// if let Begun::Running(run) = nightly.begin().await? {
    ///     let child = std::process::Command::new("true").status(); // a command that gets the token
    ///     println!("{child:?} under {:?}", run.fencing_token());
    ///     run.release().await?;
    /// }
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`AcquireError`], but never for contention. Ends within the operation timeout (5 s).
    ///
    /// # Cancel safety
    /// Safe: a request that was sent is undone in the background (P3).
    ///
    /// # On the wire
    /// One script, resent after a lost reply; it takes effect once (P6).
    pub fn begin(&self) -> impl Future<Output = Result<Begun, AcquireError>> + Send + 'static {
        let job = self.clone();
        async move { job.ask(None).await }
    }

    /// As [`begin`](Self::begin), for a tick that has not run yet: see [`run_tick`](Self::run_tick).
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use std::time::Duration;
    /// # use stanchion_jobs::{Begun, Client, Job, Tick};
    /// # let client = Client::connect("memory://job-begin_tick").await?;
    /// let hourly = Job::new(&client, "hourly")?;
    /// let tick = Tick::every(Duration::from_secs(3_600))?;
    /// if let Begun::Running(run) = hourly.begin_tick(tick).await? {
    ///     assert_eq!(run.tick(), Some(tick));
    ///     run.release().await?;
    /// }
    /// assert!(matches!(hourly.begin_tick(tick).await?, Begun::Already { .. }));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// As [`run_tick`](Self::run_tick).
    ///
    /// # Cancel safety
    /// As [`begin`](Self::begin). Once the guard was returned, its tick counts as run, even if the caller does nothing.
    ///
    /// # On the wire
    /// As [`begin`](Self::begin).
    pub fn begin_tick(
        &self,
        tick: Tick,
    ) -> impl Future<Output = Result<Begun, AcquireError>> + Send + 'static {
        let job = self.clone();
        async move { job.ask(Some(tick)).await }
    }

    async fn ask(&self, tick: Option<Tick>) -> Result<Begun, AcquireError> {
        let options = self.checked()?;
        let run = Arc::new(Run {
            keys: Arc::clone(&self.keys),
            tick,
            least: self.least,
            remember: self.remember.max(self.least),
            rests: self.handle.fresh_id(),
            begun: AtomicBool::new(false),
        });
        let sync = Arc::clone(&run) as Arc<dyn Synchronizer>;
        let answer = self
            .handle
            .ask(&sync, &options, Lease::default().length())
            .await?;
        let refusal = match answer {
            Ok(hold) => {
                // No await from here to the caller: a future that was dropped before this point ran no work, and its claim is undone.
                run.begun.store(true, Ordering::Release);
                return Ok(Begun::Running(JobGuard::new(hold, tick)));
            }
            Err(refusal) => refusal,
        };
        match refused(&refusal) {
            Refused::Held(holder, free_by) => {
                self.handle.tell(|observer| observer.job("skipped"));
                Ok(Begun::Skipped { holder, free_by })
            }
            Refused::Ran(tick, at) => {
                self.handle.tell(|observer| observer.job("already"));
                Ok(Begun::Already { tick, at })
            }
            Refused::Rejected(rejection) => Err(self.rejected(rejection)),
            Refused::Unknown(why) => {
                let tick = tick.map_or_else(String::new, |tick| tick.to_string());
                let rule = match why {
                    Unknown::Ahead => format!(
                        "the tick {tick} is more than {} ahead of the server's clock",
                        humantime::format_duration(AHEAD)
                    ),
                    Unknown::Old => format!(
                        "the tick {tick} is older than the {} for which this job remembers what has run",
                        humantime::format_duration(self.remember)
                    ),
                };
                Err(self.rejected(Rejection::InvalidOption { rule }))
            }
        }
    }

    /// Checks the options, and applies the least time.
    fn checked(&self) -> Result<AcquireOptions, AcquireError> {
        let invalid = |rule| Err(self.rejected(Rejection::InvalidOption { rule }));
        let bounds = Duration::from_secs(1)..=Duration::from_secs(10 * 365 * 86_400);
        bounded("remember", self.remember, bounds, "1s to 10 years")
            .map_err(|invalid| self.rejected(invalid.into()))?;
        let options = self.options.clone();
        if options.has_owner() {
            return invalid(
                "a run of a job is an owner of its own: options with an owner are for locks".into(),
            );
        }
        if self.least.is_zero() {
            return Ok(options);
        }
        // P3: the least time is the first lease of the acquire, so that it also holds when this process is killed.
        let lease = options.lease_or(Lease::default().length());
        match Lease::new(self.least.max(Lease::MIN.length())) {
            Ok(least) if least.length() > lease => {
                let first = options.first_lease_or(least.length());
                Ok(options.first_lease(first.max(least.length())))
            }
            // The lease is at least as long as the least time.
            Ok(_) => Ok(options),
            Err(_) => {
                let given = humantime::format_duration(self.least);
                invalid(format!("at_least {given}: at most 30days"))
            }
        }
    }

    fn rejected(&self, rejection: Rejection) -> AcquireError {
        AcquireError::Rejected {
            name: self.name().clone(),
            rejection,
        }
    }

    /// Returns the holder, the last tick and the last run.
    ///
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use stanchion_jobs::{Client, Job};
    /// # let client = Client::connect("memory://job-status").await?;
    /// let nightly = Job::new(&client, "nightly")?;
    /// let _ = nightly.run(|_| async {}).await?;
    /// let status = nightly.status().await?;
    /// assert_eq!(status.holder, None);
    /// let last = status.last_run.ok_or("never ran")?;
    /// assert!(last.ended >= Some(last.began));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`QueryError`]; [`Rejection::WrongType`] if the key of this name has another type.
    ///
    /// # Cancel safety
    /// Safe; it only reads.
    ///
    /// # On the wire
    /// One script.
    pub async fn status(&self) -> Result<JobStatus, QueryError> {
        let call = self.keys.status();
        let reply = self.handle.query(&call, Resend::UntilAnswered).await?;
        JobStatus::read(&reply)
    }
}
