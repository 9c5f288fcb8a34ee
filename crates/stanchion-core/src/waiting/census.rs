//! The numbers of waiters, for the gauges.

use stanchion_transport::Moment;

use super::entries::LockEntries;
use super::shared::Host as _;

impl LockEntries {
    /// The number of waiters by kind, and the start of the oldest of their calls. Locks each queue under its shard.
    pub(crate) fn census(&self) -> (Vec<(&'static str, u64)>, Option<Moment>) {
        let mut numbers: Vec<(&'static str, u64)> = Vec::new();
        let mut first: Option<Moment> = None;
        for entry in &self.table.entries {
            let state = entry.state();
            for waiter in state.queue.waiters() {
                let kind = waiter.want.kind().name();
                match numbers.iter_mut().find(|(other, _)| *other == kind) {
                    Some((_, number)) => *number += 1,
                    None => numbers.push((kind, 1)),
                }
                // The start of the call, not of the place: a multi-lock takes new places as it moves from name to name.
                let began = waiter.stay.began;
                first = Some(first.map_or(began, |first| first.min(began)));
            }
        }
        (numbers, first)
    }
}
