//! The status of a barrier.

use std::time::Duration;

use serde::Serialize;
use stanchion_core::QueryError;
use stanchion_core::primitive::{Reply, as_millis, unexpected};

use crate::options::OnLeave;

/// The state of a [`DoubleBarrier`](crate::DoubleBarrier) when the server answered. It may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DoubleStatus {
    /// The number of parties.
    pub parties: u32,
    /// The present round.
    pub generation: u64,
    /// True while it is under way: a party that comes now waits for the next.
    pub under_way: bool,
    /// The number of parties that are inside, or wait for the others to come.
    pub members: u32,
    /// The time until the first of the places ends, unless it is renewed; `None` without any.
    #[serde(serialize_with = "as_millis")]
    pub first_lease: Option<Duration>,
}

impl DoubleStatus {
    /// `None`: there is no such barrier.
    pub(crate) fn read(reply: &Reply) -> Result<Option<Self>, QueryError> {
        let read = BarrierStatus::read(reply)?;
        Ok(read.map(|status| Self {
            parties: status.parties,
            generation: status.generation / 2,
            under_way: status.generation % 2 == 1 && status.waiting > 0,
            members: status.waiting,
            first_lease: status.first_lease,
        }))
    }
}

/// The state of a barrier when the server answered. It may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BarrierStatus {
    /// The number of parties.
    pub parties: u32,
    /// The number from the next round on, if it is another one.
    pub next_parties: Option<u32>,
    /// The present round.
    pub generation: u64,
    /// The number of places that are taken in it.
    pub waiting: u32,
    /// The rule of the round for a party that leaves. It means something only while somebody waits.
    pub on_leave: OnLeave,
    /// The time until the first of the places is free, unless it is renewed; `None` where nobody waits.
    #[serde(serialize_with = "as_millis")]
    pub first_lease: Option<Duration>,
}

impl BarrierStatus {
    /// `None`: there is no such barrier.
    pub(crate) fn read(reply: &Reply) -> Result<Option<Self>, QueryError> {
        if *reply == Reply::Nil {
            return Ok(None);
        }
        let number = |at: usize| u64::try_from(reply.as_array()?.get(at)?.as_int()?).ok();
        let small = |at| u32::try_from(number(at)?).ok();
        let read = || {
            Some(Self {
                parties: small(0)?,
                next_parties: small(1).filter(|next| *next != 0),
                generation: number(2)?,
                on_leave: if number(3)? == 1 {
                    OnLeave::Break
                } else {
                    OnLeave::Free
                },
                waiting: small(4)?,
                first_lease: number(5).map(Duration::from_millis),
            })
        };
        read().map(Some).ok_or_else(|| unexpected(reply))
    }
}
