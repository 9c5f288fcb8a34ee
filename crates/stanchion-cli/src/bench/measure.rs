//! The loops that are measured.

use std::time::Duration;

use hdrhistogram::Histogram;
use stanchion::{AcquireError, Client, Lock};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::exit::{Failure, Library};

/// Times of one part.
#[derive(Debug)]
pub(super) struct Measured {
    /// In µs.
    pub(super) times: Histogram<u64>,
    took: Duration,
}

impl Measured {
    fn new() -> Self {
        // One microsecond to one hour, three digits.
        #[expect(clippy::expect_used, reason = "the bounds are constants that fit")]
        let times = Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("valid bounds");
        Self {
            times,
            took: Duration::ZERO,
        }
    }

    fn add(&mut self, time: Duration) {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        self.times.saturating_record(micros.max(1));
    }

    #[expect(
        clippy::cast_precision_loss,
        reason = "a rate needs no more than 52 bits"
    )]
    pub(super) fn per_second(&self) -> f64 {
        let seconds = self.took.as_secs_f64();
        if seconds > 0.0 {
            (self.times.len() as f64 / seconds).round()
        } else {
            0.0
        }
    }
}

/// Requests that do nothing.
pub(super) async fn round_trips(
    client: &Client,
    name: &str,
    time: Duration,
    stop: &CancellationToken,
) -> Result<Measured, Failure> {
    let mut measured = Measured::new();
    let name = client.name(name).map_err(Library)?;
    let Some(console) = client.console_of(name.as_bytes()) else {
        return Ok(measured);
    };
    let started = Instant::now();
    while started.elapsed() < time && !stop.is_cancelled() {
        let sent = Instant::now();
        console.command(&["TIME"]).await.map_err(Library)?;
        measured.add(sent.elapsed());
    }
    measured.took = started.elapsed();
    Ok(measured)
}

/// Runs one task per lock, which acquires and releases it. A single task records whole cycles; several tasks record their waits.
pub(super) async fn cycles(
    locks: Vec<Lock>,
    time: Duration,
    stop: &CancellationToken,
) -> Result<Measured, Failure> {
    let alone = locks.len() == 1;
    let started = Instant::now();
    let end = started + time;
    let tasks = locks.into_iter().map(|lock| {
        let stop = stop.clone();
        tokio::spawn(async move {
            let mut times = Measured::new();
            while Instant::now() < end && !stop.is_cancelled() {
                let asked = Instant::now();
                let guard = lock.acquire_timeout(time.max(PATIENCE)).await?;
                let waited = asked.elapsed();
                // A loss at this point is caused by the server, and the next acquire reports the cause.
                let _ = guard.release().await;
                times.add(if alone { asked.elapsed() } else { waited });
            }
            Ok::<_, AcquireError>(times)
        })
    });
    let mut all = Measured::new();
    let mut failed = None;
    // All tasks end before the outcome is reported: the caller removes the name afterwards.
    for task in tasks.collect::<Vec<_>>() {
        match task.await {
            Ok(Ok(one)) => all.times += &one.times,
            Ok(Err(error)) => failed = Some(Failure::from(Library(error))),
            // Only a panic, which the panic hook has reported.
            Err(_) => {}
        }
    }
    all.took = started.elapsed();
    failed.map_or(Ok(all), Err)
}

/// The longest wait for a lock of the benchmark.
const PATIENCE: Duration = Duration::from_secs(10);
