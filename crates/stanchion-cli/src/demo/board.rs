//! The reports of the workers: the overlap detector and the counts.

use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hdrhistogram::Histogram;
use stanchion::FencingToken;

use super::prize::Place;

/// The state of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum State {
    Resting,
    Waiting,
    Holding,
}

/// The critical section of one name.
#[derive(Debug, Default)]
struct Room {
    /// The number of units inside. The detector checks that it never exceeds the capacity.
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
    /// The capacity of each room.
    capacity: usize,
    workers: Vec<AtomicU8>,
    grants_of: Vec<AtomicU64>,
    rooms: Vec<Room>,
    overlaps: AtomicU64,
    stale_tokens: AtomicU64,
    same_client: AtomicU64,
    other_client: AtomicU64,
    lost: AtomicU64,
    out_of_reach: AtomicBool,
    outage_micros: AtomicU64,
    errors: AtomicU64,
    last_error: Mutex<Option<String>>,
    waits: Mutex<Histogram<u64>>,
}

impl Board {
    pub(super) fn new(workers: usize, clients: usize, names: usize, capacity: usize) -> Self {
        Self {
            clients,
            capacity,
            workers: (0..workers).map(|_| AtomicU8::default()).collect(),
            grants_of: (0..workers).map(|_| AtomicU64::default()).collect(),
            rooms: (0..names).map(|_| Room::default()).collect(),
            overlaps: AtomicU64::default(),
            stale_tokens: AtomicU64::default(),
            same_client: AtomicU64::default(),
            other_client: AtomicU64::default(),
            lost: AtomicU64::default(),
            out_of_reach: AtomicBool::default(),
            outage_micros: AtomicU64::default(),
            errors: AtomicU64::default(),
            last_error: Mutex::default(),
            waits: Mutex::new(empty_histogram()),
        }
    }

    /// Records that a worker enters the critical sections of its grant.
    pub(super) fn enter(&self, places: &[Place], worker: usize, client: usize, waited: Duration) {
        for place in places {
            self.enter_room(place, worker, client);
        }
        self.granted(worker, waited);
        self.set_state(worker, State::Holding);
    }

    fn enter_room(&self, place: &Place, worker: usize, client: usize) {
        let room = &self.rooms[place.name];
        if room.inside.fetch_add(place.units, Ordering::SeqCst) + place.units > self.capacity {
            add(&self.overlaps);
        }
        let before = {
            let mut last = locked(&room.last);
            let now = Last {
                client: Some(client),
                worker: Some(worker),
                // Readers and permits have no token: the last one stays.
                token: place.token.or(last.token),
            };
            std::mem::replace(&mut *last, now)
        };
        match before.client {
            Some(other) if other != client => add(&self.other_client),
            Some(_) => add(&self.same_client),
            None => {}
        }
        if before.token.is_some() && place.token.is_some() && place.token <= before.token {
            add(&self.stale_tokens);
        }
    }

    fn granted(&self, worker: usize, waited: Duration) {
        add(&self.grants_of[worker]);
        let micros = u64::try_from(waited.as_micros()).unwrap_or(u64::MAX);
        locked(&self.waits).saturating_record(micros);
    }

    /// Records that a worker passes a latch, which is too early unless all have counted.
    pub(super) fn pass(
        &self,
        worker: usize,
        client: usize,
        all_have_counted: bool,
        waited: Duration,
    ) {
        if !all_have_counted {
            add(&self.overlaps);
        }
        *locked(&self.rooms[0].last) = Last {
            client: Some(client),
            worker: Some(worker),
            token: None,
        };
        self.granted(worker, waited);
    }

    /// Records that a worker leaves the critical sections. The worker releases afterwards.
    pub(super) fn leave(&self, places: &[Place], worker: usize) {
        for place in places {
            self.rooms[place.name]
                .inside
                .fetch_sub(place.units, Ordering::SeqCst);
        }
        self.set_state(worker, State::Resting);
    }

    pub(super) fn set_state(&self, worker: usize, state: State) {
        self.workers[worker].store(state as u8, Ordering::Relaxed);
    }

    /// Records the periodic check of the server.
    pub(super) fn watch(&self, within_reach: bool, since_last_look: Duration) {
        self.out_of_reach.store(!within_reach, Ordering::Relaxed);
        if !within_reach {
            let micros = u64::try_from(since_last_look.as_micros()).unwrap_or(u64::MAX);
            self.outage_micros.fetch_add(micros, Ordering::Relaxed);
        }
    }

    /// True while a client cannot reach the server.
    pub(super) fn is_out_of_reach(&self) -> bool {
        self.out_of_reach.load(Ordering::Relaxed)
    }

    /// The total time for which the server could not be reached.
    pub(super) fn outage(&self) -> Duration {
        Duration::from_micros(self.outage_micros.load(Ordering::Relaxed))
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

    /// The last worker that was granted each lock, its client and its token.
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

    /// A worker alone in its client.
    fn enter(board: &Board, worker: usize, units: usize, token: Option<u64>) -> [Place; 1] {
        let token = token.and_then(FencingToken::new);
        let places = [Place {
            name: 0,
            units,
            token,
        }];
        board.enter(&places, worker, worker, Duration::ZERO);
        places
    }

    #[test]
    fn two_inside_are_an_overlap_and_one_after_the_other_are_not() {
        let board = Board::new(2, 2, 1, 1);
        let first = enter(&board, 0, 1, Some(1));
        board.leave(&first, 0);
        let _second = enter(&board, 1, 1, Some(2));
        assert_eq!(board.counts().overlaps, 0);
        let _third = enter(&board, 0, 1, Some(3));
        assert_eq!(board.counts().overlaps, 1);
    }

    #[test]
    fn a_writer_among_readers_is_an_overlap_and_readers_are_not() {
        let board = Board::new(3, 3, 1, 100);
        let readers = [0, 1].map(|worker| enter(&board, worker, 1, None));
        assert_eq!(board.counts().overlaps, 0);
        let writer = enter(&board, 2, 100, Some(1));
        assert_eq!(board.counts().overlaps, 1);
        board.leave(&writer, 2);
        board.leave(&readers[0], 0);
        board.leave(&readers[1], 1);
        let writer = enter(&board, 2, 100, Some(2));
        assert_eq!(board.counts().overlaps, 1);
        let _reader = enter(&board, 0, 1, None);
        assert_eq!(board.counts().overlaps, 2, "a reader beside a writer");
        board.leave(&writer, 2);
    }

    #[test]
    fn a_token_that_does_not_grow_is_seen_and_none_is_no_token() {
        let board = Board::new(2, 2, 1, 1);
        for (token, stale) in [
            (Some(5), 0),
            (None, 0),
            (Some(6), 0),
            (Some(6), 1),
            (None, 1),
            (Some(5), 2),
        ] {
            let places = enter(&board, 0, 1, token);
            board.leave(&places, 0);
            assert_eq!(board.counts().stale_tokens, stale, "{token:?}");
        }
    }

    #[test]
    fn going_on_too_early_is_an_overlap() {
        let board = Board::new(2, 2, 1, 1);
        board.pass(0, 0, true, Duration::ZERO);
        assert_eq!(board.counts().overlaps, 0);
        board.pass(1, 1, false, Duration::ZERO);
        let counts = board.counts();
        assert_eq!((counts.overlaps, counts.grants), (1, 2));
    }

    #[test]
    fn grants_differ_by_the_holder_before() {
        let board = Board::new(2, 2, 1, 1);
        for (worker, token) in [(0, 1), (0, 2), (1, 3)] {
            let places = enter(&board, worker, 1, Some(token));
            board.leave(&places, worker);
        }
        let counts = board.counts();
        assert_eq!(
            (counts.grants, counts.same_client, counts.other_client),
            (3, 1, 1)
        );
    }
}
