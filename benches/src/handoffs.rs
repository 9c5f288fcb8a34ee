//! Many tasks on one name: counts the grants that change the holder, and measures their cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use hdrhistogram::Histogram;
use stanchion_testkit::RedisServer;

use crate::kind::AnyLock;

/// The result of a block of contention.
#[derive(Clone, Debug)]
pub(crate) struct Relay {
    /// Grants with another task as the previous holder.
    pub(crate) handoffs: usize,
    pub(crate) elapsed: Duration,
    /// Microseconds from the call to the guard.
    pub(crate) waits: Histogram<u64>,
}

impl Relay {
    pub(crate) fn handoffs_per_second(&self) -> f64 {
        self.handoffs as f64 / self.elapsed.as_secs_f64()
    }
}

/// `tasks` tasks acquire and release at once, again and again, for `block`.
pub(crate) async fn relay(lock: &AnyLock, tasks: usize, block: Duration) -> Result<Relay> {
    let started = Instant::now();
    let last = Arc::new(AtomicUsize::new(usize::MAX));
    let running: Vec<_> = (0..tasks)
        .map(|me| {
            let (lock, last) = (lock.clone(), Arc::clone(&last));
            tokio::spawn(async move {
                let mut handoffs = 0;
                let mut waits = waits()?;
                while started.elapsed() < block {
                    let asked = Instant::now();
                    let held = lock.acquire().await?;
                    waits.saturating_record(micros(asked));
                    handoffs += usize::from(last.swap(me, Ordering::Relaxed) != me);
                    held.release().await?;
                }
                anyhow::Ok((handoffs, waits))
            })
        })
        .collect();
    let mut relay = Relay {
        handoffs: 0,
        elapsed: Duration::ZERO,
        waits: waits()?,
    };
    for task in running {
        let (handoffs, waits) = task.await.context("a task panicked")??;
        relay.handoffs += handoffs;
        relay.waits.add(waits)?;
    }
    relay.elapsed = started.elapsed();
    Ok(relay)
}

/// One microsecond to one hour, three digits.
pub(crate) fn waits() -> Result<Histogram<u64>> {
    Ok(Histogram::new_with_bounds(1, 3_600_000_000, 3)?)
}

pub(crate) fn micros(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_micros()).unwrap_or(u64::MAX)
}

/// Requests for locks that clients sent since the last reset: scripts and subscriptions.
pub(crate) fn sent(server: &RedisServer) -> u64 {
    let stats = server.commands_processed();
    ["evalsha", "eval", "subscribe", "unsubscribe"]
        .iter()
        .filter_map(|name| stats.get(*name))
        .sum()
}
