//! What a look at a semaphore shows.

use std::time::Duration;

use serde::{Serialize, Serializer};
use stanchion_core::primitive::Reply;

use crate::ids::PermitId;

/// Redisson's end of a lease that does not end.
const NO_LEASE: i64 = 922_337_203_685_477;

/// A semaphore as the server saw it when asked. By the time you read it, it may have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct SemaphoreStatus {
    /// Whether anybody gave it permits.
    pub exists: bool,
    /// The permits that nobody holds; negative while more are held than there are.
    pub available: i64,
    /// Who holds permits, in order of owner: a process that has died stays here. Permits held by Java are nowhere.
    pub holders: Vec<PermitHolder>,
}

/// Who holds permits.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct PermitHolder {
    /// The owner as stored: `<client uuid>:<number>`.
    pub owner: String,
    /// How many.
    pub permits: u32,
}

impl SemaphoreStatus {
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
        })
    }
}

/// A semaphore of leased permits as the server saw it when asked. By the time you read it, it may have changed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct LeasedStatus {
    /// Whether anybody gave it permits.
    pub exists: bool,
    /// The permits that can be had: nobody holds them, or their leases have ended. Negative while more are held than there
    /// are.
    pub available: i64,
    /// The permits that are held, with leases that have not ended.
    pub acquired: u32,
    /// Both together.
    pub total: i64,
    /// Up to 1000 permits on the server, those whose leases end first. One whose lease has ended stays until somebody needs
    /// it.
    pub permits: Vec<HeldPermit>,
}

/// A leased permit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct HeldPermit {
    /// Its id.
    pub id: PermitId,
    /// What is left of its lease, in ms when serialized; zero when it has ended. `None`: a Java process took it without one.
    #[serde(serialize_with = "as_millis")]
    pub remaining: Option<Duration>,
}

fn as_millis<S: Serializer>(
    remaining: &Option<Duration>,
    serializer: S,
) -> Result<S::Ok, S::Error> {
    remaining
        .map(|left| u64::try_from(left.as_millis()).unwrap_or(u64::MAX))
        .serialize(serializer)
}

impl LeasedStatus {
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
            // Somebody else's members are not ours to judge, but they count.
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
        })
    }
}

/// Whether the key exists, and its number.
fn read_free(reply: &Reply) -> Option<(bool, i64)> {
    match reply {
        Reply::Bulk(text) if text.is_empty() => Some((false, 0)),
        other => other.as_int().map(|free| (true, free)),
    }
}
