//! Who takes part, and in which order.

use std::sync::Arc;

use stanchion_core::primitive::{Part, Synchronizer};
use stanchion_core::{ConfigError, ConnectError, Error, Name, Placement};

use crate::scripts::Joint;

/// A set of members that no multi-lock can be made of.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMembers {
    /// There is nothing to hold.
    #[error("a multi-lock has at least one member")]
    Empty,
    /// The same name of the same client twice: the second would wait for the first for ever.
    #[error("{name} is given twice: a multi-lock holds each name once")]
    Duplicate {
        /// The name.
        name: Name,
    },
}

impl From<InvalidMembers> for Error {
    fn from(invalid: InvalidMembers) -> Self {
        Self::Connect(ConnectError::Config(ConfigError::InvalidSetting {
            setting: "members",
            value: "of a multi-lock".into(),
            rule: invalid.to_string(),
        }))
    }
}

/// How the members are acquired.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// By one script: plain locks of one client whose names share a slot, or a server that knows no slots.
    Together(Arc<dyn Synchronizer>),
    /// One after the other.
    InOrder,
}

/// Puts the members into the order in which everybody acquires them: by name. Names of several servers by the server's
/// identity, then by client, so that it is an order at all.
pub(crate) fn sorted(mut parts: Vec<Part>) -> Result<Vec<Part>, InvalidMembers> {
    if parts.is_empty() {
        return Err(InvalidMembers::Empty);
    }
    parts.sort_by(|a, b| order(a).cmp(&order(b)));
    for pair in parts.windows(2) {
        let [first, second] = pair else { continue };
        if order(first) == order(second) {
            let name = first.sync.name().clone();
            return Err(InvalidMembers::Duplicate { name });
        }
    }
    Ok(parts)
}

fn order(part: &Part) -> (&[u8], &str, u128) {
    let client = &part.client;
    (
        part.sync.name().as_bytes(),
        &client.server().run_id,
        client.id().as_u128(),
    )
}

pub(crate) fn way(parts: &[Part]) -> Way {
    let Some(first) = parts.first() else {
        return Way::InOrder;
    };
    let same_slot = |part: &Part| {
        part.client.server().placement == Placement::Anywhere
            || part.sync.name().slot() == first.sync.name().slot()
    };
    let fits = |part: &Part| {
        part.sync.kind() == "lock" && part.client.id() == first.client.id() && same_slot(part)
    };
    if parts.iter().all(fits) {
        Way::Together(Arc::new(Joint::new(parts)))
    } else {
        Way::InOrder
    }
}
