//! The status of a barrier.

use std::time::Duration;

use serde::Serialize;
use stanchion_client::primitive::{Call, Kind, Reply, Visible, as_millis, unexpected};
use stanchion_client::{Name, NameState, QueryError};

use crate::keys::Keys;
use crate::options::OnLeave;

impl Visible for Keys {
    fn subject(&self) -> (Kind, &Name) {
        (self.family.arrival, &self.name)
    }

    fn keys(&self) -> Vec<Vec<u8>> {
        self.both().map(<[u8]>::to_vec).to_vec()
    }

    fn look(&self) -> Call {
        self.status()
    }

    fn see(&self, reply: &Reply) -> Result<NameState, QueryError> {
        let Some(status) = BarrierStatus::read(reply)? else {
            return Ok(NameState::default());
        };
        // A round of a double barrier has two halves: to enter, and to leave.
        let halves = if self.family.double { 2 } else { 1 };
        let round = status.generation / halves;
        Ok(NameState::barrier(
            round,
            status.waiting,
            status.first_lease,
        ))
    }
}

/// A snapshot of a [`DoubleBarrier`](crate::DoubleBarrier), as the server replied. The state may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct DoubleStatus {
    /// The number of parties.
    pub parties: u32,
    /// The present round.
    pub generation: u64,
    /// True while the round is in progress: a party that arrives now waits for the next round.
    pub under_way: bool,
    /// The number of parties that are inside, or wait to enter.
    pub members: u32,
    /// The time until the first place ends, unless its lease is renewed; `None` if no place is taken.
    #[serde(serialize_with = "as_millis")]
    pub first_lease: Option<Duration>,
}

impl DoubleStatus {
    /// `None`: the barrier does not exist.
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

/// A snapshot of a barrier, as the server replied. The state may have changed since.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct BarrierStatus {
    /// The number of parties.
    pub parties: u32,
    /// The number of parties from the next round on, if it differs.
    pub next_parties: Option<u32>,
    /// The present round.
    pub generation: u64,
    /// The number of places that are taken in the present round.
    pub waiting: u32,
    /// The rule of the round for a party that leaves. It has a meaning only while a party waits.
    pub on_leave: OnLeave,
    /// The time until the first place is free, unless its lease is renewed; `None` if no party waits.
    #[serde(serialize_with = "as_millis")]
    pub first_lease: Option<Duration>,
}

impl BarrierStatus {
    /// `None`: the barrier does not exist.
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
