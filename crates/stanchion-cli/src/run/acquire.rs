//! Waiting for the lock, and saying so.

use std::pin::pin;
use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Client};

use super::RunArgs;
use super::report::Report;
use super::target::{Held, Target};
use crate::exit::{Failure, Library};
use crate::output;

/// Who waits for longer than this is told what for.
const PATIENCE: Duration = Duration::from_millis(300);

/// `--wait`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Wait {
    /// Until it is acquired.
    Forever,
    /// At most so long.
    AtMost(Duration),
    /// Ask once.
    No,
}

pub(super) fn parse_wait(text: &str) -> Result<Wait, String> {
    match text {
        "forever" => Ok(Wait::Forever),
        "0" => Ok(Wait::No),
        _ => match humantime::parse_duration(text) {
            Ok(Duration::ZERO) => Ok(Wait::No),
            Ok(most) => Ok(Wait::AtMost(most)),
            Err(error) => Err(format!("{error}; or `forever`, or 0")),
        },
    }
}

/// What waiting brought.
pub(super) enum Answer {
    Acquired(Held),
    /// Somebody else held it all the time.
    Conflict(String),
}

/// Acquires as `--wait` says.
pub(super) async fn acquire(
    args: &RunArgs,
    client: &Client,
    report: &Report,
) -> Result<Answer, Failure> {
    let target = Target::new(client, args, |text| report.say(text)).await?;
    let acquired = {
        let mut asking = pin!(ask(args.wait, &target));
        tokio::select! {
            biased;
            acquired = &mut asking => acquired,
            () = say_what_for(&target, report) => asking.await,
        }
    };
    match acquired {
        Ok(Some(held)) => Ok(Answer::Acquired(held)),
        Ok(None) => Ok(Answer::Conflict(target.taken())),
        Err(AcquireError::TimedOut {
            waited,
            free_by: None,
            ..
        }) => {
            let waited = output::rough(waited);
            let taken = target.taken();
            Ok(Answer::Conflict(format!("{taken}; gave up after {waited}")))
        }
        Err(error @ AcquireError::TimedOut { .. }) => Ok(Answer::Conflict(error.to_string())),
        Err(error) => Err(Library(error).into()),
    }
}

async fn ask(wait: Wait, target: &Target) -> Result<Option<Held>, AcquireError> {
    let options = AcquireOptions::new();
    match wait {
        Wait::Forever => target.acquire(options).await.map(Some),
        Wait::AtMost(most) => target.acquire(options.timeout(most)).await.map(Some),
        Wait::No => target.try_acquire().await,
    }
}

async fn say_what_for(target: &Target, report: &Report) {
    tokio::time::sleep(PATIENCE).await;
    let name = target.name();
    match target.in_the_way().await {
        Err(error) => report.say_to_human(format_args!("waiting for {name} ({error})")),
        Ok(Some(who)) => report.say_to_human(format_args!("waiting for {name} ({who})")),
        Ok(None) => report.say_to_human(format_args!("waiting for {name}")),
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
        assert!(parse_wait("5").unwrap_err().contains("unit"));
        assert!(parse_wait("-1s").is_err());
    }
}
