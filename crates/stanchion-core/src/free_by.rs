//! The limit on how long a leftover of a call can exist.

use std::fmt;
use std::time::Duration;

use crate::millis::Brief;

/// The time after which the leftover of a call is gone, even if the server does not answer again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum FreeBy {
    /// At the latest after this time: a lease ends it.
    After(Duration),
    /// There is no bound: a grant without a lease, as a permit of a plain semaphore, is given back once the server answers again.
    Unbounded,
}

impl FreeBy {
    /// Returns the bound, if there is one.
    #[must_use]
    pub const fn bound(self) -> Option<Duration> {
        match self {
            Self::After(time) => Some(time),
            Self::Unbounded => None,
        }
    }
}

impl From<Duration> for FreeBy {
    fn from(time: Duration) -> Self {
        Self::After(time)
    }
}

/// As the end of a sentence: "it is free …".
impl fmt::Display for FreeBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::After(time) => write!(f, "in {} at the latest", Brief(*time)),
            Self::Unbounded => f.write_str("as soon as the server answers again"),
        }
    }
}

#[test]
fn an_unbounded_end_is_later_than_any_bound() {
    let hour = FreeBy::from(Duration::from_secs(3_600));
    assert!(hour < FreeBy::Unbounded && FreeBy::After(Duration::MAX) < FreeBy::Unbounded);
    assert_eq!(hour.to_string(), "in 1h at the latest");
    assert_eq!(
        (hour.bound(), FreeBy::Unbounded.bound()),
        (Some(Duration::from_secs(3_600)), None)
    );
}
