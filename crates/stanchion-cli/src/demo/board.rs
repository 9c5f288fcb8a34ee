//! What the workers report: the overlap detector and the counts.

use std::fmt;
use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use stanchion::FencingToken;

/// What a worker is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    Resting,
    Waiting,
    Holding,
}

/// The critical section of one lock.
#[derive(Debug, Default)]
struct Room {
    /// How many are inside. The detector: it must never be more than one.
    inside: AtomicUsize,
    last: Mutex<Last>,
}

/// The last grant of one lock.
#[derive(Debug, Default)]
struct Last {
    client: Option<usize>,
    worker: Option<usize>,
    token: Option<FencingToken>,
}

/// Counts of everything so far.
#[derive(Clone, Debug, Default)]
pub(super) struct Counts {
    pub(super) grants: u64,
    pub(super) overlaps: u64,
    /// Tokens that were not larger than the one before.
    pub(super) stale_tokens: u64,
    /// Grants after a holder of the same client.
    pub(super) same_client: u64,
    /// Grants after a holder of another client.
    pub(super) other_client: u64,
    pub(super) lost: u64,
    pub(super) errors: u64,
}

/// Percentiles of the wait.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Waits {
    pub(super) p50: Duration,
    pub(super) p99: Duration,
    pub(super) max: Duration,
}

/// Shared by all workers and the display.
#[derive(Debug)]
pub(super) struct Board {
    pub(super) clients: usize,
    workers: Vec<AtomicU8>,
    grants_of: Vec<AtomicU64>,
    rooms: Vec<Room>,
    overlaps: AtomicU64,
    stale_tokens: AtomicU64,
    same_client: AtomicU64,
    other_client: AtomicU64,
    lost: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
    waits: Mutex<Histogram<u64>>,
}

impl Board {
    pub(super) fn new(workers: usize, clients: usize, names: usize) -> Self {
        Self {
            clients,
            workers: (0..workers).map(|_| AtomicU8::default()).collect(),
            grants_of: (0..workers).map(|_| AtomicU64::default()).collect(),
            rooms: (0..names).map(|_| Room::default()).collect(),
            overlaps: AtomicU64::default(),
            stale_tokens: AtomicU64::default(),
            same_client: AtomicU64::default(),
            other_client: AtomicU64::default(),
            lost: AtomicU64::default(),
            errors: AtomicU64::default(),
            last_error: Mutex::default(),
            waits: Mutex::new(empty_histogram()),
        }
    }

    /// A worker has been granted a lock and enters its critical section.
    pub(super) fn enter(
        &self,
        name: usize,
        worker: usize,
        client: usize,
        token: Option<FencingToken>,
        waited: Duration,
    ) {
        let room = &self.rooms[name];
        if room.inside.fetch_add(1, Ordering::SeqCst) > 0 {
            add(&self.overlaps);
        }
        let before = {
            let now = Last {
                client: Some(client),
                worker: Some(worker),
                token,
            };
            std::mem::replace(&mut *locked(&room.last), now)
        };
        match before.client {
            Some(other) if other != client => add(&self.other_client),
            Some(_) => add(&self.same_client),
            None => {}
        }
        if before.token.is_some() && token <= before.token {
            add(&self.stale_tokens);
        }
        add(&self.grants_of[worker]);
        self.set_state(worker, State::Holding);
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        locked(&self.waits).saturating_record(micros);
    }

    /// The worker leaves the critical section; it releases afterwards.
    pub(super) fn leave(&self, name: usize, worker: usize) {
        self.rooms[name].inside.fetch_sub(1, Ordering::SeqCst);
        self.set_state(worker, State::Resting);
    }

    pub(super) fn set_state(&self, worker: usize, state: State) {
        self.workers[worker].store(state as u8, Ordering::Relaxed);
    }

    pub(super) fn lost(&self) {
        add(&self.lost);
    }

    pub(super) fn error(&self, error: &dyn fmt::Display) {
        add(&self.errors);
        *locked(&self.last_error) = Some(error.to_string());
    }

    pub(super) fn last_error(&self) -> Option<String> {
        locked(&self.last_error).clone()
    }

    pub(super) fn counts(&self) -> Counts {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        Counts {
            grants: self.grants_of.iter().map(get).sum(),
            overlaps: get(&self.overlaps),
            stale_tokens: get(&self.stale_tokens),
            same_client: get(&self.same_client),
            other_client: get(&self.other_client),
            lost: get(&self.lost),
            errors: get(&self.errors),
        }
    }

    pub(super) fn states(&self) -> Vec<State> {
        let state = |worker: &AtomicU8| match worker.load(Ordering::Relaxed) {
            1 => State::Waiting,
            2 => State::Holding,
            _ => State::Resting,
        };
        self.workers.iter().map(state).collect()
    }

    /// Grants of each worker.
    pub(super) fn grants_of_workers(&self) -> Vec<u64> {
        let grants = |count: &AtomicU64| count.load(Ordering::Relaxed);
        self.grants_of.iter().map(grants).collect()
    }

    /// Who was granted each lock last, and with which token.
    pub(super) fn last_grants(&self) -> Vec<Option<(usize, usize, Option<FencingToken>)>> {
        let last = |room: &Room| {
            let last = locked(&room.last);
            Some((last.worker?, last.client?, last.token))
        };
        self.rooms.iter().map(last).collect()
    }

    pub(super) fn waits(&self) -> Waits {
        let waits = locked(&self.waits);
        let at = |quantile| Duration::from_micros(waits.value_at_quantile(quantile));
        Waits {
            p50: at(0.5),
            p99: at(0.99),
            max: Duration::from_micros(waits.max()),
        }
    }
}

/// One microsecond to one hour, three digits.
fn empty_histogram() -> Histogram<u64> {
    #[expect(clippy::expect_used, reason = "the bounds are constants that fit")]
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("valid bounds")
}

fn add(count: &AtomicU64) {
    count.fetch_add(1, Ordering::Relaxed);
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn enter(board: &Board, worker: usize, token: u64) {
        board.enter(0, worker, worker, FencingToken::new(token), Duration::ZERO);
    }

    #[test]
    fn two_inside_are_an_overlap_and_one_after_the_other_are_not() {
        let board = Board::new(2, 2, 1);
        enter(&board, 0, 1);
        board.leave(0, 0);
        enter(&board, 1, 2);
        assert_eq!(board.counts().overlaps, 0);
        enter(&board, 0, 3);
        assert_eq!(board.counts().overlaps, 1);
    }

    #[test]
    fn a_token_that_does_not_grow_is_seen() {
        let board = Board::new(2, 2, 1);
        for (token, stale) in [(5, 0), (6, 0), (6, 1), (5, 2)] {
            enter(&board, 0, token);
            board.leave(0, 0);
            assert_eq!(board.counts().stale_tokens, stale, "{token}");
        }
    }

    #[test]
    fn grants_are_told_apart_by_the_holder_before() {
        let board = Board::new(2, 2, 1);
        for (worker, token) in [(0, 1), (0, 2), (1, 3)] {
            enter(&board, worker, token);
            board.leave(0, worker);
        }
        let counts = board.counts();
        assert_eq!(
            (counts.grants, counts.same_client, counts.other_client),
            (3, 1, 1)
        );
    }
}
