//! The time after which an unused object expires.

use std::time::Duration;

use crate::error::{InvalidDuration, bounded};
use crate::millis::whole_millis;

/// The time after which an unused latch or semaphore expires: 1 s to 365 days, whole milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct IdleExpiry(Duration);

impl IdleExpiry {
    /// The shortest idle expiry: a shorter one could end between two calls of a healthy program.
    pub const MIN: Self = Self(Duration::from_secs(1));
    /// The longest.
    pub const MAX: Self = Self(Duration::from_secs(365 * 86_400));

    /// Makes the expiry after `idle` without use, cut to whole milliseconds.
    ///
    /// # Errors
    /// [`InvalidDuration`] outside [`IdleExpiry::MIN`]..=[`IdleExpiry::MAX`].
    pub fn after(idle: Duration) -> Result<Self, InvalidDuration> {
        let bounds = Self::MIN.0..=Self::MAX.0;
        let idle = bounded("idle expiry", idle, bounds, "it is 1s to 365days")?;
        Ok(Self(Duration::from_millis(whole_millis(idle))))
    }

    /// The time.
    #[must_use]
    pub const fn length(self) -> Duration {
        self.0
    }

    /// The time in milliseconds, as sent to the server.
    #[must_use]
    pub fn millis(self) -> u64 {
        whole_millis(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_bounds_are_allowed_and_nothing_beyond() {
        let tick = Duration::from_nanos(1);
        for good in [IdleExpiry::MIN, IdleExpiry::MAX] {
            assert_eq!(IdleExpiry::after(good.length()), Ok(good));
        }
        let beyond = [
            IdleExpiry::MIN.length() - tick,
            IdleExpiry::MAX.length() + tick,
        ];
        for expiry in beyond {
            let error = IdleExpiry::after(expiry).unwrap_err();
            assert_eq!(error.value, expiry);
            assert!(error.to_string().contains("1s to 365days"), "{error}");
        }
        let cut = IdleExpiry::after(IdleExpiry::MIN.length() + tick);
        assert_eq!(cut, Ok(IdleExpiry::MIN));
    }
}
