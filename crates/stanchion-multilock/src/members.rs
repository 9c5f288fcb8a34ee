//! The members of a multi-lock, and their order.

use std::borrow::Cow;

use stanchion_client::primitive::Part;
use stanchion_client::{AcquireError, AcquireOptions, Error, Name, Placement, Rejection};

use crate::origin::origin_of;
use crate::scripts::Joint;

/// The reason that a set of members makes no multi-lock.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidMembers {
    /// No members.
    #[error("a multi-lock has at least one member")]
    Empty,
    /// One name of one client given twice: the second would wait for the first indefinitely.
    #[error("{name} is given twice: a multi-lock holds each name once")]
    Duplicate {
        /// The name.
        name: Name,
    },
}

impl From<InvalidMembers> for Error {
    fn from(invalid: InvalidMembers) -> Self {
        Self::primitive(invalid)
    }
}

/// The order in which the members are acquired.
#[derive(Clone, Debug)]
pub(crate) enum Way {
    /// By one script: plain locks of one client, whose names share a slot or whose server has no slots.
    Together(Joint),
    /// One after the other.
    InOrder,
}

/// Sorts the members by name, the order in which every client acquires them. Members with one name on several clients
/// are left in any order: only their servers decide it, see [`settled`].
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

fn order(part: &Part) -> (&[u8], u128) {
    (part.sync.name().as_bytes(), part.handle.id().as_u128())
}

/// Returns the members in the order in which every client waits for them: those of one name in the order of the numbers that
/// their servers store. Sends nothing where all names differ.
pub(crate) async fn settled(
    parts: &[Part],
    options: impl Fn() -> AcquireOptions,
) -> Result<Cow<'_, [Part]>, AcquireError> {
    let same = |a: &Part, b: &Part| a.sync.name() == b.sync.name();
    if !parts.windows(2).any(|pair| same(&pair[0], &pair[1])) {
        return Ok(Cow::Borrowed(parts));
    }
    let mut ordered = Vec::with_capacity(parts.len());
    for group in parts.chunk_by(same) {
        let mut members = Vec::with_capacity(group.len());
        for part in group {
            let origin = match group {
                [_] => None,
                _ => origin_of(part, &options()).await?,
            };
            members.push((origin, part));
        }
        members.sort_by_key(|(origin, _)| *origin);
        if let Some(twice) = members.windows(2).find(|pair| pair[0].0 == pair[1].0) {
            let name = twice[0].1.sync.name().clone();
            let rule = format!(
                "members: {name} is given through two clients of one server, and would wait for itself"
            );
            let rejection = Rejection::InvalidOption { rule };
            return Err(AcquireError::Rejected { name, rejection });
        }
        ordered.extend(members.into_iter().map(|(_, part)| part.clone()));
    }
    Ok(Cow::Owned(ordered))
}

pub(crate) fn way(parts: &[Part]) -> Way {
    let Some(first) = parts.first() else {
        return Way::InOrder;
    };
    let same_slot = |part: &Part| {
        part.handle.server().placement == Placement::Anywhere
            || part.sync.name().slot() == first.sync.name().slot()
    };
    let fits = |part: &Part| {
        part.sync.kind().is_plain() && part.handle.id() == first.handle.id() && same_slot(part)
    };
    if parts.iter().all(fits) {
        Way::Together(Joint::new(parts))
    } else {
        Way::InOrder
    }
}
