//! The outcome of an attempt to run a job, and the status of a job on the server.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use stanchion_client::primitive::{Refusal, Reply, holder_in, natural, unexpected};
use stanchion_client::{LostReason, QueryError, Rejection};

use crate::guard::JobGuard;
use crate::tick::Tick;

/// The outcome of [`Job::run`](crate::Job::run) and [`Job::run_tick`](crate::Job::run_tick).
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[must_use]
pub enum Outcome<T> {
    /// The work ran here, and returned.
    Done(T),
    /// Another process runs the job, for this tick or another, or the least time has not passed. The work was not called.
    Skipped {
        /// The holder.
        holder: JobHolder,
        /// The time after which the job is free without a renewal; exact while the job rests. `None` if the holder has no lease.
        free_by: Option<Duration>,
    },
    /// The tick has run, here or elsewhere. The work was not called.
    Already {
        /// The last tick that has run; it may be later than the requested tick.
        tick: Tick,
        /// The time at which the run of that tick began, by the server's clock.
        at: SystemTime,
    },
    /// The hold was lost, for instance because of [`Job::max_run`](crate::Job::max_run). The work was dropped at an await point; or
    /// it had ended, and it is unknown if the hold lasted until then.
    Lost {
        /// The reason.
        reason: LostReason,
        /// The work's output, if it had ended.
        done: Option<T>,
    },
}

/// The outcome of [`Job::begin`](crate::Job::begin) and [`Job::begin_tick`](crate::Job::begin_tick).
#[derive(Debug)]
#[non_exhaustive]
#[must_use]
pub enum Begun {
    /// The job runs here, until the guard is released or dropped.
    Running(JobGuard),
    /// See [`Outcome::Skipped`].
    Skipped {
        /// The holder.
        holder: JobHolder,
        /// The time after which the job is free if its lease is not renewed.
        free_by: Option<Duration>,
    },
    /// See [`Outcome::Already`].
    Already {
        /// The last tick that has run.
        tick: Tick,
        /// The time at which the run of that tick began.
        at: SystemTime,
    },
}

/// The holder of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct JobHolder {
    /// The owner as stored: `<client uuid>:<number>`, for Redisson `<instance uuid>:<thread id>`.
    pub owner: String,
    /// The activity of the holder.
    pub activity: Activity,
}

/// The activity of the holder of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum Activity {
    /// The holder runs the job, or holds a lock of the same name.
    Running,
    /// The run has ended, and the job's least time has not passed. The process of the run may have ended.
    Resting,
}

/// A snapshot of a job, as the server replied. The state may have changed since.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct JobStatus {
    /// The holder, if there is one.
    pub holder: Option<JobHolder>,
    /// The remaining lease of the holder, or the remaining rest of the job.
    pub free_by: Option<Duration>,
    /// The last tick that was claimed.
    pub last_tick: Option<Tick>,
    /// The last run, with or without a tick. `None` also after the record has expired.
    pub last_run: Option<LastRun>,
}

/// The last run of a job, by the server's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct LastRun {
    /// The owner that ran it.
    pub owner: String,
    /// The time at which the run began.
    pub began: SystemTime,
    /// The time at which the run ended. `None`: the run is in progress, or it was lost or killed.
    pub ended: Option<SystemTime>,
}

/// The refusals of `begin.lua`.
pub(crate) enum Refused {
    Held(JobHolder, Option<Duration>),
    Ran(Tick, SystemTime),
    /// The reason why the server cannot tell if a tick has run.
    Unknown(Unknown),
    Rejected(Rejection),
}

pub(crate) enum Unknown {
    Ahead,
    Old,
}

fn moment(micros: u64) -> SystemTime {
    UNIX_EPOCH + Duration::from_micros(micros)
}

/// Reads a refusal.
pub(crate) fn refused(refusal: &Refusal) -> Refused {
    let odd = |reply: &[Reply]| {
        let QueryError::Rejected { rejection } = unexpected(&Reply::Array(reply.to_vec())) else {
            // OK: `unexpected` always returns `Rejected`.
            return Refused::Unknown(Unknown::Old);
        };
        Refused::Rejected(rejection)
    };
    let told = refusal.rest();
    let [word, facts @ ..] = told else {
        return odd(told);
    };
    match (word.as_text(), facts) {
        (Some("held"), fields) => match holder(fields) {
            Ok(Some(holder)) => Refused::Held(holder, refusal.after),
            Ok(None) => odd(told),
            Err(QueryError::Rejected { rejection }) => Refused::Rejected(rejection),
            Err(_) => odd(told),
        },
        (Some("ran"), [tick, at]) => {
            let tick = natural(tick).and_then(|ms| Tick::from_unix_millis(ms).ok());
            match tick.zip(natural(at)) {
                Some((tick, at)) => Refused::Ran(tick, moment(at)),
                None => odd(told),
            }
        }
        (Some("ahead"), []) => Refused::Unknown(Unknown::Ahead),
        (Some("old"), []) => Refused::Unknown(Unknown::Old),
        _ => odd(told),
    }
}

/// The holder in the fields of a lock's hash. A count of 0 means that the job rests.
fn holder(fields: &[Reply]) -> Result<Option<JobHolder>, QueryError> {
    let holder = holder_in(fields)?.map(|(owner, count)| JobHolder {
        owner,
        activity: match count {
            0 => Activity::Resting,
            _ => Activity::Running,
        },
    });
    Ok(holder)
}

impl JobStatus {
    pub(crate) fn read(reply: &Reply) -> Result<Self, QueryError> {
        let unexpected = || unexpected(reply);
        let [ttl, tick, _at, owner, began, ended, _until, fields @ ..] =
            reply.as_array().ok_or_else(unexpected)?
        else {
            return Err(unexpected());
        };
        let ttl = ttl.as_int().ok_or_else(unexpected)?;
        let owner = owner.as_text().unwrap_or_default();
        let last_run = natural(began).map(|began| LastRun {
            owner: owner.to_owned(),
            began: moment(began),
            ended: natural(ended).map(moment),
        });
        Ok(Self {
            holder: holder(fields)?,
            free_by: u64::try_from(ttl).ok().map(Duration::from_millis),
            last_tick: natural(tick).and_then(|ms| Tick::from_unix_millis(ms).ok()),
            last_run: last_run.filter(|run| !run.owner.is_empty()),
        })
    }
}
