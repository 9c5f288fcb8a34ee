//! Exit codes, and the failures that become one.

use std::fmt;
use std::io;

use stanchion::{AcquireError, ConnectError, Error, QueryError, Rejection};

use crate::wording::printable;

/// Done.
pub(crate) const SUCCESS: u8 = 0;
/// The answer is no: `status --check` of a held lock, `force-release` of a free one.
pub(crate) const NO: u8 = 1;
/// The command line is wrong, or a confirmation is missing. Clap uses it too.
pub(crate) const USAGE: u8 = 2;
/// `EX_UNAVAILABLE`: the server cannot be reached, or refuses for a reason that may pass.
pub(crate) const UNAVAILABLE: u8 = 69;
/// `EX_CANTCREAT`: the lock was lost while the command ran.
pub(crate) const LOST: u8 = 73;
/// `EX_IOERR`: the system refused something, such as writing to standard output.
pub(crate) const IO: u8 = 74;
/// `EX_TEMPFAIL`: another owner held the lock for the whole of `--wait`.
pub(crate) const NOT_ACQUIRED: u8 = 75;
/// `EX_TEMPFAIL`: a list is partial, because a server of several did not answer.
pub(crate) const PARTIAL: u8 = NOT_ACQUIRED;
/// `EX_CONFIG`: the server refused, or the configuration cannot be used.
pub(crate) const CONFIG: u8 = 78;
/// The command was found and cannot be executed.
pub(crate) const NOT_EXECUTABLE: u8 = 126;
/// The command was not found.
pub(crate) const NOT_FOUND: u8 = 127;

/// The exit code that a shell reports for a process that a signal ended.
pub(crate) fn of_signal(number: i32) -> u8 {
    // OK: signal numbers are 1 to 64; no other number is a known signal.
    u8::try_from(128 + number).unwrap_or(u8::MAX)
}

/// A command that failed, with its exit code.
#[derive(Debug)]
pub(crate) struct Failure {
    code: u8,
    error: anyhow::Error,
    told: bool,
}

impl Failure {
    pub(crate) fn new(code: u8, message: impl fmt::Display) -> Self {
        Self {
            code,
            error: anyhow::anyhow!("{message}"),
            told: false,
        }
    }

    pub(crate) fn code(&self) -> u8 {
        self.code
    }

    /// Marks that the user has already seen the message.
    pub(crate) fn told(mut self) -> Self {
        self.told = true;
        self
    }

    pub(crate) fn is_told(&self) -> bool {
        self.told
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // One line, whatever the texts of a server or a system contain.
        printable(&format!("{:#}", self.error)).fmt(f)
    }
}

impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self {
            code: IO,
            error: error.into(),
            told: false,
        }
    }
}

impl From<serde_json::Error> for Failure {
    fn from(error: serde_json::Error) -> Self {
        io::Error::from(error).into()
    }
}

/// Any error of the library: `?` finds the code.
impl<E: Into<Error>> From<Library<E>> for Failure {
    fn from(Library(error): Library<E>) -> Self {
        let error = error.into();
        let code = code_of(&error);
        if is_not_permitted(&error) {
            return Self::new(code, format_args!("{error}; {DOCTOR}"));
        }
        Self {
            code,
            error: error.into(),
            told: false,
        }
    }
}

/// Marks an error of the library for [`Failure`]'s conversion.
#[derive(Debug)]
pub(crate) struct Library<E>(pub(crate) E);

const DOCTOR: &str =
    "`stanchion doctor` shows which rights are missing, and the line that grants them";

fn is_not_permitted(error: &Error) -> bool {
    matches!(
        error,
        Error::Acquire(AcquireError::Rejected {
            rejection: Rejection::NotPermitted { .. },
            ..
        }) | Error::Query(QueryError::Rejected {
            rejection: Rejection::NotPermitted { .. },
        })
    )
}

/// Returns whether a refusal may pass: memory becomes free; a changed password reaches the server and the clients at different moments.
pub(crate) fn may_pass(rejection: &Rejection) -> bool {
    match rejection {
        Rejection::OutOfMemory { .. } => true,
        // Not NOAUTH: there is no password at all, which is a fault of the configuration.
        Rejection::Unauthenticated { detail } => detail.starts_with("WRONGPASS"),
        _ => false,
    }
}

fn code_of(error: &Error) -> u8 {
    match error {
        Error::Acquire(AcquireError::TimedOut { .. }) => NOT_ACQUIRED,
        Error::Lost(_) | Error::Release(_) => LOST,
        Error::Connect(ConnectError::Unreachable { .. })
        | Error::Acquire(
            AcquireError::Unavailable { .. }
            | AcquireError::Ambiguous { .. }
            | AcquireError::Shutdown { .. },
        )
        | Error::Query(
            QueryError::Unavailable { .. } | QueryError::Unanswered { .. } | QueryError::Shutdown,
        )
        | Error::Renew(_) => UNAVAILABLE,
        // These pass without a change of the configuration here.
        Error::Acquire(AcquireError::Rejected { rejection, .. })
        | Error::Query(QueryError::Rejected { rejection })
            if may_pass(rejection) =>
        {
            UNAVAILABLE
        }
        Error::Connect(ConnectError::Rejected { rejection, .. })
            if may_pass(&rejection.clone().into()) =>
        {
            UNAVAILABLE
        }
        // An argument that no server takes.
        Error::Name(_)
        | Error::Lease(_)
        | Error::Duration(_)
        | Error::Ticket(_)
        | Error::Primitive(_) => USAGE,
        // The server or the configuration refuses all others: a URL, a certificate, a right, a name of another kind.
        _ => CONFIG,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_may_pass_has_the_code_of_an_outage() {
        let code = |rejection| code_of(&Error::Query(QueryError::Rejected { rejection }));
        let detail = || "OOM command not allowed".to_owned();
        assert_eq!(
            code(Rejection::OutOfMemory { detail: detail() }),
            UNAVAILABLE
        );
        for (detail, expected) in [
            ("WRONGPASS invalid username-password pair", UNAVAILABLE),
            ("NOAUTH Authentication required.", CONFIG),
        ] {
            let detail = detail.to_owned();
            assert_eq!(code(Rejection::Unauthenticated { detail }), expected);
        }
        assert_eq!(code(Rejection::NotPermitted { detail: detail() }), CONFIG);
    }

    #[test]
    fn signals_become_the_codes_of_the_shell() {
        assert_eq!((of_signal(2), of_signal(9), of_signal(15)), (130, 137, 143));
    }
}
