//! The judge of all contenders: the figures of a block.
//!
//! Times are the wall clock of the machine, which all contenders share. Its readings in two threads may differ by some
//! microseconds: two holders are counted as such when both held for longer than [`CLOCKS`].

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::{Context as _, Result, bail};
use serde::{Deserialize, Serialize};

use super::turns::{Order, Thing};

/// The largest difference between two readings of the clock at one moment, in nanoseconds.
const CLOCKS: u64 = 10_000;

/// One turn of a task. Times are nanoseconds since the epoch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Grant {
    /// Counted through the processes.
    task: usize,
    asked: u64,
    granted: u64,
    releasing: u64,
    released: u64,
}

/// The reports of all processes of a contender about a block.
#[derive(Debug, Default)]
pub(crate) struct Told {
    grants: Vec<Grant>,
    /// The times of the requests that were not granted before the end.
    vain: Vec<u64>,
}

/// The median, the 99th percentile and the largest.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Quantiles {
    pub(crate) p50: f64,
    pub(crate) p99: f64,
    pub(crate) max: f64,
}

/// One block, judged. Times in microseconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Figures {
    pub(crate) grants: usize,
    pub(crate) seconds: f64,
    /// Grants with another task as the previous holder.
    pub(crate) handoffs: usize,
    /// From the call to the grant; a wait without a grant counts with its duration so far.
    pub(crate) wait: Quantiles,
    /// From the call to the end of the release.
    pub(crate) cycle: Quantiles,
    /// From the call of a release to the next grant, of another task: the median. `None` without a change of the holder.
    pub(crate) gap: Option<f64>,
    /// The call of a release: the median.
    pub(crate) release: f64,
    pub(crate) held: f64,
    /// Tasks without a grant.
    pub(crate) starved: usize,
    /// Grants while the limit of holders was already reached.
    pub(crate) overlaps: usize,
    /// Seconds of CPU; `None` if the system does not report them.
    pub(crate) client_cpu: Option<f64>,
    pub(crate) server_cpu: f64,
    /// In a block of the same kind, under `MONITOR`.
    pub(crate) commands: f64,
}

impl Told {
    /// Adds a line that process `process` printed: `asked granted releasing released task`, or `asked - - - task`.
    ///
    /// # Errors
    /// If the line is no such line.
    pub(crate) fn hear(&mut self, process: usize, order: &Order, line: &str) -> Result<()> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [asked, granted, releasing, released, task] = words[..] else {
            bail!("not a grant: {line:?}");
        };
        let number = |word: &str| {
            word.parse::<u64>()
                .with_context(|| format!("not a grant: {line:?}"))
        };
        let asked = number(asked)?;
        let task = usize::try_from(number(task)?)?;
        if granted == "-" {
            self.vain.push(asked);
            return Ok(());
        }
        let grant = Grant {
            task: process * order.tasks + task,
            asked,
            granted: number(granted)?,
            releasing: number(releasing)?,
            released: number(released)?,
        };
        let times = [grant.asked, grant.granted, grant.releasing, grant.released];
        if !times.is_sorted() {
            bail!("the clock went back: {line:?}");
        }
        self.grants.push(grant);
        Ok(())
    }

    /// Judges the block. The costs are added by the caller.
    pub(crate) fn judged(mut self, processes: usize, order: &Order) -> Figures {
        self.grants.sort_unstable_by_key(|grant| grant.granted);
        let asked = self.grants.iter().map(|grant| grant.asked);
        let began = asked.chain(self.vain.iter().copied()).min().unwrap_or(0);
        let released = self.grants.iter().map(|grant| grant.released);
        let block = u64::try_from(order.block.as_nanos()).unwrap_or(u64::MAX);
        let end = released.max().unwrap_or(0).max(began.saturating_add(block));
        let all = processes * order.tasks;
        let mut got = vec![false; all];
        for grant in &self.grants {
            got[grant.task % all.max(1)] = true;
        }
        let names: Vec<Vec<Grant>> = (0..order.names)
            .map(|name| {
                let of_name = |grant: &&Grant| grant.task % order.tasks % order.names == name;
                self.grants.iter().filter(of_name).copied().collect()
            })
            .collect();
        let changes = || {
            let pairs = names.iter().flat_map(|grants| grants.windows(2));
            pairs.filter(|pair| pair[0].task != pair[1].task)
        };
        let gaps = changes().map(|pair| pair[1].granted.saturating_sub(pair[0].releasing));
        let limit = match order.thing {
            Thing::Lock | Thing::Fair => 1,
            Thing::Read => usize::MAX,
            Thing::Semaphore | Thing::Leased => usize::try_from(order.permits).unwrap_or(1),
        };
        let of = |time: fn(&Grant) -> u64| quantiles(self.grants.iter().map(time));
        let waits = self.grants.iter().map(|grant| grant.granted - grant.asked);
        let vain = self.vain.iter().map(|asked| end - asked);
        Figures {
            grants: self.grants.len(),
            seconds: (end - began) as f64 / 1e9,
            handoffs: changes().count(),
            wait: quantiles(waits.chain(vain)).unwrap_or_default(),
            cycle: of(|grant| grant.released - grant.asked).unwrap_or_default(),
            gap: quantiles(gaps).map(|gaps| gaps.p50),
            release: of(|grant| grant.released - grant.releasing)
                .unwrap_or_default()
                .p50,
            held: of(|grant| grant.releasing - grant.granted)
                .unwrap_or_default()
                .p50,
            starved: got.iter().filter(|got| !**got).count(),
            overlaps: names.iter().map(|grants| overlaps(grants, limit)).sum(),
            client_cpu: None,
            server_cpu: 0.0,
            commands: 0.0,
        }
    }
}

/// Grants of one name, in order, that came while `limit` others held, and held on.
fn overlaps(grants: &[Grant], limit: usize) -> usize {
    let mut holding = BinaryHeap::new();
    let mut overlaps = 0;
    for grant in grants {
        let until = grant.granted + CLOCKS;
        while holding.peek().is_some_and(|Reverse(end)| *end <= until) {
            holding.pop();
        }
        overlaps += usize::from(holding.len() >= limit);
        holding.push(Reverse(grant.releasing));
    }
    overlaps
}

/// Microseconds of nanoseconds. `None` of none.
fn quantiles(nanos: impl Iterator<Item = u64>) -> Option<Quantiles> {
    let mut nanos: Vec<u64> = nanos.collect();
    nanos.sort_unstable();
    let last = nanos.len().checked_sub(1)?;
    // The nearest rank: no value that did not occur.
    let at = |percent: usize| nanos[(nanos.len() * percent).div_ceil(100).clamp(1, last + 1) - 1];
    let micros = |nanos: u64| nanos as f64 / 1e3;
    Some(Quantiles {
        p50: micros(at(50)),
        p99: micros(at(99)),
        max: micros(nanos[last]),
    })
}

#[cfg(test)]
#[path = "judge_tests.rs"]
mod tests;
