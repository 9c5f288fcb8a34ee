//! A worker: wait, hold for a moment, rest for a moment.

use std::sync::Arc;
use std::time::Duration;

use stanchion::{Lock, LockGuard, ReleaseError};
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::board::{Board, State};

/// Holds and rests last up to so long.
const MOMENT: Duration = Duration::from_millis(3);
/// A worker whose acquire failed tries again after this.
const AFTER_ERROR: Duration = Duration::from_millis(200);

/// One of many.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: usize,
    pub(super) client: usize,
    pub(super) locks: Vec<Lock>,
    pub(super) board: Arc<Board>,
    pub(super) stop: CancellationToken,
}

impl Worker {
    pub(super) async fn run(self) {
        while !self.stop.is_cancelled() {
            let name = fastrand::usize(0..self.locks.len());
            self.board.set_state(self.id, State::Waiting);
            let asked = Instant::now();
            // The future is dropped when the demonstration ends: that gives up the place in the queue.
            let Some(acquired) = self
                .stop
                .run_until_cancelled(self.locks[name].acquire())
                .await
            else {
                break;
            };
            match acquired {
                Ok(guard) => self.hold(name, guard, asked.elapsed()).await,
                Err(error) => {
                    self.board.error(&error);
                    self.board.set_state(self.id, State::Resting);
                    self.stop.run_until_cancelled(sleep(AFTER_ERROR)).await;
                }
            }
            self.board.set_state(self.id, State::Resting);
            sleep(a_moment()).await;
        }
        self.board.set_state(self.id, State::Resting);
    }

    async fn hold(&self, name: usize, guard: LockGuard, waited: Duration) {
        let token = guard.fencing_token();
        self.board.enter(name, self.id, self.client, token, waited);
        // Dropped in time should the lease be lost, so the detector sees this worker leave before the next enters.
        let worked = guard.run(sleep(a_moment())).await;
        self.board.leave(name, self.id);
        if worked.is_err() {
            self.board.lost();
            return;
        }
        match guard.release().await {
            Ok(()) => {}
            Err(ReleaseError::Lost(_)) => self.board.lost(),
            Err(error) => self.board.error(&error),
        }
    }
}

fn a_moment() -> Duration {
    MOMENT.mul_f64(fastrand::f64())
}
