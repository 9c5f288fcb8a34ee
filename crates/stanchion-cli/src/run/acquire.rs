//! Waiting for the lock, and reporting it.

use std::fmt::Display;
use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use stanchion::semaphore::PermitId;
use stanchion::{AcquireError, AcquireOptions, Client, ConnectError, QueryError, Rejection};
use tokio::time::Instant;

use super::child::HOLDS;
use super::local::Local;
use super::report::Report;
use super::target::{Held, Target};
use super::work::WorkArgs;
use super::{RunArgs, job};
use crate::duration;
use crate::exit::{self, Failure, Library};
use crate::look::{Seen, look};
use crate::messages;
use crate::people::People;

/// The wait after which the user learns what `run` waits for.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);

/// The first pause between two attempts, after which it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// The time for which a refused password is tried again, at most. A password that changes reaches the server and its file at
/// different moments. Later this program ends, so that a service manager starts it with the new one.
const LOGIN: Duration = Duration::from_secs(60);

/// The time that a message about the holders may take after a wait has ended.
const LAST_LOOK: Duration = Duration::from_millis(500);

/// Attempts after a failure that may pass: the pauses between them, and one message for each reason.
#[derive(Debug)]
pub(super) struct Again {
    pause: Duration,
    told: String,
}

impl Again {
    pub(super) const fn new() -> Self {
        Self {
            pause: FIRST_PAUSE,
            told: String::new(),
        }
    }

    /// Says why, and pauses for at most `left`.
    pub(super) async fn wait(&mut self, why: &impl Display, left: Wait, report: &Report) {
        let why = why.to_string();
        if self.told != why {
            report.say(format_args!("{}", messages::again(&why)));
            self.told = why;
        }
        left.pause(self.pause).await;
        self.pause = (self.pause * 2).min(LONGEST_PAUSE);
    }
}

/// Returns whether a later request may succeed: an outage, or a refusal that may pass.
pub(super) fn may_pass(error: &AcquireError) -> bool {
    match error {
        AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. } => true,
        AcquireError::Rejected { rejection, .. } => exit::may_pass(rejection),
        _ => false,
    }
}

/// `--wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until it is acquired.
    Forever,
    /// At most this long.
    AtMost(Duration),
    /// A single request.
    No,
}

pub(crate) fn parse_wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        _ => match duration::parse(text) {
            Ok(Duration::ZERO) => Ok(Wait::No),
            Ok(most) => Ok(Wait::AtMost(most)),
            Err(rule) => Err(format!("{rule}, or `forever`")),
        },
    }
}

/// The outcome of the wait.
pub(super) enum Answer {
    Acquired(Held),
    /// Other owners held it all the time.
    Conflict(String),
    /// The tick of a job has run.
    Ran(String),
}

impl Wait {
    /// The rest of the wait; `None`: it has ended.
    pub(super) fn left(self, asked: Instant) -> Option<Self> {
        match self {
            Self::Forever => Some(Self::Forever),
            Self::No => None,
            Self::AtMost(most) => {
                let left = most.saturating_sub(asked.elapsed());
                (!left.is_zero()).then_some(Self::AtMost(left))
            }
        }
    }

    /// The shorter of this wait and `most`.
    fn at_most(self, most: Duration) -> Self {
        match self {
            Self::Forever => Self::AtMost(most),
            Self::AtMost(wait) => Self::AtMost(wait.min(most)),
            Self::No => Self::No,
        }
    }

    /// Pauses before the next attempt, at most for the rest of the wait.
    async fn pause(self, pause: Duration) {
        let most = match self {
            Self::AtMost(most) => most,
            Self::Forever | Self::No => pause,
        };
        tokio::time::sleep(pause.mul_f64(0.5 + fastrand::f64() / 2.0).min(most)).await;
    }
}

/// The name of the holder for operators: the label, or the name of the command without its path and arguments, which may be secret.
fn application(work: &WorkArgs) -> String {
    if let Some(label) = &work.label {
        return label.clone();
    }
    let program = work.command.first().map(Path::new);
    let program = program.map_or_else(|| Some("run".as_ref()), Path::file_name);
    program.unwrap_or_default().to_string_lossy().into_owned()
}

/// Connects. Retries an unreachable server for the time of `--wait`.
pub(super) async fn connect(
    args: &RunArgs,
    local: Option<&Local>,
    asked: Instant,
    report: &Report,
) -> Result<Client, Failure> {
    let mut again = Again::new();
    loop {
        let mut wait = args.wait;
        let connected = async {
            if let Some(local) = local {
                local.find(report).await?;
            }
            // Read each time: the file with the URL has a new password after a rotation.
            let config = args.work.server.config()?.name(application(&args.work));
            let connected = Client::connect_with(config).await;
            if let Err(ConnectError::Rejected { .. }) = &connected {
                wait = wait.at_most(LOGIN);
            }
            Ok(connected.map_err(Library)?)
        };
        let failure: Failure = match connected.await {
            Ok(client) => return Ok(client),
            Err(failure) => failure,
        };
        let Some(left) = wait.left(asked) else {
            return Err(failure);
        };
        // Without the permission to start a server, only another command starts it.
        let waits = local.is_none_or(Local::may_start);
        if failure.code() != exit::UNAVAILABLE || !waits {
            return Err(failure);
        }
        again.wait(&failure, left, report).await;
    }
}

/// Acquires within the time of `--wait`.
pub(super) async fn acquire(
    args: &RunArgs,
    client: &Client,
    asked: Instant,
    report: &Report,
) -> Result<Answer, Failure> {
    // Connecting counts as waiting, but a connected server gets at least one request.
    let mut wait = args.wait.left(asked).unwrap_or(Wait::No);
    if args.is_job() {
        return job::begin(args, client, asked, report).await;
    }
    let mut again = Again::new();
    let target = loop {
        let failure = match Target::new(client, args, |text| report.say(text)).await {
            Ok(target) => break target,
            Err(failure) => failure,
        };
        match wait.left(asked) {
            Some(left) if failure.code() == exit::UNAVAILABLE => {
                again.wait(&failure, left, report).await;
            }
            _ => return Err(failure),
        }
    };
    loop {
        let acquired = {
            let mut asking = pin!(ask(args, wait, &target));
            tokio::select! {
                biased;
                acquired = &mut asking => acquired,
                refused = say_what_for(args, &target, client, report) => match refused {
                    Some(refused) => return Err(refused),
                    None => asking.await,
                },
            }
        };
        let error = match acquired {
            Ok(Some(held)) => return Ok(Answer::Acquired(held)),
            Ok(None) => return conflict(args, &target, client, report, None).await,
            Err(AcquireError::TimedOut { free_by, .. })
                if client.is_connected() && (free_by.is_none() || target.has_queue()) =>
            {
                return conflict(args, &target, client, report, Some(asked.elapsed())).await;
            }
            Err(error) => error,
        };
        match args.wait.left(asked) {
            Some(left) if may_pass(&error) => {
                wait = left;
                again.wait(&error, left, report).await;
            }
            _ if matches!(error, AcquireError::TimedOut { .. }) && client.is_connected() => {
                return Ok(Answer::Conflict(error.to_string()));
            }
            _ if matches!(error, AcquireError::TimedOut { .. }) => {
                let message = format!("{error}, and the server cannot be reached");
                return Err(Failure::new(exit::UNAVAILABLE, message));
            }
            _ => return Err(refused(args, client, error).await),
        }
    }
}

/// Returns the failure of an acquire. If the name is of another kind, the failure says of which.
pub(super) async fn refused(args: &RunArgs, client: &Client, error: AcquireError) -> Failure {
    let is_other_kind = matches!(
        &error,
        AcquireError::Rejected {
            rejection: Rejection::WrongType { .. },
            ..
        }
    );
    let failure = Library(error).into();
    match is_other_kind {
        true => other_kind(args, client, failure).await,
        false => failure,
    }
}

/// Returns the failure for a name of another kind than the command line means, with the option for its kind.
async fn other_kind(args: &RunArgs, client: &Client, failure: Failure) -> Failure {
    let name = &args.name;
    let (what, option) = match look(client, name.as_bytes(), None).await {
        Ok(Seen::Leased(_) | Seen::Semaphore(_)) => ("a semaphore", "--permits"),
        // A semaphore whose permits are free looks like a latch.
        Ok(Seen::Number(_)) => ("a semaphore, or a latch", "--permits for a semaphore"),
        Ok(Seen::Rwlock(_)) => ("a read-write lock", "--read or --write"),
        _ => return failure,
    };
    let rule = match args.lead {
        None => messages::use_option(name, what, option),
        Some(_) => messages::no_election(name, what),
    };
    Failure::new(exit::CONFIG, rule)
}

/// Returns the conflict with another holder, or an error if the key is not a lock. `waited`: the wait, if there was one.
async fn conflict(
    args: &RunArgs,
    target: &Target,
    client: &Client,
    report: &Report,
    waited: Option<Duration>,
) -> Result<Answer, Failure> {
    // The wait has ended: a server that does not answer now must not lengthen it.
    let look = async {
        let people = people(client, report).await;
        target.in_the_way(&people).await
    };
    let taken = match tokio::time::timeout(LAST_LOOK, look).await {
        Ok(Err(error)) if is_foreign(&error) => {
            return Err(other_kind(args, client, Library(error).into()).await);
        }
        Ok(Ok(Some(who))) if report.is_for_human() => messages::is(target.name(), &who),
        _ => target.taken(),
    };
    Ok(Answer::Conflict(match waited {
        Some(waited) => messages::gave_up(&taken, waited),
        None => taken,
    }))
}

/// The processes behind owners, for messages to a user at a terminal. Other users get no request for them: a fleet that skips a job
/// would list the server's connections once for each machine.
pub(super) async fn people(client: &Client, report: &Report) -> People {
    match report.is_for_human() {
        true => People::ask(client).await.unwrap_or_default(),
        false => People::default(),
    }
}

/// True if the name belongs to something else, which will not be released.
fn is_foreign(error: &QueryError) -> bool {
    matches!(
        error,
        QueryError::Rejected {
            rejection: Rejection::WrongType { .. }
        }
    )
}

async fn ask(args: &RunArgs, wait: Wait, target: &Target) -> Result<Option<Held>, AcquireError> {
    let mut options = AcquireOptions::new();
    // Otherwise the lease is at least as long.
    if let Some(least) = args.at_least.filter(|least| *least > args.lease) {
        options = options.first_lease(least);
    }
    match wait {
        Wait::Forever => target.acquire(options).await.map(Some),
        Wait::AtMost(most) => target.acquire(options.timeout(most)).await.map(Some),
        Wait::No => target.try_acquire(options).await,
    }
}

/// Shows the user what `run` waits for. Returns the failure if waiting is useless.
async fn say_what_for(
    args: &RunArgs,
    target: &Target,
    client: &Client,
    report: &Report,
) -> Option<Failure> {
    tokio::time::sleep(PATIENCE).await;
    if waits_for_itself(args, client).await {
        let rule = messages::held_by_outer_run(&args.name);
        return Some(Failure::new(exit::CONFIG, rule));
    }
    let people = people(client, report).await;
    let why = match target.in_the_way(&people).await {
        Err(error) if is_foreign(&error) => {
            return Some(other_kind(args, client, Library(error).into()).await);
        }
        Err(error) => Some(error.to_string()),
        Ok(who) => who,
    };
    let text = messages::waiting_for(target.name(), why.as_deref());
    report.say_to_human(format_args!("{text}"));
    None
}

/// Returns whether an outer `run` holds the name, which it keeps until this process has ended.
async fn waits_for_itself(args: &RunArgs, client: &Client) -> bool {
    let Ok(outer) = std::env::var(HOLDS) else {
        return false;
    };
    let outer: Vec<&str> = outer.split_ascii_whitespace().collect();
    match look(client, args.name.as_bytes(), None).await {
        Ok(Seen::Leased(status)) => {
            let ours = |id: &PermitId| outer.iter().any(|owner| id.is_of(owner, 1));
            status.available <= 0 && status.permits.iter().all(|permit| ours(&permit.id))
        }
        Ok(seen) => seen.owners().iter().any(|owner| outer.contains(&&**owner)),
        Err(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_is_a_duration_forever_or_nothing() {
        assert_eq!(parse_wait("forever"), Ok(Wait::Forever));
        assert_eq!(parse_wait("0"), Ok(Wait::No));
        assert_eq!(parse_wait("0s"), Ok(Wait::No));
        assert_eq!(
            parse_wait("1m 30s"),
            Ok(Wait::AtMost(Duration::from_secs(90)))
        );
        assert_eq!(
            parse_wait("5"),
            Ok(Wait::AtMost(Duration::from_secs(5))),
            "as flock -w"
        );
        assert!(parse_wait("-1s").is_err());
        assert!(parse_wait("5x").unwrap_err().contains("`forever`"));
    }
}
