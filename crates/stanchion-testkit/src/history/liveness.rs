//! The check that an available lock is granted to a waiter.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use super::Mode;
use super::holds::{Acquires, Who};

/// One change of the holders and waiters. At equal times sorted by variant: ends before starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Step {
    Freed(usize),
    WaitEnded(usize),
    Taken(usize),
    WaitBegan(usize),
}

/// Returns the first time from which, for longer than `bound`, each waiter alone could have had the lock and none got it.
///
/// Requiring it of every waiter allows every policy: a queue may hold a reader back behind a writer that has to wait.
pub(super) fn stall(
    acquires: &Acquires,
    killed: &HashMap<u32, Duration>,
    limit: Option<u32>,
    end: Duration,
    bound: Duration,
) -> Option<(Duration, Who)> {
    let mut steps = Vec::new();
    for (i, acquire) in acquires.iter().enumerate() {
        let killed = killed.get(&acquire.who.0).copied();
        let ended = acquire.answered.or(killed).unwrap_or(Duration::MAX);
        if acquire.invoked < ended {
            steps.push((acquire.invoked, Step::WaitBegan(i)));
            steps.push((ended, Step::WaitEnded(i)));
        }
        let held = match &acquire.hold {
            Some(hold) => Some((hold.granted, hold.server_end())),
            None => acquire.ambiguous_until.map(|to| (acquire.invoked, to)),
        };
        if let Some((from, to)) = held.filter(|(from, to)| from < to) {
            steps.push((from, Step::Taken(i)));
            steps.push((to, Step::Freed(i)));
        }
    }
    steps.sort_unstable();

    let mut state = State {
        limit,
        ..State::default()
    };
    let mut since: Option<Duration> = None;
    for (at, step) in steps {
        let stalled = since.filter(|since| at.min(end).saturating_sub(*since) > bound);
        if let Some(since) = stalled {
            let waiter = state.waiting.keys().next().map(|i| acquires[*i].who);
            return waiter.map(|who| (since, who));
        }
        let progress = matches!(step, Step::Taken(_));
        state.apply(step, acquires);
        if !state.all_can() {
            since = None;
        } else if progress || since.is_none() {
            since = Some(at);
        }
    }
    let since = since.filter(|since| end.saturating_sub(*since) > bound)?;
    let waiter = state.waiting.keys().next()?;
    Some((since, acquires[*waiter].who))
}

#[derive(Default)]
struct State {
    limit: Option<u32>,
    waiting: BTreeMap<usize, ()>,
    writers_waiting: usize,
    /// The number of waiters for each number of permits.
    permits_waiting: BTreeMap<u32, usize>,
    writers: usize,
    readers: usize,
    permits: u64,
}

impl State {
    fn apply(&mut self, step: Step, acquires: &Acquires) {
        match step {
            Step::WaitBegan(i) => {
                self.waiting.insert(i, ());
                match acquires[i].mode {
                    Mode::Write => self.writers_waiting += 1,
                    Mode::Read => {}
                    Mode::Permits(n) => *self.permits_waiting.entry(n).or_default() += 1,
                }
            }
            Step::WaitEnded(i) => {
                self.waiting.remove(&i);
                match acquires[i].mode {
                    Mode::Write => self.writers_waiting -= 1,
                    Mode::Read => {}
                    Mode::Permits(n) => self.permit_wait_ended(n),
                }
            }
            Step::Taken(i) => match acquires[i].mode {
                Mode::Write => self.writers += 1,
                Mode::Read => self.readers += 1,
                Mode::Permits(n) => self.permits += u64::from(n),
            },
            Step::Freed(i) => match acquires[i].mode {
                Mode::Write => self.writers -= 1,
                Mode::Read => self.readers -= 1,
                Mode::Permits(n) => self.permits -= u64::from(n),
            },
        }
    }

    fn permit_wait_ended(&mut self, n: u32) {
        if let Some(count) = self.permits_waiting.get_mut(&n) {
            *count -= 1;
            if *count == 0 {
                self.permits_waiting.remove(&n);
            }
        }
    }

    /// Returns whether there are waiters, and each of them alone could have the lock now.
    fn all_can(&self) -> bool {
        let largest = self.permits_waiting.keys().next_back().copied();
        let permits_fit = largest.is_none_or(|n| {
            let limit = self.limit.map_or(u64::MAX, u64::from);
            self.permits + u64::from(n) <= limit
        });
        !self.waiting.is_empty()
            && self.writers == 0
            && permits_fit
            && (self.writers_waiting == 0 || self.readers == 0)
    }
}
