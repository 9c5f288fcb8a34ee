//! What the tasks report: the detector of overlaps, the last grants and the counts.

use std::collections::VecDeque;
use std::fmt;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use stanchion_lock::FencingToken;
use tokio::time::Instant;

use crate::{CLIENTS, TASKS_PER_CLIENT};

const TASKS: usize = CLIENTS.len() * TASKS_PER_CLIENT;

/// The grants that the picture lists.
pub(crate) const LISTED: usize = 5;

/// The delays that a median is made of. Each frame copies and sorts them.
const MEASURED: usize = 999;

/// One of the tasks, `B3`: the third task of client B.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Task(usize);

impl Task {
    pub(crate) fn all() -> impl Iterator<Item = Self> {
        (0..TASKS).map(Self)
    }

    pub(crate) const fn index(self) -> usize {
        self.0
    }

    pub(crate) const fn client(self) -> usize {
        self.0 / TASKS_PER_CLIENT
    }
}

impl fmt::Display for Task {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let letter = CLIENTS[self.client()];
        write!(f, "{letter}{}", self.0 % TASKS_PER_CLIENT + 1)
    }
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum State {
    #[default]
    Rests,
    Waits,
    Holds,
}

/// How a task was granted the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Route {
    /// After a holder of the same client: handed over inside the process.
    Inside(Task, Duration),
    /// After a holder of another client, whose release published a message.
    Message(Task, Duration),
    /// Without a release before it: the lock was free, or is shared with other readers.
    Free,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Grant {
    pub(crate) task: Task,
    pub(crate) route: Route,
    pub(crate) token: Option<FencingToken>,
}

#[derive(Clone, Debug, Default)]
pub(crate) struct Counts {
    pub(crate) grants: u64,
    /// Grants at full speed.
    pub(crate) fast: u64,
    pub(crate) overlaps: u64,
    /// Tokens that were not larger than the one before.
    pub(crate) stale_tokens: u64,
    pub(crate) errors: u64,
    pub(crate) last_error: Option<String>,
    /// Inside a client, and by message.
    pub(crate) passed: [Passed; 2],
}

/// The releases that were followed by a grant.
#[derive(Clone, Debug, Default)]
pub(crate) struct Passed {
    pub(crate) times: u64,
    /// The last times from the call of a release to the grant.
    pub(crate) delays: VecDeque<Duration>,
}

impl Passed {
    fn add(&mut self, delay: Duration) {
        self.times += 1;
        self.delays.push_front(delay);
        self.delays.truncate(MEASURED);
    }
}

impl Counts {
    pub(crate) const fn is_good(&self) -> bool {
        self.overlaps + self.stale_tokens + self.errors == 0
    }
}

#[derive(Debug, Default)]
struct Inner {
    states: [State; TASKS],
    /// When each task began to wait.
    since: [Option<Instant>; TASKS],
    /// Those inside: alone, and shared.
    alone: usize,
    shared: usize,
    /// The last task that left, and when, until the next grant.
    left: Option<(Task, Instant)>,
    token: Option<FencingToken>,
    /// The newest first.
    last: VecDeque<Grant>,
    counts: Counts,
}

#[derive(Debug)]
pub(crate) struct Board {
    pub(crate) slow_until: Instant,
    inner: Mutex<Inner>,
}

impl Board {
    pub(crate) fn new(slow_until: Instant) -> Self {
        let inner = Mutex::default();
        Self { slow_until, inner }
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_slow(&self) -> bool {
        Instant::now() < self.slow_until
    }

    pub(crate) fn waits(&self, task: Task) {
        let mut inner = self.inner();
        inner.states[task.0] = State::Waits;
        inner.since[task.0] = Some(Instant::now());
    }

    pub(crate) fn rests(&self, task: Task) {
        self.inner().states[task.0] = State::Rests;
    }

    /// A task was granted the lock.
    pub(crate) fn enters(&self, task: Task, shared: bool, token: Option<FencingToken>) {
        let (now, slow) = (Instant::now(), self.is_slow());
        let mut inner = self.inner();
        inner.states[task.0] = State::Holds;
        if inner.alone > 0 || (!shared && inner.shared > 0) {
            inner.counts.overlaps += 1;
        }
        if shared {
            inner.shared += 1;
        } else {
            inner.alone += 1;
        }
        if token.is_some() && token <= inner.token {
            inner.counts.stale_tokens += 1;
        }
        inner.token = token.or(inner.token);
        let since = inner.since[task.0];
        // A task that began to wait after the release found the lock free.
        let route = match inner.left.take().filter(|(_, left)| Some(*left) >= since) {
            None => Route::Free,
            Some((from, left)) if from.client() == task.client() => Route::Inside(from, now - left),
            Some((from, left)) => Route::Message(from, now - left),
        };
        match route {
            Route::Inside(_, delay) => inner.counts.passed[0].add(delay),
            Route::Message(_, delay) => inner.counts.passed[1].add(delay),
            Route::Free => {}
        }
        inner.counts.grants += 1;
        inner.counts.fast += u64::from(!slow);
        inner.last.push_front(Grant { task, route, token });
        inner.last.truncate(LISTED);
    }

    /// A task leaves, and releases afterwards.
    pub(crate) fn leaves(&self, task: Task, shared: bool) {
        let mut inner = self.inner();
        if shared {
            inner.shared -= 1;
        } else {
            inner.alone -= 1;
        }
        inner.states[task.0] = State::Rests;
        inner.left = Some((task, Instant::now()));
    }

    pub(crate) fn failed(&self, error: &dyn fmt::Display) {
        let counts = &mut self.inner().counts;
        counts.errors += 1;
        counts.last_error = Some(error.to_string());
    }

    pub(crate) fn counts(&self) -> Counts {
        self.inner().counts.clone()
    }

    pub(crate) fn states(&self) -> Vec<State> {
        self.inner().states.to_vec()
    }

    /// The last grants, the newest first.
    pub(crate) fn last(&self) -> Vec<Grant> {
        self.inner().last.iter().copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Enters and leaves in this order: a task, whether it shares, its token, or `None` when it leaves.
    fn counted(steps: &[(usize, bool, Option<Option<u64>>)]) -> (u64, u64) {
        let board = Board::new(Instant::now());
        for (task, shared, entry) in steps {
            match entry {
                Some(token) => {
                    board.enters(Task(*task), *shared, token.and_then(FencingToken::new));
                }
                None => board.leaves(Task(*task), *shared),
            }
        }
        let counts = board.counts();
        (counts.overlaps, counts.stale_tokens)
    }

    #[test]
    fn two_inside_are_an_overlap_and_one_after_the_other_are_not() {
        let one_by_one = [
            (0, false, Some(Some(1))),
            (0, false, None),
            (1, false, Some(Some(2))),
        ];
        assert_eq!(counted(&one_by_one), (0, 0));
        assert_eq!(
            counted(&[(0, false, Some(Some(1))), (1, false, Some(Some(2)))]),
            (1, 0)
        );
    }

    #[test]
    fn readers_share_and_a_writer_next_to_a_reader_is_an_overlap() {
        let read = |task| (task, true, Some(None));
        let write = (7, false, Some(Some(1)));
        assert_eq!(counted(&[read(0), read(1)]), (0, 0));
        assert_eq!(counted(&[read(0), write]), (1, 0));
        assert_eq!(counted(&[write, read(0)]), (1, 0));
        assert_eq!(
            counted(&[read(0), (0, true, None), write, (7, false, None), read(0)]),
            (0, 0)
        );
    }

    #[test]
    fn a_token_that_does_not_grow_is_stale() {
        let turn = |token| [(0, false, Some(token)), (0, false, None)];
        let turns = |tokens: &[Option<u64>]| {
            counted(&tokens.iter().copied().flat_map(turn).collect::<Vec<_>>()).1
        };
        assert_eq!(turns(&[Some(5), None, Some(6)]), 0);
        assert_eq!(turns(&[Some(5), Some(5)]), 1);
        assert_eq!(turns(&[Some(5), None, Some(4)]), 1);
    }

    #[test]
    fn a_grant_after_another_client_came_by_message() {
        let board = Board::new(Instant::now());
        for task in [0, 1, 5] {
            board.waits(Task(task));
        }
        for task in [0, 1, 5] {
            board.enters(Task(task), false, None);
            board.leaves(Task(task), false);
        }
        board.waits(Task(5));
        board.enters(Task(5), false, None);
        let last = board.last();
        assert_eq!(last[0].route, Route::Free);
        assert!(
            matches!(last[1].route, Route::Message(Task(1), _)),
            "{last:?}"
        );
        assert!(
            matches!(last[2].route, Route::Inside(Task(0), _)),
            "{last:?}"
        );
        assert_eq!(last[3].route, Route::Free);
    }
}
