//! Fencing tokens.

use std::fmt;
use std::num::NonZeroU64;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// A number that grows with every outermost acquisition of a name (P2).
///
/// Pass the token to the resource you write to, and let the resource refuse a smaller token than it has seen. Only this protects
/// against a holder that was paused between its check and its write. The value is below 2⁵³, so it survives JSON and Lua.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct FencingToken(NonZeroU64);

impl FencingToken {
    /// The token with this value; `None` for zero, which no grant has.
    #[must_use]
    pub fn new(value: u64) -> Option<Self> {
        NonZeroU64::new(value).map(Self)
    }

    /// The token's value.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0.get()
    }
}

/// The source of fencing tokens. All users of a name must use the same source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fencing {
    /// One counter for all names of a hash slot: at most 16384 small keys for any number of names.
    #[default]
    PerSlot,
    /// One counter for each name, the same as Redisson's `RFencedLock`. The counter has no TTL: use it for a small number of names.
    PerName,
    /// No tokens.
    Off,
}

impl Fencing {
    /// The key of the counter for `name`, if tokens are minted.
    #[must_use]
    pub fn counter(self, name: &Name) -> Option<Arc<[u8]>> {
        match self {
            Self::PerSlot => Some(name.slot_fence().into()),
            Self::PerName => Some(name.prefixed("redisson_lock_token").into()),
            Self::Off => None,
        }
    }
}

impl fmt::Display for FencingToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}
