//! Waiting for the lock, and reporting it.

use std::path::Path;
use std::pin::pin;
use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Client, QueryError, Rejection};
use tokio::time::Instant;

use super::local::Local;
use super::report::Report;
use super::target::{Held, Target};
use super::work::WorkArgs;
use super::{RunArgs, job};
use crate::duration;
use crate::exit::{self, Failure, Library};
use crate::messages;
use crate::people::People;

/// The wait after which the user learns what `run` waits for.
pub(crate) const PATIENCE: Duration = Duration::from_millis(300);

/// The first pause between two attempts to reach the server.
pub(super) const FIRST_PAUSE: Duration = Duration::from_millis(200);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

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

    /// Pauses before the next attempt, at most for the rest of the wait.
    pub(super) async fn pause(self, pause: Duration) {
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
    let program = work
        .command
        .first()
        .map(Path::new)
        .and_then(Path::file_name);
    program.unwrap_or_default().to_string_lossy().into_owned()
}

/// Connects. Retries an unreachable server for the time of `--wait`.
pub(super) async fn connect(
    args: &RunArgs,
    local: Option<&Local>,
    asked: Instant,
    report: &Report,
) -> Result<Client, Failure> {
    let config = args.work.server.config()?.name(application(&args.work));
    let mut pause = FIRST_PAUSE;
    loop {
        let connected = async {
            if let Some(local) = local {
                local.find(report).await?;
            }
            Ok(Client::connect_with(config.clone())
                .await
                .map_err(Library)?)
        };
        let failure: Failure = match connected.await {
            Ok(client) => return Ok(client),
            Err(failure) => failure,
        };
        let Some(left) = args.wait.left(asked) else {
            return Err(failure);
        };
        // Without the permission to start a server, only another command starts it.
        let waits = local.is_none_or(Local::may_start);
        if failure.code() != exit::UNAVAILABLE || !waits {
            return Err(failure);
        }
        if pause == FIRST_PAUSE {
            report.say(format_args!("{}", messages::again(&failure)));
        }
        left.pause(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
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
        return job::begin(args, client, wait, asked, report).await;
    }
    let target = Target::new(client, args, |text| report.say(text)).await?;
    loop {
        let acquired = {
            let mut asking = pin!(ask(args, wait, &target));
            tokio::select! {
                biased;
                acquired = &mut asking => acquired,
                refused = say_what_for(&target, client, report) => match refused {
                    Some(refused) => return Err(refused),
                    None => asking.await,
                },
            }
        };
        let error = match acquired {
            Ok(Some(held)) => return Ok(Answer::Acquired(held)),
            Ok(None) => return conflict(&target, client, report, None).await,
            Err(AcquireError::TimedOut { free_by, .. })
                if client.is_connected() && (free_by.is_none() || target.has_queue()) =>
            {
                return conflict(&target, client, report, Some(asked.elapsed())).await;
            }
            Err(error) => error,
        };
        let is_outage = matches!(
            error,
            AcquireError::Unavailable { .. } | AcquireError::Ambiguous { .. }
        );
        match wait.left(asked) {
            Some(left) if is_outage => {
                report.say(format_args!("{}", messages::again(&error)));
                wait = left;
                left.pause(FIRST_PAUSE).await;
            }
            _ if matches!(error, AcquireError::TimedOut { .. }) && client.is_connected() => {
                return Ok(Answer::Conflict(error.to_string()));
            }
            _ if matches!(error, AcquireError::TimedOut { .. }) => {
                let message = format!("{error}, and the server cannot be reached");
                return Err(Failure::new(exit::UNAVAILABLE, message));
            }
            _ => return Err(Library(error).into()),
        }
    }
}

/// Returns the conflict with another holder, or an error if the key is not a lock. `waited`: the wait, if there was one.
async fn conflict(
    target: &Target,
    client: &Client,
    report: &Report,
    waited: Option<Duration>,
) -> Result<Answer, Failure> {
    let people = people(client, report).await;
    let taken = match target.in_the_way(&people).await {
        Err(error) if is_foreign(&error) => return Err(Library(error).into()),
        Ok(Some(who)) if report.is_for_human() => messages::is(target.name(), &who),
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
async fn say_what_for(target: &Target, client: &Client, report: &Report) -> Option<Failure> {
    tokio::time::sleep(PATIENCE).await;
    let people = people(client, report).await;
    let why = match target.in_the_way(&people).await {
        Err(error) if is_foreign(&error) => return Some(Library(error).into()),
        Err(error) => Some(error.to_string()),
        Ok(who) => who,
    };
    let text = messages::waiting_for(target.name(), why.as_deref());
    report.say_to_human(format_args!("{text}"));
    None
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
