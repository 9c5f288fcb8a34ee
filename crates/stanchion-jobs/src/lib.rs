//! Scheduled jobs that run once in a fleet, on Redis and Valkey.
//!
//! Many machines have the same timer: one machine runs the job, the others skip it. [`Job::run_tick`] runs each tick of the
//! schedule once, even if the machines' clocks are wrong.
//!
//! ```
//! use std::time::Duration;
//! use stanchion_jobs::{Client, Job, Outcome, Tick};
//!
//! # async fn report(token: Option<stanchion_jobs::FencingToken>) -> u32 { 42 }
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let url = "memory://jobs-doc";
//! let client = Client::connect(url).await?; // redis://…
//! let hourly = Job::new(&client, "hourly")?.max_run(Duration::from_secs(600));
//! let tick = Tick::every(Duration::from_secs(3_600))?; // for a time of the day: `Tick::daily`, `Tick::cron`
//! match hourly.run_tick(tick, |run| report(run.fencing_token())).await? {
//!     Outcome::Done(lines) => println!("{lines} lines"),
//!     Outcome::Already { at, .. } => println!("was run at {at:?}"),
//!     Outcome::Skipped { holder, .. } => println!("{} runs it", holder.owner),
//!     Outcome::Lost { reason, .. } => println!("stopped: {reason}"),
//!     _ => {}
//! }
//! # Ok(())
//! # }
//! ```
//!
//! A lease cannot exclude a run that is paused between its check and its write. Send [`JobRun::fencing_token`] with each write,
//! and let the store reject smaller tokens.

#[cfg(feature = "cron")]
mod due;
mod guard;
mod job;
mod outcome;
mod scripts;
mod tick;

pub use guard::{JobGuard, JobRun};
pub use job::Job;
pub use outcome::{Activity, Begun, JobHolder, JobStatus, LastRun, Outcome};
pub use stanchion_client::{
    AcquireError, AcquireOptions, Background, Client, ClientConfig, ConfigError, ConnectError,
    Ended, Error, Fencing, FencingToken, FreeBy, InvalidLease, InvalidName, Lease, LeaseLost,
    LostReason, Moment, Name, NameRule, Outage, Owner, QueryError, Rejection, ReleaseError,
    ReleaseRequest, RenewError, Renewal, Secret, ServerInfo, ServerRejection, ServerUrl,
    ShutdownReport, WireOwner,
};
pub use stanchion_lock::Lock;
pub use tick::{InvalidTick, Tick};

/// The README's program, as a test.
#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
