//! Barriers and latches that end: their profiles, the calls behind a wait and an entry, and leaving.

use proptest::prelude::*;
use stanchion::{
    AcquireError, BarrierError, BrokenBy, Client, CyclicBarrier, DoubleBarrier, Inside, OnLeave,
    Passed, WaitOptions,
};
use tokio::time::Instant;

use crate::calls::masked;
use crate::draws::{gathered, locks, select, weather};
use crate::judge;
use crate::newer::QUIET;
use crate::profiles::{FAIR_WEATHER, Kind, Profile, Weights};
use crate::program::{Ask, Polled, What};
use crate::run::Work;
use crate::span;
use crate::state::{Held, OpKind, Shared};
use crate::things::{Call, LEASE, Thing, lease};

pub(crate) const MEETINGS: [Profile; 3] = [
    Profile {
        name: "meetings",
        weights: Weights {
            take: 40,
            verb: 20,
            manage: 3,
            worker: 2,
            kill: 1,
            ..FAIR_WEATHER
        },
        whats: |_| gathered(),
        kind: Kind::Meetings,
        ..QUIET
    },
    Profile {
        name: "musters",
        servers: (1, 2),
        weights: Weights {
            take: 40,
            verb: 16,
            manage: 3,
            worker: 2,
            kill: 2,
            weather: 12,
            freeze: 4,
            suspend: 1,
            stall: 2,
            shutdown: 2,
            ..FAIR_WEATHER
        },
        long: 3,
        whats: |_| prop_oneof![6 => gathered(), 1 => locks()].boxed(),
        weather,
        kind: Kind::Meetings,
        ..QUIET
    },
    Profile {
        name: "idle",
        weights: Weights {
            manage: 24,
            kill: 1,
            weather: 2,
            java: 1,
            ..FAIR_WEATHER
        },
        long: 5,
        whats: |_| select(&[What::Latch("l"), What::Latch("l"), What::Latch("m")]),
        kind: Kind::Idle,
        ..QUIET
    },
];

/// The end of a wait at a barrier.
pub(crate) enum Met {
    Passed(Passed),
    Broke(u64, BrokenBy),
    /// The server has another number of parties.
    Others(u32),
    /// The place was lost, twice.
    Lost(u64),
}

pub(crate) fn cyclic(client: &Client, name: &str, parties: u32) -> Option<CyclicBarrier> {
    CyclicBarrier::new(client, name, parties).ok()
}

pub(crate) fn double(client: &Client, name: &str, parties: u32) -> Option<DoubleBarrier> {
    DoubleBarrier::new(client, name, parties).ok()
}

fn met(error: BarrierError) -> Result<Option<Thing>, AcquireError> {
    Ok(Some(Thing::Met(match error {
        BarrierError::Broken { generation, by, .. } => Met::Broke(generation, by),
        BarrierError::Parties { theirs, .. } => Met::Others(theirs),
        BarrierError::Lost { generation, .. } => Met::Lost(generation),
        BarrierError::Acquire(error) => return Err(error),
        _ => return Ok(None),
    })))
}

pub(crate) fn meet(
    client: &Client,
    name: &str,
    parties: u32,
    breaks: bool,
    ask: Ask,
) -> Option<Call> {
    let barrier = cyclic(client, name, parties)?.with_lease(lease(ask.lease.unwrap_or(LEASE)));
    let rule = if breaks {
        OnLeave::Break
    } else {
        OnLeave::Free
    };
    let mut options = WaitOptions::new().on_leave(rule);
    if let Some(timeout) = ask.timeout {
        options = options.timeout(span(timeout));
    }
    Some(Box::pin(async move {
        match barrier.wait_with(options).await {
            Ok(passed) => Ok(Some(Thing::Met(Met::Passed(passed)))),
            Err(error) => met(error),
        }
    }))
}

pub(crate) fn enter(client: &Client, name: &str, parties: u32, ask: Ask) -> Option<Call> {
    let barrier = double(client, name, parties)?.with_lease(lease(ask.lease.unwrap_or(LEASE)));
    Some(Box::pin(async move {
        let entered = match ask.timeout {
            Some(timeout) => barrier.enter_timeout(span(timeout)).await,
            None => barrier.enter().await,
        };
        match entered {
            Ok(inside) => Ok(Some(Thing::Inside(inside))),
            Err(error) => met(error),
        }
    }))
}

impl Shared {
    /// Leaves a double barrier, and waits for the others: for as long as its party would have waited to get in.
    pub(crate) fn leaving(&self, held: Held, inside: Inside, id: u64) -> Work {
        let was_held = inside.is_held() && !held.tainted;
        let label = format!("leaving of guard {id}, {:?}", held.what);
        let mut op = crate::state::Op::about(label, OpKind::Release, &held.uses);
        op.limit = held.ask.timeout.map(span);
        op.ask = held.ask;
        let (timeout, spot) = (op.limit, op.uses[0].spot);
        let ticket = self.begin(op);
        let (shared, round) = (self.clone(), inside.generation());
        let leaves = |state: &mut crate::state::State| {
            let rounds = state.books.rounds.entry(spot).or_default();
            rounds.leaving.insert(ticket.id(), round);
        };
        leaves(&mut self.lock());
        Box::pin(async move {
            let outcome = match timeout {
                Some(timeout) => inside.leave_timeout(timeout).await,
                None => inside.leave().await,
            };
            let mut state = shared.lock();
            let Some(op) = state.ops.remove(&ticket.id()) else {
                return;
            };
            let said = match &outcome {
                Ok(()) => "all are out".into(),
                Err(error) => masked(error),
            };
            state.tell(format!("{}: {said}", op.label));
            match outcome {
                Ok(()) => judge::meetings::all_out(&mut state, &op, round),
                Err(BarrierError::Release(error)) => {
                    judge::truth::released(&mut state, &op, &Err(error), was_held);
                }
                Err(BarrierError::Acquire(error)) => {
                    judge::truth::acquired(&mut state, &op, &Err(error));
                }
                Err(error) => state.report("Untrue", format!("P8: {}: {error}", op.label)),
            }
            state.ended(&op.uses);
            state.place(spot).released = Instant::now();
        })
    }
}

/// A program is to polled calls as a crowd is to those who look away: seldom.
pub(crate) fn attended(left: u32) -> BoxedStrategy<Polled> {
    prop_oneof![
        30 => Just(Polled::Always),
        2 * left => Just(Polled::Once),
        2 => (0..7_u8).prop_map(Polled::Times),
        2 => (1..3_000_u16).prop_map(Polled::For)
    ]
    .boxed()
}
