//! Names for checks and measurements, among those that a user may use.

use stanchion::{Client, InvalidName, Name};

/// The names that a check or a measurement may use: a pattern such as `app:*`.
#[derive(Clone, Debug)]
pub(crate) struct Names {
    prefix: String,
    pattern: String,
    some: Name,
    given: String,
}

impl Names {
    /// Makes an unused name that matches `pattern`. Names begin with the client's prefix, which the pattern does not have.
    pub(crate) fn new(
        client: &Client,
        prefix: &str,
        pattern: &str,
        what: &str,
    ) -> Result<Self, InvalidName> {
        let unique = format!("stanchion-{what}-{:016x}", fastrand::u64(..));
        let given = match pattern.contains('*') {
            true => pattern.replacen('*', &unique, 1).replace('*', ""),
            false => pattern.to_owned(),
        };
        Ok(Self {
            prefix: prefix.to_owned(),
            pattern: format!("{prefix}{pattern}"),
            some: client.name(&given)?,
            given,
        })
    }

    /// The pattern, prefix included.
    pub(crate) fn pattern(&self) -> &str {
        &self.pattern
    }

    /// Returns whether names have no prefix.
    pub(crate) fn has_no_prefix(&self) -> bool {
        self.prefix.is_empty()
    }

    /// A name of the pattern, prefix included.
    pub(crate) fn some(&self) -> Name {
        self.some.clone()
    }

    /// The same name without the prefix. `None`: the pattern is a single name, which may be in use.
    pub(crate) fn own(&self) -> Option<&str> {
        self.pattern.contains('*').then_some(&*self.given)
    }
}
