//! The table that maps errors of the server or of the connection to their meaning. All callers use this one table.

use redis::{RedisError, Value};

use crate::error::{Outage, ServerRejection};
use crate::printable::Printable;
use crate::url::Place;
use crate::{Call, Reply};

/// A call without a reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// The call was sent; the server may have executed it, or may still execute it (P8: ambiguous).
    Unanswered(Outage),
    /// The call was not executed. A later attempt may succeed.
    NotNow(Outage),
    /// The call was not executed, and a later attempt would also be refused.
    Rejected(ServerRejection),
}

impl Failure {
    /// Adds the keys of `call` and the ACL rules for them, if the server only reports that one of the keys is not permitted.
    pub(crate) fn about(self, call: &Call) -> Self {
        let Self::Rejected(ServerRejection::NotPermitted { detail }) = self else {
            return self;
        };
        let keys: Vec<_> = call
            .keys()
            .map(|key| Printable::new(key).to_string())
            .collect();
        let detail = match keys.as_slice() {
            [] => detail,
            _ if !detail.contains("key") => detail,
            [key] => format!("{detail}; the key is {key}: ACL SETUSER … ~{key}"),
            several => format!(
                "{detail}; the keys are {}: ACL SETUSER … ~{}",
                several.join(", "),
                several.join(" ~")
            ),
        };
        Self::Rejected(ServerRejection::NotPermitted { detail })
    }

    /// Adds the URL of the server's cluster to the error, for a client of one server.
    pub(crate) fn of_one_server(self) -> Self {
        let Self::Rejected(ServerRejection::Cluster { detail }) = self else {
            return self;
        };
        let mut words = detail.split_ascii_whitespace();
        let place = match words.next() {
            Some("MOVED" | "ASK") => words.nth(1).unwrap_or_default(),
            _ => "",
        };
        let detail = match Place::of_node(place) {
            None => detail,
            Some(place) => format!("{detail}; connect with redis+cluster://{place}"),
        };
        Self::Rejected(ServerRejection::Cluster { detail })
    }
}

/// The code for an unknown script: not executed.
pub(crate) const NO_SCRIPT: &str = "NOSCRIPT";

/// Returns whether only a replica refuses so: a write (`READONLY`), or anything while it has no master (`MASTERDOWN`).
pub(crate) fn is_of_replica(failure: &Failure) -> bool {
    matches!(failure, Failure::NotNow(Outage::Refused { code, .. }) if matches!(code.as_str(), "READONLY" | "MASTERDOWN"))
}

/// The text of a server that has `maxclients` connections.
pub(crate) const TOO_MANY: &str = "max number of clients";

/// Classifies a result of the redis crate. `Err` holds the error code, empty if there is none, and the failure.
pub(crate) fn judge(result: Result<Value, RedisError>) -> Result<Reply, (String, Failure)> {
    // The low-level call returns error replies as values.
    match result.and_then(Value::extract_error) {
        Ok(value) => Ok(Reply::from_value(value)),
        Err(error) => match error.code() {
            // The redis crate separates the code from the rest: its detail does not begin with the code.
            Some(code) => {
                let detail = error.detail().unwrap_or_default();
                Err((code.to_owned(), by_code(code, detail)))
            }
            // Only the server's error replies have a code. Any other error belongs to the connection: the connection ended,
            // or its bytes are not RESP. The request may have been written before, so it may run (P8).
            None => Err((
                String::new(),
                Failure::Unanswered(Outage::Unanswered {
                    detail: error.to_string(),
                }),
            )),
        },
    }
}

/// Cuts the digest of the script and the line in it, ` script: 1ed3…, on @user_script:69.`, which mean nothing to a user of this library.
fn without_place(detail: &str) -> &str {
    let is_place = |rest: &str| {
        let (digest, line) = rest.split_at_checked(40).unwrap_or_default();
        digest.bytes().all(|byte| byte.is_ascii_hexdigit())
            && line.starts_with(", on @user_script:")
    };
    match detail.rsplit_once(" script: ") {
        Some((text, rest)) if is_place(rest) => text,
        _ => detail,
    }
}

/// The error of a script that accesses a key which is not on this node. Stanchion's scripts name all keys of one slot, so the slot is moving,
/// and the script itself has removed the key: the server looks for it on the other node.
const MOVED_AWAY: &str = "Script attempted to access a non local key";

/// Returns the failure for an error reply. Only one error reply is ambiguous: stanchion's scripts raise all others before their first
/// write, or undo what they have written (R15).
pub(crate) fn by_code(code: &str, detail: &str) -> Failure {
    let detail = without_place(detail);
    // Includes the code: users search for it, and `cluster::Redirect` parses it.
    let text = format!("{code} {detail}");
    match code {
        // The server sends these errors before it runs a script, or at the script's first write, and the same request may
        // succeed later. LOADING: the server still reads its data. MASTERDOWN: a replica without its master. READONLY: a
        // replica, so the client does not know of a failover yet. NOREPLICAS: fewer replicas than `min-replicas-to-write`.
        // MISCONF: the server cannot persist its data and refuses writes. BUSY: the script of another client runs for too
        // long. TRYAGAIN: a slot moves and its keys are on two nodes. CLUSTERDOWN: a slot has no owner, or the node sees no
        // majority. NOSCRIPT: `Link::call` retries with EVAL.
        "LOADING" | "MASTERDOWN" | "READONLY" | "NOREPLICAS" | "MISCONF" | "BUSY" | "TRYAGAIN"
        | "CLUSTERDOWN" | "NOSCRIPT" | "UNKILLABLE" | "NOGOODSLAVE" => {
            Failure::NotNow(Outage::Refused {
                code: code.into(),
                detail: detail.into(),
            })
        }
        // P8: the script has run in part. A second run completes it, after the slot has moved.
        "ERR" if detail.starts_with(MOVED_AWAY) => Failure::Unanswered(Outage::Refused {
            code: code.into(),
            detail: detail.into(),
        }),
        // Final, although memory may become free: an acquire that waits for memory would not report why it waits. Renewals
        // and releases begin with commands that the server permits at the limit.
        "OOM" => Failure::Rejected(ServerRejection::OutOfMemory { detail: text }),
        // The key belongs to another program. A command inside a script fails with the same code as outside.
        "WRONGTYPE" => Failure::Rejected(ServerRejection::WrongType { detail: text }),
        // The same for a command inside a script, because scripts run with the permissions of their caller.
        "NOPERM" => Failure::Rejected(ServerRejection::NotPermitted { detail: text }),
        "NOAUTH" | "WRONGPASS" => {
            Failure::Rejected(ServerRejection::Unauthenticated { detail: text })
        }
        // For the client of one server a redirect is final, because the client knows no other node. `Cluster::call` follows
        // redirects before a caller sees them.
        "MOVED" | "ASK" | "CROSSSLOT" => {
            Failure::Rejected(ServerRejection::Cluster { detail: text })
        }
        // Sent instead of a greeting. Another client may end.
        "ERR" if detail.starts_with(TOO_MANY) => Failure::NotNow(Outage::Refused {
            code: code.into(),
            detail: detail.into(),
        }),
        // This includes `ERR`: a syntax or argument error that would also occur the next time. An unknown code is no reason
        // to repeat a request.
        _ => Failure::Rejected(ServerRejection::Other { detail: text }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_a_script_is_cut() {
        let place = format!(" script: {}, on @user_script:36.", "1ed3a6e0".repeat(5));
        let text = "command not allowed when used memory > 'maxmemory'.";
        assert_eq!(without_place(&format!("{text}{place}")), text);
        for other in ["bad script: x, on @user_script:1.", " script: ", "x"] {
            assert_eq!(without_place(other), other);
        }
        let Failure::Rejected(ServerRejection::WrongType { detail }) =
            by_code("WRONGTYPE", &format!("Operation{place}"))
        else {
            panic!("a wrong type");
        };
        assert_eq!(detail, "WRONGTYPE Operation");
    }

    #[test]
    fn temporary_refusals_differ_from_final_ones() {
        assert!(matches!(by_code("LOADING", "x"), Failure::NotNow(_)));
        let full = by_code("ERR", "max number of clients reached");
        assert!(matches!(full, Failure::NotNow(_)), "{full:?}");
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
    fn an_error_after_a_write_is_ambiguous() {
        let detail = "Script attempted to access a non local key in a cluster node";
        assert!(matches!(by_code("ERR", detail), Failure::Unanswered(_)));
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
