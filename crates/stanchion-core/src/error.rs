//! Errors that say what may now be true on the server (P8).
//!
//! | class | state on the server | what to do |
//! |---|---|---|
//! | not acquired (`TimedOut`) | no effect of this call; or, with `free_by`, a leftover that is being removed | try again at any time |
//! | deadlock (`Deadlock`) | as not acquired | release the caller's holds, then retry the whole operation |
//! | ambiguous | it may have happened; a leftover is being removed, and is gone by `free_by` | treat as not done, or wait until `free_by` |
//! | lost | the hold has ended; another owner may hold | stop the work that needed it |
//! | unavailable | no effect of this call | worth retrying |
//! | rejected | no effect of this call | fix the configuration |
//!
//! Long: all errors in one place, and a test that displays each of them.

use std::borrow::Cow;
use std::convert::Infallible;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use crate::deadlock::DeadlockEdge;
use crate::free_by::FreeBy;
use crate::lease::{InvalidLease, Lease, RULE};
use crate::millis::Brief;
use crate::name::{InvalidName, Name};
use crate::wire_owner::WireOwner;
use stanchion_transport::{ConfigError, ConnectError, Outage, Printable, ServerRejection};

/// A request that the server refused, or that was refused before it was sent. Retrying does not help.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Rejection {
    /// The key exists and belongs to something else. The key was not touched.
    #[error(
        "the key holds another kind of value and was left untouched: {}",
        Printable::new(detail)
    )]
    WrongType {
        /// The server's message.
        detail: String,
    },
    /// `NOAUTH`, `WRONGPASS`: credentials are missing or wrong.
    #[error("not authenticated: {}", Printable::new(detail))]
    Unauthenticated {
        /// The server's message.
        detail: String,
    },
    /// `NOPERM`: the user lacks a right. `docs/running/rights.md` lists the rights that are needed.
    #[error("not permitted: {}", Printable::new(detail))]
    NotPermitted {
        /// The server's message.
        detail: String,
    },
    /// `maxmemory` is reached. Nothing was written; releases and renewals still work.
    #[error("the server is out of memory: {}", Printable::new(detail))]
    OutOfMemory {
        /// The server's message.
        detail: String,
    },
    /// The server is part of a cluster and the configuration does not say so, or keys are in different slots.
    #[error("the server is part of a cluster: {}", Printable::new(detail))]
    Cluster {
        /// The server's message.
        detail: String,
    },
    /// Another error of the server.
    #[error("the server answered: {}", Printable::new(detail))]
    Other {
        /// The server's message, or the fault in its answer.
        detail: String,
    },
    /// The owner holds the name already, so this acquire would wait for its own hold indefinitely: a reader requests the write side, or re-entry was
    /// refused. Nothing was sent.
    #[error("{owner} {rule}")]
    AlreadyHeld {
        /// The owner.
        owner: WireOwner,
        /// The existing hold, and how to resolve the conflict.
        rule: &'static str,
    },
    /// The object that was waited for was deleted.
    #[error("it was deleted")]
    Deleted,
    /// An option conflicts with the others or with the rules; nothing was sent.
    #[error("invalid option: {rule}")]
    InvalidOption {
        /// The option, its value and the rule.
        rule: String,
    },
}

impl From<ServerRejection> for Rejection {
    fn from(rejection: ServerRejection) -> Self {
        match rejection {
            ServerRejection::WrongType { detail } => Self::WrongType { detail },
            ServerRejection::Unauthenticated { detail } => Self::Unauthenticated { detail },
            ServerRejection::NotPermitted { detail } => Self::NotPermitted { detail },
            ServerRejection::OutOfMemory { detail } => Self::OutOfMemory { detail },
            ServerRejection::Cluster { detail } => Self::Cluster { detail },
            ServerRejection::Other { detail } => Self::Other { detail },
            // A kind that this version does not know keeps its text.
            other => Self::Other {
                detail: other.to_string(),
            },
        }
    }
}

/// The reason why a hold ended before it was released.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LostReason {
    /// No renewal succeeded in time: the lease has ended by this client's conservative count.
    #[error("the lease ran out without a successful renewal")]
    Expired,
    /// The server says that this owner holds nothing: the hold was released by force, deleted, evicted, or lost in a failover.
    #[error("the server no longer knows this hold")]
    Gone,
    /// The hold reached `max_hold`.
    #[error("the hold reached its maximum duration")]
    MaxHold,
    /// The client was shut down.
    #[error("the client was shut down")]
    Shutdown,
}

/// The hold ended before the work did; the work was dropped.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("lost {name}: {reason}")]
#[non_exhaustive]
pub struct LeaseLost {
    /// The name that was held.
    pub name: Name,
    /// The reason of its end.
    pub reason: LostReason,
}

/// The error of an acquire that returned no guard.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AcquireError {
    /// The deadline passed first.
    #[error("timed out after {} waiting for {name}{}{}", Brief(*.waited), Remark(.remark.as_deref()), Leftover(*.free_by))]
    TimedOut {
        /// The requested name.
        name: Name,
        /// The time that the call waited.
        waited: Duration,
        /// `None`: this call holds nothing and can no longer be granted anything.
        /// Otherwise a request was in flight, or the call had an entry in a queue. The server may grant to such an entry until it confirms the
        /// removal. The call is being undone, and its effect is gone after this time even if the server does not answer.
        free_by: Option<FreeBy>,
        /// What the primitive knows of the reason: a semaphore that does not exist, the decision of a limiter, the outcome at each node.
        remark: Option<Cow<'static, str>>,
    },
    /// Requests went unanswered, so the server may have granted the hold. The grant is being removed.
    #[error(
        "cannot tell whether {name} was acquired ({outage}); it is being released and is free {free_by}"
    )]
    Ambiguous {
        /// The requested name.
        name: Name,
        /// The time after which the leftover is gone in any case.
        free_by: FreeBy,
        /// The last failure.
        outage: Outage,
    },
    /// The server could not be reached, and this call left nothing on it. Worth retrying.
    #[error("unavailable while acquiring {name}: {outage}")]
    Unavailable {
        /// The requested name.
        name: Name,
        /// The last failure.
        outage: Outage,
    },
    /// The request cannot succeed as it is. Nothing was changed.
    #[error("rejected while acquiring {name}: {rejection}")]
    Rejected {
        /// The requested name.
        name: Name,
        /// The reason.
        rejection: Rejection,
    },
    /// The call waited in a deadlock across names, and gave up so that the others can continue: see [`OnDeadlock::Fail`](crate::OnDeadlock::Fail).
    /// The caller's own holds block the others until the caller releases them; then the whole operation can be retried.
    #[error("gave up after {} waiting for {name} in a deadlock: {}{}", Brief(*.waited), Cycle(.cycle), Leftover(*.free_by))]
    Deadlock {
        /// The requested name.
        name: Name,
        /// The time that the call waited.
        waited: Duration,
        /// As for [`AcquireError::TimedOut`].
        free_by: Option<FreeBy>,
        /// The waits that form the deadlock, including the wait of this call.
        cycle: Vec<DeadlockEdge>,
    },
    /// The client was shut down, or, with [`Background::CurrentRuntime`](crate::Background::CurrentRuntime), its runtime has ended.
    #[error("cannot acquire {name}: the client was shut down")]
    Shutdown {
        /// The requested name.
        name: Name,
    },
}

/// The remark in the message of a timeout.
struct Remark<'a>(Option<&'a str>);

impl std::fmt::Display for Remark<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.map_or(Ok(()), |remark| write!(f, ": {remark}"))
    }
}

/// The waits of a deadlock, one after the other.
struct Cycle<'a>(&'a [DeadlockEdge]);

impl std::fmt::Display for Cycle<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for (number, edge) in self.0.iter().enumerate() {
            let comma = if number == 0 { "" } else { "; " };
            write!(f, "{comma}{edge}")?;
        }
        Ok(())
    }
}

/// The second half of the message of a timeout: the leftover of the call.
#[derive(Debug)]
pub struct Leftover(pub Option<FreeBy>);

impl std::fmt::Display for Leftover {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(by) => write!(
                f,
                "; what it may have left is being undone, and is gone {by}"
            ),
        }
    }
}

/// The reason in a message, if there is one.
struct Because<'a>(&'a Option<Outage>);

impl std::fmt::Display for Because<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => Ok(()),
            Some(outage) => write!(f, " ({outage})"),
        }
    }
}

/// A duration outside the bounds of its setting. The setters that check return it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("invalid {setting} {}: {rule}", humantime::format_duration(*.value))]
#[non_exhaustive]
pub struct InvalidDuration {
    /// The setting.
    pub setting: &'static str,
    /// The duration as given.
    pub value: Duration,
    /// The bounds.
    pub rule: &'static str,
}

impl From<InvalidDuration> for Rejection {
    fn from(invalid: InvalidDuration) -> Self {
        let InvalidDuration {
            setting,
            value,
            rule,
        } = invalid;
        let value = humantime::format_duration(value);
        Self::InvalidOption {
            rule: format!("{setting} {value}: {rule}"),
        }
    }
}

/// Returns `value` if it is within `bounds`, which `rule` describes.
///
/// # Errors
/// [`InvalidDuration`] with the setting, the value and the rule.
pub fn bounded(
    setting: &'static str,
    value: Duration,
    bounds: RangeInclusive<Duration>,
    rule: &'static str,
) -> Result<Duration, InvalidDuration> {
    if bounds.contains(&value) {
        return Ok(value);
    }
    Err(InvalidDuration {
        setting,
        value,
        rule,
    })
}

/// Returns the lease of `length` that `option` sets.
///
/// # Errors
/// [`Rejection::InvalidOption`] outside the bounds of a [`Lease`].
pub fn lease_of(option: &str, length: Duration) -> Result<Lease, Rejection> {
    Lease::new(length).map_err(|_| {
        let given = humantime::format_duration(length);
        Rejection::InvalidOption {
            rule: format!("{option} {given}: {RULE}"),
        }
    })
}

/// A release that was not confirmed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ReleaseError {
    /// The hold had already ended: another owner may have held the name since. That owner's hold was not touched.
    #[error("released too late: {0}")]
    Lost(#[from] LeaseLost),
    /// No answer yet. The release continues in the background; the lock is free after `free_by` at the latest.
    #[error(
        "the release of {name} is unconfirmed{}; it goes on in the background and {name} is free {free_by}", Because(.outage)
    )]
    Ambiguous {
        /// The name that was held.
        name: Name,
        /// The time after which the lease has ended.
        free_by: FreeBy,
        /// The last failure of a request; `None` if no request has failed, but no answer arrived within the operation timeout.
        outage: Option<Outage>,
    },
    /// The server refused the release. The lease ends the hold; a permit without a lease stays taken.
    #[error(
        "the release of {name} was refused; only its lease, if it has one, ends it: {rejection}"
    )]
    Rejected {
        /// The name that was held.
        name: Name,
        /// The reason.
        rejection: Rejection,
    },
}

/// A renewal or re-entry that did not happen.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum RenewError {
    /// The hold has ended.
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// No answer in time. The hold remains as before, until its `valid_until`.
    #[error("unavailable while renewing {name}, still held: {outage}")]
    Unavailable {
        /// The name that is held.
        name: Name,
        /// The last failure.
        outage: Outage,
    },
    /// The server refused. The hold remains as before, until its `valid_until`.
    #[error("rejected while renewing {name}: {rejection}")]
    Rejected {
        /// The name that is held.
        name: Name,
        /// The reason.
        rejection: Rejection,
    },
}

/// A query to the server, or an administrative command, that failed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum QueryError {
    /// No answer in time.
    #[error("unavailable: {outage}")]
    Unavailable {
        /// The last failure.
        outage: Outage,
    },
    /// The request was sent, and may have been executed: the answer was lost.
    #[error("sent, but the answer was lost: {outage}")]
    Unanswered {
        /// The failure.
        outage: Outage,
    },
    /// The server refused.
    #[error("rejected: {rejection}")]
    Rejected {
        /// The reason.
        rejection: Rejection,
    },
    /// The client was shut down, or, with [`Background::CurrentRuntime`](crate::Background::CurrentRuntime), its runtime has ended. A
    /// request that was under way may have been executed.
    #[error("the client was shut down")]
    Shutdown,
}

/// Any error of a public call, of the client and of each primitive: `?` converts it. For callers that do not distinguish between the failed calls.
///
/// The error of a primitive becomes the variant with the same meaning, if there is one: the `TimedOut` of every primitive is an
/// [`AcquireError::TimedOut`]. Otherwise it is an [`Error::Primitive`].
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// See [`ConnectError`].
    #[error(transparent)]
    Connect(#[from] ConnectError),
    /// See [`InvalidName`].
    #[error(transparent)]
    Name(#[from] InvalidName),
    /// See [`InvalidLease`].
    #[error(transparent)]
    Lease(#[from] InvalidLease),
    /// See [`InvalidDuration`].
    #[error(transparent)]
    Duration(#[from] InvalidDuration),
    /// See [`AcquireError`].
    #[error(transparent)]
    Acquire(#[from] AcquireError),
    /// See [`ReleaseError`].
    #[error(transparent)]
    Release(#[from] ReleaseError),
    /// See [`RenewError`].
    #[error(transparent)]
    Renew(#[from] RenewError),
    /// See [`QueryError`].
    #[error(transparent)]
    Query(#[from] QueryError),
    /// See [`LeaseLost`].
    #[error(transparent)]
    Lost(#[from] LeaseLost),
    /// See [`AdoptError`]; its [`Failed`](AdoptError::Failed) is an [`AcquireError`].
    #[error(transparent)]
    Adopt(AdoptError),
    /// See [`InvalidTicket`].
    #[error(transparent)]
    Ticket(#[from] InvalidTicket),
    /// An error that only one primitive has, as it is: an invalid quota, a barrier that broke. `downcast_ref` finds its type.
    #[error(transparent)]
    Primitive(Arc<dyn std::error::Error + Send + Sync>),
}

impl Error {
    /// For primitives: wraps an error that no other primitive has.
    #[doc(hidden)]
    pub fn primitive(error: impl std::error::Error + Send + Sync + 'static) -> Self {
        Self::Primitive(Arc::new(error))
    }
}

impl From<ConfigError> for Error {
    fn from(error: ConfigError) -> Self {
        Self::Connect(error.into())
    }
}

/// For calls that cannot fail, such as those of the module `blocking` of the facade.
impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}

impl From<AdoptError> for Error {
    fn from(error: AdoptError) -> Self {
        match error {
            AdoptError::Failed(error) => error.into(),
            error => Self::Adopt(error),
        }
    }
}

/// A text that is not a ticket.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{:?} is not the ticket of a hold: {rule}", Printable::new(text))]
#[non_exhaustive]
pub struct InvalidTicket {
    /// The text; a long one is truncated.
    pub text: String,
    /// The rule that the text breaks.
    pub rule: &'static str,
}

/// The error of a ticket that was not adopted.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum AdoptError {
    /// The hold of this ticket has ended: its lease ran out, it was adopted before, or taken by force. Another owner may hold the name.
    #[error("the hold of this ticket for {name} has ended")]
    Gone {
        /// The name that was held.
        name: Name,
    },
    /// The ticket is for another kind or name. Nothing was sent.
    #[error("this ticket is for the {kind} {theirs}, not for the {ours}")]
    Other {
        /// The kind that the ticket is for.
        kind: String,
        /// The name that the ticket is for.
        theirs: String,
        /// The kind and name for which the adoption was tried.
        ours: String,
    },
    /// The server refused, or cannot be reached. After [`AcquireError::Ambiguous`] the hold may have been adopted, and is being released.
    #[error(transparent)]
    Failed(#[from] AcquireError),
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns the text of every error that contains a name, an owner or a text of the server.
    fn shown(name: &Name, owner: &WireOwner, text: &str) -> Vec<String> {
        let detail = || text.to_owned();
        let (name, owner) = (|| name.clone(), || owner.clone());
        let after = Duration::from_millis(5);
        let outages = [
            Outage::Disconnected {
                server: detail(),
                detail: detail(),
            },
            Outage::Unanswered { detail: detail() },
            Outage::Refused {
                code: detail(),
                detail: detail(),
            },
        ];
        let rejections = [
            Rejection::WrongType { detail: detail() },
            Rejection::Unauthenticated { detail: detail() },
            Rejection::NotPermitted { detail: detail() },
            Rejection::OutOfMemory { detail: detail() },
            Rejection::Cluster { detail: detail() },
            Rejection::Other { detail: detail() },
            Rejection::AlreadyHeld {
                owner: owner(),
                rule: "holds it",
            },
        ];
        let mut errors: Vec<Error> = vec![
            InvalidName::new(text.as_bytes(), crate::NameRule::Empty).into(),
            text.parse::<crate::HoldTicket>().unwrap_err().into(),
            LeaseLost {
                name: name(),
                reason: LostReason::Gone,
            }
            .into(),
            AdoptError::Gone { name: name() }.into(),
            AcquireError::TimedOut {
                name: name(),
                waited: after,
                free_by: Some(after.into()),
                remark: None,
            }
            .into(),
            AcquireError::Shutdown { name: name() }.into(),
            ReleaseError::Ambiguous {
                name: name(),
                free_by: after.into(),
                outage: None,
            }
            .into(),
            ReleaseError::Lost(LeaseLost {
                name: name(),
                reason: LostReason::Expired,
            })
            .into(),
            ConnectError::Unreachable {
                server: detail(),
                detail: detail(),
            }
            .into(),
            ConnectError::Tls {
                server: detail(),
                detail: detail(),
            }
            .into(),
            ConnectError::Credentials {
                server: detail(),
                detail: detail(),
            }
            .into(),
            ConnectError::UnsupportedServer {
                server: detail(),
                version: detail(),
            }
            .into(),
            ConnectError::Rejected {
                server: detail(),
                rejection: ServerRejection::Other { detail: detail() },
            }
            .into(),
        ];
        for outage in outages {
            let outage = || outage.clone();
            errors.push(
                AcquireError::Ambiguous {
                    name: name(),
                    free_by: after.into(),
                    outage: outage(),
                }
                .into(),
            );
            errors.push(
                AcquireError::Unavailable {
                    name: name(),
                    outage: outage(),
                }
                .into(),
            );
            errors.push(
                RenewError::Unavailable {
                    name: name(),
                    outage: outage(),
                }
                .into(),
            );
            errors.push(QueryError::Unavailable { outage: outage() }.into());
            errors.push(QueryError::Unanswered { outage: outage() }.into());
        }
        for rejection in rejections {
            let rejection = || rejection.clone();
            errors.push(
                AcquireError::Rejected {
                    name: name(),
                    rejection: rejection(),
                }
                .into(),
            );
            errors.push(
                ReleaseError::Rejected {
                    name: name(),
                    rejection: rejection(),
                }
                .into(),
            );
            errors.push(
                RenewError::Rejected {
                    name: name(),
                    rejection: rejection(),
                }
                .into(),
            );
            errors.push(
                QueryError::Rejected {
                    rejection: rejection(),
                }
                .into(),
            );
        }
        errors
            .iter()
            .flat_map(|error| [error.to_string(), format!("{error:?}")])
            .collect()
    }

    #[test]
    fn no_error_shows_a_character_that_acts_on_a_terminal() {
        let hostile = [
            "\x1b[2J\r\nFORGED\u{9b}\x07",
            "\u{202e}\u{2066}\u{200f}abc",
            &"\x1b]0;x\n".repeat(600),
        ];
        for text in hostile {
            let name = Name::new("", &text[..text.len().min(512)], crate::Placement::Anywhere);
            let owner = WireOwner::new(&uuid::Uuid::nil(), 1);
            for shown in shown(&name.unwrap(), &owner, text) {
                let acts = |c: char| c.is_control() || "\u{202e}\u{2066}\u{200f}".contains(c);
                assert_eq!(shown.find(acts), None, "{shown:?}");
            }
        }
    }

    /// An error of the server has the same text when it occurs during the connect as when it occurs later.
    #[test]
    fn a_rejection_by_the_server_keeps_its_kind_and_its_words() {
        let detail = || String::from("it said so");
        for given in [
            ServerRejection::WrongType { detail: detail() },
            ServerRejection::Unauthenticated { detail: detail() },
            ServerRejection::NotPermitted { detail: detail() },
            ServerRejection::OutOfMemory { detail: detail() },
            ServerRejection::Cluster { detail: detail() },
            ServerRejection::Other { detail: detail() },
        ] {
            let kept = Rejection::from(given.clone());
            assert_eq!(kept.to_string(), given.to_string());
            let name = |text: String| text.split(' ').next().map(str::to_owned);
            assert_eq!(name(format!("{kept:?}")), name(format!("{given:?}")));
        }
    }
}
