//! The latch: in each round every worker counts once and continues when all have.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use stanchion::{Client, CountDownLatch};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::board::{Board, State};
use super::worker::{AFTER_ERROR, a_moment};

/// A round's latch, with a name that no other demonstration on the server uses, and the number of workers that have counted.
#[derive(Clone, Debug)]
struct Round {
    name: String,
    counted: Arc<AtomicUsize>,
    passed: Arc<AtomicUsize>,
}

/// The state that the workers and their caller share.
#[derive(Debug)]
pub(super) struct Rounds {
    workers: usize,
    current: watch::Sender<Option<Round>>,
}

impl Rounds {
    pub(super) fn new(workers: usize) -> Self {
        Self {
            workers,
            current: watch::Sender::new(None),
        }
    }

    /// Arms one latch after the other, each when all workers have passed the one before.
    pub(super) async fn call(&self, client: Client, board: Arc<Board>, stop: CancellationToken) {
        let mut number = 0_u64;
        while !stop.is_cancelled() {
            number += 1;
            let round = Round {
                name: format!("latch-{}-{number}", client.id()),
                counted: Arc::default(),
                passed: Arc::default(),
            };
            if let Err(error) = self.arm(&client, &round).await {
                board.error(&error);
                stop.run_until_cancelled(sleep(AFTER_ERROR)).await;
                continue;
            }
            let passed = Arc::clone(&round.passed);
            self.current.send_replace(Some(round));
            while passed.load(Ordering::SeqCst) < self.workers && !stop.is_cancelled() {
                sleep(Duration::from_millis(1)).await;
            }
        }
        // A count has no TTL, so the last one is deleted. The same signal has stopped all workers.
        let last = self.current.borrow().clone();
        if let Some(round) = last
            && let Err(error) = self.open(&client, &round).await
        {
            board.error(&error);
        }
    }

    async fn open(&self, client: &Client, round: &Round) -> Result<(), stanchion::Error> {
        let latch = CountDownLatch::new(client, &round.name)?;
        latch.count_down_by(self.workers as u64).await?;
        Ok(())
    }

    async fn arm(&self, client: &Client, round: &Round) -> Result<(), stanchion::Error> {
        let latch = CountDownLatch::new(client, &round.name)?;
        latch.arm(self.workers as u64).await?;
        Ok(())
    }

    /// Runs one worker, round after round.
    pub(super) async fn follow(
        &self,
        worker: usize,
        number: usize,
        client: Client,
        board: Arc<Board>,
        stop: CancellationToken,
    ) {
        let mut rounds = self.current.subscribe();
        // The first round may have been called already.
        rounds.mark_changed();
        loop {
            board.set_state(worker, State::Resting);
            let Some(Ok(())) = stop.run_until_cancelled(rounds.changed()).await else {
                break;
            };
            let Some(round) = rounds.borrow_and_update().clone() else {
                continue;
            };
            sleep(a_moment()).await;
            let asked = Instant::now();
            board.set_state(worker, State::Waiting);
            let meeting = self.meet(&client, &round);
            match stop.run_until_cancelled(meeting).await {
                None => break,
                Some(Err(error)) => board.error(&error),
                Some(Ok(())) => {
                    let all = round.counted.load(Ordering::SeqCst) == self.workers;
                    board.pass(worker, number, all, asked.elapsed());
                }
            }
            round.passed.fetch_add(1, Ordering::SeqCst);
        }
        board.set_state(worker, State::Resting);
    }

    async fn meet(&self, client: &Client, round: &Round) -> Result<(), stanchion::Error> {
        let latch = CountDownLatch::new(client, &round.name)?;
        round.counted.fetch_add(1, Ordering::SeqCst);
        latch.count_down().await?;
        latch.wait().await?;
        Ok(())
    }
}
