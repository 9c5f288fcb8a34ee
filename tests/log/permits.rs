//! Tests the warning about an acquire that waits for a semaphore which does not exist.

use std::io::{self, Write};

use futures_util::FutureExt as _;
use stanchion::Semaphore;
use stanchion_tests::{World, ms};

use crate::Log;
use crate::outages::count;

/// A log whose writer waits for the same semaphore at each line.
struct Writer {
    log: Log,
    seats: Semaphore,
}

impl Write for Writer {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // Polled once, and dropped.
        drop(self.seats.acquire().now_or_never());
        self.log.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// A subscriber may use the client, so the line is written outside of the queue's mutex.
#[tokio::test(start_paused = true)]
async fn a_wait_for_a_missing_semaphore_logs_one_warning() {
    let client = World::engine().client().await;
    let (log, seats) = (Log::default(), Semaphore::new(&client, "seats").unwrap());
    let (text, used) = (log.clone(), seats.clone());
    let writer = move || Writer {
        log: text.clone(),
        seats: used.clone(),
    };
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(tracing::Level::WARN)
        .with_ansi(false)
        .without_time()
        .with_writer(writer)
        .finish();
    let _listening = tracing::subscriber::set_default(subscriber);
    let error = seats.acquire_timeout(ms(20_000)).await.unwrap_err();
    assert!(error.to_string().contains("call `init`"), "{error}");
    assert_eq!(count(&log, "WARN", "call `init`"), 1, "{}", log.text());
}
