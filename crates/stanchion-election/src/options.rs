//! The options of one campaign.

use std::time::Duration;

use stanchion_client::primitive::{ReadOptions as _, bounded};
use stanchion_client::{AcquireOptions, Reentry, Rejection, Renewal};

use crate::scripts::HEAD_START;

/// The longest value, in bytes.
pub(crate) const LONGEST_VALUE: usize = 4096;

/// The longest cooldown.
const LONGEST_COOLDOWN: Duration = Duration::from_secs(3600);

/// Options of one campaign. The defaults: priority 0, no timeout, the election's lease (15 s), no longest term, a cooldown of 1 s.
#[derive(Clone, Debug)]
pub struct CampaignOptions {
    pub(crate) acquire: AcquireOptions,
    pub(crate) priority: i32,
    pub(crate) cooldown: Duration,
}

impl CampaignOptions {
    /// The defaults.
    #[must_use]
    pub fn new() -> Self {
        AcquireOptions::new().into()
    }

    /// Sets the priority. A vacancy is reserved for half a second for the candidate with the highest. The present leader only gets a
    /// [notification](crate::Leadership::challenged) that such a candidate waits.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// Sets the time after which the campaign gives up. Zero sends one request, and does not wait.
    #[must_use]
    pub fn timeout(mut self, timeout: Duration) -> Self {
        self.acquire = self.acquire.timeout(timeout);
        self
    }

    /// Sets the lease of the term: the time after which another process may lead if this process dies.
    #[must_use]
    pub fn lease(mut self, lease: impl Into<Duration>) -> Self {
        self.acquire = self.acquire.lease(lease);
        self
    }

    /// Sets the party that renews the lease.
    #[must_use]
    pub fn renewal(mut self, renewal: Renewal) -> Self {
        self.acquire = self.acquire.renewal(renewal);
        self
    }

    /// Sets the longest term. After that time the leadership is lost with
    /// [`LostReason::MaxHold`](stanchion_client::LostReason::MaxHold), and others may win. Default: none.
    #[must_use]
    pub fn max_term(mut self, max_term: Duration) -> Self {
        self.acquire = self.acquire.max_hold(max_term);
        self
    }

    /// Sets the time for which this process lets other candidates go first after it has stepped down, at most an hour. If there is no
    /// other candidate, it leads again at once. Zero: none. A campaign with a longer time is rejected
    /// ([`Rejection::InvalidOption`]).
    #[must_use]
    pub fn cooldown(mut self, cooldown: Duration) -> Self {
        self.cooldown = cooldown;
        self
    }

    /// Checks the options that are not those of every acquire.
    pub(crate) fn check(&self) -> Result<(), Rejection> {
        let bounds = Duration::ZERO..=LONGEST_COOLDOWN;
        bounded("cooldown", self.cooldown, bounds, "at most an hour")?;
        Ok(())
    }
}

impl Default for CampaignOptions {
    fn default() -> Self {
        Self::new()
    }
}

/// The options that all acquires have. An explicit owner may lead once: a second campaign with the same owner is rejected.
impl From<AcquireOptions> for CampaignOptions {
    fn from(acquire: AcquireOptions) -> Self {
        Self {
            // A leader that campaigns again is a bug, because it would wait for its own term. Without an owner it is another candidate.
            acquire: if acquire.has_owner() {
                acquire.reentry(Reentry::Refused)
            } else {
                acquire
            },
            priority: 0,
            cooldown: HEAD_START * 2,
        }
    }
}
