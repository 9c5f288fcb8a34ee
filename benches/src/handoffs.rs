//! Many tasks on one name: who had it last, and what that cost.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use stanchion::Lock;
use stanchion_testkit::RedisServer;

/// What a block of contention brought.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Relay {
    pub(crate) grants: usize,
    /// Grants whose previous holder was another task.
    pub(crate) handoffs: usize,
    pub(crate) elapsed: Duration,
}

impl Relay {
    pub(crate) fn handoffs_per_second(self) -> f64 {
        self.handoffs as f64 / self.elapsed.as_secs_f64()
    }
}

/// `tasks` tasks acquire and release at once, again and again, for `block`.
pub(crate) async fn relay(lock: &Lock, tasks: usize, block: Duration) -> Result<Relay> {
    let started = Instant::now();
    let last = Arc::new(AtomicUsize::new(usize::MAX));
    let running: Vec<_> = (0..tasks)
        .map(|me| {
            let (lock, last) = (lock.clone(), Arc::clone(&last));
            tokio::spawn(async move {
                let (mut grants, mut handoffs) = (0, 0);
                while started.elapsed() < block {
                    let guard = lock.acquire().await?;
                    grants += 1;
                    handoffs += usize::from(last.swap(me, Ordering::Relaxed) != me);
                    guard.release().await?;
                }
                anyhow::Ok((grants, handoffs))
            })
        })
        .collect();
    let mut relay = Relay {
        grants: 0,
        handoffs: 0,
        elapsed: Duration::ZERO,
    };
    for task in running {
        let (grants, handoffs) = task.await.context("a task panicked")??;
        relay.grants += grants;
        relay.handoffs += handoffs;
    }
    relay.elapsed = started.elapsed();
    Ok(relay)
}

/// Requests for locks that clients sent since the last reset: scripts and subscriptions.
pub(crate) fn sent(server: &RedisServer) -> u64 {
    let stats = server.commands_processed();
    ["evalsha", "eval", "subscribe", "unsubscribe"]
        .iter()
        .filter_map(|name| stats.get(*name))
        .sum()
}
