//! The status of a semaphore.

use std::time::Duration;

use serde::Serialize;
use stanchion_client::primitive::{Reply, as_millis};
use stanchion_client::{HoldMode, NameHolder, NameState};

use crate::ids::PermitId;

/// The end that Redisson stores for a permit without a lease.
const NO_LEASE: i64 = 922_337_203_685_477;

/// The state of a semaphore when the server answered. The semaphore may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SemaphoreStatus {
    /// True if the semaphore exists: a call has given it permits.
    pub exists: bool,
    /// The number of free permits; negative while more are held than exist.
    pub available: i64,
    /// The holders, sorted by owner. A process that has died stays listed. Java's holders are not listed.
    pub holders: Vec<PermitHolder>,
    /// The number of waiting processes. Processes with this library are counted exactly, from the queue on the server and their
    /// subscriptions. A process that only polls ([`Wake::Poll`](stanchion_client::Wake::Poll)) counts until a script finds it dead. Redisson
    /// processes are counted by their subscriptions. `None` when the user may not count these (`+pubsub`), or no reply came.
    pub waiting_processes: Option<u64>,
}

/// A holder of permits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PermitHolder {
    /// The owner as stored: `<client uuid>:<number>`.
    pub owner: String,
    /// The number of permits.
    pub permits: u32,
}

impl SemaphoreStatus {
    /// Converts the status to the state that events report.
    pub(crate) fn seen(self) -> NameState {
        let holders = self.holders.into_iter();
        let holders = holders.map(|it| NameHolder::new(it.owner, HoldMode::Permits, it.permits));
        let available = self.exists.then_some(self.available);
        NameState::held(holders.collect(), 0).permits(available)
    }

    pub(crate) fn read(reply: &Reply) -> Option<Self> {
        let [free, fields @ ..] = reply.as_array()? else {
            return None;
        };
        let (exists, available) = read_free(free)?;
        let holder = |pair: &[Reply]| {
            let [owner, permits] = pair else { return None };
            Some(PermitHolder {
                owner: owner.as_text()?.to_owned(),
                permits: permits.as_int()?.try_into().ok()?,
            })
        };
        let mut holders: Vec<_> = fields.chunks(2).map(holder).collect::<Option<_>>()?;
        holders.sort_by(|a, b| a.owner.cmp(&b.owner));
        Some(Self {
            exists,
            available,
            holders,
            waiting_processes: None,
        })
    }

    /// The state for a handle that would create a missing semaphore with so many permits.
    pub(crate) fn or_unmade(mut self, permits: u32) -> Self {
        if !self.exists {
            self.available = permits.into();
        }
        self
    }
}

/// The state of a semaphore of leased permits when the server answered. The semaphore may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeasedStatus {
    /// True if the semaphore exists: a call has given it permits.
    pub exists: bool,
    /// The number of available permits: those that are free, and those whose leases have ended. Negative while more are held
    /// than exist.
    pub available: i64,
    /// The number of held permits whose leases have not ended.
    pub acquired: u32,
    /// The number of all permits, available and acquired.
    pub total: i64,
    /// Up to 1000 permits on the server, those whose leases end first. One whose lease has ended stays until a request needs
    /// it.
    pub permits: Vec<HeldPermit>,
    /// The number of waiting processes. Processes with this library are counted exactly, from the queue on the server and their
    /// subscriptions. A process that only polls ([`Wake::Poll`](stanchion_client::Wake::Poll)) counts until a script finds it dead. Redisson
    /// processes are counted by their subscriptions. `None` when the user may not count these (`+pubsub`), or no reply came.
    pub waiting_processes: Option<u64>,
}

/// A leased permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldPermit {
    /// The id.
    pub id: PermitId,
    /// The rest of its lease, in ms when serialized; zero when it has ended. `None`: a Java process took it without one.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

impl LeasedStatus {
    /// Converts the status to the state that events report. A permit whose lease has ended has no holder.
    pub(crate) fn seen(self) -> NameState {
        let living = |it: &HeldPermit| it.remaining != Some(Duration::ZERO);
        let permits = self.permits.iter().filter(|it| living(it)).map(|it| {
            NameHolder::new(it.id.to_string(), HoldMode::Permits, 1).remaining(it.remaining)
        });
        let permits: Vec<_> = permits.collect();
        let unlisted = u64::from(self.acquired).saturating_sub(permits.len() as u64);
        let available = self.exists.then_some(self.available);
        NameState::held(permits, unlisted).permits(available)
    }

    pub(crate) fn read(reply: &Reply) -> Option<Self> {
        let [now, free, held, ended, leases @ ..] = reply.as_array()? else {
            return None;
        };
        let (now, held, ended) = (now.as_int()?, held.as_int()?, ended.as_int()?);
        let (exists, free) = read_free(free)?;
        let permit = |pair: &[Reply]| {
            let [Reply::Bulk(id), end] = pair else {
                return None;
            };
            // A member that is not a permit id counts, but is not listed.
            let Some(id) = PermitId::from_bytes(id) else {
                return Some(None);
            };
            let end = end.as_int()?;
            let left = u64::try_from(end - now).unwrap_or(0);
            let remaining = (end < NO_LEASE).then(|| Duration::from_millis(left));
            Some(Some(HeldPermit { id, remaining }))
        };
        let permits: Vec<_> = leases.chunks(2).map(permit).collect::<Option<_>>()?;
        Some(Self {
            exists,
            available: free + ended,
            acquired: u32::try_from(held - ended).ok()?,
            total: free + held,
            permits: permits.into_iter().flatten().collect(),
            waiting_processes: None,
        })
    }

    /// The state for a handle that would create a missing semaphore with so many permits.
    pub(crate) fn or_unmade(mut self, permits: u32) -> Self {
        if !self.exists {
            self.available = permits.into();
            self.total = permits.into();
        }
        self
    }
}

/// Reads whether the key exists, and its number.
fn read_free(reply: &Reply) -> Option<(bool, i64)> {
    match reply {
        Reply::Bulk(text) if text.is_empty() => Some((false, 0)),
        other => other.as_int().map(|free| (true, free)),
    }
}
