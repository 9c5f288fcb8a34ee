//! What an error of the server or of the connection means: the one table everybody uses.

use redis::{RedisError, Value};

use super::Reply;
use crate::error::{Outage, Rejection};

/// A call that brought no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Failure {
    /// It was sent and may have been executed, now or later (P8: ambiguous).
    Unanswered(Outage),
    /// It was not executed; another time it may be.
    NotNow(Outage),
    /// It was not executed and will not be.
    Rejected(Rejection),
}

/// The server does not know the script: not executed.
pub(super) const NO_SCRIPT: &str = "NOSCRIPT";

/// The server is a replica: not executed.
pub(super) const READ_ONLY: &str = "READONLY";

/// Sorts what redis-rs gave back. `Err` holds the error code beside the failure.
pub(super) fn judge(result: Result<Value, RedisError>) -> Result<Reply, (String, Failure)> {
    // The low-level call reports error replies as values.
    match result.and_then(Value::extract_error) {
        Ok(value) => Ok(Reply::from_value(value)),
        Err(error) => match error.code() {
            Some(code) => {
                let detail = error.detail().unwrap_or_default();
                Err((code.to_owned(), by_code(code, detail)))
            }
            None => Err((
                String::new(),
                Failure::Unanswered(Outage::Unanswered {
                    detail: error.to_string(),
                }),
            )),
        },
    }
}

/// Error replies: our scripts are ordered so that an error is raised before their first write.
pub(crate) fn by_code(code: &str, detail: &str) -> Failure {
    let text = format!("{code} {detail}");
    match code {
        "LOADING" | "MASTERDOWN" | "READONLY" | "NOREPLICAS" | "MISCONF" | "BUSY" | "TRYAGAIN"
        | "CLUSTERDOWN" | "NOSCRIPT" | "UNKILLABLE" | "NOGOODSLAVE" => {
            Failure::NotNow(Outage::Refused {
                code: code.into(),
                detail: detail.into(),
            })
        }
        "OOM" => Failure::Rejected(Rejection::OutOfMemory { detail: text }),
        "WRONGTYPE" => Failure::Rejected(Rejection::WrongType { detail: text }),
        "NOPERM" => Failure::Rejected(Rejection::NotPermitted { detail: text }),
        "NOAUTH" | "WRONGPASS" => Failure::Rejected(Rejection::Unauthenticated { detail: text }),
        "MOVED" | "ASK" | "CROSSSLOT" => Failure::Rejected(Rejection::Cluster { detail: text }),
        _ => Failure::Rejected(Rejection::Other { detail: text }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_for_now_are_told_from_refusals_for_good() {
        assert!(matches!(by_code("LOADING", "x"), Failure::NotNow(_)));
        assert!(matches!(by_code("READONLY", "x"), Failure::NotNow(_)));
        assert!(matches!(
            by_code("OOM", "x"),
            Failure::Rejected(Rejection::OutOfMemory { .. })
        ));
        assert!(matches!(
            by_code("WRONGTYPE", "x"),
            Failure::Rejected(Rejection::WrongType { .. })
        ));
        assert!(matches!(
            by_code("ERR", "x"),
            Failure::Rejected(Rejection::Other { .. })
        ));
    }

    #[test]
    fn a_broken_connection_is_ambiguous() {
        let broken = RedisError::from(std::io::Error::from(std::io::ErrorKind::BrokenPipe));
        assert!(matches!(
            judge(Err(broken)),
            Err((_, Failure::Unanswered(_)))
        ));
    }
}
