//! Barriers: the calls that wait at or enter a barrier, and leaving a double barrier.

use stanchion::barrier::{BrokenBy, Inside, OnLeave, Passed, WaitOptions};
use stanchion::{AcquireError, BarrierError, Client, CyclicBarrier, DoubleBarrier};
use tokio::time::Instant;

use crate::generator::calls::masked;
use crate::generator::guards::{Acquired, Call, LEASE, lease};
use crate::generator::judge;
use crate::generator::program::CallOptions;
use crate::generator::run::Work;
use crate::generator::span;
use crate::generator::state::{Held, Op, OpKind, Shared, State};

/// The result of a wait at a barrier.
pub(crate) enum BarrierEnd {
    Passed(Passed),
    Broke(u64, BrokenBy),
    /// The server has another number of parties.
    OtherParties(u32),
    /// The place was lost twice.
    Lost(u64),
}

pub(crate) fn cyclic(client: &Client, name: &str, parties: u32) -> Option<CyclicBarrier> {
    CyclicBarrier::new(client, name, parties).ok()
}

pub(crate) fn double(client: &Client, name: &str, parties: u32) -> Option<DoubleBarrier> {
    DoubleBarrier::new(client, name, parties).ok()
}

fn barrier_end(error: BarrierError) -> Result<Option<Acquired>, AcquireError> {
    Ok(Some(Acquired::BarrierEnd(match error {
        BarrierError::Broken { generation, by, .. } => BarrierEnd::Broke(generation, by),
        BarrierError::Parties { theirs, .. } => BarrierEnd::OtherParties(theirs),
        BarrierError::Lost { generation, .. } => BarrierEnd::Lost(generation),
        BarrierError::TimedOut {
            name,
            waited,
            free_by,
        } => {
            return Err(AcquireError::TimedOut {
                name,
                waited,
                remark: None,
                free_by,
            });
        }
        BarrierError::Acquire(error) => return Err(error),
        _ => return Ok(None),
    })))
}

pub(crate) fn wait(
    client: &Client,
    name: &str,
    parties: u32,
    breaks: bool,
    opts: CallOptions,
) -> Option<Call> {
    let barrier = cyclic(client, name, parties)?.lease(lease(opts.lease.unwrap_or(LEASE)));
    let rule = if breaks {
        OnLeave::Break
    } else {
        OnLeave::Free
    };
    let mut options = WaitOptions::new().on_leave(rule);
    if let Some(timeout) = opts.timeout {
        options = options.timeout(span(timeout));
    }
    Some(Box::pin(async move {
        match barrier.wait_with(options).await {
            Ok(passed) => Ok(Some(Acquired::BarrierEnd(BarrierEnd::Passed(passed)))),
            Err(error) => barrier_end(error),
        }
    }))
}

pub(crate) fn enter(client: &Client, name: &str, parties: u32, opts: CallOptions) -> Option<Call> {
    let barrier = double(client, name, parties)?.lease(lease(opts.lease.unwrap_or(LEASE)));
    Some(Box::pin(async move {
        let entered = match opts.timeout {
            Some(timeout) => barrier.enter_timeout(span(timeout)).await,
            None => barrier.enter().await,
        };
        match entered {
            Ok(inside) => Ok(Some(Acquired::Inside(inside))),
            Err(error) => barrier_end(error),
        }
    }))
}

impl Shared {
    /// Leaves a double barrier and waits for the other parties, with the timeout of the entry.
    pub(crate) fn leaving(&self, held: Held, inside: Inside, id: u64) -> Work {
        let was_held = inside.is_held() && !held.tainted;
        let label = format!("leaving of guard {id}, {:?}", held.target);
        let mut op = Op::about(label, OpKind::Release, &held.uses);
        op.limit = held.opts.timeout.map(span);
        op.opts = held.opts;
        let (timeout, resource) = (op.limit, op.uses[0].resource);
        let ticket = self.begin(op);
        let (shared, round) = (self.clone(), inside.generation());
        let leaves = |state: &mut State| {
            let rounds = state.tracking.rounds.entry(resource).or_default();
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
            let answer = match &outcome {
                Ok(()) => "all are out".into(),
                Err(error) => masked(error),
            };
            state.log(format!("{}: {answer}", op.label));
            match outcome {
                Ok(()) => judge::barriers::all_out(&mut state, &op, round),
                Err(BarrierError::Release(error)) => {
                    judge::truth::released(&mut state, &op, &Err(error), was_held);
                }
                Err(BarrierError::TimedOut {
                    name,
                    waited,
                    free_by,
                }) => {
                    let error = AcquireError::TimedOut {
                        name,
                        waited,
                        remark: None,
                        free_by,
                    };
                    judge::truth::acquired(&mut state, &op, &Err(error));
                }
                Err(BarrierError::Acquire(error)) => {
                    judge::truth::acquired(&mut state, &op, &Err(error));
                }
                Err(error) => state.report("Untrue", format!("P8: {}: {error}", op.label)),
            }
            state.ended(&op.uses);
            state.record(resource).released = Instant::now();
        })
    }
}
