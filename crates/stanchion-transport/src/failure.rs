//! The meaning of an error of the server or of the connection. All callers use this one table.

use redis::{RedisError, Value};

use crate::Reply;
use crate::error::{Outage, ServerRejection};

/// A call that brought no reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The call was sent; it may have been executed, or may still be (P8: ambiguous).
    Unanswered(Outage),
    /// The call was not executed; a later attempt may succeed.
    NotNow(Outage),
    /// The call was not executed, and a later attempt would be refused too.
    Rejected(ServerRejection),
}

/// The code for a script that the server does not know: not executed.
pub(crate) const NO_SCRIPT: &str = "NOSCRIPT";

/// The code for a write to a replica: not executed.
pub(crate) const READ_ONLY: &str = "READONLY";

/// Sorts a result of the redis crate. `Err` holds the error code, empty if there is none, and the failure.
pub(crate) fn judge(result: Result<Value, RedisError>) -> Result<Reply, (String, Failure)> {
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

/// Returns the failure for an error reply. No error reply is ambiguous: stanchion's scripts raise errors before their first
/// write.
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
        "OOM" => Failure::Rejected(ServerRejection::OutOfMemory { detail: text }),
        "WRONGTYPE" => Failure::Rejected(ServerRejection::WrongType { detail: text }),
        "NOPERM" => Failure::Rejected(ServerRejection::NotPermitted { detail: text }),
        "NOAUTH" | "WRONGPASS" => {
            Failure::Rejected(ServerRejection::Unauthenticated { detail: text })
        }
        "MOVED" | "ASK" | "CROSSSLOT" => {
            Failure::Rejected(ServerRejection::Cluster { detail: text })
        }
        _ => Failure::Rejected(ServerRejection::Other { detail: text }),
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
            Failure::Rejected(ServerRejection::OutOfMemory { .. })
        ));
        assert!(matches!(
            by_code("WRONGTYPE", "x"),
            Failure::Rejected(ServerRejection::WrongType { .. })
        ));
        assert!(matches!(
            by_code("ERR", "x"),
            Failure::Rejected(ServerRejection::Other { .. })
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
