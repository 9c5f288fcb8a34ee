//! Runs a script and waits for its answer, for at most the operation timeout.

use std::pin::pin;
use std::time::Duration;

use crate::error::QueryError;
use crate::wire::Wire;
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
    let limit = until.since(wire.clock.now());
    let asking = pin!(async {
        loop {
            match wire.call(path, call).await {
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
                }
            }
            wire.recover(until).await;
        }
    });
    tokio::select! {
        biased;
        // First in the order, so that an answer which has arrived counts.
        answer = timeout(limit, asking) => answer.unwrap_or_else(|| {
            let outage = unanswered_in(wire.config.operation_timeout);
            Err(QueryError::Unavailable { outage })
        }),
        () = wire.closed.cancelled() => Err(QueryError::Shutdown),
    }
}

/// Returns the outage of a request that was not answered within `timeout`.
pub(crate) fn unanswered_in(timeout: Duration) -> Outage {
    Outage::Unanswered {
        detail: format!("nothing within {}", humantime::format_duration(timeout)),
    }
}
