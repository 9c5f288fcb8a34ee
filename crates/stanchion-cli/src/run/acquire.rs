//! Waiting for the lock, and saying so.

use std::pin::pin;
use std::time::Duration;

use stanchion::{AcquireError, AcquireOptions, Lock, LockGuard};

use super::RunArgs;
use super::report::Report;
use crate::exit::{Failure, Library};
use crate::output;
use crate::status::lease_left;

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
    Acquired(LockGuard),
    /// Somebody else held it all the time.
    Conflict(String),
}

/// Acquires as `--wait` says.
pub(super) async fn acquire(
    args: &RunArgs,
    lock: &Lock,
    report: &Report,
) -> Result<Answer, Failure> {
    let acquired = {
        let mut asking = pin!(ask(args.wait, lock));
        tokio::select! {
            biased;
            acquired = &mut asking => acquired,
            () = say_what_for(lock, report) => asking.await,
        }
    };
    match acquired {
        Ok(Some(guard)) => Ok(Answer::Acquired(guard)),
        Ok(None) => Ok(Answer::Conflict(held(lock))),
        Err(AcquireError::TimedOut {
            waited,
            free_by: None,
            ..
        }) => {
            let waited = output::rough(waited);
            Ok(Answer::Conflict(format!(
                "{}; gave up after {waited}",
                held(lock)
            )))
        }
        Err(error @ AcquireError::TimedOut { .. }) => Ok(Answer::Conflict(error.to_string())),
        Err(error) => Err(Library(error).into()),
    }
}

fn held(lock: &Lock) -> String {
    format!("{} is held by somebody else", lock.name())
}

async fn ask(wait: Wait, lock: &Lock) -> Result<Option<LockGuard>, AcquireError> {
    match wait {
        Wait::Forever => lock.acquire().await.map(Some),
        Wait::AtMost(most) => lock
            .acquire_with(AcquireOptions::new().timeout(most))
            .await
            .map(Some),
        Wait::No => lock.try_acquire().await,
    }
}

async fn say_what_for(lock: &Lock, report: &Report) {
    tokio::time::sleep(PATIENCE).await;
    let name = lock.name();
    let holder = match lock.status().await {
        Ok(status) => status.holder,
        Err(error) => return report.say_to_human(format_args!("waiting for {name} ({error})")),
    };
    match holder {
        Some(holder) => report.say_to_human(format_args!(
            "waiting for {name} (held by {}, {})",
            holder.owner,
            lease_left(&holder)
        )),
        None => report.say_to_human(format_args!("waiting for {name}")),
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
