//! For the crates of the family: how a synchronizer describes itself to the core.
//!
//! A primitive is its scripts plus an implementation of [`Synchronizer`]. The loop that waits, the guard, renewal,
//! clean-up and cancellation are here in the core, once.

use std::fmt;

use crate::lease::Lease;
use crate::name::Name;
use crate::owner::WireOwner;
use crate::token::FencingToken;

pub use crate::client::Resend;
pub use crate::hold::Hold;
pub use crate::transport::call::Arg;
pub use crate::transport::{Call, Reply, Script};

/// Who asks, for how long, and until when the request may run.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Request<'a> {
    /// The owner to be.
    pub owner: &'a WireOwner,
    /// Its lease.
    pub lease: Lease,
    /// Server time in µs after which the script must refuse (P3).
    pub not_after: u64,
}

/// What a synchronizer tells the core about itself.
///
/// All scripts answer by one convention, read by [`Verdict`]:
///
/// | reply | acquire, re-enter, hand-off | release |
/// |---|---|---|
/// | n > 0 | done, n is the fencing token | done, n subscribers were told |
/// | 0 | done, no token | done, nobody was told |
/// | −1 | too late, not done (a hand-off then released) | done, the message could not be sent |
/// | −2 | the owner holds nothing | the owner holds nothing |
/// | n ≤ −3 | busy, the holder's TTL is −4 − n ms (−3: it has none) | – |
pub trait Synchronizer: fmt::Debug + Send + Sync + 'static {
    /// The kind of synchronizer, for metrics: `lock`.
    fn kind(&self) -> &'static str;

    /// What is being synchronized on.
    fn name(&self) -> &Name;

    /// The channel that tells of a release. Also what local waiters queue by.
    fn channel(&self) -> &[u8];

    /// One attempt. Run twice for one owner, it has the effect of once (P6).
    fn acquire(&self, request: &Request<'_>) -> Call;

    /// From `count` holds to `count` + 1.
    fn reenter(&self, request: &Request<'_>, count: u32) -> Call;

    /// From `count` holds to `count` − 1; the last one frees and publishes.
    fn release(&self, owner: &WireOwner, count: u32, lease: Lease) -> Call;

    /// Release by `from` and acquire by the requester, in one step.
    fn hand_off(&self, from: &WireOwner, to: &Request<'_>) -> Call;
}

/// A reply of a script, read by the convention of [`Synchronizer`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Done.
    Granted(Option<FencingToken>),
    /// The request came after its `not_after`.
    Late,
    /// The owner holds nothing (any more).
    Gone,
    /// Somebody else holds; the TTL in ms if there is one.
    Busy(Option<u64>),
}

impl Verdict {
    /// Reads a reply; `None` when it breaks the convention.
    #[must_use]
    pub fn read(reply: &Reply) -> Option<Self> {
        let Reply::Int(n) = *reply else { return None };
        Some(match n {
            0.. => Self::Granted(FencingToken::new(n.unsigned_abs())),
            -1 => Self::Late,
            -2 => Self::Gone,
            -3 => Self::Busy(None),
            _ => Self::Busy(Some((n + 4).unsigned_abs())),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_are_read_by_the_convention() {
        let read = |n| Verdict::read(&Reply::Int(n)).unwrap();
        assert_eq!(read(17), Verdict::Granted(FencingToken::new(17)));
        assert_eq!(read(0), Verdict::Granted(None));
        assert_eq!(read(-1), Verdict::Late);
        assert_eq!(read(-2), Verdict::Gone);
        assert_eq!(read(-3), Verdict::Busy(None));
        assert_eq!(read(-4), Verdict::Busy(Some(0)));
        assert_eq!(read(-1004), Verdict::Busy(Some(1000)));
        assert_eq!(Verdict::read(&Reply::Nil), None);
    }
}
