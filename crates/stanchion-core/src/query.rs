//! Runs a script and waits for its answer, for at most the operation timeout.

use std::pin::pin;
use std::time::Duration;

use crate::error::QueryError;
use crate::wire::{Retries, Wire};
use stanchion_transport::{Call, Failure, Moment, Outage, Path, Reply, timeout};

/// The rule for sending a request again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Resend {
    /// Send the script until it is answered. The script may run more than once.
    UntilAnswered,
    /// Send the script again only if it is known not to have run.
    Never,
}

/// Runs a script until it is answered or the operation timeout has passed.
pub(crate) async fn query(
    wire: &Wire,
    path: Path,
    call: &Call,
    resend: Resend,
) -> Result<Reply, QueryError> {
    let until = wire.clock.now() + wire.config.operation_timeout;
    query_until(wire, path, call, resend, until).await
}

/// Runs a script until it is answered or `until` has passed.
pub(crate) async fn query_until(
    wire: &Wire,
    path: Path,
    call: &Call,
    resend: Resend,
    until: Moment,
) -> Result<Reply, QueryError> {
    if wire.closed.is_cancelled() {
        return Err(QueryError::Shutdown);
    }
    tokio::select! {
        biased;
        // First in the order, so that an answer which has arrived counts.
        answer = ask(wire, path, call, resend, until) => answer,
        () = wire.closed.cancelled() => Err(QueryError::Shutdown),
    }
}

async fn ask(
    wire: &Wire,
    path: Path,
    call: &Call,
    resend: Resend,
    until: Moment,
) -> Result<Reply, QueryError> {
    let (mut retries, mut last) = (Retries::default(), None);
    let limit = until.since(wire.clock.now());
    loop {
        let left = until.since(wire.clock.now());
        let Some(answer) = timeout(left, pin!(wire.call(path, call))).await else {
            // P8: a request is in flight. Earlier ones may have got a reason, which helps more than the time that has passed.
            let silence = || unanswered_in(limit);
            return Err(match resend {
                Resend::UntilAnswered => QueryError::Unavailable {
                    outage: last.unwrap_or_else(silence),
                },
                Resend::Never => QueryError::Unanswered { outage: silence() },
            });
        };
        match answer {
            Ok(reply) => return Ok(reply),
            Err(Failure::Rejected(rejection)) => {
                return Err(QueryError::Rejected {
                    rejection: rejection.into(),
                });
            }
            Err(Failure::Unanswered(outage)) if resend == Resend::Never => {
                return Err(QueryError::Unanswered { outage });
            }
            Err(Failure::Unanswered(outage) | Failure::NotNow(outage)) => {
                if wire.clock.now() >= until {
                    return Err(QueryError::Unavailable { outage });
                }
                last = Some(outage);
            }
        }
        wire.recover(until, &mut retries).await;
    }
}

/// Returns the outage of a request that was not answered within `timeout`.
pub(crate) fn unanswered_in(timeout: Duration) -> Outage {
    Outage::Unanswered {
        detail: format!("nothing within {}", humantime::format_duration(timeout)),
    }
}
