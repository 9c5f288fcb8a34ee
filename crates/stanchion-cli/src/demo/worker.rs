//! A worker: wait, hold for a moment, rest for a moment.

use std::sync::Arc;
use std::time::Duration;

use stanchion::ReleaseError;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::board::{Board, State};
use super::prize::{Held, Place, Prize};

/// The longest duration of a hold or a rest.
const MOMENT: Duration = Duration::from_millis(3);
/// The pause of a worker after a failed acquire.
pub(super) const AFTER_ERROR: Duration = Duration::from_millis(200);

/// One of the workers.
#[derive(Debug)]
pub(super) struct Worker {
    pub(super) id: usize,
    pub(super) client: usize,
    pub(super) prize: Prize,
    pub(super) board: Arc<Board>,
    pub(super) stop: CancellationToken,
}

impl Worker {
    pub(super) async fn run(self) {
        while !self.stop.is_cancelled() {
            self.board.set_state(self.id, State::Waiting);
            let asked = Instant::now();
            // The end of the demonstration drops the future, which gives up the place in the queue.
            let Some(acquired) = self.stop.run_until_cancelled(self.prize.acquire()).await else {
                break;
            };
            match acquired {
                Ok((held, places)) => self.hold(held, &places, asked.elapsed()).await,
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

    async fn hold(&self, held: Held, places: &[Place], waited: Duration) {
        self.board.enter(places, self.id, self.client, waited);
        // On a loss `run` drops the work in time, so the detector sees this worker leave before the next enters.
        let worked = held.run(sleep(a_moment())).await;
        self.board.leave(places, self.id);
        if worked.is_err() {
            self.board.lost();
            return;
        }
        match held.release().await {
            Ok(()) => {}
            Err(ReleaseError::Lost(_)) => self.board.lost(),
            Err(error) => self.board.error(&error),
        }
    }
}

/// A random short while.
pub(super) fn a_moment() -> Duration {
    MOMENT.mul_f64(fastrand::f64())
}
