//! Readers of replies, shared by the queries of all primitives.

use crate::error::{QueryError, Rejection};
use stanchion_transport::Reply;

/// The error for a reply that none of the scripts gives.
#[must_use]
pub fn unexpected(reply: &Reply) -> QueryError {
    QueryError::Rejected {
        rejection: Rejection::Other {
            detail: format!("an unexpected reply: {reply:?}"),
        },
    }
}

/// The number in a reply; `None` if it is negative or no number.
#[must_use]
pub fn natural(reply: &Reply) -> Option<u64> {
    u64::try_from(reply.as_int()?).ok()
}

/// The owner and the hold count in the fields of a lock's hash; `None` if it has no fields.
///
/// # Errors
/// [`Rejection::WrongType`]: the hash is not that of a lock.
pub fn holder_in(fields: &[Reply]) -> Result<Option<(String, u32)>, QueryError> {
    let something_else = |what: &str| QueryError::Rejected {
        rejection: Rejection::WrongType {
            detail: format!("the name belongs to something else: its hash {what}"),
        },
    };
    match fields {
        [] => Ok(None),
        [owner, count] => {
            // Another program's data may be long or secret, so the error does not show it.
            let owner = owner.as_text().filter(|owner| owner.contains(':'));
            let count = count.as_int().and_then(|n| n.try_into().ok());
            owner
                .map(str::to_owned)
                .zip(count)
                .map(Some)
                .ok_or_else(|| something_else("has a field that is no holder"))
        }
        _ => Err(something_else("has more than one field")),
    }
}
