//! Whole milliseconds: in scripts, for people, and serialized.

use std::fmt;
use std::time::Duration;

use serde::Serialize as _;

/// The whole milliseconds of `length`.
pub fn whole_millis(length: Duration) -> u64 {
    u64::try_from(length.as_millis()).unwrap_or(u64::MAX)
}

/// Serializes a duration as whole milliseconds, for `serialize_with`.
///
/// # Errors
/// The serializer's.
pub fn as_millis<S: serde::Serializer>(
    length: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    length.map(whole_millis).serialize(serializer)
}

/// A duration for people: whole milliseconds.
#[derive(Debug)]
pub struct Brief(pub Duration);

impl fmt::Display for Brief {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let whole = Duration::from_millis(whole_millis(self.0));
        humantime::format_duration(whole).fmt(f)
    }
}
