//! The outcome of a command: a reply or an error reply.

use std::borrow::Cow;

use crate::reply::Reply;

/// The error reply of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure(pub(crate) Cow<'static, str>);

pub(crate) type Outcome<T = Reply> = Result<T, Failure>;

impl Failure {
    pub(crate) fn new(text: impl Into<Cow<'static, str>>) -> Self {
        Self(text.into())
    }

    pub(crate) fn wrong_type() -> Self {
        Self::new("WRONGTYPE Operation against a key holding the wrong kind of value")
    }

    pub(crate) fn syntax() -> Self {
        Self::new("ERR syntax error")
    }

    pub(crate) fn not_an_integer() -> Self {
        Self::new("ERR value is not an integer or out of range")
    }

    pub(crate) fn not_a_float() -> Self {
        Self::new("ERR value is not a valid float")
    }

    pub(crate) fn arity(command: &str) -> Self {
        Self::new(format!(
            "ERR wrong number of arguments for '{command}' command"
        ))
    }

    pub(crate) fn unknown_subcommand(command: &str, given: &[u8]) -> Self {
        let given = String::from_utf8_lossy(given);
        let command = command.to_ascii_uppercase();
        Self::new(format!(
            "ERR unknown subcommand '{given}'. Try {command} HELP."
        ))
    }
}
